//! The engine that counts blocks and does not identify them by content, for every policy of [`crate::scheduler`].
//!
//! Knows: each step is scheduled, priced and applied. Between two events all decodes advance in lockstep, so a run of
//! equal steps is taken at once (a leap). With [`Each`](crate::scheduler::state::decodes::Each) the engine takes every
//! step singly. A step of vLLM's AsyncScheduler is decided when the step before begins: in that decision, requests that
//! end with the step before still hold their blocks and their places in the batch. Tests compare the answers with
//! [`super::blocks`] under vLLM's settings. Knows nothing about where requests come from.
//!
//! Functions of a step with one caller are `inline(always)`, because calls to them would take a fifth of a run's
//! instructions. Rare code is in separate functions, marked `cold` or `inline(never)`, so that it does not occupy a
//! processor's 32 KiB instruction cache between the code of every step.

use super::price::{JointSteps, StepPrices};
use super::ranks::{Rank, Repeats, StepLoad};
use super::{Replica, steps_within};
use crate::kv_cache::prefix::{Outputs, SharedPrefix};
use crate::scheduler::Policy;
use crate::scheduler::config::{EngineConfig, Preemption, PrefixCaching};
use crate::scheduler::state::decodes::Decodes;
use crate::scheduler::state::{KvPull, State};
use crate::tally::Tally;
use crate::timeline::Timeline;
use roofcast_ask::arrival::{Arrival, Departure, SequenceId};
use roofcast_ask::workload::Prompt;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::clock::{Ticks, sum_of_run};
use roofcast_facts::shares::BottleneckShares;
use std::borrow::Cow;

/// One replica that counts blocks and does not identify them by content.
#[derive(Debug, Clone)]
pub struct Engine<D> {
    /// Waiting and running requests, and the blocks.
    pub state: State<D>,
    price: StepPrices,
    policy: Policy,
    /// Ticks to move one token's KV between device and host.
    swap: u64,
    /// Decision for the next step; `None` unless that step was decided before the current one ends.
    decided: Option<Decided>,
    /// True if a waiting request arrived after the next step was decided.
    fresh: bool,
    ended: Vec<(SequenceId, u32)>,
    /// Sequences whose prompts the last step completed.
    completed: Vec<SequenceId>,
    prompts: Vec<Sequences>,
    outputs: Outputs,
}

/// Decision for one step; the chunks of the step are in the state.
#[derive(Debug, Clone, Copy)]
struct Decided {
    /// True if all decodes take part.
    decode: bool,
    /// True if the next decision may differ although no request arrives or leaves: this decision preempted a request,
    /// or the blocks of ended requests were not free yet.
    changes: bool,
}

/// Steps that were taken.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Steps in which the decodes took part.
    decodes: u64,
    /// Start of the last step.
    began: Ticks,
    /// End of the last step.
    end: Ticks,
}

impl<D: Decodes> Engine<D> {
    /// An idle engine; `swap` is the time to move one token's KV between device and host.
    pub fn new(config: EngineConfig, policy: Policy, price: StepPrices, swap: Ticks) -> Engine<D> {
        Engine {
            state: State::new(config, price.reaches()),
            price,
            policy,
            swap: u64::try_from(swap.0).unwrap_or(u64::MAX),
            decided: None,
            fresh: false,
            ended: Vec::new(),
            completed: Vec::new(),
            prompts: Vec::new(),
            outputs: Outputs::default(),
        }
    }

    /// Decides the next step.
    // Called from two places in every step's code: one copy is smaller than the processor's instruction cache.
    #[inline(never)]
    fn decide(&mut self) -> Decided {
        let state = &mut self.state;
        state.chunks.clear();
        state.land();
        state.poll();
        let before = state.tally.preemptions;
        let ending = state.ending();
        let decode = self.policy.schedule(state) && !state.decodes.is_empty();
        let changes = before != state.tally.preemptions || ending > 0;
        self.fresh = false;
        if state.config.ahead {
            state.tally.blocks_peak = state.tally.blocks_peak.max(state.used());
        }
        Decided { decode, changes }
    }

    /// If steps are decided ahead, decides the step after the one that runs from `began` to `end`, before the results
    /// of that one arrive.
    #[inline(always)]
    fn decide_ahead(&mut self, began: Ticks, end: Ticks) {
        if self.state.config.ahead {
            self.state.clock = began;
            self.decided = Some(self.decide());
        }
        self.state.clock = end;
    }

    /// Takes at most `most` steps that only decode, up to the next event.
    #[inline(always)]
    fn leap(&mut self, horizon: Ticks, most: u64) -> Run {
        let state = &mut self.state;
        let n = state.decodes.len();
        let run = self.price.decode(n).steps(state.decodes.seen(), state.decodes.growth());
        let first = run.first;
        let mut growth = run.growth;
        let steady = state.decodes.steady().min(self.policy.patience(state)).min(state.polling_patience());
        let left = if horizon == Ticks::NEVER { horizon } else { horizon - state.clock };
        let used = state.used();
        let steps = match self.price.joint() {
            None => steps_within(first, growth, left, steady.min(most).min(run.most)),
            Some(joint) => {
                growth = joint.growth;
                joint.count
            }
        };
        let steps = state.take_blocks_of(steps);
        let time = sum_of_run(first, growth, steps);
        let end = state.clock + Ticks(time);
        state.tally.decoded(n, steps, time, run.paced(steps));
        state.decoded(steps, first, growth, end);
        count(state, n, n * steps, steps);
        if state.timeline.is_some() {
            let bound = self.price.bound(n, state.decodes.seen());
            state.tell_of_decodes(end, steps, used, bound);
        }
        let last = u128::from(first) + u128::from(growth) * u128::from(steps - 1);
        let began = Ticks(end.0 - last);
        state.polling.decoded(steps, began);
        Run { decodes: steps, began, end }
    }

    /// Takes one step that computes chunks of prompts or moves KV cache between device and host.
    #[inline(always)]
    fn mixed(&mut self, decode: bool, swapped: u64) -> Run {
        let state = &mut self.state;
        let n = if decode { state.decodes.len() } else { 0 };
        self.prompts.clear();
        let mut new = 0;
        let mut sampled = 0;
        for chunk in chunks(state) {
            sampled += chunk.sampled;
            new += chunk.new;
            self.prompts.push(chunk);
        }
        let seen = if decode { state.decodes.seen() } else { Seen::default() };
        let (time, shares) = self.price.mixed(n, seen, &self.prompts);
        let moving = Ticks::from(swapped * self.swap);
        let began = state.clock;
        let end = state.clock + time + moving;
        state.tally.swapping += moving;
        state.tally.mixed.add(shares);
        if state.timeline.is_some() {
            let bound = if moving > time { "swap" } else { shares.largest() };
            state.tell_of_chunks(end, n, [new, n + sampled], bound);
        }
        if decode {
            let ticks = u64::try_from((time + moving).0).unwrap_or(u64::MAX);
            state.decoded(1, ticks, 0, end);
        }
        count(state, state.running(), n + new, 1);
        state.polling.prefilled(began);
        Run { decodes: u64::from(decode), began, end }
    }

    /// Applies the results of steps, after the next step is decided if steps are decided ahead.
    #[inline(always)]
    fn apply(&mut self, run: Run, departed: &mut Vec<Departure>) {
        if run.decodes > 0 {
            self.advance(run.decodes);
        }
        if !self.state.chunks.is_empty() {
            self.apply_chunks(run.end);
        }
        self.decide_ahead(run.began, run.end);
        if self.state.timeline.is_some() {
            self.completed.iter().for_each(|id| self.state.mark_decoding(*id));
        }
        self.completed.clear();
        for (id, _) in self.ended.drain(..) {
            departed.push(self.state.finish(id));
        }
    }

    /// Applies chunks whose computation ends at `end`; a request whose prompt is complete samples its first token.
    #[inline(always)]
    fn apply_chunks(&mut self, end: Ticks) {
        let chunks = std::mem::take(&mut self.state.chunks);
        let longest = self.policy.longest(&self.state, &chunks);
        for chunk in &chunks {
            if !self.state.computed(*chunk) {
                continue;
            }
            if self.state.sampled(chunk.id, end, longest) {
                let computed = self.state.sequence(chunk.id).computed;
                self.state.end(chunk.id, computed);
                self.ended.push((chunk.id, computed));
            } else {
                self.completed.push(chunk.id);
            }
        }
        self.state.chunks = chunks;
    }

    /// Computes `steps` tokens of every decode.
    #[inline(always)]
    fn advance(&mut self, steps: u64) {
        self.state.decodes.advance(steps, &mut self.ended);
        for (id, computed) in &self.ended {
            self.state.end(*id, *computed);
        }
    }
}

impl<D: Decodes> Replica for Engine<D> {
    fn serves(&self, arrival: &Arrival) -> bool {
        let config = &self.state.config;
        let output = if config.hands_over { 1 } else { arrival.output };
        let whole = arrival.input.saturating_add(output);
        let unsplit = if config.preempts() { whole } else { arrival.input };
        whole <= config.max_model_len
            && config.groups.blocks(u64::from(whole)) <= config.blocks
            && (config.enable_chunked_prefill || u64::from(unsplit) <= config.rank_budget())
    }

    fn arrive(&mut self, arrival: Arrival, prompt: Prompt) {
        // A request that arrives behind others, with the queue in order of arrival, cannot change the decision.
        self.fresh |= !D::LEAPS || self.state.waiting() == 0 || !self.state.in_order();
        if self.state.config.prefixes == PrefixCaching::Unknown {
            return self.state.arrive(arrival, SharedPrefix::default());
        }
        let prefix = self.outputs.prefix(prompt);
        self.state.arrive(Arrival { output_segment: prefix.output_segment, ..arrival }, prefix);
    }

    fn clock(&self) -> Ticks {
        self.state.clock
    }

    fn wait_until(&mut self, time: Ticks) {
        self.state.tally.idle += time - self.state.clock;
        self.state.clock = self.state.clock.max(time);
    }

    fn blocked(&self) -> bool {
        // If prompts wait until they fill a step, every new request matters. An empty queue is checked first, because
        // it is the usual case and this code runs before every step.
        let waits_for_prompts = || self.state.config.polling.wait_steps > 0;
        // A decision made ahead can use the budget of a request that has ended before that request leaves.
        let early = || self.state.config.ahead && self.state.short_of_budget;
        D::LEAPS
            && self.state.waiting() > 0
            && !waits_for_prompts()
            && !early()
            && self.state.head().is_some()
            && self.state.in_order()
    }

    fn is_empty(&self) -> bool {
        // A busy replica usually has decodes, so they are checked first.
        self.state.decodes.is_empty() && self.in_flight() == 0
    }

    fn in_flight(&self) -> u64 {
        let state = &self.state;
        state.waiting() + state.running() + state.travelling() + state.swapped().len() as u64
    }

    fn waiting(&self) -> u64 {
        self.state.waiting()
    }

    fn prompt_tokens(&self) -> u64 {
        self.state.prompt_tokens
    }

    fn cached(&self, prompt: &Prompt) -> u64 {
        self.state.cached(prompt)
    }

    fn blocks(&self) -> (u64, u64) {
        let all = self.state.config.blocks;
        (all.saturating_sub(self.state.free()), all)
    }

    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        // Replace an empty decision that was made ahead: requests may have arrived, and no step runs.
        let ahead = self.decided.take().filter(|ahead| ahead.decode || !self.state.chunks.is_empty());
        let Decided { decode, changes } = match ahead {
            Some(decided) => decided,
            None => self.decide(),
        };
        if !self.state.failed.is_empty() {
            departed.append(&mut self.state.failed);
            return true;
        }
        if !decode && self.state.chunks.is_empty() {
            return false;
        }
        let swapped = self.state.moved();
        let run = if self.state.chunks.is_empty() && swapped == 0 {
            // When a cache that is fetched now arrives is known after this step.
            let fetches = self.state.has_admitted();
            let once =
                fetches || self.fresh || changes && (self.state.waiting() > 0 || !self.state.config.ahead);
            self.leap(horizon, if once { 1 } else { u64::MAX })
        } else {
            self.mixed(decode, swapped)
        };
        self.apply(run, departed);
        true
    }

    fn receive(&mut self, guest: Departure, at: Ticks) {
        self.fresh = true;
        self.state.receive(guest, at);
    }

    fn drain_admitted(&mut self, into: &mut Vec<KvPull>) {
        self.state.drain_admitted(into);
    }

    fn landed(&mut self, pull: KvPull) {
        self.fresh = true;
        self.state.landed(pull.id);
    }

    fn release(&mut self, id: SequenceId) {
        self.fresh = true;
        self.state.release(id);
    }

    fn restart(&mut self) {
        self.decided = None;
        self.fresh = true;
        self.ended.clear();
        self.completed.clear();
        self.state.restart(self.price.reaches());
    }

    fn tally(&self) -> Cow<'_, Tally> {
        Cow::Borrowed(&self.state.tally)
    }

    fn shares(&mut self) -> BottleneckShares<Ticks> {
        self.price.account(&self.state.tally)
    }

    fn timeline(&mut self) -> &mut Option<Box<Timeline>> {
        &mut self.state.timeline
    }
}

impl<D: Decodes> Rank for Engine<D> {
    fn prepare(&mut self) -> Option<StepLoad> {
        let ahead = self.decided.filter(|ahead| ahead.decode || !self.state.chunks.is_empty());
        let decided = ahead.unwrap_or_else(|| self.decide());
        self.decided = Some(decided);
        let state = &self.state;
        let (n, seen) =
            if decided.decode { (state.decodes.len(), state.decodes.seen()) } else { Default::default() };
        let load = StepLoad::new(n, seen, chunks(state).collect());
        (decided.decode || !state.chunks.is_empty()).then_some(load)
    }

    fn repeats(&mut self) -> Repeats {
        let state = &self.state;
        let steady = |decided: &Decided| {
            decided.decode && !(decided.changes && (state.waiting() > 0 || !state.config.ahead))
        };
        let alone = state.chunks.is_empty() && state.failed.is_empty() && !state.has_admitted();
        let moves = state.config.preemption == Preemption::Swap;
        if !D::LEAPS || self.fresh || !alone || moves || !self.decided.as_ref().is_some_and(steady) {
            return Repeats::default();
        }
        let steps = state.decodes.steady().min(self.policy.patience(state)).min(state.polling_patience());
        let growth = state.decodes.growth().within.to_vec();
        Repeats {
            steps: state.steps_with_blocks(steps.min(u64::from(u32::MAX))),
            until: Ticks::NEVER,
            growth,
            in_flight: None,
        }
    }

    fn impose(&mut self, price: Option<JointSteps>) {
        self.price.impose(price);
    }

    fn wait_for_others(&mut self, time: Ticks) {
        self.state.clock = time;
    }
}

/// The chunks of prompts that the next step computes.
#[inline(always)]
fn chunks<D: Decodes>(state: &State<D>) -> impl Iterator<Item = Sequences> {
    state.chunks.iter().map(|chunk| {
        let sequence = state.sequence(chunk.id);
        let context = sequence.computed + chunk.new;
        Sequences::prompt(u64::from(chunk.new), u64::from(context), context == sequence.known)
    })
}

/// Counts `steps` equal steps, each with `running` sequences that compute `tokens` tokens in total.
#[inline(always)]
fn count<D: Decodes>(state: &mut State<D>, running: u64, tokens: u64, steps: u64) {
    let held_tokens = state.held_tokens();
    let shared = state.shared_tokens();
    let growth = if state.chunks.is_empty() { state.decodes.len() } else { 0 };
    let used = state.config.blocks - state.free();
    let tally = &mut state.tally;
    tally.steps += steps;
    tally.scheduled_tokens += tokens;
    tally.running_steps += running * steps;
    tally.running_peak = tally.running_peak.max(running);
    tally.blocks_peak = tally.blocks_peak.max(used);
    tally.token_steps += sum_of_run(held_tokens, growth, steps);
    tally.shared_steps += u128::from(shared) * u128::from(steps);
}

#[cfg(test)]
mod tests;
