//! The one clock of a process, in the units of records.
//!
//! Knows: monotonic time since it was started. Everything that is stamped is stamped here.

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

    /// The instant of a stamp, for timers.
    pub(super) fn instant(self, at: Picoseconds) -> tokio::time::Instant {
        (self.0 + Duration::from_nanos(at.0 / 1000)).into()
    }
}
