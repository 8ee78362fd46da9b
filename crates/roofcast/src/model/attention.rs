//! What mixes tokens: attention with grouped heads (MHA, GQA, MQA), with windows, and with a latent cache (MLA).
//!
//! Knows: tensors, what is cached per token, how many query-key pairs a piece of a sequence has. Knows nothing about
//! time: [`crate::operator`] turns pairs into work.

use super::tensor::{Split, Tensor};

/// A layer's token mixer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mixer {
    /// Softmax attention over cached keys and values.
    Attention(Attention),
    /// Multi-head latent attention (DeepSeek-V2).
    Latent(Latent),
    /// None: the layer is only an FFN.
    None,
}

/// Grouped-query attention; `kv_heads == heads` is MHA, `kv_heads == 1` MQA.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of a query and key head.
    pub head_dim: u64,
    /// Width of a value head.
    pub v_head_dim: u64,
    /// Only the last `window` tokens are seen and kept.
    pub window: Option<u64>,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub o_bias: bool,
    /// Elements of norms on queries and keys.
    pub qk_norm: u64,
    /// A learned sink per head (gpt-oss).
    pub sinks: bool,
}

/// Multi-head latent attention: keys and values are kept as one compressed vector per token.
///
/// Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1.
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
}

impl Mixer {
    /// The mixer's weight tensors for a residual stream of `hidden`.
    pub fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        match self {
            Mixer::Attention(attention) => attention.tensors(hidden),
            Mixer::Latent(latent) => latent.tensors(hidden),
            Mixer::None => Vec::new(),
        }
    }

    /// Elements that a sequence of `context` tokens keeps in the cache of this layer.
    pub fn kv_elements(&self, context: u64) -> u128 {
        match self {
            Mixer::Attention(a) => {
                u128::from(context.min(a.window.unwrap_or(u64::MAX))) * u128::from(a.kv_elements_per_token())
            }
            Mixer::Latent(l) => u128::from(context) * u128::from(l.kv_lora_rank + l.qk_rope_head_dim),
            Mixer::None => 0,
        }
    }
}

impl Attention {
    /// Keys and values of one token.
    pub fn kv_elements_per_token(&self) -> u64 {
        self.kv_heads * (self.head_dim + self.v_head_dim)
    }

    fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let kv = Split::KvHeads(self.kv_heads);
        let (q, k) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (v, o) = (self.kv_heads * self.v_head_dim, self.heads * self.v_head_dim);
        let mut tensors = vec![
            Tensor::linear("self_attn.q_proj", "qkv_proj", q, hidden, Split::Even),
            Tensor::linear("self_attn.k_proj", "qkv_proj", k, hidden, kv),
            Tensor::linear("self_attn.v_proj", "qkv_proj", v, hidden, kv),
            Tensor::linear("self_attn.o_proj", "o_proj", hidden, o, Split::Even),
        ];
        if self.qkv_bias {
            tensors.push(Tensor::vector("self_attn.q_proj.bias", "qkv_proj", q, Split::Even));
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
        tensors
    }
}

impl Latent {
    /// What one token keeps: the latent and the rotary key.
    pub fn cached(&self) -> u64 {
        self.kv_lora_rank + self.qk_rope_head_dim
    }

    fn tensors(&self, hidden: u64) -> Vec<Tensor> {
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
        tensors.extend([
            Tensor::linear("self_attn.kv_a_proj_with_mqa", "qkv_a_proj", kv_a, hidden, Split::Replicated),
            Tensor::vector("self_attn.kv_a_layernorm", "norms", self.kv_lora_rank, Split::Replicated),
            Tensor::linear("self_attn.kv_b_proj", "kv_b_proj", kv_b, self.kv_lora_rank, Split::Even),
            Tensor::linear("self_attn.o_proj", "o_proj", hidden, self.heads * self.v_head_dim, Split::Even),
        ]);
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
}
