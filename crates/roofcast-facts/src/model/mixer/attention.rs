//! Softmax attention with grouped heads (MHA, GQA, MQA): full, windowed, in chunks, over indexed blocks, or with an
//! earlier layer's cache.
//!
//! Knows: tensors, cached elements per token, and the query-key pairs of a chunk. Source: Hugging Face transformers'
//! `modeling_*.py` of the types named at each field.

use super::indexer::BlockIndex;
use crate::model::tensor::{OperatorKind, Split, Tensor};

/// Grouped-query attention (GQA); it is MHA if `kv_heads` equals `heads`, and MQA if `kv_heads` is 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Number of query heads.
    pub heads: u64,
    /// Number of key and value heads.
    pub kv_heads: u64,
    /// Width of a query head and of a key head.
    pub head_dim: u64,
    /// Width of a value head.
    pub v_head_dim: u64,
    /// Sliding window: only the last `window` tokens are read and kept.
    pub window: Option<u64>,
    /// Tokens of a chunk: a query reads only tokens of its own chunk, and earlier chunks are dropped (Llama 4).
    pub chunk: Option<u64>,
    /// Rank of a shared query vector with a norm, from which queries are projected (Step3's `share_q_dim`).
    pub(crate) q_rank: Option<u64>,
    /// True if q, k and v have biases.
    pub(crate) qkv_bias: bool,
    /// True if the output projection has a bias.
    pub(crate) o_bias: bool,
    /// Weights of the norms on queries and keys.
    pub(crate) qk_norm: u64,
    /// True if each head has a learned sink (gpt-oss).
    pub(crate) sinks: bool,
    /// Gate on the attention output.
    pub(crate) gate: Gate,
    /// True if values are computed by the keys' projection, without v_proj. Both are cached nevertheless, because
    /// Gemma 4's global layers normalize and rotate them separately.
    pub(crate) values_from_keys: bool,
    /// True if this layer uses the keys and values of an earlier layer and neither projects nor caches its own (Gemma
    /// 3n and 4).
    pub shared_kv: bool,
    /// Index that chooses the blocks to read (MiniMax-M3, MiniCPM-SALA).
    pub index: Option<BlockIndex>,
}

/// Gate that scales the attention output before the output projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gate {
    /// No gate.
    None,
    /// One value per output element: q_proj is twice as wide (Qwen3-Next).
    Elements,
    /// One value per head (Step-3.5).
    Heads,
}

impl Attention {
    /// Creates plain attention over the whole context.
    pub(crate) fn new(heads: u64, kv_heads: u64, head_dim: u64) -> Attention {
        Attention {
            heads,
            kv_heads,
            head_dim,
            v_head_dim: head_dim,
            window: None,
            chunk: None,
            q_rank: None,
            qkv_bias: false,
            o_bias: false,
            qk_norm: 0,
            sinks: false,
            gate: Gate::None,
            values_from_keys: false,
            shared_kv: false,
            index: None,
        }
    }

    /// Cached elements of one token's keys and values.
    pub fn kv_elements_per_token(&self) -> u64 {
        self.kv_heads * (self.head_dim + self.v_head_dim)
    }

    /// Tokens of a context that this layer keeps in its cache.
    pub(crate) fn kept(&self, context: u64) -> u64 {
        if self.shared_kv {
            return 0;
        }
        context.min(self.window.unwrap_or(u64::MAX)).min(self.chunk.unwrap_or(u64::MAX))
    }

    /// Query-key pairs of `new` tokens at the end of `context` tokens.
    #[inline]
    pub fn pairs(&self, new: u64, context: u64) -> u128 {
        match (self.chunk, self.reach()) {
            (Some(chunk), _) => chunked_pairs(new, context, chunk),
            (None, reach) => causal_pairs(new, context, reach),
        }
    }

    /// Tokens whose keys and values are read at least once: the union of the ranges that the `new` queries read.
    #[inline]
    pub fn seen(&self, new: u64, context: u64) -> u64 {
        match (self.chunk, self.reach()) {
            (Some(chunk), _) => context - context.saturating_sub(new.max(1)) / chunk * chunk,
            (None, Some(reach)) => context.min(reach.saturating_add(new - new.min(1))),
            (None, None) => context,
        }
    }

    /// Most tokens that one query reads; `None` for the whole context.
    #[inline]
    pub fn reach(&self) -> Option<u64> {
        self.index.as_ref().map(BlockIndex::reach).or(self.window)
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let kv = Split::KvHeads(self.kv_heads);
        let wide = self.heads * self.head_dim;
        let k = self.kv_heads * self.head_dim;
        let q = if self.gate == Gate::Elements { wide + self.heads * self.v_head_dim } else { wide };
        let v = self.kv_heads * self.v_head_dim;
        let o = self.heads * self.v_head_dim;
        let mut tensors = match self.q_rank {
            None => vec![Tensor::linear("self_attn.q_proj", OperatorKind::QkvProj, q, hidden, Split::Even)],
            Some(rank) => vec![
                Tensor::linear("self_attn.q_proj", OperatorKind::QkvAProj, rank, hidden, Split::Replicated),
                Tensor::vector("self_attn.inter_norm", OperatorKind::Norms, rank, Split::Replicated),
                Tensor::linear("self_attn.wq", OperatorKind::QBProj, q, rank, Split::Even),
            ],
        };
        if !self.shared_kv {
            tensors.push(Tensor::linear("self_attn.k_proj", OperatorKind::QkvProj, k, hidden, kv));
        }
        if !self.shared_kv && !self.values_from_keys {
            tensors.push(Tensor::linear("self_attn.v_proj", OperatorKind::QkvProj, v, hidden, kv));
        }
        tensors.push(Tensor::linear("self_attn.o_proj", OperatorKind::OProj, hidden, o, Split::Even));
        if self.qkv_bias {
            tensors.push(Tensor::vector("self_attn.q_proj.bias", OperatorKind::QkvProj, q, Split::Even));
            if !self.shared_kv {
                tensors.push(Tensor::vector("self_attn.k_proj.bias", OperatorKind::QkvProj, k, kv));
                tensors.push(Tensor::vector("self_attn.v_proj.bias", OperatorKind::QkvProj, v, kv));
            }
        }
        if self.o_bias {
            tensors.push(Tensor::vector(
                "self_attn.o_proj.bias",
                OperatorKind::OProj,
                hidden,
                Split::Replicated,
            ));
        }
        if self.qk_norm > 0 {
            tensors.push(Tensor::vector(
                "self_attn.qk_norm",
                OperatorKind::Norms,
                self.qk_norm,
                Split::Replicated,
            ));
        }
        if self.sinks {
            tensors.push(Tensor::vector("self_attn.sinks", OperatorKind::Attention, self.heads, Split::Even));
        }
        if self.gate == Gate::Heads {
            tensors.push(Tensor::linear(
                "self_attn.g_proj",
                OperatorKind::QkvProj,
                self.heads,
                hidden,
                Split::Even,
            ));
        }
        tensors.extend(self.index.iter().flat_map(|i| i.tensors(hidden)));
        tensors
    }
}

/// Query-key pairs of `new` tokens at the end of `context` tokens, if a query reads itself and earlier tokens of its
/// chunk.
///
/// The number up to position c = q·k + r, with chunks of k tokens, is Σ_{p=1..c} ((p − 1) mod k + 1) = q·k(k + 1)/2 +
/// r(r + 1)/2.
pub(crate) fn chunked_pairs(new: u64, context: u64, chunk: u64) -> u128 {
    let chunk = u128::from(chunk.max(1));
    let up_to = |c: u64| {
        let q = u128::from(c) / chunk;
        let r = u128::from(c) % chunk;
        q * (chunk * (chunk + 1) / 2) + r * (r + 1) / 2
    };
    up_to(context) - up_to(context - new.min(context))
}

/// Query-key pairs of `new` tokens at the end of a sequence of `context` tokens (which include the new ones), if each
/// query reads itself and earlier tokens, at most `window` in all.
///
/// Without a window the number is Σ_{i=1..n} (c − n + i) = n(c − n) + n(n + 1)/2.
#[inline]
pub fn causal_pairs(new: u64, context: u64, window: Option<u64>) -> u128 {
    let n = new.min(context);
    if window.is_none() && context < 1 << 32 {
        // 64 bits suffice for n · c, which fits for most contexts and is faster than 128 bits.
        return u128::from(n * (context - n) + n * (n + 1) / 2);
    }
    let n = u128::from(n);
    let c = u128::from(context);
    let full = n * (c - n) + n * (n + 1) / 2;
    let Some(window) = window.map(u128::from) else { return full };
    // Queries are at positions c−n+1 ..= c; a query beyond the window reads `window` keys, any other as many as its
    // position.
    let past = (c - window.min(c)).min(n);
    let excess = past * (c - window.min(c)) - past * past.saturating_sub(1) / 2;
    full - excess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_by_hand() {
        // A prompt of 4 tokens: 1 + 2 + 3 + 4. One decode at context 5: 5. Two new tokens at context 5: 4 + 5.
        assert_eq!(
            [causal_pairs(4, 4, None), causal_pairs(1, 5, None), causal_pairs(2, 5, None)],
            [10, 5, 9]
        );
        // With a window of 2, a prompt of 4 tokens reads 1 + 2 + 2 + 2; with a window of 3, two new tokens at context
        // 5 read 3 + 3.
        assert_eq!([causal_pairs(4, 4, Some(2)), causal_pairs(2, 5, Some(3))], [7, 6]);
    }

    #[test]
    fn pairs_agree_with_counting_one_by_one() {
        for context in 1..30_u64 {
            for new in 1..=context {
                for window in 1..32_u64 {
                    let counted: u64 =
                        (context - new + 1..=context).map(|position| position.min(window)).sum();
                    assert_eq!(causal_pairs(new, context, Some(window)), u128::from(counted));
                }
            }
        }
    }

    /// The last two of c tokens read c − 1 and c tokens, below and above contexts of 2^32, where the arithmetic
    /// changes from 64 to 128 bits.
    #[test]
    fn pairs_of_long_contexts_by_hand() {
        for context in [(1 << 32) - 1, 1 << 32, 1 << 40] {
            assert_eq!(causal_pairs(2, context, None), u128::from(2 * context - 1));
        }
        // All of 2³² − 1 tokens are new: n (n + 1) / 2 pairs.
        let longest = (1_u64 << 32) - 1;
        assert_eq!(causal_pairs(longest, longest, None), u128::from(longest) << 31);
    }

    #[test]
    fn chunks_by_hand() {
        // Chunks of 4: positions 1..=6 read 1, 2, 3, 4, 1, 2 tokens; a decode at context 6 reads 2, and the cache
        // keeps 4.
        assert_eq!([chunked_pairs(6, 6, 4), chunked_pairs(1, 6, 4), chunked_pairs(2, 5, 4)], [13, 2, 5]);
        let attention = Attention { chunk: Some(4), ..Attention::new(1, 1, 1) };
        assert_eq!([attention.seen(1, 6), attention.seen(2, 5), attention.seen(1, 4)], [2, 5, 4]);
        assert_eq!([attention.kept(3), attention.kept(6)], [3, 4]);
    }

    #[test]
    fn shared_and_key_valued_layers_drop_projections() {
        // With hidden 4 and one head of 2, q, k, v and o have 8 weights each.
        let plain = Attention::new(1, 1, 2);
        let count = |a: &Attention| a.tensors(4).iter().map(Tensor::elements).sum::<u128>();
        assert_eq!(count(&plain), 32);
        assert_eq!(count(&Attention { values_from_keys: true, ..plain.clone() }), 24);
        assert_eq!(count(&Attention { shared_kv: true, ..plain.clone() }), 16);
        // A gate per element doubles q; a gate per head adds a row of 4 weights.
        assert_eq!(count(&Attention { gate: Gate::Elements, ..plain.clone() }), 40);
        assert_eq!(count(&Attention { gate: Gate::Heads, ..plain }), 36);
    }
}
