//! Blocks that are freed late because a step in flight still computes their request.
//!
//! Knows: with asynchronous scheduling and a connector, blocks of a request that ends or is preempted are freed when
//! the output of its last step has arrived. Source: vLLM 0.33, `v1/core/sched/scheduler.py`. Knows nothing about copies.

use crate::kv_cache::spans::Spans;
use crate::scheduler::vllm::{RequestId, Scheduler};

impl Scheduler {
    /// True if a step in flight computes the request, so that its blocks cannot be freed yet.
    pub(in crate::scheduler::vllm) fn in_flight(&self, id: RequestId) -> bool {
        let Some(tier) = self.tier.as_ref().filter(|_| self.config.async_scheduling) else { return false };
        tier.states.get(&id).is_some_and(|state| state.last_step > tier.applied)
    }

    /// Frees blocks when the steps that were decided so far are applied.
    pub(in crate::scheduler::vllm) fn free_later(&mut self, blocks: Spans) {
        if let Some(tier) = &mut self.tier {
            tier.frees.push_back((tier.decided, blocks));
        }
    }

    /// Applies the output of a step with tokens: frees the blocks that waited for it.
    pub(in crate::scheduler::vllm) fn apply_frees(&mut self) {
        let Some(tier) = &mut self.tier else { return };
        tier.applied += 1;
        while let Some((_, blocks)) = tier.frees.pop_front_if(|(step, _)| *step <= tier.applied) {
            self.steady.disturb();
            self.pool.release(&blocks);
        }
    }
}
