//! Observers of the caches of a fleet: KV events on their way to the router, an oracle, and counts of found prefixes.
//!
//! Knows: when each is informed. Knows nothing about what it concludes.

use super::{FoundPrefixes, KvEvents, Oracle};
use crate::engine::Replica;
use roofcast_ask::arrival::{Arrival, Departure};
use roofcast_ask::workload::Prompt;
use roofcast_facts::clock::Ticks;

/// Observers of the caches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// KV events that arrive late at the router; `None` if the router reads the caches of the replicas.
    pub(crate) events: Option<KvEvents>,
    /// Blocks of all requests, for the hits of an oracle; `None` if they are not kept.
    pub(crate) oracle: Option<Oracle>,
    /// True if the run counts the prompt tokens that are found in the caches of chosen replicas.
    pub(crate) counts_prefixes: bool,
    /// Prompt tokens found in the caches of chosen replicas.
    pub(crate) prefixes: FoundPrefixes,
}

impl Watch {
    /// True if an observer takes part in each step; prefixes are counted when the router chooses.
    pub(super) fn attends(&self) -> bool {
        self.events.is_some() || self.oracle.is_some()
    }

    /// Publishes the changes in the cache of replica `index` since the last call.
    #[inline(never)]
    pub(super) fn publish(&mut self, index: usize, replica: &mut dyn Replica) {
        if let Some(events) = &mut self.events {
            events.publish(index, replica);
        }
    }

    /// For each replica, the number of tokens of `prompt` that the router believes to be cached at `now`; empty if the
    /// router reads the caches of the replicas.
    pub(super) fn known(&mut self, now: Ticks, prompt: &Prompt) -> Vec<u64> {
        let Some(events) = &mut self.events else { return Vec::new() };
        events.receive(now);
        events.known(prompt)
    }

    /// Forgets replica `index`, whose cache was emptied.
    pub(super) fn forget(&mut self, index: usize) {
        if let Some(events) = &mut self.events {
            events.forget(index);
        }
    }

    /// Adds a request that an engine receives.
    #[inline(never)]
    pub(super) fn arrive(&mut self, arrival: &Arrival, prompt: &Prompt) {
        if let Some(oracle) = &mut self.oracle {
            oracle.arrive(arrival.number, u64::from(arrival.input), prompt);
        }
    }

    /// Adds the answers of requests that have ended.
    #[inline(never)]
    pub(super) fn end(&mut self, departures: &[Departure]) {
        if let Some(oracle) = &mut self.oracle {
            departures.iter().for_each(|gone| oracle.end(gone));
        }
    }
}
