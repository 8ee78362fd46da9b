//! An engine's settings, resolved: every default filled in, every count within bounds.

use super::queue::Order;

/// Settings of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// KV blocks that requests can hold.
    pub blocks: u64,
    /// Tokens of a block.
    pub block_size: u32,
    /// Requests that run at once.
    pub max_num_seqs: u64,
    /// Tokens of a step.
    pub max_num_batched_tokens: u32,
    /// Tokens of a request, prompt and output.
    pub max_model_len: u32,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Admission needs room for the whole known sequence, not for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Blocks kept free when admitting beside running requests.
    pub watermark_blocks: u64,
    /// Who comes first.
    pub order: Order,
    /// What admission takes of the cache.
    pub reservation: Reservation,
    /// What becomes of a preempted request's cache.
    pub preemption: Preemption,
    /// KV tokens that the host's memory holds.
    pub swap_tokens: u64,
}

/// What a request takes of the KV cache when it is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reservation {
    /// What it computes, and more as it grows.
    #[default]
    Grow,
    /// Prompt and output, as if the output's length were known.
    Oracle,
    /// The next power of two above its prompt and output so far.
    Pow2,
    /// The longest sequence that is served.
    Max,
}

/// What becomes of a preempted request's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preemption {
    /// It is dropped and computed again.
    #[default]
    Recompute,
    /// It goes to the host's memory and comes back.
    Swap,
}
