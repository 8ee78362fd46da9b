//! Drafts of vLLM's engine: which are accepted, and runs of steps that only verify drafts, without a decision of the
//! whole scheduler for each.
//!
//! Knows: draws, price and counters of each step, until a request arrives or its last token is next. Knows nothing about
//! decisions: [`crate::scheduler::vllm`] takes them.

use super::Blocks;
use crate::scheduler::vllm::{RequestId, Step, Verification};
use crate::timeline::Segment;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::clock::Ticks;
use std::collections::BTreeMap;

/// Rows, and room for what prices their steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Verifying {
    run: Verification,
    chunks: Vec<Sequences>,
    sampling: Vec<u64>,
    within: Vec<u64>,
}

impl Blocks {
    /// Sets the number of accepted drafts of each sequence of a step, at most the output tokens that remain, and of the
    /// drafts that follow. A step in flight was decided as if all drafts were accepted, and as if no request had ended.
    pub(super) fn verify(&mut self, step: &mut Step) {
        let mut corrections: BTreeMap<RequestId, u64> = BTreeMap::new();
        for work in step.work.iter_mut().filter(|w| w.samples) {
            if self.scheduler.has_ended(work.id) {
                self.tally.idle_tokens += work.new;
                continue;
            }
            let life = &mut self.requests[work.id];
            let left = u64::from(life.arrival.output) - life.generated;
            if let Some(speculation) = self.speculation.as_mut().filter(|_| work.drafts > 0) {
                let accepted = speculation.accepted(life.arrival.number, life.generated, work.drafts);
                work.accepted = accepted.min(left - 1);
                self.tally.drafted_tokens += work.drafts;
                self.tally.rejected_tokens += work.drafts - work.accepted;
            }
            self.tally.idle_tokens += work.padding;
            life.generated += 1 + work.accepted;
            if let Some(speculation) = &mut self.speculation {
                work.proposed = speculation.proposed(life.arrival.number, life.generated);
                if !self.pending.is_empty() {
                    corrections.insert(work.id, work.drafts + work.padding - work.accepted);
                }
            }
        }
        for work in self.pending.iter_mut().flat_map(|step| &mut step.work) {
            work.context -= corrections.get(&work.id).copied().unwrap_or(0);
        }
    }

    /// Takes the steps that start before `horizon` and verify the drafts of every running request.
    pub(super) fn verify_on(&mut self, horizon: Ticks) {
        let mut verifying = std::mem::take(&mut self.verifying);
        let sampled = || self.scheduler.running().iter().all(|id| self.requests[*id].last == self.clock);
        let begins = self.clock < horizon && self.adapters.is_none() && sampled();
        if begins && self.scheduler.begin_verification(&mut verifying.run, self.pending.front()) {
            let mut steps = 0;
            while self.clock < horizon && self.verify_next(&mut verifying) {
                steps += 1;
            }
            if steps > 0 {
                self.scheduler.end_verification(&verifying.run, self.pending.front_mut());
                for row in &verifying.run.rows {
                    let life = &mut self.requests[row.id];
                    (life.generated, life.last) = (row.generated(), self.clock);
                }
            }
        }
        self.verifying = verifying;
    }

    /// Takes the next step; false, without any change, if its results end a request or its decision is another one.
    fn verify_next(&mut self, verifying: &mut Verifying) -> bool {
        let Some(speculation) = &mut self.speculation else { return false };
        let ahead = !self.pending.is_empty();
        for row in &mut verifying.run.rows {
            let number = self.requests[row.id].arrival.number;
            let drafts = if ahead { row.work.drafts } else { row.drafts };
            row.accepted = if drafts > 0 { speculation.accepted(number, row.generated(), drafts) } else { 0 };
            if row.known + 1 + row.accepted >= row.end {
                return false;
            }
        }
        if ahead {
            self.measure();
        }
        if !self.scheduler.decide_verification(&mut verifying.run) {
            return false;
        }
        if !ahead {
            self.measure();
        }
        self.tally.blocks_peak = self.tally.blocks_peak.max(self.held_blocks());
        let start = self.clock;
        let bound = self.compute_verification(verifying);
        self.count_verification(&verifying.run, start, bound);
        let Some(speculation) = &mut self.speculation else { return false };
        for row in &mut verifying.run.rows {
            let number = self.requests[row.id].arrival.number;
            let proposed = speculation.proposed(number, row.generated() + 1 + row.accepted);
            row.deliver(proposed);
        }
        true
    }

    /// Advances the clock by the time of the step whose results are next; returns the step's bottleneck.
    fn compute_verification(&mut self, verifying: &mut Verifying) -> &'static str {
        let Verifying { run, chunks, sampling, within } = verifying;
        let reaches = self.price.reaches();
        within.clear();
        within.resize(reaches.len(), 0);
        chunks.clear();
        sampling.clear();
        let mut decodes = 0;
        let mut all = 0;
        for row in &run.rows {
            let work = row.work;
            sampling.push(work.context + 1 - (work.drafts - row.accepted));
            if work.drafts > 0 {
                chunks.push(Sequences::verify(work.new, work.context));
                continue;
            }
            decodes += 1;
            all += work.context;
            within.iter_mut().zip(reaches).for_each(|(seen, reach)| *seen += work.context.min(*reach));
        }
        let mut shares = self.price.mixed(decodes, Seen { all, within: within.as_slice() }, chunks).1;
        if let Some(speculation) = &mut self.speculation {
            shares = shares.plus(speculation.drafting(sampling, &[], shares));
        }
        self.tally.mixed.add(shares);
        self.clock += Ticks::from(shares.total());
        shares.largest()
    }

    /// Counts the step whose results are next, which began at `start`, and records it.
    fn count_verification(&mut self, run: &Verification, start: Ticks, bound: &'static str) {
        let n = run.rows.len() as u64;
        let block = self.config.block_size;
        let mut new = 0;
        let mut context = 0;
        let mut blocks = 0;
        let mut drafts = 0;
        let mut accepted = 0;
        for row in &run.rows {
            new += row.work.new;
            context += row.work.context;
            blocks += row.work.context.div_ceil(block);
            drafts += row.work.drafts;
            accepted += row.accepted;
        }
        let prior_tokens = context - new;
        let tally = &mut self.tally;
        tally.drafted_tokens += drafts;
        tally.rejected_tokens += drafts - accepted;
        tally.steps += 1;
        tally.decode_steps += 1;
        tally.decoding_steps += n;
        tally.spanned_blocks += u128::from(blocks);
        tally.slack_steps += u128::from(blocks * block - prior_tokens);
        tally.scheduled_tokens += new;
        tally.running_steps += n;
        tally.running_peak = tally.running_peak.max(n);
        tally.token_steps += u128::from(prior_tokens);
        tally.shared_steps += u128::from(self.held.shared);
        tally.itl.add(self.clock - start, n);
        if let Some(timeline) = &mut self.timeline {
            timeline.computed(&Segment {
                start,
                end: self.clock,
                steps: 1,
                running: n,
                decodes: n,
                waiting: self.held.waiting,
                output_tokens: n + accepted,
                blocks: [self.held.blocks; 2],
                bound,
                ..Segment::default()
            });
        }
    }
}
