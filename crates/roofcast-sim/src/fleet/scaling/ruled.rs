//! Replicas that start and stop by the decisions of an autoscaler.
//!
//! Knows: a decision starts missing replicas on free places, the lowest first, and gives up surplus ones: replicas that have
//! not started up, the newest first, then the newest others. A replica that is no longer wanted answers its requests, then
//! frees its place; until then a further start waits. A request that finds no ready replica waits for one. Knows nothing
//! about how a rule decides ([`super::rule`]).

use super::observed::{Observed, ObservedReplica};
use super::rule::Rule;
use super::{Scaling, ScalingCause, Up};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::Error;
use roofcast_facts::units::Picoseconds;

/// Longest time for which a request waits for a replica after the last arrival, in seconds: a day.
const LONGEST_S: f64 = 86_400.0;

/// A rule with the number of replicas that it wants.
#[derive(Debug, Clone)]
pub(super) struct Ruled {
    rule: Rule,
    startup: Ticks,
    wanted: u64,
    arrived: u64,
    /// Time of the last arrival.
    last: Ticks,
}

impl Ruled {
    pub(super) fn new(rule: Rule, startup: Ticks, wanted: u64) -> Ruled {
        Ruled { rule, startup, wanted, arrived: 0, last: Ticks::ZERO }
    }
}

impl Scaling {
    /// The autoscaler's rule; `None` without one.
    fn ruled(&mut self) -> Option<&mut Ruled> {
        if let ScalingCause::Ruled(ruled) = &mut self.rule { Some(ruled) } else { None }
    }

    /// True if an autoscaler decides at times of its own.
    pub(crate) fn is_ruled(&self) -> bool {
        matches!(self.rule, ScalingCause::Ruled(_))
    }

    /// Time of the next decision, or at which a replica is ready for a request that waits; never without a rule.
    pub(crate) fn due(&self) -> Ticks {
        let ScalingCause::Ruled(ruled) = &self.rule else { return Ticks::NEVER };
        let decision = if ruled.arrived == 0 { Ticks::NEVER } else { ruled.rule.due() };
        if self.parked.is_empty() {
            return decision;
        }
        let ready = self.up.iter().flatten().filter(|up| up.until == Ticks::NEVER).map(|up| up.ready);
        ready.fold(decision, Ticks::min)
    }

    /// True if requests have waited for a replica for a day since the last arrival, and none is up or starts.
    pub(crate) fn gives_up(&self, at: Ticks) -> bool {
        let ScalingCause::Ruled(ruled) = &self.rule else { return false };
        let patience: Ticks = Picoseconds::from_seconds(LONGEST_S).into();
        !self.parked.is_empty() && self.count_up() == 0 && at > ruled.last + patience
    }

    /// The error of requests that wait for a replica which no decision starts.
    pub(crate) fn never_starts(&self) -> Error {
        let waiting = self.parked.len() as u64;
        let threshold = match &self.rule {
            ScalingCause::Ruled(ruled) => ruled.rule.activation(),
            _ => None,
        };
        let (reason, other) = match threshold {
            Some(threshold) => (
                format!(
                    "KEDA starts the first one when more than `fleet.autoscale.keda.activation_threshold` = {threshold} wait"
                ),
                format!(", or an activation_threshold below {waiting}"),
            ),
            None => ("the rule has stopped the last one".to_owned(), String::new()),
        };
        Error::NeverScaled { waiting, reason, other }
    }

    /// Applies the arrival of a request at `at`: the first one finds the fewest replicas up. Returns the replicas that
    /// start; `open` is set to the replicas that accept requests.
    pub(super) fn arrive(&mut self, at: Ticks, open: &mut Vec<usize>) -> Vec<usize> {
        let Some(ruled) = self.ruled() else { return Vec::new() };
        ruled.arrived += 1;
        ruled.last = at;
        let wanted = ruled.wanted;
        let mut first = Vec::new();
        if ruled.arrived == 1 {
            ruled.rule.begin(at, wanted);
            first = (0..wanted as usize).collect();
            for up in self.up.iter_mut().take(wanted as usize) {
                *up = Some(Up { since: at, ready: at, until: Ticks::NEVER });
            }
        }
        let starting = self.fill(at);
        self.open(at, open);
        [first, starting].concat()
    }

    /// Applies the decision that is due at `at`, if one is: `load` returns the requests in flight of a replica and the use
    /// of its KV cache. Returns the replicas that start; `open` is set to the replicas that accept requests.
    pub(crate) fn decide(
        &mut self,
        at: Ticks,
        load: &dyn Fn(usize) -> (u64, f64),
        idle_since: &dyn Fn(usize) -> Option<Ticks>,
        open: &mut Vec<usize>,
    ) -> Vec<usize> {
        self.stop(at, idle_since);
        self.open(at, open);
        let waiting = self.parked.len() as u64;
        let up = self.count_up() as u64;
        let wanted_now = self.wanted_up().count() as u64;
        let Some(ruled) = self.ruled() else { return Vec::new() };
        if ruled.rule.due() <= at {
            let observed = |index: &usize| {
                let (in_flight, kv_use) = load(*index);
                ObservedReplica { index: *index, in_flight, kv_use }
            };
            let replicas: Vec<ObservedReplica> = open.iter().map(observed).collect();
            let seen = Observed {
                starting: ruled.wanted.saturating_sub(replicas.len() as u64),
                stopping: up - wanted_now,
                waiting,
                arrived: ruled.arrived,
                wanted: ruled.wanted,
                replicas,
            };
            ruled.wanted = ruled.rule.decide(&seen);
            let surplus = wanted_now.saturating_sub(ruled.wanted) as usize;
            self.release(at, surplus);
            self.stop(at, idle_since);
        }
        let starting = self.fill(at);
        self.open(at, open);
        starting
    }

    /// Indices of the replicas that are up or start, and are wanted.
    fn wanted_up(&self) -> impl Iterator<Item = usize> {
        (0..self.up.len()).filter(|index| self.up[*index].is_some_and(|up| up.until == Ticks::NEVER))
    }

    /// Sets `open` to the replicas that accept requests at `at`.
    fn open(&self, at: Ticks, open: &mut Vec<usize>) {
        open.clear();
        open.extend(self.wanted_up().filter(|index| self.up[*index].is_some_and(|up| up.ready <= at)));
    }

    /// Starts missing replicas on free places.
    fn fill(&mut self, at: Ticks) -> Vec<usize> {
        let wanted_now = self.wanted_up().count();
        let Some(ruled) = self.ruled() else { return Vec::new() };
        let missing = (ruled.wanted as usize).saturating_sub(wanted_now);
        let ready = at + ruled.startup;
        let free = (0..self.up.len()).filter(|index| self.up[*index].is_none());
        let starting: Vec<usize> = free.take(missing).collect();
        for &index in &starting {
            self.up[index] = Some(Up { since: at, ready, until: Ticks::NEVER });
            self.started += 1;
        }
        self.peak = self.peak.max(self.count_up());
        starting
    }

    /// Gives up `surplus` replicas: first replicas that have not started up, then the newest others.
    fn release(&mut self, at: Ticks, surplus: usize) {
        let mut order: Vec<(Ticks, usize)> =
            self.wanted_up().filter_map(|index| self.up[index].map(|up| (up.ready, index))).collect();
        order.sort_unstable();
        for (_, index) in order.into_iter().rev().take(surplus) {
            if let Some(up) = &mut self.up[index] {
                up.until = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ticks;
    use super::*;

    /// A planner by caches: at 5 s replica 0 is above its threshold, so that replica 1 starts, ready at 15 s. At 10 s the
    /// caches are low, which takes it back at once. From 30 s on two are up; when both are low at 40 s, replica 1, the
    /// newer one, is no longer wanted, and stops with its last answer at 43 s. A start in between waits for its place.
    #[test]
    fn places_are_taken_and_freed_in_order() {
        let keys = "rule = \"dynamo\"\nmax_replicas = 2\nstartup_s = 10";
        let mut scaling = Scaling::new(&toml::from_str(keys).unwrap());
        let mut open = Vec::new();
        assert_eq!((scaling.arrive(ticks(0.0), &mut open), open.clone()), (vec![0], vec![0]));
        let mut at = |seconds: f64, kv_use: f64, idle: Option<f64>| {
            let idle = move |index: usize| idle.filter(|_| index == 1).map(ticks);
            let starting = scaling.decide(ticks(seconds), &|_| (1, kv_use), &idle, &mut open);
            (starting, open.clone(), scaling.count_up())
        };
        assert_eq!(at(5.0, 2.0, Some(0.0)), (vec![1], vec![0], 2));
        assert_eq!(at(10.0, 0.1, Some(0.0)), (vec![], vec![0], 1));
        assert_eq!(at(15.0, 2.0, Some(0.0)), (vec![1], vec![0], 2));
        assert_eq!(at(25.0, 0.7, None), (vec![], vec![0, 1], 2));
        assert_eq!(at(30.0, 0.3, None), (vec![], vec![0], 2));
        // Replica 1 answers until 33 s: while it stops, the planner decides nothing.
        assert_eq!(at(35.0, 2.0, Some(33.0)), (vec![1], vec![0], 2));
        assert_eq!((scaling.started, scaling.stopped), (3, 2));
        // Replica 1 was up from 5 to 10 and from 15 to 33 s.
        assert_eq!(scaling.lasted(1), ticks(5.0 + 18.0));
    }
}
