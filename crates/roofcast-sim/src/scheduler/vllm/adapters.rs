//! LoRA adapters: the bound on adapters that run at one time, and the requests that wait for a slot.

use super::{RequestId, Scheduler, Step};
use std::collections::BTreeSet;

impl Scheduler {
    /// Sets the largest number of adapters whose requests may run at one time.
    pub fn set_max_loras(&mut self, most: usize) {
        self.max_loras = most;
    }

    /// Number of waiting requests that were skipped, so that later ones could be admitted.
    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred.len() as u64
    }

    /// Adapters of running requests; up to version 0.32, adapters of requests that are computed in this step.
    pub(super) fn adapters_in_use(&self, step: &Step) -> BTreeSet<u32> {
        if self.max_loras == usize::MAX {
            return BTreeSet::new();
        }
        let adapter = |id: RequestId| self.requests[id].adapter;
        if self.config.rules.running_adapters_count {
            self.running.iter().map(|id| adapter(*id)).collect()
        } else {
            step.scheduled.iter().map(|(id, _)| adapter(*id)).collect()
        }
    }

    /// True if the adapter of a waiting request is `in_use`, or has a free slot.
    pub(super) fn has_adapter_slot(&self, id: RequestId, in_use: &BTreeSet<u32>) -> bool {
        let adapter = self.requests[id].adapter;
        let others = in_use.len() - usize::from(in_use.contains(&0));
        adapter == 0 || in_use.contains(&adapter) || others < self.max_loras
    }
}
