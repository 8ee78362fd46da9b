//! Indexers: cheap scores over the whole context that choose the tokens or blocks that attention reads.
//!
//! Knows: their tensors, their cached keys, and the FLOPs of scores. Sources: DeepSeek-V3.2's `inference/model.py`
//! (top-k of tokens), Hugging Face transformers' `modeling_minimax_m3_vl.py` (blocks per KV head).

use crate::model::tensor::{OperatorKind, Split, Tensor, TensorRole};

/// DeepSeek-V3.2's lightning indexer, which chooses the best `topk` tokens with many small heads and one shared key
/// per token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Indexer {
    /// Number of scoring heads.
    pub(crate) heads: u64,
    /// Width of a head, and of the one key that is cached per token.
    pub(crate) head_dim: u64,
    /// Number of tokens that attention reads.
    pub topk: u64,
    /// Rank of the compressed query from which the indexer's queries are projected.
    pub(crate) query_rank: u64,
    /// Number of tokens that share one pooled key and are chosen together (GLM-5.3-Flash's `index_kpool`).
    pub pool: u64,
    /// True if this layer computes scores; false if it uses the choice of the last layer that did (GLM-5.2's
    /// `indexer_types`).
    pub scores: bool,
}

impl Indexer {
    /// Bytes of one key in vLLM's indexer cache: fp8 with an fp32 scale per 128 values (`DeepseekV32IndexerCache`).
    pub fn key_bytes(head_dim: u64) -> u64 {
        head_dim + 4 * head_dim.div_ceil(128)
    }

    /// Width of the cached key.
    pub fn width(&self) -> u64 {
        self.head_dim
    }

    /// Bytes of the index keys of `context` tokens.
    pub fn bytes(&self, context: u64) -> u128 {
        let keys = u128::from(context.div_ceil(self.pool));
        if self.scores { keys * u128::from(Self::key_bytes(self.head_dim)) } else { 0 }
    }

    /// FLOPs to score one key for one query: 2·heads·width.
    pub fn flops_per_pair(&self) -> u128 {
        if self.scores { 2 * u128::from(self.heads) * u128::from(self.head_dim) } else { 0 }
    }

    /// Lists the weight tensors; the norm on keys is a LayerNorm with a bias.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        if !self.scores {
            return Vec::new();
        }
        let q = self.heads * self.head_dim;
        let whole = Split::Replicated;
        vec![
            Tensor::linear("self_attn.indexer.wq_b", OperatorKind::IndexerProj, q, self.query_rank, whole),
            Tensor::linear("self_attn.indexer.wk", OperatorKind::IndexerProj, self.head_dim, hidden, whole),
            Tensor::vector("self_attn.indexer.k_norm", OperatorKind::Norms, 2 * self.head_dim, whole),
            Tensor::linear(
                "self_attn.indexer.weights_proj",
                OperatorKind::IndexerWeights,
                self.heads,
                hidden,
                whole,
            )
            .with_role(TensorRole::Router),
        ]
    }
}

/// Index keys that are means of the layer's own keys (InfLLM-v2): fine means, one every `stride` tokens, and coarse
/// means, one every four strides, whose scores normalize the scores of the fine ones. Means have no weights; SGLang
/// 0.5.23 stores them in slots of the KV cache (`layers/attention/minicpm/cache.py`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MeanKeys {
    /// Number of KV heads, each of which has its own means.
    pub(crate) kv_heads: u64,
    /// Tokens from one fine mean to the next.
    pub(crate) stride: u64,
}

/// Index that chooses whole blocks: MiniMax-M3's, with one scoring head per KV head and one shared key, or
/// MiniCPM-SALA's, with the query heads and with means of keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlockIndex {
    /// Number of scoring heads.
    pub heads: u64,
    /// Width of a head and of the key.
    pub(crate) head_dim: u64,
    /// Number of blocks that a query reads.
    pub(crate) blocks: u64,
    /// Tokens per block.
    pub(crate) block: u64,
    /// Means that serve as index keys; `None` if keys are projected, one per token.
    pub means: Option<MeanKeys>,
}

impl BlockIndex {
    /// Most tokens that a query reads.
    pub(crate) fn reach(&self) -> u64 {
        self.blocks.saturating_mul(self.block)
    }

    /// Tokens from one index key to the next.
    pub fn ratio(&self) -> u64 {
        self.means.as_ref().map_or(1, |means| means.stride)
    }

    /// Bytes of the projected 16-bit index keys of `context` tokens; 0 for means, which are in slots of the KV cache.
    pub(crate) fn bytes(&self, context: u64) -> u128 {
        if self.means.is_some() { 0 } else { 2 * u128::from(context) * u128::from(self.head_dim) }
    }

    /// Slots of the KV cache that the means of `context` tokens occupy.
    pub(crate) fn slots(&self, context: u64) -> u64 {
        self.means.as_ref().map_or(0, |m| context / m.stride + context / m.stride.saturating_mul(4))
    }

    /// Bytes that scoring reads per 16-bit index key; for means, one per KV head, plus a quarter for the coarse
    /// means.
    pub fn key_bytes(&self) -> u64 {
        match &self.means {
            None => 2 * self.head_dim,
            Some(means) => 2 * means.kv_heads * self.head_dim * 5 / 4,
        }
    }

    /// FLOPs to score one index key for one query: 2·heads·width; for means, a quarter more for the coarse means.
    pub fn flops_per_pair(&self) -> u128 {
        let fine = 2 * u128::from(self.heads) * u128::from(self.head_dim);
        if self.means.is_some() { fine * 5 / 4 } else { fine }
    }

    /// Lists the weight tensors; means have none.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        if self.means.is_some() {
            return Vec::new();
        }
        let q = self.heads * self.head_dim;
        vec![
            Tensor::linear(
                "self_attn.index_q_proj",
                OperatorKind::QkvProj,
                q,
                hidden,
                Split::KvHeads(self.heads),
            ),
            Tensor::linear(
                "self_attn.index_k_proj",
                OperatorKind::QkvProj,
                self.head_dim,
                hidden,
                Split::Replicated,
            ),
            Tensor::vector(
                "self_attn.index_norms",
                OperatorKind::Norms,
                2 * self.head_dim,
                Split::Replicated,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_indexer_of_deepseek_v32_by_hand() {
        let indexer =
            Indexer { heads: 64, head_dim: 128, topk: 2048, query_rank: 1536, pool: 1, scores: true };
        // Weights: wq_b 8192·1536 + wk 128·7168 + norm 256 + head weights 64·7168 = 12,582,912 + 917,504 + 256 +
        // 458,752.
        let count: u128 = indexer.tensors(7168).iter().map(Tensor::elements).sum();
        assert_eq!(count, 13_959_424);
        // 128 fp8 values and one fp32 scale per token; 2·64·128 FLOPs per key.
        assert_eq!((indexer.bytes(10), indexer.flops_per_pair()), (1320, 16_384));
        let shared = Indexer { scores: false, ..indexer };
        assert_eq!((shared.bytes(10), shared.flops_per_pair(), shared.tensors(7168).len()), (0, 0, 0));
    }

    #[test]
    fn the_index_of_minimax_m3_by_hand() {
        let index = BlockIndex { heads: 4, head_dim: 128, blocks: 16, block: 128, means: None };
        // 16 blocks of 128 = 2048 tokens; (4 + 1)·128 rows of 6144, and two norms of 128.
        let count: u128 = index.tensors(6144).iter().map(Tensor::elements).sum();
        assert_eq!((index.reach(), index.bytes(3), count), (2048, 768, 640 * 6144 + 256));
    }

    #[test]
    fn the_index_of_minicpm_sala_by_hand() {
        let means = Some(MeanKeys { kv_heads: 2, stride: 16 });
        let index = BlockIndex { heads: 32, head_dim: 128, blocks: 96, block: 64, means };
        // 64 chosen blocks and 32 of the window, 64 tokens each. 100 tokens have six fine means and one coarse mean.
        assert_eq!(
            (index.reach(), index.slots(100), index.bytes(100), index.tensors(4096).len()),
            (6144, 7, 0, 0)
        );
        // Two heads of 128 in 16 bits, plus a quarter; 2 · 32 · 128 FLOPs, plus a quarter.
        assert_eq!((index.ratio(), index.key_bytes(), index.flops_per_pair()), (16, 640, 10_240));
    }
}
