//! What a replica knows of its KV cache beyond how many blocks are free, by the cache's kind.
//!
//! Knows: which kind it is and what all kinds are told. Knows nothing about which requests are admitted or preempted.

use super::identity::Identity;
use super::reservations::Reservations;
use crate::arrival::{Arrival, SequenceId};
use crate::kv_cache::prefix::Prefix;
use crate::scheduler::config::{EngineConfig, Prefixes};
use crate::workload::Prompt;

/// The kinds.
#[derive(Debug, Clone)]
pub(super) enum Cache {
    /// Blocks are alike: their count is all.
    Counted,
    /// Which request holds which blocks, where prefixes are found by block.
    Blocks(Box<Identity>),
    /// Reservations in one piece each.
    Reservations(Reservations),
}

impl Cache {
    pub(super) fn new(config: &EngineConfig) -> Cache {
        if config.contiguous {
            return Cache::Reservations(Reservations::new(config.blocks));
        }
        match config.prefixes {
            Prefixes::Unknown => Cache::Counted,
            Prefixes::Blocks => Cache::Blocks(Box::new(Identity::new(config.blocks, config.block_size))),
            // SGLang's engine has its tree itself.
            Prefixes::Tree => Cache::Counted,
        }
    }

    /// A request joins the queue; `prefix` is what others may have of it.
    #[inline(always)]
    pub(super) fn arrive(&mut self, id: SequenceId, arrival: &Arrival, prefix: Prefix) {
        match self {
            Cache::Blocks(identity) => identity.arrive(id, arrival.number, prefix),
            Cache::Counted | Cache::Reservations(_) => {}
        }
    }

    /// Tokens of `prompt` that are there, in whole blocks.
    pub(super) fn holds(&self, prompt: &Prompt) -> u64 {
        match self {
            Cache::Blocks(identity) => identity.holds(prompt),
            Cache::Counted | Cache::Reservations(_) => 0,
        }
    }

    /// How many of a request's `known` tokens are there.
    #[inline(always)]
    pub(super) fn find(&mut self, id: SequenceId, known: u32) -> u32 {
        match self {
            Cache::Blocks(identity) => identity.find(id, u64::from(known)) as u32,
            Cache::Counted | Cache::Reservations(_) => 0,
        }
    }

    /// A request is admitted, takes `blocks` and computes `tokens`.
    #[inline(always)]
    pub(super) fn admit(&mut self, id: SequenceId, blocks: u64, tokens: u32) {
        match self {
            Cache::Blocks(identity) => identity.admit(id, u64::from(tokens)),
            Cache::Reservations(chunks) => chunks.take(id, blocks),
            Cache::Counted => {}
        }
    }

    /// Decodes take `blocks`.
    #[inline(always)]
    pub(super) fn decode(&mut self, blocks: u64) {
        match self {
            Cache::Blocks(identity) => identity.decode(blocks),
            Cache::Counted | Cache::Reservations(_) => {}
        }
    }

    /// A request that has left does not come back.
    #[inline(always)]
    pub(super) fn forget(&mut self, id: SequenceId) {
        match self {
            Cache::Blocks(identity) => identity.forget(id),
            Cache::Counted | Cache::Reservations(_) => {}
        }
    }

    /// Tokens that requests hold beyond the first that holds them.
    #[inline(always)]
    pub(super) fn shared_tokens(&self) -> u64 {
        match self {
            Cache::Blocks(identity) => identity.shared_tokens(),
            Cache::Counted | Cache::Reservations(_) => 0,
        }
    }
}
