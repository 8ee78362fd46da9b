//! The decode of the running batch, and the retraction of requests when the pool is full.
//!
//! Knows: the order of retraction, the pages that a retraction frees, and the rows that skip a decode because the
//! result in flight holds their last token. Knows nothing about time. Source: SGLang 0.5.23, `update_running_batch` of
//! `managers/scheduler.py` and `retract_decode` of `managers/schedule_batch.py`.

use super::ratio::RETRACT_DECODE_STEPS;
use super::{ForwardMode, Last, RequestId, RequestPhase, Scheduler, Step};
use roofcast_ask::spec::RetractionPolicy;
use std::cmp::Reverse;

impl Scheduler {
    /// Decides on a batch of decodes, if any request runs.
    pub(super) fn decode(&mut self, last: &Last, step: &mut Step) {
        if self.running.is_empty() {
            return;
        }
        let finishing = self.take_out_finishing(last);
        if self.running.is_empty() {
            self.full = false;
            return;
        }
        if self.memory.decode_fits() {
            self.ratio.decay(1);
        } else if finishing {
            // The results of finishing rows will free the missing pages.
            self.full = false;
            return;
        } else {
            self.retract(step);
        }
        if finishing || !step.retracted.is_empty() || !step.aborted.is_empty() {
            self.full = false;
        }
        if self.running.is_empty() {
            return;
        }
        self.memory.decode();
        step.kind = ForwardMode::Decode;
        step.decodes = self.running.len();
    }

    /// Removes the rows whose last token by length is in flight; returns true if there were any.
    pub(super) fn take_out_finishing(&mut self, last: &Last) -> bool {
        if !self.overlaps() || !self.config.rules.skips_finishing_rows {
            return false;
        }
        let mut rows = match last.kind {
            ForwardMode::Decode | ForwardMode::Mixed => self.running.reaching_bound(self.running.results + 1),
            _ => Vec::new(),
        };
        self.leaving.extend(&rows);
        for &id in &last.extends {
            let r = &self.requests[id];
            if r.phase == RequestPhase::Running && r.samples && r.generated + 1 >= r.bound {
                rows.push(id);
            }
        }
        for &id in &rows {
            self.stop(id);
            self.requests[id].phase = RequestPhase::Leaving;
        }
        self.running.drop_gone();
        !rows.is_empty()
    }

    /// Stops a row's decoding and stores its counters in the request.
    pub(super) fn stop(&mut self, id: RequestId) {
        let generated = self.generated(id);
        let tokens = self.tokens(id);
        let r = &mut self.requests[id];
        (r.generated, r.tokens) = (generated, tokens);
        self.memory.leave(tokens);
        self.running.stop(id);
        self.left.push(id);
    }

    /// Running requests, in the order in which they stay: the last one is retracted first.
    fn retraction_order(&self) -> Vec<RequestId> {
        let by_priority = self.config.retraction_policy == RetractionPolicy::Priority;
        let key = |id: &RequestId| {
            let r = &self.requests[*id];
            let urgency = if by_priority { self.config.urgency(r.priority) } else { 0 };
            (Reverse(urgency), Reverse(self.generated(*id)), r.input)
        };
        let mut order: Vec<RequestId> = self.running.ids().collect();
        order.sort_by_key(key);
        order
    }

    /// Retracts requests until the remaining ones fit. The last one stays, and is aborted if it does not fit alone.
    fn retract(&mut self, step: &mut Step) {
        let mut order = self.retraction_order();
        while order.len() > 1 {
            let Some(victim) = order.pop() else { break };
            self.release(victim, order.len() as u64, step);
            step.retracted.push(victim);
            if self.memory.decode_fits() {
                break;
            }
        }
        if !self.memory.decode_fits()
            && let Some(last) = order.pop()
        {
            self.stop(last);
            self.finish(last);
            step.aborted.push(last);
        }
        self.running.drop_gone();
        let rows = order.len() as u64;
        let requests = &self.requests;
        let generated = order.iter().map(|id| self.generated(*id)).sum();
        let bound = order.iter().map(|id| requests[*id].bound).sum();
        self.ratio.retracted(rows, generated, bound);
        let late = self.overlaps();
        self.running.reorder(order, late);
        for at in 0..step.retracted.len() {
            self.enqueue(step.retracted[at]);
        }
    }

    /// Retracts requests until `tokens` tokens are available for prompts. SGLang secures these tokens at admission; if
    /// a chunked request continues after running ones took more than estimated, SGLang runs out of memory and exits,
    /// whereas this scheduler retracts requests.
    pub(super) fn retract_for(&mut self, tokens: u64, step: &mut Step) {
        if self.memory.available >= tokens {
            return;
        }
        let mut order = self.retraction_order();
        let before = step.retracted.len();
        while self.memory.available < tokens
            && let Some(victim) = order.pop()
        {
            self.release(victim, 0, step);
            self.memory.evict_until(tokens);
            step.retracted.push(victim);
        }
        self.running.drop_gone();
        self.full = false;
        for at in before..step.retracted.len() {
            self.enqueue(step.retracted[at]);
        }
    }

    /// Removes a running request while `others` requests stay: frees the pages that only it holds, and makes room for
    /// the next tokens of the others.
    pub(super) fn release(&mut self, id: RequestId, others: u64, step: &mut Step) {
        self.stop(id);
        step.dropped += self.requests[id].tokens;
        self.free(id);
        self.memory.evict_until(others * RETRACT_DECODE_STEPS);
        self.requests[id].phase = RequestPhase::Waiting;
    }
}
