//! The serving engine in virtual time: one replica that a policy schedules and the cost model prices.
//!
//! Knows: a step is scheduled, priced and applied; between two events all decodes advance in lockstep, so a run of equal
//! steps is taken at once (a leap). With [`decodes::Each`] the same engine steps and is the reference. Knows nothing
//! about where requests come from: [`crate::simulate`] drives it.

pub mod clock;
pub mod config;
pub mod decodes;
pub mod distribution;
pub mod price;
pub mod queue;
mod ring;
pub mod state;
pub mod tally;

use crate::scheduler::Policy;
use clock::Ticks;
use decodes::{Decodes, Id};
use price::{Chunk, Price};
use state::{Arrival, Piece, Sequence, State};

/// One replica.
#[derive(Debug, Clone)]
pub struct Engine<D> {
    /// Who waits and runs.
    pub state: State<D>,
    price: Price,
    policy: Policy,
    /// Ticks to move one token's KV between device and host.
    swap: u64,
    /// Who ended in the last step, in order.
    finished: Vec<Sequence>,
    ended: Vec<(Id, u32)>,
    chunks: Vec<Chunk>,
}

impl<D: Decodes> Engine<D> {
    /// An idle engine; `swap` is what moving one token's KV between device and host takes.
    pub fn new(config: config::Config, policy: Policy, price: Price, swap: Ticks) -> Engine<D> {
        Engine {
            state: State::new(config, price.reaches()),
            price,
            policy,
            swap: u64::try_from(swap.0).unwrap_or(u64::MAX),
            finished: Vec::new(),
            ended: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// A request joins the queue.
    pub fn arrive(&mut self, arrival: Arrival) {
        self.state.arrive(arrival);
    }

    /// Whether a request can be served at all: within the longest sequence, the cache, and the budget of a step where
    /// prompts are not split (a preempted request computes its output so far like a prompt).
    pub fn serves(&self, arrival: &Arrival) -> bool {
        let config = &self.state.config;
        let whole = arrival.input.saturating_add(arrival.output);
        let unsplit = if config.preempts() { whole } else { arrival.input };
        whole <= config.max_model_len
            && u64::from(whole).div_ceil(u64::from(config.block_size)) <= config.blocks
            && (config.enable_chunked_prefill || unsplit <= config.max_num_batched_tokens)
    }

    /// When the last step ended.
    pub fn clock(&self) -> Ticks {
        self.state.clock
    }

    /// Nothing happens until `time`.
    pub fn wait_until(&mut self, time: Ticks) {
        self.state.tally.idle += time - self.state.clock;
        self.state.clock = self.state.clock.max(time);
    }

    /// Whether a newcomer would not be looked at before someone leaves: others wait already, in order of arrival.
    pub fn blocked(&self) -> bool {
        self.state.waiting() > 0 && self.state.in_order()
    }

    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.state.waiting() == 0 && self.state.running() == 0 && self.state.swapped().is_empty()
    }

    /// The cost model's prices, for the shares of the run's time.
    pub fn price(&mut self) -> &mut Price {
        &mut self.price
    }

    /// Takes those that ended in the last step.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Sequence> {
        self.finished.drain(..)
    }

    /// One step, or as many equal ones as start before `horizon`; false where there is nothing to compute.
    pub fn step(&mut self, horizon: Ticks) -> bool {
        self.state.pieces.clear();
        let before = self.state.tally.preemptions;
        let decode = self.policy.schedule(&mut self.state) && !self.state.decodes.is_empty();
        if !decode && self.state.pieces.is_empty() {
            return false;
        }
        let swapped = self.state.moved();
        if self.state.pieces.is_empty() && swapped == 0 && before == self.state.tally.preemptions {
            self.leap(horizon);
        } else {
            self.mixed(decode, swapped);
        }
        true
    }

    /// Steps of decodes alone, up to the next event.
    fn leap(&mut self, horizon: Ticks) {
        let state = &mut self.state;
        let n = state.decodes.len();
        let price = self.price.decode(n);
        let dot = |tokens: &[u64]| -> u64 { price.slope.iter().zip(tokens).map(|(s, t)| s * t).sum() };
        let first = price.fixed + dot(state.decodes.seen());
        let growth = dot(state.decodes.growth());
        let steady = state.decodes.steady().min(self.policy.patience(state));
        let left = horizon - state.clock;
        let steps = affordable(state, steps_within(first, growth, left, steady));
        state.take_more_decode_blocks(steps);
        let pairs = u128::from(steps) * u128::from(steps - 1) / 2;
        let end = state.clock + Ticks(u128::from(first) * u128::from(steps) + u128::from(growth) * pairs);
        state.tally.decoded(n, steps, state.decodes.seen(), state.decodes.growth());
        state.decoded(steps, first, growth, end);
        count(state, n, n * steps, steps);
        state.clock = end;
        self.advance(steps);
    }

    /// A step with pieces of prompts, or one that moves caches between device and host.
    fn mixed(&mut self, decode: bool, swapped: u64) {
        let state = &mut self.state;
        let n = if decode { state.decodes.len() } else { 0 };
        self.chunks.clear();
        let mut sampled = 0;
        for piece in &state.pieces {
            let sequence = state.sequence(piece.id);
            let context = sequence.computed + piece.new;
            sampled += u64::from(context == sequence.known);
            self.chunks.push(Chunk { new: piece.new, context });
        }
        let seen: &[u64] = if decode { state.decodes.seen() } else { &[] };
        let (time, shares) = self.price.mixed(n, seen, &self.chunks, sampled);
        let moving = Ticks::from(swapped * self.swap);
        let end = state.clock + time + moving;
        state.tally.swapping += moving;
        state.tally.mixed.memory += u128::from(shares.memory);
        state.tally.mixed.compute += u128::from(shares.compute);
        state.tally.mixed.communication += u128::from(shares.communication);
        state.tally.mixed.host += u128::from(shares.host);
        let new: u64 = state.pieces.iter().map(|p| u64::from(p.new)).sum();
        if decode {
            let ticks = u64::try_from((time + moving).0).unwrap_or(u64::MAX);
            state.decoded(1, ticks, 0, end);
        }
        count(state, state.running(), n + new, 1);
        state.clock = end;
        if decode {
            self.advance(1);
        }
        self.apply_pieces();
    }

    /// Pieces are computed; prompts that are whole sample their first token.
    fn apply_pieces(&mut self) {
        let pieces = std::mem::take(&mut self.state.pieces);
        let whole: Vec<Piece> = pieces.iter().copied().filter(|p| self.state.computed(*p)).collect();
        let longest = self.policy.longest(&self.state, &whole);
        for piece in whole {
            if self.state.sampled(piece.id, longest) {
                let computed = self.state.sequence(piece.id).computed;
                let gone = self.state.finish(piece.id, computed);
                self.finished.push(gone);
            }
        }
        self.state.pieces = pieces;
    }

    fn advance(&mut self, steps: u64) {
        self.ended.clear();
        self.state.decodes.advance(steps, &mut self.ended);
        for (id, computed) in &self.ended {
            self.finished.push(self.state.finish(*id, *computed));
        }
    }
}

/// Counts `steps` equal steps of `running` sequences that compute `tokens` in all.
fn count<D: Decodes>(state: &mut State<D>, running: u64, tokens: u64, steps: u64) {
    let held = state.held_tokens();
    let growth = if state.pieces.is_empty() { state.decodes.len() } else { 0 };
    let used = state.config.blocks - state.free();
    let tally = &mut state.tally;
    tally.steps += steps;
    tally.scheduled_tokens += tokens;
    tally.running_steps += running * steps;
    tally.running_peak = tally.running_peak.max(running);
    tally.blocks_peak = tally.blocks_peak.max(used);
    let pairs = u128::from(steps) * u128::from(steps - 1) / 2;
    tally.token_steps += u128::from(held) * u128::from(steps) + u128::from(growth) * pairs;
}

/// How many steps start before `left` has passed, at least one and at most `most`: the first takes `first` ticks, each
/// later one `growth` more.
fn steps_within(first: u64, growth: u64, left: Ticks, most: u64) -> u64 {
    let spent = |steps: u64| {
        let steps = u128::from(steps);
        u128::from(first) * steps + u128::from(growth) * (steps * steps.saturating_sub(1) / 2)
    };
    if spent(most - 1) < left.0 {
        return most;
    }
    // Solve growth/2 · m² + (first − growth/2) · m = left in floats, then put it right in integers.
    let (a, b, c) = (growth as f64 / 2.0, first as f64 - growth as f64 / 2.0, left.0 as f64);
    let guess = if growth == 0 { c / b } else { (2.0 * c) / (b + (b * b + 4.0 * a * c).sqrt()) };
    let mut steps = (guess as u64).clamp(1, most);
    while steps > 1 && spent(steps - 1) >= left.0 {
        steps -= 1;
    }
    while steps < most && spent(steps) < left.0 {
        steps += 1;
    }
    steps
}

/// Of `steps` steps, how many the free blocks allow; at least one, which the policy has made room for.
fn affordable<D: Decodes>(state: &State<D>, steps: u64) -> u64 {
    // The first step's are taken already.
    let taken = state.decode_blocks(1);
    if state.decode_blocks(steps) - taken <= state.free() {
        return steps;
    }
    let (mut enough, mut too_many) = (1, steps);
    while too_many - enough > 1 {
        let middle = enough + (too_many - enough) / 2;
        if state.decode_blocks(middle) - taken <= state.free() { enough = middle } else { too_many = middle }
    }
    enough
}
