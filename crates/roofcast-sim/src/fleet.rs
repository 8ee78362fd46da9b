//! Replicas behind a router, and the traffic that they serve.
//!
//! Knows: each request is delivered at its time to the replica that the router chooses, and takes part in steps that
//! start later; a client that receives its answer may send the next request. Knows nothing about policies or prices.
//! Functions that only pools and front-end servers use are `inline(never)`, for the reason that [`crate::engine`]
//! gives.

mod admission;
mod caches;
mod delivery;
mod earliest;
mod events;
pub(crate) mod failures;
pub mod flow;
mod ingest;
mod life;
mod links;
mod oracle;
mod pools;
mod queue_order;
mod rate_limit;
pub mod results;
mod scaling;
mod schedule;
mod turns;
mod watch;
mod way;

pub(crate) use admission::Admission;
pub use caches::FoundPrefixes;
pub(crate) use delivery::Delivery;
pub(crate) use events::KvEvents;
pub use ingest::{Ingest, Servers};
pub(crate) use life::Life;
pub(crate) use oracle::Oracle;
pub use oracle::OracleHits;
pub(crate) use pools::Pools;
pub use queue_order::QueueOrder;
pub use rate_limit::OversizedRequests;
pub(crate) use rate_limit::RateLimit;
pub use scaling::Scaling;
pub(crate) use watch::Watch;
pub use way::TransferPath;

use crate::engine::Replica;
use crate::router::cache::RoutedRequest;
use crate::router::{self, Router};
use caches::Caches;
use earliest::Earliest;
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
    /// The way of a request to an engine, and of its KV cache between engines.
    pub(crate) delivery: Delivery,
    /// Starts, stops and failures of replicas.
    pub(crate) life: Life,
    /// Observers of the caches.
    pub(crate) watch: Watch,
    /// Indices of the replicas that accept requests.
    open: Vec<usize>,
    departures: Vec<Departure>,
    /// End times of the last steps of busy replicas, if there are several.
    turns: Earliest<Ticks>,
    /// True if no replica affects another one.
    apart: bool,
    /// Requests for replicas that affect no other one, by replica, and their number.
    queued: Vec<Vec<(Arrival, Prompt)>>,
    queued_count: usize,
    /// True if a part of the fleet takes part in each step: pools, queue limits, failures, KV events or an oracle.
    attended: bool,
}

impl Fleet {
    /// Creates an idle fleet.
    pub fn new(
        replicas: Vec<Box<dyn Replica>>,
        router: Router,
        ranking: QueueOrder,
        results: Results,
    ) -> Fleet {
        Fleet {
            open: (0..replicas.len()).collect(),
            turns: Earliest::new(replicas.len()),
            replicas,
            router,
            ranking,
            results,
            delivery: Delivery::default(),
            life: Life::default(),
            watch: Watch::default(),
            departures: Vec::new(),
            apart: false,
            queued: Vec::new(),
            queued_count: 0,
            attended: false,
        }
    }

    /// Returns the fleet with its parts.
    pub(crate) fn with(self, delivery: Delivery, life: Life, watch: Watch) -> Fleet {
        let accepting = delivery.pools.as_ref().map_or(0..self.replicas.len(), Pools::prefill);
        Fleet { open: accepting.collect(), delivery, life, watch, ..self }
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
        self.attended = self.delivery.attends() || self.life.attends() || self.watch.attends();
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
        let end = self.life.end().max(self.results.end);
        self.life.close(end, &|index| idle_since(self.replicas[index].as_ref()));
        Ok(())
    }

    /// Serves `traffic` on replicas in one order of time.
    fn serve_together(&mut self, traffic: &mut Traffic, watch: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let mut events = 0_u64;
        (0..self.replicas.len()).for_each(|index| self.note_turn(index));
        // True if a step may change the next event: an answer may cause a request, a KV cache may move to another replica,
        // and failures end with the last answer.
        let brings = traffic.is_closed() || self.delivery.pools.is_some() || self.life.attends();
        let mut due = self.due(traffic);
        while !self.results.missed() {
            events += 1;
            if events.is_multiple_of(WATCHED) && !watch(self.results.ended()) {
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
                _ if self.attended && self.delivery.exchanges(due) => {
                    self.delivery.exchange(&mut self.replicas);
                }
                _ if self.attended && self.life.due() == due => self.change(traffic)?,
                _ if self.delivery.servers.due() == due => self.hand_in(traffic),
                _ => self.deliver(traffic)?,
            }
            due = self.due(traffic);
        }
        Ok(())
    }

    /// Time of the next event: a request arrives, a front-end server releases one, a KV cache arrives, a replica fails or
    /// returns, or an autoscaler decides.
    #[inline(always)]
    fn due(&self, traffic: &Traffic) -> Ticks {
        let comes = traffic.peek().map_or(Ticks::NEVER, Ticks::from);
        let next = comes.min(self.delivery.servers.due());
        if self.attended { self.due_with_parts(next) } else { next }
    }

    /// Time of the next event, if `next` is that of the next request. Failures and decisions end with the last answer.
    #[inline(never)]
    fn due_with_parts(&self, next: Ticks) -> Ticks {
        let next = next.min(self.delivery.due());
        let change = self.life.due();
        let lives = || {
            next < Ticks::NEVER
                || self.life.has_parked()
                || self.replicas.iter().any(|replica| !replica.is_empty())
        };
        if change < next && lives() { change } else { next }
    }

    /// Runs one step or one leap of a replica, and returns answers to the clients.
    #[inline(always)]
    fn step(&mut self, index: usize, due: Ticks, traffic: &mut Traffic) -> Result<()> {
        let horizon = self.horizon(index, due, traffic.is_closed());
        if self.attended {
            self.delivery.begin(index, self.replicas[index].as_ref());
        }
        let replica = &mut self.replicas[index];
        let went = replica.step(horizon, &mut self.departures);
        let waits = self.attended && {
            if replica.has_leapt() {
                self.delivery.begin(index, replica.as_ref());
            }
            self.watch.publish(index, replica.as_mut());
            self.delivery.fetch(index, replica.as_mut(), went)
        };
        if !went && !waits {
            return Err(Error::Stuck { waiting: replica.waiting() });
        }
        let clock = replica.clock();
        self.note_turn(index);
        if self.departures.is_empty() {
            return Ok(());
        }
        if self.attended {
            self.delivery.hand_over(&mut self.departures, clock, index);
            self.watch.end(&self.departures);
            self.life.release(index, &self.departures);
        }
        for gone in &self.departures {
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
        if self.delivery.rate_limit.as_mut().is_some_and(|limit| !limit.admits(&arrival)) {
            self.results.refuse(&arrival, true);
            traffic.refused(arrival.user, arrival.at.picoseconds());
            return Ok(());
        }
        self.scale(arrival.sent);
        self.send_or_park(arrival, request.prompt, traffic)
    }

    /// Sends a request to the server of the replica that the router chooses.
    #[inline(always)]
    fn send(&mut self, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) -> Result<()> {
        let load = |index: usize| in_flight(&self.replicas, &self.delivery.servers, index);
        let alone = self.delivery.pools.as_mut().and_then(|pools| pools.alone(&arrival, load));
        let index = if let Some(index) = alone {
            index
        } else if self.open.len() > 1 && (self.router.weighs_caches() || self.watch.counts_prefixes) {
            self.choose_by_cache(&arrival, &prompt)
        } else {
            let load = |index: usize| in_flight(&self.replicas, &self.delivery.servers, index);
            self.router.choose(arrival.user, router::prefix(&prompt), load, &self.open)
        };
        self.life.hold(index, arrival, &prompt);
        if self.apart {
            return self.send_apart(index, (arrival, prompt), traffic);
        }
        self.enter(index, arrival, prompt, traffic);
        Ok(())
    }

    /// Gives a request to the server of replica `index`, whose steps until then have been run; to its engine if there is no server.
    #[inline(always)]
    fn enter(&mut self, index: usize, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) {
        if self.delivery.servers.are_absent() {
            return self.receive(index, arrival, prompt, traffic);
        }
        let replica = &self.replicas[index];
        let running = replica.in_flight().saturating_sub(replica.waiting());
        self.delivery.servers.take(index, running, arrival, prompt);
    }

    /// Sends a request, or keeps it until a replica starts or returns if all are down.
    #[inline(always)]
    fn send_or_park(&mut self, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) -> Result<()> {
        if self.open.is_empty()
            && let Some(parked) = self.life.parked()
        {
            parked.push((arrival, prompt));
            return Ok(());
        }
        self.send(arrival, prompt, traffic)
    }

    /// Lets the router choose a replica by the contents of the caches, and counts the prompt tokens that the choice
    /// finds there.
    #[inline(never)]
    fn choose_by_cache(&mut self, arrival: &Arrival, prompt: &Prompt) -> usize {
        let known = self.watch.known(arrival.at, prompt);
        let seen = Caches { replicas: &self.replicas, servers: &self.delivery.servers, prompt, known };
        let routed = RoutedRequest {
            user: arrival.user,
            prompt,
            input: u64::from(arrival.input),
            adapter: arrival.adapter,
        };
        let index = self.router.choose_by_cache(&routed, &seen, &self.open);
        self.watch.prefixes.add(routed.input, index, &self.open, &seen);
        index
    }

    /// Moves a request from its front-end server to the engine.
    fn hand_in(&mut self, traffic: &mut Traffic) {
        if let Some(IngestedRequest { index, arrival, prompt }) = self.delivery.servers.pass() {
            self.receive(index, arrival, prompt, traffic);
        }
    }

    /// Queues a request on replica `index`, or refuses the request.
    #[inline(always)]
    fn receive(&mut self, index: usize, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) {
        let attended = self.attended;
        let served = self.replicas[index].serves(&arrival)
            && (!attended || self.delivery.serves(&self.replicas, &arrival));
        let accepts =
            |delivery: &mut Delivery, replica: &dyn Replica| delivery.accepts(index, replica, &arrival);
        if served && (!attended || accepts(&mut self.delivery, self.replicas[index].as_ref())) {
            if let Some(pools) = &mut self.delivery.pools {
                pools.receive(index, arrival.at, &mut self.replicas);
            }
            let replica = &mut self.replicas[index];
            if replica.is_empty() {
                replica.wait_until(arrival.at);
            }
            if attended {
                self.watch.arrive(&arrival, &prompt);
            }
            replica.arrive(arrival, prompt);
        } else {
            self.life.forget(index, arrival.number);
            self.results.refuse(&arrival, served);
            traffic.refused(arrival.user, arrival.at.picoseconds());
        }
        self.note_turn(index);
    }
}

/// Number of requests on a replica and in its server.
fn in_flight(replicas: &[Box<dyn Replica>], servers: &Servers, index: usize) -> u64 {
    replicas[index].in_flight() + servers.inside(index)
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
