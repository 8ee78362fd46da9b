//! The way of a request to an engine, and of its KV cache between engines.
//!
//! Knows: a gateway refuses requests beyond its rate limits, front-end servers release requests one by one, vLLM's server refuses requests beyond its queue limits, and a
//! prefill replica hands a request over to a decode replica. Knows nothing about routing, starts and failures.

use super::{Admission, Pools, RateLimit, Servers};
use crate::engine::Replica;
use roofcast_ask::arrival::{Arrival, Departure};
use roofcast_facts::clock::Ticks;

/// Parts of a fleet through which requests pass.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Rate limits in front of the fleet; `None` if every request is admitted.
    pub(crate) rate_limit: Option<RateLimit>,
    /// HTTP servers in front of the replicas.
    pub(crate) servers: Servers,
    /// Limits of the queues; `None` if queues are unlimited.
    pub(crate) admission: Option<Admission>,
    /// Assignment of replicas to prefill and decode; `None` if every replica does both.
    pub(crate) pools: Option<Pools>,
}

impl Default for Delivery {
    fn default() -> Delivery {
        Delivery { rate_limit: None, servers: Servers::new(Vec::new()), admission: None, pools: None }
    }
}

impl Delivery {
    /// True if a part takes part in each step.
    pub(super) fn attends(&self) -> bool {
        self.admission.is_some() || self.pools.is_some()
    }

    /// Time of the next event between two replicas, or never.
    pub(super) fn due(&self) -> Ticks {
        self.pools.as_ref().map_or(Ticks::NEVER, Pools::due)
    }

    /// True if the event at `due` is one between two replicas.
    #[inline(never)]
    pub(super) fn exchanges(&self, due: Ticks) -> bool {
        self.pools.as_ref().is_some_and(|pools| pools.due() == due)
    }

    /// Processes the next event between two replicas.
    #[inline(never)]
    pub(super) fn exchange(&mut self, replicas: &mut [Box<dyn Replica>]) {
        if let Some(pools) = &mut self.pools {
            pools.exchange(replicas);
        }
    }

    /// Records that a step of replica `index` begins.
    #[inline(never)]
    pub(super) fn begin(&mut self, index: usize, replica: &dyn Replica) {
        if let Some(admission) = &mut self.admission {
            admission.begin(index, replica);
        }
    }

    /// Starts the KV transfers of the requests that replica `index` has admitted; returns true if the replica has not
    /// `stepped` because it waits for another replica.
    #[inline(never)]
    pub(super) fn fetch(&mut self, index: usize, replica: &mut dyn Replica, stepped: bool) -> bool {
        self.pools.as_mut().is_some_and(|pools| {
            pools.fetch(index, replica);
            !stepped && pools.stall(index)
        })
    }

    /// Removes from `departures` the requests that continue on a decode replica after they left replica `index` at `at`.
    #[inline(never)]
    pub(super) fn hand_over(&mut self, departures: &mut Vec<Departure>, at: Ticks, index: usize) {
        if let Some(pools) = &mut self.pools {
            departures.retain(|gone| !pools.hand_over(gone, at, index));
        }
    }

    /// True if a replica after the chosen one can serve the request too.
    #[inline(never)]
    pub(super) fn serves(&self, replicas: &[Box<dyn Replica>], arrival: &Arrival) -> bool {
        self.pools.as_ref().is_none_or(|pools| pools.serves(replicas, arrival))
    }

    /// True if the queue of replica `index` accepts a request, which is then counted.
    #[inline(never)]
    pub(super) fn accepts(&mut self, index: usize, replica: &dyn Replica, arrival: &Arrival) -> bool {
        self.admission.as_mut().is_none_or(|admission| admission.accepts(index, replica, arrival))
    }
}
