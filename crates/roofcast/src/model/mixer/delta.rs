//! Linear attention by a delta rule: each value head keeps a matrix of key width × value width.
//!
//! Sources: `Qwen3NextGatedDeltaNet` in Hugging Face transformers 4.57 (`modeling_qwen3_next.py`); `KimiDeltaAttention` in
//! Kimi-Linear's `modeling_kimi.py`; Yang et al., arXiv 2412.06464.

use crate::model::tensor::{Split, Tensor};

/// A delta-rule layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delta {
    /// Query and key heads.
    pub key_heads: u64,
    /// Value heads; each has a state.
    pub value_heads: u64,
    /// Width of a key head.
    pub key_dim: u64,
    /// Width of a value head.
    pub value_dim: u64,
    /// Taps of the short convolutions on queries, keys and values.
    pub kernel: u64,
    /// How it is gated.
    pub gate: DeltaGate,
    /// Bits of a state element.
    pub state_bits: u64,
}

/// How a delta rule is gated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeltaGate {
    /// A decay per head, an output gate of value width (gated delta net).
    Head,
    /// A decay per key channel through a low rank, an output gate of low or full rank (Kimi delta attention).
    Channel {
        /// Whether the output gate has full rank.
        full_rank: bool,
    },
    /// A fixed decay per head and an output gate of value width; no delta (lightning attention, arXiv 2501.08313).
    Fixed,
}

impl Delta {
    fn keys(&self) -> u64 {
        self.key_heads * self.key_dim
    }

    fn values(&self) -> u64 {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolutions.
    fn channels(&self) -> u64 {
        2 * self.keys() + self.values()
    }

    /// State matrices and the convolutions' last inputs (16 bits each) of one sequence.
    pub fn state_bytes(&self) -> u64 {
        self.value_heads * self.key_dim * self.value_dim * self.state_bits / 8
            + self.kernel.saturating_sub(1) * self.channels() * 2
    }

    /// FLOPs of one token on the states, two each an element: reading by key, adding the correction, reading by query;
    /// without a delta the first falls away.
    pub fn flops_per_token(&self) -> u64 {
        let products = if self.gate == DeltaGate::Fixed { 2 } else { 3 };
        2 * products * self.value_heads * self.key_dim * self.value_dim
    }

    pub(super) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let (k, v) = (self.keys(), self.values());
        let linear =
            |name, operator, rows, columns| Tensor::linear(name, operator, rows, columns, Split::Even);
        let mut tensors = vec![
            linear("linear_attn.in_proj_qkv", "in_proj", 2 * k + v, hidden),
            linear("linear_attn.out_proj", "o_proj", hidden, v),
            Tensor::vector("linear_attn.conv1d", "conv1d", self.channels() * self.kernel, Split::Even),
        ];
        match self.gate {
            DeltaGate::Head => {
                tensors.push(linear("linear_attn.in_proj_z", "in_proj", v, hidden));
                tensors.push(linear("linear_attn.in_proj_b", "in_proj", self.value_heads, hidden));
                tensors.push(linear("linear_attn.in_proj_a", "in_proj", self.value_heads, hidden));
                let small = 2 * self.value_heads + self.value_dim;
                tensors.push(Tensor::vector("linear_attn.norm", "norms", small, Split::Replicated));
            }
            DeltaGate::Fixed => {
                tensors.push(linear("linear_attn.in_proj_z", "in_proj", v, hidden));
                tensors.push(Tensor::vector("linear_attn.norm", "norms", v, Split::Even));
            }
            DeltaGate::Channel { full_rank } => {
                let rank = self.key_dim;
                tensors.push(linear("linear_attn.b_proj", "in_proj", self.value_heads, hidden));
                tensors.push(Tensor::linear(
                    "linear_attn.f_a_proj",
                    "in_proj",
                    rank,
                    hidden,
                    Split::Replicated,
                ));
                tensors.push(linear("linear_attn.f_b_proj", "f_b_proj", v, rank));
                if full_rank {
                    tensors.push(linear("linear_attn.g_proj", "in_proj", v, hidden));
                } else {
                    tensors.push(Tensor::linear(
                        "linear_attn.g_a_proj",
                        "in_proj",
                        rank,
                        hidden,
                        Split::Replicated,
                    ));
                    tensors.push(linear("linear_attn.g_b_proj", "g_b_proj", v, rank));
                }
                let small = self.value_heads + v + self.value_dim;
                tensors.push(Tensor::vector("linear_attn.norm", "norms", small, Split::Replicated));
            }
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_by_hand() {
        // Qwen3.5-27B: 48 value heads of 128 × 128 in fp32 = 3,145,728 bytes; convolutions: 3 inputs of
        // 2 · 16 · 128 + 48 · 128 = 10,240 channels in 16 bits = 61,440 bytes.
        let delta = Delta {
            key_heads: 16,
            value_heads: 48,
            key_dim: 128,
            value_dim: 128,
            kernel: 4,
            gate: DeltaGate::Head,
            state_bits: 32,
        };
        assert_eq!(delta.state_bytes(), 3_145_728 + 61_440);
        // Three products of 128 × 128 a head, two FLOPs an element: 6 · 48 · 16,384.
        assert_eq!(delta.flops_per_token(), 4_718_592);
    }
}
