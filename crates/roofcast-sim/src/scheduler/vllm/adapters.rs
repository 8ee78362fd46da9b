//! LoRA adapters: the bound on adapters that run at one time, and the requests that wait for a slot.

use super::{RequestId, Scheduler, Step};

/// Distinct adapters, in ascending order.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdapterSet(Vec<u32>);

impl FromIterator<u32> for AdapterSet {
    fn from_iter<T: IntoIterator<Item = u32>>(adapters: T) -> AdapterSet {
        let mut all: Vec<u32> = adapters.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        AdapterSet(all)
    }
}

impl AdapterSet {
    /// The adapters, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, adapter: u32) {
        if let Err(at) = self.0.binary_search(&adapter) {
            self.0.insert(at, adapter);
        }
    }

    fn has(&self, adapter: u32) -> bool {
        self.0.binary_search(&adapter).is_ok()
    }
}

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
    pub(super) fn adapters_in_use(&self, step: &Step) -> AdapterSet {
        if self.max_loras == usize::MAX || self.waiting.is_empty() {
            return AdapterSet::default();
        }
        let adapter = |id: RequestId| self.requests[id].adapter;
        if self.config.rules.running_adapters_count {
            self.running.iter().map(|id| adapter(*id)).collect()
        } else {
            step.scheduled.iter().map(|(id, _)| adapter(*id)).collect()
        }
    }

    /// True if the adapter of a waiting request is `in_use`, or has a free slot.
    pub(super) fn has_adapter_slot(&self, id: RequestId, in_use: &AdapterSet) -> bool {
        let adapter = self.requests[id].adapter;
        let others = in_use.len() - usize::from(in_use.has(0));
        adapter == 0 || in_use.has(adapter) || others < self.max_loras
    }
}
