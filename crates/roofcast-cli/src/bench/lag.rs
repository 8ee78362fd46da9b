//! How late the client's own loop reads its sockets.
//!
//! Knows: two views of it, of which the worse counts. Rounds: between two looks at the sockets the loop is busy, and what
//! comes in that time waits for the rest of the round and for its turn in the next; this is exact and costs two readings of
//! the clock a round. Beats: a timer that is due every [`BEAT`], and when it was seen; this sees what no round does, a process
//! that is stopped or waits for a processor. After a stall every beat that was missed counts, so that a sample is a share
//! of time. On Linux the kernel's own timer beats, which wakes the loop once a beat and is due to the nanosecond; the
//! runtime's timers wake it several times for one, and count whole milliseconds.

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

/// A tenth of a second: each wakes the client, at the price of a token or more where few streams come.
const BEAT: Picoseconds = Picoseconds(100_000_000_000);

/// By how much the loop ran late, in milliseconds.
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

/// The rounds of a loop; the runtime says when they begin and end.
#[derive(Debug, Clone)]
pub(super) struct Lag {
    clock: Clock,
    rounds: Arc<Mutex<Rounds>>,
}

/// A measurement that goes on.
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

    /// The loop has looked at its sockets and goes to work.
    pub(super) fn woke(&self) {
        held(&self.rounds).begun = Some(self.clock.now());
    }

    /// The work is done; the loop will look at its sockets.
    pub(super) fn rests(&self) {
        let now = self.clock.now();
        held(&self.rounds).end(now);
    }

    /// The loop has looked at its sockets amid its work.
    pub(super) fn looked(&self) {
        let now = self.clock.now();
        let mut rounds = held(&self.rounds);
        rounds.end(now);
        rounds.begun = Some(now);
    }

    /// Starts a measurement, on the runtime that tells of its rounds.
    pub(super) fn start(&self) -> Measuring {
        let (start, clock) = (self.clock.now(), self.clock);
        *held(&self.rounds) = Rounds { begun: Some(start), ..Rounds::default() };
        let beats = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(beating(clock, Arc::clone(&beats)));
        Measuring { lag: self.clone(), start, beats, task }
    }
}

/// Keeps by how much each beat was late, for as long as it is polled; nothing where there is no timer to be had.
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

/// What wakes the loop for a beat: the kernel's timer, read as a pipe is, which is what the runtime can read safely.
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

    /// Waits until the timer has fired again. It tells a number of eight bytes; room for more saves a second look.
    async fn beat(&mut self, _due: tokio::time::Instant) -> io::Result<()> {
        let mut fired = [0; 16];
        poll_fn(|cx| Pin::new(&mut self.0).poll_read(cx, &mut ReadBuf::new(&mut fired))).await
    }
}

/// What wakes the loop for a beat.
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
    /// What was found.
    pub(super) fn stop(self) -> Late {
        self.task.abort();
        let now = self.lag.clock.now();
        let mut beats = std::mem::take(&mut *held(&self.beats));
        let s = Statistics::of(&mut beats);
        let most = beats.iter().copied().fold(0.0, f64::max);
        let late = Late { mean: s.mean, p50: s.median, p99: s.p99, max: most };
        let mut rounds = held(&self.lag.rounds);
        rounds.end(now);
        late.worse(rounds.late(now.0.saturating_sub(self.start.0)))
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bins of a factor of two.
const FINE: f64 = 16.0;
/// From a microsecond to half an hour.
const BINS: usize = 31 * FINE as usize;
/// Picoseconds that the first bin ends at.
const LEAST: f64 = 1e6;

/// Rounds by how long what comes at their start waits at most: for them, and for its turn in the next.
#[derive(Debug, Default)]
struct Rounds {
    /// When the one that goes on began.
    begun: Option<Picoseconds>,
    /// How long the one before took.
    before: Option<u64>,
    /// Rounds of a bin: how many, and how long they took together.
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

    /// A round of `length`, at whose start what comes waits for `most`.
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

    /// Milliseconds by which the loop was late over `all` the time, in picoseconds; what came while it rested was not.
    fn late(&mut self, all: u64) -> Late {
        if let Some(last) = self.before.take() {
            self.add(last, last);
        }
        let all = all.max(1) as f64;
        let edge = |bin: usize| LEAST * (bin as f64 / FINE).exp2();
        let bins = || self.bins.iter().enumerate().filter(|(_, (count, _))| *count > 0);
        // What comes after the share s of a round of length a waits for most − s a; it is mid-round in the mean.
        let waited = bins().map(|(bin, (count, time))| {
            let (count, time) = (*count as f64, *time as f64);
            time * (edge(bin) - time / count / 2.0)
        });
        // The share of time in which what comes waits for longer than `x`.
        let beyond = |x: f64| {
            let part = |(bin, (count, time)): (usize, &(u64, u128))| {
                (*count as f64 * (edge(bin) - x)).clamp(0.0, *time as f64)
            };
            bins().map(part).sum::<f64>() / all
        };
        let longest = self.longest as f64;
        let quantile = |q: f64| {
            let (mut low, mut high) = (0.0, longest);
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

    /// 100 rounds of 10 ms in 2 s: half of the time something waits for 10 to 20 ms, as the next round takes 10 ms, too. At
    /// the 99th percentile 0.01 · 2 s = 20 ms are left, 0.2 of each round: 20 − 0.2 ms. 0.5 · 15 ms in the mean.
    #[test]
    fn rounds_by_hand() {
        let late = rounds(&[10 * MS; 100]).late(2000 * MS);
        near(late.p99, 19.8);
        near(late.mean, 7.5);
        near(late.max, 20.0);
    }

    /// Rounds of a hundredth of the time at most are beyond the 99th percentile, however long one is.
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
