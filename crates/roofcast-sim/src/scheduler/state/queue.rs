//! The waiting requests and their order: first come first served, or by a key.

use roofcast_ask::arrival::SequenceId;
use roofcast_ask::engine_settings::Order;
use std::collections::{BTreeMap, VecDeque};

/// The waiting requests, in order.
#[derive(Debug, Clone)]
pub(crate) enum Queue {
    Arrival(VecDeque<SequenceId>),
    Key(BTreeMap<(i64, u64), SequenceId>),
}

/// The first request by key. Not inlined, because its callers are part of every step.
#[inline(never)]
fn first(queue: &BTreeMap<(i64, u64), SequenceId>) -> Option<SequenceId> {
    queue.first_key_value().map(|(_, id)| *id)
}

impl Queue {
    pub(crate) fn new(order: Order) -> Queue {
        match order {
            Order::Arrival | Order::Policy => Queue::Arrival(VecDeque::new()),
            Order::Key => Queue::Key(BTreeMap::new()),
        }
    }

    /// Adds a new request.
    #[inline(always)]
    pub(crate) fn push(&mut self, id: SequenceId, key: i64, number: u64) {
        match self {
            Queue::Arrival(queue) => queue.push_back(id),
            Queue::Key(queue) => drop(queue.insert((key, number), id)),
        }
    }

    /// Returns a request that ran before to the queue.
    pub(crate) fn push_front(&mut self, id: SequenceId, key: i64, number: u64) {
        match self {
            Queue::Arrival(queue) => queue.push_front(id),
            Queue::Key(queue) => drop(queue.insert((key, number), id)),
        }
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<SequenceId> {
        match self {
            Queue::Arrival(queue) => queue.front().copied(),
            Queue::Key(queue) => first(queue),
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<SequenceId> {
        match self {
            Queue::Arrival(queue) => queue.pop_front(),
            Queue::Key(queue) => queue.pop_first().map(|(_, id)| id),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Queue::Arrival(queue) => queue.len() as u64,
            Queue::Key(queue) => queue.len() as u64,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SequenceId> + '_ {
        let (queue, keys) = match self {
            Queue::Arrival(queue) => (Some(queue), None),
            Queue::Key(keys) => (None, Some(keys)),
        };
        queue.into_iter().flatten().chain(keys.into_iter().flat_map(BTreeMap::values)).copied()
    }

    /// Sorts a queue in order of arrival by `key`.
    #[cfg(test)]
    pub(crate) fn sort_by(&mut self, key: impl Fn(SequenceId) -> u64) {
        if let Queue::Arrival(queue) = self {
            queue.make_contiguous().sort_by_key(|id| key(*id));
        }
    }
}
