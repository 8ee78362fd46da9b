//! Failures of replicas: each loses its requests and its cache, and accepts requests again after a restart.
//!
//! Knows: when each replica fails and returns, which requests it holds, and what becomes of them. A replica fails when the
//! step in which its failure falls has ended. Knows nothing about routing.

use roofcast_ask::arrival::Arrival;
use roofcast_ask::spec::FailuresSpec;
use roofcast_ask::workload::Prompt;
use roofcast_ask::workload::random::{Purpose, Stream};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::Picoseconds;
use std::collections::BTreeMap;

/// Number of failures in a row, for each replica, after which a run without an answer ends. A request that takes t survives
/// a mean time of m between failures with probability exp(-t/m): one of 2 m is in vain so often once in 2 million runs
/// (0.865^100), one of 7 m in 9 of 10.
const FRUITLESS: u64 = 100;

/// A request that a replica has lost, or that no replica could accept.
pub(super) type LostRequest = (Arrival, Prompt);

/// A change of a replica's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The replica with this index fails.
    Fails(usize),
    /// The replica with this index accepts requests again.
    Returns(usize),
    /// A failure finds a replica that does not run, and is none.
    Nothing,
}

/// Failures of the replicas of a fleet.
#[derive(Debug)]
pub(crate) struct Failures {
    /// True if lost requests are sent again.
    pub(super) retry: bool,
    restart: Ticks,
    each: Vec<Lifetimes>,
    /// Requests for which no replica was up.
    pub(super) parked: Vec<LostRequest>,
    /// Number of failures.
    pub(crate) count: u64,
    /// Number of requests that were sent again.
    pub(crate) retried: u64,
    /// Number of failures in a row that lost requests, since a request last left its replica otherwise.
    fruitless: u64,
    /// Longest time from the arrival of one of these requests on its replica to the failure.
    longest: Ticks,
    /// Time of the last failure that lost requests.
    pub(super) lost_at: Ticks,
    /// Times at which replicas failed and returned.
    outages: Vec<(Ticks, Ticks)>,
    /// Time in which replicas were down until the end of the run, summed over replicas.
    pub(crate) down: Ticks,
    /// End of the run.
    end: Ticks,
}

/// Failures of one replica.
#[derive(Debug)]
struct Lifetimes {
    /// Mean time between the start and the next failure in seconds; `None` for planned failures.
    mean_s: Option<f64>,
    stream: Stream,
    /// Planned times of failures in descending order.
    planned: Vec<Ticks>,
    /// Time of the next change.
    next: Ticks,
    /// Time of the last failure; `None` while the replica is up.
    failed: Option<Ticks>,
    /// Requests on the replica or on its server, by number.
    held: BTreeMap<u64, LostRequest>,
}

impl Lifetimes {
    /// Time of the first failure after `since`, or never.
    fn fails(&mut self, since: Ticks) -> Ticks {
        if let Some(mean_s) = self.mean_s {
            return since + ticks(mean_s * self.stream.exponential());
        }
        while let Some(at) = self.planned.pop() {
            if at >= since {
                return at;
            }
        }
        Ticks::NEVER
    }
}

fn ticks(seconds: f64) -> Ticks {
    Picoseconds::from_seconds(seconds).into()
}

impl Failures {
    /// Failures of `count` replicas that are up; `seed` draws their times.
    pub(crate) fn new(spec: &FailuresSpec, count: usize, seed: u64) -> Failures {
        let lifetimes_of = |index: usize| {
            let events = spec.events.iter().filter(|event| event.replica as usize == index);
            let mut planned: Vec<Ticks> = events.map(|event| ticks(event.at_s)).collect();
            planned.sort_unstable_by(|a, b| b.cmp(a));
            let mut lifetimes = Lifetimes {
                mean_s: spec.mtbf_s,
                stream: Stream::part(seed, Purpose::Failures, index as u64),
                planned,
                next: Ticks::NEVER,
                failed: None,
                held: BTreeMap::new(),
            };
            lifetimes.next = lifetimes.fails(Ticks::ZERO);
            lifetimes
        };
        Failures {
            retry: spec.retry,
            restart: ticks(spec.restart_s),
            each: (0..count).map(lifetimes_of).collect(),
            parked: Vec::new(),
            count: 0,
            retried: 0,
            fruitless: 0,
            longest: Ticks::ZERO,
            lost_at: Ticks::ZERO,
            outages: Vec::new(),
            down: Ticks::ZERO,
            end: Ticks::ZERO,
        }
    }

    /// Time of the next change, or never.
    pub(super) fn due(&self) -> Ticks {
        self.each.iter().map(|one| one.next).min().unwrap_or(Ticks::NEVER)
    }

    /// Applies the next change, and returns it with its time; `runs` is true of replicas that can fail. The time to the next
    /// failure is drawn without memory, so that a replica that does not run need not be timed anew when it starts.
    pub(super) fn change(&mut self, runs: &dyn Fn(usize) -> bool) -> Option<(Ticks, Change)> {
        let index = (0..self.each.len()).min_by_key(|index| self.each[*index].next)?;
        let replica = &mut self.each[index];
        let at = replica.next;
        match replica.failed.take() {
            Some(failed) => {
                self.outages.push((failed, at));
                replica.next = replica.fails(at);
                Some((at, Change::Returns(index)))
            }
            None if !runs(index) => {
                replica.next = replica.fails(at);
                Some((at, Change::Nothing))
            }
            None => {
                self.count += 1;
                (replica.failed, replica.next) = (Some(at), at + self.restart);
                Some((at, Change::Fails(index)))
            }
        }
    }

    /// True if replica `index` is down.
    pub(super) fn is_down(&self, index: usize) -> bool {
        self.each[index].failed.is_some()
    }

    /// Indices of the replicas that are up.
    pub(super) fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.each.len()).filter(|index| !self.is_down(*index))
    }

    /// Records that replica `index` has received a request.
    pub(super) fn hold(&mut self, index: usize, arrival: Arrival, prompt: Prompt) {
        self.each[index].held.insert(arrival.number, (arrival, prompt));
    }

    /// Records that replica `index` has answered or refused request `number`.
    pub(super) fn release(&mut self, index: usize, number: u64) {
        self.each[index].held.remove(&number);
        (self.fruitless, self.longest) = (0, Ticks::ZERO);
    }

    /// Takes the requests that replica `index` has lost at `at`, in order of their numbers.
    pub(super) fn lost(&mut self, index: usize, at: Ticks) -> Vec<LostRequest> {
        let lost: Vec<LostRequest> = std::mem::take(&mut self.each[index].held).into_values().collect();
        if !lost.is_empty() {
            (self.lost_at, self.fruitless) = (at, self.fruitless + 1);
        }
        let longest = lost.iter().map(|(arrival, _)| at - arrival.at).max();
        self.longest = self.longest.max(longest.unwrap_or_default());
        lost
    }

    /// Fails if drawn failures come so often that requests which are sent again are not answered.
    pub(super) fn check_progress(&self) -> Result<()> {
        let mean_s = self.each.iter().find_map(|replica| replica.mean_s);
        match mean_s.filter(|_| self.fruitless >= FRUITLESS * self.each.len() as u64) {
            Some(mtbf_s) => {
                Err(Error::Unanswered { failures: self.fruitless, mtbf_s, longest_s: self.longest.seconds() })
            }
            None => Ok(()),
        }
    }

    /// Ends the run at `end`; a replica may return later.
    pub(super) fn close(&mut self, end: Ticks) {
        self.outages
            .extend(self.each.iter().filter_map(|replica| replica.failed).map(|failed| (failed, end)));
        for (failed, returned) in self.outages.drain(..) {
            self.down += returned.min(end) - failed.min(end);
        }
        self.end = end;
    }

    /// Seconds of the run, summed over the replicas that may fail.
    pub(super) fn whole_s(&self) -> f64 {
        self.end.seconds() * self.each.len() as f64
    }

    /// Fraction of `whole` seconds of replicas in which these were up.
    pub(super) fn availability(&self, whole: f64) -> f64 {
        if whole > 0.0 { 1.0 - self.down.seconds() / whole } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::spec::FailureEvent;

    /// Replica 1 fails at 60 s and returns at 70 s; the failure planned for 65 s finds it down. Replica 0 stays up.
    #[test]
    fn planned_failures_by_hand() {
        let event = |at_s| FailureEvent { replica: 1, at_s };
        let events = vec![event(65.0), event(60.0)];
        let spec = FailuresSpec { mtbf_s: None, restart_s: 10.0, retry: true, events };
        let mut failures = Failures::new(&spec, 2, 0);
        assert_eq!(failures.change(&|_| true), Some((ticks(60.0), Change::Fails(1))));
        assert_eq!((failures.is_down(1), failures.up().collect::<Vec<_>>()), (true, vec![0]));
        assert_eq!(failures.change(&|_| true), Some((ticks(70.0), Change::Returns(1))));
        assert_eq!((failures.due(), failures.count), (Ticks::NEVER, 1));
        failures.close(ticks(100.0));
        // 10 s of 2 × 100 s.
        assert!((failures.availability(200.0) - 0.95).abs() < 1e-12);
    }

    /// A mean of 10 s up and 10 s down is 500 failures in 10,000 s, with a variance of a quarter of a Poisson process's
    /// (renewals of mean 20 s and deviation 10 s): a deviation of √(10,000 · 10²/20³) = 11.2.
    #[test]
    fn drawn_failures_have_their_mean() {
        let spec = FailuresSpec { mtbf_s: Some(10.0), restart_s: 10.0, retry: true, events: Vec::new() };
        for seed in 0..3 {
            let mut failures = Failures::new(&spec, 1, seed);
            while failures.due() < ticks(10_000.0) {
                failures.change(&|_| true);
            }
            failures.close(ticks(10_000.0));
            assert!((failures.count as f64 - 500.0).abs() < 5.0 * 11.2, "{}", failures.count);
            assert!((failures.availability(10_000.0) - 0.5).abs() < 0.06);
        }
    }
}
