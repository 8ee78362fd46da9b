//! The engines behind one port: one engine, or several behind a router, in pools, or autoscaled.
//!
//! Knows: which engine a request goes to, by the library's own router and autoscaling, and the transfer of a prompt's
//! KV cache from a prefill engine to a decode engine. Knows nothing about HTTP.

use super::metrics::{self, HttpCounts, Metrics};
use super::outlet::Failure;
use super::pace::Pace;
use super::replica::{EngineHandle, Job, Onward};
use roofcast::clock::Ticks;
use roofcast::engine::online::OnlineRequest;
use roofcast::fleet::{Scaling, TransferPath};
use roofcast::router::Router;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Properties of a request by which a router chooses an engine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoutingKey {
    /// Session of the request.
    pub(crate) session: u32,
    /// Hash of the beginning of the request's prompt.
    pub(crate) prefix: Option<u32>,
    /// Data-parallel rank that the request asks for.
    pub(crate) rank: Option<usize>,
}

/// Number of tokens at a prompt's beginning that identify its prefix.
const PREFIX: usize = 64;

impl RoutingKey {
    /// The routing key of a prompt; a request without a session is a session of its own. Parts of a key have 16 bits,
    /// so that a router remembers at most 65,536 values.
    pub(crate) fn new(prompt: &[u32], session: Option<&str>, number: u64, rank: Option<usize>) -> RoutingKey {
        let hash = |hash: u64, value: u64| (hash.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let narrow = |hash: u64| (hash >> 48) as u32;
        let session = match session {
            Some(text) => narrow(text.bytes().fold(1, |h, b| hash(h, u64::from(b)))),
            None => narrow(hash(2, number)),
        };
        let first = prompt.iter().take(PREFIX);
        RoutingKey { session, prefix: Some(narrow(first.fold(3, |h, t| hash(h, u64::from(*t))))), rank }
    }
}

/// Engines that autoscaling starts and stops.
#[derive(Debug)]
struct Scaled {
    scaling: Scaling,
    open: Vec<usize>,
}

/// The engines behind one port.
#[derive(Debug)]
pub struct Group {
    engines: Vec<Arc<EngineHandle>>,
    /// Indices of the engines that accept requests, if the group is not autoscaled.
    open: Vec<usize>,
    router: Mutex<Router>,
    scaled: Option<Mutex<Scaled>>,
    handover: Option<Arc<Handover>>,
    /// Number of request numbers issued so far; shared between groups, because an engine may be in several.
    numbers: Arc<AtomicU64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Group {
    /// Creates a group of engines that all accept requests.
    pub(crate) fn new(engines: Vec<Arc<EngineHandle>>, router: Router) -> Group {
        Group {
            open: (0..engines.len()).collect(),
            engines,
            router: Mutex::new(router),
            scaled: None,
            handover: None,
            numbers: Arc::default(),
        }
    }

    /// Converts the group to disaggregated serving: the first `prefill` engines compute prompts, the others continue
    /// them.
    pub(crate) fn apart(self, prefill: usize, router: Router, way: TransferPath) -> Group {
        let handover = Handover {
            engines: self.engines.clone(),
            decode: (prefill..self.engines.len()).collect(),
            router: Mutex::new(router),
            way,
        };
        Group { open: (0..prefill).collect(), handover: Some(Arc::new(handover)), ..self }
    }

    /// Converts the group to autoscaled engines.
    pub(crate) fn scaled(self, scaling: Scaling) -> Group {
        Group { scaled: Some(Mutex::new(Scaled { scaling, open: Vec::new() })), ..self }
    }

    /// All engines.
    pub(crate) fn engines(&self) -> &[Arc<EngineHandle>] {
        &self.engines
    }

    /// The engines that a request may use if it begins at `engine`.
    pub(crate) fn engines_of(&self, engine: &Arc<EngineHandle>) -> Vec<Arc<EngineHandle>> {
        let decode = self.handover.iter().flat_map(|handover| &handover.decode);
        [Arc::clone(engine)]
            .into_iter()
            .chain(decode.map(|index| Arc::clone(&self.engines[*index])))
            .collect()
    }

    /// The clock that all engines of the group have in common.
    pub(crate) fn pace(&self) -> Option<Pace> {
        self.engines.first().map(|engine| engine.pace())
    }

    /// Reserves `count` request numbers and returns the first.
    pub(crate) fn number(&self, count: u64) -> u64 {
        self.numbers.fetch_add(count, Ordering::Relaxed)
    }

    /// Indices of engines that are down.
    pub(crate) fn down(&self) -> Vec<usize> {
        (0..self.engines.len()).filter(|index| self.engines[*index].is_down()).collect()
    }

    /// Takes the engines of these indices down, and brings all others up.
    pub(crate) fn set_down(&self, down: &[usize]) {
        self.engines.iter().enumerate().for_each(|(index, engine)| engine.set_down(down.contains(&index)));
    }

    /// Number of requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.engines.iter().map(|engine| engine.in_flight()).sum()
    }

    /// Chooses the engine for a request that arrives at `at`.
    pub(crate) fn choose(&self, key: RoutingKey, at: Ticks) -> Option<Arc<EngineHandle>> {
        let load = |index: usize| self.engines[index].in_flight();
        let mut open = match &self.scaled {
            None => self.open.clone(),
            Some(scaled) => {
                let mut scaled = lock(scaled);
                let Scaled { scaling, open } = &mut *scaled;
                let idle = |index: usize| self.engines[index].idle_since();
                let starting = scaling.look(at, self.in_flight(), &idle, &|_| false, open);
                starting.into_iter().for_each(|index| _ = self.engines[index].flush());
                open.clone()
            }
        };
        open.retain(|index| !self.engines[*index].is_down());
        if open.is_empty() {
            return None;
        }
        let named_rank = key.rank.filter(|rank| open.contains(rank));
        let chosen =
            named_rank.unwrap_or_else(|| lock(&self.router).choose(key.session, key.prefix, load, &open));
        self.engines.get(chosen).cloned()
    }

    /// Sends a request to an engine of the group. In disaggregated serving, this engine computes the first token and a
    /// decode engine the rest.
    pub(crate) fn send(&self, engine: &EngineHandle, mut job: Job, key: RoutingKey) {
        if let Some(handover) = self.handover.as_ref().filter(|_| job.asked.output.len() > 1) {
            let first = Arc::from(&job.asked.output[..1]);
            let output = std::mem::replace(&mut job.asked.output, first);
            let handover = Arc::clone(handover);
            job.onward = Some(Box::new(Continuation { handover, output, session: key.session }));
        }
        engine.arrive(job);
    }

    /// Text of the metrics of all engines; pinned gauges show their pinned values.
    pub(crate) fn metrics(&self, pinned: &BTreeMap<String, f64>, http: &HttpCounts) -> String {
        let all: Vec<Metrics> = self.engines.iter().map(|engine| engine.metrics().scraped()).collect();
        let up = self.scaled.as_ref().map(|scaled| {
            let mut scaled = lock(scaled);
            let idle = |index: usize| self.engines[index].idle_since();
            if let Some(pace) = self.pace() {
                scaled.scaling.settle(pace.now(), &idle);
            }
            scaled.scaling.count_up()
        });
        metrics::text(&all, pinned, up, http)
    }
}

/// Decode engines, with the router that chooses among them.
#[derive(Debug)]
struct Handover {
    engines: Vec<Arc<EngineHandle>>,
    decode: Vec<usize>,
    router: Mutex<Router>,
    way: TransferPath,
}

/// Continuation of one request on a decode engine, after its first token.
#[derive(Debug)]
struct Continuation {
    handover: Arc<Handover>,
    /// All tokens of the answer, of which the prefill engine computes the first.
    output: Arc<[u32]>,
    session: u32,
}

impl Onward for Continuation {
    /// Starts the transfer of a request's KV cache, and hands the request to a decode engine.
    fn go(self: Box<Self>, job: Job, end: Ticks) {
        if job.outlet.is_left() {
            return;
        }
        let Handover { engines, decode, router, way } = &*self.handover;
        let load = |index: usize| engines[index].in_flight();
        let decode: Vec<usize> = decode.iter().copied().filter(|index| !engines[*index].is_down()).collect();
        if decode.is_empty() {
            return job.outlet.fail(Failure::Aborted);
        }
        let chosen = lock(router).choose(self.session, None, load, &decode);
        let Some(engine) = engines.get(chosen) else { return job.outlet.fail(Failure::Aborted) };
        let tokens = job.asked.prompt.len() as u64;
        let prompt = job.asked.prompt.iter().chain(self.output.first()).copied().collect();
        let onward = OnlineRequest {
            at: end + way.time(tokens) + way.latency,
            prompt,
            output: self.output[1..].into(),
            transferred: tokens,
            ..job.asked
        };
        engine.arrive(Job { asked: onward, since: end, onward: None, ..job });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_sessions_and_prefixes_apart() {
        let key = |prompt: &[u32], session, number| RoutingKey::new(prompt, session, number, None);
        let long: Vec<u32> = (0..100).collect();
        let mut other = long.clone();
        other[80] = 7;
        assert_eq!(key(&long, None, 1).prefix, key(&other, None, 1).prefix);
        other[8] = 7;
        assert_ne!(key(&long, None, 1).prefix, key(&other, None, 1).prefix);
        assert_eq!(key(&long, Some("a"), 1).session, key(&long, Some("a"), 2).session);
        assert_ne!(key(&long, None, 1).session, key(&long, None, 2).session);
        assert!(key(&long, Some("a"), 1).session < 1 << 16);
    }
}
