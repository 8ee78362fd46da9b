//! llama.cpp's server: a fixed number of slots, which share one cache or have equal parts; prompts share batches with
//! decodes.
//!
//! Knows: a request keeps its slot until it ends. Each step computes one token of every slot that generates, and fills
//! the batch (`n_batch`) with the parts of prompts that the slots do not keep, in order of the slots. No request is preempted. Waiting requests need a free slot
//! alone: if the cells of a shared cache do not suffice for a batch, every running request ends with an error, and
//! waiting ones follow. Source: `update_slots` of `tools/server/server.cpp` (b6000 and later); the overflow as
//! observed in b11549. Knows nothing about time.

use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    if state.grows() {
        return schedule_shared(state);
    }
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
        let new = state.look_up(id).1;
        if state.admission_blocks(id, new) > state.free() {
            break;
        }
        state.admit(new.min(budget));
        budget -= new.min(budget);
    }
    true
}

/// Decides the next step of slots that share the cells of one cache.
fn schedule_shared<D: Decodes>(state: &mut State<D>) -> bool {
    let decodes = state.decode_blocks(1);
    let budget = u64::from(state.config.max_num_batched_tokens).saturating_sub(state.decodes.len());
    let mut budget = u32::try_from(budget).unwrap_or(u32::MAX);
    if decodes > state.free() {
        state.fail_running();
        return true;
    }
    state.take_decode_blocks(decodes);
    for id in state.prefills().to_vec() {
        let s = state.sequence(id);
        let tokens = (s.known - s.computed).min(budget);
        if state.continuation_blocks(id, tokens) > state.free() {
            return overflow(state, decodes);
        }
        if tokens > 0 {
            state.continue_prefill(id, tokens);
            budget -= tokens;
        }
    }
    while budget > 0 && state.running() < state.config.max_num_seqs {
        let Some(id) = state.head() else { break };
        let tokens = state.look_up(id).1.min(budget);
        let fits = state.admission_blocks(id, tokens) <= state.free();
        if !fits && state.running() == 0 {
            break;
        }
        if !fits {
            return overflow(state, decodes);
        }
        state.admit(tokens);
        budget -= tokens;
    }
    true
}

/// Ends every running request with an error, after the cells of `decodes` decodes of this step were taken.
fn overflow<D: Decodes>(state: &mut State<D>, decodes: u64) -> bool {
    state.return_decode_blocks(decodes);
    state.chunks.clear();
    state.fail_running();
    true
}
