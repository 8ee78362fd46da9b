//! llama.cpp's server: a fixed number of slots, each with an equal part of the context; prompts share batches with
//! decodes.
//!
//! Knows: a request keeps its slot until it ends. Each step computes one token of every slot that generates, and fills
//! the batch (`n_batch`) with prompts in order of the slots. No request is preempted. Source: `update_slots` of
//! `tools/server/server.cpp` (b6000 and later). With a unified cache one slot may use the whole context: set
//! `max_model_len` to the context. Knows nothing about time.

use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;

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
