//! Token mixers: one kind per file, and the questions that every kind answers.
//!
//! Knows: the tensors of each kind, the cache that a sequence keeps in a layer (KV elements, index keys, recurrent
//! state), and the number of heads over which tensor parallelism divides it. Knows nothing about time:
//! `operator` turns pairs and states into work. Not modelled: an engine's rounding to pages, and vLLM's
//! page-size alignment of hybrid models.

pub(crate) mod attention;
pub(crate) mod compressed;
pub(crate) mod gated_delta;
pub(crate) mod indexer;
pub(crate) mod kda;
pub(crate) mod latent;
pub(crate) mod lightning;
pub(crate) mod mamba;
pub(crate) mod short_conv;

pub use attention::Attention;
pub use attention::{Gate, causal_pairs};
pub use compressed::{Compressed, entry_pairs};
pub use gated_delta::GatedDelta;
pub use indexer::Indexer;
pub(crate) use indexer::{BlockIndex, MeanKeys};
pub(crate) use kda::Kda;
pub use latent::Latent;
pub(crate) use lightning::Lightning;
pub(crate) use mamba::{Mamba, Mamba2};
pub(crate) use short_conv::ShortConv;

use super::tensor::Tensor;
use crate::precision::KvFormat;
use crate::units::Bytes;
use std::fmt;

/// Token mixer of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mixer {
    /// Softmax attention over cached keys and values.
    Attention(Attention),
    /// Multi-head latent attention (MLA), without an indexer (DeepSeek-V2) or with one (DeepSeek-V3.2).
    Latent(Latent),
    /// Attention over a window and compressed entries (DeepSeek-V4).
    Compressed(Compressed),
    /// Gated delta net (Qwen3-Next).
    GatedDelta(GatedDelta),
    /// Kimi delta attention (Kimi Linear).
    Kda(Kda),
    /// Lightning attention: linear attention with a fixed decay per head (MiniMax-01).
    Lightning(Lightning),
    /// Selective state space (Mamba, Jamba).
    Mamba(Mamba),
    /// State space with one decay per head (Mamba-2).
    Mamba2(Mamba2),
    /// Attention and a state space in parallel on one input (Falcon-H1).
    Both(Attention, Mamba2),
    /// A gated short convolution (LFM2).
    ShortConv(ShortConv),
    /// No mixer: the layer consists of a feed-forward part alone.
    None,
}

/// Recurrent state of one sequence, whose size is independent of its length, and the work per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecurrentState {
    /// Bytes of the recurrent state and of the convolution's kept inputs, over all heads.
    pub bytes: u128,
    /// FLOPs per token to read and update the state, and to convolve.
    pub flops: u128,
    /// Number of heads over which tensor parallelism divides bytes and FLOPs.
    pub heads: u64,
}

/// Number of parts into which tensor parallelism divides a layer's cache; 1 if every rank has the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheParts {
    /// Parts of keys and values.
    pub cache: u64,
    /// Parts of an indexer's keys.
    pub index: u64,
    /// Parts of a recurrent state.
    pub state: u64,
}

impl Mixer {
    /// True if one norm covers all heads of the queries, or of the keys, so that tensor-parallel ranks must add up
    /// their sums of squares.
    pub fn norms_all_heads(&self) -> bool {
        matches!(self, Mixer::Attention(a) if a.qk_norm > 2 * a.head_dim)
    }

    /// Lists the mixer's weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        match self {
            Mixer::Attention(a) => a.tensors(hidden),
            Mixer::Latent(l) => l.tensors(hidden),
            Mixer::Compressed(c) => c.tensors(hidden),
            Mixer::GatedDelta(d) => d.tensors(hidden),
            Mixer::Kda(k) => k.tensors(hidden),
            Mixer::Lightning(l) => l.tensors(hidden),
            Mixer::Mamba(m) => m.tensors(hidden),
            Mixer::Mamba2(m) => m.tensors(hidden),
            Mixer::Both(a, m) => a.tensors(hidden).into_iter().chain(m.tensors(hidden)).collect(),
            Mixer::ShortConv(c) => c.tensors(hidden),
            Mixer::None => Vec::new(),
        }
    }

    /// Elements, in the KV-cache format, that a sequence of `context` tokens keeps in this layer.
    pub fn kv_elements(&self, context: u64) -> u128 {
        match self {
            Mixer::Attention(a) | Mixer::Both(a, _) => {
                let means = a.index.as_ref().map_or(0, |index| index.slots(context));
                u128::from(a.kept(context) + means) * u128::from(a.kv_elements_per_token())
            }
            Mixer::Latent(l) => u128::from(context) * u128::from(l.cached()),
            Mixer::Compressed(c) => c.kv_elements(context),
            _ => 0,
        }
    }

    /// Bytes of an indexer's keys for `context` tokens, which are stored in their own format in addition to the KV
    /// cache.
    pub(crate) fn index_bytes(&self, context: u64) -> u128 {
        match self {
            Mixer::Attention(Attention { index: Some(index), .. }) => index.bytes(context),
            Mixer::Latent(Latent { indexer: Some(indexer), .. }) => indexer.bytes(context),
            Mixer::Compressed(c) => c.index_bytes(context),
            _ => 0,
        }
    }

    /// Recurrent state, which engines page like the KV cache; `None` for compressed attention, whose only state is
    /// the rows that are kept until a window is full.
    pub fn recurrence(&self) -> Option<RecurrentState> {
        if matches!(self, Mixer::Compressed(_)) { None } else { self.state() }
    }

    /// State whose size is independent of the context length; `None` if the mixer has none.
    pub fn state(&self) -> Option<RecurrentState> {
        match self {
            Mixer::GatedDelta(d) => Some(d.state()),
            Mixer::Kda(k) => Some(k.state()),
            Mixer::Lightning(l) => Some(l.state()),
            Mixer::Mamba(m) => Some(m.state()),
            Mixer::Mamba2(m) | Mixer::Both(_, m) => Some(m.state()),
            Mixer::ShortConv(c) => Some(c.state()),
            Mixer::Compressed(c) => Some(RecurrentState { bytes: c.state_bytes(), flops: 0, heads: 1 }),
            _ => None,
        }
    }

    /// Sets the bytes per element of the recurrent state. Returns true if the mixer has such a state and its dtype
    /// can be configured.
    pub(crate) fn set_state_element(&mut self, bytes: u64) -> bool {
        match self {
            Mixer::GatedDelta(d) => d.state_element = bytes,
            Mixer::Mamba2(m) | Mixer::Both(_, m) => m.state_element = bytes,
            _ => return false,
        }
        true
    }

    /// Sets 32 bits for every value of the recurrent state.
    pub fn set_singles(&mut self) {
        self.set_state_element(4);
        match self {
            Mixer::GatedDelta(d) => d.conv_element = 4,
            Mixer::Mamba2(m) | Mixer::Both(_, m) => m.conv_element = 4,
            Mixer::Kda(k) => k.conv_element = 4,
            Mixer::ShortConv(c) => c.element = 4,
            _ => {}
        }
    }

    /// Tokens of the layer's window; `None` without one. Chunks are cached like windows.
    pub fn window(&self) -> Option<u64> {
        match self {
            Mixer::Attention(Attention { window, chunk, .. }) => window.or(*chunk),
            _ => None,
        }
    }

    /// Bytes of the state that a sequence keeps, whatever its length and the KV format.
    pub fn state_bytes(&self) -> u128 {
        self.state().map_or(0, |s| s.bytes)
    }

    /// Bytes of cache and state of a sequence of `context` tokens in this layer, on one unsharded accelerator.
    pub(crate) fn sequence_bytes(&self, kv: KvFormat, context: u64) -> Bytes {
        self.rank_bytes(kv, context, CacheParts { cache: 1, index: 1, state: 1 })
    }

    /// Bytes of [`Mixer::sequence_bytes`] on one rank, if tensor parallelism divides the cache into `parts`.
    pub fn rank_bytes(&self, kv: KvFormat, context: u64, parts: CacheParts) -> Bytes {
        let part_of = |count: u128, parts: u64| count.div_ceil(u128::from(parts.max(1)));
        let row = if let Mixer::Latent(latent) = self { latent.row_bytes(kv) } else { None };
        let elements = match row {
            Some(row) => Bytes((row * context).div_ceil(parts.cache.max(1))),
            None => kv.width.bytes(part_of(self.kv_elements(context), parts.cache)),
        };
        let index_and_state =
            part_of(self.index_bytes(context), parts.index) + part_of(self.state_bytes(), parts.state);
        elements + Bytes(u64::try_from(index_and_state).unwrap_or(u64::MAX))
    }

    /// Heads that `tp` ranks cannot divide, if there are any. Query heads are divided over ranks; KV heads are
    /// divided, or replicated if there are fewer heads than ranks, so that either number must divide the other
    /// (vLLM's rule, `QKVParallelLinear`).
    pub fn indivisible(&self, tp: u64) -> Option<Indivisible> {
        let whole = |count: u64, of| (!count.is_multiple_of(tp)).then_some(Indivisible { count, of });
        let grouped = |a: &Attention| {
            let replicated = tp.is_multiple_of(a.kv_heads);
            whole(a.heads, "query heads").or_else(|| whole(a.kv_heads, KV_HEADS).filter(|_| !replicated))
        };
        match self {
            Mixer::Attention(a) => grouped(a),
            Mixer::Both(a, m) => grouped(a).or_else(|| whole(m.heads, "state-space heads")),
            Mixer::Latent(l) => whole(l.heads, "query heads"),
            Mixer::Compressed(c) => whole(c.heads, "query heads"),
            Mixer::GatedDelta(d) => whole(d.value_heads, "value heads"),
            Mixer::Kda(k) => whole(k.heads, "heads"),
            Mixer::Lightning(l) => whole(l.heads, "heads"),
            Mixer::Mamba2(m) => whole(m.heads, "state-space heads"),
            Mixer::Mamba(m) => whole(m.inner, "state-space channels"),
            Mixer::ShortConv(_) | Mixer::None => None,
        }
    }
}

/// Name of heads that may be fewer than the ranks, because they are then replicated.
const KV_HEADS: &str = "KV heads";

/// Heads that a degree of tensor parallelism cannot divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indivisible {
    /// Number of heads.
    pub(crate) count: u64,
    /// Kind of heads: `query heads`, `KV heads`.
    pub(crate) of: &'static str,
}

impl fmt::Display for Indivisible {
    /// Writes the accepted degrees, as in `a divisor of the 40 query heads`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let or = if self.of == KV_HEADS { " or a multiple" } else { "" };
        write!(f, "a divisor{or} of the {} {}", self.count, self.of)
    }
}
