//! The signals that end a run early: Ctrl-C, and the SIGTERM of a supervisor.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receiver of both signals.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts to listen; must be called within a runtime.
    pub(super) fn new() -> io::Result<Stop> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Stop { interrupt, terminate })
    }

    /// Completes when either signal arrives.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
