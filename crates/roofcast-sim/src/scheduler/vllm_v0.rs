//! vLLM v0 (SOSP 2023, up to 0.8): prompts first; decodes only if no prompt can be admitted.
//!
//! Knows: a step computes either whole prompts or decodes, so that new prompts stall every running request. When blocks
//! run out, the request admitted last is preempted, by recomputation or by swapping; swapped requests return before new
//! ones are admitted. Knows nothing about time.

use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    if state.swapped().is_empty() && admit(state) {
        return false;
    }
    let (mut blocks, preempted) = super::make_room(state);
    if !preempted && !state.swapped().is_empty() {
        swap_in(state);
        blocks = state.decode_blocks(1);
    }
    state.take_decode_blocks(blocks);
    true
}

/// Admits whole prompts while budget, `max_num_seqs` and blocks above the watermark permit; returns true if any was
/// admitted.
fn admit<D: Decodes>(state: &mut State<D>) -> bool {
    let mut budget = state.config.max_num_batched_tokens;
    while state.running() < state.config.max_num_seqs {
        let Some(id) = state.head() else { break };
        let known = state.sequence(id).known;
        let watermark = if state.running() > 0 { state.config.watermark_blocks } else { 0 };
        if known > budget || state.admission_blocks(id, known) + watermark > state.free() {
            break;
        }
        state.admit(known);
        budget -= known;
    }
    !state.chunks.is_empty()
}

/// Swaps requests in while there is room for them and for the next token of every running request.
fn swap_in<D: Decodes>(state: &mut State<D>) {
    while let Some(&id) = state.swapped().first() {
        let watermark = if state.running() > 0 { state.config.watermark_blocks } else { 0 };
        let needed = state.blocks(state.sequence(id).computed) + 1 + state.decode_blocks(1) + watermark;
        if needed > state.free() || state.running() >= state.config.max_num_seqs {
            return;
        }
        state.swap_in();
    }
}
