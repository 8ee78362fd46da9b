//! SGLang's engine: every decision of its scheduler, in the plain and in the overlap loop.
//!
//! Knows: the loops around [`sglang::Scheduler`], when requests are received, and the cost of each batch. The overlap
//! loop decides the next batch while one batch runs, as soon as the results of the batch before have arrived: batches
//! follow each other without a gap, and a request that arrives meanwhile waits for one more batch. Equal decodes are
//! taken at once; without `leap` every batch is taken singly, with equal results.

mod account;
mod copies;
mod driven;
mod rank;
pub(crate) mod settings;

pub(crate) use settings::SglangConfig;

use super::event::Event;
use super::link::Link;
use super::price::{DecodeSteps, StepPrices};
use super::{Replica, steps_within};
use crate::kv_cache::prefix::{Outputs, Tokens};
use crate::scheduler::sglang::budget::CLIP_MAX_NEW_TOKENS;
use crate::scheduler::sglang::{self, ForwardMode, RequestId, Scheduler, Step};
use crate::scheduler::state::decodes::{Decodes, ENDLESS, Entry};
use crate::scheduler::state::polling::AdmissionPolling;
use crate::tally::Tally;
use crate::timeline::{Mark, Segment, Timeline};
use roofcast_ask::arrival::{Arrival, Departure};
use roofcast_ask::kv_cache::groups::Groups;
use roofcast_ask::workload::Prompt;
use roofcast_ask::workload::request::Run;
use roofcast_facts::clock::Ticks;
use roofcast_facts::shares::BottleneckShares;
use std::borrow::Cow;
use std::collections::VecDeque;

/// Position in the segment of a request's output from which its unique prompt tokens are numbered.
const OWN_PROMPT: u64 = 1 << 32;

/// One replica of SGLang.
#[derive(Debug, Clone)]
pub(crate) struct Sglang<D> {
    config: SglangConfig,
    scheduler: Scheduler,
    price: StepPrices,
    /// Decoding rows, which count the tokens of context that attention reads.
    rows: D,
    clock: Ticks,
    tally: Tally,
    lives: Vec<Life>,
    /// Requests that have arrived at the server and that the scheduler has not received.
    inbox: VecDeque<(Arrival, sglang::NewRequest)>,
    polling: AdmissionPolling,
    /// A decision whose price is set from outside.
    prepared: Option<Result<(Box<Step>, u64), bool>>,
    /// In the overlap loop, the batch whose results are in flight.
    pending: Option<Batch>,
    /// Time of the last decode's results, and the requests that have not decoded yet.
    decoded: Ticks,
    fresh: Vec<RequestId>,
    departures: Vec<Departure>,
    /// Link to the host tier, if there is one.
    link: Option<Link>,
    /// Requests that ended; they are kept because the next decision may still refer to them.
    leaving: Vec<RequestId>,
    outputs: Outputs,
    leap: bool,
    /// True if this decision has reopened the queue, so that new requests are considered from the next decision on.
    opened: bool,
    timeline: Option<Box<Timeline>>,
    /// Events of single requests; `None` if they are not recorded.
    events: Option<Vec<Event>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    arrival: Arrival,
    first: Option<Ticks>,
    last: Ticks,
    preemptions: u32,
    cached: u64,
    /// True if the request has neither ended nor been aborted.
    here: bool,
}

/// A decided batch: its time in ticks, and the times of further equal batches.
#[derive(Debug, Clone)]
struct Batch {
    step: Box<Step>,
    time: u64,
    run: DecodeSteps,
    /// Part of the batch's ticks that is spent waiting for copies between tiers.
    waits: u64,
    /// Requests that decode for the first time in this batch.
    fresh: Vec<RequestId>,
    segment: Segment,
}

impl<D: Decodes> Sglang<D> {
    /// An idle engine.
    pub(crate) fn new(config: SglangConfig, price: StepPrices, leap: bool) -> Sglang<D> {
        Sglang {
            scheduler: Scheduler::new(config.scheduler.clone()),
            rows: D::new(&Groups::one(1), price.reaches()),
            price,
            clock: Ticks::ZERO,
            tally: Tally::default(),
            lives: Vec::new(),
            inbox: VecDeque::new(),
            polling: AdmissionPolling::new(config.polling),
            prepared: None,
            pending: None,
            decoded: Ticks::ZERO,
            fresh: Vec::new(),
            departures: Vec::new(),
            link: config.host.map(|host| Link::new(host.speed)),
            leaving: Vec::new(),
            outputs: Outputs::default(),
            leap,
            opened: false,
            timeline: None,
            events: None,
            config,
        }
    }

    fn overlaps(&self) -> bool {
        !self.config.scheduler.disable_overlap_schedule
    }

    /// Adds the requests that the scheduler receives now to the queue.
    fn receive(&mut self) {
        let idle = self.scheduler.in_flight() == 0;
        self.polling.poll(self.clock, idle);
        while let Some((arrival, _)) = self.inbox.front()
            && self.polling.admits(arrival.at)
            && let Some((arrival, request)) = self.inbox.pop_front()
        {
            let id = self.scheduler.add(request);
            if self.lives.len() <= id {
                self.lives.resize(id + 1, Life::default());
            }
            self.lives[id] = Life { arrival, here: true, ..Life::default() };
        }
    }

    /// Decides the next batch. Returns an error if there is nothing to compute; the error is true if a request was
    /// preempted, because another decision may then find work.
    fn decide(&mut self) -> Result<Batch, bool> {
        let (step, written_back) = match self.prepared.take() {
            Some(prepared) => prepared,
            None => self.schedule(),
        }?;
        let fresh = if step.decodes > 0 { std::mem::take(&mut self.fresh) } else { Vec::new() };
        let (run, bound) = self.cost(&step);
        let time = run.first;
        let waits = self.copying(&step, time, written_back);
        let segment = self.segment(&step, if waits > time { "swap" } else { bound });
        Ok(Batch { step, time: time + waits, run, waits, fresh, segment })
    }

    /// Decides the requests of the next batch; also returns the number of tokens for which the decision waited until
    /// they were on the host.
    fn schedule(&mut self) -> Result<(Box<Step>, u64), bool> {
        self.receive();
        self.settle(self.clock);
        let closed = self.scheduler.blocked();
        let step = self.scheduler.schedule();
        let written_back = self.moved();
        self.opened = closed && !self.scheduler.blocked();
        self.leaving.drain(..).for_each(|id| self.scheduler.forget(id));
        for &(id, tokens) in &step.joined {
            let computed = u32::try_from(tokens).unwrap_or(u32::MAX);
            self.rows.insert(Entry { id: id as u32, computed, remaining: ENDLESS, order: 0 });
            self.fresh.push(id);
        }
        for &id in &step.left {
            self.rows.remove(id as u32);
            self.fresh.retain(|fresh| *fresh != id);
        }
        self.note(&step);
        if step.kind == ForwardMode::Idle {
            let changed = !step.preempted.is_empty() || !step.aborted.is_empty();
            self.scheduler.recycle(step);
            return Err(changed);
        }
        Ok((step, written_back))
    }

    /// Runs a batch, or as many equal ones as begin before `horizon`; false if there is nothing to compute.
    fn compute(&mut self, horizon: Ticks) -> bool {
        let mut batch = match self.decide() {
            Ok(batch) => batch,
            Err(changed) => {
                let Some(before) = self.pending.take() else { return changed || self.await_copy() };
                self.deliver(&before, 0);
                self.scheduler.recycle(before.step);
                return true;
            }
        };
        if self.overlaps() {
            let before = self.pending.take();
            self.follow(batch, before, horizon);
        } else {
            let more = self.further(&batch, Ticks::ZERO, horizon);
            self.count(&mut batch, more);
            self.deliver(&batch, more);
            self.passed(&batch, more, self.clock - Ticks::from(batch.time + batch.run.growth * more));
            self.scheduler.recycle(batch.step);
        }
        true
    }

    /// Number of equal decisions that follow `batch` before `horizon`. The first is `late`r, the others are made as
    /// batches end. If the server polls its inbox every few batches, the decisions end at the next poll.
    fn further(&mut self, batch: &Batch, late: Ticks, horizon: Ticks) -> u64 {
        if let Some(joint) = self.price.joint() {
            return joint.count - 1;
        }
        if !self.leap || batch.waits > 0 {
            return 0;
        }
        let step_limit = self.equal_decisions(&batch.step).min(batch.run.most - 1);
        let left = if horizon == Ticks::NEVER { horizon } else { (horizon - self.clock) - late };
        if step_limit == 0 || left == Ticks::ZERO {
            return 0;
        }
        let within = if self.overlaps() {
            steps_within(batch.time, batch.run.growth, left, step_limit)
        } else {
            steps_within(batch.time, batch.run.growth, left, step_limit + 1) - 1
        };
        if within == 0 { 0 } else { self.scheduler.affordable(within) }
    }

    /// Number of decisions that equal the last one, `step`, if no request arrives and pages suffice.
    fn equal_decisions(&mut self, step: &Step) -> u64 {
        if self.opened || self.copies() || step.kind != ForwardMode::Decode {
            return 0;
        }
        let waits = self.polling.polls() || !self.inbox.is_empty();
        let polls = if waits { self.polling.patience() - 1 } else { u64::MAX };
        self.scheduler.steady(step).min(self.rows.steady() - 1).min(polls)
    }

    /// One turn of the overlap loop: processes the results of the batch `before`, and of all but the last of the
    /// batches decided now.
    fn follow(&mut self, mut batch: Batch, before: Option<Batch>, horizon: Ticks) {
        let changed = !batch.step.joined.is_empty() || !batch.step.left.is_empty() || !batch.fresh.is_empty();
        let alike = |b: &Batch| b.step.kind == ForwardMode::Decode && b.step.decodes == batch.step.decodes;
        let more = match &before {
            Some(before) if !changed && alike(before) => {
                self.further(&batch, Ticks::from(before.time), horizon)
            }
            _ => 0,
        };
        let mut decided = self.clock;
        self.count(&mut batch, more);
        if let Some(before) = before {
            self.deliver(&before, 0);
            self.scheduler.recycle(before.step);
        }
        if more > 0 {
            self.deliver(&batch, more - 1);
            // The last decision was made when the second-last of these batches began.
            decided = self.clock - Ticks::from(batch.time + batch.run.growth * (more - 1));
        }
        self.passed(&batch, more, decided);
        batch.time += batch.run.growth * more;
        batch.segment.blocks[0] = batch.segment.blocks[1];
        self.pending = Some(batch);
    }

    /// Processes the results of `batch` and of `more` equal batches, one after another.
    fn deliver(&mut self, batch: &Batch, more: u64) {
        let Batch { step, time, run: DecodeSteps { growth, .. }, fresh, .. } = batch;
        let start = self.clock;
        let first_end = start + Ticks::from(*time);
        let pairs = u128::from(more) * u128::from(more + 1) / 2;
        self.clock = first_end + Ticks(u128::from(*time) * u128::from(more) + u128::from(*growth) * pairs);
        self.tell(batch, start, more);
        let fresh: Vec<RequestId> = fresh.iter().copied().filter(|id| self.scheduler.decodes(*id)).collect();
        self.report_decoded(batch);
        let results = self.scheduler.process(step);
        self.moved();
        if step.decodes > 0 {
            for id in &fresh {
                self.tally.itl.add(first_end - self.lives[*id].last, 1);
            }
            self.tally.itl.add(first_end - self.decoded, results.decoded - fresh.len() as u64);
            self.tally.itl.add_run(time + growth, *growth, more, results.decoded);
            self.decoded = self.clock;
        }
        for id in results.sampled {
            let life = &mut self.lives[id];
            match life.first {
                None => life.first = Some(self.clock),
                Some(_) => self.tally.itl.add(self.clock - life.last, 1),
            }
            life.last = self.clock;
            self.mark(id, Mark::Decoding);
            self.report(id, |number| Event::Sampled { number, tokens: 1 });
        }
        self.tally.idle_tokens += results.beyond;
        for id in results.finished {
            self.depart(id);
        }
    }

    fn mark(&mut self, id: RequestId, mark: Mark) {
        if let Some(timeline) = &mut self.timeline {
            timeline.mark(self.lives[id].arrival.number, mark, self.clock);
        }
    }

    /// The client's bound on output tokens, clipped to the most that SGLang accepts: two tokens less than the pool or
    /// the longest sequence.
    fn bound(&self, arrival: &Arrival) -> u64 {
        let token_limit = self.config.scheduler.max_total_tokens.min(self.config.max_model_len);
        let room = token_limit.saturating_sub(u64::from(arrival.input) + 2);
        u64::from(arrival.max_tokens).min(room).max(u64::from(arrival.output))
    }

    /// The tokens of a prompt, some of which may be unique, and the segment of the output.
    fn tokens(&mut self, input: u32, prompt: Prompt) -> (Box<[Run]>, u32) {
        let prefix = self.outputs.prefix(prompt);
        let segment = prefix.output_segment;
        let own_tokens = u64::from(input).saturating_sub(prefix.tokens.len());
        let own_run =
            Some(Run { segment, start: OWN_PROMPT, length: own_tokens }).filter(|run| run.length > 0);
        (prefix.tokens.runs().iter().copied().chain(own_run).collect(), segment)
    }
}

impl<D: Decodes> Replica for Sglang<D> {
    fn serves(&self, arrival: &Arrival) -> bool {
        let SglangConfig { scheduler: config, max_model_len, .. } = &self.config;
        let input = u64::from(arrival.input);
        let output = u64::from(arrival.output);
        let pool = config.max_total_tokens - config.max_total_tokens % config.page_size;
        // `needed` is the number of tokens that admission needs in an empty pool.
        let needed = input + self.bound(arrival).min(CLIP_MAX_NEW_TOKENS) + config.page_size;
        // Exact lengths are counted in whole pages, whatever was generated before a retraction.
        let exact = arrival.ignore_eos && config.disable_radix_cache;
        let whole = if exact { input + self.bound(arrival) + 2 * config.page_size + 1 } else { 0 };
        input + output <= *max_model_len && needed.max(whole) < pool && input + output + 2 <= pool
    }

    fn arrive(&mut self, arrival: Arrival, prompt: Prompt) {
        if let Some(timeline) = &mut self.timeline {
            timeline.arrived(&arrival);
        }
        let (prompt, output_segment) = self.tokens(arrival.input, prompt);
        let output_len = u64::from(arrival.output);
        let max_new_tokens = self.bound(&arrival);
        let request = sglang::NewRequest {
            prompt,
            output_segment,
            output_tokens: None,
            max_new_tokens,
            output_len,
            ignore_eos: arrival.ignore_eos,
            priority: Some(arrival.key),
        };
        self.inbox.push_back((Arrival { output_segment, ..arrival }, request));
        self.tally.waiting_peak = self.tally.waiting_peak.max(self.waiting());
    }

    fn clock(&self) -> Ticks {
        self.clock
    }

    fn wait_until(&mut self, time: Ticks) {
        if time > self.clock {
            // The scheduler is idle until then.
            self.settle(time);
            let step = self.scheduler.schedule();
            self.moved();
            self.leaving.drain(..).for_each(|id| self.scheduler.forget(id));
            for &id in &step.left {
                self.rows.remove(id as u32);
            }
            self.scheduler.recycle(step);
        }
        self.tally.idle += time - self.clock;
        self.clock = self.clock.max(time);
    }

    fn blocked(&self) -> bool {
        D::LEAPS && self.scheduler.blocked()
    }

    fn is_empty(&self) -> bool {
        self.in_flight() == 0 && self.pending.is_none()
    }

    fn in_flight(&self) -> u64 {
        self.scheduler.in_flight() + self.inbox.len() as u64
    }

    fn waiting(&self) -> u64 {
        self.scheduler.waiting_count() + self.inbox.len() as u64
    }

    fn prompt_tokens(&self) -> u64 {
        let queued = self.scheduler.waiting().map(|id| u64::from(self.lives[id].arrival.input));
        queued.sum::<u64>() + self.inbox.iter().map(|(arrival, _)| u64::from(arrival.input)).sum::<u64>()
    }

    fn cached(&self, prompt: &Prompt) -> u64 {
        self.scheduler.cached(Tokens::of_prompt(prompt).runs())
    }

    fn blocks(&self) -> (u64, u64) {
        let page = self.config.scheduler.page_size;
        let all = self.config.scheduler.max_total_tokens;
        let free: u64 = self.scheduler.kv().iter().sum();
        (all.saturating_sub(free) / page, all / page)
    }

    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        let went = self.compute(horizon);
        departed.append(&mut self.departures);
        went
    }

    fn restart(&mut self) {
        self.scheduler = Scheduler::new(self.config.scheduler.clone());
        self.rows = D::new(&Groups::one(1), self.price.reaches());
        self.polling = AdmissionPolling::new(self.config.polling);
        self.link = self.config.host.map(|host| Link::new(host.speed));
        (self.pending, self.prepared, self.opened) = (None, None, false);
        self.inbox.clear();
        self.leaving.clear();
        self.fresh.clear();
        self.departures.clear();
    }

    fn tally(&self) -> Cow<'_, Tally> {
        Cow::Borrowed(&self.tally)
    }

    fn shares(&mut self) -> BottleneckShares<Ticks> {
        self.price.account(&self.tally)
    }

    fn timeline(&mut self) -> &mut Option<Box<Timeline>> {
        &mut self.timeline
    }
}
