//! DeepSeek-V4's attention: one key-value vector per token for the window, one per block of tokens for the past.
//!
//! Queries are compressed, outputs projected through low-rank groups. With a ratio of 4 an indexer chooses blocks, with
//! one of 128 all are read. Source: DeepSeek-V4's `inference/model.py` (2026): `Attention`, `Compressor`, `Indexer`.

use super::attention::causal_pairs;
use crate::model::tensor::{Split, Tensor};

/// Attention over a window and compressed blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compressed {
    /// Query heads.
    pub heads: u64,
    /// Width of a head, and of the one vector that is key and value.
    pub head_dim: u64,
    /// Rank of the query compression.
    pub q_lora_rank: u64,
    /// Groups of the output projection.
    pub o_groups: u64,
    /// Rank of each group.
    pub o_lora_rank: u64,
    /// Tokens seen uncompressed.
    pub window: u64,
    /// Tokens of a block; 0: there is only the window.
    pub ratio: u64,
    /// Scoring heads, width and chosen blocks of the indexer.
    pub index: Option<[u64; 3]>,
}

/// Below this ratio blocks overlap, which doubles the compressor.
const OVERLAPPING: u64 = 4;

impl Compressed {
    /// Window and blocks of a sequence.
    pub fn kv_elements(&self, context: u64) -> u128 {
        u128::from(context.min(self.window) + self.blocks(context)) * u128::from(self.head_dim)
    }

    /// Compressed blocks of `context` tokens.
    pub fn blocks(&self, context: u64) -> u64 {
        context.checked_div(self.ratio).unwrap_or(0)
    }

    /// The indexer's keys, one per block, in fp8 with an fp32 scale.
    pub fn indexer_bytes(&self, context: u64) -> u64 {
        self.index.map_or(0, |[_, dim, _]| self.blocks(context).saturating_mul(dim + 4))
    }

    /// What the compressors hold of a block that is not full, whatever the context: values and gates of its tokens in
    /// fp32, twice as many and twice as wide where blocks overlap.
    pub fn state_bytes(&self) -> u64 {
        let index = self.index.map_or(0, |[_, dim, _]| dim);
        let overlap = self.overlap();
        if self.ratio == 0 { 0 } else { 2 * 4 * overlap * self.ratio * overlap * (self.head_dim + index) }
    }

    /// Query-key pairs: those of the window and, per block, those of the past over the ratio, as many as are chosen.
    pub fn pairs(&self, new: u64, context: u64) -> u128 {
        let window = causal_pairs(new, context, Some(self.window));
        if self.ratio == 0 {
            return window;
        }
        let most = self.index.map(|[_, _, blocks]| blocks.saturating_mul(self.ratio));
        window + causal_pairs(new, context, most) / u128::from(self.ratio)
    }

    /// Vectors that `new` queries read, at least.
    pub fn seen(&self, new: u64, context: u64) -> u64 {
        let window = context.min(self.window.saturating_add(new - new.min(1)));
        let blocks = self.blocks(context);
        window + self.index.map_or(blocks, |[_, _, most]| blocks.min(most))
    }

    pub(super) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let inner = self.heads * self.head_dim;
        let whole = Split::Replicated;
        let mut tensors = vec![
            Tensor::linear("self_attn.wq_a", "qkv_a_proj", self.q_lora_rank, hidden, whole),
            Tensor::linear("self_attn.wq_b", "q_b_proj", inner, self.q_lora_rank, Split::Even),
            Tensor::linear("self_attn.wkv", "qkv_a_proj", self.head_dim, hidden, whole),
            Tensor::linear("self_attn.wo_a", "o_a_proj", self.o_lora_rank, inner, Split::Even),
            Tensor::linear(
                "self_attn.wo_b",
                "o_b_proj",
                hidden,
                self.o_groups * self.o_lora_rank,
                Split::Even,
            ),
            Tensor::vector("self_attn.norms", "norms", self.q_lora_rank + self.head_dim, whole),
            Tensor::vector("self_attn.attn_sink", "attention", self.heads, Split::Even),
        ];
        if self.ratio > 0 {
            // Values and gates of a block, twice as wide where blocks overlap; positions within a block; a norm.
            let width = self.overlap() * self.head_dim;
            tensors.push(Tensor::linear("self_attn.compressor", "compressor", 2 * width, hidden, whole));
            tensors.push(Tensor::vector(
                "self_attn.compressor.ape",
                "norms",
                self.ratio * width + self.head_dim,
                whole,
            ));
        }
        if let Some([heads, dim, _]) = self.index {
            tensors.push(Tensor::linear(
                "self_attn.indexer.wq_b",
                "indexer_proj",
                heads * dim,
                self.q_lora_rank,
                whole,
            ));
            tensors.push(Tensor::linear(
                "self_attn.indexer.weights_proj",
                "indexer_proj",
                heads,
                hidden,
                whole,
            ));
            tensors.push(Tensor::linear(
                "self_attn.indexer.compressor",
                "indexer_proj",
                2 * self.overlap() * dim,
                hidden,
                whole,
            ));
        }
        tensors
    }

    fn overlap(&self) -> u64 {
        if self.ratio <= OVERLAPPING { 2 } else { 1 }
    }
}
