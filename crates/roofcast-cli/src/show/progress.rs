//! Progress of long work on a terminal, and interruption by Ctrl-C.
//!
//! Knows: a bar on stderr that is drawn only on a terminal, and the first Ctrl-C, after which the finished part is
//! shown; a second one ends the process. Knows nothing about the work.

use crate::host::{self, Watch};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Signals that ask a process to end.
const ENDS: [i32; 2] = [SIGINT, SIGTERM];

/// Interval at which the elapsed time of a phase is redrawn.
const TICK: Duration = Duration::from_millis(500);

/// Progress bar of work that may take long, and the signals that end the work.
pub(crate) struct Progress {
    bar: ProgressBar,
    stopped: Arc<AtomicBool>,
    /// Watcher of the program that runs roofcast, if roofcast runs inside one.
    host: Option<Arc<dyn Watch>>,
}

impl Progress {
    /// Starts to listen for signals; `of` names the counted things. The bar is drawn late, so that short work draws
    /// none.
    pub(crate) fn new(of: &str) -> Result<Progress> {
        let stopped = Arc::new(AtomicBool::new(false));
        if let Some(host) = host::watch() {
            return Ok(Progress { bar: ProgressBar::hidden(), stopped, host: Some(host) });
        }
        for signal in ENDS {
            // Exit code 128 + signal is the convention of shells for a process that a signal ended.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopped))
                .and_then(|_| flag::register(signal, Arc::clone(&stopped)))
                .context("waiting for Ctrl-C")?;
        }
        Ok(Progress { bar: drawn(&format!("{{wide_bar}} {{pos}}/{{len}} {of}")), stopped, host: None })
    }

    /// Starts to listen for signals, for work whose total is unknown.
    pub(crate) fn open(of: &str) -> Result<Progress> {
        let mut progress = Progress::new(of)?;
        if progress.host.is_none() {
            progress.bar = drawn(&format!("{{spinner}} {{pos}} {of}, {{elapsed}}"));
        }
        Ok(progress)
    }

    /// Starts to listen for signals, for a few long phases: the elapsed time advances while the count stands still.
    pub(crate) fn phases(of: &str, all: u64) -> Result<Progress> {
        let mut progress = Progress::new(of)?;
        if progress.host.is_none() {
            progress.bar = drawn(&format!("{{wide_bar}} {{pos}}/{{len}} {of}, {{elapsed}}"));
            progress.bar.set_length(all);
            progress.bar.enable_steady_tick(TICK);
        }
        Ok(progress)
    }

    /// Starts to listen for signals, for parts that are named one by one.
    pub(crate) fn named() -> Result<Progress> {
        let mut progress = Progress::new("parts")?;
        if progress.host.is_none() {
            progress.bar = drawn("{spinner} {msg}");
            progress.bar.enable_steady_tick(TICK);
        }
        Ok(progress)
    }

    /// Shows the name of the part that begins.
    pub(crate) fn say(&self, part: String) {
        self.bar.set_message(part);
    }

    /// Reports that `done` of `all` parts are done. True if the work shall go on.
    pub(crate) fn at(&self, done: u64, all: u64) -> bool {
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.told();
        self.goes_on()
    }

    /// Adds `count` to the finished parts.
    pub(crate) fn more(&self, count: u64) {
        self.bar.inc(count);
        self.told();
    }

    /// Reports the bar's position and length to the host.
    fn told(&self) {
        if let Some(host) = &self.host {
            host.at(self.bar.position(), self.bar.length().unwrap_or_default());
        }
    }

    /// Removes the bar from the terminal; other threads may continue to count.
    pub(crate) fn cleared(&self) {
        self.bar.finish_and_clear();
    }

    /// True unless a signal or the host has asked to end the work.
    pub(crate) fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && self.host.as_ref().is_none_or(|host| host.goes_on())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.cleared();
    }
}

/// A bar that is drawn on a terminal, and not drawn if stderr is a pipe.
fn drawn(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(4));
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style)
}
