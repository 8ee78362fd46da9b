//! SGLang's traces, `sglang-sched-trace/1` and, with a host tier, `sglang-tier-trace/1`, and the loops of SGLang in
//! which traces are recorded.
//!
//! Knows: requests, settings and iterations of a trace, and when the results of a batch are processed: in the plain
//! loop within the batch's own iteration, in the overlap loop within the next one. [`roofcast_sim::scheduler::sglang`] makes
//! the decisions.

pub(super) mod trace;

pub(crate) use trace::{RecordedStep, TierStep, Trace};

use super::request::Segments;
use roofcast_sim::scheduler::sglang::{ForwardMode, NewRequest, RequestId, Scheduler, Step, Submission};
use std::collections::{BTreeSet, VecDeque};

/// Idle iterations after the last arrival that end a replay, because a request that can never run would wait for ever.
const IDLE_MOST: u64 = 3;

/// The decisions of [`Scheduler`] on the requests of a trace, in the form of recorded steps. An idle iteration is
/// omitted if the trace omits it.
pub(crate) fn replay(trace: &Trace) -> Vec<RecordedStep> {
    let mut replay = Replay::new(trace);
    let mut steps = Vec::new();
    let recorded: BTreeSet<u64> = trace.steps.iter().map(|step| step.step).collect();
    let last = trace.requests.iter().map(|r| r.arrival_step).max().unwrap_or(0);
    let mut idle = 0;
    for index in 0.. {
        let step = replay.iterate(index);
        let nothing = step.kind == "idle";
        let over = nothing && replay.finished == trace.requests.len();
        idle = if nothing && index > last { idle + 1 } else { 0 };
        if !nothing || recorded.contains(&index) || over {
            steps.push(step);
        }
        if over || idle > IDLE_MOST {
            break;
        }
    }
    steps
}

struct Replay<'a> {
    trace: &'a Trace,
    scheduler: Scheduler,
    segments: Segments<'a>,
    arrived: usize,
    /// The batch whose results have not been processed.
    pending: Option<Box<Step>>,
    finished: usize,
    /// Iterations in which copies to the host will be reported, and iterations in which loads from the host will.
    storing: VecDeque<u64>,
    loading: VecDeque<u64>,
}

impl<'a> Replay<'a> {
    fn new(trace: &'a Trace) -> Replay<'a> {
        Replay {
            trace,
            scheduler: Scheduler::new(trace.config.clone()),
            segments: Segments::default(),
            arrived: 0,
            pending: None,
            finished: 0,
            storing: VecDeque::new(),
            loading: VecDeque::new(),
        }
    }

    fn iterate(&mut self, index: u64) -> RecordedStep {
        let first = self.arrived;
        while self.trace.requests.get(self.arrived).is_some_and(|r| r.arrival_step <= index) {
            self.add(self.arrived);
            self.arrived += 1;
        }
        self.report(index);
        let step = self.scheduler.schedule();
        let mut record = self.record(index, first..self.arrived, &step);
        let done =
            if self.trace.config.disable_overlap_schedule { Some(step) } else { self.pending.replace(step) };
        let mut finished = Vec::new();
        if let Some(step) = done {
            finished = self.scheduler.process(&step).finished;
            self.scheduler.recycle(step);
        }
        self.finished += finished.len() + record.aborted.len();
        record.finished = self.names(finished);
        record.ratio_end = Some(self.scheduler.ratio());
        record.kv_end = Some(self.scheduler.kv());
        self.moved(index, &mut record.tier);
        record
    }

    /// Reports the copies that end in iteration `index` to the scheduler.
    fn report(&mut self, index: u64) {
        while self.storing.pop_front_if(|end| *end <= index).is_some() {
            self.scheduler.stored();
        }
        while self.loading.pop_front_if(|end| *end <= index).is_some() {
            self.scheduler.loaded();
        }
    }

    /// Records the events of the host tier in iteration `index`, and schedules the ends of the copies submitted there.
    fn moved(&mut self, index: u64, record: &mut TierStep) {
        let moves = self.scheduler.take_moves();
        let [store, load] = self.trace.delays;
        for submission in moves.submitted {
            match submission {
                Submission::Store(_) => self.storing.push_back(index + store),
                Submission::Load(_) => self.loading.push_back(index + load),
            }
        }
        record.stores = moves.stores;
        record.stored = moves.stored;
        record.store_failed = moves.store_failed;
        record.host_evicted = moves.host_evicted;
        record.device_evicted = moves.device_evicted;
        record.dropped = moves.dropped;
        record.host_end = self.scheduler.host();
    }

    fn add(&mut self, index: usize) {
        let request = &self.trace.requests[index];
        self.scheduler.add(NewRequest {
            prompt: self.segments.tokens(0, &request.prompt).runs().into(),
            output_segment: self.segments.number(0, &request.output_segment),
            output_tokens: None,
            max_new_tokens: request.max_new_tokens,
            output_len: request.output_len,
            ignore_eos: request.ignore_eos,
            priority: request.priority,
        });
    }

    fn names(&self, ids: impl IntoIterator<Item = RequestId>) -> Vec<String> {
        ids.into_iter().map(|id| self.trace.requests[id].id.clone()).collect()
    }

    fn record(&self, step: u64, arrived: std::ops::Range<usize>, decided: &Step) -> RecordedStep {
        let name = |id: RequestId| self.trace.requests[id].id.clone();
        let extends = decided.extends.iter().map(|e| (name(e.id), e.new));
        let hits = decided.admitted.iter().filter(|(_, found)| *found > 0);
        let kind = match decided.kind {
            ForwardMode::Idle => "idle",
            ForwardMode::Extend => "extend",
            ForwardMode::Decode => "decode",
            ForwardMode::Mixed => "mixed",
        };
        RecordedStep {
            step,
            arrived: self.names(arrived),
            kind: kind.to_owned(),
            sorted: self.names(decided.sorted.iter().copied()),
            scheduled: extends.chain(decided.rows.iter().map(|id| (name(*id), 1))).collect(),
            cached: hits.map(|(id, hits)| (name(*id), *hits)).collect(),
            chunked: decided.chunked.map(name),
            preempted: self.names(decided.preempted.iter().copied()),
            retracted: self.names(decided.retracted.iter().copied()),
            aborted: self.names(decided.aborted.iter().copied()),
            running: self.names(self.scheduler.running()),
            full: self.scheduler.full(),
            waiting: self.names(self.scheduler.waiting()),
            ratio: decided.ratio[0],
            ratio_after: Some(decided.ratio[1]),
            ratio_end: None,
            kv: self.scheduler.kv(),
            kv_end: None,
            finished: Vec::new(),
            tier: TierStep {
                loads: decided.loads.iter().map(|(id, hits, loaded)| (name(*id), *hits, *loaded)).collect(),
                load_failed: decided.load_failed.iter().map(|(id, tokens)| (name(*id), *tokens)).collect(),
                host: self.scheduler.host(),
                protected: self.scheduler.host().map(|_| self.scheduler.protected()),
                ..TierStep::default()
            },
        }
    }
}
