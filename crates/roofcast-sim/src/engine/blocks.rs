//! vLLM's engine with identified blocks: every decision of its scheduler, with prefix caching, priorities and
//! asynchronous scheduling.
//!
//! Knows: the loop around [`vllm::Scheduler`]. Every running request is updated in every step; if decodes advance in
//! lockstep, [`super::Engine`] gives equal answers faster by counting blocks. Knows nothing about where requests come
//! from.

mod account;
mod adapters;
mod leap;
mod offloading;
mod rank;
mod verification;

pub(crate) use adapters::Adapters;

use super::Replica;
use super::event::{Event, HostCopy};
use super::link::Link;
use super::price::StepPrices;
use super::speculation::Speculation;
use crate::kv_cache::paged::Change;
use crate::kv_cache::prefix::{Outputs, SharedPrefix};
use crate::scheduler::vllm::{self, RequestId, Scheduler, Step};
use crate::tally::Tally;
use crate::timeline::{Mark, Timeline};
use roofcast_ask::arrival::{Arrival, Departure, NamedAdapters};
use roofcast_ask::workload::Prompt;
use roofcast_facts::clock::Ticks;
use roofcast_facts::shares::BottleneckShares;
use std::borrow::Cow;
use std::collections::VecDeque;
use verification::Verifying;

/// One replica of vLLM.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    scheduler: Scheduler,
    config: vllm::SchedulerConfig,
    price: StepPrices,
    speculation: Option<Speculation>,
    clock: Ticks,
    tally: Tally,
    requests: Vec<Life>,
    /// Steps that are decided and not completed: one, or two with asynchronous scheduling.
    pending: VecDeque<Step>,
    /// Use of the KV cache by the oldest pending step, after the results of the step before it.
    held: Held,
    /// Requests that ended with the last step; they are kept because the step in flight may still refer to them.
    leaving: Vec<RequestId>,
    outputs: Outputs,
    timeline: Option<Box<Timeline>>,
    /// Events of single requests; `None` if they are not recorded.
    events: Option<Vec<Event>>,
    /// Copies to and from the host tier that ended since they were last taken; empty if events are not recorded.
    copies: Vec<HostCopy>,
    /// Prompt tokens of the requests that have no output token yet.
    prompt_tokens: u64,
    /// LoRA adapters on device and host; `None` if none are served.
    adapters: Option<Adapters>,
    /// Link to the host tier; `None` without one.
    link: Option<Link>,
    /// Link between the host tier and storage; `None` without storage.
    storage: Option<Link>,
    /// True if the oldest pending step is decided and its price is set from outside.
    prepared: bool,
    /// True if equal steps are taken at once.
    leaps: bool,
    /// True if the last call took equal steps after a first one.
    has_leapt: bool,
    /// Rows of steps that only verify drafts.
    verifying: Verifying,
}

/// A decision of the scheduler.
#[derive(Debug, Clone, Copy)]
struct Scheduled {
    /// True if the step computes nothing.
    nothing: bool,
    /// True if no later decision can differ until a request arrives or a copy ends.
    stuck: bool,
    /// True if the host tier asked storage for blocks, so that the scheduler looks again at once.
    asked: bool,
}

/// Use of the KV cache by one step.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// Number of blocks that requests hold.
    blocks: u64,
    /// Number of tokens that requests hold in addition to a token's first holder.
    shared: u64,
    /// Number of waiting requests.
    waiting: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    arrival: Arrival,
    first: Option<Ticks>,
    last: Ticks,
    preemptions: u32,
    cached: u64,
    /// Number of tokens found on the device before a load from the host, and number of loaded tokens that came from
    /// storage; `None` if nothing was loaded.
    before_load: Option<(u64, u64)>,
    /// Number of sampled tokens.
    generated: u64,
    /// Time at which the request was first skipped because other adapters were in use; `None` if it was not, or is
    /// admitted.
    skipped: Option<Ticks>,
}

impl Blocks {
    /// An idle engine.
    pub(crate) fn new(
        config: vllm::SchedulerConfig,
        price: StepPrices,
        speculation: Option<Speculation>,
    ) -> Blocks {
        Blocks {
            scheduler: Scheduler::new(config.clone()),
            config,
            price,
            speculation,
            clock: Ticks::ZERO,
            tally: Tally::default(),
            requests: Vec::new(),
            pending: VecDeque::new(),
            held: Held::default(),
            leaving: Vec::new(),
            outputs: Outputs::default(),
            timeline: None,
            events: None,
            copies: Vec::new(),
            prompt_tokens: 0,
            adapters: None,
            link: None,
            storage: None,
            prepared: false,
            leaps: false,
            has_leapt: false,
            verifying: Verifying::default(),
        }
    }

    /// Returns the engine; it takes equal steps at once if `leaps` is true.
    pub(super) fn leaping(self, leaps: bool) -> Blocks {
        Blocks { leaps, ..self }
    }

    /// Returns the engine with recording of single requests' events.
    pub(super) fn reporting(self) -> Blocks {
        Blocks { events: Some(Vec::new()), ..self }
    }

    /// Moves the events recorded since the last call to `into`.
    pub(super) fn take_events(&mut self, into: &mut Vec<Event>) {
        into.append(self.events.as_mut().unwrap_or(&mut Vec::new()));
    }

    fn report(&mut self, id: RequestId, event: impl FnOnce(u64) -> Event) {
        if let Some(events) = &mut self.events {
            events.push(event(self.requests[id].arrival.number));
        }
    }

    /// Adds a request to the queue, with the part of its prompt that others can share, and the number of tokens
    /// transferred from another instance.
    pub(super) fn join(&mut self, arrival: Arrival, prefix: SharedPrefix, transferred: u64) -> RequestId {
        if let Some(timeline) = &mut self.timeline {
            timeline.arrived(&arrival);
        }
        self.prompt_tokens += u64::from(arrival.input);
        let output_segment = prefix.output_segment;
        let id = self.scheduler.add(vllm::NewRequest {
            input_len: u64::from(arrival.input),
            prefix,
            output_len: u64::from(arrival.output),
            priority: arrival.key,
            transferred,
            adapter: arrival.adapter,
        });
        if self.requests.len() <= id {
            self.requests.resize(id + 1, Life::default());
        }
        let arrival = Arrival { output_segment, ..arrival };
        self.requests[id] = Life { arrival, ..Life::default() };
        self.tally.waiting_peak = self.tally.waiting_peak.max(self.scheduler.waiting_count());
        id
    }

    /// Removes a request in any state; the step in flight may still refer to it.
    pub(super) fn abort(&mut self, id: RequestId) {
        self.scheduler.abort(id);
        let life = &self.requests[id];
        if life.first.is_none() {
            self.prompt_tokens -= u64::from(life.arrival.input);
        }
        self.leaving.push(id);
    }

    /// Returns the engine with LoRA adapters.
    pub(crate) fn adapting(mut self, adapters: Option<Adapters>) -> Blocks {
        self.adapters = adapters;
        self.bound_adapters();
        self
    }

    fn bound_adapters(&mut self) {
        if let Some(adapters) = &self.adapters {
            self.scheduler.set_max_loras(adapters.most());
        }
    }

    /// Number of waiting requests that the scheduler skipped, so that later ones could be admitted.
    pub(super) fn deferred(&self) -> u64 {
        self.scheduler.deferred_count()
    }

    pub(super) fn held_blocks(&self) -> u64 {
        self.config.usable_blocks() - self.scheduler.free_blocks()
    }

    /// Decides a step and adds it to the pending ones.
    fn schedule(&mut self) -> Scheduled {
        if self.pending.is_empty() {
            self.settle();
        }
        self.measure();
        let step = self.scheduler.schedule();
        self.note(&step);
        self.begin_storage_copies(self.clock);
        let requested_blocks = step.transfers.asked;
        let nothing = step.work.is_empty();
        let stuck = nothing && step.preempted.is_empty() && self.pending.is_empty();
        if self.pending.is_empty() {
            self.measure();
        }
        self.pending.push_back(step);
        Scheduled { nothing, stuck, asked: requested_blocks }
    }

    /// Number of steps in flight.
    fn flight(&self) -> usize {
        if self.config.async_scheduling { 2 } else { 1 }
    }

    fn mark(&mut self, id: RequestId, mark: Mark) {
        if let Some(timeline) = &mut self.timeline {
            timeline.mark(self.requests[id].arrival.number, mark, self.clock);
        }
    }

    /// Completes the oldest step in flight.
    fn deliver(&mut self, departed: &mut Vec<Departure>) {
        let Some(mut step) = self.pending.pop_front() else { return };
        self.verify(&mut step);
        self.begin_copies(&step);
        if !step.work.is_empty() {
            let (time, bound) = self.compute(&step);
            let time = time + self.adapt(&step);
            self.tell(&step, time, bound);
            self.clock += time;
        }
        self.begin_stores(&step);
        // Most requests have equal gaps, which are counted together.
        let mut gap = (Ticks::ZERO, 0);
        for work in step.work.iter().filter(|w| w.samples) {
            if self.scheduler.has_ended(work.id) {
                continue;
            }
            let life = &mut self.requests[work.id];
            match life.first {
                None => {
                    life.first = Some(self.clock);
                    self.prompt_tokens -= u64::from(life.arrival.input);
                }
                Some(_) if self.clock - life.last == gap.0 => gap.1 += 1,
                Some(_) => {
                    self.tally.itl.add(gap.0, gap.1);
                    gap = (self.clock - life.last, 1);
                }
            }
            life.last = self.clock;
            self.report(work.id, |number| Event::Sampled { number, tokens: 1 + work.accepted });
        }
        self.tally.itl.add(gap.0, gap.1);
        let gone = std::mem::take(&mut self.leaving);
        for id in self.scheduler.update(&step) {
            let life = self.requests[id];
            departed.push(Departure {
                arrival: life.arrival,
                first: life.first.unwrap_or(self.clock),
                preemptions: life.preemptions,
                cached: life.cached,
                id: 0,
                failed: false,
            });
            self.leaving.push(id);
            self.mark(id, if self.scheduler.was_preempted(id) { Mark::Dropped } else { Mark::Finished });
            self.report(id, |number| Event::Finished { number });
        }
        for work in step.work.iter().filter(|w| w.samples) {
            if self.timeline.is_some() && self.scheduler.runs(work.id) {
                self.mark(work.id, Mark::Decoding);
            }
        }
        for id in gone {
            if self.scheduler.is_unannounced(id) {
                self.leaving.push(id);
            } else {
                self.scheduler.forget(id);
            }
        }
        self.settle();
    }
}

impl Replica for Blocks {
    fn serves(&self, arrival: &Arrival) -> bool {
        let whole = u64::from(arrival.input) + u64::from(arrival.output);
        whole <= self.config.max_model_len
            && whole.div_ceil(self.config.block_size) <= self.config.usable_blocks()
            && (self.config.enable_chunked_prefill || whole <= self.config.max_num_batched_tokens)
    }

    fn arrive(&mut self, arrival: Arrival, prompt: Prompt) {
        let prefix = self.outputs.prefix(prompt);
        self.join(arrival, prefix, 0);
    }

    fn clock(&self) -> Ticks {
        self.clock
    }

    fn wait_until(&mut self, time: Ticks) {
        self.tally.idle += time - self.clock;
        self.clock = self.clock.max(time);
    }

    fn blocked(&self) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.in_flight() == 0 && self.pending.iter().all(|step| step.work.is_empty())
    }

    fn in_flight(&self) -> u64 {
        self.scheduler.waiting_count() + self.scheduler.running().len() as u64
    }

    fn waiting(&self) -> u64 {
        self.scheduler.waiting_count()
    }

    fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    fn cached(&self, prompt: &Prompt) -> u64 {
        self.scheduler.cached(prompt)
    }

    fn cached_on_host(&self, prompt: &Prompt) -> u64 {
        self.scheduler.cached_on_host(prompt)
    }

    fn adapters(&self) -> NamedAdapters {
        let named = |id: RequestId| Some(self.requests[id].arrival.adapter).filter(|adapter| *adapter != 0);
        NamedAdapters {
            running: self.scheduler.running().iter().filter_map(|id| named(*id)).collect(),
            waiting: self.scheduler.waiting().filter_map(named).collect(),
            most: self.adapters.as_ref().map_or(0, Adapters::most),
        }
    }

    fn blocks(&self) -> (u64, u64) {
        (self.config.usable_blocks() - self.scheduler.free_blocks(), self.config.usable_blocks())
    }

    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        if std::mem::take(&mut self.prepared) {
            self.deliver(departed);
            return true;
        }
        self.has_leapt = false;
        let Scheduled { nothing, stuck, asked } = self.schedule();
        if self.pending.len() >= self.flight() || nothing {
            self.deliver(departed);
            let delivered = self.clock;
            self.leap(horizon);
            self.has_leapt = self.clock > delivered;
        }
        let waits = nothing && (asked || self.await_copy(horizon, departed));
        !stuck || waits
    }

    fn has_leapt(&self) -> bool {
        self.has_leapt
    }

    fn watch_cache(&mut self) {
        self.scheduler.watch();
    }

    fn take_changes(&mut self, into: &mut Vec<Change>) {
        let from = into.len();
        self.scheduler.take_changes(into);
        for change in &mut into[from..] {
            if let Change::Stored { owner, .. } = change {
                *owner = self.requests[*owner as usize].arrival.number;
            }
        }
    }

    fn restart(&mut self) {
        let watched = self.scheduler.is_watched();
        self.scheduler = Scheduler::new(self.config.clone());
        if watched {
            self.watch_cache();
        }
        self.adapters = self.adapters.as_ref().map(Adapters::emptied);
        self.bound_adapters();
        self.pending.clear();
        self.leaving.clear();
        (self.held, self.prompt_tokens, self.prepared) = (Held::default(), 0, false);
        for link in [&mut self.link, &mut self.storage] {
            *link = link.as_ref().map(Link::emptied);
        }
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
