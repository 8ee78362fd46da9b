//! vLLM v1's scheduler: a token budget per step, chunked prefill, prefix cache, preemption by recomputation.
//!
//! Knows: the decisions of vLLM's `Scheduler` and `AsyncScheduler`, by version (0.32, 0.33), which
//! `conformance` tests step by step against recorded traces, with sliding windows, adapters, drafts and
//! prefill intervals. Knows nothing about time: the driver prices the steps.

mod adapters;
mod blocks;
mod config;
mod interval;
mod leap;
mod names;
mod request;
mod running;
mod step;
mod tier;
mod transfers;
mod verification;

pub(crate) use adapters::AdapterSet;
pub use config::{Rules, SchedulerConfig, SchedulingPolicy};
pub use step::{RequestId, ScheduledRequest, Step};
pub use transfers::{OffloadConfig, Transfers};
pub(crate) use verification::Verification;

use crate::kv_cache::cursor::Cursor;
use crate::kv_cache::names::Names;
use crate::kv_cache::paged::Pool;
use crate::kv_cache::prefix::SharedPrefix;
use crate::kv_cache::spans::Spans;
use blocks::{Admission, Admitted, Table};
use interval::Interval;
use leap::Steady;
use request::RequestState;
use roofcast_facts::slab::Slab;
use std::collections::{BTreeSet, VecDeque};
use tier::Tier;

/// A request as it arrives at the scheduler.
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// Number of prompt tokens.
    pub input_len: u64,
    /// Tokens of the prompt that other requests can share.
    pub prefix: SharedPrefix,
    /// Number of tokens to generate.
    pub output_len: u64,
    /// Priority; smaller is served first.
    pub priority: i64,
    /// Number of prompt tokens whose KV cache came from another instance.
    pub transferred: u64,
    /// LoRA adapter of the request; 0 without one.
    pub adapter: u32,
}

/// Remaining budget of one step.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// Number of tokens that the step may still compute.
    budget: u64,
    /// Most tokens of one request; `None` without a bound.
    threshold: Option<u64>,
    /// True if prompts must wait for a later step.
    decodes_alone: bool,
    /// True if this step computes prompts.
    prompts: bool,
    /// True if a request with one remaining token to compute gets padding rows for drafts.
    pads: bool,
}

/// The scheduler with its prefix cache and its queues.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: SchedulerConfig,
    pool: Pool,
    /// Names of block contents.
    names: Names,
    requests: Slab<RequestState>,
    arrived: u64,
    interval: Interval,
    running: Vec<RequestId>,
    waiting: VecDeque<RequestId>,
    /// Most adapters that may run at one time.
    max_loras: usize,
    /// Waiting requests that were skipped because other adapters filled the slots, or because tokens from before a
    /// preemption were in flight. A request stays here until it runs.
    deferred: BTreeSet<RequestId>,
    /// The host tier; `None` without one.
    tier: Option<Box<Tier>>,
    /// Tells whether the next decision equals the last one.
    steady: Steady,
}

impl Scheduler {
    /// An idle scheduler.
    pub fn new(config: SchedulerConfig) -> Scheduler {
        let pool = Pool::new(config.num_gpu_blocks.saturating_sub(1));
        let names = Names::new((config.block_size, config.hash_lookahead()), config.windows.len());
        Scheduler {
            tier: config.offload.map(|offload| Box::new(Tier::new(offload))),
            interval: Interval::new(config.prefill_schedule_interval, config.rules.interval_since_prefill),
            config,
            pool,
            names,
            requests: Slab::default(),
            arrived: 0,
            running: Vec::new(),
            waiting: VecDeque::new(),
            max_loras: usize::MAX,
            deferred: BTreeSet::new(),
            steady: Steady::default(),
        }
    }

    /// Adds a request to the queue.
    pub fn add(&mut self, arrival: NewRequest) -> RequestId {
        let SharedPrefix { tokens, own_from, output_segment, output_tokens } = arrival.prefix;
        let request = RequestState {
            number: self.arrived,
            prompt_len: arrival.input_len,
            tokens,
            own_from,
            output_len: arrival.output_len,
            priority: arrival.priority,
            transferred: arrival.transferred,
            adapter: arrival.adapter,
            output_segment,
            output_tokens,
            computed: 0,
            covered: 0,
            published: 0,
            generated: 0,
            placeholders: 0,
            stale: 0,
            drafts: 0,
            tables: vec![Table::default(); self.config.windows.len()],
            contents: vec![Spans::default(); self.config.windows.len()],
            named: Cursor::default(),
            preempted: false,
            dropped: 0,
            in_prompt: true,
            finished: false,
        };
        self.arrived += 1;
        self.steady.disturb();
        let id = self.requests.insert(request);
        self.tier.iter_mut().for_each(|tier| tier.add(id, self.arrived - 1));
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.waiting.push_back(id),
            SchedulingPolicy::Priority => self.enqueue_by_priority(id),
        }
        id
    }

    /// Frees the index of a finished request for reuse.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.requests[id].contents.iter_mut().for_each(|names| *names = Spans::default());
        self.requests.vacate(id);
    }

    /// Removes a request in any state; its blocks are freed, and steps in flight do not affect it any more.
    pub(crate) fn abort(&mut self, id: RequestId) {
        self.requests[id].finished = true;
        self.steady.disturb();
        self.abort_transfers(id);
        self.release(id);
        self.running.retain(|i| *i != id);
        self.waiting.retain(|i| *i != id);
        self.deferred.remove(&id);
    }

    /// Number of waiting requests.
    pub(crate) fn waiting_count(&self) -> u64 {
        (self.waiting.len() + self.tier.as_ref().map_or(0, |tier| tier.waiting.len())) as u64
    }

    /// Running requests, in order.
    pub fn running(&self) -> &[RequestId] {
        &self.running
    }

    /// Waiting requests, in order.
    pub fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().copied()
    }

    /// Number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.pool.free()
    }

    /// Number of tokens that requests hold in addition to a token's first holder.
    pub(crate) fn shared_tokens(&self) -> u64 {
        self.pool.repeated() * self.config.block_size
    }

    /// Decides the next step.
    pub fn schedule(&mut self) -> Step {
        let running = self.running.len();
        let mut step = Step {
            scheduled: Vec::with_capacity(running),
            work: Vec::with_capacity(running),
            ..Step::default()
        };
        self.collect_names();
        self.steady.begin();
        self.begin_transfers();
        let mut pass = self.pass();
        self.schedule_running(&mut step, &mut pass);
        if step.preempted.is_empty() {
            self.schedule_waiting(&mut step, &mut pass);
        }
        for at in 0..step.scheduled.len() {
            let work = self.scheduled(step.scheduled[at], &step);
            step.work.push(work);
        }
        if !step.scheduled.is_empty() {
            self.interval.decided(pass.prompts);
        }
        step.paused = self.paused(&step);
        self.connect(&mut step);
        self.note_steady(&step);
        step
    }

    /// Number of running requests with tokens left to compute that `step` does not compute, and the sum of their
    /// computed tokens.
    fn paused(&self, step: &Step) -> [u64; 2] {
        if step.scheduled.len() == self.running.len() {
            return [0, 0];
        }
        let mut scheduled = step.scheduled.iter().map(|(id, _)| *id).peekable();
        let mut paused = [0, 0];
        // Both lists are in the order of the running requests.
        for id in &self.running {
            let r = &self.requests[*id];
            if scheduled.next_if_eq(id).is_none() && r.computed < r.known() + r.placeholders && !r.is_done() {
                paused = [paused[0] + 1, paused[1] + r.computed];
            }
        }
        paused
    }

    /// True if a request was preempted and has not run since then.
    pub(crate) fn was_preempted(&self, id: RequestId) -> bool {
        self.requests[id].preempted
    }

    /// True if a request has all its tokens, or was aborted.
    pub(crate) fn has_ended(&self, id: RequestId) -> bool {
        self.requests[id].finished
    }

    /// True if a request runs: it is neither waiting nor finished.
    pub(crate) fn runs(&self, id: RequestId) -> bool {
        let r = &self.requests[id];
        !r.preempted && !r.finished
    }

    /// Advances a request by the tokens that the step computes for it, and returns its work.
    fn scheduled(&mut self, (id, tokens): (RequestId, u64), step: &Step) -> ScheduledRequest {
        let k = self.config.num_speculative_tokens;
        let r = &mut self.requests[id];
        r.computed += tokens;
        let counted_on = r.known() + r.placeholders;
        let samples = r.computed >= counted_on;
        let beyond = r.computed.saturating_sub(counted_on);
        let decodes = !r.in_prompt;
        if samples {
            r.placeholders += 1 + beyond;
        }
        // Drafts are proposed after each token; with asynchronous scheduling the drafts of a step in flight count
        // before they are known.
        r.drafts = if samples && self.config.async_scheduling { k } else { 0 };
        r.in_prompt = !samples;
        let admitted = beyond > 0 && (step.new.contains(&id) || step.resumed.contains(&id));
        let (drafts, padding) = if admitted { (0, beyond) } else { (beyond, 0) };
        ScheduledRequest {
            id,
            new: tokens,
            context: r.computed,
            samples,
            decodes,
            drafts,
            padding,
            accepted: 0,
            proposed: k,
        }
    }

    /// Delivers the tokens that `step` sampled; returns the requests that have finished, in order.
    pub fn update(&mut self, step: &Step) -> Vec<RequestId> {
        let mut finished = Vec::new();
        if !step.scheduled.is_empty() {
            self.apply_frees();
        }
        for work in step.work.iter().filter(|w| w.samples) {
            let id = work.id;
            if self.requests[id].finished {
                continue;
            }
            self.requests[id].deliver(work);
            let r = &self.requests[id];
            if r.generated >= r.output_len || r.known() >= self.config.max_model_len {
                self.finish(id);
                finished.push(id);
            } else if self.config.async_scheduling && !r.preempted {
                self.cache_full_blocks(id, r.computed);
            }
        }
        finished
    }

    /// The token budget of the next step.
    fn pass(&mut self) -> Pass {
        let interval_holds = self.interval.holds(self.running.is_empty());
        Pass {
            budget: self.config.max_num_batched_tokens,
            threshold: self.threshold(),
            decodes_alone: interval_holds && self.running.iter().any(|id| !self.requests[*id].in_prompt),
            prompts: false,
            pads: false,
        }
    }

    /// Most tokens of one request in this step; `None` without a bound.
    fn threshold(&self) -> Option<u64> {
        let holding = self.tier.as_ref().map_or(0, |tier| tier.waiting.len());
        let unfinished = (self.running.len() + self.waiting.len() + holding) as u64;
        let fixed = self.config.long_prefill_token_threshold;
        let threshold = if self.config.long_prefill_token_threshold_adaptive && unfinished > 0 {
            fixed.max(self.config.max_num_batched_tokens / unfinished)
        } else {
            fixed
        };
        (threshold > 0 && unfinished > 1).then_some(threshold)
    }

    fn schedule_waiting(&mut self, step: &mut Step, pass: &mut Pass) {
        let seat_limit = self.config.max_num_active_seqs.unwrap_or(u64::MAX).min(self.config.max_num_seqs);
        pass.pads = !pass.prompts;
        let mut skipped = Vec::new();
        let mut waiting_for_load = Vec::new();
        let mut adapters = self.adapters_in_use(step);
        while pass.budget > 0 && (self.running.len() as u64) < seat_limit {
            if let Some(id) = self.tier.as_mut().and_then(|tier| tier.waiting.pop_front()) {
                // Requests that hold blocks are considered first.
                match self.admit_held(id, pass) {
                    Some(Some(admission)) => self.enter(id, admission, step, pass),
                    waits => {
                        waiting_for_load.push(id);
                        if waits.is_none() {
                            break;
                        }
                    }
                }
                continue;
            }
            let Some(&id) = self.waiting.front() else { break };
            let slotless = !self.has_adapter_slot(id, &adapters);
            if slotless {
                step.without_slot.push(id);
            }
            self.steady.awaits_tokens |= self.requests[id].stale > 0;
            if self.requests[id].stale > 0 || slotless {
                // Tokens from before its preemption are in flight, or other adapters fill the slots: the request waits
                // without blocking the queue.
                skipped.push(id);
                self.deferred.insert(id);
                self.waiting.pop_front();
                continue;
            }
            match self.admit(id, pass, step, &waiting_for_load) {
                Admitted::No => break,
                Admitted::Runs(admission) => {
                    adapters.insert(self.requests[id].adapter);
                    self.waiting.pop_front();
                    self.enter(id, admission, step, pass);
                }
                Admitted::Loads => {
                    waiting_for_load.push(id);
                    self.deferred.insert(id);
                    self.waiting.pop_front();
                }
                Admitted::Later => {
                    step.transfers.later.push(id);
                    skipped.push(id);
                    self.deferred.insert(id);
                    self.waiting.pop_front();
                }
            }
        }
        if let Some(tier) = &mut self.tier {
            waiting_for_load.into_iter().rev().for_each(|id| tier.waiting.push_front(id));
        }
        if !pass.decodes_alone {
            self.interval.considered(!self.waiting.is_empty());
        }
        for id in skipped.into_iter().rev() {
            self.waiting.push_front(id);
        }
    }

    /// Moves a waiting request to the running requests.
    fn enter(&mut self, id: RequestId, admission: Admission, step: &mut Step, pass: &mut Pass) {
        let Admission { tokens, cached, prompt } = admission;
        self.deferred.remove(&id);
        self.running.push(id);
        step.scheduled.push((id, tokens));
        pass.budget -= tokens;
        pass.prompts |= prompt;
        if cached > 0 {
            step.cached.push((id, cached));
        }
        if std::mem::take(&mut self.requests[id].preempted) {
            step.recomputed += self.requests[id].dropped;
            step.resumed.push(id)
        } else {
            step.new.push(id)
        }
    }

    fn finish(&mut self, id: RequestId) {
        self.steady.disturb();
        self.end_transfers(id);
        self.release(id);
        let r = &mut self.requests[id];
        r.finished = true;
        if r.preempted {
            // The last token of the request was in flight when it was preempted.
            self.waiting.retain(|i| *i != id);
            self.deferred.remove(&id);
        } else {
            self.running.retain(|i| *i != id);
        }
    }
}

#[cfg(test)]
mod tests;
