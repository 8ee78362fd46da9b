//! A light scorer that chooses which tokens attention reads.
//!
//! Sources: DeepSeek-V3.2-Exp's report (2025), section 2.1, and vLLM's `deepseek_v2.py` (0.11): keys are kept in fp8 with
//! an fp32 scale per 128 values.

use crate::model::tensor::{Split, Tensor};

/// An indexer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Indexer {
    /// Scoring heads.
    pub heads: u64,
    /// Width of each, and of the cached key.
    pub dim: u64,
    /// What queries are projected from: the query compression's rank, or the residual stream.
    pub query_rank: u64,
    /// Whether each head's score has a learned weight.
    pub weighted: bool,
    /// Whether this layer has an indexer of its own, or takes an earlier layer's choice.
    pub own: bool,
}

impl Indexer {
    /// Bytes of the keys of `context` tokens: fp8 and a scale per 128.
    pub fn bytes(&self, context: u64) -> u64 {
        if self.own { context.saturating_mul(self.dim + 4 * self.dim.div_ceil(128)) } else { 0 }
    }

    /// FLOPs to score one query-key pair.
    pub fn flops_per_pair(&self) -> u64 {
        if self.own { 2 * self.heads * self.dim } else { 0 }
    }

    pub(super) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        if !self.own {
            return Vec::new();
        }
        let whole = Split::Replicated;
        let mut tensors = vec![
            Tensor::linear(
                "self_attn.indexer.wq_b",
                "indexer_proj",
                self.heads * self.dim,
                self.query_rank,
                whole,
            ),
            Tensor::linear("self_attn.indexer.wk", "indexer_proj", self.dim, hidden, whole),
            Tensor::vector("self_attn.indexer.k_norm", "norms", 2 * self.dim, whole),
        ];
        if self.weighted {
            tensors.push(Tensor::linear(
                "self_attn.indexer.weights_proj",
                "indexer_proj",
                self.heads,
                hidden,
                whole,
            ));
        }
        tensors
    }
}
