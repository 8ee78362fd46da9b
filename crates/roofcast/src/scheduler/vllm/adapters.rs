//! LoRA adapters: the limit on adapters that run at one time, and the requests that wait for a slot.

use super::{RequestId, Scheduler};
use std::collections::BTreeSet;

impl Scheduler {
    /// Sets the most adapters whose requests may run at one time.
    pub fn set_max_loras(&mut self, most: usize) {
        self.max_loras = most;
    }

    /// Number of waiting requests that were skipped without blocking the queue.
    pub fn deferred_count(&self) -> u64 {
        self.deferred.len() as u64
    }

    /// True if the adapter of a waiting request runs already, or may start.
    pub(super) fn has_adapter_slot(&self, id: RequestId) -> bool {
        let adapter = self.requests[id].adapter;
        if adapter == 0 || self.max_loras == usize::MAX {
            return true;
        }
        let running = self.running.iter().map(|id| self.requests[*id].adapter);
        let adapters: BTreeSet<u32> = running.filter(|adapter| *adapter != 0).collect();
        adapters.contains(&adapter) || adapters.len() < self.max_loras
    }
}
