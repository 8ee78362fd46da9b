//! Disaggregated prefill and decode: some replicas compute prompts, others decode the requests that are handed over.
//!
//! Knows: the role of each replica, and the KV caches in transfer. A request gets its first token from its prefill
//! replica, which keeps its KV cache until a decode replica has fetched it: if decode replicas are full, prefill
//! replicas fill up and wait. Knows nothing about how a replica serves a request, how fast a link is ([`TransferPath`]), or who
//! shares it ([`Links`]).

use super::links::{End, Flow, Links};
use super::way::TransferPath;
use crate::engine::Replica;
use crate::router::Router;
use crate::scheduler::state::KvPull;
use roofcast_ask::arrival::Departure;
use roofcast_ask::arrival::{Arrival, SequenceId};
use roofcast_facts::clock::Ticks;
use std::collections::BTreeMap;
use std::ops::Range;

/// Event between two replicas.
#[derive(Debug, Clone, Copy)]
enum FleetEvent {
    /// A prefill replica has produced a request's first token.
    HandOver(Departure),
    /// Decode replica `to` has admitted a request.
    Pull { pull: KvPull, to: usize },
    /// A KV cache has arrived: `from` may free its blocks, and `to` can continue the request.
    Landed { from: usize, id: SequenceId, pull: KvPull, to: usize },
}

/// The pools of a fleet: the first `prefill` replicas compute prompts, the others decode.
#[derive(Debug)]
pub(crate) struct Pools {
    prefill: usize,
    decode: Vec<usize>,
    router: Router,
    way: TransferPath,
    /// Longest prompt in tokens that a decode replica computes itself.
    local: u64,
    /// Events in order of time, and for equal times in the order in which they were recorded.
    events: BTreeMap<(Ticks, u64), FleetEvent>,
    told: u64,
    /// Number of data-parallel ranks of a prefill replica, each with a link of its own.
    lanes: SequenceId,
    links: Links,
    /// Replica and sequence id that keep a request's KV cache, and its tokens, by number of the request.
    kept: BTreeMap<u64, (usize, SequenceId, u64)>,
    /// For each replica, the number of KV caches that it keeps for others or waits for.
    owed: Vec<u64>,
    /// For each replica, true if it can do nothing until the next event.
    stalled: Vec<bool>,
    admitted: Vec<KvPull>,
    /// Number of KV caches handed over so far.
    pub(crate) transfers: u64,
    /// Number of KV transfers that have ended, their total time on the link, and what they would have taken alone.
    pub(crate) ended: (u64, Ticks, Ticks),
}

impl Pools {
    /// Pools without KV transfers in flight, of replicas that compute prompts on `lanes` ranks each; `router` chooses the decode
    /// replica, which computes prompts of at most `local` tokens itself.
    pub(crate) fn new(
        [prefill, decode]: [usize; 2],
        lanes: u32,
        router: Router,
        way: TransferPath,
        local: u64,
    ) -> Pools {
        Pools {
            prefill,
            decode: (prefill..prefill + decode).collect(),
            router,
            way,
            local,
            events: BTreeMap::new(),
            told: 0,
            lanes,
            links: Links::default(),
            kept: BTreeMap::new(),
            owed: vec![0; prefill + decode],
            stalled: vec![false; prefill + decode],
            admitted: Vec::new(),
            transfers: 0,
            ended: (0, Ticks::ZERO, Ticks::ZERO),
        }
    }

    /// Indices of the prefill replicas.
    pub(crate) fn prefill(&self) -> Range<usize> {
        0..self.prefill
    }

    /// The decode replica that serves the whole request; `None` if the prefill pool computes its prompt. `load` returns the
    /// requests in flight of a replica.
    pub(super) fn alone(&mut self, arrival: &Arrival, load: impl Fn(usize) -> u64) -> Option<usize> {
        let short = u64::from(arrival.input) <= self.local;
        short.then(|| self.router.choose(arrival.user, None, load, &self.decode))
    }

    /// Notes that replica `index` has received a request at `at`.
    pub(super) fn receive(&mut self, index: usize, at: Ticks, replicas: &mut [Box<dyn Replica>]) {
        if index >= self.prefill {
            self.wake(index, at, replicas);
        }
    }

    /// True if some decode replica can serve the request.
    pub(super) fn serves(&self, replicas: &[Box<dyn Replica>], arrival: &Arrival) -> bool {
        self.decode.first().is_some_and(|decode| replicas[*decode].serves(arrival))
    }

    /// Time of the next event, or never.
    #[inline(never)]
    pub(super) fn due(&self) -> Ticks {
        let told_event = self.events.keys().next().map_or(Ticks::NEVER, |(at, _)| *at);
        self.links.next_end().map_or(told_event, |(end, _)| end.min(told_event))
    }

    /// Marks replica `index` as unable to proceed; returns true if an event may change that.
    pub(super) fn stall(&mut self, index: usize) -> bool {
        self.stalled[index] = true;
        self.owed[index] > 0
    }

    /// True if replica `index` can do nothing until the next event.
    pub(super) fn is_stalled(&self, index: usize) -> bool {
        self.stalled[index]
    }

    /// True if a step of replica `other` may affect other replicas: prefill replicas hand over prompts, and a stalled
    /// prefill replica continues when a decode replica frees its blocks.
    pub(super) fn concerns(&self, other: usize) -> bool {
        other < self.prefill || self.stalled[..self.prefill].contains(&true)
    }

    /// Has the KV caches of the requests fetched that replica `to` has admitted.
    #[inline(never)]
    pub(super) fn fetch(&mut self, to: usize, replica: &mut dyn Replica) {
        let mut admitted = std::mem::take(&mut self.admitted);
        replica.drain_admitted(&mut admitted);
        for pull in admitted.drain(..) {
            self.owed[to] += 1;
            self.tell(pull.at, FleetEvent::Pull { pull, to });
        }
        self.admitted = admitted;
    }

    /// Hands over a request that left replica `index` at `at`; returns false if the request needs no decode replica.
    #[inline(never)]
    pub(super) fn hand_over(&mut self, gone: &Departure, at: Ticks, index: usize) -> bool {
        if index >= self.prefill || gone.arrival.output == 1 {
            return false;
        }
        self.kept.insert(gone.arrival.number, (index, gone.id, u64::from(gone.arrival.input)));
        self.owed[index] += 1;
        self.tell(at, FleetEvent::HandOver(*gone));
        true
    }

    fn tell(&mut self, at: Ticks, event: FleetEvent) {
        self.events.insert((at, self.told), event);
        self.told += 1;
    }

    /// Processes the next event.
    #[inline(never)]
    pub(super) fn exchange(&mut self, replicas: &mut [Box<dyn Replica>]) {
        let due = self.due();
        if let Some((end, to)) = self.links.next_end().filter(|(end, _)| *end == due) {
            return self.end_transfer(to, end);
        }
        let Some(((at, _), event)) = self.events.pop_first() else { return };
        match event {
            FleetEvent::HandOver(departure) => {
                let load = |index: usize| replicas[index].in_flight();
                let to = self.router.choose(departure.arrival.user, None, load, &self.decode);
                self.transfers += 1;
                self.wake(to, at, replicas);
                replicas[to].receive(departure, at);
            }
            FleetEvent::Pull { pull, to } => {
                let Some((from, id, tokens)) = self.kept.get(&pull.number) else { return };
                let from = (*from, (*id % self.lanes) as usize);
                let flow = Flow { from, pull, left: self.way.time(*tokens), since: Ticks::NEVER };
                self.links.start((to, pull.lane), flow, at);
            }
            FleetEvent::Landed { from, id, pull, to } => {
                replicas[from].release(id);
                replicas[to].landed(pull);
                for index in [from, to] {
                    self.owed[index] -= 1;
                    self.wake(index, at, replicas);
                }
            }
        }
    }

    /// Ends the transfer of the KV cache that travels to `to`, whose last byte was sent at `end`.
    fn end_transfer(&mut self, to: End, end: Ticks) {
        let Some(Flow { pull, since, .. }) = self.links.end(to, end) else { return };
        let Some((from, id, tokens)) = self.kept.remove(&pull.number) else { return };
        let (count, lasted, alone) = self.ended;
        self.ended = (count + 1, lasted + (end - since), alone + self.way.time(tokens));
        self.tell(end + self.way.latency, FleetEvent::Landed { from, id, pull, to: to.0 });
    }

    /// Wakes replica `index`, stalled or idle, because it may have work from `at` on.
    fn wake(&mut self, index: usize, at: Ticks, replicas: &mut [Box<dyn Replica>]) {
        if std::mem::take(&mut self.stalled[index]) || replicas[index].is_empty() {
            replicas[index].wait_until(at);
        }
    }
}
