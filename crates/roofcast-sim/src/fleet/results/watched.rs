//! A bound of the SLO during a run.
//!
//! Knows: the number of requests that exceed the bound so far, and the number that may. Knows nothing about how they are
//! counted.

use roofcast_ask::spec::SloBound;
use roofcast_facts::clock::Ticks;

/// An SLO bound, and the number of requests that exceed it.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    /// Bound on a percentile of a metric.
    pub(super) bound: SloBound,
    /// The bound in ticks.
    pub(super) most: Ticks,
    /// Number of requests that exceed the bound.
    pub(super) beyond: u64,
    /// Most requests that may exceed the bound before its percentile certainly does; set in runs that may end early.
    pub(super) tolerated: Option<u64>,
}
