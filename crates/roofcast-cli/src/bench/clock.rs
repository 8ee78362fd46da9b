//! The one clock of a process, in picoseconds.
//!
//! Knows: monotonic time since the clock was started. All times of a run come from it, so that they can be compared.

use roofcast::units::Picoseconds;
use std::time::{Duration, Instant};

/// A monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(super) fn now(self) -> Picoseconds {
        let elapsed = self.0.elapsed();
        Picoseconds(elapsed.as_secs() * 1_000_000_000_000 + u64::from(elapsed.subsec_nanos()) * 1000)
    }

    /// Converts a time of this clock to an instant for the runtime's timers.
    pub(super) fn instant(self, at: Picoseconds) -> tokio::time::Instant {
        (self.0 + Duration::from_nanos(at.0 / 1000)).into()
    }
}
