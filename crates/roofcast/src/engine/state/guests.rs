//! Guests: requests whose prompt was computed by another replica, and whose cache travels here.
//!
//! Knows: the cache stays where it is until the guest is admitted, which takes its seat and its blocks; then it travels,
//! one after another over the link, while others compute; when it is there the guest decodes. So decoding replicas pull,
//! and the memory of prefilling ones is the queue between them, as in DistServe (OSDI 2024, 4.3) and in vLLM's NIXL
//! connector. Knows nothing about where a cache comes from.

use super::{Decodes, Entry, Id, Mark, Phase, Sequence, State, Ticks};
use crate::engine::Departure;
use std::collections::{BTreeMap, VecDeque};

/// A request with its first token, which another replica computed.
#[derive(Debug, Clone, Copy)]
pub struct Guest {
    /// As it left there.
    pub departure: Departure,
    /// How long its cache takes on the link.
    pub travel: Ticks,
    /// From its last byte's sending to its arrival.
    pub latency: Ticks,
}

/// Those who have not decoded yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Guests {
    /// Who waits, with how long their caches take.
    waiting: BTreeMap<Id, Guest>,
    /// Whose cache is on its way, with when it is there.
    travelling: VecDeque<(Ticks, Id)>,
    /// When the link is free.
    link: Ticks,
    /// Admitted since they were last asked for: number, and when the cache is there.
    admitted: Vec<(u64, Ticks)>,
}

impl<D: Decodes> State<D> {
    /// A guest joins the queue at `at`.
    pub fn receive(&mut self, guest: Guest, at: Ticks) {
        let Departure { arrival, first, preemptions, cached, .. } = guest.departure;
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
        self.guests.waiting.insert(id, guest);
    }

    /// Tokens of `id` that come from elsewhere when it is admitted.
    pub(super) fn comes_with(&self, id: Id) -> u32 {
        self.guests.waiting.get(&id).map_or(0, |guest| guest.departure.arrival.input)
    }

    /// Those whose cache is on its way; they have their seats.
    pub fn travelling(&self) -> u64 {
        self.guests.travelling.len() as u64
    }

    /// Takes blocks for a guest's cache and lets it come; whether `id` is one.
    pub(super) fn pull(&mut self, id: Id) -> bool {
        let Some(guest) = self.guests.waiting.remove(&id) else { return false };
        let arrival = guest.departure.arrival;
        self.free -= self.blocks(arrival.input);
        self.guests.link = self.guests.link.max(self.clock) + guest.travel;
        let there = self.guests.link + guest.latency;
        self.guests.travelling.push_back((there, id));
        self.guests.admitted.push((arrival.number, there));
        self.tally.admitted += 1;
        self.sequences[id as usize].phase = Phase::Travelling;
        self.mark(id, Mark::Admitted);
        true
    }

    /// Guests whose cache is there decode from now on.
    pub fn land(&mut self) {
        while let Some(&(there, id)) = self.guests.travelling.front()
            && there <= self.clock
        {
            self.guests.travelling.pop_front();
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
        self.guests.travelling.front().map_or(Ticks::NEVER, |(there, _)| *there)
    }

    /// Moves the guests admitted since the last call to `into`: their numbers, and when their caches are there.
    pub fn drain_admitted(&mut self, into: &mut Vec<(u64, Ticks)>) {
        into.append(&mut self.guests.admitted);
    }
}
