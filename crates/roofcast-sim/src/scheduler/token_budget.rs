//! A token budget per step, shared by decodes and chunks of prompts: vLLM v1, Sarathi, SplitFuse, TensorRT-LLM.
//!
//! Knows: decodes come first, then the unfinished prompt, then waiting requests while budget, `max_num_seqs` and blocks
//! permit. When blocks run out the request admitted last is preempted, and a step that preempts admits no request.
//! Makes the decisions of [`super::vllm`] by counting blocks, in constant time per step. Knows nothing about time.
//!
//! Sarathi (arXiv 2403.02310) and SplitFuse (DeepSpeed-FastGen, arXiv 2401.08671) differ in their settings: both have
//! small budgets (512), and Sarathi allocates all blocks of a prompt at admission, like the vLLM v0 on which it was
//! built.

use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;

/// Decides the next step; see [`super::Policy::schedule`].
#[inline(always)]
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    let (blocks, mut preempted) = super::make_room(state);
    state.take_decode_blocks(blocks);
    let budget = u64::from(state.config.max_num_batched_tokens).saturating_sub(state.decodes.len());
    let mut budget = u32::try_from(budget).unwrap_or(u32::MAX);
    // At most one prompt is unfinished: the next request is admitted once this prompt is complete.
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
    state.short_of_budget = !preempted && admit(state, budget);
    true
}

/// Admits requests from the head of the queue while budget, `max_num_seqs` and blocks permit. Returns true if the
/// budget was used up, or too small for the next request.
#[inline(always)]
fn admit<D: Decodes>(state: &mut State<D>, mut budget: u32) -> bool {
    let slots = |state: &State<D>| state.running() + state.travelling() < state.config.max_num_seqs;
    while state.waiting() > 0 && budget > 0 && slots(state) {
        let Some(id) = state.head() else { return false };
        let (_, todo) = state.look_up(id);
        if !state.config.enable_chunked_prefill && todo > budget {
            return true;
        }
        let tokens = todo.min(budget);
        let watermark = if state.running() > 0 { state.config.watermark_blocks } else { 0 };
        let whole = if state.config.scheduler_reserve_full_isl { todo } else { tokens };
        if state.admission_blocks(id, whole) + watermark > state.free() {
            return false;
        }
        state.admit(tokens);
        budget -= tokens;
    }
    budget == 0
}
