//! Replicas behind a router, and the traffic that they serve.
//!
//! Knows: requests are delivered at their times to the replica that the router chooses, a step that starts later sees
//! them, and a client with its answer may send the next. Knows nothing about policies or prices. What only pools and servers
//! in front need is `inline(never)`, for the reason that [`crate::engine`] gives.

mod admission;
mod flow;
mod ingest;
mod pools;
pub mod results;
mod scaling;
mod way;

pub use admission::Admission;
pub use ingest::{Ingest, Servers};
pub use pools::Pools;
pub use scaling::Scaling;
pub use way::Way;

use crate::engine::arrival::Arrival;
use crate::engine::clock::Ticks;
use crate::engine::{Departure, Replica};
use crate::error::{Error, Result};
use crate::router::{self, Router};
use crate::spec::{EngineSpec, QueuePolicy};
use crate::workload::prediction::Guesses;
use crate::workload::{Prompt, Request, Traffic};
use ingest::Passing;
use results::Results;

/// Steps and deliveries from one look at whether to go on to the next.
const WATCHED: u64 = 1024;

/// Replicas, the router that chooses among them, and what clients see.
pub struct Fleet {
    /// The replicas.
    pub replicas: Vec<Box<dyn Replica>>,
    /// The choice among them.
    pub router: Router,
    /// What queues sort by.
    pub ranking: Ranking,
    /// What clients see.
    pub results: Results,
    /// Which replicas compute prompts and which decode, where those are not the same.
    pub pools: Option<Pools>,
    /// Which replicas are up, where that varies.
    pub scaling: Option<Scaling>,
    /// Which requests are refused, where queues have limits.
    pub admission: Option<Admission>,
    /// The servers in front of the replicas, where they take time.
    pub servers: Option<Servers>,
    /// Replicas that take requests.
    open: Vec<usize>,
    departures: Vec<Departure>,
}

impl Fleet {
    /// An idle fleet.
    pub fn new(replicas: Vec<Box<dyn Replica>>, router: Router, ranking: Ranking, results: Results) -> Fleet {
        let open = (0..replicas.len()).collect();
        let departures = Vec::new();
        let (pools, scaling, admission, servers) = (None, None, None, None);
        Fleet { replicas, router, ranking, results, pools, scaling, admission, servers, open, departures }
    }

    /// The same with prefill and decode apart.
    pub fn apart(self, pools: Pools) -> Fleet {
        Fleet { open: pools.prefill().collect(), pools: Some(pools), ..self }
    }

    /// The same with replicas that start and stop.
    pub fn scaled(self, scaling: Scaling) -> Fleet {
        Fleet { scaling: Some(scaling), ..self }
    }

    /// Serves `traffic` until every request has ended, or the results are decided before.
    pub fn serve(&mut self, traffic: &mut Traffic) -> Result<()> {
        self.serve_while(traffic, &mut |_| true)
    }

    /// The same, or until `watch` says no, which hears now and then how many requests have ended.
    pub fn serve_while(&mut self, traffic: &mut Traffic, watch: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let mut events = 0_u64;
        // Whether a step moves the next event: an answer brings a request, or a cache goes to another replica.
        let brings = traffic.is_closed() || self.pools.is_some();
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
                    _ if self.servers.as_ref().is_some_and(|servers| servers.due() == due) => {
                        self.hand_in(traffic)
                    }
                    _ => self.deliver(traffic),
                },
            }
            due = self.due(traffic);
        }
        let whole = !self.results.interrupted && !self.results.missed();
        if let Some(stuck) = self.replicas.iter().find(|r| whole && !r.is_empty()) {
            return Err(Error::Stuck { waiting: stuck.waiting() });
        }
        self.results.close();
        if let Some(scaling) = &mut self.scaling {
            scaling.close(self.results.end, &|index| idle_since(self.replicas[index].as_ref()));
        }
        Ok(())
    }

    /// When the next request comes, a server is done with one or a cache is there.
    #[inline(always)]
    fn due(&self, traffic: &Traffic) -> Ticks {
        let comes = traffic.peek().map_or(Ticks::NEVER, Ticks::from);
        let moves = self.pools.as_ref().map_or(Ticks::NEVER, Pools::due);
        let passes = self.servers.as_ref().map_or(Ticks::NEVER, Servers::due);
        comes.min(moves).min(passes)
    }

    /// The replica with work whose last step ended first, and when.
    #[inline(always)]
    fn behind(&self) -> Option<(Ticks, usize)> {
        if let [alone] = self.replicas.as_slice() {
            return alone.due().map(|clock| (clock, 0));
        }
        self.busy().min()
    }

    /// Replicas with something to compute, and when their last steps ended.
    fn busy(&self) -> impl Iterator<Item = (Ticks, usize)> {
        let works = |index: usize| self.pools.as_ref().is_none_or(|p| !p.is_stalled(index));
        let replicas = self.replicas.iter().enumerate();
        replicas.filter_map(move |(index, replica)| Some((replica.due()?, index)).filter(|_| works(index)))
    }

    /// One step, or a leap, of a replica; answers go back to their clients.
    #[inline(always)]
    fn step(&mut self, index: usize, due: Ticks, traffic: &mut Traffic) -> Result<()> {
        let horizon = self.horizon(index, due, traffic.is_closed());
        let replica = &mut self.replicas[index];
        if let Some(admission) = &mut self.admission {
            admission.begin(index, replica.as_ref());
        }
        let went = replica.step(horizon, &mut self.departures);
        let waits = self.pools.as_mut().is_some_and(|pools| {
            pools.fetch(index, replica.as_mut());
            !went && pools.stall(index)
        });
        if !went && !waits {
            return Err(Error::Stuck { waiting: replica.waiting() });
        }
        if self.departures.is_empty() {
            return Ok(());
        }
        let clock = replica.clock();
        for gone in &self.departures {
            if let Some(pools) = &mut self.pools
                && pools.hand_over(gone, clock, index)
            {
                continue;
            }
            self.results.finish(gone, clock, index);
            traffic.completed(gone.arrival.user, clock.picoseconds(), gone.arrival.output_segment);
        }
        self.departures.clear();
        Ok(())
    }

    /// Until when a replica may leap: to the next arrival, and in a closed loop no further than the others, whose
    /// answers may bring requests; nor further than replicas whose prompts it may be handed. Where a lone replica has a
    /// queue in order of arrival without limits, a waiting request changes nothing until a running one leaves; in a
    /// closed loop even a refusal does, since the next request follows it.
    #[inline(always)]
    fn horizon(&self, index: usize, due: Ticks, closed: bool) -> Ticks {
        if let [alone] = self.replicas.as_slice() {
            let passing = !closed && self.admission.is_none() && alone.blocked();
            return if passing { Ticks::NEVER } else { due };
        }
        let concerns = |other: usize| {
            other != index && (closed || self.pools.as_ref().is_some_and(|pools| pools.concerns(other)))
        };
        let others = self.busy().filter(|(_, other)| concerns(*other)).map(|(clock, _)| clock).min();
        others.map_or(due, |others| due.min(others))
    }

    /// The next request comes to the server of the replica that the router chooses.
    #[inline(always)]
    fn deliver(&mut self, traffic: &mut Traffic) {
        let Some(request) = traffic.next() else { return };
        let arrival = self.results.arrive(&request, self.ranking.key(&request));
        let load = |replicas: &[Box<dyn Replica>], servers: &Option<Servers>, index: usize| {
            replicas[index].in_flight() + servers.as_ref().map_or(0, |servers| servers.inside(index))
        };
        if let Some(scaling) = &mut self.scaling {
            let load = |index: usize| load(&self.replicas, &self.servers, index);
            let in_flight = (0..self.replicas.len()).map(load).sum();
            let idle = |index: usize| idle_since(self.replicas[index].as_ref()).filter(|_| load(index) == 0);
            let starting = scaling.look(arrival.sent, in_flight, &idle, &mut self.open);
            starting.into_iter().for_each(|index| self.replicas[index].restart());
        }
        let load = |index: usize| load(&self.replicas, &self.servers, index);
        let prefix = router::prefix(&request.prompt);
        let index = self.router.choose(request.user, prefix, load, &self.open);
        match &mut self.servers {
            Some(servers) => servers.take(index, arrival, request.prompt),
            None => self.receive(index, arrival, request.prompt, traffic),
        }
    }

    /// A server is done with a request.
    fn hand_in(&mut self, traffic: &mut Traffic) {
        if let Some(Passing { index, arrival, prompt }) = self.servers.as_mut().and_then(Servers::pass) {
            self.receive(index, arrival, prompt, traffic);
        }
    }

    /// Replica `index` has a request, or refuses it.
    #[inline(always)]
    fn receive(&mut self, index: usize, arrival: Arrival, prompt: Prompt, traffic: &mut Traffic) {
        let decoded = self.pools.as_ref().is_none_or(|pools| pools.serves(&self.replicas, &arrival));
        let replica = &mut self.replicas[index];
        let served = decoded && replica.serves(&arrival);
        let accepts = |admission: &mut Admission| admission.accepts(index, replica.as_ref(), &arrival);
        if served && self.admission.as_mut().is_none_or(accepts) {
            if replica.is_empty() {
                replica.wait_until(arrival.at);
            }
            replica.arrive(arrival, prompt);
        } else {
            self.results.refuse(&arrival, served);
            traffic.refused(arrival.user, arrival.at.picoseconds());
        }
    }
}

/// Since when a replica has nothing to do, where it has nothing.
fn idle_since(replica: &dyn Replica) -> Option<Ticks> {
    replica.is_empty().then(|| replica.clock())
}

/// What a queue sorts by.
#[derive(Debug, Clone)]
pub enum Ranking {
    /// Arrival alone.
    Arrival,
    /// The request's priority.
    Priority,
    /// Its output's length, as far as it is known.
    Length(Box<Guesses>),
}

impl Ranking {
    /// The ranking of a spec's queue; `seed` of the predictions' errors.
    pub fn new(spec: &EngineSpec, seed: u64) -> Ranking {
        match spec.policy {
            QueuePolicy::Fcfs if spec.enable_priority_scheduling == Some(true) => Ranking::Priority,
            QueuePolicy::Fcfs => Ranking::Arrival,
            QueuePolicy::Priority => Ranking::Priority,
            QueuePolicy::Sjf => Ranking::Length(Box::new(Guesses::new(spec.length_prediction, seed))),
        }
    }

    fn key(&mut self, request: &Request) -> i64 {
        match self {
            Ranking::Arrival => 0,
            Ranking::Priority => i64::from(request.priority),
            Ranking::Length(guesses) => guesses.next(request.output_len),
        }
    }
}

/// A request as an engine takes it.
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
        user: request.user,
        output_segment: 0,
    }
}
