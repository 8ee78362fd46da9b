//! SGLang: prompts first in chunks, admission by an estimate of what running requests will still take.
//!
//! Knows: the estimate is a ratio of their output bounds; it starts high, falls with every step of decodes, and is put
//! right after a retraction. When blocks run out, those with the fewest tokens generated are retracted and computed
//! again. Source: SGLang 0.4 to 0.5, `managers/schedule_batch.py` and `scheduler.py` (`init_new_token_ratio` 0.7,
//! `min_new_token_ratio_factor` 0.14, 600 decay steps, `retract_decode_steps` 20, estimates clipped at 4096).

use crate::engine::decodes::{Decodes, Id};
use crate::engine::state::State;

const RATIO: f64 = 0.7;
const LEAST: f64 = RATIO * 0.14;
const DECAY: f64 = (RATIO - LEAST) / 600.0;
const CLIP: u32 = 4096;
const RETRACT_STEPS: f64 = 20.0;

/// The policy, with its estimate.
#[derive(Debug, Clone)]
pub struct Sglang {
    ratio: f64,
    /// Steps of the engine when the ratio was last brought up to date.
    steps: u64,
}

impl Default for Sglang {
    fn default() -> Sglang {
        Sglang { ratio: RATIO, steps: 0 }
    }
}

impl Sglang {
    pub(super) fn schedule<D: Decodes>(&mut self, state: &mut State<D>) -> bool {
        let passed = state.tally.decode_steps - self.steps;
        self.steps = state.tally.decode_steps;
        self.ratio = (self.ratio - DECAY * passed as f64).max(LEAST);
        self.prefill(state);
        if !state.pieces.is_empty() {
            return false;
        }
        if state.decode_blocks(1) > state.free() {
            self.retract(state);
        }
        state.take_decode_blocks();
        true
    }

    /// Decisions change as the ratio falls, while somebody waits for it; with pages of several tokens also because the
    /// room left falls by pages and the estimate by tokens.
    pub(super) fn patience<D: Decodes>(&self, state: &State<D>) -> u64 {
        let changing = self.ratio > LEAST || state.config.block_size > 1;
        let seats = state.running() < state.config.max_num_seqs;
        if state.waiting() > 0 && seats && changing { 1 } else { u64::MAX }
    }

    /// The prompt under way and newcomers, while budget, seats and the estimate allow.
    fn prefill<D: Decodes>(&mut self, state: &mut State<D>) {
        let mut budget = state.config.max_num_batched_tokens;
        if let Some(&id) = state.prefills().first() {
            let s = state.sequence(id);
            let tokens = (s.known - s.computed).min(budget);
            if state.continuation_blocks(id, tokens) <= state.free() {
                state.continue_prefill(id, tokens);
                budget -= tokens;
            }
        }
        if state.head().is_none() {
            return;
        }
        let left = |id: Id| f64::from(state.progress(id).1.min(CLIP));
        let promised: f64 = state.in_admission_order().map(left).sum::<f64>() * self.ratio;
        let block = f64::from(state.config.block_size);
        let mut room = state.free() as f64 * block - promised;
        while budget > 0 && state.running() < state.config.max_num_seqs {
            let Some(id) = state.head() else { return };
            let s = state.sequence(id);
            let (known, output) = (s.known, (s.arrival.output - s.generated).min(CLIP));
            let tokens = known.min(budget);
            let alone = state.running() == 0;
            if (!alone && f64::from(known) + f64::from(output) >= room)
                || state.admission_blocks(id, known) > state.free()
            {
                return;
            }
            room -= f64::from(known) + f64::from(output);
            state.admit(tokens);
            budget -= tokens;
        }
    }

    /// Takes out those with the fewest tokens generated, the longest prompts first among equals, until the rest has room.
    fn retract<D: Decodes>(&mut self, state: &mut State<D>) {
        let key = |id: Id| {
            let arrival = state.sequence(id).arrival;
            let generated = arrival.output - state.progress(id).1;
            (std::cmp::Reverse(generated), arrival.input)
        };
        let mut running: Vec<Id> = state.in_admission_order().collect();
        running.sort_by_key(|id| key(*id));
        while state.decode_blocks(1) > state.free() {
            let Some(id) = running.pop() else { break };
            state.preempt(id);
        }
        let generated = |id: &Id| f64::from(state.sequence(*id).arrival.output - state.progress(*id).1);
        let bound = |id: &Id| f64::from(state.sequence(*id).arrival.output);
        let (done, all): (f64, f64) = (running.iter().map(generated).sum(), running.iter().map(bound).sum());
        self.ratio = ((done + RETRACT_STEPS * running.len() as f64) / (all + 1.0)).min(1.0);
    }
}
