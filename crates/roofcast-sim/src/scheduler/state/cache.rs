//! State of a replica's KV cache beyond the number of free blocks, for each kind of cache.
//!
//! Knows: the kind of the cache, and the events that all kinds receive. Knows nothing about which requests are admitted
//! or preempted.

use super::identity::Identity;
use super::reservations::Reservations;
use crate::kv_cache::prefix::SharedPrefix;
use crate::kv_cache::slots::Slots;
use crate::scheduler::config::{EngineConfig, PrefixCaching};
use roofcast_ask::arrival::{Arrival, SequenceId};
use roofcast_ask::workload::Prompt;

/// Kinds of cache, with their state.
#[derive(Debug, Clone)]
pub(super) enum Cache {
    /// Interchangeable blocks, of which only the number matters.
    Counted,
    /// Blocks with the identity of their content, for prefix caching by block.
    Blocks(Box<Identity>),
    /// Contiguous reservations, with their positions.
    Reservations(Reservations),
    /// Interchangeable cells, and the prompts that slots keep.
    Slots(Box<Slots>),
}

impl Cache {
    pub(super) fn new(config: &EngineConfig) -> Cache {
        if config.contiguous {
            return Cache::Reservations(Reservations::new(config.blocks));
        }
        if let Some(rules) = config.slots {
            return Cache::Slots(Box::new(Slots::new(rules)));
        }
        match config.prefixes {
            PrefixCaching::Unknown => Cache::Counted,
            PrefixCaching::Blocks => Cache::Blocks(Box::new(Identity::new(config.blocks, config.block_size))),
            // SGLang's engine has its own radix tree, and slots have rules.
            PrefixCaching::Tree | PrefixCaching::Slots => Cache::Counted,
        }
    }

    /// Adds a request to the queue; `prefix` describes the part of its tokens that other requests can share.
    #[inline(always)]
    pub(super) fn arrive(&mut self, id: SequenceId, arrival: &Arrival, prefix: SharedPrefix) {
        match self {
            Cache::Blocks(identity) => identity.arrive(id, arrival.number, prefix),
            Cache::Slots(slots) => slots.arrive(id, prefix),
            Cache::Counted | Cache::Reservations(_) => {}
        }
    }

    /// Number of tokens of `prompt` that are cached, in whole blocks.
    pub(super) fn holds(&self, prompt: &Prompt) -> u64 {
        match self {
            Cache::Blocks(identity) => identity.holds(prompt),
            Cache::Slots(slots) => slots.holds(prompt),
            Cache::Counted | Cache::Reservations(_) => 0,
        }
    }

    /// Number of cached tokens, of the first `known` tokens of a request.
    #[inline(always)]
    pub(super) fn find(&mut self, id: SequenceId, known: u32) -> u32 {
        match self {
            Cache::Blocks(identity) => identity.find(id, u64::from(known)) as u32,
            Cache::Slots(slots) => slots.find(id, u64::from(known)) as u32,
            Cache::Counted | Cache::Reservations(_) => 0,
        }
    }

    /// Admits a request of `known` tokens that allocates `blocks` blocks and computes `tokens` tokens.
    #[inline(always)]
    pub(super) fn admit(&mut self, id: SequenceId, (blocks, known): (u64, u32), tokens: u32) {
        match self {
            Cache::Blocks(identity) => identity.admit(id, u64::from(tokens)),
            Cache::Reservations(chunks) => chunks.take(id, blocks),
            Cache::Slots(slots) => _ = slots.admit(id, u64::from(known)),
            Cache::Counted => {}
        }
    }

    /// Allocates `blocks` blocks for decodes.
    #[inline(always)]
    pub(super) fn decode(&mut self, blocks: u64) {
        match self {
            Cache::Blocks(identity) => identity.decode(blocks),
            Cache::Counted | Cache::Reservations(_) | Cache::Slots(_) => {}
        }
    }

    /// Removes a request that has left for good.
    #[inline(always)]
    pub(super) fn forget(&mut self, id: SequenceId) {
        match self {
            Cache::Blocks(identity) => identity.forget(id),
            Cache::Slots(slots) => slots.forget(id),
            Cache::Counted | Cache::Reservations(_) => {}
        }
    }

    /// Number of tokens that requests hold in addition to a token's first holder.
    #[inline(always)]
    pub(super) fn shared_tokens(&self) -> u64 {
        match self {
            Cache::Blocks(identity) => identity.shared_tokens(),
            Cache::Counted | Cache::Reservations(_) | Cache::Slots(_) => 0,
        }
    }
}
