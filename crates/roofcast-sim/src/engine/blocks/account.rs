//! Times and counters of the steps of vLLM's engine.
//!
//! Knows: the price of a step, its counters and its segment of the timeline. Knows nothing about decisions.

use super::{Blocks, Held, Life};
use crate::engine::event::Event;
use crate::engine::ranks::StepLoad;
use crate::engine::speculation::Speculation;
use crate::scheduler::vllm::{AdapterSet, ScheduledRequest, Step};
use crate::timeline::{Mark, Segment};
use roofcast_cost::operator::AdaptedTokens;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::clock::Ticks;
use roofcast_facts::shares::BottleneckShares;

impl Blocks {
    /// Time of a step and its bottleneck; adds the step to the counters.
    pub(super) fn compute(&mut self, step: &Step) -> (Ticks, &'static str) {
        let StepLoad { decodes, all, within, chunks, .. } = self.load(step);
        let mut new = 0;
        for work in &step.work {
            new += work.new;
            if decodes_one(work) {
                let blocks = work.context.div_ceil(self.config.block_size);
                self.tally.decoding_steps += 1;
                self.tally.spanned_blocks += u128::from(blocks);
                // Count the token slots that are empty when the step begins.
                let prior_tokens = work.context - work.new;
                self.tally.slack_steps += u128::from(blocks * self.config.block_size - prior_tokens);
            }
        }
        let [paused, kept] = step.paused;
        let cached_tokens = step.work.iter().map(|w| w.context - w.new).sum::<u64>() + kept;
        let running = step.work.len() as u64 + paused;
        self.tally.steps += 1;
        self.tally.decode_steps += u64::from(step.work.iter().any(decodes_one));
        self.tally.scheduled_tokens += new;
        self.tally.running_steps += running;
        self.tally.running_peak = self.tally.running_peak.max(running);
        self.tally.token_steps += u128::from(cached_tokens);
        self.tally.shared_steps += u128::from(self.held.shared);
        let seen = Seen { all, within: &within };
        if chunks.is_empty() && self.speculation.is_none() {
            let run = self.price.decode(decodes).steps(seen, Seen::default());
            self.tally.decoded(decodes, 1, u128::from(run.first), run.paced(1));
            return (Ticks::from(run.first), self.price.bound(decodes, seen));
        }
        let (_, mut shares) = self.price.mixed(decodes, seen, &chunks);
        if let Some(speculation) = &mut self.speculation {
            shares = shares.plus(drafting(speculation, step, shares));
        }
        self.tally.mixed.add(shares);
        (Ticks::from(shares.total()), shares.largest())
    }

    /// Counts the admissions, preemptions and cache hits of a decision, and reports them.
    pub(super) fn note(&mut self, step: &Step) {
        self.tally.admitted += (step.new.len() + step.resumed.len()) as u64;
        self.note_loads(step);
        for id in &step.preempted {
            self.requests[*id].preemptions += 1;
            self.tally.preemptions += 1;
            self.mark(*id, Mark::Preempted);
            self.report(*id, |number| Event::Preempted { number });
        }
        for id in &step.without_slot {
            self.requests[*id].skipped.get_or_insert(self.clock);
        }
        for (index, id) in step.new.iter().chain(&step.resumed).enumerate() {
            if let Some(since) = self.requests[*id].skipped.take() {
                self.tally.adapters.waits += 1;
                self.tally.adapters.waiting += self.clock - since;
            }
            self.mark(*id, Mark::Admitted);
            let hit_tokens = step.cached.iter().find(|(hit, _)| hit == id);
            let cached = hit_tokens.map_or(0, |(_, cached)| *cached);
            let resumed = index >= step.new.len();
            let (local, promoted) = self.requests[*id].before_load.take().unwrap_or((cached, 0));
            let loaded = cached.saturating_sub(local);
            self.tally.host_hits += loaded;
            self.tally.storage_hits += promoted.min(loaded);
            self.report(*id, |number| Event::Admitted { number, cached, loaded, resumed });
        }
        for &(id, cached) in &step.cached {
            // Tokens that a request finds again after its own preemption are not counted as a hit of its prompt.
            if step.new.contains(&id) {
                self.requests[id].cached = cached;
            }
            self.tally.cached_tokens += cached;
        }
        if !step.preempted.is_empty() {
            self.tally.waiting_peak = self.tally.waiting_peak.max(self.scheduler.waiting_count());
        }
        self.tally.recomputed_tokens += step.recomputed;
        self.tally.blocks_peak = self.tally.blocks_peak.max(self.held_blocks());
    }

    /// Time that the adapters of a step's requests add to the step: loads, and kernels.
    pub(super) fn adapt(&mut self, step: &Step) -> Ticks {
        let Some(adapters) = &mut self.adapters else { return Ticks::ZERO };
        let adapted = named(&self.requests, step);
        if adapted.is_empty() {
            return Ticks::ZERO;
        }
        let distinct: AdapterSet = adapted.iter().map(|(adapter, _)| *adapter).collect();
        let tokens = adapted.iter().map(|(_, new)| new).sum();
        let loads = adapters.load(&distinct);
        let shares = self.price.adapters(AdaptedTokens { adapters: distinct.len() as u64, tokens });
        self.pass_adapters(shares, 1);
        self.tally.swapping += loads.time;
        let sums = &mut self.tally.adapters;
        sums.copies += loads.copies;
        sums.reads += loads.reads;
        sums.loading += loads.time;
        Ticks::from(shares.total()) + loads.time
    }

    /// Time that the kernels of adapters add to a step of decodes alone of all running requests.
    pub(super) fn decoding_adapters(&self) -> BottleneckShares<u64> {
        if self.adapters.is_none() {
            return BottleneckShares::default();
        }
        let adapters = self.scheduler.running().iter().map(|id| self.requests[*id].arrival.adapter);
        let adapted: Vec<u32> = adapters.filter(|adapter| *adapter != 0).collect();
        let tokens = adapted.len() as u64;
        let distinct: AdapterSet = adapted.into_iter().collect();
        match tokens {
            0 => BottleneckShares::default(),
            tokens => self.price.adapters(AdaptedTokens { adapters: distinct.len() as u64, tokens }),
        }
    }

    /// Counts `steps` steps to which the kernels of adapters add the time `shares` each.
    pub(super) fn pass_adapters(&mut self, shares: BottleneckShares<u64>, steps: u64) {
        let added = shares.map(|part| u128::from(part) * u128::from(steps));
        self.tally.mixed = self.tally.mixed.plus(added);
        self.tally.adapters.computing += Ticks::from(shares.total() * steps);
    }

    /// Work of a step.
    pub(super) fn load(&self, step: &Step) -> StepLoad {
        let reaches = self.price.reaches();
        let adapted = if self.adapters.is_some() { named(&self.requests, step) } else { Vec::new() };
        let mut load = StepLoad { within: vec![0; reaches.len()], adapted, ..StepLoad::default() };
        for work in &step.work {
            if decodes_one(work) && work.drafts == 0 {
                load.decodes += 1;
                load.all += work.context;
                let within = load.within.iter_mut().zip(reaches);
                within.for_each(|(seen, reach)| *seen += work.context.min(*reach));
            } else {
                load.chunks.push(if work.drafts > 0 {
                    Sequences::verify(work.new, work.context)
                } else {
                    Sequences::prompt(work.new, work.context, work.samples)
                });
            }
        }
        load
    }

    /// Records the current use of the KV cache, for the oldest pending step.
    pub(super) fn measure(&mut self) {
        let blocks = self.held_blocks();
        let shared = self.scheduler.shared_tokens();
        self.held = Held { blocks, shared, waiting: self.scheduler.waiting_count() };
    }

    /// Records a step that takes `time` in the timeline.
    pub(super) fn tell(&mut self, step: &Step, time: Ticks, bound: &'static str) {
        let Some(timeline) = &mut self.timeline else { return };
        let prompts = || step.work.iter().filter(|w| !decodes_one(w));
        timeline.computed(&Segment {
            start: self.clock,
            end: self.clock + time,
            steps: 1,
            running: step.work.len() as u64 + step.paused[0],
            decodes: (step.work.len() - prompts().count()) as u64,
            waiting: self.held.waiting,
            chunks: prompts().count() as u64,
            prefill_tokens: prompts().map(|w| w.new).sum(),
            output_tokens: step.work.iter().filter(|w| w.samples).map(|w| 1 + w.accepted).sum(),
            blocks: [self.held.blocks; 2],
            bound,
        });
    }
}

/// Adapters that the requests of a step name, each with the number of computed tokens of one request.
fn named(requests: &[Life], step: &Step) -> Vec<(u32, u64)> {
    let adapted = step.work.iter().map(|work| (requests[work.id].arrival.adapter, work.new));
    adapted.filter(|(adapter, _)| *adapter != 0).collect()
}

/// True if a sequence only continues from its last token, with or without drafts.
fn decodes_one(work: &ScheduledRequest) -> bool {
    work.decodes && work.samples && work.new == 1 + work.drafts
}

/// Time of drafting after a step whose times by bottleneck are `shares`.
fn drafting(
    speculation: &mut Speculation,
    step: &Step,
    shares: BottleneckShares<u64>,
) -> BottleneckShares<u64> {
    let sampling = step.work.iter().filter(|w| w.samples);
    let sampling: Vec<u64> = sampling.map(|w| w.context + 1 - (w.drafts - w.accepted)).collect();
    let prompts = step.work.iter().filter(|w| !decodes_one(w));
    let chunk = |w: &ScheduledRequest| Sequences::prompt(w.new, w.context, w.samples);
    speculation.drafting(&sampling, &prompts.map(chunk).collect::<Vec<_>>(), shares)
}
