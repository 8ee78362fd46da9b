//! Requests that wait while they hold blocks: for a load from the host, or for room to run after it.
//!
//! Knows: when they are considered, and the blocks that they and incomplete prompts will still allocate. Source: vLLM
//! 0.33, `v1/core/sched/scheduler.py`. Not modelled: priorities. Knows nothing about copies.

use super::Phase;
use crate::scheduler::vllm::blocks::Admission;
use crate::scheduler::vllm::{Pass, RequestId, Scheduler, Step};

impl Scheduler {
    /// Requests that wait while they hold blocks, in order.
    pub fn holding(&self) -> Vec<RequestId> {
        self.tier.iter().flat_map(|tier| tier.waiting.iter().copied()).collect()
    }

    /// Admits the first of the requests that hold blocks, if its load has arrived and there is room. `None` if the pass
    /// ends, `Some(None)` if the request continues to wait.
    pub(in crate::scheduler::vllm) fn admit_held(
        &mut self,
        id: RequestId,
        pass: &Pass,
    ) -> Option<Option<Admission>> {
        let phase = self.tier.as_ref().and_then(|tier| tier.states.get(&id)).map(|state| state.phase);
        match phase {
            Some(Phase::Loading) => return Some(None),
            Some(Phase::Arrived) => {
                self.cache_full_blocks(id, self.requests[id].computed);
                let r = &mut self.requests[id];
                r.computed = r.computed.min(r.known() - 1);
                if let Some(state) = self.tier.as_mut().and_then(|tier| tier.states.get_mut(&id)) {
                    state.phase = Phase::None;
                }
            }
            _ => {}
        }
        let r = &self.requests[id];
        let computed = r.computed;
        let known = r.known();
        let wanted = (known - computed).min(pass.threshold.unwrap_or(u64::MAX));
        if !self.config.enable_chunked_prefill && wanted > pass.budget {
            return None;
        }
        let tokens = wanted.min(pass.budget);
        if !self.extend(id, computed + tokens) {
            return None;
        }
        Some(Some(Admission { tokens, cached: computed, prompt: known - computed > 1 }))
    }

    /// Number of blocks that requests with incomplete prompts, and requests that wait with blocks, will still allocate
    /// for their whole sequences.
    pub(in crate::scheduler::vllm) fn reserved(&self, step: &Step, held: &[RequestId]) -> u64 {
        let entered = |id: RequestId| step.new.contains(&id) || step.resumed.contains(&id);
        let in_prompt = |id: RequestId| {
            let r = &self.requests[id];
            if !entered(id) {
                return r.in_prompt;
            }
            let tokens = step.scheduled.iter().find(|(scheduled, _)| *scheduled == id).map_or(0, |(_, n)| *n);
            r.computed + tokens < r.known()
        };
        let running = self.running.iter().copied().filter(|id| in_prompt(*id));
        let waiting = self.tier.iter().flat_map(|tier| tier.waiting.iter().copied());
        let all = running.chain(waiting).chain(held.iter().copied());
        all.map(|id| {
            let r = &self.requests[id];
            let whole = r.known().min(self.config.max_model_len).div_ceil(self.config.block_size);
            let groups = r.tables.iter().zip(&self.config.windows);
            groups
                .map(|(table, window)| {
                    whole.min(self.most_blocks(*window)).saturating_sub(table.blocks.len() as u64)
                })
                .sum::<u64>()
        })
        .sum()
    }
}
