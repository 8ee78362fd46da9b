//! Routers: the choice of a replica for a request.
//!
//! Knows: what a router in front of engines can see: the replicas that are up, how many requests each has, what a
//! prompt begins with.

use crate::workload::Prompt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ways to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest requests.
    LeastLoaded,
    /// The less loaded of two at random.
    PowerOfTwo,
    /// The one that served the prompt's prefix before, unless it has far more to do than the least loaded.
    PrefixAware,
    /// The one that served the session before.
    SessionSticky,
}

impl Routing {
    /// As in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Routing::RoundRobin => "round_robin",
            Routing::LeastLoaded => "least_loaded",
            Routing::PowerOfTwo => "power_of_two",
            Routing::PrefixAware => "prefix_aware",
            Routing::SessionSticky => "session_sticky",
        }
    }
}

/// A router with what it remembers.
#[derive(Debug, Clone)]
pub struct Router {
    routing: Routing,
    turn: usize,
    /// State of the draws.
    random: u64,
    /// The replica that served each prefix or session last.
    served: BTreeMap<u32, usize>,
}

/// How many more requests than the least loaded one a replica may have and still be chosen for its prefix.
const IMBALANCE: u64 = 8;

impl Router {
    /// A router that remembers nothing yet; `seed` of its draws.
    pub fn new(routing: Routing, seed: u64) -> Router {
        Router { routing, turn: 0, random: seed | 1, served: BTreeMap::new() }
    }

    /// Which of `candidates` serves a request of `user` whose prompt begins with `prefix`; `load` is how many requests a
    /// replica has.
    pub fn choose(
        &mut self,
        user: u32,
        prefix: Option<u32>,
        load: impl Fn(usize) -> u64,
        candidates: &[usize],
    ) -> usize {
        // The first of those with the fewest requests.
        let least = || candidates.iter().copied().min_by_key(|index| load(*index)).unwrap_or(0);
        match (candidates, self.routing) {
            ([only], _) => *only,
            (_, Routing::RoundRobin) => candidates[self.next(candidates.len())],
            (_, Routing::LeastLoaded) => least(),
            (_, Routing::PowerOfTwo) => {
                let [one, other] = [(); 2].map(|()| candidates[self.draw(candidates.len())]);
                if load(other) < load(one) { other } else { one }
            }
            (_, Routing::PrefixAware) => match prefix {
                Some(prefix) => self.remembered(prefix, least(), IMBALANCE, candidates, &load),
                None => least(),
            },
            (_, Routing::SessionSticky) => self.remembered(user, least(), u64::MAX, candidates, &load),
        }
    }

    fn next(&mut self, count: usize) -> usize {
        let turn = self.turn % count;
        self.turn = turn + 1;
        turn
    }

    /// xorshift64 (Marsaglia, JSS 8(14), 2003); the choice needs no better.
    fn draw(&mut self, count: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) % count as u64) as usize
    }

    /// The replica that served `key` before, unless it has more than `slack` requests more than the least loaded or is
    /// no candidate; the least loaded otherwise.
    fn remembered(
        &mut self,
        key: u32,
        least: usize,
        slack: u64,
        candidates: &[usize],
        load: impl Fn(usize) -> u64,
    ) -> usize {
        let most = load(least).saturating_add(slack);
        let before = self.served.get(&key).copied();
        let chosen = before.filter(|r| candidates.contains(r) && load(*r) <= most).unwrap_or(least);
        self.served.insert(key, chosen);
        chosen
    }
}

/// What a prompt begins with, where it may share that with others.
pub fn prefix(prompt: &Prompt) -> Option<u32> {
    match prompt {
        Prompt::Own => None,
        Prompt::Shared { segment, .. } => Some(*segment),
        Prompt::Runs(runs) => runs.first().map(|run| run.segment),
    }
}
