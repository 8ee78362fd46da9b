//! Replicas behind a router, and the traffic that they serve.
//!
//! Knows: each request is delivered at its time to the replica that the router chooses, and takes part in steps that
//! start later; a client that receives its answer may send the next request. Knows nothing about policies or prices.
//! Functions that only pools and front-end servers use are `inline(never)`, for the reason that [`crate::engine`]
//! gives.

mod admission;
mod caches;
mod earliest;
mod events;
pub(crate) mod failures;
pub mod flow;
mod ingest;
mod oracle;
mod pools;
mod queue_order;
pub mod results;
mod scaling;
mod schedule;
mod turns;
mod way;

pub(crate) use admission::Admission;
pub use caches::FoundPrefixes;
pub(crate) use events::KvEvents;
pub use ingest::{Ingest, Servers};
pub(crate) use oracle::Oracle;
pub use oracle::OracleHits;
pub(crate) use pools::Pools;
pub use queue_order::QueueOrder;
pub use scaling::Scaling;
pub use way::TransferPath;

use crate::engine::Replica;
use crate::router::cache::RoutedRequest;
use crate::router::{self, Router};
use caches::Caches;
use earliest::Earliest;
use failures::{Change, Failures};
use ingest::IngestedRequest;
use results::Results;
use roofcast_ask::arrival::Arrival;
use roofcast_ask::arrival::Departure;
use roofcast_ask::workload::{Prompt, Request, Traffic};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::{Error, Result};

/// Number of steps and deliveries between two calls of the watcher that may stop the run.
const WATCHED: u64 = 1024;

/// Replicas, the router in front of them, and the results that clients see.
pub struct Fleet {
    /// The replicas.
    pub replicas: Vec<Box<dyn Replica>>,
    /// The router that chooses a replica for each request.
    pub(crate) router: Router,
    /// Sort order of queues.
    pub(crate) ranking: QueueOrder,
    /// Results that clients see.
    pub results: Results,
    /// Assignment of replicas to prefill and decode; `None` if every replica does both.
    pub(crate) pools: Option<Pools>,
    /// Autoscaling state; `None` if all replicas are always up.
    pub(crate) scaling: Option<Scaling>,
    /// Failures of replicas; `None` if all stay up.
    pub(crate) failures: Option<Failures>,
    /// Limits of the queues; `None` if queues are unlimited.
    pub(crate) admission: Option<Admission>,
    /// HTTP servers in front of the replicas; `None` if they add no time.
    pub(crate) servers: Option<Servers>,
    /// KV events that arrive late at the router; `None` if the router reads the caches of the replicas.
    pub(crate) events: Option<KvEvents>,
    /// Blocks of all requests, for the hits of an oracle; `None` if they are not kept.
    pub(crate) oracle: Option<Oracle>,
    /// True if the run counts the prompt tokens that are found in the caches of chosen replicas.
    pub(crate) counts_prefixes: bool,
    /// Prompt tokens found in the caches of chosen replicas.
    pub(crate) prefixes: FoundPrefixes,
    /// Indices of the replicas that accept requests.
    open: Vec<usize>,
    departures: Vec<Departure>,
    /// End times of the last steps of busy replicas, if there are several.
    turns: Earliest<Ticks>,
    /// True if no replica affects another one.
    apart: bool,
}

impl Fleet {
    /// Creates an idle fleet.
    pub fn new(
        replicas: Vec<Box<dyn Replica>>,
        router: Router,
        ranking: QueueOrder,
        results: Results,
    ) -> Fleet {
        let open = (0..replicas.len()).collect();
        let departures = Vec::new();
        let (pools, scaling, failures, admission, servers) = (None, None, None, None, None);
        let (events, oracle) = (None, None);
        let (counts_prefixes, prefixes) = (false, FoundPrefixes::default());
        let turns = Earliest::new(replicas.len());
        Fleet {
            replicas,
            router,
            ranking,
            results,
            pools,
            scaling,
            failures,
            admission,
            servers,
            events,
            oracle,
            counts_prefixes,
            prefixes,
            open,
            departures,
            turns,
            apart: false,
        }
    }

    /// Returns the fleet with disaggregated prefill and decode pools.
    pub(crate) fn apart(self, pools: Pools) -> Fleet {
        Fleet { open: pools.prefill().collect(), pools: Some(pools), ..self }
    }

    /// Returns the fleet with autoscaling.
    pub(crate) fn scaled(self, scaling: Scaling) -> Fleet {
        Fleet { scaling: Some(scaling), ..self }
    }

    /// Serves `traffic` until every request has ended, or until the SLO is certainly missed.
    pub fn serve(&mut self, traffic: &mut Traffic) -> Result<()> {
        self.serve_while(traffic, &mut |_| true)
    }

    /// Like [`Fleet::serve`], but stops when `watch` returns false; `watch` is called every [`WATCHED`] events with the
    /// number of ended requests.
    pub(crate) fn serve_while(
        &mut self,
        traffic: &mut Traffic,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        self.apart = self.are_apart(traffic);
        if self.apart {
            self.serve_apart(traffic, watch)?;
        } else {
            self.serve_together(traffic, watch)?;
        }
        let whole = !self.results.interrupted && !self.results.missed();
        if let Some(stuck) = self.replicas.iter().find(|r| whole && !r.is_empty()) {
            return Err(Error::Stuck { waiting: stuck.waiting() });
        }
        self.results.close();
        if let Some(failures) = &mut self.failures {
            failures.close(self.results.end);
        }
        if let Some(scaling) = &mut self.scaling {
            scaling.close(self.results.end, &|index| idle_since(self.replicas[index].as_ref()));
        }
        Ok(())
    }

    /// Serves `traffic` on replicas in one order of time.
    fn serve_together(&mut self, traffic: &mut Traffic, watch: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let mut events = 0_u64;
        (0..self.replicas.len()).for_each(|index| self.note_turn(index));
        // True if a step may change the next event: an answer may cause a request, a KV cache may move to another replica,
        // and failures end with the last answer.
        let brings = traffic.is_closed() || self.pools.is_some() || self.failures.is_some();
        let mut due = self.due(traffic);
        while !self.results.missed() {
            events += 1;
            if events.is_multiple_of(WATCHED) && !watch(self.results.completed + self.results.refused) {
                self.results.interrupt();
                break;
            }
            match self.behind() {
                Some((clock, index)) if clock < due => {
                    self.step(index, due, traffic)?;
                    if !brings {
                        continue;
                    }
                }
                None if due == Ticks::NEVER => break,
                _ => match &mut self.pools {
                    Some(pools) if pools.due() == due => pools.exchange(&mut self.replicas),
                    _ if self.failures.as_ref().is_some_and(|failures| failures.due() == due) => {
                        self.change(traffic)?
                    }
                    _ if self.servers.as_ref().is_some_and(|servers| servers.due() == due) => {
                        self.hand_in(traffic)?
                    }
                    _ => self.deliver(traffic)?,
                },
            }
            due = self.due(traffic);
        }
        Ok(())
    }

    /// Time of the next event: a request arrives, a front-end server releases one, a KV cache arrives, or a replica fails
    /// or returns.
    #[inline(always)]
    fn due(&self, traffic: &Traffic) -> Ticks {
        let comes = traffic.peek().map_or(Ticks::NEVER, Ticks::from);
        let moves = self.pools.as_ref().map_or(Ticks::NEVER, Pools::due);
        let passes = self.servers.as_ref().map_or(Ticks::NEVER, Servers::due);
        let next = comes.min(moves).min(passes);
        match &self.failures {
            Some(failures) if next < Ticks::NEVER || self.has_work(failures) => next.min(failures.due()),
            _ => next,
        }
    }

    /// True if a request waits for a replica or is on one.
    #[inline(never)]
    fn has_work(&self, failures: &Failures) -> bool {
        !failures.parked.is_empty() || self.replicas.iter().any(|replica| !replica.is_empty())
    }

    /// Runs one step or one leap of a replica, and returns answers to the clients.
    #[inline(always)]
    fn step(&mut self, index: usize, due: Ticks, traffic: &mut Traffic) -> Result<()> {
        let horizon = self.horizon(index, due, traffic.is_closed());
        let replica = &mut self.replicas[index];
        if let Some(admission) = &mut self.admission {
            admission.begin(index, replica.as_ref());
        }
        let went = replica.step(horizon, &mut self.departures);
        if let Some(events) = &mut self.events {
            events.publish(index, replica.as_mut());
        }
        let waits = self.pools.as_mut().is_some_and(|pools| {
            pools.fetch(index, replica.as_mut());
            !went && pools.stall(index)
        });
        if !went && !waits {
            return Err(Error::Stuck { waiting: replica.waiting() });
        }
        let clock = replica.clock();
        self.note_turn(index);
        if self.departures.is_empty() {
            return Ok(());
        }
        for gone in &self.departures {
            if let Some(pools) = &mut self.pools
                && pools.hand_over(gone, clock, index)
            {
                continue;
            }
            self.oracle.iter_mut().for_each(|oracle| oracle.end(gone));
            if let Some(failures) = &mut self.failures {
                failures.release(index, gone.arrival.number);
            }
            if gone.failed {
                self.results.lose(&gone.arrival, clock, true);
                traffic.refused(gone.arrival.user, clock.picoseconds());
                continue;
            }
            self.results.finish(gone, clock, index);
            traffic.completed(gone.arrival.user, clock.picoseconds(), gone.arrival.output_segment);
        }
        self.departures.clear();
        Ok(())
    }

    /// Delivers the next request to the server of the replica that the router chooses.
    #[inline(always)]
    fn deliver(&mut self, traffic: &mut Traffic) -> Result<()> {
        let Some(request) = traffic.next() else { return Ok(()) };
        let arrival = self.results.arrive(&request, self.ranking.key(&request));
        if let Some(scaling) = &mut self.scaling {
            let load = |index: usize| in_flight(&self.replicas, &self.servers, index);
            let in_flight = (0..self.replicas.len()).map(load).sum();
            let idle = |index: usize| idle_since(self.replicas[index].as_ref()).filter(|_| load(index) == 0);
            let starting = scaling.look(arrival.sent, in_flight, &idle, &mut self.open);
            for index in starting {
                self.replicas[index].restart();
                self.note_turn(index);
                self.events.iter_mut().for_each(|events| events.forget(index));
            }
        }
        self.send_or_park(arrival, request.prompt, traffic)
    }

    /// Sends a request to the server of the replica that the router chooses.
    #[inline(always)]
    fn send(&mut self, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) -> Result<()> {
        let index = if self.open.len() > 1 && (self.router.weighs_caches() || self.counts_prefixes) {
            self.choose_by_cache(&arrival, &prompt)
        } else {
            let load = |index: usize| in_flight(&self.replicas, &self.servers, index);
            self.router.choose(arrival.user, router::prefix(&prompt), load, &self.open)
        };
        if let Some(failures) = &mut self.failures {
            failures.hold(index, arrival, prompt.clone());
        }
        match &mut self.servers {
            Some(servers) => {
                servers.take(index, arrival, prompt);
                Ok(())
            }
            None => self.receive(index, arrival, prompt, traffic),
        }
    }

    /// Applies a failure or the return of a replica: lost requests are sent again or fail, and a replica that returns
    /// accepts the requests that waited for one.
    #[inline(never)]
    fn change(&mut self, traffic: &mut Traffic) -> Result<()> {
        let Some(failures) = &mut self.failures else { return Ok(()) };
        let Some((at, change)) = failures.change() else { return Ok(()) };
        self.open.clear();
        self.open.extend(failures.up());
        let again = match change {
            Change::Fails(index) => {
                self.replicas[index].restart();
                self.turns.set(index, None);
                if let Some(servers) = &mut self.servers {
                    servers.restart(index);
                }
                let lost = failures.lost(index);
                if !failures.retry {
                    for (arrival, _) in &lost {
                        self.results.lose(arrival, at, false);
                        traffic.refused(arrival.user, at.picoseconds());
                    }
                    return Ok(());
                }
                failures.retried += lost.len() as u64;
                lost
            }
            Change::Returns(_) => std::mem::take(&mut failures.parked),
        };
        for (arrival, prompt) in again {
            self.send_or_park(Arrival { at, ..arrival }, prompt, traffic)?;
        }
        Ok(())
    }

    /// Sends a request, or keeps it until a replica returns if all are down.
    #[inline(always)]
    fn send_or_park(&mut self, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) -> Result<()> {
        match &mut self.failures {
            Some(failures) if self.open.is_empty() => {
                failures.parked.push((arrival, prompt));
                Ok(())
            }
            _ => self.send(arrival, prompt, traffic),
        }
    }

    /// Lets the router choose a replica by the contents of the caches, and counts the prompt tokens that the choice
    /// finds there.
    #[inline(never)]
    fn choose_by_cache(&mut self, arrival: &Arrival, prompt: &Prompt) -> usize {
        let known = self.events.as_mut().map_or(Vec::new(), |events| {
            events.receive(arrival.at);
            events.known(prompt)
        });
        let seen = Caches { replicas: &self.replicas, servers: &self.servers, prompt, known };
        let asked = RoutedRequest {
            user: arrival.user,
            prompt,
            input: u64::from(arrival.input),
            adapter: arrival.adapter,
        };
        let index = self.router.choose_by_cache(&asked, &seen, &self.open);
        self.prefixes.add(asked.input, index, &self.open, &seen);
        index
    }

    /// Moves a request from its front-end server to the engine.
    fn hand_in(&mut self, traffic: &mut Traffic) -> Result<()> {
        match self.servers.as_mut().and_then(Servers::pass) {
            Some(IngestedRequest { index, arrival, prompt }) => self.receive(index, arrival, prompt, traffic),
            None => Ok(()),
        }
    }

    /// Queues a request on replica `index`, or refuses the request.
    #[inline(always)]
    fn receive(
        &mut self,
        index: usize,
        arrival: Arrival,
        prompt: Prompt,
        traffic: &mut Traffic,
    ) -> Result<()> {
        if self.apart {
            self.catch_up(index, arrival.at, traffic)?;
        }
        let decoded = self.pools.as_ref().is_none_or(|pools| pools.serves(&self.replicas, &arrival));
        let replica = &mut self.replicas[index];
        let served = decoded && replica.serves(&arrival);
        let accepts = |admission: &mut Admission| admission.accepts(index, replica.as_ref(), &arrival);
        if served && self.admission.as_mut().is_none_or(accepts) {
            if replica.is_empty() {
                replica.wait_until(arrival.at);
            }
            if let Some(oracle) = &mut self.oracle {
                oracle.arrive(arrival.number, u64::from(arrival.input), &prompt);
            }
            replica.arrive(arrival, prompt);
        } else {
            if let Some(failures) = &mut self.failures {
                failures.release(index, arrival.number);
            }
            self.results.refuse(&arrival, served);
            traffic.refused(arrival.user, arrival.at.picoseconds());
        }
        self.note_turn(index);
        Ok(())
    }
}

/// Number of requests on a replica and in its server.
fn in_flight(replicas: &[Box<dyn Replica>], servers: &Option<Servers>, index: usize) -> u64 {
    replicas[index].in_flight() + servers.as_ref().map_or(0, |servers| servers.inside(index))
}

/// Time at which a replica became idle; `None` if it has work.
fn idle_since(replica: &dyn Replica) -> Option<Ticks> {
    replica.is_empty().then(|| replica.clock())
}

/// A request in the form that an engine receives.
pub(crate) fn arrival(number: u64, request: &Request, key: i64) -> Arrival {
    Arrival {
        number,
        sent: Ticks::from(request.at),
        at: Ticks::from(request.at),
        input: request.input_len,
        output: request.output_len,
        max_tokens: request.max_tokens.map_or(request.output_len, |bound| bound.max(request.output_len)),
        ignore_eos: request.max_tokens.is_none(),
        key,
        class: request.class,
        adapter: request.adapter,
        user: request.user,
        output_segment: 0,
    }
}
