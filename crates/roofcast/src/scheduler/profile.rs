//! What a scheduler does where a spec is silent, and what it refuses.

use super::Policy;
use crate::engine::config::{Prefixes, Reservation};
use crate::spec::KvLayout;

/// A scheduler's own settings; each policy's file has them.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What decides.
    pub policy: Policy,
    /// Tokens of a KV block.
    pub block_size: u64,
    /// The only block size that it has, where there is one.
    pub only_block_size: Option<u64>,
    /// Tokens of a step; none where the engine's own default holds.
    pub max_num_batched_tokens: Option<u64>,
    /// Requests that run at once; none where the engine's own default holds.
    pub max_num_seqs: Option<u64>,
    /// What admission takes of the cache.
    pub reservation: Reservation,
    /// Whether a spec may say what is reserved, in one piece of memory.
    pub reserves: bool,
    /// Share of the blocks kept free when admitting beside running requests.
    pub watermark: f64,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Whether admission needs room for the whole known sequence.
    pub scheduler_reserve_full_isl: bool,
    /// How it finds prefixes, where it does.
    pub prefixes: Prefixes,
    /// Blocks of the pool that it keeps for itself.
    pub null_blocks: u64,
    /// Whether it gives back what falls out of a window.
    pub frees_windows: bool,
    /// Whether the budget of a step bounds the requests that run at once.
    pub bounds_sequences: bool,
    /// Whether data-parallel ranks divide one budget.
    pub divides_budget: bool,
    /// Whether each request has an equal share of the cache, as llama.cpp's slots.
    pub shares_cache_by_slots: bool,
    /// Whether it may hold prompts back beside decodes.
    pub holds_prompts: bool,
    /// The engine's version from which on it schedules a step while the one before it runs; none where it never does.
    pub overlaps_since: Option<&'static str>,
    /// How tokens may lie in memory.
    pub layouts: &'static [KvLayout],
    /// Keys of a spec that not every scheduler has.
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
            prefixes: Prefixes::Unknown,
            null_blocks: 0,
            frees_windows: false,
            bounds_sequences: true,
            divides_budget: false,
            shares_cache_by_slots: false,
            holds_prompts: false,
            overlaps_since: None,
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
