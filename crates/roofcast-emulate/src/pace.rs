//! The engine's time on the wall clock.
//!
//! Knows: engine time runs from a fixed start at a fixed scale, so that a late wake-up delays one step and not the
//! steps after it.

use roofcast::clock::{TICKS_PER_PS, Ticks};
use std::time::{Duration, Instant};

/// Engine ticks per nanosecond.
const TICKS_PER_NS: f64 = TICKS_PER_PS * 1e3;

/// Mapping between engine time and wall-clock time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    /// Engine seconds per second of wall time.
    scale: f64,
}

impl Pace {
    /// Creates a mapping in which engine time starts now and runs `scale` times as fast as wall-clock time.
    pub fn new(scale: f64) -> Pace {
        Pace { start: Instant::now(), scale }
    }

    /// The engine's time now.
    pub(crate) fn now(&self) -> Ticks {
        let wall = self.start.elapsed().as_nanos() as f64;
        Ticks((wall * self.scale * TICKS_PER_NS) as u128)
    }

    /// The wall-clock time at which the engine reaches `time`.
    pub(crate) fn wall(&self, time: Ticks) -> Instant {
        self.start + Duration::from_secs_f64((time.seconds() / self.scale).min(1e9))
    }

    /// Wall-clock seconds of an engine duration.
    pub(crate) fn seconds(&self, span: Ticks) -> f64 {
        span.seconds() / self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seconds_of_the_engine_take_one() {
        let pace = Pace::new(10.0);
        let ten = Ticks((1e13 * TICKS_PER_PS) as u128);
        assert_eq!(pace.wall(ten) - pace.start, Duration::from_secs(1));
        assert!((pace.seconds(ten) - 1.0).abs() < 1e-12);
        let (before, wall) = (pace.now(), Instant::now());
        assert!(pace.wall(before) <= wall);
    }
}
