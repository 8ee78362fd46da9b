//! DeepSeek-V4's attention: a sliding window plus compressed entries of the whole context.
//!
//! Knows: every `ratio` tokens give one entry; keys and values are one shared head. At ratio 4 (compressed sparse
//! attention) adjacent windows of the compressor overlap and an indexer chooses the best `topk` entries; at larger
//! ratios (heavily compressed attention) a query reads all entries. Source: Hugging Face transformers'
//! `modeling_deepseek_v4.py`; the state follows the released `inference/model.py` (fp32 rows of values and scores
//! that are kept until their window is full).

use super::attention::causal_pairs;
use super::indexer::Indexer;
use crate::model::tensor::{OperatorKind, Split, Tensor, TensorRole};

/// Ratio at which the compressor's windows overlap and an indexer chooses entries.
const SPARSE_RATIO: u64 = 4;

/// A layer of DeepSeek-V4's attention.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compressed {
    /// Number of query heads.
    pub heads: u64,
    /// Width of a head and of a cached entry.
    pub head_dim: u64,
    /// Rank of the low-rank query projection.
    pub(crate) q_lora_rank: u64,
    /// Number of groups of heads, each with a separate first half of the output projection.
    pub(crate) o_groups: u64,
    /// Width of each group's output between the halves of the output projection.
    pub(crate) o_lora_rank: u64,
    /// Tokens of the sliding window.
    pub window: u64,
    /// Tokens per compressed entry; `None` if the layer has only the window.
    pub ratio: Option<u64>,
    /// Indexer of compressed sparse attention.
    pub indexer: Option<Indexer>,
}

impl Compressed {
    /// True if an indexer chooses among entries of this ratio.
    pub(crate) fn is_sparse(ratio: u64) -> bool {
        ratio == SPARSE_RATIO
    }

    /// Number of compressed entries of `context` tokens.
    pub(crate) fn entries(&self, context: u64) -> u64 {
        self.ratio.map_or(0, |r| context / r)
    }

    /// Cached elements of `context` tokens: window and entries, each one head wide.
    pub(crate) fn kv_elements(&self, context: u64) -> u128 {
        u128::from(context.min(self.window) + self.entries(context)) * u128::from(self.head_dim)
    }

    /// Bytes of the indexer's keys of `context` tokens, one key per entry.
    pub(crate) fn index_bytes(&self, context: u64) -> u128 {
        self.indexer.as_ref().map_or(0, |i| i.bytes(self.entries(context)))
    }

    /// Bytes of values and scores, in fp32, that are kept until their window is full.
    pub(crate) fn state_bytes(&self) -> u128 {
        let Some(ratio) = self.ratio else { return 0 };
        let overlap = if self.indexer.is_some() { 2 } else { 1 };
        let rows = |width: u64| 2 * 4 * u128::from(overlap * ratio) * u128::from(overlap * width);
        rows(self.head_dim) + self.indexer.as_ref().map_or(0, |i| rows(i.head_dim))
    }

    /// Query-key pairs of `new` tokens at the end of `context` tokens, with tokens of the window and with entries.
    pub fn pairs(&self, new: u64, context: u64) -> u128 {
        let entries = self.ratio.map_or(0, |r| {
            let topk = self.indexer.as_ref().map_or(u64::MAX, |i| i.topk);
            entry_pairs(context, r, topk) - entry_pairs(context - new.min(context), r, topk)
        });
        causal_pairs(new, context, Some(self.window)) + entries
    }

    /// Cached elements that `new` queries at the end of `context` tokens read at least once.
    pub fn read_elements(&self, new: u64, context: u64) -> u128 {
        let window = context.min(self.window.saturating_add(new - new.min(1)));
        let topk = self.indexer.as_ref().map_or(u64::MAX, |i| i.topk);
        let fresh = self.entries(context) - self.entries(context - new.min(context));
        let entries = self.entries(context).min(topk.saturating_add(fresh));
        (u128::from(window) + u128::from(entries)) * u128::from(self.head_dim)
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let wide = self.heads * self.head_dim;
        let whole = Split::Replicated;
        let o = self.o_groups * self.o_lora_rank;
        let mut tensors = vec![
            Tensor::linear("self_attn.q_a_proj", OperatorKind::QkvAProj, self.q_lora_rank, hidden, whole),
            Tensor::linear("self_attn.kv_proj", OperatorKind::QkvAProj, self.head_dim, hidden, whole),
            Tensor::vector("self_attn.norms", OperatorKind::Norms, self.q_lora_rank + self.head_dim, whole),
            Tensor::linear("self_attn.q_b_proj", OperatorKind::QBProj, wide, self.q_lora_rank, Split::Even),
            Tensor::linear("self_attn.o_a_proj", OperatorKind::OAProj, o, wide / self.o_groups, Split::Even),
            Tensor::linear("self_attn.o_b_proj", OperatorKind::OProj, hidden, o, Split::Even),
            Tensor::vector("self_attn.sinks", OperatorKind::Attention, self.heads, Split::Even),
        ];
        let Some(ratio) = self.ratio else { return tensors };
        let overlap = if self.indexer.is_some() { 2 } else { 1 };
        tensors.extend(compressor(ratio, overlap, self.head_dim, hidden));
        if let Some(indexer) = &self.indexer {
            tensors.extend(compressor(ratio, overlap, indexer.head_dim, hidden));
            let q = indexer.heads * indexer.head_dim;
            tensors.extend([
                Tensor::linear(
                    "self_attn.indexer.wq_b",
                    OperatorKind::IndexerProj,
                    q,
                    indexer.query_rank,
                    whole,
                ),
                Tensor::linear(
                    "self_attn.indexer.weights_proj",
                    OperatorKind::IndexerWeights,
                    indexer.heads,
                    hidden,
                    whole,
                )
                .with_role(TensorRole::Router),
            ]);
        }
        tensors
    }
}

/// Weights of a compressor in 16 bits or more: projections of values and scores, position biases, and a norm.
fn compressor(ratio: u64, overlap: u64, width: u64, hidden: u64) -> [Tensor; 2] {
    let rows = 2 * overlap * width;
    let vectors = ratio * overlap * width + width;
    [
        Tensor::linear("self_attn.compressor", OperatorKind::Compressor, rows, hidden, Split::Replicated)
            .with_role(TensorRole::Router),
        Tensor::vector("self_attn.compressor.norm", OperatorKind::Norms, vectors, Split::Replicated),
    ]
}

/// Sum over queries at positions p of the entries that each reads: Σ_{p=1..context} min(⌊p/ratio⌋, most).
pub fn entry_pairs(context: u64, ratio: u64, most: u64) -> u128 {
    let full = most.saturating_mul(ratio);
    let free = context.min(full.saturating_sub(1));
    let q = u128::from(free / ratio);
    let r = u128::from(free % ratio);
    let rising = u128::from(ratio) * (q * q.saturating_sub(1) / 2) + q * (r + 1);
    rising + u128::from(context - free) * u128::from(most.min(context / ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compressed sparse layer of DeepSeek-V4-Flash.
    fn sparse() -> Compressed {
        let indexer =
            Indexer { heads: 64, head_dim: 128, topk: 512, query_rank: 1024, pool: 1, scores: true };
        Compressed {
            heads: 64,
            head_dim: 512,
            q_lora_rank: 1024,
            o_groups: 8,
            o_lora_rank: 1024,
            window: 128,
            ratio: Some(4),
            indexer: Some(indexer),
        }
    }

    #[test]
    fn entries_agree_with_counting_one_by_one() {
        for ratio in 1..6_u64 {
            for most in [1, 2, 5, u64::MAX] {
                for context in 0..60_u64 {
                    let counted: u64 = (1..=context).map(|p| (p / ratio).min(most)).sum();
                    assert_eq!(
                        entry_pairs(context, ratio, most),
                        u128::from(counted),
                        "{context}/{ratio}/{most}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_a_sequence_keeps_by_hand() {
        // At 8192 tokens: 128 tokens of the window and 8192/4 = 2048 entries, each 512 wide; 2048 index keys of 132
        // bytes.
        let layer = sparse();
        assert_eq!(layer.kv_elements(8192), (128 + 2048) * 512);
        assert_eq!(layer.index_bytes(8192), 2048 * 132);
        // Values and scores in fp32: 2·4·(8 rows · 1024), and for the indexer 2·4·(8 rows · 256).
        assert_eq!(layer.state_bytes(), 65_536 + 16_384);
        // A decode reads the window and the best 512 entries.
        assert_eq!(layer.read_elements(1, 8191), (128 + 512) * 512);
        assert_eq!(layer.pairs(1, 8192), 128 + 512);
        let heavy = Compressed { ratio: Some(128), indexer: None, ..layer };
        assert_eq!((heavy.kv_elements(8192), heavy.pairs(1, 8192)), ((128 + 64) * 512, 128 + 64));
        assert_eq!(heavy.state_bytes(), 2 * 4 * 128 * 512);
    }

    #[test]
    fn parameters_by_hand() {
        // Weights with hidden 4096: q_a 1024·4096, kv 512·4096, norms 1536, q_b 32768·1024, o_a 8192·4096, o_b
        // 4096·8192, 64 sinks.
        let window = Compressed { ratio: None, indexer: None, ..sparse() };
        let count = |c: &Compressed| c.tensors(4096).iter().map(Tensor::elements).sum::<u128>();
        let base = 4_194_304 + 2_097_152 + 1_536 + 33_554_432 + 33_554_432 + 33_554_432 + 64;
        assert_eq!(count(&window), base);
        // Further weights: compressor 2·2·512·4096 + 4·1024 + 512; the indexer's compressor 2·2·128·4096 + 4·256 +
        // 128; its wq_b 8192·1024; its head weights 64·4096.
        let more = 8_388_608 + 4_608 + 2_097_152 + 1_152 + 8_388_608 + 262_144;
        assert_eq!(count(&sparse()), base + more);
    }
}
