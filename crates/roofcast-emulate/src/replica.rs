//! The handle of one engine on the wall clock: it receives requests and exposes metrics.
//!
//! Knows: a request's data in addition to its tokens. [`driver`] has the thread that takes steps, [`stated`] the thread
//! with fixed latencies. Knows nothing about HTTP.

mod driver;
mod life;
mod stated;

use super::adapters::Adapter;
use super::kv_events::KvEvents;
use super::metrics::{Facts, Metrics};
use super::outlet::{Failure, Outlet};
use super::pace::Pace;
use super::sleep::PauseMode;
use driver::Driver;
use roofcast::clock::Ticks;
use roofcast::engine::online::{Online, OnlineRequest};
use roofcast::fleet::Ingest;
pub use stated::Latencies;
use stated::Stated;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A request for an engine, and the receiver of its tokens.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) asked: OnlineRequest,
    /// Time at which the client's request arrived. It joins the engine at `asked.at`, when the server has processed it
    /// or its KV cache has arrived.
    pub(crate) since: Ticks,
    pub(crate) outlet: Arc<Outlet>,
    /// Index of the request's choice in the outlet.
    pub(crate) choice: usize,
    pub(crate) facts: Facts,
    pub(crate) adapter: Option<Arc<Adapter>>,
    /// Continuation on another engine after the first token, in disaggregated serving.
    pub(crate) onward: Option<Box<dyn Onward>>,
}

/// Moves a request that has ended on this engine to the engine that continues it.
pub(crate) trait Onward: std::fmt::Debug + Send {
    /// Moves `job`, which ended on this engine at `end`.
    fn go(self: Box<Self>, job: Job, end: Ticks);
}

enum Message {
    Arrive(Box<Job>),
    Abort(u64),
    Pause {
        mode: PauseMode,
        clears: bool,
        done: oneshot::Sender<()>,
    },
    Wake,
    Flush,
    Die,
    /// Change of the fixed latencies; without effect on an engine that takes steps.
    State(Latencies),
}

/// The handle of a running engine; dropping it ends the engine.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    sender: Sender<Message>,
    pace: Pace,
    shared: Arc<Shared>,
}

/// State that the engine's thread shows to other threads.
#[derive(Debug)]
struct Shared {
    metrics: Mutex<Metrics>,
    /// Number of requests in flight, counted when they are sent.
    in_flight: AtomicU64,
    /// Prompt tokens of the requests that have no token yet.
    queued_tokens: AtomicU64,
    /// Engine time at which the last step ended.
    clock: Mutex<Ticks>,
    /// True if the engine is down.
    down: AtomicBool,
}

impl Shared {
    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> MutexGuard<'_, Ticks> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EngineHandle {
    /// Lets the engine's thread finish a step that waits for a stopped clock.
    fn drop(&mut self) {
        self.pace.release();
    }
}

impl EngineHandle {
    /// Starts an engine on a thread; the engine ends when its handle is dropped.
    pub(crate) fn start(
        engine: Online,
        pace: Pace,
        metrics: Metrics,
        kv_events: Option<KvEvents>,
        server: Option<Ingest>,
    ) -> std::io::Result<(EngineHandle, JoinHandle<()>)> {
        let clock = pace.clone();
        EngineHandle::of(pace, metrics, move |inbox, shared| {
            Driver::new(engine, clock, inbox, shared, kv_events, server).run();
        })
    }

    /// Starts an engine with fixed latencies on a thread.
    pub(crate) fn stated(
        latencies: Latencies,
        pace: Pace,
        metrics: Metrics,
    ) -> std::io::Result<(EngineHandle, JoinHandle<()>)> {
        let clock = pace.clone();
        EngineHandle::of(pace, metrics, move |inbox, shared| {
            Stated::new(latencies, clock, inbox, shared).run()
        })
    }

    /// Creates the handle and the thread that runs `engine`.
    fn of(
        pace: Pace,
        metrics: Metrics,
        engine: impl FnOnce(Receiver<Message>, Arc<Shared>) + Send + 'static,
    ) -> std::io::Result<(EngineHandle, JoinHandle<()>)> {
        let (sender, inbox) = channel();
        let shared = Arc::new(Shared {
            metrics: Mutex::new(metrics),
            in_flight: AtomicU64::new(0),
            queued_tokens: AtomicU64::new(0),
            clock: Mutex::new(Ticks::ZERO),
            down: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("engine".to_owned()).spawn(move || engine(inbox, seen))?;
        Ok((EngineHandle { sender, pace, shared }, thread))
    }

    /// The engine's clock.
    pub(crate) fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// Sends a request to the engine; if the engine is down, the request fails at once.
    pub(crate) fn arrive(&self, job: Job) {
        if self.is_down() {
            return job.outlet.fail(Failure::Aborted);
        }
        self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        self.shared.queued_tokens.fetch_add(job.asked.prompt.len() as u64, Ordering::Relaxed);
        let outlet = Arc::clone(&job.outlet);
        if self.sender.send(Message::Arrive(Box::new(job))).is_err() {
            outlet.fail(Failure::Aborted);
        }
    }

    /// Aborts a request whose client is gone; has no effect if the request has ended.
    pub(crate) fn abort(&self, number: u64) {
        drop(self.sender.send(Message::Abort(number)));
    }

    /// Pauses the engine until it is woken. Current requests are first handled by `mode`, and the returned receiver
    /// completes when that is done; if `clears`, the prefix cache is emptied then.
    pub(crate) fn pause(&self, mode: PauseMode, clears: bool) -> oneshot::Receiver<()> {
        let (done, waits) = oneshot::channel();
        drop(self.sender.send(Message::Pause { mode, clears, done }));
        waits
    }

    /// Takes the engine down, which aborts all its requests, or brings it up with an empty cache.
    pub(crate) fn set_down(&self, down: bool) {
        if down && !self.shared.down.swap(down, Ordering::Relaxed) {
            drop(self.sender.send(Message::Die));
        }
        self.shared.down.store(down, Ordering::Relaxed);
    }

    /// True if the engine is down.
    pub(crate) fn is_down(&self) -> bool {
        self.shared.down.load(Ordering::Relaxed)
    }

    /// Resumes a paused engine.
    pub(crate) fn wake(&self) {
        drop(self.sender.send(Message::Wake));
    }

    /// Changes the fixed latencies: the time to the first token of new requests, and the time between tokens of all
    /// requests.
    pub(crate) fn state(&self, latencies: Latencies) {
        drop(self.sender.send(Message::State(latencies)));
    }

    /// Empties the prefix cache; false, without effect, if requests are in flight.
    pub(crate) fn flush(&self) -> bool {
        self.in_flight() == 0 && self.sender.send(Message::Flush).is_ok()
    }

    /// Engine time since which the engine has been idle; `None` if it is working.
    pub(crate) fn idle_since(&self) -> Option<Ticks> {
        (self.in_flight() == 0).then(|| *self.shared.clock())
    }

    /// Number of requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Prompt tokens of the requests that have no token yet.
    pub(crate) fn queued_tokens(&self) -> u64 {
        self.shared.queued_tokens.load(Ordering::Relaxed)
    }

    /// Metrics of the engine, locked.
    pub(crate) fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.shared.metrics()
    }
}
