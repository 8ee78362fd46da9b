//! Routers: the choice of a replica for each request.
//!
//! Knows: everything that a router in front of engines can see: which replicas are up, the number of requests on each,
//! the beginning of a prompt, and, for the policies of [`cache`], the cached tokens and the load that replicas report.
//! Knows nothing about how a replica serves a request.

mod backlog;
pub(crate) mod cache;
mod history;

use cache::{CachePolicy, Replicas, RoutedRequest};
pub use roofcast_ask::spec::Routing;
use roofcast_ask::spec::RoutingSpec;
use roofcast_ask::workload::Prompt;
use std::collections::BTreeMap;

/// A router, and its memory of earlier choices.
#[derive(Debug, Clone)]
pub struct Router {
    routing: Routing,
    turn: usize,
    /// State of the random number generator.
    random: u64,
    /// The replica that last served each prefix or session.
    served: BTreeMap<u32, usize>,
    /// Relative capacity of each replica; empty if all capacities are equal.
    weights: Vec<f64>,
    /// Credit of each replica in weighted round robin.
    owed: Vec<f64>,
    /// The cache-aware policy; `None` if `routing` is another policy.
    cache: Option<CachePolicy>,
}

/// Number of requests by which a replica may exceed the least loaded one and still be chosen for a cached prefix.
const IMBALANCE: u64 = 8;

impl Router {
    /// A router without memory of choices; `seed` seeds its random choices.
    pub fn new(routing: Routing, seed: u64) -> Router {
        let weights = Vec::new();
        let owed = Vec::new();
        Router { routing, turn: 0, random: seed | 1, served: BTreeMap::new(), weights, owed, cache: None }
    }

    /// Returns the router with the settings of cache-aware policies; `block` is the number of tokens per KV block.
    pub fn weighing_caches(self, settings: RoutingSpec, block: u64) -> Router {
        let weighs = self.routing.weighs_caches();
        Router { cache: weighs.then(|| CachePolicy::new(self.routing, settings, block)), ..self }
    }

    /// The router policy.
    pub(crate) fn routing(&self) -> Routing {
        self.routing
    }

    /// Chooses the replica of a request by a cache-aware policy; by [`Router::choose`] for other policies.
    pub(crate) fn choose_by_cache(
        &mut self,
        asked: &RoutedRequest,
        replicas: &dyn Replicas,
        candidates: &[usize],
    ) -> usize {
        let Some(mut policy) = self.cache.take() else {
            let load = |index| replicas.in_flight(index);
            return self.choose(asked.user, prefix(asked.prompt), load, candidates);
        };
        let chosen = match candidates {
            [only] => *only,
            _ => policy.choose(asked, replicas, candidates, &mut |count| self.draw(count)),
        };
        policy.sent(asked, replicas, chosen);
        self.cache = Some(policy);
        chosen
    }

    /// True if [`Router::choose_by_cache`] reads the replicas' reports.
    pub(crate) fn weighs_caches(&self) -> bool {
        self.cache.is_some()
    }

    /// Returns the router for replicas of unequal capacity: round robin chooses in proportion to the weights, and loads
    /// are divided by the weights.
    pub(crate) fn weighted(self, weights: Vec<f64>) -> Router {
        Router { owed: vec![0.0; weights.len()], weights, ..self }
    }

    /// Chooses the replica of `candidates` that serves a request of `user` whose prompt begins with `prefix`; `load`
    /// returns the number of requests on a replica.
    pub fn choose(
        &mut self,
        user: u32,
        prefix: Option<u32>,
        load: impl Fn(usize) -> u64,
        candidates: &[usize],
    ) -> usize {
        match (candidates, self.routing) {
            ([only], _) => *only,
            (_, Routing::RoundRobin) if !self.weights.is_empty() => self.next_by_weight(candidates),
            (_, Routing::RoundRobin) => candidates[self.next(candidates.len())],
            (_, Routing::LeastLoaded) => self.least(&load, candidates),
            (_, Routing::PowerOfTwo) => {
                let [one, other] = [(); 2].map(|()| candidates[self.draw(candidates.len())]);
                self.least(&load, &[one, other])
            }
            (_, Routing::PrefixAware) => match prefix {
                Some(prefix) => self.remembered(prefix, IMBALANCE, candidates, &load),
                None => self.least(&load, candidates),
            },
            (_, Routing::SessionSticky) => self.remembered(user, u64::MAX, candidates, &load),
            // Decode replicas of a disaggregated fleet receive whole KV caches, so only their load matters.
            (
                _,
                Routing::DynamoKv
                | Routing::LlmD
                | Routing::CacheAware
                | Routing::Kvaware
                | Routing::VllmCacheAware
                | Routing::KvAware
                | Routing::Lmetric,
            ) => self.least(&load, candidates),
        }
    }

    /// The first replica with the fewest requests; with weights, the first with the smallest (requests + 1)/weight.
    fn least(&self, load: &impl Fn(usize) -> u64, candidates: &[usize]) -> usize {
        let least_loaded = match self.weights.as_slice() {
            [] => candidates.iter().min_by_key(|index| load(**index)),
            weights => {
                let share = |index: usize| (load(index) + 1) as f64 / weights[index];
                candidates.iter().min_by(|a, b| share(**a).total_cmp(&share(**b)))
            }
        };
        least_loaded.copied().unwrap_or(0)
    }

    /// Smooth weighted round robin, as in nginx: in each turn every replica's weight is added to its credit; the
    /// replica with the most credit is chosen and pays the sum of all weights.
    fn next_by_weight(&mut self, candidates: &[usize]) -> usize {
        let all: f64 = candidates.iter().map(|index| self.weights[*index]).sum();
        candidates.iter().for_each(|index| self.owed[*index] += self.weights[*index]);
        let owed_most = candidates.iter().copied().max_by(|a, b| {
            // Break ties by choosing the first replica.
            self.owed[*a].total_cmp(&self.owed[*b]).then(b.cmp(a))
        });
        let chosen = owed_most.unwrap_or(0);
        self.owed[chosen] -= all;
        chosen
    }

    fn next(&mut self, count: usize) -> usize {
        let turn = self.turn % count;
        self.turn = turn + 1;
        turn
    }

    /// A random number below `count`, by xorshift64 (Marsaglia, JSS 8(14), 2003), whose quality suffices for this
    /// choice.
    fn draw(&mut self, count: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) % count as u64) as usize
    }

    /// The replica that served `key` before; the least loaded one if that replica is no candidate, or has over `slack`
    /// requests more than the least loaded one.
    fn remembered(
        &mut self,
        key: u32,
        slack: u64,
        candidates: &[usize],
        load: &impl Fn(usize) -> u64,
    ) -> usize {
        let least_loaded = self.least(load, candidates);
        let load_limit = load(least_loaded).saturating_add(slack);
        let before = self.served.get(&key).copied();
        let chosen =
            before.filter(|r| candidates.contains(r) && load(*r) <= load_limit).unwrap_or(least_loaded);
        self.served.insert(key, chosen);
        chosen
    }
}

/// Segment of the first tokens of a prompt; `None` if no other prompt can share them.
pub(crate) fn prefix(prompt: &Prompt) -> Option<u32> {
    match prompt {
        Prompt::Own => None,
        Prompt::Shared { segment, .. } => Some(*segment),
        Prompt::Runs(runs) => runs.first().map(|run| run.segment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of 1, 1 and 2 have credits of 1, 1, 2 at first: replica 2 is chosen and pays 4. Then 2, 2, 0: of the two the
    /// first is chosen. Then -1, 3, 2 and 0, 0, 4, after which all credits are 0 again.
    #[test]
    fn weighted_round_robin_gives_ties_to_the_first() {
        let mut router = Router::new(Routing::RoundRobin, 1).weighted(vec![1.0, 1.0, 2.0]);
        let chosen: Vec<usize> = (0..8).map(|_| router.choose(0, None, |_| 0, &[0, 1, 2])).collect();
        assert_eq!(chosen, [2, 0, 1, 2, 2, 0, 1, 2]);
    }
}
