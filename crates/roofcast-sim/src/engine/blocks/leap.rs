//! Runs of equal steps of vLLM's engine, taken at once.
//!
//! Knows: the time and the counters of steps in which every running request decodes one token, until a request arrives
//! or a copy ends. Knows nothing about decisions: [`crate::scheduler::vllm`] says how many steps are equal.

use super::Blocks;
use crate::engine::link::Link;
use crate::engine::steps_within;
use crate::timeline::Segment;
use roofcast_facts::batch::Seen;
use roofcast_facts::clock::{Ticks, sum_of_run};

impl Blocks {
    /// Takes the steps that start before `horizon` and equal the last one.
    pub(super) fn leap(&mut self, horizon: Ticks) {
        let ends = self.leaving.is_empty() && self.pending.len() + 1 == self.flight();
        if !self.leaps || self.events.is_some() || !ends {
            return;
        }
        if self.speculation.is_some() {
            return self.verify_on(horizon);
        }
        let steady_steps = self.scheduler.steady();
        let copied = [&self.link, &self.storage].into_iter().flatten().filter_map(Link::next_end).min();
        let until = copied.map_or(horizon, |end| end.min(horizon));
        // A request without a token in the last step would have another gap than all others.
        let sampled = || self.scheduler.running().iter().all(|id| self.requests[*id].last == self.clock);
        if steady_steps == 0 || until <= self.clock || !sampled() {
            return;
        }
        let left = if until == Ticks::NEVER { until } else { until - self.clock };
        self.take(steady_steps, left);
    }

    /// Takes up to `most` equal steps that start before `left` has passed.
    fn take(&mut self, most: u64, left: Ticks) {
        // The context at the end of the first of these steps; with asynchronous scheduling that step is decided already.
        let ahead = self.pending.len() as u64;
        let contexts: Vec<u64> = self.scheduler.contexts().map(|computed| computed + 1 - ahead).collect();
        let n = contexts.len() as u64;
        let reaches = self.price.reaches();
        let below = |reach: u64| contexts.iter().filter(move |context| **context < reach);
        let fills =
            reaches.iter().filter_map(|reach| below(*reach).map(|context| reach - context).min()).min();
        let within: Vec<u64> =
            reaches.iter().map(|reach| contexts.iter().map(|c| (*c).min(*reach)).sum()).collect();
        let growing: Vec<u64> = reaches.iter().map(|reach| below(*reach).count() as u64).collect();
        let adapters = self.decoding_adapters();
        let seen = Seen { all: contexts.iter().sum(), within: &within };
        let run = self.price.decode(n).steps(seen, Seen { all: n, within: &growing });
        let [first, growth] = [run.first, run.growth];
        let kernels = adapters.total();
        let step_limit = most.min(fills.unwrap_or(u64::MAX)).min(run.most);
        let held_blocks = self.held_blocks();
        let steps = self.scheduler.leap(steps_within(first + kernels, growth, left, step_limit));
        if steps == 0 {
            return;
        }
        self.count(&contexts, steps);
        let time = sum_of_run(first, growth, steps);
        self.tally.decoded(n, steps, time, run.paced(steps));
        self.tally.itl.add_run(first + kernels, growth, steps, n);
        self.pass_adapters(adapters, steps);
        let start = self.clock;
        self.clock += Ticks(time) + Ticks::from(kernels * steps);
        self.tell_of_leap(start, (n, steps), held_blocks, seen);
        for id in self.scheduler.running() {
            let life = &mut self.requests[*id];
            life.generated += steps;
            life.last = self.clock;
        }
        for work in self.pending.iter_mut().flat_map(|step| &mut step.work) {
            work.context += steps;
        }
        self.settle();
    }

    /// Records `steps` steps of `n` decodes in the timeline, which began at `start` with `held` blocks.
    fn tell_of_leap(&mut self, start: Ticks, (n, steps): (u64, u64), held: u64, seen: Seen) {
        let blocks = [held, self.held_blocks()];
        let Some(timeline) = &mut self.timeline else { return };
        timeline.computed(&Segment {
            start,
            end: self.clock,
            steps,
            running: n,
            decodes: n,
            waiting: self.scheduler.waiting_count(),
            output_tokens: n * steps,
            blocks,
            bound: self.price.bound(n, seen),
            ..Segment::default()
        });
    }

    /// Counts `steps` steps of requests that have `contexts` at the end of the first step.
    fn count(&mut self, contexts: &[u64], steps: u64) {
        let n = contexts.len() as u64;
        let block = self.config.block_size;
        let mut spanned = 0;
        let mut token_steps = 0;
        for context in contexts {
            spanned += u128::from(blocks_below(context + steps, block) - blocks_below(*context, block));
            token_steps += sum_of_run(context - 1, 1, steps);
        }
        let held_blocks = self.held_blocks();
        let shared = self.scheduler.shared_tokens();
        let tally = &mut self.tally;
        tally.steps += steps;
        tally.decode_steps += steps;
        tally.scheduled_tokens += n * steps;
        tally.running_steps += n * steps;
        tally.running_peak = tally.running_peak.max(n);
        tally.decoding_steps += n * steps;
        tally.spanned_blocks += spanned;
        tally.slack_steps += spanned * u128::from(block) - token_steps;
        tally.token_steps += token_steps;
        tally.shared_steps += u128::from(shared) * u128::from(steps);
        tally.blocks_peak = tally.blocks_peak.max(held_blocks);
    }
}

/// Σ ⌈c / block⌉ over 0 ≤ c < `end`.
fn blocks_below(end: u64, block: u64) -> u64 {
    let last = end.max(1) - 1;
    let whole = last / block;
    block * (whole * (whole + 1) / 2) + last % block * (whole + 1)
}
