//! vLLM v1's scheduler: a token budget per step, chunked prefill, prefix cache, preemption by recompute.
//!
//! Knows: the decisions of vLLM 0.32's `Scheduler` and `AsyncScheduler` for one full-attention KV group, tested step
//! for step against recorded traces by [`crate::conformance`], none of which has drafts. Knows nothing about time:
//! its driver prices the steps.

mod adapters;
mod blocks;
mod config;
mod request;

pub use config::{SchedulerConfig, SchedulingPolicy};

use crate::kv_cache::paged::Pool;
use crate::kv_cache::prefix::{Prefix, push_output};
use crate::slab::Slab;
use request::RequestState;
use std::collections::{BTreeSet, VecDeque};

/// A request as it arrives.
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// Prompt tokens.
    pub input_len: u64,
    /// Prompt tokens that other requests may share.
    pub prefix: Prefix,
    /// Tokens to generate.
    pub output_len: u64,
    /// Priority; smaller is served first.
    pub priority: i64,
    /// Prompt tokens whose keys and values came from another instance.
    pub transferred: u64,
    /// The LoRA adapter of the request; 0 is none.
    pub adapter: u32,
}

/// Index of a request in order of arrival; indices of forgotten requests are reused.
pub type RequestId = usize;

/// Decision of one call of [`Scheduler::schedule`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Requests with their tokens, running ones first.
    pub scheduled: Vec<(RequestId, u64)>,
    /// Requests scheduled for the first time.
    pub new: Vec<RequestId>,
    /// Requests scheduled again after a preemption.
    pub resumed: Vec<RequestId>,
    /// Preempted requests, in order.
    pub preempted: Vec<RequestId>,
    /// Tokens found in the prefix cache at admission; only non-zero ones.
    pub cached: Vec<(RequestId, u64)>,
    /// Work of each scheduled request, in the order of `scheduled`.
    pub work: Vec<ScheduledRequest>,
    /// Tokens of resumed requests that preemptions dropped and that are computed again.
    pub recomputed: u64,
}

/// Work of one request in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledRequest {
    /// The request.
    pub id: RequestId,
    /// Tokens computed.
    pub new: u64,
    /// Context at the end of the step in tokens.
    pub context: u64,
    /// True if it samples a token.
    pub samples: bool,
    /// True if it has sampled one before.
    pub decodes: bool,
    /// Drafts among the new tokens.
    pub drafts: u64,
    /// Number of accepted drafts, set by the scheduler's driver.
    pub accepted: u64,
}

/// Remaining budget of a step.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// Tokens of all requests.
    budget: u64,
    /// Most tokens of one request; `None` without a bound.
    threshold: Option<u64>,
    /// True if prompts must wait for a later step.
    decodes_alone: bool,
}

/// The scheduler with its cache and queues.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: SchedulerConfig,
    pool: Pool,
    requests: Slab<RequestState>,
    arrived: u64,
    /// Steps since a request arrived at the empty engine, for `prefill_schedule_interval`.
    steps: u64,
    prompts_wait: bool,
    running: Vec<RequestId>,
    waiting: VecDeque<RequestId>,
    /// Adapters that may run at one time.
    max_loras: usize,
    /// Waiting requests that were skipped, because other adapters filled the slots or tokens from before a preemption
    /// were in flight. A request stays here until it runs.
    deferred: BTreeSet<RequestId>,
}

impl Scheduler {
    /// An idle scheduler.
    pub fn new(config: SchedulerConfig) -> Scheduler {
        let pool = Pool::new(config.num_gpu_blocks.saturating_sub(1));
        Scheduler {
            config,
            pool,
            requests: Slab::default(),
            arrived: 0,
            steps: 0,
            prompts_wait: false,
            running: Vec::new(),
            waiting: VecDeque::new(),
            max_loras: usize::MAX,
            deferred: BTreeSet::new(),
        }
    }

    /// Queues a request.
    pub fn add(&mut self, arrival: NewRequest) -> RequestId {
        let Prefix { tokens, own_from, output_segment, output_tokens } = arrival.prefix;
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
            generated: 0,
            placeholders: 0,
            stale: 0,
            drafts: 0,
            blocks: Vec::new(),
            former: Vec::new(),
            contents: Vec::new(),
            cached_blocks: 0,
            preempted: false,
            dropped: 0,
            in_prompt: false,
            finished: false,
        };
        self.arrived += 1;
        let id = self.requests.insert(request);
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.waiting.push_back(id),
            SchedulingPolicy::Priority => self.enqueue_by_priority(id),
        }
        id
    }

    /// Frees the index of a finished request for reuse.
    pub fn forget(&mut self, id: RequestId) {
        self.requests.vacate(id);
    }

    /// Removes a request in any state; its blocks are freed, and steps in flight no longer affect it.
    pub fn abort(&mut self, id: RequestId) {
        let r = &mut self.requests[id];
        r.finished = true;
        self.pool.release(&std::mem::take(&mut r.blocks));
        self.running.retain(|i| *i != id);
        self.waiting.retain(|i| *i != id);
        self.deferred.remove(&id);
    }

    /// The pool of blocks.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Number of waiting requests.
    pub fn waiting_count(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Running requests, in order.
    pub fn running(&self) -> &[RequestId] {
        &self.running
    }

    /// Waiting requests, in order.
    pub fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().copied()
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.pool.free()
    }

    /// Tokens that further requests hold in addition to the first holder.
    pub fn shared_tokens(&self) -> u64 {
        self.pool.repeated() * self.config.block_size
    }

    /// Decides the next step.
    pub fn schedule(&mut self) -> Step {
        let mut step = Step::default();
        let mut pass = self.pass();
        self.schedule_running(&mut step, &mut pass);
        if step.preempted.is_empty() {
            self.schedule_waiting(&mut step, &mut pass);
        }
        for &(id, tokens) in &step.scheduled {
            let r = &mut self.requests[id];
            r.computed += tokens;
            let samples = r.computed >= r.known() + r.placeholders;
            let drafts = r.computed.saturating_sub(r.known() + r.placeholders);
            let decodes = r.generated + r.placeholders > 0;
            r.placeholders += u64::from(samples);
            r.in_prompt = !samples;
            let context = r.computed;
            step.work.push(ScheduledRequest {
                id,
                new: tokens,
                context,
                samples,
                decodes,
                drafts,
                accepted: 0,
            });
        }
        step
    }

    /// Delivers the tokens that `step` sampled; returns the finished requests, in order.
    pub fn update(&mut self, step: &Step) -> Vec<RequestId> {
        let mut finished = Vec::new();
        for &ScheduledRequest { id, drafts, accepted, .. } in step.work.iter().filter(|w| w.samples) {
            if self.requests[id].finished {
                continue;
            }
            let max_model_len = self.config.max_model_len;
            let r = &mut self.requests[id];
            if r.stale > 0 {
                r.stale -= 1
            } else {
                r.placeholders -= 1
            }
            if r.own_from == u64::MAX {
                let output = (r.output_segment, r.output_tokens.as_deref());
                push_output(&mut r.tokens, output, r.generated, 1 + accepted);
            }
            r.generated += 1 + accepted;
            // Rejected drafts are computed again.
            r.computed -= drafts - accepted;
            r.drafts = self.config.num_speculative_tokens;
            if r.generated >= r.output_len || r.known() >= max_model_len {
                self.finish(id);
                finished.push(id);
            } else if self.config.async_scheduling && !self.requests[id].preempted {
                self.cache_full_blocks(id, self.requests[id].computed);
            }
        }
        finished
    }

    /// Budget of this step.
    fn pass(&mut self) -> Pass {
        if self.running.is_empty() {
            self.steps = 0;
        }
        let off_beat = !self.steps.is_multiple_of(self.config.prefill_schedule_interval.max(1));
        self.steps += 1;
        let decodes = || self.running.iter().any(|id| !self.requests[*id].in_prompt);
        Pass {
            budget: self.config.max_num_batched_tokens,
            threshold: self.threshold(),
            decodes_alone: off_beat && !self.prompts_wait && decodes(),
        }
    }

    /// Most tokens of one request in this step; `None` without a bound.
    fn threshold(&self) -> Option<u64> {
        let unfinished = (self.running.len() + self.waiting.len()) as u64;
        let fixed = self.config.long_prefill_token_threshold;
        let threshold = if self.config.long_prefill_token_threshold_adaptive && unfinished > 0 {
            fixed.max(self.config.max_num_batched_tokens / unfinished)
        } else {
            fixed
        };
        (threshold > 0 && unfinished > 1).then_some(threshold)
    }

    fn schedule_running(&mut self, step: &mut Step, pass: &mut Pass) {
        let mut index = 0;
        while index < self.running.len() && pass.budget > 0 {
            let id = self.running[index];
            let r = &self.requests[id];
            // Its last token is sampled already, so nothing remains to compute.
            let done = r.placeholders > 0 && r.computed + 2 >= r.prompt_len + r.output_len + r.placeholders;
            let want = (r.known() + r.placeholders + r.drafts).saturating_sub(r.computed);
            let room = self.config.max_model_len.saturating_sub(r.computed + 1);
            let want = want.min(pass.threshold.unwrap_or(u64::MAX)).min(pass.budget).min(room);
            let deferred = pass.decodes_alone && r.in_prompt;
            if (self.config.async_scheduling && done) || deferred || want == 0 {
                index += 1;
                continue;
            }
            if !self.make_room(id, want, step, &mut pass.budget, &mut index) {
                break;
            }
            step.scheduled.push((id, want));
            pass.budget -= want;
            index += 1;
        }
    }

    /// Allocates blocks for `want` more tokens of a running request, preempting others as needed; false if it was
    /// preempted itself.
    fn make_room(
        &mut self,
        id: RequestId,
        want: u64,
        step: &mut Step,
        budget: &mut u64,
        index: &mut usize,
    ) -> bool {
        loop {
            let r = &self.requests[id];
            let slots = (r.computed + want + self.config.num_lookahead_tokens).min(self.config.max_model_len);
            let needed = slots.div_ceil(self.config.block_size).saturating_sub(r.blocks.len() as u64);
            if self.pool.allocate(needed, &mut self.requests[id].blocks) {
                let filled = self.requests[id].computed + want;
                self.cache_full_blocks(id, filled);
                return true;
            }
            let Some(victim) = self.victim() else { return false };
            if let Some(at) = step.scheduled.iter().position(|(s, _)| *s == victim) {
                // Its tokens return to the budget; it was ahead of the request being scheduled.
                *budget += step.scheduled.remove(at).1;
                *index -= 1;
            }
            self.preempt(victim);
            step.preempted.push(victim);
            if victim == id {
                return false;
            }
        }
    }

    /// Removes the request to preempt from the running ones.
    fn victim(&mut self) -> Option<RequestId> {
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.running.pop(),
            SchedulingPolicy::Priority => {
                let worst = (0..self.running.len()).max_by_key(|i| self.rank(self.running[*i]))?;
                Some(self.running.remove(worst))
            }
        }
    }

    fn preempt(&mut self, id: RequestId) {
        let r = &mut self.requests[id];
        r.dropped = std::mem::take(&mut r.computed);
        r.preempted = true;
        r.cached_blocks = 0;
        r.drafts = 0;
        r.stale += std::mem::take(&mut r.placeholders);
        r.former = std::mem::take(&mut r.blocks);
        self.pool.release(&r.former);
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.waiting.push_front(id),
            SchedulingPolicy::Priority => self.enqueue_by_priority(id),
        }
    }

    /// Sort key under priorities: smaller first.
    fn rank(&self, id: RequestId) -> (i64, u64) {
        (self.requests[id].priority, self.requests[id].number)
    }

    fn enqueue_by_priority(&mut self, id: RequestId) {
        let at = self.waiting.partition_point(|w| self.rank(*w) < self.rank(id));
        self.waiting.insert(at, id);
    }

    fn schedule_waiting(&mut self, step: &mut Step, pass: &mut Pass) {
        let most = self.config.max_num_active_seqs.unwrap_or(u64::MAX).min(self.config.max_num_seqs);
        let mut skipped = Vec::new();
        while pass.budget > 0 && (self.running.len() as u64) < most {
            let Some(&id) = self.waiting.front() else { break };
            if self.requests[id].stale > 0 || !self.has_adapter_slot(id) {
                // Tokens from before its preemption are still in flight, or other adapters fill the slots: it waits
                // without blocking the queue.
                skipped.push(id);
                self.deferred.insert(id);
                self.waiting.pop_front();
                continue;
            }
            if pass.decodes_alone {
                break;
            }
            let Some((tokens, cached)) = self.admit(id, pass) else { break };
            self.waiting.pop_front();
            self.deferred.remove(&id);
            self.running.push(id);
            step.scheduled.push((id, tokens));
            pass.budget -= tokens;
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
        if !pass.decodes_alone {
            self.prompts_wait = !self.waiting.is_empty();
        }
        for id in skipped.into_iter().rev() {
            self.waiting.push_front(id);
        }
    }

    fn finish(&mut self, id: RequestId) {
        let r = &mut self.requests[id];
        r.finished = true;
        self.pool.release(&std::mem::take(&mut r.blocks));
        if r.preempted {
            // Its last token was in flight when it was preempted.
            self.waiting.retain(|i| *i != id);
            self.deferred.remove(&id);
        } else {
            self.running.retain(|i| *i != id);
        }
    }
}

#[cfg(test)]
mod tests;
