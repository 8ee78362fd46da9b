//! The signals that end a run before its time: Ctrl-C, and SIGTERM of whoever runs it.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, from when it was made.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Begins to listen; within a runtime.
    pub(super) fn new() -> io::Result<Stop> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Stop { interrupt, terminate })
    }

    /// Ends when either came.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
