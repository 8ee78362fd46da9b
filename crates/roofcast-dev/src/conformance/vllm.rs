//! vLLM's traces, `vllm-sched-trace/1` and `/2` and, with a host tier, `vllm-tier-trace/1`, and the loop of vLLM in
//! which traces are recorded.
//!
//! Knows: requests, settings and steps of a trace, and when the results of a step arrive. [`roofcast_sim::scheduler::vllm`]
//! makes the decisions.

pub(super) mod trace;

pub(crate) use trace::{RecordedStep, TierStep, Trace};

use super::request::Segments;
use roofcast_sim::kv_cache::names::Name;
use roofcast_sim::kv_cache::offload::Chunks;
use roofcast_sim::kv_cache::prefix::SharedPrefix;
use roofcast_sim::scheduler::vllm::{NewRequest, RequestId, ScheduledRequest, Scheduler, Step};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Number of steps after the last arrival that ends a replay.
const LONGEST: u64 = 1 << 20;

/// The decisions of the scheduler on the requests of a trace, in the form of recorded steps.
pub(crate) fn replay(trace: &Trace) -> Vec<RecordedStep> {
    Replay::new(trace).run()
}

struct Replay<'a> {
    trace: &'a Trace,
    scheduler: Scheduler,
    segments: Segments<'a>,
    /// Number of steps that verified drafts, by request.
    verified: Vec<usize>,
    /// Steps in flight, each with its index.
    pending: VecDeque<(u64, Step)>,
    /// Requests by the index of the step that sampled their last token.
    finished: BTreeMap<u64, Vec<RequestId>>,
    steps: Vec<RecordedStep>,
    /// Number of each chunk content on the host, given in the order in which contents are first stored.
    contents: BTreeMap<Name, u64>,
}

impl<'a> Replay<'a> {
    fn new(trace: &'a Trace) -> Replay<'a> {
        let mut scheduler = Scheduler::new(trace.config.clone());
        scheduler.set_max_loras(trace.max_loras);
        Replay {
            trace,
            scheduler,
            verified: vec![0; trace.requests.len()],
            segments: Segments::default(),
            pending: VecDeque::new(),
            finished: BTreeMap::new(),
            steps: Vec::new(),
            contents: BTreeMap::new(),
        }
    }

    fn run(mut self) -> Vec<RecordedStep> {
        let mut arrived = 0;
        let mut done = 0;
        let last = self.trace.requests.iter().map(|r| r.arrival_step).max().unwrap_or(0);
        let mut idle = 0;
        for index in 0.. {
            let first = arrived;
            while self.trace.requests.get(arrived).is_some_and(|r| r.arrival_step <= index) {
                self.add(arrived);
                arrived += 1;
            }
            let mut step = self.scheduler.schedule();
            self.verify(&mut step);
            let mut record = self.record(index, first..arrived, &step);
            record.tier = self.record_tier(index, &step);
            let nothing = step.scheduled.is_empty() && step.preempted.is_empty();
            self.pending.push_back((index, step));
            let due =
                if self.trace.config.async_scheduling { self.pending.len() >= 2 || nothing } else { true };
            done += if due { self.deliver() } else { 0 };
            record.tier.host_end = self.scheduler.host();
            self.steps.push(RecordedStep { free_blocks_end: self.scheduler.free_blocks(), ..record });
            let transfers = self.scheduler.transfers();
            // End the replay, because a request that can never be admitted would keep the loop running for ever.
            idle = if nothing && index > last && !transfers { idle + 1 } else { 0 };
            let in_flight = transfers || self.pending.iter().any(|p| !p.1.scheduled.is_empty());
            if (done == self.trace.requests.len() && !in_flight) || idle > 2 || index > last + LONGEST {
                break;
            }
        }
        let name = |id: &RequestId| self.trace.requests[*id].id.clone();
        for step in &mut self.steps {
            step.finished = self.finished.get(&step.step).into_iter().flatten().map(name).collect();
        }
        self.steps.retain(|s| !s.is_empty());
        self.steps
    }

    fn add(&mut self, index: usize) {
        let request = &self.trace.requests[index];
        let tokens = self.segments.tokens(request.lora, &request.prompt);
        let output_segment = self.segments.number(request.lora, &request.output_segment);
        self.scheduler.add(NewRequest {
            input_len: tokens.len(),
            // Any prompt of the trace may contain any token of another prompt.
            prefix: SharedPrefix { tokens, own_from: u64::MAX, output_segment, output_tokens: None },
            output_len: request.output_len,
            priority: request.priority,
            transferred: 0,
            adapter: request.lora,
        });
    }

    /// Sets the number of drafts that each request of a step accepts.
    fn verify(&mut self, step: &mut Step) {
        for work in step.work.iter_mut().filter(|work| work.samples && work.drafts > 0) {
            let accept = &self.trace.requests[work.id].accept;
            let turn = self.verified[work.id];
            self.verified[work.id] += 1;
            let accepted = accept.get(turn % accept.len().max(1)).copied().unwrap_or(0);
            work.accepted = accepted.min(work.drafts);
        }
    }

    /// Applies the results of the oldest step in flight; returns the number of requests that finished.
    fn deliver(&mut self) -> usize {
        let Some((index, step)) = self.pending.pop_front() else { return 0 };
        let finished = self.scheduler.update(&step);
        if let Some(recorded) = self.recorded(index) {
            self.scheduler.finish_jobs(&recorded.tier.done);
        }
        let count = finished.len();
        self.finished.entry(index).or_default().extend(finished);
        count
    }

    /// The recorded step with this index, if the trace has one.
    fn recorded(&self, index: u64) -> Option<&'a RecordedStep> {
        let at = self.trace.steps.binary_search_by_key(&index, |step| step.step).ok()?;
        self.trace.steps.get(at)
    }

    fn record_tier(&mut self, index: u64, decided: &Step) -> TierStep {
        if self.trace.config.offload.is_none() {
            return TierStep::default();
        }
        let trace = self.trace;
        let name = |id: &RequestId| trace.requests[*id].id.clone();
        let transfers = &decided.transfers;
        let mut stores = Vec::new();
        for (job, id, chunks) in &transfers.stores {
            let grouped = trace.config.windows.len() > 1;
            let single = |Chunks { group, first, names }: &Chunks| {
                let group = *group as u64;
                (*first..).zip(names.clone()).map(move |(place, content)| (group, place, content))
            };
            let numbered = chunks.iter().flat_map(single).map(|(group, place, content)| {
                let next = self.contents.len() as u64;
                let number = *self.contents.entry(content).or_insert(next);
                let group = grouped.then_some(group);
                group.into_iter().chain([u64::from(place), number]).collect()
            });
            stores.push((*job, name(id), numbered.collect()));
        }
        let number = |content: Name| self.contents.get(&content).copied().unwrap_or(u64::MAX);
        TierStep {
            loads: transfers
                .loads
                .iter()
                .map(|load| {
                    let [job, local, tokens, sync] =
                        [load.job, load.local, load.tokens, u64::from(load.sync)].map(Value::from);
                    let groups = (load.blocks.len() > 1).then(|| json!(load.blocks));
                    [job, name(&load.id).into(), local, tokens, sync].into_iter().chain(groups).collect()
                })
                .collect(),
            stores,
            evicted: transfers.evicted.iter().flat_map(|names| names.clone().rev()).map(number).collect(),
            store_refused: transfers.refused.iter().map(name).collect(),
            later: transfers.later.iter().map(name).collect(),
            flush: transfers.flush.iter().copied().collect(),
            loading: self.scheduler.loading().iter().map(name).collect(),
            kv_waiting: self.scheduler.holding().iter().map(name).collect(),
            host: self.scheduler.host(),
            host_end: None,
            done: self.recorded(index).map(|step| step.tier.done.clone()).unwrap_or_default(),
        }
    }

    fn record(&self, step: u64, arrived: std::ops::Range<usize>, decided: &Step) -> RecordedStep {
        let names =
            |ids: &[RequestId]| ids.iter().map(|i| self.trace.requests[*i].id.clone()).collect::<Vec<_>>();
        let pairs = |ids: &[(RequestId, u64)]| {
            ids.iter().map(|(i, n)| (self.trace.requests[*i].id.clone(), *n)).collect::<Vec<_>>()
        };
        let queue = |ids: Vec<RequestId>| {
            if self.trace.requests.len() > 100 {
                trace::RecordedQueue::Count(ids.len() as u64)
            } else {
                trace::RecordedQueue::Ids(names(&ids))
            }
        };
        let numbers = |value: fn(&ScheduledRequest) -> u64, least: u64| {
            let numbers = decided.work.iter().map(|work| (work.id, value(work)));
            pairs(&numbers.filter(|(_, number)| *number >= least).collect::<Vec<_>>()).into_iter().collect()
        };
        RecordedStep {
            step,
            arrived: names(&arrived.collect::<Vec<_>>()),
            scheduled: pairs(&decided.scheduled),
            new: names(&decided.new),
            resumed: names(&decided.resumed),
            preempted: names(&decided.preempted),
            cached: pairs(&decided.cached).into_iter().collect(),
            free_blocks: self.scheduler.free_blocks(),
            running: queue(self.scheduler.running().to_vec()),
            waiting: queue(self.scheduler.waiting().collect()),
            drafts: numbers(|work| work.drafts, 1),
            sampled: numbers(|work| 1 + work.accepted, 2),
            finished: Vec::new(),
            free_blocks_end: 0,
            tier: TierStep::default(),
        }
    }
}
