//! Who serves a request: routers over the replicas of a fleet.
//!
//! Knows: what a router in front of engines can see: who is there, how many requests each has, what a prompt begins with.

use crate::engine::Replica;
use crate::workload::{Prompt, Request};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ways to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
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

/// A router with what it remembers.
#[derive(Debug, Clone)]
pub struct Router {
    routing: Routing,
    turn: usize,
    /// State of the draws.
    random: u64,
    /// Who served which prefix or session last.
    served: BTreeMap<u32, usize>,
}

/// How many more requests than the least loaded one a replica may have and still be chosen for its prefix.
const IMBALANCE: u64 = 8;

impl Router {
    /// A router that remembers nothing yet; `seed` of its draws.
    pub fn new(routing: Routing, seed: u64) -> Router {
        Router { routing, turn: 0, random: seed | 1, served: BTreeMap::new() }
    }

    /// Who serves `request`.
    pub fn choose(&mut self, request: &Request, replicas: &[Box<dyn Replica>]) -> usize {
        if replicas.len() == 1 {
            return 0;
        }
        match self.routing {
            Routing::RoundRobin => self.next(replicas.len()),
            Routing::LeastLoaded => least(replicas),
            Routing::PowerOfTwo => {
                let (one, other) = (self.draw(replicas.len()), self.draw(replicas.len()));
                if replicas[other].in_flight() < replicas[one].in_flight() { other } else { one }
            }
            Routing::PrefixAware => match prefix(&request.prompt) {
                Some(prefix) => self.remembered(prefix, replicas, IMBALANCE),
                None => least(replicas),
            },
            Routing::SessionSticky => self.remembered(request.user, replicas, u64::MAX),
        }
    }

    fn next(&mut self, count: usize) -> usize {
        let turn = self.turn;
        self.turn = (turn + 1) % count;
        turn
    }

    /// xorshift64 (Marsaglia, JSS 8(14), 2003); the choice needs no better.
    fn draw(&mut self, count: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) % count as u64) as usize
    }

    /// Who served `key` before, unless it has more than `slack` requests more than the least loaded; that one otherwise.
    fn remembered(&mut self, key: u32, replicas: &[Box<dyn Replica>], slack: u64) -> usize {
        let least = least(replicas);
        let most = replicas[least].in_flight().saturating_add(slack);
        let chosen =
            self.served.get(&key).copied().filter(|r| replicas[*r].in_flight() <= most).unwrap_or(least);
        self.served.insert(key, chosen);
        chosen
    }
}

/// The first of those with the fewest requests.
fn least(replicas: &[Box<dyn Replica>]) -> usize {
    let loads = replicas.iter().map(|r| r.in_flight()).enumerate();
    loads.min_by_key(|(index, load)| (*load, *index)).map_or(0, |(index, _)| index)
}

/// What a prompt begins with, where it may share that with others.
fn prefix(prompt: &Prompt) -> Option<u32> {
    match prompt {
        Prompt::Own => None,
        Prompt::Shared { segment, .. } => Some(*segment),
        Prompt::Runs(runs) => runs.first().map(|run| run.segment),
    }
}
