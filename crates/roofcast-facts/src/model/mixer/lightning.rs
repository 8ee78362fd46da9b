//! Lightning attention: linear attention with a fixed decay per head and without the delta rule.
//!
//! Source: MiniMax-01 (arXiv 2501.08313) and Hugging Face transformers' `modeling_minimax.py`; MiniCPM-SALA's in
//! `models/minicpm.py` of SGLang 0.5.23. vLLM keeps the state in fp32 (`linear_attention_state_dtype`).

use super::RecurrentState;
use crate::model::tensor::{OperatorKind, Split, Tensor};

/// Layer with lightning attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lightning {
    /// Number of heads.
    pub(crate) heads: u64,
    /// Width of a query, key and value head.
    pub(crate) head_dim: u64,
    /// Weights of the norms on queries and keys.
    pub(crate) qk_norm: u64,
    /// True if each output element has a gate.
    pub(crate) output_gate: bool,
    /// True if the output has a norm over all heads.
    pub(crate) output_norm: bool,
}

impl Lightning {
    /// State of one sequence: a square fp32 matrix per head. Per token, the update and the product with the query
    /// cost 2·width² FLOPs each.
    pub(crate) fn state(&self) -> RecurrentState {
        let matrix = u128::from(self.heads) * u128::from(self.head_dim) * u128::from(self.head_dim);
        RecurrentState { bytes: 4 * matrix, flops: 4 * matrix, heads: self.heads }
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let wide = self.heads * self.head_dim;
        let even = Split::Even;
        let mut tensors =
            vec![Tensor::linear("self_attn.qkv_proj", OperatorKind::InProj, 3 * wide, hidden, even)];
        if self.output_gate {
            tensors.push(Tensor::linear("self_attn.output_gate", OperatorKind::InProj, wide, hidden, even));
        }
        if self.output_norm {
            tensors.push(Tensor::vector("self_attn.norm", OperatorKind::Norms, wide, even));
        }
        if self.qk_norm > 0 {
            let name = "self_attn.qk_norm";
            let whole = Split::Replicated;
            tensors.push(Tensor::vector(name, OperatorKind::Norms, self.qk_norm, whole));
        }
        tensors.push(Tensor::linear("self_attn.out_proj", OperatorKind::OProj, hidden, wide, even));
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimax_01_by_hand() {
        let lightning =
            Lightning { heads: 64, head_dim: 128, qk_norm: 0, output_gate: true, output_norm: true };
        // State of 64 · 128 · 128 = 1,048,576 elements.
        assert_eq!((lightning.state().bytes, lightning.state().flops), (4_194_304, 4_194_304));
        // Weights with hidden 6144 and width 8192: five matrices and a norm.
        let count: u128 = lightning.tensors(6144).iter().map(Tensor::elements).sum();
        assert_eq!(count, 5 * 8192 * 6144 + 8192);
    }
}
