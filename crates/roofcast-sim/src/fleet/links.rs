//! KV caches that travel from one replica to another, and how they share links.
//!
//! Knows: a receiver fetches one cache at a time, in the order in which it admits requests; receivers that fetch from one sender at
//! a time share the sender's link equally, so that a cache takes as many times as long as there are. A cache that travels alone
//! takes the time of its path ([`super::TransferPath`]). Knows nothing about requests, or traffic of other kinds.

use crate::scheduler::state::KvPull;
use roofcast_facts::clock::Ticks;
use std::collections::{BTreeMap, VecDeque};

/// One end of a transfer: a replica, and which of its data-parallel ranks.
pub(super) type End = (usize, usize);

/// A cache that travels or waits for its receiver's link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// Sender of the cache.
    pub(super) from: End,
    /// Admission of the request at the receiver.
    pub(super) pull: KvPull,
    /// Time that the rest of the cache takes on a link of its own.
    pub(super) left: Ticks,
    /// Time from which the cache travels; never while it waits.
    pub(super) since: Ticks,
}

/// The links between two pools.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    now: Ticks,
    /// Caches by receiver; the first one travels.
    queues: BTreeMap<End, VecDeque<Flow>>,
    /// End of the next transfer, and its receiver.
    next: Option<(Ticks, End)>,
}

impl Links {
    /// Queues a cache for receiver `to` at `at`; calls are in order of time.
    pub(super) fn start(&mut self, to: End, flow: Flow, at: Ticks) {
        self.advance(at);
        let queue = self.queues.entry(to).or_default();
        let since = if queue.is_empty() { at } else { Ticks::NEVER };
        queue.push_back(Flow { since, ..flow });
        self.note_next();
    }

    /// End of the next transfer, and its receiver.
    pub(super) fn next_end(&self) -> Option<(Ticks, End)> {
        self.next
    }

    /// Ends the transfer to `to` at `at`, which [`Links::next_end`] returned; the next one to that receiver begins.
    pub(super) fn end(&mut self, to: End, at: Ticks) -> Option<Flow> {
        self.advance(at);
        let queue = self.queues.get_mut(&to)?;
        let ended = queue.pop_front();
        match queue.front_mut() {
            Some(next) => next.since = at,
            None => drop(self.queues.remove(&to)),
        }
        self.note_next();
        ended
    }

    fn note_next(&mut self) {
        let shares = self.shares();
        let ends = self.queues.iter().filter_map(|(to, queue)| {
            let flow = queue.front()?;
            Some((Ticks(self.now.0 + flow.left.0 * shares[&flow.from]), *to))
        });
        self.next = ends.min();
    }

    /// For each sender, the number of caches that travel from it.
    fn shares(&self) -> BTreeMap<End, u128> {
        let mut shares = BTreeMap::new();
        for flow in self.queues.values().filter_map(VecDeque::front) {
            *shares.entry(flow.from).or_default() += 1;
        }
        shares
    }

    fn advance(&mut self, at: Ticks) {
        let elapsed = at.0.saturating_sub(self.now.0);
        let shares = self.shares();
        for flow in self.queues.values_mut().filter_map(VecDeque::front_mut) {
            flow.left = Ticks(flow.left.0.saturating_sub(elapsed / shares[&flow.from]));
        }
        self.now = self.now.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of the transfers that `starts` begin, in order: receiver and time.
    fn ends(starts: &[(u128, End, End, u128)]) -> Vec<(usize, u128)> {
        let mut links = Links::default();
        let mut ended = Vec::new();
        let mut until = |links: &mut Links, at: u128| {
            while let Some((end, to)) = links.next_end().filter(|(end, _)| end.0 <= at) {
                links.end(to, end);
                ended.push((to.0, end.0));
            }
        };
        for &(at, from, to, alone) in starts {
            until(&mut links, at);
            let pull = KvPull { number: 0, id: 0, at: Ticks(at), lane: 0 };
            links.start(to, Flow { from, pull, left: Ticks(alone), since: Ticks::NEVER }, Ticks(at));
        }
        until(&mut links, u128::MAX);
        ended
    }

    /// Receivers 7 and 8 fetch 100 each from sender 1: alone until 40, with 60 left, then both at half the rate; at 160 the first
    /// has ended, and the second has 40 left, until 200. A receiver of another sender is not affected, nor one of another rank.
    #[test]
    fn receivers_share_a_sender() {
        let two_starts = [(0, (1, 0), (7, 0), 100), (40, (1, 0), (8, 0), 100)];
        assert_eq!(ends(&two_starts), [(7, 160), (8, 200)]);
        assert_eq!(ends(&[two_starts[0], (40, (2, 0), (8, 0), 100)]), [(7, 100), (8, 140)]);
        assert_eq!(ends(&[two_starts[0], (40, (1, 1), (8, 0), 100)]), [(7, 100), (8, 140)]);
    }

    /// A receiver fetches one cache after another, whatever the sender: 100, then 50 from 100 on. The second shares its sender
    /// with receiver 8 from 100 on, which has 60 left of 160 then: both at half the rate until 200, and the last 10 until 210.
    #[test]
    fn a_receiver_fetches_one_at_a_time() {
        let starts = [(0, (1, 0), (7, 0), 100), (0, (2, 0), (7, 0), 50), (0, (2, 0), (8, 0), 160)];
        assert_eq!(ends(&starts), [(7, 100), (7, 200), (8, 210)]);
    }
}
