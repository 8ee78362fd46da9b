//! SGLang's scheduler: prompts before decodes, in chunks; admission by an estimate of the tokens that running requests
//! will still add; a radix tree of prefixes; retraction when the KV pool is full; the normal and the overlap loop.
//!
//! Knows: the decisions of SGLang 0.5.23's `Scheduler` for one pool of full attention, which `conformance`
//! tests step by step against recorded decisions, and the differences of older versions ([`Rules`]). One iteration is
//! [`Scheduler::schedule`] and, for the batch whose results have arrived, [`Scheduler::process`]: in the normal loop
//! for the batch just decided, in the overlap loop for the previous one. One counter tracks all decoding rows, so that
//! equal iterations can be taken at once ([`Scheduler::repeat`]). Knows nothing about time: the driver prices the
//! steps.

mod abort;
mod admission;
pub(crate) mod budget;
mod config;
mod leap;
mod memory;
mod order;
mod ratio;
mod request;
mod results;
mod retraction;
mod rows;
mod tier;
mod tree;

pub use config::{HiCache, Rules, ServerArgs};
pub(crate) use memory::Usage;
pub use request::NewRequest;
pub use tree::host::{Moves, Submission};

use budget::CLIP_MAX_NEW_TOKENS;
use memory::Memory;
use ratio::Ratio;
use request::{RequestPhase, RequestState};
use roofcast_ask::spec::SchedulePolicy;
use roofcast_ask::workload::request::Run;
use roofcast_facts::slab::Slab;
use rows::{Left, Running};
use std::collections::VecDeque;
use tree::ROOT;

/// Index of a request in order of arrival; indices of forgotten requests are reused.
pub type RequestId = usize;

/// Kind of batch that an iteration runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardMode {
    /// No computation.
    #[default]
    Idle,
    /// Chunks of prompts.
    Extend,
    /// One token of every running request.
    Decode,
    /// Chunks of prompts, followed by one token of each running request.
    Mixed,
}

/// A chunk of a prompt in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extend {
    /// Request to which the chunk belongs.
    pub id: RequestId,
    /// Number of tokens that the chunk computes.
    pub new: u64,
    /// Context in tokens at the end of the chunk.
    pub(crate) context: u64,
    /// True if the chunk completes the prompt, so that the request samples a token.
    pub(crate) samples: bool,
}

/// Decision of one iteration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// Kind of batch.
    pub kind: ForwardMode,
    /// The queue after sorting and before admission, if the queue was considered and [`ServerArgs::records`] is set.
    pub sorted: Vec<RequestId>,
    /// Chunks of prompts, in the order of the batch.
    pub extends: Vec<Extend>,
    /// Number of requests that decode.
    pub decodes: u64,
    /// Decoding requests in order, if [`ServerArgs::records`] is set.
    pub rows: Vec<RequestId>,
    /// Admitted requests, each with the number of tokens found in the cache.
    pub admitted: Vec<(RequestId, u64)>,
    /// Admitted requests that load from the host: request, tokens on the device, tokens loaded.
    pub loads: Vec<(RequestId, u64, u64)>,
    /// Candidates whose tokens were found on the host but not loaded, each with the number of tokens.
    pub load_failed: Vec<(RequestId, u64)>,
    /// Requests that start to run, each with its cached tokens.
    pub(crate) joined: Vec<(RequestId, u64)>,
    /// Requests that stopped running since the last decision or with this one.
    pub(crate) left: Vec<RequestId>,
    /// The request whose prompt is incomplete after this batch.
    pub chunked: Option<RequestId>,
    /// Requests preempted for a higher priority, in order.
    pub preempted: Vec<RequestId>,
    /// Requests retracted because the pool was full, in order.
    pub retracted: Vec<RequestId>,
    /// Requests aborted in this decision because they do not fit even alone.
    pub aborted: Vec<RequestId>,
    /// Tokens that preempted and retracted requests lost and must recompute.
    pub(crate) dropped: u64,
    /// The new-token ratio before and after the decision.
    pub ratio: [f64; 2],
}

impl Step {
    /// Empties the decision and keeps its allocations.
    fn clear(&mut self) {
        let Step { sorted, extends, rows, admitted, loads, load_failed, joined, left, .. } = self;
        let Step { preempted, retracted, aborted, .. } = self;
        extends.clear();
        [admitted, joined, load_failed].into_iter().for_each(Vec::clear);
        loads.clear();
        [sorted, rows, left, preempted, retracted, aborted].into_iter().for_each(Vec::clear);
        (self.kind, self.chunked) = (ForwardMode::Idle, None);
        (self.decodes, self.dropped) = (0, 0);
    }
}

/// The last batch, reduced to the fields that the next decision needs.
#[derive(Debug, Clone, Default)]
struct Last {
    kind: ForwardMode,
    extends: Vec<RequestId>,
}

/// The scheduler with its KV pool, its queue and its running requests.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: ServerArgs,
    ratio: Ratio,
    memory: Memory,
    requests: Slab<RequestState>,
    waiting: VecDeque<RequestId>,
    /// Number of times that a request has entered the queue.
    entries: u64,
    running: Running,
    /// SGLang's `batch_is_full`: waiting requests are not considered until a running one leaves.
    full: bool,
    chunked: Option<RequestId>,
    last: Last,
    /// Number of requests that hold a row of the request table.
    rows_held: u64,
    /// Number of passes over the queue without prefix matching, for [`Rules::refreshes_waiting`].
    passes: u64,
    /// Rows that skip decodes because the result in flight holds their last token.
    leaving: Vec<RequestId>,
    /// Requests that stopped running since the last decision.
    left: Vec<RequestId>,
    /// Buffer for the tokens of one request, kept to reuse its allocation.
    path: Vec<Run>,
    spare: Option<Box<Step>>,
}

impl Scheduler {
    /// An idle scheduler.
    pub fn new(config: ServerArgs) -> Scheduler {
        Scheduler {
            ratio: Ratio::new(config.schedule_conservativeness),
            memory: Memory::new(
                config.max_total_tokens,
                config.page_size,
                !config.disable_radix_cache,
                config.hicache,
            ),
            config,
            requests: Slab::default(),
            waiting: VecDeque::new(),
            entries: 0,
            running: Running::default(),
            full: false,
            chunked: None,
            last: Last::default(),
            rows_held: 0,
            passes: 0,
            leaving: Vec::new(),
            left: Vec::new(),
            path: Vec::new(),
            spare: None,
        }
    }

    /// Adds a request to the queue.
    pub fn add(&mut self, arrival: NewRequest) -> RequestId {
        let lowest = if self.config.schedule_low_priority_values_first { i64::MAX } else { i64::MIN };
        let first_page = self.memory.tree.as_ref().and_then(|tree| tree.first_page(&arrival.prompt));
        let id = self.requests.insert(RequestState::new(arrival, first_page, lowest));
        self.enqueue(id);
        id
    }

    /// Frees the index of a finished request for reuse; valid from the third [`Scheduler::schedule`] after the
    /// request's end, when no decision refers to the request any more.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.requests.vacate(id);
    }

    /// Decides the next batch. In the overlap loop the results of the last batch have not arrived yet.
    pub fn schedule(&mut self) -> Box<Step> {
        let mut step = self.spare.take().unwrap_or_default();
        step.clear();
        step.ratio = [self.ratio.current; 2];
        let mut last = std::mem::take(&mut self.last);
        if let Some(tree) = &mut self.memory.tree {
            tree.submit_stores();
        }
        if let Some(id) = self.chunked {
            self.publish(id);
        }
        self.merge(&last, &mut step);
        if self.running.drop_gone() {
            self.full = false;
        }
        if !self.prefill(&last, &mut step) {
            self.decode(&last, &mut step);
        }
        step.ratio[1] = self.ratio.current;
        let normal = self.config.disable_overlap_schedule;
        let nothing = step.kind == ForwardMode::Idle && self.running.is_empty() && self.chunked.is_none();
        let copies = self.host().is_some_and(|[_, stores, loads]| stores + loads > 0);
        if nothing && !copies && self.waiting.is_empty() && (normal || last.kind == ForwardMode::Idle) {
            self.ratio.reset();
        }
        if self.config.records && matches!(step.kind, ForwardMode::Decode | ForwardMode::Mixed) {
            step.rows = self.running.ids().collect();
        }
        std::mem::swap(&mut step.left, &mut self.left);
        last.kind = step.kind;
        last.extends.clear();
        last.extends.extend(step.extends.iter().map(|e| e.id));
        self.last = last;
        step
    }

    /// Takes back a decision that has been carried out, to reuse its allocations.
    pub fn recycle(&mut self, step: Box<Step>) {
        self.spare = Some(step);
    }

    /// Number of waiting requests.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Waiting requests, in order.
    pub fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().copied()
    }

    /// Number of requests in flight, waiting or running.
    pub fn in_flight(&self) -> u64 {
        self.waiting.len() as u64 + self.rows_held
    }

    /// The running batch, in order. Empty after a mixed batch, whose requests rejoin with the next decision.
    pub fn running(&self) -> impl Iterator<Item = RequestId> + '_ {
        let joins = self.last.kind == ForwardMode::Mixed;
        self.running.ids().filter(move |_| !joins)
    }

    /// Value of `batch_is_full`.
    pub fn full(&self) -> bool {
        self.full
    }

    /// Current new-token ratio.
    pub fn ratio(&self) -> f64 {
        self.ratio.current
    }

    /// Use of the pool.
    pub(crate) fn usage(&self) -> Usage {
        self.memory.usage(self.config.max_total_tokens)
    }

    /// Number of running requests, including requests with incomplete prompts and requests about to leave.
    pub(crate) fn held(&self) -> u64 {
        self.rows_held
    }

    /// Cached tokens of the rows that skip decodes because the result in flight holds their last token.
    pub(crate) fn leaving_tokens(&self) -> u64 {
        self.leaving.iter().map(|id| self.requests[*id].tokens).sum()
    }

    /// True if request `id` takes part in the decodes whose results are in flight.
    pub(crate) fn decodes(&self, id: RequestId) -> bool {
        matches!(self.requests[id].phase, RequestPhase::Running | RequestPhase::Leaving)
    }

    /// True if a new request is not considered before a running one leaves.
    pub fn blocked(&self) -> bool {
        self.full && !self.config.preempts()
    }

    /// KV tokens that are available, and KV tokens that can be evicted.
    pub fn kv(&self) -> [u64; 2] {
        [self.memory.available, self.memory.evictable()]
    }

    /// Number of tokens at the beginning of `path` that are in the prefix cache on the device, in whole pages.
    pub(crate) fn cached(&self, path: &[Run]) -> u64 {
        self.memory.tree.as_ref().map_or(0, |tree| tree.holds(path))
    }

    /// Known tokens of a request: its prompt, and the generated tokens whose results have arrived.
    fn known(&self, id: RequestId) -> u64 {
        self.requests[id].input + self.generated(id)
    }

    fn generated(&self, id: RequestId) -> u64 {
        let r = &self.requests[id];
        if r.phase == RequestPhase::Running { self.running.generated(id, r.generated) } else { r.generated }
    }

    /// Number of tokens in a request's KV cache, including the token whose result is in flight.
    fn tokens(&self, id: RequestId) -> u64 {
        let r = &self.requests[id];
        if r.phase == RequestPhase::Running {
            self.running.tokens(id, r.tokens, self.memory.decodes)
        } else {
            r.tokens
        }
    }

    /// True in the overlap loop, in which results are processed one batch late.
    fn overlaps(&self) -> bool {
        !self.config.disable_overlap_schedule
    }

    fn enqueue(&mut self, id: RequestId) {
        self.entries += 1;
        self.requests[id].entered = self.entries;
        self.requests[id].phase = RequestPhase::Waiting;
        self.waiting.push_back(id);
    }

    /// Moves the requests of the last batch whose prompts are complete into the running batch.
    fn merge(&mut self, last: &Last, step: &mut Step) {
        if !matches!(last.kind, ForwardMode::Extend | ForwardMode::Mixed) {
            return;
        }
        let joins =
            |id: &RequestId| self.requests[*id].phase == RequestPhase::Extending && Some(*id) != self.chunked;
        let joining: Vec<RequestId> = last.extends.iter().copied().filter(joins).collect();
        let gone = joining.len() < last.extends.len();
        // If no request runs, or after a mixed batch, the joining batch becomes the running batch.
        if gone || last.kind == ForwardMode::Mixed || (self.running.is_empty() && !joining.is_empty()) {
            self.full = false;
        }
        // In the overlap loop the results of a mixed batch, and of the rows that decoded in it, are in flight.
        let tick = self.overlaps() && last.kind == ForwardMode::Mixed;
        for (at, &id) in joining.iter().enumerate() {
            let r = &mut self.requests[id];
            r.phase = RequestPhase::Running;
            let at = (last.kind == ForwardMode::Mixed).then_some(at);
            let whole = self.config.rules.counts_ignored_eos_whole && r.ignore_eos;
            let left = Left { tokens: r.bound - r.generated, whole };
            let left = Some(left).filter(|left| left.tokens <= CLIP_MAX_NEW_TOKENS);
            self.running.join(id, at, tick, self.memory.decodes, left);
            self.memory.join(r.tokens);
            step.joined.push((id, r.tokens));
            if !r.samples {
                self.running.will_end(id, r.generated, r.output, r.bound);
            }
        }
    }
}
