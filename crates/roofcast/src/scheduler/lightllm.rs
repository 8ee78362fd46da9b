//! LightLLM: cache by the token, and admission by the future peak of the cache.
//!
//! Knows: at the end of each request's output, the requests that run longer hold a known number of tokens; the
//! largest such sum is the peak. A request that would raise it above the cache waits, so none is preempted. Source:
//! the scheduler of LightLLM's `router/req_queue` ("future memory"), with the output bound as the prediction. Prompts
//! are computed first, whole.

use super::{Policy, Profile};
use crate::arrival::SequenceId;
use crate::scheduler::config::Reservation;
use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;

/// Defaults of LightLLM: whole prompts, a cache by the token.
pub(super) fn profile() -> Profile {
    Profile { only_block_size: Some(1), ..Profile::whole(Policy::LightLlm, Reservation::Prompt) }
}

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
        // The prompt's step samples the first output token.
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

/// 1 if a waiting request may soon fit: as running requests near their ends, the peak falls from step to step.
pub(super) fn patience<D: Decodes>(state: &State<D>) -> u64 {
    if state.waiting() > 0 && state.running() < state.config.max_num_seqs { 1 } else { u64::MAX }
}

/// KV tokens of the whole cache.
fn room<D: Decodes>(state: &State<D>) -> u64 {
    state.config.blocks * u64::from(state.config.block_size)
}

/// Tokens in the cache, and tokens that may still be added: up to the client's bound, as far as a sequence may grow.
fn held_and_left<D: Decodes>(state: &State<D>, id: SequenceId) -> (u64, u64) {
    let (held, left) = state.progress(id);
    let arrival = &state.sequence(id).arrival;
    let most = state.config.max_model_len.saturating_sub(arrival.input).max(arrival.output);
    (u64::from(held), u64::from(left + arrival.max_tokens.min(most).saturating_sub(arrival.output)))
}

/// The future peak of tokens held: at the end of each request, the requests that last longer hold their tokens of
/// that time.
fn peak(requests: &mut [(u64, u64)]) -> u64 {
    requests.sort_unstable_by_key(|(_, left)| std::cmp::Reverse(*left));
    let mut held = 0;
    let with = |(index, (now, left)): (usize, &(u64, u64))| {
        held += now;
        held + (index as u64 + 1) * left
    };
    requests.iter().enumerate().map(with).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::peak;

    #[test]
    fn peaks_by_hand() {
        // (held, left): when the one with 2 left ends, 10 + 5 + 2·2 = 19; when the one with 8 left ends, 10 + 8 = 18.
        assert_eq!(peak(&mut [(5, 2), (10, 8)]), 19);
        assert_eq!(peak(&mut []), 0);
    }
}
