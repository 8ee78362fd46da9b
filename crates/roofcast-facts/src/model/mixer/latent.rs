//! Multi-head latent attention (MLA): keys and values are cached as one compressed vector per token.
//!
//! Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; the indexer of DeepSeek-V3.2; the output gates of Kimi K3
//! and, per head, Ling 3.0; gate and sinks of Hy4 (`modeling_hy_v4.py` of Hugging Face transformers 5.24).

use super::attention::Gate;
use super::indexer::Indexer;
use crate::model::tensor::{OperatorKind, Split, Tensor};
use crate::precision::KvFormat;

/// Layer with multi-head latent attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Latent {
    /// Number of query heads.
    pub heads: u64,
    /// Rank of the low-rank query projection; `None` if queries are projected directly.
    pub(crate) q_lora_rank: Option<u64>,
    /// Width of the cached latent.
    pub kv_lora_rank: u64,
    /// Width of the part of a query or key head without rotary position.
    pub qk_nope_head_dim: u64,
    /// Width of the rotary part of a head; its key is cached once and shared by all heads.
    pub qk_rope_head_dim: u64,
    /// Width of a value head.
    pub v_head_dim: u64,
    /// Gate on the attention output, projected from the residual stream.
    pub(crate) gate: Gate,
    /// True if each head has a learned sink (Hy4).
    pub(crate) sinks: bool,
    /// Indexer that chooses the tokens that attention reads.
    pub indexer: Option<Indexer>,
    /// True if a row of 8 bits has scales and a rotary part in 16 bits; see [`Latent::row_bytes`].
    pub scaled_rows: bool,
}

/// Values of a latent that share a scale of 32 bits.
const SCALED: u64 = 128;

impl Latent {
    /// Cached elements of one token: the latent and the rotary key.
    pub fn cached(&self) -> u64 {
        self.kv_lora_rank + self.qk_rope_head_dim
    }

    /// Bytes of a token's row in FlashMLA's layout for sparse attention (`fp8_ds_mla`): values of 8 bits, a scale for 128 of
    /// them, and the rotary key in 16 bits; `None` for rows that are of the KV format alone.
    pub fn row_bytes(&self, kv: KvFormat) -> Option<u64> {
        let is_scaled = self.scaled_rows && kv.name == KvFormat::FP8.name;
        is_scaled
            .then(|| self.kv_lora_rank + 4 * self.kv_lora_rank.div_ceil(SCALED) + 2 * self.qk_rope_head_dim)
    }

    /// Most tokens that one query reads; `None` for the whole context.
    pub fn reach(&self) -> Option<u64> {
        self.indexer.as_ref().map(|i| i.topk)
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let q = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim);
        let mut tensors = match self.q_lora_rank {
            None => vec![Tensor::linear("self_attn.q_proj", OperatorKind::QProj, q, hidden, Split::Even)],
            Some(rank) => vec![
                Tensor::linear("self_attn.q_a_proj", OperatorKind::QkvAProj, rank, hidden, Split::Replicated),
                Tensor::vector("self_attn.q_a_layernorm", OperatorKind::Norms, rank, Split::Replicated),
                Tensor::linear("self_attn.q_b_proj", OperatorKind::QBProj, q, rank, Split::Even),
            ],
        };
        let kv_b = self.heads * (self.qk_nope_head_dim + self.v_head_dim);
        let o = self.heads * self.v_head_dim;
        tensors.extend([
            Tensor::linear(
                "self_attn.kv_a_proj_with_mqa",
                OperatorKind::QkvAProj,
                self.cached(),
                hidden,
                Split::Replicated,
            ),
            Tensor::vector(
                "self_attn.kv_a_layernorm",
                OperatorKind::Norms,
                self.kv_lora_rank,
                Split::Replicated,
            ),
            Tensor::linear(
                "self_attn.kv_b_proj",
                OperatorKind::KvBProj,
                kv_b,
                self.kv_lora_rank,
                Split::Even,
            ),
            Tensor::linear("self_attn.o_proj", OperatorKind::OProj, hidden, o, Split::Even),
        ]);
        let gates = match self.gate {
            Gate::None => 0,
            Gate::Elements => o,
            Gate::Heads => self.heads,
        };
        if gates > 0 {
            tensors.push(Tensor::linear("self_attn.g_proj", OperatorKind::GProj, gates, hidden, Split::Even));
        }
        if self.sinks {
            tensors.push(Tensor::vector("self_attn.sinks", OperatorKind::Attention, self.heads, Split::Even));
        }
        tensors.extend(self.indexer.iter().flat_map(|i| i.tensors(hidden)));
        tensors
    }
}
