//! Disaggregated prefill and decode: replicas that compute prompts, and others that decode what those hand over.
//!
//! Knows: which replicas are which, and what is on its way between them. A request gets its first token from its prefill
//! replica, which keeps its cache until a decode replica has fetched it: where decode replicas are full, prefill replicas
//! fill up and wait. Knows nothing about what a replica does with a request, or how fast a link is ([`Way`]).

use super::way::Way;
use crate::engine::arrival::{Arrival, SequenceId};
use crate::engine::clock::Ticks;
use crate::engine::state::KvTransfer;
use crate::engine::{Departure, Replica};
use crate::router::Router;
use std::collections::BTreeMap;
use std::ops::Range;

/// What happens between replicas.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A request has its first token.
    HandOver(Departure),
    /// Its cache is there: `from` may forget it, `to` can go on with it.
    Landed { from: usize, id: SequenceId, to: usize },
}

/// The pools of a fleet: the first of its replicas compute prompts, the others decode.
#[derive(Debug)]
pub struct Pools {
    prefill: usize,
    decode: Vec<usize>,
    router: Router,
    way: Way,
    /// In order of time, then of telling.
    events: BTreeMap<(Ticks, u64), Event>,
    told: u64,
    /// In which replica, under which name, a request's cache is kept.
    kept: BTreeMap<u64, (usize, SequenceId)>,
    /// Caches that each replica keeps for others or waits for.
    owed: Vec<u64>,
    /// Replicas that can do nothing until an event.
    stalled: Vec<bool>,
    admitted: Vec<(u64, Ticks)>,
    /// Caches that were handed over.
    pub transfers: u64,
    /// How long they took on the link in all.
    pub on_the_link: Ticks,
}

impl Pools {
    /// Nothing on its way between `prefill` and `decode` replicas; `router` chooses the decode replica.
    pub fn new(prefill: usize, decode: usize, router: Router, way: Way) -> Pools {
        Pools {
            prefill,
            decode: (prefill..prefill + decode).collect(),
            router,
            way,
            events: BTreeMap::new(),
            told: 0,
            kept: BTreeMap::new(),
            owed: vec![0; prefill + decode],
            stalled: vec![false; prefill + decode],
            admitted: Vec::new(),
            transfers: 0,
            on_the_link: Ticks::ZERO,
        }
    }

    /// Replicas that compute prompts.
    pub fn prefill(&self) -> Range<usize> {
        0..self.prefill
    }

    /// Whether a decode replica could serve a request.
    pub(super) fn serves(&self, replicas: &[Box<dyn Replica>], arrival: &Arrival) -> bool {
        self.decode.first().is_some_and(|decode| replicas[*decode].serves(arrival))
    }

    /// When the next event is, or never.
    #[inline(never)]
    pub(super) fn due(&self) -> Ticks {
        self.events.keys().next().map_or(Ticks::NEVER, |(at, _)| *at)
    }

    /// A replica can do nothing; whether that may change with an event.
    pub(super) fn stall(&mut self, index: usize) -> bool {
        self.stalled[index] = true;
        self.owed[index] > 0
    }

    /// Whether a replica can do nothing until an event.
    pub(super) fn is_stalled(&self, index: usize) -> bool {
        self.stalled[index]
    }

    /// Whether what replica `other` does may concern others: prompts come from prefill replicas, and where one of those is
    /// stalled it goes on when a decode replica lets it.
    pub(super) fn concerns(&self, other: usize) -> bool {
        other < self.prefill || self.stalled[..self.prefill].contains(&true)
    }

    /// The caches of the requests that replica `to` has admitted are on their way.
    #[inline(never)]
    pub(super) fn fetch(&mut self, to: usize, replica: &mut dyn Replica) {
        let mut admitted = std::mem::take(&mut self.admitted);
        replica.drain_admitted(&mut admitted);
        for (number, there) in admitted.drain(..) {
            if let Some((from, id)) = self.kept.remove(&number) {
                self.owed[to] += 1;
                self.tell(there, Event::Landed { from, id, to });
            }
        }
        self.admitted = admitted;
    }

    /// Whether a request that left `index` at `at` is to be decoded elsewhere; it is handed over then.
    #[inline(never)]
    pub(super) fn hand_over(&mut self, gone: &Departure, at: Ticks, index: usize) -> bool {
        if index >= self.prefill || gone.arrival.output == 1 {
            return false;
        }
        self.kept.insert(gone.arrival.number, (index, gone.id));
        self.owed[index] += 1;
        self.tell(at, Event::HandOver(*gone));
        true
    }

    fn tell(&mut self, at: Ticks, event: Event) {
        self.events.insert((at, self.told), event);
        self.told += 1;
    }

    /// The next event happens.
    #[inline(never)]
    pub(super) fn exchange(&mut self, replicas: &mut [Box<dyn Replica>]) {
        let Some(((at, _), event)) = self.events.pop_first() else { return };
        match event {
            Event::HandOver(departure) => {
                let load = |index: usize| replicas[index].in_flight();
                let to = self.router.choose(departure.arrival.user, None, load, &self.decode);
                let travel = self.way.time(u64::from(departure.arrival.input));
                self.transfers += 1;
                self.on_the_link += travel;
                self.wake(to, at, replicas);
                replicas[to].receive(KvTransfer { departure, travel, latency: self.way.latency }, at);
            }
            Event::Landed { from, id, to } => {
                replicas[from].release(id);
                for index in [from, to] {
                    self.owed[index] -= 1;
                    self.wake(index, at, replicas);
                }
            }
        }
    }

    /// A replica without anything to do may have something from `at` on.
    fn wake(&mut self, index: usize, at: Ticks, replicas: &mut [Box<dyn Replica>]) {
        if std::mem::take(&mut self.stalled[index]) || replicas[index].is_empty() {
            replicas[index].wait_until(at);
        }
    }
}
