//! The running requests of a step: their tokens in order, and preemption when blocks run out.
//!
//! Knows: the order of running requests, and which request is preempted. Knows nothing about waiting requests. Source:
//! vLLM 0.33, `v1/core/sched/scheduler.py`.

use super::{Pass, RequestId, Scheduler, SchedulingPolicy, Step};

impl Scheduler {
    pub(super) fn schedule_running(&mut self, step: &mut Step, pass: &mut Pass) {
        let mut index = 0;
        while index < self.running.len() && pass.budget > 0 {
            let id = self.running[index];
            let r = &self.requests[id];
            // No token is left to compute.
            let done = r.is_done();
            let want = (r.known() + r.placeholders + r.drafts).saturating_sub(r.computed);
            let room = self.config.max_model_len.saturating_sub(r.computed + 1);
            let want = want.min(pass.threshold.unwrap_or(u64::MAX)).min(pass.budget).min(room);
            let deferred = pass.decodes_alone && r.in_prompt;
            if (self.config.async_scheduling && done) || deferred || want == 0 {
                index += 1;
                continue;
            }
            let Some(room) = self.make_room(id, want, step, &mut pass.budget, &mut index) else { break };
            if !room {
                // A request that preempted itself has left the list, so that the next request is now at its index.
                if self.config.rules.self_preemption_ends_pass {
                    break;
                }
                continue;
            }
            pass.prompts |= self.requests[id].in_prompt;
            step.scheduled.push((id, want));
            pass.budget -= want;
            index += 1;
        }
    }

    /// Allocates blocks for `want` further tokens of a running request, and preempts other requests if needed. False if
    /// the request itself was preempted, `None` if the request to preempt is in a step in flight.
    fn make_room(
        &mut self,
        id: RequestId,
        want: u64,
        step: &mut Step,
        budget: &mut u64,
        index: &mut usize,
    ) -> Option<bool> {
        let filled = self.requests[id].computed + want;
        let end = self.config.slots(filled);
        while !self.grow(id, end) {
            if self.running.last().is_some_and(|last| self.in_flight(*last)) {
                return None;
            }
            let Some(victim) = self.victim() else { return Some(false) };
            if let Some(at) = step.scheduled.iter().position(|(s, _)| *s == victim) {
                // The victim was scheduled before this request; its tokens return to the budget.
                *budget += step.scheduled.remove(at).1;
                *index -= 1;
            }
            self.preempt(victim);
            step.preempted.push(victim);
            if victim == id {
                return Some(false);
            }
        }
        self.cache_full_blocks(id, filled);
        Some(true)
    }

    /// Removes the request to preempt from the running requests and returns it.
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
        r.in_prompt = true;
        r.drafts = 0;
        r.stale += std::mem::take(&mut r.placeholders);
        self.release(id);
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.waiting.push_front(id),
            SchedulingPolicy::Priority => self.enqueue_by_priority(id),
        }
    }

    /// Sort key of the order by priority: smaller is first.
    fn rank(&self, id: RequestId) -> (i64, u64) {
        (self.requests[id].priority, self.requests[id].number)
    }

    pub(super) fn enqueue_by_priority(&mut self, id: RequestId) {
        let at = self.waiting.partition_point(|w| self.rank(*w) < self.rank(id));
        self.waiting.insert(at, id);
    }
}
