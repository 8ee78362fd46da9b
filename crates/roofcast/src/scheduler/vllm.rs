//! vLLM v1's scheduler: a token budget per step, chunked prefill, prefix cache, preemption by recompute.
//!
//! Knows: the decisions of vLLM 0.32's `Scheduler` and `AsyncScheduler` for one full-attention KV group, held step for
//! step to recorded traces by [`crate::conformance`], none of which has drafts. Knows nothing about time: whoever drives
//! it prices the steps.

use crate::kv_cache::paged::{Block, Change, Pool};
use crate::kv_cache::prefix::{Content, Prefix, Tokens, push_output};
use std::collections::VecDeque;
use std::sync::Arc;

/// Settings by vLLM's names.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Tokens of a KV block.
    pub block_size: u64,
    /// Blocks, one reserved null block among them.
    pub num_gpu_blocks: u32,
    /// Requests that run at once.
    pub max_num_seqs: u64,
    /// Requests that run at once, a second bound.
    pub max_num_active_seqs: Option<u64>,
    /// Tokens of one step.
    pub max_num_batched_tokens: u64,
    /// Tokens of a request, prompt and output.
    pub max_model_len: u64,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Whether blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Most tokens of one request in a step while others wait; 0 is no bound.
    pub long_prefill_token_threshold: u64,
    /// The threshold grows as fewer requests share the budget.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Who comes first.
    pub policy: Policy,
    /// Admission needs room for the whole known sequence, not for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Share of the blocks kept free when admitting beside running requests.
    pub watermark: f64,
    /// Two batches in flight: a sampled token is known to exist before it is known.
    pub async_scheduling: bool,
    /// Tokens that a draft proposes after each that is sampled; with asynchronous scheduling none.
    pub num_speculative_tokens: u64,
    /// Tokens beyond those of a step that a running request has room for: those that a model drafts next.
    pub num_lookahead_tokens: u64,
}

/// Who comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served; the last admitted is preempted.
    Fcfs,
    /// Smaller value first, ties by arrival; the largest is preempted.
    Priority,
}

/// A request as it arrives.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Prompt tokens.
    pub input_len: u64,
    /// What of them others may have, too.
    pub prefix: Prefix,
    /// Tokens to generate.
    pub output_len: u64,
    /// Smaller is earlier.
    pub priority: i64,
}

/// Index of a request: in order of arrival, until one is forgotten.
pub type Id = usize;

/// What one call of [`Scheduler::schedule`] decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Requests with their tokens, running ones first.
    pub scheduled: Vec<(Id, u64)>,
    /// Scheduled for the first time.
    pub new: Vec<Id>,
    /// Scheduled again after a preemption.
    pub resumed: Vec<Id>,
    /// Preempted, in order.
    pub preempted: Vec<Id>,
    /// Tokens found in the prefix cache at admission; only non-zero ones.
    pub cached: Vec<(Id, u64)>,
    /// What each of the scheduled computes, in the same order.
    pub work: Vec<Work>,
    /// Tokens that preemptions dropped.
    pub dropped: u64,
}

/// What a step computes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Whose.
    pub id: Id,
    /// Tokens computed.
    pub new: u64,
    /// Tokens in its cache then.
    pub context: u64,
    /// Whether it samples a token.
    pub samples: bool,
    /// Whether it has sampled one before.
    pub decodes: bool,
    /// Drafts among the new tokens.
    pub drafts: u64,
    /// Of these, those that become its output, where whoever drives the scheduler says so.
    pub accepted: u64,
}

#[derive(Debug, Clone)]
struct Request {
    /// In order of arrival.
    number: u64,
    tokens: Tokens,
    own_from: u64,
    prompt_len: u64,
    output_len: u64,
    priority: i64,
    output_segment: u32,
    output_tokens: Option<Arc<[u32]>>,
    /// Tokens whose keys and values are there.
    computed: u64,
    /// Tokens delivered.
    generated: u64,
    /// Sampled, not yet delivered, and still counted on (async).
    placeholders: u64,
    /// Sampled before a preemption and not yet delivered (async).
    stale: u64,
    /// Proposed to follow its last token.
    drafts: u64,
    blocks: Vec<Block>,
    /// What it held before it was preempted.
    former: Vec<Block>,
    contents: Vec<Content>,
    /// Blocks whose content is known to the pool.
    cached_blocks: usize,
    preempted: bool,
    finished: bool,
}

impl Request {
    /// Tokens that it has: prompt and delivered output.
    fn known(&self) -> u64 {
        self.prompt_len + self.generated
    }
}

/// The scheduler with its cache and queues.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: Config,
    pool: Pool,
    requests: Vec<Request>,
    vacant: Vec<Id>,
    arrived: u64,
    running: Vec<Id>,
    waiting: VecDeque<Id>,
}

impl Scheduler {
    /// An idle scheduler.
    pub fn new(config: Config) -> Scheduler {
        let pool = Pool::new(config.num_gpu_blocks.saturating_sub(1));
        Scheduler {
            config,
            pool,
            requests: Vec::new(),
            vacant: Vec::new(),
            arrived: 0,
            running: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Queues a request.
    pub fn add(&mut self, arrival: Arrival) -> Id {
        let Prefix { tokens, own_from, output_segment, output_tokens } = arrival.prefix;
        let request = Request {
            number: self.arrived,
            prompt_len: arrival.input_len,
            tokens,
            own_from,
            output_len: arrival.output_len,
            priority: arrival.priority,
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
            finished: false,
        };
        self.arrived += 1;
        let id = match self.vacant.pop() {
            Some(id) => {
                self.requests[id] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        };
        match self.config.policy {
            Policy::Fcfs => self.waiting.push_back(id),
            Policy::Priority => self.enqueue_by_priority(id),
        }
        id
    }

    /// Lets the index of a finished request be used again.
    pub fn forget(&mut self, id: Id) {
        self.vacant.push(id);
    }

    /// Takes a request out, wherever it is; its blocks are free, and steps under way say nothing of it.
    pub fn abort(&mut self, id: Id) {
        let r = &mut self.requests[id];
        r.finished = true;
        self.pool.release(&std::mem::take(&mut r.blocks));
        self.running.retain(|i| *i != id);
        self.waiting.retain(|i| *i != id);
    }

    /// The pool of blocks.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// How many wait.
    pub fn waiting_count(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Running requests, in order.
    pub fn running(&self) -> &[Id] {
        &self.running
    }

    /// Waiting requests, in order.
    pub fn waiting(&self) -> impl Iterator<Item = Id> + '_ {
        self.waiting.iter().copied()
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.pool.free()
    }

    /// Tokens that requests hold beyond the first that holds them.
    pub fn shared_tokens(&self) -> u64 {
        self.pool.repeated() * self.config.block_size
    }

    /// Decides the next step.
    pub fn schedule(&mut self) -> Step {
        let mut step = Step::default();
        let threshold = self.threshold();
        let mut budget = self.config.max_num_batched_tokens;
        self.schedule_running(&mut step, &mut budget, threshold);
        if step.preempted.is_empty() {
            self.schedule_waiting(&mut step, &mut budget, threshold);
        }
        for &(id, tokens) in &step.scheduled {
            let r = &mut self.requests[id];
            r.computed += tokens;
            let samples = r.computed >= r.known() + r.placeholders;
            let drafts = r.computed.saturating_sub(r.known() + r.placeholders);
            let decodes = r.generated + r.placeholders > 0;
            r.placeholders += u64::from(samples);
            let context = r.computed;
            step.work.push(Work { id, new: tokens, context, samples, decodes, drafts, accepted: 0 });
        }
        step
    }

    /// Delivers the tokens that `step` sampled; the requests that this finishes, in order.
    pub fn update(&mut self, step: &Step) -> Vec<Id> {
        let mut finished = Vec::new();
        for &Work { id, drafts, accepted, .. } in step.work.iter().filter(|w| w.samples) {
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
            // What was computed of the rejected ones is computed over.
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

    /// The most tokens of one request in this step; none where there is no bound.
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

    fn schedule_running(&mut self, step: &mut Step, budget: &mut u64, threshold: Option<u64>) {
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            let id = self.running[index];
            let r = &self.requests[id];
            // Its last token is sampled already: nothing is left to compute.
            let done = r.placeholders > 0 && r.computed + 2 >= r.prompt_len + r.output_len + r.placeholders;
            let want = (r.known() + r.placeholders + r.drafts).saturating_sub(r.computed);
            let room = self.config.max_model_len.saturating_sub(r.computed + 1);
            let want = want.min(threshold.unwrap_or(u64::MAX)).min(*budget).min(room);
            if (self.config.async_scheduling && done) || want == 0 {
                index += 1;
                continue;
            }
            if !self.make_room(id, want, step, budget, &mut index) {
                break;
            }
            step.scheduled.push((id, want));
            *budget -= want;
            index += 1;
        }
    }

    /// Blocks for `want` more tokens of a running request, preempting others as needed; false if it was preempted itself.
    fn make_room(&mut self, id: Id, want: u64, step: &mut Step, budget: &mut u64, index: &mut usize) -> bool {
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
                // Its tokens go back to the budget; it stood before the one being scheduled.
                *budget += step.scheduled.remove(at).1;
                *index -= 1;
            }
            step.dropped += self.requests[victim].computed;
            self.preempt(victim);
            step.preempted.push(victim);
            if victim == id {
                return false;
            }
        }
    }

    /// Takes the request to preempt out of the running ones.
    fn victim(&mut self) -> Option<Id> {
        match self.config.policy {
            Policy::Fcfs => self.running.pop(),
            Policy::Priority => {
                let worst = (0..self.running.len()).max_by_key(|i| self.rank(self.running[*i]))?;
                Some(self.running.remove(worst))
            }
        }
    }

    fn preempt(&mut self, id: Id) {
        let r = &mut self.requests[id];
        r.computed = 0;
        r.preempted = true;
        r.cached_blocks = 0;
        r.drafts = 0;
        r.stale += std::mem::take(&mut r.placeholders);
        r.former = std::mem::take(&mut r.blocks);
        self.pool.release(&r.former);
        match self.config.policy {
            Policy::Fcfs => self.waiting.push_front(id),
            Policy::Priority => self.enqueue_by_priority(id),
        }
    }

    /// Whose turn it is under priorities: smaller first.
    fn rank(&self, id: Id) -> (i64, u64) {
        (self.requests[id].priority, self.requests[id].number)
    }

    fn enqueue_by_priority(&mut self, id: Id) {
        let at = self.waiting.partition_point(|w| self.rank(*w) < self.rank(id));
        self.waiting.insert(at, id);
    }

    fn schedule_waiting(&mut self, step: &mut Step, budget: &mut u64, threshold: Option<u64>) {
        let most = self.config.max_num_active_seqs.unwrap_or(u64::MAX).min(self.config.max_num_seqs);
        let mut skipped = Vec::new();
        while *budget > 0 && (self.running.len() as u64) < most {
            let Some(&id) = self.waiting.front() else { break };
            if self.requests[id].stale > 0 {
                // Tokens of before its preemption are still under way: it waits without blocking the queue.
                skipped.push(id);
                self.waiting.pop_front();
                continue;
            }
            let Some((tokens, cached)) = self.admit(id, *budget, threshold) else { break };
            self.waiting.pop_front();
            self.running.push(id);
            step.scheduled.push((id, tokens));
            *budget -= tokens;
            if cached > 0 {
                step.cached.push((id, cached));
            }
            if std::mem::take(&mut self.requests[id].preempted) {
                step.resumed.push(id)
            } else {
                step.new.push(id)
            }
        }
        for id in skipped.into_iter().rev() {
            self.waiting.push_front(id);
        }
    }

    /// Admits a waiting request if budget and blocks allow: its tokens in this step, and those found cached.
    fn admit(&mut self, id: Id, budget: u64, threshold: Option<u64>) -> Option<(u64, u64)> {
        let block = self.config.block_size;
        let known = self.requests[id].known();
        let hits = if self.config.enable_prefix_caching { self.hits(id) } else { Vec::new() };
        let cached = hits.len() as u64 * block;
        let wanted = (known - cached).min(threshold.unwrap_or(u64::MAX));
        if !self.config.enable_chunked_prefill && wanted > budget {
            return None;
        }
        let tokens = wanted.min(budget);
        let kept = if self.running.is_empty() {
            0
        } else {
            (self.config.watermark * f64::from(self.config.num_gpu_blocks)) as u64
        };
        let beyond = |end: u64| end.div_ceil(block) - hits.len() as u64;
        let overhead = self.pool.unheld(&hits) + kept;
        let needed = beyond(cached + tokens);
        let whole = if self.config.scheduler_reserve_full_isl { beyond(known) } else { needed };
        if whole.max(needed) + overhead > self.pool.free() {
            return None;
        }
        self.pool.hold(&hits);
        let r = &mut self.requests[id];
        r.computed = cached;
        r.cached_blocks = hits.len();
        r.blocks = hits;
        self.pool.allocate(needed, &mut r.blocks);
        self.cache_full_blocks(id, cached + tokens);
        Some((tokens, cached))
    }

    /// Cached blocks of a request's known tokens; at least its last token is computed anew.
    fn hits(&mut self, id: Id) -> Vec<Block> {
        let full = self.requests[id].known().saturating_sub(1) / self.config.block_size;
        self.name_contents(id, full as usize);
        let r = &self.requests[id];
        self.pool.lookup(&r.contents[..full as usize], &r.former)
    }

    /// Makes the full blocks among the first `filled` known tokens hittable.
    fn cache_full_blocks(&mut self, id: Id, filled: u64) {
        if !self.config.enable_prefix_caching {
            return;
        }
        let r = &self.requests[id];
        // A placeholder's token is not known yet, so its block has no content.
        let full = (filled.min(r.known()) / self.config.block_size) as usize;
        self.name_contents(id, full);
        let r = &mut self.requests[id];
        let new = r.cached_blocks..full.min(r.blocks.len());
        for index in new.clone() {
            self.pool.cache(r.blocks[index], r.contents[index]);
        }
        if let Some(changes) = self.pool.changes().filter(|_| !new.is_empty()) {
            let (owner, first) = (id as u64, new.start as u64);
            changes.push(Change::Stored { owner, first, contents: r.contents[new].to_vec() });
        }
        r.cached_blocks = r.cached_blocks.max(full);
    }

    fn name_contents(&mut self, id: Id, count: usize) {
        let block = self.config.block_size;
        let r = &mut self.requests[id];
        let shared = (r.own_from / block) as usize;
        while r.contents.len() < count {
            let index = r.contents.len();
            let past = r.contents.last().copied().unwrap_or(Content::START);
            let content =
                if index >= shared { Content::own(r.number, index) } else { r.tokens.name_next(past, block) };
            r.contents.push(content);
        }
    }

    fn finish(&mut self, id: Id) {
        let r = &mut self.requests[id];
        r.finished = true;
        self.pool.release(&std::mem::take(&mut r.blocks));
        if r.preempted {
            // Its last token was under way when it was preempted.
            self.waiting.retain(|i| *i != id);
        } else {
            self.running.retain(|i| *i != id);
        }
    }
}
