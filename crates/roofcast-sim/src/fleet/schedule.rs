//! A schedule of replicas: how many accept requests in each interval of a run.
//!
//! Knows: replica `k` is wanted while the scheduled number exceeds `k`. It starts one start-up time before it is
//! wanted, so that it is ready in time, and stays up over gaps that are no longer than a start-up. Knows nothing about
//! requests.

use roofcast_ask::spec::ScheduleSpec;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;

/// A period in which a replica is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// Time at which the replica starts.
    pub(super) since: Ticks,
    /// Time from which the replica accepts requests.
    pub(super) ready: Ticks,
    /// Time from which the replica accepts no requests; requests in flight are still answered.
    pub(super) until: Ticks,
}

/// The windows of all replicas.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    interval: Ticks,
    counts: Vec<usize>,
    /// Windows of each replica, in order of time.
    windows: Vec<Vec<Window>>,
}

impl Schedule {
    /// The schedule of a validated spec.
    pub(super) fn new(spec: &ScheduleSpec) -> Schedule {
        let ticks = |s: f64| Ticks::from(Picoseconds::from_seconds(s));
        let interval = ticks(spec.interval_s);
        let startup = ticks(spec.startup_s);
        let counts: Vec<usize> = spec.replicas.iter().map(|n| *n as usize).collect();
        let replica_count = counts.iter().copied().max().unwrap_or(0);
        let windows = (0..replica_count).map(|index| windows(&counts, index, interval, startup)).collect();
        Schedule { interval, counts, windows }
    }

    /// Number of replicas that accept requests at `at`; after its end the schedule keeps its last number.
    pub(super) fn wanted(&self, at: Ticks) -> usize {
        let interval = usize::try_from(at / self.interval).unwrap_or(usize::MAX);
        self.counts.get(interval).or(self.counts.last()).copied().unwrap_or(1)
    }

    /// Window `number` of replica `index`.
    pub(super) fn window(&self, index: usize, number: usize) -> Option<Window> {
        self.windows[index].get(number).copied()
    }

    /// Largest number of replicas in the schedule.
    pub(super) fn most(&self) -> usize {
        self.windows.len()
    }
}

fn windows(counts: &[usize], index: usize, interval: Ticks, startup: Ticks) -> Vec<Window> {
    let mut all: Vec<Window> = Vec::new();
    let at = |number: usize| Ticks(interval.0 * number as u128);
    for number in (0..counts.len()).filter(|number| counts[*number] > index) {
        let ready = at(number);
        let until = if number + 1 == counts.len() { Ticks::NEVER } else { at(number + 1) };
        let since = Ticks(ready.0.saturating_sub(startup.0));
        match all.last_mut().filter(|last| last.until >= since) {
            Some(last) => last.until = until,
            None => all.push(Window { since, ready, until }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Ticks {
        Ticks::from(Picoseconds::from_seconds(seconds))
    }

    /// Intervals of 10 s with a start-up of 12 s. The second replica is up from 0 (10 − 12 is before the run) to 20 s.
    /// The gap from 20 to 30 s is bridged, because it is shorter than a start-up; the gap from 40 to 70 s is not: the
    /// replica starts at 70 − 12 = 58.
    #[test]
    fn replicas_start_ahead_and_bridge_short_gaps() {
        let spec = ScheduleSpec { interval_s: 10.0, startup_s: 12.0, replicas: vec![1, 2, 1, 2, 1, 1, 1, 2] };
        let schedule = Schedule::new(&spec);
        let window = |number| schedule.window(1, number);
        assert_eq!(window(0), Some(Window { since: s(0.0), ready: s(10.0), until: s(40.0) }));
        assert_eq!(window(1), Some(Window { since: s(58.0), ready: s(70.0), until: Ticks::NEVER }));
        assert_eq!(window(2), None);
        assert_eq!(
            schedule.window(0, 0).unwrap(),
            Window { since: s(0.0), ready: s(0.0), until: Ticks::NEVER }
        );
        assert_eq!([0.0, 9.9, 10.0, 25.0, 79.0, 500.0].map(|at| schedule.wanted(s(at))), [1, 1, 2, 1, 2, 2]);
    }
}
