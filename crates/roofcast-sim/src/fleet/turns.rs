//! The order in which replicas run their steps, and how far each may leap.
//!
//! Knows: the replica whose last step ended first runs next. Replicas that affect each other in no way, because no
//! answer causes a request and the router does not look at replicas, each run up to their own next request alone.
//! Knows nothing about what a step does.

use super::ingest::IngestedRequest;
use super::{Fleet, WATCHED};
use roofcast_ask::arrival::Arrival;
use roofcast_ask::spec::Routing;
use roofcast_ask::workload::{Prompt, Traffic};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::Result;

/// Number of requests a replica for which replicas that are apart wait: the state of one replica is read once for all of
/// them, as thousands of replicas exceed a processor's caches.
const TOGETHER: usize = 32;

impl Fleet {
    /// The busy replica whose last step ended first, and the time of that end.
    #[inline(always)]
    pub(super) fn behind(&self) -> Option<(Ticks, usize)> {
        if let [alone] = self.replicas.as_slice() {
            return alone.due().map(|clock| (clock, 0));
        }
        if self.delivery.pools.is_some() { self.busy().min() } else { self.turns.first() }
    }

    /// Records the time at which replica `index` has its next turn.
    #[inline(always)]
    pub(super) fn note_turn(&mut self, index: usize) {
        if self.replicas.len() > 1 && self.delivery.pools.is_none() && !self.apart {
            self.turns.set(index, self.replicas[index].due());
        }
    }

    /// Replicas with work, and the end times of their last steps.
    fn busy(&self) -> impl Iterator<Item = (Ticks, usize)> {
        let works = |index: usize| self.delivery.pools.as_ref().is_none_or(|p| !p.is_stalled(index));
        let replicas = self.replicas.iter().enumerate();
        replicas.filter_map(move |(index, replica)| Some((replica.due()?, index)).filter(|_| works(index)))
    }

    /// Time until which a replica may leap: the next arrival. In a closed loop a leap also ends with the last steps of
    /// the other replicas, because their answers may cause requests; in a disaggregated fleet, with the last steps of
    /// replicas that may hand over prompts. For a lone replica with an unlimited queue in order of arrival, a waiting
    /// request changes nothing until a running one leaves; in a closed loop even a refusal matters, because the next
    /// request follows it.
    #[inline(always)]
    pub(super) fn horizon(&self, index: usize, due: Ticks, closed: bool) -> Ticks {
        if let [alone] = self.replicas.as_slice() {
            let limited = self.attended && (self.delivery.admission.is_some() || self.life.attends());
            let passing = !closed && !limited && alone.blocked();
            return if passing { Ticks::NEVER } else { due };
        }
        let others = match &self.delivery.pools {
            None if closed => self.turns.first_besides(index),
            None => None,
            Some(pools) => {
                let concerns = |other: usize| other != index && (closed || pools.concerns(other));
                self.busy().filter(|(_, other)| concerns(*other)).map(|(clock, _)| clock).min()
            }
        };
        others.map_or(due, |others| due.min(others))
    }

    /// True if no replica affects another one, or the requests that another one gets.
    pub(super) fn are_apart(&self, traffic: &Traffic) -> bool {
        let joined = self.delivery.attends()
            || self.watch.attends()
            || self.watch.counts_prefixes
            || !self.life.is_steady();
        let in_turn = self.router.routing() == Routing::RoundRobin;
        self.replicas.len() > 1 && !traffic.is_closed() && !joined && in_turn
    }

    /// Serves `traffic` on replicas that are apart: each runs up to the next request that it gets, and at last to its
    /// end. A run that ends because the SLO is certainly missed does so between requests, when replicas have come to different
    /// times.
    pub(super) fn serve_apart(
        &mut self,
        traffic: &mut Traffic,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut deliveries = 0_u64;
        let mut goes_on = |fleet: &mut Fleet| {
            deliveries += 1;
            let stops = deliveries.is_multiple_of(WATCHED) && !watch(fleet.results.ended());
            if stops {
                fleet.results.interrupt();
            }
            !stops && !fleet.results.missed()
        };
        while traffic.peek().is_some() {
            if !goes_on(self) {
                return Ok(());
            }
            self.deliver(traffic)?;
        }
        self.serve_queued(traffic)?;
        for index in 0..self.replicas.len() {
            if !goes_on(self) {
                return Ok(());
            }
            self.hand_in_until(index, Ticks::NEVER, traffic)?;
            self.catch_up(index, Ticks::NEVER, traffic)?;
        }
        Ok(())
    }

    /// Keeps a request for replica `index`, until there are several for each replica.
    #[inline(never)]
    pub(super) fn send_apart(
        &mut self,
        index: usize,
        request: (Arrival, Prompt),
        traffic: &mut Traffic,
    ) -> Result<()> {
        self.queued.resize_with(self.replicas.len(), Vec::new);
        self.queued[index].push(request);
        self.queued_count += 1;
        if self.queued_count < TOGETHER * self.replicas.len() { Ok(()) } else { self.serve_queued(traffic) }
    }

    /// Gives each replica its requests, up to the last of which the replica runs.
    fn serve_queued(&mut self, traffic: &mut Traffic) -> Result<()> {
        let mut queued = std::mem::take(&mut self.queued);
        for (index, requests) in queued.iter_mut().enumerate() {
            for (arrival, prompt) in requests.drain(..) {
                self.hand_in_until(index, arrival.at, traffic)?;
                self.catch_up(index, arrival.at, traffic)?;
                self.enter(index, arrival, prompt, traffic);
            }
        }
        (self.queued, self.queued_count) = (queued, 0);
        Ok(())
    }

    /// Moves the requests that leave the server of replica `index` until `until` to its engine.
    fn hand_in_until(&mut self, index: usize, until: Ticks, traffic: &mut Traffic) -> Result<()> {
        while let Some(IngestedRequest { arrival, prompt, .. }) = self.delivery.servers.pass_of(index, until)
        {
            self.catch_up(index, arrival.at, traffic)?;
            self.receive(index, arrival, prompt, traffic);
        }
        Ok(())
    }

    /// Runs the steps of a replica that start before `until`.
    #[inline(never)]
    fn catch_up(&mut self, index: usize, until: Ticks, traffic: &mut Traffic) -> Result<()> {
        while self.replicas[index].due().is_some_and(|clock| clock < until) {
            self.step(index, until, traffic)?;
        }
        Ok(())
    }
}
