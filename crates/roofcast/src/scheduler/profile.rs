//! Defaults of a scheduler, and the settings that it refuses.

use super::Policy;
use crate::scheduler::config::{Balance, PrefixCaching, Reservation};
use crate::spec::KvLayout;

/// Defaults and restrictions of a scheduler; the file of each policy defines its own.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// Policy that makes the decisions.
    pub(crate) policy: Policy,
    /// Tokens per KV block.
    pub(crate) block_size: u64,
    /// The only supported block size in tokens; `None` if others are supported.
    pub(crate) only_block_size: Option<u64>,
    /// Token budget of a step; `None` for the engine's own default.
    pub(crate) max_num_batched_tokens: Option<u64>,
    /// Most requests that run at one time; `None` for the engine's own default.
    pub(crate) max_num_seqs: Option<u64>,
    /// KV cache that a request reserves at admission.
    pub(crate) reservation: Reservation,
    /// True if a spec may choose the reservation and contiguous memory.
    pub(crate) reserves: bool,
    /// Fraction of the blocks that stays free when a request is admitted while others run.
    pub(crate) watermark: f64,
    /// True if a prompt may be split over steps.
    pub(crate) enable_chunked_prefill: bool,
    /// True if admission needs memory for the whole known sequence instead of its first chunk.
    pub(crate) scheduler_reserve_full_isl: bool,
    /// Kind of prefix cache that the scheduler has.
    pub(crate) prefixes: PrefixCaching,
    /// Number of blocks of the pool that the scheduler reserves for itself.
    pub(crate) null_blocks: u64,
    /// True if blocks outside a sliding window are freed.
    pub(crate) frees_windows: bool,
    /// True if a step may be decided when the step before begins.
    pub(crate) decides_ahead: bool,
    /// True if a step's token budget bounds the number of running requests.
    pub(crate) bounds_sequences: bool,
    /// True if data-parallel ranks divide one token budget.
    pub(crate) divides_budget: bool,
    /// Rule by which a request gets its data-parallel rank if each rank is an engine; `None` if ranks are scheduled as
    /// one.
    pub(crate) balance: Option<Balance>,
    /// True if each request gets an equal part of the cache, as in llama.cpp's slots.
    pub(crate) shares_cache_by_slots: bool,
    /// Supported layouts of the KV cache in memory.
    pub(crate) layouts: &'static [KvLayout],
}

impl Profile {
    /// Profile of a policy with a token budget that decodes and chunks of prompts share, and blocks of 16 tokens.
    pub(super) fn chunked(policy: Policy) -> Profile {
        Profile {
            policy,
            block_size: 16,
            only_block_size: None,
            max_num_batched_tokens: None,
            max_num_seqs: None,
            reservation: Reservation::Grow,
            reserves: false,
            watermark: 0.0,
            enable_chunked_prefill: true,
            scheduler_reserve_full_isl: true,
            prefixes: PrefixCaching::Unknown,
            null_blocks: 0,
            frees_windows: false,
            decides_ahead: false,
            bounds_sequences: true,
            divides_budget: false,
            balance: None,
            shares_cache_by_slots: false,
            layouts: &[KvLayout::Paged, KvLayout::Flashinfer],
        }
    }

    /// Profile of a policy with whole prompts, steps of any size and blocks of one token.
    pub(super) fn whole(policy: Policy, reservation: Reservation) -> Profile {
        Profile {
            block_size: 1,
            max_num_batched_tokens: Some(u64::from(u32::MAX)),
            reservation,
            enable_chunked_prefill: false,
            ..Profile::chunked(policy)
        }
    }
}
