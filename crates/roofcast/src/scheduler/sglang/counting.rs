//! SGLang: prompts first in chunks, admission by an estimate of what running requests will still take.
//!
//! Knows: the estimate is a ratio of their output bounds; it starts high, falls with every step of decodes, and is put
//! right after a retraction. When blocks run out, those with the fewest tokens generated are retracted and computed
//! again. Source: SGLang 0.4 to 0.5, `managers/schedule_batch.py` and `scheduler.py` (`init_new_token_ratio` 0.7,
//! `min_new_token_ratio_factor` 0.14, 600 decay steps, `retract_decode_steps` 20, estimates clipped at 4096), and
//! `schedule_policy.py` (`lpm`, which falls back to the order of arrival beyond 128 that wait). Left out: `lpm` puts back
//! requests whose prefix another one in the queue is about to compute.

use crate::engine::decodes::{Decodes, Id};
use crate::engine::queue::Order;
use crate::engine::state::State;

const RATIO: f64 = 0.7;
const LEAST: f64 = RATIO * 0.14;
const DECAY: f64 = (RATIO - LEAST) / 600.0;
const CLIP: u32 = 4096;
const RETRACT_STEPS: f64 = 20.0;
/// Beyond so many that wait their prefixes are not compared.
const LPM_MOST: u64 = 128;

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
    pub(crate) fn schedule<D: Decodes>(&mut self, state: &mut State<D>) -> bool {
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
    /// room left falls by pages and the estimate by tokens, and with a prefix cache because those who decode overwrite what
    /// would be found.
    pub(crate) fn patience<D: Decodes>(&self, state: &State<D>) -> u64 {
        let changing = self.ratio > LEAST || state.config.block_size > 1 || state.overwrites();
        let seats = state.running() < state.config.max_num_seqs;
        if state.head().is_some() && seats && changing { 1 } else { u64::MAX }
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
        if state.head().is_none() || state.running() >= state.config.max_num_seqs {
            return;
        }
        if state.config.order == Order::Prefix && state.waiting() <= LPM_MOST {
            state.longest_prefix_first();
        }
        let left = |id: Id| f64::from(state.progress(id).1.min(CLIP));
        let promised: f64 = state.in_admission_order().map(left).sum::<f64>() * self.ratio;
        let block = f64::from(state.config.block_size);
        let mut room = state.free() as f64 * block - promised;
        while budget > 0 && state.running() < state.config.max_num_seqs {
            let Some(id) = state.head() else { return };
            let (_, todo) = state.look_up(id);
            let s = state.sequence(id);
            let output = (s.arrival.output - s.generated).min(CLIP);
            let tokens = todo.min(budget);
            let needed = f64::from(todo) + f64::from(output) + state.claimed() as f64;
            let alone = state.running() == 0;
            if (!alone && needed >= room) || state.admission_blocks(id, todo) > state.free() {
                return;
            }
            room -= needed;
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
