//! Defaults of a scheduler, and the settings that it refuses.

use super::Policy;
use crate::scheduler::config::{PrefixCaching, Reservation};
use crate::spec::KvLayout;

/// A scheduler's own settings; each policy's file defines them.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// Policy that decides.
    pub policy: Policy,
    /// Tokens of a KV block.
    pub block_size: u64,
    /// The only supported block size, if there is one.
    pub only_block_size: Option<u64>,
    /// Tokens of a step; `None` for the engine's own default.
    pub max_num_batched_tokens: Option<u64>,
    /// Requests that run at one time; `None` for the engine's own default.
    pub max_num_seqs: Option<u64>,
    /// Cache reserved at admission.
    pub reservation: Reservation,
    /// True if a spec may set the reservation, in contiguous memory.
    pub reserves: bool,
    /// Fraction of the blocks kept free when admitting while others run.
    pub watermark: f64,
    /// True if a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// True if admission needs room for the whole known sequence.
    pub scheduler_reserve_full_isl: bool,
    /// Kind of prefix cache, if any.
    pub prefixes: PrefixCaching,
    /// Blocks of the pool that the scheduler reserves for itself.
    pub null_blocks: u64,
    /// True if blocks outside a sliding window are freed.
    pub frees_windows: bool,
    /// True if a step may be decided when the one before it begins.
    pub decides_ahead: bool,
    /// True if a step's token budget bounds the number of running requests.
    pub bounds_sequences: bool,
    /// True if data-parallel ranks divide one budget.
    pub divides_budget: bool,
    /// True if each request has an equal part of the cache, as llama.cpp's slots.
    pub shares_cache_by_slots: bool,
    /// Supported layouts of tokens in memory.
    pub layouts: &'static [KvLayout],
    /// Spec keys that only some schedulers have.
    pub keys: &'static [&'static str],
}

impl Profile {
    /// A token budget shared by decodes and chunks of prompts, in blocks of 16.
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
            shares_cache_by_slots: false,
            layouts: &[KvLayout::Paged, KvLayout::Flashinfer],
            keys: &[],
        }
    }

    /// Whole prompts in steps of any size, in blocks of one token.
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
