//! One pass over the queue: the chunked request first, then candidates in order, until one does not fit.
//!
//! Knows: when the queue is considered (`batch_is_full`), the number of free rows, the conditions for admission,
//! preemption by a higher priority, and mixed batches. Knows nothing about time. Source: SGLang 0.5.23,
//! `_get_new_batch_prefill_raw` of `managers/scheduler.py` and `PrefillAdder` of `managers/schedule_policy.py`.

use super::budget::{Budget, CLIP_MAX_NEW_TOKENS, Stop};
use super::{Extend, ForwardMode, Last, ROOT, RequestId, RequestPhase, Scheduler, Step};

impl Scheduler {
    /// Decides on a batch with prompts; returns false if there is none.
    pub(super) fn prefill(&mut self, last: &Last, step: &mut Step) -> bool {
        if self.config.preempts() || self.running.is_empty() {
            self.full = false;
        }
        let idle = self.full || self.waiting.is_empty();
        if idle && self.chunked.is_none() {
            return false;
        }
        if self.free_rows(0) == 0 && self.chunked.is_none() && !self.config.preempts() {
            self.full = true;
            return false;
        }
        self.sort();
        if self.config.records {
            step.sorted.extend(&self.waiting);
        }
        let mut budget = self.budget();
        self.continue_chunked(&mut budget, step);
        let continued = step.extends.len();
        self.admit(&mut budget, step);
        let admitted = step.extends.len() - continued;
        self.waiting.drain(..admitted);
        for at in 0..step.preempted.len() {
            self.enqueue(step.preempted[at]);
        }
        if step.extends.is_empty() {
            return false;
        }
        if let Some(tree) = &mut self.memory.tree {
            tree.submit_loads(step.loads.iter().map(|(_, _, loaded)| loaded).sum());
        }
        self.extend(admitted as u64, step);
        step.kind = ForwardMode::Extend;
        if self.config.enable_mixed_chunk {
            self.mix(last, step);
        }
        true
    }

    fn budget(&self) -> Budget {
        let config = &self.config;
        let mixed = if config.enable_mixed_chunk { self.running.len() } else { 0 };
        let each = || self.running.ids().map(|id| self.promised(id)).sum();
        // A preemption subtracts fractional amounts from the sum.
        let sum = if config.preempts() { None } else { self.running.promised(self.ratio.current) };
        let promised = sum.unwrap_or_else(each);
        Budget::new(config.max_prefill_tokens, config.chunked_prefill_size, mixed, promised)
    }

    /// Fraction of its remaining bound that a request is expected to generate.
    fn expected_share(&self, id: RequestId) -> f64 {
        let whole = self.config.rules.counts_ignored_eos_whole && self.requests[id].ignore_eos;
        if whole { 1.0 } else { self.ratio.current }
    }

    /// Number of tokens that a running request is expected to add.
    fn promised(&self, id: RequestId) -> f64 {
        let left = self.requests[id].bound - self.generated(id);
        left.min(CLIP_MAX_NEW_TOKENS) as f64 * self.expected_share(id)
    }

    /// Number of rows free for admission, if `held` of the candidates already have a row of the request table.
    fn free_rows(&self, held: u64) -> u64 {
        let rows = self.config.rows();
        rows.saturating_sub(self.running.len()).min((rows + held).saturating_sub(self.rows_held))
    }

    fn continue_chunked(&mut self, budget: &mut Budget, step: &mut Step) {
        let Some(id) = self.chunked else { return };
        let known = self.known(id);
        let r = &self.requests[id];
        let rest = known - r.tokens;
        let new = budget.continuation(&self.memory, rest);
        let ends = new == rest;
        budget.charge(self.memory.page, new, if ends { r.bound.min(CLIP_MAX_NEW_TOKENS) } else { 0 });
        step.extends.push(Extend { id, new, context: r.tokens + new, samples: ends });
        step.chunked = (!ends).then_some(id);
        self.chunked = step.chunked;
    }

    /// Admits candidates from the head of the queue; the queue is changed only when the pass ends.
    fn admit(&mut self, budget: &mut Budget, step: &mut Step) {
        let continued = step.extends.len();
        for at in 0..self.waiting.len() {
            if budget.spent(&self.memory) == Some(Stop::Other) {
                return;
            }
            let id = self.waiting[at];
            self.full |= step.extends.len() as u64 >= self.free_rows(continued as u64);
            if self.full && !(self.config.preempts() && self.preempt_for(id, budget, step)) {
                return;
            }
            let known = self.known(id);
            self.requests[id].filled = known;
            self.look(id, known - 1);
            let stop = match self.try_candidate(id, budget, step) {
                Ok(new) => {
                    self.take_in(id, new, budget, step);
                    budget.spent(&self.memory)
                }
                Err(stop) => Some(stop),
            };
            if stop == Some(Stop::Tokens) {
                self.full = !step.extends.is_empty() || !self.running.is_empty();
            }
            if stop.is_some() {
                return;
            }
        }
    }

    /// Number of tokens that a candidate computes if it fits; its tokens that are only on the host are then loaded.
    fn try_candidate(&mut self, id: RequestId, budget: &mut Budget, step: &mut Step) -> Result<u64, Stop> {
        if self.config.prefill_max_requests.is_some_and(|most| step.extends.len() as u64 >= most) {
            return Err(Stop::Other);
        }
        let r = &self.requests[id];
        if r.ignore_eos && self.config.disable_radix_cache {
            return self.try_exact(id, self.known(id) - r.found, budget, step);
        }
        let new = self.fit(id, r.host_hit, budget, step)?;
        if r.host_hit == 0 {
            return Ok(new);
        }
        if self.load_back(id, step) { Ok(new) } else { self.fit(id, 0, budget, step) }
    }

    /// Number of tokens that a candidate computes after loading `loaded` tokens from the host, if it fits. A loaded
    /// token needs as much memory as a computed one.
    fn fit(&self, id: RequestId, loaded: u64, budget: &Budget, step: &Step) -> Result<u64, Stop> {
        let r = &self.requests[id];
        let rest = self.known(id) - r.found;
        let page = self.memory.page;
        let left = r.bound.saturating_sub(r.generated).min(CLIP_MAX_NEW_TOKENS);
        if (rest + left + page) as f64 >= budget.remaining_total(&self.memory, r.node) {
            return Err(Stop::Tokens);
        }
        budget.chunk(page, r.found + loaded, rest - loaded, step.extends.is_empty())
    }

    /// Loads the candidate's tokens that are only on the host; returns true if they are loaded.
    fn load_back(&mut self, id: RequestId, step: &mut Step) -> bool {
        let r = &mut self.requests[id];
        let loaded = self.memory.load_back(r.host_end, r.host_hit);
        if loaded {
            step.loads.push((id, r.found, r.host_hit));
            r.node = r.host_end;
            r.found += r.host_hit;
        } else {
            step.load_failed.push((id, r.host_hit));
        }
        r.host_hit = 0;
        loaded
    }

    /// Number of tokens that a candidate computes if it fits, for exact output lengths without cached tokens.
    fn try_exact(&self, id: RequestId, rest: u64, budget: &mut Budget, step: &Step) -> Result<u64, Stop> {
        let state = |id: RequestId| {
            let r = &self.requests[id];
            let generated = self.generated(id);
            let left = r.bound as f64 * self.expected_share(id) - generated as f64;
            (left, (r.input + generated) as f64)
        };
        let others = self.running.ids().chain(step.extends.iter().map(|e| e.id)).map(state);
        if !budget.fits_to_its_end(&self.memory, rest, state(id), others) {
            return Err(Stop::Tokens);
        }
        match budget.chunk {
            // SGLang can chunk one request at a time; a second chunk would lose the request that is already chunked.
            Some(chunk) if i64::try_from(rest).unwrap_or(i64::MAX) > chunk => {
                let free = step.chunked.is_none();
                u64::try_from(chunk).ok().filter(|new| *new > 0 && free).ok_or(Stop::Other)
            }
            _ => Ok(rest),
        }
    }

    /// Admits a candidate that computes `new` tokens.
    fn take_in(&mut self, id: RequestId, new: u64, budget: &mut Budget, step: &mut Step) {
        let known = self.known(id);
        let r = &mut self.requests[id];
        let ends = r.found + new == known;
        budget.charge(self.memory.page, new, if ends { r.bound.min(CLIP_MAX_NEW_TOKENS) } else { 0 });
        r.phase = RequestPhase::Extending;
        (r.tokens, r.shared) = (r.found, r.found);
        self.memory.claim(0, r.found);
        self.memory.lock(r.node);
        step.extends.push(Extend { id, new, context: r.found + new, samples: ends });
        step.admitted.push((id, r.found));
        if !ends {
            step.chunked = Some(id);
            self.chunked = Some(id);
        }
    }

    /// Preempts running requests of lower priority until the candidate has enough tokens; returns true if that
    /// succeeds.
    fn preempt_for(&mut self, id: RequestId, budget: &mut Budget, step: &mut Step) -> bool {
        let urgency = |id: RequestId| self.config.urgency(self.requests[id].priority);
        let r = &self.requests[id];
        let mut victims: Vec<RequestId> = self.running.ids().collect();
        victims.sort_by_key(|v| (urgency(*v), std::cmp::Reverse(self.requests[*v].entered)));
        let threshold = i128::from(self.config.priority_scheduling_preemption_threshold);
        victims.retain(|v| urgency(id) - urgency(*v) > threshold);
        let wanted = r.filled as f64 - r.found as f64 + r.bound.min(CLIP_MAX_NEW_TOKENS) as f64;
        let mut missing = wanted - budget.remaining_total(&self.memory, ROOT);
        let mut count = 0;
        while count < victims.len() && (count == 0 || missing > 0.0) {
            missing -= self.promised(victims[count]);
            count += 1;
        }
        if count == 0 || missing > 0.0 {
            return false;
        }
        victims.truncate(count);
        step.preempted.extend(&victims);
        // Release victims in the order of the batch.
        victims.sort_by_key(|v| self.running.place(*v));
        let mut others = self.running.len();
        for victim in victims {
            budget.release(self.promised(victim));
            others -= 1;
            self.release(victim, others, step);
        }
        self.running.drop_gone();
        true
    }

    /// Allocates the pages of the batch's prompts; `admitted` is the number of newly admitted requests.
    fn extend(&mut self, admitted: u64, step: &mut Step) {
        self.rows_held += admitted;
        let new: u64 = step.extends.iter().map(|e| e.new).sum();
        let page = self.memory.page;
        let over = if page == 1 { 0 } else { step.extends.len() as u64 * page };
        self.memory.evict_until(new + over);
        let pages =
            |e: &Extend| e.context.next_multiple_of(page) - (e.context - e.new).next_multiple_of(page);
        let taken: u64 = step.extends.iter().map(pages).sum();
        self.retract_for(taken, step);
        self.memory.available = self.memory.available.saturating_sub(taken);
        for e in &step.extends {
            let r = &mut self.requests[e.id];
            r.tokens = e.context;
            r.samples = e.samples;
        }
    }

    /// Adds the decodes of the running requests to the batch, if their next tokens fit.
    fn mix(&mut self, last: &Last, step: &mut Step) {
        if self.take_out_finishing(last) {
            self.full = false;
        }
        if !self.running.is_empty() && self.memory.decode_fits() {
            self.memory.decode();
            step.kind = ForwardMode::Mixed;
            step.decodes = self.running.len();
            if self.config.preempts() {
                let known: Vec<_> = self.running.ids().map(|id| (id, self.known(id))).collect();
                known.into_iter().for_each(|(id, known)| self.requests[id].filled = known);
            }
        }
    }
}
