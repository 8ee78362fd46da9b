//! Cost and counters of each batch: tokens, rows, and use of the KV pool.

use super::{Batch, Sglang};
use crate::engine::event::Event;
use crate::engine::price::DecodeSteps;
use crate::scheduler::sglang::{ForwardMode, RequestId, Step};
use crate::scheduler::state::decodes::Decodes;
use crate::timeline::{Mark, Segment};
use roofcast_ask::arrival::Departure;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::clock::{Ticks, sum_of_run};

impl<D: Decodes> Sglang<D> {
    /// Ticks of a batch and of further equal batches, and the bottleneck.
    pub(super) fn cost(&mut self, step: &Step) -> (DecodeSteps, &'static str) {
        let n = step.decodes;
        if step.kind == ForwardMode::Decode {
            let mut run = self.price.decode(n).steps(self.rows.seen(), self.rows.growth());
            if let Some(joint) = self.price.joint() {
                run.growth = joint.growth;
                run.most = joint.count;
            }
            let bound = if self.timeline.is_some() { self.price.bound(n, self.rows.seen()) } else { "" };
            return (run, bound);
        }
        let seen = if n > 0 { self.rows.seen() } else { Seen::default() };
        let (time, shares) = self.price.mixed(n, seen, &chunks(step));
        self.tally.mixed.add(shares);
        (DecodeSteps::single(time.narrow()), shares.largest())
    }

    /// Counts the admissions, preemptions and retractions of a step.
    pub(super) fn note(&mut self, step: &Step) {
        self.tally.admitted += step.admitted.len() as u64;
        for &id in step.preempted.iter().chain(&step.retracted) {
            let life = &mut self.lives[id];
            life.preemptions += 1;
            // The last token came with the last decode, unless the request has not decoded since its prompt was
            // computed.
            life.last = life.last.max(self.decoded);
            self.tally.preemptions += 1;
            self.mark(id, Mark::Preempted);
            self.report(id, |number| Event::Preempted { number });
        }
        for &(id, found) in &step.admitted {
            let life = &mut self.lives[id];
            // Tokens that a request finds again after its own retraction are not counted as a hit of its prompt.
            if life.preemptions == 0 {
                life.cached = found;
            }
            self.tally.cached_tokens += found;
            let resumed = life.preemptions > 0;
            self.mark(id, Mark::Admitted);
            let loaded =
                step.loads.iter().find(|(loads, ..)| *loads == id).map_or(0, |(_, _, loaded)| *loaded);
            self.report(id, |number| Event::Admitted { number, cached: found, loaded, resumed });
        }
        self.tally.recomputed_tokens += step.dropped;
        for at in 0..step.aborted.len() {
            self.depart(step.aborted[at]);
        }
    }

    /// Counts a request that has ended, and reports its departure.
    pub(super) fn depart(&mut self, id: RequestId) {
        let life = self.lives[id];
        self.departures.push(Departure {
            arrival: life.arrival,
            first: life.first.unwrap_or(self.clock),
            preemptions: life.preemptions,
            cached: life.cached,
            id: 0,
            failed: false,
        });
        self.leaving.push(id);
        self.mark(id, Mark::Finished);
        self.report(id, |number| Event::Finished { number });
        self.lives[id].here = false;
    }

    /// Counts a batch and `more` equal batches after it.
    pub(super) fn count(&mut self, batch: &mut Batch, more: u64) {
        let Batch { step, segment, time, run, waits, .. } = batch;
        let usage = self.scheduler.usage();
        let taken = if more > 0 { self.scheduler.repeat(more) } else { 0 };
        let n = step.decodes;
        let steps = 1 + more;
        let computed: u64 = step.extends.iter().map(|e| e.context - e.new).sum();
        let held_tokens = self.rows.held() + computed + self.scheduler.leaving_tokens();
        let new: u64 = step.extends.iter().map(|e| e.new).sum();
        let many = u128::from(steps);
        let pairs = u128::from(more) * u128::from(steps) / 2;
        let tokens = u128::from(held_tokens) * many + u128::from(n) * pairs;
        let room = u128::from(usage.room) * many + taken;
        let shared = u128::from(usage.shared) * many;
        let page = self.config.scheduler.page_size;
        let used = self.scheduler.usage().room / page;
        let running = self.scheduler.held();
        let tally = &mut self.tally;
        tally.steps += steps;
        tally.scheduled_tokens += (new + n) * steps;
        tally.running_steps += running * steps;
        tally.running_peak = tally.running_peak.max(running);
        tally.blocks_peak = tally.blocks_peak.max(used);
        tally.token_steps += tokens;
        tally.shared_steps += shared;
        tally.slack_steps += (room + shared).saturating_sub(tokens);
        if n > 0 {
            tally.decode_steps += steps;
            tally.decoding_steps += n * steps;
            tally.spanned_blocks += (u128::from(usage.spanned) * many + taken) / u128::from(page);
        }
        if step.kind == ForwardMode::Decode {
            let computing = sum_of_run(*time - *waits, run.growth, steps);
            tally.decoded(n, steps, computing, run.paced(steps));
        }
        segment.blocks = [usage.room / page, used];
    }

    /// Records the decisions for a batch and `more` equal batches; the last one was made at `decided`.
    pub(super) fn passed(&mut self, batch: &Batch, more: u64, decided: Ticks) {
        if batch.step.decodes > 0 {
            self.rows.advance(1 + more, &mut Vec::new());
        }
        if batch.step.kind == ForwardMode::Decode {
            self.polling.decoded(1 + more, decided);
        } else {
            self.polling.prefilled(decided);
        }
    }

    /// The timeline's segment of a batch, with the fields that are known before the batch is computed.
    pub(super) fn segment(&self, step: &Step, bound: &'static str) -> Segment {
        let sampled = step.extends.iter().filter(|e| e.samples).count() as u64;
        Segment {
            start: self.clock,
            end: self.clock,
            steps: 1,
            running: self.scheduler.held(),
            decodes: step.decodes,
            waiting: self.scheduler.waiting_count(),
            chunks: step.extends.len() as u64,
            prefill_tokens: step.extends.iter().map(|e| e.new).sum(),
            output_tokens: step.decodes + sampled,
            blocks: [0; 2],
            bound,
        }
    }

    /// Records a batch and `more` equal batches in the timeline, computed from `start` until the current clock.
    pub(super) fn tell(&mut self, batch: &Batch, start: Ticks, more: u64) {
        let end = self.clock;
        let steps = 1 + more;
        if let Some(timeline) = &mut self.timeline {
            let output_tokens = batch.segment.output_tokens * steps;
            timeline.computed(&Segment { start, end, steps, output_tokens, ..batch.segment });
        }
    }
}

/// The chunks of prompts of a batch.
pub(super) fn chunks(step: &Step) -> Vec<Sequences> {
    step.extends.iter().map(|e| Sequences::prompt(e.new, e.context, e.samples)).collect()
}
