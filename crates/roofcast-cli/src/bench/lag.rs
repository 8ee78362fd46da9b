//! How late the client's own loop runs.
//!
//! Knows: a timer that should fire every ten milliseconds, and when it did. A loop that is busy wakes it late by as much
//! as it reads its sockets late; after a stall every tick that was missed counts, so that a sample is a share of time.
//! Timers count whole milliseconds, so up to one of them is no lag.

use super::clock::Clock;
use roofcast::units::Picoseconds;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// Ten milliseconds.
const TICK: Picoseconds = Picoseconds(10_000_000_000);

/// A measurement that goes on.
pub(super) struct Lag {
    samples: Arc<Mutex<Vec<f64>>>,
    task: JoinHandle<()>,
}

impl Lag {
    pub(super) fn start(clock: Clock) -> Lag {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&samples);
        let task = tokio::spawn(async move {
            let mut due = clock.now();
            loop {
                due += TICK;
                tokio::time::sleep_until(clock.instant(due)).await;
                let late = clock.now().0.saturating_sub(due.0);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(Picoseconds(late).ms());
            }
        });
        Lag { samples, task }
    }

    /// The samples, in milliseconds.
    pub(super) fn stop(self) -> Vec<f64> {
        self.task.abort();
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
