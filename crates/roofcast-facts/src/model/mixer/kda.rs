//! Kimi delta attention (KDA): a gated delta net whose decay has one value per channel.
//!
//! Source: Kimi Linear (arXiv 2510.26692) and its `modeling_kimi.py`; Ling 3.0's in `bailing_moe_v3.py` of vLLM 0.32.
//! vLLM keeps the state in fp32 (`kda_state_dtype`).

use super::RecurrentState;
use crate::model::tensor::{OperatorKind, Split, Tensor, TensorRole};

/// Layer with Kimi delta attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kda {
    /// Number of heads.
    pub heads: u64,
    /// Width of a query, key and value head.
    pub head_dim: u64,
    /// Taps of the convolutions over queries, keys and values.
    pub(crate) conv: u64,
    /// True if the output gate is one full matrix (Kimi K3); false if it is a product of two matrices with a head's
    /// width in between (Kimi Linear).
    pub(crate) full_gate: bool,
    /// True if the decay is one full matrix (Ling 3.0); false if it is a product of two matrices with a head's width
    /// in between.
    pub(crate) full_decay: bool,
    /// Bytes per element of the inputs that the convolutions keep.
    pub(crate) conv_element: u64,
}

impl Kda {
    /// State of one sequence: a square fp32 matrix per head, and the last `conv − 1` inputs of q, k and v. Per token,
    /// Sᵀk, the rank-one update and Sᵀq cost 2·width² FLOPs each.
    pub(crate) fn state(&self) -> RecurrentState {
        let matrix = u128::from(self.heads) * u128::from(self.head_dim) * u128::from(self.head_dim);
        let channels = 3 * u128::from(self.heads * self.head_dim);
        let tail = u128::from(self.conv.saturating_sub(1)) * channels;
        RecurrentState {
            bytes: matrix * 4 + tail * u128::from(self.conv_element),
            flops: 6 * matrix + 2 * u128::from(self.conv) * channels,
            heads: self.heads,
        }
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let wide = self.heads * self.head_dim;
        let head = self.head_dim;
        let even = Split::Even;
        let whole = Split::Replicated;
        let mut tensors = vec![
            Tensor::linear("self_attn.q_proj", OperatorKind::QkvProj, wide, hidden, even),
            Tensor::linear("self_attn.k_proj", OperatorKind::QkvProj, wide, hidden, even),
            Tensor::linear("self_attn.v_proj", OperatorKind::QkvProj, wide, hidden, even),
            Tensor::linear("self_attn.b_proj", OperatorKind::BetaProj, self.heads, hidden, even)
                .with_role(TensorRole::Router),
            Tensor::vector("self_attn.conv1d", OperatorKind::Conv1d, 3 * self.conv * wide, even),
            Tensor::vector("self_attn.A_log", OperatorKind::Norms, self.heads + wide, even),
            Tensor::vector("self_attn.o_norm", OperatorKind::Norms, head, whole),
            Tensor::linear("self_attn.o_proj", OperatorKind::OProj, hidden, wide, even),
        ];
        if self.full_decay {
            tensors.push(Tensor::linear("self_attn.f_proj", OperatorKind::DecayProj, wide, hidden, even));
        } else {
            tensors.push(Tensor::linear("self_attn.f_a_proj", OperatorKind::DecayProj, head, hidden, whole));
            tensors.push(Tensor::linear("self_attn.f_b_proj", OperatorKind::DecayProj, wide, head, even));
        }
        if self.full_gate {
            tensors.push(Tensor::linear("self_attn.g_proj", OperatorKind::GProj, wide, hidden, even));
        } else {
            tensors.push(Tensor::linear("self_attn.g_a_proj", OperatorKind::GProj, head, hidden, whole));
            tensors.push(Tensor::linear("self_attn.g_b_proj", OperatorKind::GProj, wide, head, even));
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kimi_linear_by_hand() {
        let kda =
            Kda { heads: 32, head_dim: 128, conv: 4, full_gate: false, full_decay: false, conv_element: 2 };
        // 32·128·128 elements in fp32, and 3 inputs of 3·4096 channels in bf16.
        assert_eq!(kda.state().bytes, 524_288 * 4 + 3 * 12_288 * 2);
        // Weights with hidden 2304: q, k, v, o 4096·2304 each; f and g: 128·2304 + 4096·128 each; b 32·2304; conv
        // 4·12288; A and dt 32 + 4096; norm 128.
        let count: u128 = kda.tensors(2304).iter().map(Tensor::elements).sum();
        assert_eq!(count, 4 * 9_437_184 + 2 * (294_912 + 524_288) + 73_728 + 49_152 + 4_128 + 128);
    }
}
