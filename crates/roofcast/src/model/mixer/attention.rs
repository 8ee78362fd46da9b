//! Attention with grouped heads (MHA, GQA, MQA), whole, in windows, in chunks, or over chosen blocks.

use super::indexer::Indexer;
use crate::model::tensor::{Split, Tensor};

/// Grouped-query attention; `kv_heads == heads` is MHA, `kv_heads == 1` MQA.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of a query and key head.
    pub head_dim: u64,
    /// Width of a value head.
    pub v_head_dim: u64,
    /// What of the past is seen.
    pub reach: Reach,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub o_bias: bool,
    /// Elements of norms on queries and keys.
    pub qk_norm: u64,
    /// A learned sink per head (gpt-oss).
    pub sinks: bool,
    /// Queries carry an output gate of the same width (Qwen3-Next).
    pub gate: bool,
    /// Values are the keys before their norm: one projection for both (Gemma 4's global layers).
    pub k_eq_v: bool,
    /// Keys and values are an earlier layer's: neither projected nor cached here (Gemma 3n).
    pub shared_kv: bool,
    /// Chooses blocks of the past (MiniMax-M3).
    pub indexer: Option<Indexer>,
}

/// What of the past a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reach {
    /// Everything.
    #[default]
    Full,
    /// The last so many tokens; only they are kept.
    Window(u64),
    /// Its own chunk of so many tokens (Llama 4); a chunk is kept.
    Chunk(u64),
    /// So many tokens that an indexer chooses; all are kept.
    Chosen(u64),
}

impl Reach {
    /// Tokens of a sequence of `context` that are kept.
    pub fn kept(self, context: u64) -> u64 {
        match self {
            Reach::Full | Reach::Chosen(_) => context,
            Reach::Window(n) | Reach::Chunk(n) => context.min(n),
        }
    }

    /// Query-key pairs of `new` tokens at the end of `context`.
    pub fn pairs(self, new: u64, context: u64) -> u128 {
        match self {
            Reach::Full => causal_pairs(new, context, None),
            Reach::Window(n) | Reach::Chosen(n) => causal_pairs(new, context, Some(n)),
            Reach::Chunk(n) => {
                // Σ of a position's place in its chunk up to p: whole chunks of n(n + 1)/2 and the rest.
                let until = |p: u64| {
                    let (whole, rest, n) = (u128::from(p / n), u128::from(p % n), u128::from(n));
                    whole * (n * (n + 1) / 2) + rest * (rest + 1) / 2
                };
                until(context) - until(context - new.min(context))
            }
        }
    }

    /// Distinct tokens of the context that `new` queries at its end read, at least.
    pub fn seen(self, new: u64, context: u64) -> u64 {
        let before = context - new.min(context);
        match self {
            Reach::Full => context,
            Reach::Window(n) | Reach::Chosen(n) => context.min(n.saturating_add(new - new.min(1))),
            Reach::Chunk(n) => context - before / n * n,
        }
    }
}

impl Attention {
    /// Keys and values of one token.
    pub fn kv_elements_per_token(&self) -> u64 {
        if self.shared_kv { 0 } else { self.kv_heads * (self.head_dim + self.v_head_dim) }
    }

    /// What a sequence keeps, with an indexer's keys in the same format.
    pub fn kv_elements(&self, context: u64) -> u128 {
        let index = self.indexer.as_ref().map_or(0, |i| i.dim);
        u128::from(self.reach.kept(context)) * u128::from(self.kv_elements_per_token())
            + u128::from(context) * u128::from(index)
    }

    pub(super) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let kv = Split::KvHeads(self.kv_heads);
        let (q, k) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (v, o) = (self.kv_heads * self.v_head_dim, self.heads * self.v_head_dim);
        let q_width = if self.gate { 2 * q } else { q };
        let mut tensors = vec![Tensor::linear("self_attn.q_proj", "qkv_proj", q_width, hidden, Split::Even)];
        if !self.shared_kv {
            tensors.push(Tensor::linear("self_attn.k_proj", "qkv_proj", k, hidden, kv));
        }
        if !self.shared_kv && !self.k_eq_v {
            tensors.push(Tensor::linear("self_attn.v_proj", "qkv_proj", v, hidden, kv));
        }
        tensors.push(Tensor::linear("self_attn.o_proj", "o_proj", hidden, o, Split::Even));
        if self.qkv_bias {
            tensors.push(Tensor::vector("self_attn.q_proj.bias", "qkv_proj", q_width, Split::Even));
            tensors.push(Tensor::vector("self_attn.k_proj.bias", "qkv_proj", k, kv));
            tensors.push(Tensor::vector("self_attn.v_proj.bias", "qkv_proj", v, kv));
        }
        if self.o_bias {
            tensors.push(Tensor::vector("self_attn.o_proj.bias", "o_proj", hidden, Split::Replicated));
        }
        if self.qk_norm > 0 {
            tensors.push(Tensor::vector("self_attn.qk_norm", "norms", self.qk_norm, Split::Replicated));
        }
        if self.sinks {
            tensors.push(Tensor::vector("self_attn.sinks", "attention", self.heads, Split::Even));
        }
        if let Some(indexer) = &self.indexer {
            tensors.extend(indexer.tensors(hidden));
        }
        tensors
    }
}

/// Query-key pairs of `new` tokens at the end of a sequence of `context` tokens (the new ones among them), where each
/// query sees itself and what is before it, at most `window` tokens.
///
/// Without a window: Σ_{i=1..n} (c − n + i) = n(c − n) + n(n + 1)/2.
pub fn causal_pairs(new: u64, context: u64, window: Option<u64>) -> u128 {
    let (n, c) = (u128::from(new.min(context)), u128::from(context));
    let full = n * (c - n) + n * (n + 1) / 2;
    let Some(window) = window.map(u128::from) else { return full };
    // Queries at positions c−n+1 ..= c; those beyond the window see `window` keys instead of their position.
    let past = (c - window.min(c)).min(n);
    let excess = past * (c - window.min(c)) - past * past.saturating_sub(1) / 2;
    full - excess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_by_hand() {
        // A prompt of 4: 1 + 2 + 3 + 4. One decode at context 5: 5. Two new tokens at context 5: 4 + 5.
        assert_eq!(
            [causal_pairs(4, 4, None), causal_pairs(1, 5, None), causal_pairs(2, 5, None)],
            [10, 5, 9]
        );
        // Window 2: a prompt of 4 sees 1 + 2 + 2 + 2; window 3 with two new at context 5: 3 + 3.
        assert_eq!([causal_pairs(4, 4, Some(2)), causal_pairs(2, 5, Some(3))], [7, 6]);
        // Chunks of 3: a prompt of 5 sees 1 + 2 + 3 + 1 + 2; the fifth token reads the two of its chunk.
        assert_eq!((Reach::Chunk(3).pairs(5, 5), Reach::Chunk(3).seen(1, 5)), (9, 2));
    }

    #[test]
    fn pairs_agree_with_counting_one_by_one() {
        for context in 1..30_u64 {
            for new in 1..=context {
                for n in 1..32_u64 {
                    let positions = context - new + 1..=context;
                    let window: u64 = positions.clone().map(|p| p.min(n)).sum();
                    assert_eq!(causal_pairs(new, context, Some(n)), u128::from(window));
                    let chunk: u64 = positions.map(|p| (p - 1) % n + 1).sum();
                    assert_eq!(Reach::Chunk(n).pairs(new, context), u128::from(chunk));
                }
            }
        }
    }
}
