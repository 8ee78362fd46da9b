//! LoRA adapters: how many may run at once, and whose requests a pass goes by for that.

use super::{RequestId, Scheduler};
use std::collections::BTreeSet;

impl Scheduler {
    /// Lets requests of at most so many adapters run at once.
    pub fn set_max_loras(&mut self, most: usize) {
        self.max_loras = most;
    }

    /// How many of them a pass went by without blocking the queue.
    pub fn deferred_count(&self) -> u64 {
        self.deferred.len() as u64
    }

    /// Whether the adapter of a waiting request runs or may run, too.
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
