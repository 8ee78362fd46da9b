//! The link between a tier of the KV cache and the tier below it: copies in both directions, and when they end.
//!
//! Knows: copies in one direction follow each other. While both directions copy, each gets its max-min share of the
//! memory behind the link: [`CopySpeed::share`] of the rate that it has alone. Knows nothing about the copied contents
//! or waiting requests.

use roofcast_ask::kv_cache::tier::CopySpeed;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;
use std::collections::VecDeque;

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Copy of KV cache to the lower tier.
    Store,
    /// Copy of KV cache from the lower tier.
    Load,
}

/// A copy that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Number of the job that submitted the copy.
    pub(super) job: u64,
    /// Direction of the copy.
    pub(super) direction: Direction,
    /// Number of copied tokens.
    pub(super) tokens: u64,
    /// Time of the copy's end.
    pub(super) at: Ticks,
    /// Time from the copy's submission to its end.
    pub(super) took: Ticks,
}

#[derive(Debug, Clone, Copy)]
struct Copy {
    job: u64,
    tokens: u64,
    /// Remaining time of the copy while the other direction is idle.
    left: u128,
    submitted: Ticks,
}

/// A link between two tiers of one replica.
#[derive(Debug, Clone)]
pub(super) struct Link {
    speed: CopySpeed,
    now: Ticks,
    stores: VecDeque<Copy>,
    loads: VecDeque<Copy>,
    /// Ended copies that [`Link::take_ended`] has not returned, in order.
    ended: VecDeque<Ended>,
}

impl Link {
    /// A link without copies in flight.
    pub(super) fn new(speed: CopySpeed) -> Link {
        Link {
            speed,
            now: Ticks::ZERO,
            stores: VecDeque::new(),
            loads: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns the link without its copies.
    pub(super) fn emptied(&self) -> Link {
        Link::new(self.speed)
    }

    /// Time to copy `tokens` tokens while the other direction is idle.
    pub(super) fn time(&self, direction: Direction, tokens: u64) -> Ticks {
        let token = match direction {
            Direction::Store => self.speed.store_s,
            Direction::Load => self.speed.load_s,
        };
        Ticks::from(Picoseconds::from_seconds(self.speed.latency_s + tokens as f64 * token))
    }

    /// Queues a copy of `tokens` tokens at `now`.
    pub(super) fn submit(&mut self, direction: Direction, job: u64, tokens: u64, now: Ticks) {
        self.advance(now);
        self.pass(now);
        let copy = Copy { job, tokens, left: self.time(direction, tokens).0, submitted: now };
        match direction {
            Direction::Store => self.stores.push_back(copy),
            Direction::Load => self.loads.push_back(copy),
        }
    }

    /// Number of tokens of the copies in flight in one direction.
    pub(super) fn in_flight(&self, direction: Direction) -> u64 {
        let copies = if direction == Direction::Store { &self.stores } else { &self.loads };
        copies.iter().map(|copy| copy.tokens).sum()
    }

    /// Removes and returns the next copy that ends by `now`.
    pub(super) fn take_ended(&mut self, now: Ticks) -> Option<Ended> {
        self.advance(now);
        self.ended.pop_front()
    }

    /// End of the next copy in flight.
    pub(super) fn next_end(&self) -> Option<Ticks> {
        self.next().map(|(end, _)| end)
    }

    /// Time at which the last copy of the `jobs` ends, if nothing is submitted until then.
    pub(super) fn end_of(&self, jobs: impl Fn(u64) -> bool) -> Ticks {
        let mut link = self.clone();
        let mut last = self.now;
        link.ended.clear();
        while let Some(end) = link.next_end() {
            if link.take_ended(end).is_some_and(|ended| jobs(ended.job)) {
                last = end;
            }
        }
        last
    }

    fn next(&self) -> Option<(Ticks, Direction)> {
        let end = |copy: &Copy| Ticks(self.now.0 + self.slowed(copy.left));
        let stores = self.stores.front().map(|copy| (end(copy), Direction::Store));
        let loads = self.loads.front().map(|copy| (end(copy), Direction::Load));
        match (stores, loads) {
            (Some(store), Some(load)) => Some(if store.0 <= load.0 { store } else { load }),
            (one, other) => one.or(other),
        }
    }

    /// Rate of each direction, as a fraction of the rate that it has alone.
    fn speed(&self) -> f64 {
        if self.stores.is_empty() || self.loads.is_empty() { 1.0 } else { self.speed.share }
    }

    fn slowed(&self, left: u128) -> u128 {
        let speed = self.speed();
        if speed < 1.0 { (left as f64 / speed).ceil() as u128 } else { left }
    }

    /// Ends the copies that end by `now`. Copies in flight are accounted for only at ends and submissions, so that their
    /// ends do not depend on how often the link is looked at.
    fn advance(&mut self, now: Ticks) {
        while let Some((end, direction)) = self.next().filter(|(end, _)| *end <= now) {
            self.pass(end);
            let queue = if direction == Direction::Store { &mut self.stores } else { &mut self.loads };
            if let Some(Copy { job, tokens, submitted, .. }) = queue.pop_front() {
                self.ended.push_back(Ended { job, direction, tokens, at: end, took: end - submitted });
            }
        }
    }

    /// Advances the link to `now`; no copy may end before.
    fn pass(&mut self, now: Ticks) {
        let elapsed = now.0.saturating_sub(self.now.0);
        let speed = self.speed();
        let copied = if speed < 1.0 { (elapsed as f64 * speed).round() as u128 } else { elapsed };
        for queue in [&mut self.stores, &mut self.loads] {
            if let Some(copy) = queue.front_mut() {
                copy.left = copy.left.saturating_sub(copied);
            }
        }
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(n: u64) -> Ticks {
        Ticks::from(Picoseconds(1000 * n))
    }

    /// A link that copies one token per ns.
    fn link(share: f64) -> Link {
        Link::new(CopySpeed { store_s: 1e-9, load_s: 1e-9, latency_s: 0.0, share })
    }

    fn ends(link: &mut Link) -> Vec<(u64, Ticks)> {
        let mut ends = Vec::new();
        while let Some(end) = link.next_end() {
            while let Some(ended) = link.take_ended(end) {
                ends.push((ended.job, end));
            }
        }
        ends
    }

    /// Two stores of 100 and 50 ns, from 10 ns on, end at 110 and 160 ns; a load of 5 ns from 20 ns on runs in parallel
    /// and ends at 25.
    #[test]
    fn each_direction_is_a_queue() {
        let mut link = link(1.0);
        link.submit(Direction::Store, 1, 100, ns(10));
        link.submit(Direction::Store, 2, 50, ns(20));
        link.submit(Direction::Load, 3, 5, ns(20));
        assert_eq!(link.end_of(|job| job == 1), ns(110));
        assert_eq!(ends(&mut link), [(3, ns(25)), (1, ns(110)), (2, ns(160))]);
    }

    /// Each direction has half its rate while both copy. A store of 100 ns runs alone until 20 ns, with 80 ns
    /// remaining. A load of 30 ns then takes 60, until 80 ns, while the store completes 30; its last 50 ns end at 130.
    #[test]
    fn directions_share_the_hosts_memory() {
        let mut link = link(0.5);
        link.submit(Direction::Store, 1, 100, ns(0));
        link.submit(Direction::Load, 2, 30, ns(20));
        assert_eq!(link.take_ended(ns(79)), None);
        assert_eq!(link.end_of(|_| true), ns(130));
        let ended = link.take_ended(ns(80));
        assert_eq!(link.in_flight(Direction::Store), 100);
        let load = Ended { job: 2, direction: Direction::Load, tokens: 30, at: ns(80), took: ns(60) };
        assert_eq!(ended, Some(load));
        assert_eq!(ends(&mut link), [(1, ns(130))]);
    }

    /// A link of 5 ns latency that reads a token in 1 ns and writes a token in 2 ns: a load of 10 tokens takes 15 ns, a
    /// store 25 ns.
    #[test]
    fn directions_have_their_own_rates() {
        let mut link = Link::new(CopySpeed { store_s: 2e-9, load_s: 1e-9, latency_s: 5e-9, share: 1.0 });
        link.submit(Direction::Load, 1, 10, ns(0));
        link.submit(Direction::Store, 2, 10, ns(0));
        assert_eq!(ends(&mut link), [(1, ns(15)), (2, ns(25))]);
    }
}
