//! Lag of the client's own loop in reading its sockets.
//!
//! Knows: two measurements, of which the worse counts. Rounds: between two polls of the sockets the loop is busy, and
//! bytes that arrive in that time wait for the rest of the round and for their turn in the next; this is exact and
//! costs two clock readings a round. Beats: a timer is due every [`BEAT`], and its delay is recorded; this shows what
//! no round shows, a process that is stopped or waits for a processor. After a stall every missed beat counts, so that
//! the fraction of late beats is a fraction of time. On Linux the timer is the kernel's (`timerfd`), which wakes the
//! loop once a beat and is exact to the nanosecond; the runtime's timers wake the loop several times for one beat, and
//! count whole milliseconds.

use super::clock::Clock;
use roofcast::summary::Statistics;
use roofcast::units::Picoseconds;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;
#[cfg(target_os = "linux")]
use {
    rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
    std::future::poll_fn,
    std::pin::Pin,
    tokio::io::{AsyncRead, ReadBuf},
    tokio::net::unix::pipe::Receiver,
};

/// Interval of beats, a tenth of a second. It is not shorter because each beat wakes the client, which costs at least
/// as much as reading a token if few streams arrive.
const BEAT: Picoseconds = Picoseconds(100_000_000_000);

/// Lag of the loop over a run, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Late {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Late {
    fn worse(self, other: Late) -> Late {
        Late {
            mean: self.mean.max(other.mean),
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            max: self.max.max(other.max),
        }
    }
}

/// The rounds of a loop, whose starts and ends the runtime reports.
#[derive(Debug, Clone)]
pub(super) struct Lag {
    clock: Clock,
    rounds: Arc<Mutex<Rounds>>,
}

/// A measurement in progress.
pub(super) struct Measuring {
    lag: Lag,
    start: Picoseconds,
    beats: Arc<Mutex<Vec<f64>>>,
    task: JoinHandle<()>,
}

impl Lag {
    pub(super) fn new(clock: Clock) -> Lag {
        Lag { clock, rounds: Arc::default() }
    }

    /// Records that the loop has polled its sockets and starts to work.
    pub(super) fn woke(&self) {
        held(&self.rounds).begun = Some(self.clock.now());
    }

    /// Records that the work is done and the loop waits for its sockets.
    pub(super) fn rests(&self) {
        let now = self.clock.now();
        held(&self.rounds).end(now);
    }

    /// Records that the loop has polled its sockets in the middle of its work.
    pub(super) fn looked(&self) {
        let now = self.clock.now();
        let mut rounds = held(&self.rounds);
        rounds.end(now);
        rounds.begun = Some(now);
    }

    /// Starts a measurement, on the runtime whose rounds are reported.
    pub(super) fn start(&self) -> Measuring {
        let start = self.clock.now();
        let clock = self.clock;
        *held(&self.rounds) = Rounds { begun: Some(start), ..Rounds::default() };
        let beats = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(beating(clock, Arc::clone(&beats)));
        Measuring { lag: self.clone(), start, beats, task }
    }
}

/// Records the lag of each beat for as long as the future is polled; returns at once if no timer is available.
async fn beating(clock: Clock, beats: Arc<Mutex<Vec<f64>>>) {
    let mut due = clock.now() + BEAT;
    let Ok(mut timer) = Timer::new() else { return };
    loop {
        if timer.beat(clock.instant(due)).await.is_err() {
            return;
        }
        let now = clock.now();
        while due <= now {
            held(&beats).push(Picoseconds(now.0 - due.0).ms());
            due += BEAT;
        }
    }
}

/// Timer of beats on Linux: a `timerfd`, which the runtime can read as a pipe without unsafe code.
#[cfg(target_os = "linux")]
struct Timer(Receiver);

#[cfg(target_os = "linux")]
impl Timer {
    fn new() -> io::Result<Timer> {
        let each = Timespec { tv_sec: 0, tv_nsec: (BEAT.0 / 1000) as i64 };
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let times = Itimerspec { it_interval: each, it_value: each };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(Timer(Receiver::from_owned_fd_unchecked(timer)?))
    }

    /// Waits until the timer has fired again. The timer delivers a number of eight bytes; a larger buffer saves the
    /// second read that would find nothing.
    async fn beat(&mut self, _due: tokio::time::Instant) -> io::Result<()> {
        let mut fired = [0; 16];
        poll_fn(|cx| Pin::new(&mut self.0).poll_read(cx, &mut ReadBuf::new(&mut fired))).await
    }
}

/// Timer of beats by the runtime, on other systems.
#[cfg(not(target_os = "linux"))]
struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    fn new() -> io::Result<Timer> {
        Ok(Timer)
    }

    async fn beat(&mut self, due: tokio::time::Instant) -> io::Result<()> {
        tokio::time::sleep_until(due).await;
        Ok(())
    }
}

impl Measuring {
    /// Ends the measurement and returns the lag.
    pub(super) fn stop(self) -> Late {
        self.task.abort();
        let now = self.lag.clock.now();
        let mut beats = std::mem::take(&mut *held(&self.beats));
        let s = Statistics::of(&mut beats);
        let latest = beats.iter().copied().fold(0.0, f64::max);
        let late = Late { mean: s.mean, p50: s.median, p99: s.p99, max: latest };
        let mut rounds = held(&self.lag.rounds);
        rounds.end(now);
        late.worse(rounds.late(now.0.saturating_sub(self.start.0)))
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of bins for each factor of two in duration.
const FINE: f64 = 16.0;
/// Number of bins, from a microsecond to half an hour.
const BINS: usize = 31 * FINE as usize;
/// Upper end of the first bin, in picoseconds.
const LEAST: f64 = 1e6;

/// Rounds, in bins by the longest wait of bytes: bytes that arrive at the start of a round wait until its end, and then
/// for their turn in the next.
#[derive(Debug, Default)]
struct Rounds {
    /// Start of the current round.
    begun: Option<Picoseconds>,
    /// Duration of the previous round in picoseconds.
    before: Option<u64>,
    /// For each bin, the number of rounds and their total duration in picoseconds.
    bins: Vec<(u64, u128)>,
    longest: u64,
}

impl Rounds {
    fn end(&mut self, now: Picoseconds) {
        let Some(begun) = self.begun.take() else { return };
        let length = now.0.saturating_sub(begun.0);
        if let Some(before) = self.before.replace(length) {
            self.add(before, before.saturating_add(length));
        }
    }

    /// Adds a round of `length` picoseconds; bytes that arrive at its start wait for `most` picoseconds.
    fn add(&mut self, length: u64, most: u64) {
        if self.bins.is_empty() {
            self.bins = vec![(0, 0); BINS];
        }
        let bin = ((most as f64 / LEAST).max(1.0).log2() * FINE).ceil() as usize;
        if let Some((count, time)) = self.bins.get_mut(bin.min(BINS - 1)) {
            *count += 1;
            *time += u128::from(length);
        }
        self.longest = self.longest.max(most);
    }

    /// Lag in milliseconds over `all` the time of the run, in picoseconds. Bytes that arrive while the loop is idle do
    /// not wait.
    fn late(&mut self, all: u64) -> Late {
        if let Some(last) = self.before.take() {
            self.add(last, last);
        }
        let all = all.max(1) as f64;
        let edge = |bin: usize| LEAST * (bin as f64 / FINE).exp2();
        let bins = || self.bins.iter().enumerate().filter(|(_, (count, _))| *count > 0);
        // Bytes that arrive after the fraction s of a round of length a wait for most − s a; on average they arrive
        // mid-round.
        let waited = bins().map(|(bin, (count, time))| {
            let count = *count as f64;
            let time = *time as f64;
            time * (edge(bin) - time / count / 2.0)
        });
        // Fraction of time in which arriving bytes wait for longer than `x`.
        let beyond = |x: f64| {
            let part = |(bin, (count, time)): (usize, &(u64, u128))| {
                (*count as f64 * (edge(bin) - x)).clamp(0.0, *time as f64)
            };
            bins().map(part).sum::<f64>() / all
        };
        let longest = self.longest as f64;
        let quantile = |q: f64| {
            let mut low = 0.0;
            let mut high = longest;
            if beyond(low) <= 1.0 - q {
                return 0.0;
            }
            for _ in 0..40 {
                let middle = (low + high) / 2.0;
                *(if beyond(middle) > 1.0 - q { &mut low } else { &mut high }) = middle;
            }
            high
        };
        let ms = |ps: f64| ps / 1e9;
        Late {
            mean: ms(waited.sum::<f64>() / all),
            p50: ms(quantile(0.5)),
            p99: ms(quantile(0.99)),
            max: ms(longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;

    fn rounds(lengths: &[u64]) -> Rounds {
        let mut rounds = Rounds::default();
        let mut now = 0;
        for length in lengths {
            rounds.begun = Some(Picoseconds(now));
            now += length;
            rounds.end(Picoseconds(now));
            now += 5 * MS;
        }
        rounds
    }

    fn near(found: f64, expected: f64) {
        // A bin is 2^(1/16) wide.
        assert!(found >= expected * 0.999 && found <= expected * 1.046, "{found} is not {expected}");
    }

    /// Rounds of 10 ms fill 1 s of a run of 2 s: for half of the time arriving bytes wait for 10 to 20 ms, as the next
    /// round takes 10 ms, too. The mean is 0.5 · 15 ms. At the 99th percentile 0.01 · 2 s = 20 ms of the run remain
    /// above, which are 0.2 ms of each of the 100 rounds: 20 − 0.2 ms.
    #[test]
    fn rounds_by_hand() {
        let late = rounds(&[10 * MS; 100]).late(2000 * MS);
        near(late.p99, 19.8);
        near(late.mean, 7.5);
        near(late.max, 20.0);
    }

    /// A single round that takes at most a hundredth of the time is beyond the 99th percentile, however long it is.
    #[test]
    fn one_long_round_is_the_maximum_alone() {
        let late = rounds(&[MS / 1000, 9 * MS, MS / 1000]).late(1000 * MS);
        assert_eq!((late.p50, late.p99), (0.0, 0.0));
        near(late.max, 9.001);
    }

    #[test]
    fn a_loop_that_rests_is_never_late() {
        assert_eq!(Rounds::default().late(MS), Late::default());
    }
}
