//! KvTransfers: requests whose prompt was computed by another replica, and whose cache travels here.
//!
//! Knows: the cache stays where it is until the transfer is admitted, which takes its seat and its blocks; then it travels,
//! one after another over the link, while others compute; when it is there the transfer decodes. So decoding replicas pull,
//! and the memory of prefilling ones is the queue between them, as in DistServe (OSDI 2024, 4.3) and in vLLM's NIXL
//! connector. Knows nothing about where a cache comes from.

use super::{Decodes, Entry, Mark, Phase, Sequence, SequenceId, State, Ticks};
use crate::engine::Departure;
use std::collections::{BTreeMap, VecDeque};

/// A request with its first token, which another replica computed.
#[derive(Debug, Clone, Copy)]
pub struct KvTransfer {
    /// As it left there.
    pub departure: Departure,
    /// How long its cache takes on the link.
    pub travel: Ticks,
    /// From its last byte's sending to its arrival.
    pub latency: Ticks,
}

/// Those who have not decoded yet.
#[derive(Debug, Clone, Default)]
pub(super) struct KvTransfers {
    /// Who waits, with how long their caches take.
    waiting: BTreeMap<SequenceId, KvTransfer>,
    /// Whose cache is on its way, with when it is there.
    travelling: VecDeque<(Ticks, SequenceId)>,
    /// When the link is free.
    link: Ticks,
    /// Admitted since they were last asked for: number, and when the cache is there.
    admitted: Vec<(u64, Ticks)>,
}

impl<D: Decodes> State<D> {
    /// A transfer joins the queue at `at`.
    pub fn receive(&mut self, transfer: KvTransfer, at: Ticks) {
        let Departure { arrival, first, preemptions, cached, .. } = transfer.departure;
        if let Some(timeline) = &mut self.timeline {
            timeline.arrived(&crate::engine::arrival::Arrival { at, ..arrival });
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

    /// Tokens of `id` that come from elsewhere when it is admitted.
    pub(super) fn comes_with(&self, id: SequenceId) -> u32 {
        self.transfers.waiting.get(&id).map_or(0, |transfer| transfer.departure.arrival.input)
    }

    /// Those whose cache is on its way; they have their seats.
    pub fn travelling(&self) -> u64 {
        self.transfers.travelling.len() as u64
    }

    /// Takes blocks for a transfer's cache and lets it come; whether `id` is one.
    pub(super) fn pull(&mut self, id: SequenceId) -> bool {
        let Some(transfer) = self.transfers.waiting.remove(&id) else { return false };
        let arrival = transfer.departure.arrival;
        self.free -= self.blocks(arrival.input);
        self.transfers.link = self.transfers.link.max(self.clock) + transfer.travel;
        let there = self.transfers.link + transfer.latency;
        self.transfers.travelling.push_back((there, id));
        self.transfers.admitted.push((arrival.number, there));
        self.tally.admitted += 1;
        self.sequences[id as usize].phase = Phase::Travelling;
        self.mark(id, Mark::Admitted);
        true
    }

    /// KvTransfers whose cache is there decode from now on.
    pub fn land(&mut self) {
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

    /// When the next cache is there.
    pub fn landing(&self) -> Ticks {
        self.transfers.travelling.front().map_or(Ticks::NEVER, |(there, _)| *there)
    }

    /// Moves the transfers admitted since the last call to `into`: their numbers, and when their caches are there.
    pub fn drain_admitted(&mut self, into: &mut Vec<(u64, Ticks)>) {
        into.append(&mut self.transfers.admitted);
    }
}
