//! Storage below vLLM's host tier: `TieringOffloadingSpec` with one secondary tier.
//!
//! Knows: every chunk that arrives on the host is copied to storage, unless storage has it. A chunk that only storage
//! has is promoted: it takes a place on the host, and its request is put off until it is there. A request whose chunks
//! are not all on the host asks storage, and the answer comes with the next step. Storage that is full
//! evicts the least recently used chunk; vLLM itself deletes no file. Source: vLLM 0.32,
//! `v1/kv_offload/tiering/manager.py`, `fs/manager.py` and `async_lookup.py`. Knows nothing about time: the driver
//! reports the copies that have ended.

use super::Tier;
use crate::kv_cache::names::Name;
use crate::kv_cache::offload::{Chunks, Residence};
use crate::kv_cache::recency::Recency;
use crate::scheduler::vllm::transfers::StorageCopy;
use crate::scheduler::vllm::{RequestId, Scheduler};
use std::collections::BTreeMap;
use std::ops::Range;

/// Chunks in storage, and the copies between storage and the host.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    /// Most chunks.
    capacity: usize,
    chunks: Recency,
    /// Contents of the copies in flight, and whether they go to the host.
    copies: BTreeMap<u64, (Vec<Range<Name>>, bool)>,
    started: u64,
    /// Copies that the driver has not taken yet.
    submitted: Vec<StorageCopy>,
}

impl Storage {
    pub(super) fn new(capacity: usize) -> Storage {
        Storage {
            capacity,
            chunks: Recency::default(),
            copies: BTreeMap::new(),
            started: 0,
            submitted: Vec::new(),
        }
    }

    /// Names of the stored contents, and of those in transfer.
    pub(super) fn names(&self) -> impl Iterator<Item = Range<Name>> {
        let copied = self.copies.values().flat_map(|(contents, _)| contents).cloned();
        self.chunks.iter().map(|name| name..name + 1).chain(copied)
    }

    fn submit(&mut self, contents: Vec<Range<Name>>, promotes: bool) {
        let job = self.started;
        self.started += 1;
        self.submitted.push(StorageCopy { job, chunks: contents.iter().map(Range::len).sum(), promotes });
        self.copies.insert(job, (contents, promotes));
    }
}

impl Tier {
    /// Promotes the chunks of a request that storage has and the host lacks, up to the first chunk that neither has.
    /// Returns false if the request must wait a step for the answer of storage.
    pub(super) fn promote(&mut self, id: RequestId, chunks: &[Chunks]) -> bool {
        let (Some(storage), Some(state)) = (&mut self.storage, self.states.get_mut(&id)) else { return true };
        let single = |Chunks { first, names, .. }: &Chunks| (*first..).zip(names.clone());
        let is_absent = |name: Name| self.host.residence(name) == Residence::Absent;
        if !state.asked && chunks.iter().flat_map(single).any(|(_, name)| is_absent(name)) {
            state.asked = true;
            self.transfers.asked = true;
            return false;
        }
        let mut promoted: Vec<Range<Name>> = Vec::new();
        for (first, name) in chunks.iter().flat_map(single) {
            if self.host.residence(name) != Residence::Absent {
                continue;
            }
            let offer = if storage.chunks.has(name) {
                self.host.offer(state.number, &[Chunks { group: 0, first, names: name..name + 1 }])
            } else {
                None
            };
            let Some(offer) = offer else { break };
            self.transfers.evicted.extend(offer.evicted);
            state.promoted.add(name..name + 1);
            match promoted.last_mut().filter(|last| last.end == name) {
                Some(last) => last.end += 1,
                None => promoted.push(name..name + 1),
            }
        }
        if !promoted.is_empty() {
            storage.submit(promoted, true);
        }
        true
    }

    /// Copies chunks that have arrived on the host to storage; the host keeps them until the copy has ended.
    pub(super) fn cascade(&mut self, contents: &[Range<Name>]) {
        let Some(storage) = &mut self.storage else { return };
        let mut missing: Vec<Range<Name>> = Vec::new();
        for name in contents.iter().cloned().flatten().filter(|name| !storage.chunks.has(*name)) {
            match missing.last_mut().filter(|last| last.end == name) {
                Some(last) => last.end += 1,
                None => missing.push(name..name + 1),
            }
        }
        if !missing.is_empty() {
            self.host.pin(missing.iter().cloned());
            storage.submit(missing, false);
        }
    }
}

impl Scheduler {
    /// Takes the copies between host and storage that were decided since the last call.
    pub(crate) fn take_storage_copies(&mut self) -> Vec<StorageCopy> {
        let storage = self.tier.as_mut().and_then(|tier| tier.storage.as_mut());
        storage.map_or(Vec::new(), |storage| std::mem::take(&mut storage.submitted))
    }

    /// Reports a copy between host and storage that has ended.
    pub(crate) fn finish_storage_copy(&mut self, job: u64) {
        self.steady.disturb();
        let Some(tier) = &mut self.tier else { return };
        let Some(storage) = &mut tier.storage else { return };
        let Some((contents, promotes)) = storage.copies.remove(&job) else { return };
        contents.iter().cloned().flatten().for_each(|content| storage.chunks.push(content));
        storage.chunks.forget_beyond(storage.capacity);
        if promotes {
            tier.host.stored(&contents);
        } else {
            tier.host.loaded(&contents);
        }
    }
}
