//! What mixes tokens in a layer: one kind a file.
//!
//! Knows: each kind's tensors and what a sequence keeps for it. What its work is, [`crate::operator`] says.

pub mod attention;
pub mod compressed;
pub mod delta;
pub mod indexer;
pub mod latent;
pub mod mamba;

pub use attention::Attention;
pub use compressed::Compressed;
pub use delta::Delta;
pub use indexer::Indexer;
pub use latent::Latent;
pub use mamba::Mamba;

use super::tensor::Tensor;

/// A layer's token mixer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mixer {
    /// Softmax attention over cached keys and values.
    Attention(Attention),
    /// Multi-head latent attention (DeepSeek-V2), sparse with an indexer (DeepSeek-V3.2).
    Latent(Latent),
    /// Attention over a window and compressed blocks of the past (DeepSeek-V4).
    Compressed(Compressed),
    /// A delta rule on a matrix state: gated delta net (Qwen3-Next), Kimi delta attention.
    Delta(Delta),
    /// Mamba-2.
    Mamba(Mamba),
    /// None: the layer is only an FFN.
    None,
}

impl Mixer {
    /// The mixer's weight tensors for a residual stream of `hidden`.
    pub fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        match self {
            Mixer::Attention(m) => m.tensors(hidden),
            Mixer::Latent(m) => m.tensors(hidden),
            Mixer::Compressed(m) => m.tensors(hidden),
            Mixer::Delta(m) => m.tensors(hidden),
            Mixer::Mamba(m) => m.tensors(hidden),
            Mixer::None => Vec::new(),
        }
    }

    /// Elements in the KV format that a sequence of `context` tokens keeps.
    pub fn kv_elements(&self, context: u64) -> u128 {
        match self {
            Mixer::Attention(m) => m.kv_elements(context),
            Mixer::Latent(m) => u128::from(context) * u128::from(m.cached()),
            Mixer::Compressed(m) => m.kv_elements(context),
            Mixer::Delta(_) | Mixer::Mamba(_) | Mixer::None => 0,
        }
    }

    /// Bytes in formats of their own that a sequence keeps: recurrent states, whatever the context, and the keys of an
    /// indexer.
    pub fn own_bytes(&self, context: u64) -> u64 {
        match self {
            Mixer::Latent(m) => m.indexer.as_ref().map_or(0, |i| i.bytes(context)),
            Mixer::Compressed(m) => m.indexer_bytes(context) + m.state_bytes(),
            Mixer::Delta(m) => m.state_bytes(),
            Mixer::Mamba(m) => m.state_bytes(),
            Mixer::Attention(_) | Mixer::None => 0,
        }
    }

    /// Into how many parts tensor parallelism can cut what is kept; one: every rank keeps all of it.
    pub fn kv_parts(&self, tp: u64) -> u64 {
        match self {
            Mixer::Attention(m) => tp.min(m.kv_heads),
            Mixer::Delta(m) => tp.min(m.value_heads),
            Mixer::Mamba(m) => tp.min(m.heads),
            Mixer::Latent(_) | Mixer::Compressed(_) | Mixer::None => 1,
        }
    }
}
