//! KV transfers: requests whose prompt was computed by another replica, and whose KV cache is sent to this one.
//!
//! Knows: the KV cache stays at its source until the request is admitted; from then on the request counts in
//! `max_num_seqs` and holds its blocks. KV caches are sent one after another over the link while other requests
//! compute; a request decodes when its cache has arrived. Decode replicas therefore pull, and the memory of prefill
//! replicas is the queue between the pools, as in DistServe (OSDI 2024, 4.3) and in vLLM's NIXL connector. Knows
//! nothing about where a cache comes from.

use super::{Decodes, Entry, Mark, Phase, Sequence, SequenceId, State, Ticks};
use roofcast_ask::arrival::Departure;
use std::collections::{BTreeMap, VecDeque};

/// A request whose first token and KV cache another replica computed.
#[derive(Debug, Clone, Copy)]
pub struct KvTransfer {
    /// The request as it left the prefill replica.
    pub(crate) departure: Departure,
    /// Time that the KV cache occupies the link.
    pub(crate) travel: Ticks,
    /// Time from the sending of the last byte to its arrival.
    pub(crate) latency: Ticks,
}

/// The KV transfers of requests that do not decode yet.
#[derive(Debug, Clone, Default)]
pub(super) struct KvTransfers {
    /// Requests that wait for admission.
    waiting: BTreeMap<SequenceId, KvTransfer>,
    /// Requests whose KV cache is in transfer, each with the time of its arrival.
    travelling: VecDeque<(Ticks, SequenceId)>,
    /// Time from which the link is free.
    link: Ticks,
    /// Requests admitted since the last call of [`State::drain_admitted`]: number, and arrival time of the KV cache.
    admitted: Vec<(u64, Ticks)>,
}

impl<D: Decodes> State<D> {
    /// Adds a request whose KV cache is at another replica to the queue at time `at`.
    pub(crate) fn receive(&mut self, transfer: KvTransfer, at: Ticks) {
        let Departure { arrival, first, preemptions, cached, .. } = transfer.departure;
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
        self.transfers.waiting.insert(id, transfer);
    }

    /// Number of tokens of `id` whose KV cache is fetched at admission.
    #[inline(always)]
    pub(super) fn comes_with(&self, id: SequenceId) -> u32 {
        self.transfers.waiting.get(&id).map_or(0, |transfer| transfer.departure.arrival.input)
    }

    /// Number of requests whose KV cache is in transfer; these requests count in `max_num_seqs`.
    pub(crate) fn travelling(&self) -> u64 {
        self.transfers.travelling.len() as u64
    }

    /// Allocates blocks for the KV cache of `id` and fetches the cache, if it is at another replica; returns true if it
    /// is.
    #[inline(always)]
    pub(super) fn pull(&mut self, id: SequenceId) -> bool {
        if self.transfers.waiting.is_empty() {
            return false;
        }
        let Some(transfer) = self.transfers.waiting.remove(&id) else { return false };
        let arrival = transfer.departure.arrival;
        // Reservations for the whole output are made together with the blocks of the cache.
        let blocks = if self.grows() { self.blocks(arrival.input) } else { self.admission_blocks(id, 0) };
        self.free -= blocks;
        self.sequences[id as usize].held = blocks;
        self.transfers.link = self.transfers.link.max(self.clock) + transfer.travel;
        let there = self.transfers.link + transfer.latency;
        self.transfers.travelling.push_back((there, id));
        self.transfers.admitted.push((arrival.number, there));
        self.tally.admitted += 1;
        self.sequences[id as usize].phase = Phase::Travelling;
        self.mark(id, Mark::Admitted);
        true
    }

    /// Starts to decode the requests whose KV cache has arrived.
    pub(crate) fn land(&mut self) {
        while let Some(&(there, id)) = self.transfers.travelling.front()
            && there <= self.clock
        {
            self.transfers.travelling.pop_front();
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

    /// Arrival time of the next KV cache.
    pub(crate) fn landing(&self) -> Ticks {
        self.transfers.travelling.front().map_or(Ticks::NEVER, |(there, _)| *there)
    }

    /// Moves the requests admitted since the last call to `into`: number of the request, and arrival time of its KV
    /// cache.
    pub(crate) fn drain_admitted(&mut self, into: &mut Vec<(u64, Ticks)>) {
        into.append(&mut self.transfers.admitted);
    }
}
