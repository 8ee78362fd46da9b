//! A fleet as its autoscaler sees it.
//!
//! Knows: requests and KV caches of the replicas that accept requests, and the numbers of others. Knows nothing about
//! decisions.

use roofcast_ask::spec::AutoscaleSpec;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;

/// Replicas and requests of a fleet at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    /// Replicas that accept requests.
    pub(super) replicas: Vec<ObservedReplica>,
    /// Number of replicas that are wanted and have not started up.
    pub(super) starting: u64,
    /// Number of replicas that are no longer wanted and still answer.
    pub(super) stopping: u64,
    /// Number of requests that wait for a replica.
    pub(super) waiting: u64,
    /// Number of requests that have arrived since the run began.
    pub(super) arrived: u64,
    /// Number of replicas that the last decision wants.
    pub(super) wanted: u64,
}

/// A replica that accepts requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ObservedReplica {
    /// Index of the replica.
    pub(super) index: usize,
    /// Number of requests in flight.
    pub(super) in_flight: u64,
    /// Tokens in the KV cache and of prompts without an output token, over the tokens of the KV cache.
    pub(super) kv_use: f64,
}

impl Observed {
    /// Number of requests in flight on replicas that accept requests, and of those that wait for one.
    pub(super) fn in_flight(&self) -> u64 {
        self.waiting + self.replicas.iter().map(|replica| replica.in_flight).sum::<u64>()
    }

    /// Number of replicas that accept requests.
    pub(super) fn ready(&self) -> u64 {
        self.replicas.len() as u64
    }
}

/// Fewest and most replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Bounds {
    pub(super) fn of(spec: &AutoscaleSpec) -> Bounds {
        Bounds { min: spec.min_replicas, max: spec.max_replicas }
    }
}

/// A duration in seconds as ticks.
pub(super) fn ticks(seconds: f64) -> Ticks {
    Picoseconds::from_seconds(seconds).into()
}

/// A fleet of `loads`, requests in flight by replica, of which none starts or stops.
#[cfg(test)]
pub(super) fn seen(wanted: u64, loads: &[u64]) -> Observed {
    let replica = |(index, in_flight): (usize, &u64)| ObservedReplica {
        index,
        in_flight: *in_flight,
        kv_use: *in_flight as f64 / 100.0,
    };
    let replicas: Vec<ObservedReplica> = loads.iter().enumerate().map(replica).collect();
    let starting = wanted.saturating_sub(replicas.len() as u64);
    Observed { replicas, starting, wanted, ..Observed::default() }
}
