//! Multi-head latent attention: keys and values are kept as one compressed vector per token.
//!
//! Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.

use super::attention::Reach;
use super::indexer::Indexer;
use crate::model::tensor::{Split, Tensor};

/// Multi-head latent attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Latent {
    /// Query heads.
    pub heads: u64,
    /// Rank of the query compression; `None`: queries are projected directly.
    pub q_lora_rank: Option<u64>,
    /// Width of the cached latent.
    pub kv_lora_rank: u64,
    /// Width of a head without position.
    pub qk_nope_head_dim: u64,
    /// Width of the rotary part; cached once, shared by all heads.
    pub qk_rope_head_dim: u64,
    /// Width of a value head.
    pub v_head_dim: u64,
    /// Whether the output is gated from the residual stream (Kimi K3).
    pub output_gate: bool,
    /// What of the past is read.
    pub reach: Reach,
    /// Chooses it.
    pub indexer: Option<Indexer>,
}

impl Latent {
    /// What one token keeps: the latent and the rotary key.
    pub fn cached(&self) -> u64 {
        self.kv_lora_rank + self.qk_rope_head_dim
    }

    pub(super) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let q = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim);
        let mut tensors = match self.q_lora_rank {
            None => vec![Tensor::linear("self_attn.q_proj", "q_proj", q, hidden, Split::Even)],
            Some(rank) => vec![
                Tensor::linear("self_attn.q_a_proj", "qkv_a_proj", rank, hidden, Split::Replicated),
                Tensor::vector("self_attn.q_a_layernorm", "norms", rank, Split::Replicated),
                Tensor::linear("self_attn.q_b_proj", "q_b_proj", q, rank, Split::Even),
            ],
        };
        let kv_a = self.kv_lora_rank + self.qk_rope_head_dim;
        let kv_b = self.heads * (self.qk_nope_head_dim + self.v_head_dim);
        let o = self.heads * self.v_head_dim;
        tensors.extend([
            Tensor::linear("self_attn.kv_a_proj_with_mqa", "qkv_a_proj", kv_a, hidden, Split::Replicated),
            Tensor::vector("self_attn.kv_a_layernorm", "norms", self.kv_lora_rank, Split::Replicated),
            Tensor::linear("self_attn.kv_b_proj", "kv_b_proj", kv_b, self.kv_lora_rank, Split::Even),
            Tensor::linear("self_attn.o_proj", "o_proj", hidden, o, Split::Even),
        ]);
        if self.output_gate {
            tensors.push(Tensor::linear("self_attn.g_proj", "g_proj", o, hidden, Split::Even));
        }
        if let Some(indexer) = &self.indexer {
            tensors.extend(indexer.tensors(hidden));
        }
        tensors
    }
}
