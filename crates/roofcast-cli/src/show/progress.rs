//! Progress of long work on a terminal, and interruption by Ctrl-C.
//!
//! Knows: a bar on stderr that is drawn only on a terminal, and the first Ctrl-C, after which the finished part is
//! shown; a second one ends the process.

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

/// Work that may take long.
pub(crate) struct Progress {
    bar: ProgressBar,
    stopped: Arc<AtomicBool>,
    /// The program that asked, if roofcast runs inside one.
    host: Option<Arc<dyn Watch>>,
}

impl Progress {
    /// Starts to listen for signals; `of` names the things that are counted. Short work ends before the bar is drawn.
    pub(crate) fn new(of: &str) -> Result<Progress> {
        let stopped = Arc::new(AtomicBool::new(false));
        if let Some(host) = host::watch() {
            return Ok(Progress { bar: ProgressBar::hidden(), stopped, host: Some(host) });
        }
        for signal in ENDS {
            // Shells expect this exit code from a process that a signal ended.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stopped))
                .and_then(|_| flag::register(signal, Arc::clone(&stopped)))
                .context("waiting for Ctrl-C")?;
        }
        Ok(Progress { bar: drawn(&format!("{{wide_bar}} {{pos}}/{{len}} {of}")), stopped, host: None })
    }

    /// Starts to listen, for work whose amount is unknown.
    pub(crate) fn open(of: &str) -> Result<Progress> {
        let mut progress = Progress::new(of)?;
        if progress.host.is_none() {
            progress.bar = drawn(&format!("{{spinner}} {{pos}} {of}, {{elapsed}}"));
        }
        Ok(progress)
    }

    /// Starts to listen, for a few long phases: the elapsed time advances while the count stands still.
    pub(crate) fn phases(of: &str, all: u64) -> Result<Progress> {
        let mut progress = Progress::new(of)?;
        if progress.host.is_none() {
            progress.bar = drawn(&format!("{{wide_bar}} {{pos}}/{{len}} {of}, {{elapsed}}"));
            progress.bar.set_length(all);
            progress.bar.enable_steady_tick(TICK);
        }
        Ok(progress)
    }

    /// Starts to listen, for parts that are named one by one.
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

    /// Passes the bar's position and length to the host.
    fn told(&self) {
        if let Some(host) = &self.host {
            host.at(self.bar.position(), self.bar.length().unwrap_or_default());
        }
    }

    /// Clears the line on the terminal; other threads may still count.
    pub(crate) fn cleared(&self) {
        self.bar.finish_and_clear();
    }

    /// True if no signal has asked to end the work, and the host has not either.
    pub(crate) fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && self.host.as_ref().is_none_or(|host| host.goes_on())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.cleared();
    }
}

/// A line on a terminal, nothing in a pipe.
fn drawn(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(4));
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style)
}
