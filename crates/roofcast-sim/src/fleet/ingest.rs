//! The HTTP servers in front of the engines: the time that a request spends there before its engine receives it.
//!
//! Knows: a Python server reads and tokenizes one request after another, in `ingest + n · ingest_token` seconds for a
//! prompt of n tokens, and then adds a latency of `request` seconds, in which requests overlap. Several processes of a
//! server read as many requests at a time; the one that is free first takes the next. A first token waits for half of the
//! message that brings it with the tokens of all running requests, as does every later one, so that the wait is added
//! once, before the engine. A compiled server adds half of `request`, and requests never wait for each other. All are
//! host times, which a slower host lengthens. Knows nothing about how an engine serves a request.

use super::earliest::Earliest;
use roofcast_ask::arrival::Arrival;
use roofcast_ask::spec::CostKind;
use roofcast_ask::workload::Prompt;
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;
use std::collections::VecDeque;

/// Latency per request of a compiled server, over that of a Python server: 2 of 4 ms (vLLM's Rust front end, Dynamo).
const COMPILED: f64 = 0.5;

/// The server of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Ingest {
    /// Seconds per request during which the server reads no other request.
    each: f64,
    /// Seconds per prompt token during which the server reads no other request.
    token: f64,
    /// Latency from the end of reading until the engine has the request; overlaps with the latency of other requests.
    latency: Ticks,
    /// Seconds for which a token waits per running request of the replica: half of the time to stream one of theirs.
    stream: f64,
    /// Time at which each process of the server finishes reading its last request.
    free: Vec<Ticks>,
}

impl Ingest {
    /// An idle server; `None` if times are limits, or if the engine is called in process.
    pub fn of(forecaster: &Forecaster, cost: CostKind) -> Option<Ingest> {
        let deployment = &forecaster.deployment;
        if cost == CostKind::Limit || !deployment.engine.served {
            return None;
        }
        let times = forecaster.coefficients.engine.scaled(forecaster.coefficients.factor);
        let compiled = !deployment.engine.has_python_server();
        let seconds = |seconds: f64| seconds / deployment.accelerator.host_speed;
        // A compiled server has enough threads that no request waits, and half of the latency per request.
        let python = |s: f64| if compiled { 0.0 } else { seconds(s) };
        let latency = seconds(times.request) * if compiled { COMPILED } else { 1.0 };
        Some(Ingest {
            each: python(times.request_serial),
            token: python(times.prompt_token),
            latency: Picoseconds::from_seconds(latency).into(),
            stream: forecaster.half_a_stream(),
            free: vec![Ticks::ZERO; deployment.server_processes() as usize],
        })
    }

    /// Time at which a request of `tokens` prompt tokens that arrives at `at` reaches its engine's queue, if `running` requests
    /// of the replica stream tokens. Calls must be in order of time.
    pub fn pass(&mut self, at: Ticks, tokens: u64, running: u64) -> Ticks {
        let reading = self.reading(tokens);
        let Some(free) = self.free.iter_mut().min() else { return at };
        *free = (*free).max(at) + reading;
        *free + self.latency + Picoseconds::from_seconds(self.stream * running as f64).into()
    }

    /// Time that the server adds to a request that arrives while the server is idle.
    pub fn alone(&self, tokens: u64) -> Ticks {
        self.reading(tokens) + self.latency
    }

    fn reading(&self, tokens: u64) -> Ticks {
        Picoseconds::from_seconds(self.each + self.token * tokens as f64).into()
    }
}

/// A request on its way through a server.
#[derive(Debug)]
pub(super) struct IngestedRequest {
    pub(super) index: usize,
    pub(super) arrival: Arrival,
    pub(super) prompt: Prompt,
}

/// The servers of all replicas, with the requests in them; none if they add no time.
#[derive(Debug)]
pub struct Servers {
    each: Vec<Server>,
    /// Time and number of the next request to leave each server.
    next: Earliest<(Ticks, u64)>,
}

/// One server, with the requests in it in the order in which they leave.
#[derive(Debug)]
struct Server {
    ingest: Ingest,
    inside: VecDeque<IngestedRequest>,
}

impl Servers {
    /// Idle servers, one for each replica, or none.
    pub(crate) fn new(each: Vec<Ingest>) -> Servers {
        let idle = |ingest| Server { ingest, inside: VecDeque::new() };
        let each: Vec<Server> = each.into_iter().map(idle).collect();
        Servers { next: Earliest::new(each.len()), each }
    }

    /// True if requests reach the engines at once.
    pub(super) fn are_absent(&self) -> bool {
        self.each.is_empty()
    }

    /// Time at which the next request reaches its engine, or never.
    pub(super) fn due(&self) -> Ticks {
        self.next.first().map_or(Ticks::NEVER, |((at, _), _)| at)
    }

    /// Number of requests in the server of replica `index`.
    pub(super) fn inside(&self, index: usize) -> u64 {
        self.each.get(index).map_or(0, |server| server.inside.len() as u64)
    }

    /// Prompt tokens of the requests in the server of replica `index`.
    pub(super) fn prompt_tokens(&self, index: usize) -> u64 {
        let inside = self.each.get(index).into_iter().flat_map(|server| &server.inside);
        inside.map(|request| u64::from(request.arrival.input)).sum()
    }

    /// Adds a request to the server of replica `index`, which streams the tokens of `running` requests.
    #[inline(never)]
    pub(super) fn take(&mut self, index: usize, running: u64, arrival: Arrival, prompt: Prompt) {
        let server = &mut self.each[index];
        let at = server.ingest.pass(arrival.at, u64::from(arrival.input), running);
        let arrival = Arrival { at, ..arrival };
        // A short prompt in one process overtakes a long one in another.
        let place = server.inside.partition_point(|earlier| earlier.arrival.at <= at);
        server.inside.insert(place, IngestedRequest { index, arrival, prompt });
        self.note_next(index);
    }

    /// Removes the request that reaches its engine next.
    #[inline(never)]
    pub(super) fn pass(&mut self) -> Option<IngestedRequest> {
        let (_, index) = self.next.first()?;
        let passing = self.each[index].inside.pop_front();
        self.note_next(index);
        passing
    }

    /// Removes the request that leaves the server of replica `index` next, if it does until `until`.
    pub(super) fn pass_of(&mut self, index: usize, until: Ticks) -> Option<IngestedRequest> {
        let inside = &mut self.each.get_mut(index)?.inside;
        inside.front().filter(|next| next.arrival.at <= until)?;
        let passing = inside.pop_front();
        self.note_next(index);
        passing
    }

    /// Drops the requests in the server of replica `index`.
    pub(super) fn restart(&mut self, index: usize) {
        if let Some(server) = self.each.get_mut(index) {
            server.inside.clear();
            self.note_next(index);
        }
    }

    /// Records the next request to leave server `index`.
    fn note_next(&mut self, index: usize) {
        let first = self.each[index].inside.front();
        self.next.set(index, first.map(|passing| (passing.arrival.at, passing.arrival.number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_ask::spec::{EngineSpec, Frontend};
    use roofcast_facts::Catalog;
    use roofcast_facts::accelerator::Accelerator;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    fn ms(ms: f64) -> Ticks {
        Picoseconds::from_seconds(ms / 1e3).into()
    }

    /// A compiled server adds half of `request`; a Python server reads 1000 tokens and then adds its whole latency.
    #[test]
    fn a_compiled_server_takes_its_latency_alone() {
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let served = |frontend, chip: &Arc<Accelerator>| {
            let engine = EngineSpec { frontend, ..Default::default() };
            let options = DeploymentOptions { engine, ..Default::default() };
            let deployment = Deployment::resolve(model.clone(), chip.clone(), &options).unwrap();
            let forecaster = Forecaster::embedded(deployment).unwrap();
            let speed = 1e3 / forecaster.deployment.accelerator.host_speed;
            let times = forecaster.coefficients.engine;
            assert!([times.request, times.request_serial, times.prompt_token].iter().all(|t| *t > 0.0));
            let latency_ms = Ingest::of(&forecaster, CostKind::Forecast).unwrap().alone(1000).ms();
            let serial = times.request_serial + 1000.0 * times.prompt_token;
            (latency_ms, times.request * speed, serial * speed)
        };
        let alone = |frontend| served(frontend, &chip);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let (dynamo, request, _) = alone(Frontend::Dynamo);
        assert!(near(dynamo, request / 2.0), "{dynamo} {request}");
        let (asyncio, request, more) = alone(Frontend::Asyncio);
        assert!(near(asyncio, request + more), "{asyncio} {request} {more}");
        // A host of half the speed takes twice as long for all of it.
        let slow = Arc::new(Accelerator { host_speed: chip.host_speed / 2.0, ..chip.as_ref().clone() });
        for (frontend, fast) in [(Frontend::Dynamo, dynamo), (Frontend::Asyncio, asyncio)] {
            assert!(near(served(frontend, &slow).0, 2.0 * fast), "{frontend:?}");
        }
    }

    /// 10 ms per request. Server 0 gets requests at 0 and 1 ms, which pass at 10 and 20 ms; server 1 gets one at 2 ms,
    /// which passes at 12 ms: the order at the engines is 0, 2, 1.
    #[test]
    fn engines_have_requests_in_order_of_time() {
        let idle =
            Ingest { each: 0.01, token: 0.0, latency: Ticks::ZERO, stream: 0.0, free: vec![Ticks::ZERO] };
        let mut servers = Servers::new(vec![idle.clone(), idle]);
        assert_eq!(servers.due(), Ticks::NEVER);
        for (number, index, sent) in [(0, 0, 0.0), (1, 0, 1.0), (2, 1, 2.0)] {
            let arrival = Arrival { number, at: ms(sent), ..Default::default() };
            servers.take(index, 0, arrival, Prompt::Own);
        }
        assert_eq!((servers.inside(0), servers.inside(1)), (2, 1));
        let mut left = || (servers.due(), servers.pass().map(|p| p.arrival.number));
        assert_eq!([left(), left(), left()], [(ms(10.0), Some(0)), (ms(12.0), Some(2)), (ms(20.0), Some(1))]);
        assert!(servers.pass().is_none() && servers.inside(0) == 0);
    }

    /// 2 ms per request, 1 µs per token, 5 ms of latency: three requests of 1,000 tokens at time 0 are read after 3, 6
    /// and 9 ms and reach the engine after 8, 11 and 14 ms; one at 20 ms does not wait and reaches the engine at 28 ms. Where half a
    /// stream takes 40 µs, one at 40 ms beside 50 running requests waits 2 ms more: it is there at 50 ms.
    #[test]
    fn requests_are_read_one_after_the_other() {
        let free = vec![Ticks::ZERO];
        let mut server = Ingest { each: 2e-3, token: 1e-6, latency: ms(5.0), stream: 40e-6, free };
        let times = [0.0, 0.0, 0.0, 20.0].map(|at| server.pass(ms(at), 1000, 0));
        assert_eq!(times, [8.0, 11.0, 14.0, 28.0].map(ms));
        assert_eq!(server.pass(ms(40.0), 1000, 50), ms(50.0));
        assert_eq!(server.alone(1000), ms(8.0));
    }

    /// Four requests of 1000 tokens arrive at once: one process reads them one after the other, two processes two at a time.
    #[test]
    fn processes_read_at_one_time() {
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let server = |count: u64| {
            let mut options = DeploymentOptions::default();
            options.engine.vllm.api_server_count = Some(count);
            let deployment = Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options).unwrap();
            Ingest::of(&Forecaster::embedded(deployment).unwrap(), CostKind::Forecast).unwrap()
        };
        let [mut one, mut two] = [1, 2].map(server);
        let each = one.reading(1000);
        let left = |server: &mut Ingest| [0; 4].map(|_| server.pass(Ticks::ZERO, 1000, 0));
        let after = |readings: u64| (0..readings).fold(one.latency, |sum, _| sum + each);
        let [in_turn, by_two] = [[1, 2, 3, 4], [1, 1, 2, 2]].map(|turns| turns.map(after));
        assert_eq!((left(&mut two), left(&mut one)), (by_two, in_turn));
    }
}
