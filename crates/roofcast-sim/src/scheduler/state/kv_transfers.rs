//! KV transfers: requests whose prompt was computed by another replica, and whose KV cache is sent to this one.
//!
//! Knows: the KV cache stays at its source until the request is admitted; from then on the request counts in
//! `max_num_seqs` and holds its blocks, while other requests compute; it decodes when its cache has arrived. Decode replicas
//! therefore pull, and the memory of prefill replicas is the queue between the pools, as in DistServe (OSDI 2024, 4.3) and in
//! vLLM's NIXL connector. Knows nothing about where a cache comes from, and how long it travels.

use super::{Decodes, Entry, Mark, Phase, Sequence, SequenceId, State, Ticks};
use roofcast_ask::arrival::Departure;
use std::collections::BTreeMap;

/// The admission of a request whose KV cache another replica keeps.
#[derive(Debug, Clone, Copy)]
pub struct KvPull {
    /// Number of the request.
    pub(crate) number: u64,
    /// The request in the replica that admitted it.
    pub(crate) id: SequenceId,
    /// Time of the admission.
    pub(crate) at: Ticks,
    /// Data-parallel rank that admitted the request; 0 without ranks.
    pub(crate) lane: usize,
}

/// The KV transfers of requests that do not decode yet.
#[derive(Debug, Clone, Default)]
pub(super) struct KvTransfers {
    /// Requests that wait for admission, as they left the prefill replica.
    waiting: BTreeMap<SequenceId, Departure>,
    /// Number of requests whose KV cache is in transfer, or has arrived since the last decision.
    travelling: u64,
    /// Requests whose KV cache has arrived since the last decision.
    landed: Vec<SequenceId>,
    /// Requests admitted since the last call of [`State::drain_admitted`].
    admitted: Vec<KvPull>,
}

impl<D: Decodes> State<D> {
    /// Adds a request whose KV cache is at another replica to the queue at time `at`.
    pub(crate) fn receive(&mut self, guest: Departure, at: Ticks) {
        let Departure { arrival, first, preemptions, cached, .. } = guest;
        if let Some(timeline) = &mut self.timeline {
            timeline.arrived(&roofcast_ask::arrival::Arrival { at, ..arrival });
        }
        let id = self.take_in(Sequence {
            arrival,
            phase: Phase::Waiting,
            known: arrival.input + 1,
            generated: 1,
            cached: u32::try_from(cached).unwrap_or(u32::MAX),
            first,
            last: first,
            preemptions,
            ..Sequence::default()
        });
        self.transfers.waiting.insert(id, guest);
    }

    /// Number of tokens of `id` whose KV cache is fetched at admission.
    #[inline(always)]
    pub(super) fn comes_with(&self, id: SequenceId) -> u32 {
        self.transfers.waiting.get(&id).map_or(0, |guest| guest.arrival.input)
    }

    /// Number of requests whose KV cache is in transfer; these requests count in `max_num_seqs`.
    pub(crate) fn travelling(&self) -> u64 {
        self.transfers.travelling
    }

    /// Allocates blocks for the KV cache of `id` and has it fetched, if it is at another replica; returns true if it is.
    #[inline(always)]
    pub(super) fn pull(&mut self, id: SequenceId) -> bool {
        if self.transfers.waiting.is_empty() {
            return false;
        }
        let Some(Departure { arrival, .. }) = self.transfers.waiting.remove(&id) else { return false };
        // Reservations for the whole output are made together with the blocks of the cache.
        let blocks = if self.grows() { self.blocks(arrival.input) } else { self.admission_blocks(id, 0) };
        self.free -= blocks;
        self.sequences[id as usize].held = blocks;
        self.transfers.travelling += 1;
        self.transfers.admitted.push(KvPull { number: arrival.number, id, at: self.clock, lane: 0 });
        self.tally.admitted += 1;
        self.sequences[id as usize].phase = Phase::Travelling;
        self.mark(id, Mark::Admitted);
        true
    }

    /// Notes that the KV cache of `id` has arrived.
    pub(crate) fn landed(&mut self, id: SequenceId) {
        self.transfers.landed.push(id);
    }

    /// Starts to decode the requests whose KV cache has arrived.
    pub(crate) fn land(&mut self) {
        for id in std::mem::take(&mut self.transfers.landed) {
            self.transfers.travelling -= 1;
            self.enter(id);
            let s = &mut self.sequences[id as usize];
            s.phase = Phase::Decode;
            s.computed = s.arrival.input;
            let entry =
                Entry { id, computed: s.computed, remaining: s.arrival.output - s.generated, order: s.order };
            let last = s.last;
            self.decodes.insert(entry);
            self.join(last);
            self.mark(id, Mark::Decoding);
        }
    }

    /// True if requests were admitted since the last call of [`State::drain_admitted`].
    pub(crate) fn has_admitted(&self) -> bool {
        !self.transfers.admitted.is_empty()
    }

    /// Moves the requests admitted since the last call to `into`.
    pub(crate) fn drain_admitted(&mut self, into: &mut Vec<KvPull>) {
        into.append(&mut self.transfers.admitted);
    }
}
