//! llama.cpp's server: a fixed number of slots, each with an equal part of the context; prompts in batches together
//! with decodes.
//!
//! Knows: a request keeps its slot until it ends; each step computes one token of every slot that generates and fills
//! the batch (`n_batch`) with prompts in order of the slots. No request is preempted. Source: `update_slots` of
//! `tools/server/server.cpp` (b6000 and on). With a unified cache a slot may use all of the context: set
//! `max_model_len` to it.

use super::{Policy, Profile};
use crate::scheduler::config::Reservation;
use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;
use crate::spec::KvLayout;

/// Defaults of llama.cpp: four slots of an equal part of the cache, reserved whole, and steps of 2048 tokens.
pub(super) fn profile() -> Profile {
    Profile {
        block_size: 1,
        max_num_batched_tokens: Some(2048),
        max_num_seqs: Some(4),
        reservation: Reservation::Max,
        shares_cache_by_slots: true,
        layouts: &[KvLayout::Contiguous],
        ..Profile::chunked(Policy::LlamaCpp)
    }
}

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    let budget = u64::from(state.config.max_num_batched_tokens).saturating_sub(state.decodes.len());
    let mut budget = u32::try_from(budget).unwrap_or(u32::MAX);
    for id in state.prefills().to_vec() {
        let s = state.sequence(id);
        let tokens = (s.known - s.computed).min(budget);
        if tokens > 0 {
            state.continue_prefill(id, tokens);
            budget -= tokens;
        }
    }
    while budget > 0 && state.running() < state.config.max_num_seqs {
        let Some(id) = state.head() else { break };
        let known = state.sequence(id).known;
        if state.admission_blocks(id, known) > state.free() {
            break;
        }
        state.admit(known.min(budget));
        budget -= known.min(budget);
    }
    true
}
