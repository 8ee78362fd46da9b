//! The engine's time on the wall clock, or on a clock that clients advance.
//!
//! Knows: a running clock starts at a fixed time and has a fixed scale, so that a late wake-up delays one step and not the
//! steps after it. A stopped clock makes a run independent of the machine's speed.

use roofcast::clock::{TICKS_PER_PS, Ticks};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Engine ticks per nanosecond.
const TICKS_PER_NS: f64 = TICKS_PER_PS * 1e3;
/// Interval at which a thread looks if a stopped clock was advanced, while it also waits for messages.
const LOOK: Duration = Duration::from_millis(1);
/// Longest wait in seconds: a time beyond it is never reached.
const LONGEST: f64 = 1e9;

/// Mapping between engine time and wall-clock time, or a clock that stands still between advances.
#[derive(Debug, Clone)]
pub struct Pace(Clock);

#[derive(Debug, Clone)]
enum Clock {
    /// Clock of `scale` engine seconds per second of wall time.
    Running { start: Instant, scale: f64 },
    /// Clock that only [`Pace::advance`] changes; its seconds count as seconds of wall time.
    Stopped(Arc<Stopped>),
}

#[derive(Debug)]
struct Stopped {
    now: Mutex<Ticks>,
    advanced: Condvar,
}

impl Stopped {
    fn now(&self) -> MutexGuard<'_, Ticks> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ticks(seconds: f64) -> Ticks {
    Ticks((seconds * 1e9 * TICKS_PER_NS) as u128)
}

impl Pace {
    /// Creates a clock in which engine time starts now and runs `scale` times as fast as wall-clock time; a clock of
    /// scale 0 stands still until it is advanced.
    pub fn new(scale: f64) -> Pace {
        if scale > 0.0 {
            return Pace(Clock::Running { start: Instant::now(), scale });
        }
        Pace(Clock::Stopped(Arc::new(Stopped { now: Mutex::new(Ticks::ZERO), advanced: Condvar::new() })))
    }

    /// The engine's time now.
    pub(crate) fn now(&self) -> Ticks {
        match &self.0 {
            Clock::Running { start, scale } => {
                Ticks((start.elapsed().as_nanos() as f64 * scale * TICKS_PER_NS) as u128)
            }
            Clock::Stopped(stopped) => *stopped.now(),
        }
    }

    /// Wall-clock time to wait before the engine may have reached `time`.
    pub(crate) fn left(&self, time: Ticks) -> Duration {
        match &self.0 {
            Clock::Running { start, scale } => {
                wall(*start, *scale, time).saturating_duration_since(Instant::now())
            }
            Clock::Stopped(stopped) if *stopped.now() >= time => Duration::ZERO,
            Clock::Stopped(_) => LOOK,
        }
    }

    /// Blocks the thread until the engine reaches `time`; returns the delay on the wall clock with which the thread
    /// continues.
    pub(crate) fn wait(&self, time: Ticks) -> Duration {
        match &self.0 {
            Clock::Running { .. } => {
                let left = self.left(time);
                if !left.is_zero() {
                    std::thread::sleep(left);
                }
            }
            Clock::Stopped(stopped) => {
                let early = |now: &mut Ticks| *now < time;
                drop(
                    stopped.advanced.wait_while(stopped.now(), early).unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
        self.lag(time)
    }

    /// Wall-clock time since the engine reached `time`; zero on a stopped clock.
    pub(crate) fn lag(&self, time: Ticks) -> Duration {
        match &self.0 {
            Clock::Running { start, scale } => {
                Instant::now().saturating_duration_since(wall(*start, *scale, time))
            }
            Clock::Stopped(_) => Duration::ZERO,
        }
    }

    /// Wall-clock seconds of an engine duration.
    pub(crate) fn seconds(&self, span: Ticks) -> f64 {
        match &self.0 {
            Clock::Running { scale, .. } => span.seconds() / scale,
            Clock::Stopped(_) => span.seconds(),
        }
    }

    /// True if the clock stands still between advances.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.0, Clock::Stopped(_))
    }

    /// Advances a stopped clock by `seconds`; without effect on a running one.
    pub(crate) fn advance(&self, seconds: f64) {
        if let Clock::Stopped(stopped) = &self.0 {
            let mut now = stopped.now();
            *now += ticks(seconds);
            stopped.advanced.notify_all();
        }
    }

    /// Advances a stopped clock beyond every step, so that threads that wait for it can end.
    pub(crate) fn release(&self) {
        self.advance(LONGEST);
    }
}

/// The wall-clock time at which an engine that started at `start` reaches `time`.
fn wall(start: Instant, scale: f64, time: Ticks) -> Instant {
    start + Duration::from_secs_f64((time.seconds() / scale).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seconds_of_the_engine_take_one() {
        let pace = Pace::new(10.0);
        let start = Instant::now();
        assert_eq!(wall(start, 10.0, ticks(10.0)) - start, Duration::from_secs(1));
        assert!((pace.seconds(ticks(10.0)) - 1.0).abs() < 1e-12);
        let before = pace.now();
        assert_eq!((pace.left(before), pace.now() >= before), (Duration::ZERO, true));
    }

    /// A thread that waits for 2.5 s continues after the second advance of 2 s, not after the first.
    #[test]
    fn a_stopped_clock_runs_by_advances() {
        let pace = Pace::new(0.0);
        assert!((pace.now(), pace.left(ticks(2.5))) == (Ticks::ZERO, LOOK) && pace.is_stopped());
        let waiter = {
            let pace = pace.clone();
            std::thread::spawn(move || (pace.wait(ticks(2.5)), pace.now()))
        };
        pace.advance(2.0);
        assert_eq!((pace.now(), pace.left(ticks(2.5))), (ticks(2.0), LOOK));
        pace.advance(2.0);
        assert_eq!(pace.left(ticks(2.5)), Duration::ZERO);
        assert_eq!(waiter.join().unwrap(), (Duration::ZERO, ticks(4.0)));
        assert_eq!(pace.seconds(ticks(2.5)), 2.5);
    }
}
