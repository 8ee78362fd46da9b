//! A budget of tokens per step, shared by decodes and pieces of prompts: vLLM v1, Sarathi, SplitFuse.
//!
//! Knows: decodes come first, then the prompt under way, then newcomers while budget, seats and blocks last; the last
//! admitted is preempted when blocks run out, and nobody is admitted in a step that preempts. The same decisions as
//! [`super::vllm`] by counting, in constant time a step.
//!
//! Sarathi (arXiv 2403.02310) and SplitFuse (DeepSpeed-FastGen, arXiv 2401.08671) differ in their settings: small
//! budgets (512), and Sarathi takes a prompt's blocks whole when it admits it, as the vLLM v0 below it did.

use crate::engine::decodes::Decodes;
use crate::engine::state::State;

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    let mut preempted = super::make_room(state);
    state.take_decode_blocks();
    let budget = u64::from(state.config.max_num_batched_tokens).saturating_sub(state.decodes.len());
    let mut budget = u32::try_from(budget).unwrap_or(u32::MAX);
    // At most one prompt is under way: the next is admitted once it is whole.
    if let Some(&id) = state.prefills().first() {
        let sequence = state.sequence(id);
        let tokens = (sequence.known - sequence.computed).min(budget);
        if state.continuation_blocks(id, tokens) > state.free() {
            state.preempt_last();
            preempted = true;
        } else if tokens > 0 {
            state.continue_prefill(id, tokens);
            budget -= tokens;
        }
    }
    if !preempted {
        admit(state, budget);
    }
    true
}

/// Admits from the head of the queue while budget, seats and blocks last.
fn admit<D: Decodes>(state: &mut State<D>, mut budget: u32) {
    while budget > 0 && state.running() + state.travelling() < state.config.max_num_seqs {
        let Some(id) = state.head() else { return };
        let (_, todo) = state.look_up(id);
        if !state.config.enable_chunked_prefill && todo > budget {
            return;
        }
        let tokens = todo.min(budget);
        let kept = if state.running() > 0 { state.config.watermark_blocks } else { 0 };
        let whole = if state.config.scheduler_reserve_full_isl { todo } else { tokens };
        if state.admission_blocks(id, whole) + kept > state.free() {
            return;
        }
        state.admit(tokens);
        budget -= tokens;
    }
}
