//! llama.cpp's server: a fixed number of slots, each with its share of the context; prompts in batches beside decodes.
//!
//! Knows: a request takes a slot and keeps it until it ends; each step computes one token of every slot that generates
//! and fills the batch (`n_batch`) with prompts in order of the slots. Nobody is preempted. Source: `update_slots` of
//! `tools/server/server.cpp` (b6000 and on). With a unified cache a slot may take all of it: set `max_model_len` to it.

use crate::engine::decodes::Decodes;
use crate::engine::state::State;

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
