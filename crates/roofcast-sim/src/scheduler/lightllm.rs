//! LightLLM: KV cache allocated token by token, and admission by the future peak of the cache.
//!
//! Knows: when a request's output ends, the requests that run longer hold a known number of tokens; the largest such
//! sum is the peak. A request that would raise the peak above the cache waits, so that no request is preempted. Prompts
//! are computed first, each whole. Source: the scheduler of LightLLM's `router/req_queue` ("future memory"), with the
//! client's bound as the predicted output length. Knows nothing about time.

use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;
use roofcast_ask::arrival::SequenceId;

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    let mut budget = state.config.max_num_batched_tokens;
    let mut running: Vec<(u64, u64)> = Vec::new();
    if state.head().is_some() {
        running = state.in_admission_order().map(|id| held_and_left(state, id)).collect();
    }
    while state.running() < state.config.max_num_seqs {
        let Some(id) = state.head() else { break };
        let known = state.sequence(id).known;
        // The step that computes the prompt samples the first output token.
        let (_, left) = held_and_left(state, id);
        running.push((u64::from(known), left - 1));
        if known > budget || peak(&mut running.clone()) > room(state) {
            break;
        }
        state.admit(known);
        budget -= known;
    }
    if !state.chunks.is_empty() {
        return false;
    }
    let (blocks, _) = super::make_room(state);
    state.take_decode_blocks(blocks);
    true
}

/// Number of steps for which the decision holds: 1 if a waiting request may soon fit, because the peak falls from step
/// to step as running requests near their ends.
pub(super) fn patience<D: Decodes>(state: &State<D>) -> u64 {
    if state.waiting() > 0 && state.running() < state.config.max_num_seqs { 1 } else { u64::MAX }
}

/// Tokens that the whole KV cache holds.
fn room<D: Decodes>(state: &State<D>) -> u64 {
    state.config.blocks * u64::from(state.config.block_size)
}

/// Tokens of a sequence in the KV cache, and tokens that may still be added, up to the client's bound and the longest
/// sequence.
fn held_and_left<D: Decodes>(state: &State<D>, id: SequenceId) -> (u64, u64) {
    let (held, left) = state.progress(id);
    let arrival = &state.sequence(id).arrival;
    let output_limit = state.config.max_model_len.saturating_sub(arrival.input).max(arrival.output);
    (u64::from(held), u64::from(left + arrival.max_tokens.min(output_limit).saturating_sub(arrival.output)))
}

/// The future peak of tokens held, for requests as (tokens held, tokens left): when one ends, the requests that last
/// longer still hold their tokens of that time.
fn peak(requests: &mut [(u64, u64)]) -> u64 {
    requests.sort_unstable_by_key(|(_, left)| std::cmp::Reverse(*left));
    let mut held_tokens = 0;
    let with = |(index, (now, left)): (usize, &(u64, u64))| {
        held_tokens += now;
        held_tokens + (index as u64 + 1) * left
    };
    requests.iter().enumerate().map(with).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::peak;

    #[test]
    fn peaks_by_hand() {
        // Requests as (held, left): when the one with 2 left ends, 10 + 5 + 2·2 = 19; when the one with 8 left ends, 10
        // + 8 = 18.
        assert_eq!(peak(&mut [(5, 2), (10, 8)]), 19);
        assert_eq!(peak(&mut []), 0);
    }
}
