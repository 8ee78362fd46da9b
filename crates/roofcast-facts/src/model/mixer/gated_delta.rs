//! Gated delta net: linear attention whose state decays by a gate and is updated by the delta rule.
//!
//! Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464); Hugging Face transformers'
//! `modeling_qwen3_next.py` and `modeling_qwen3_5.py`, which have equal weights under different names.

use super::RecurrentState;
use crate::model::tensor::{OperatorKind, Split, Tensor, TensorRole};

/// Layer with a gated delta net.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GatedDelta {
    /// Number of query heads, and of key heads.
    pub key_heads: u64,
    /// Number of value heads, each with a separate state.
    pub value_heads: u64,
    /// Width of a key.
    pub key_dim: u64,
    /// Width of a value.
    pub value_dim: u64,
    /// Taps of the convolution over queries, keys and values.
    pub(crate) conv: u64,
    /// Bytes per element of the recurrent state.
    pub(crate) state_element: u64,
    /// Bytes per element of the inputs that the convolution keeps.
    pub(crate) conv_element: u64,
}

impl GatedDelta {
    /// Channels of the convolution: queries, keys and values.
    fn channels(&self) -> u64 {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// State of one sequence: a key × value matrix per value head, and the last `conv − 1` inputs of each channel.
    /// Per token, Sᵀk, the rank-one update and Sᵀq cost 2·key·value FLOPs each.
    pub(crate) fn state(&self) -> RecurrentState {
        let matrix = u128::from(self.value_heads) * u128::from(self.key_dim) * u128::from(self.value_dim);
        let tail = u128::from(self.conv.saturating_sub(1)) * u128::from(self.channels());
        RecurrentState {
            bytes: matrix * u128::from(self.state_element) + tail * u128::from(self.conv_element),
            flops: 6 * matrix + 2 * u128::from(self.conv) * u128::from(self.channels()),
            heads: self.value_heads,
        }
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let v = self.value_heads * self.value_dim;
        let h = self.value_heads;
        let even = Split::Even;
        vec![
            Tensor::linear("linear_attn.in_proj_qkv", OperatorKind::InProj, self.channels(), hidden, even),
            Tensor::linear("linear_attn.in_proj_z", OperatorKind::InProj, v, hidden, even),
            // A scale and a decay per head, which stay in 16 bits.
            Tensor::linear("linear_attn.in_proj_ba", OperatorKind::InProjBa, 2 * h, hidden, even)
                .with_role(TensorRole::Router),
            Tensor::vector("linear_attn.conv1d", OperatorKind::Conv1d, self.conv * self.channels(), even),
            Tensor::vector("linear_attn.A_log", OperatorKind::Norms, 2 * h, even),
            Tensor::vector("linear_attn.norm", OperatorKind::Norms, self.value_dim, Split::Replicated),
            Tensor::linear("linear_attn.out_proj", OperatorKind::OProj, hidden, v, even),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qwen3_next_by_hand() {
        let net = GatedDelta {
            key_heads: 16,
            value_heads: 32,
            key_dim: 128,
            value_dim: 128,
            conv: 4,
            state_element: 4,
            conv_element: 2,
        };
        // Channels 2·16·128 + 32·128 = 8192. State 32·128·128 = 524,288 elements in fp32, convolution inputs 3·8192
        // in bf16.
        assert_eq!(net.state().bytes, 524_288 * 4 + 24_576 * 2);
        assert_eq!(net.state().flops, 6 * 524_288 + 2 * 4 * 8192);
        // Weights with hidden 2048: qkv 8192·2048, z 4096·2048, ba 64·2048, conv 4·8192, A and dt 64, norm 128, out
        // 2048·4096.
        let count: u128 = net.tensors(2048).iter().map(Tensor::elements).sum();
        assert_eq!(count, 16_777_216 + 8_388_608 + 131_072 + 32_768 + 64 + 128 + 8_388_608);
    }
}
