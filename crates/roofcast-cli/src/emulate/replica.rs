//! The handle of one engine on the wall clock: requests go in, what it measures is read.
//!
//! Knows: what a request needs beside its tokens. [`driver`] has the thread that takes steps, [`stated`] the one without any. Knows nothing about HTTP.

mod driver;
mod life;
mod stated;

use super::adapters::Adapter;
use super::kv_events::KvEvents;
use super::metrics::{Facts, Metrics};
use super::outlet::Outlet;
use super::pace::Pace;
use super::sleep::PauseMode;
use driver::Driver;
use roofcast::clock::Ticks;
use roofcast::engine::online::{Asked, Online};
use roofcast::fleet::Ingest;
pub(crate) use stated::Latencies;
use stated::Stated;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A request for an engine, and where its tokens go.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) asked: Asked,
    /// When its client came; it joins at `asked.at`, when its server is done with it or its cache is there.
    pub(crate) since: Ticks,
    pub(crate) outlet: Arc<Outlet>,
    /// Which choice of the outlet's.
    pub(crate) choice: usize,
    pub(crate) facts: Facts,
    pub(crate) adapter: Option<Arc<Adapter>>,
    /// Where it goes on when it has its first token.
    pub(crate) onward: Option<Box<dyn Onward>>,
}

/// Takes a request that has ended here to where it goes on.
pub(crate) trait Onward: std::fmt::Debug + Send {
    /// It has ended here at `end`.
    fn go(self: Box<Self>, job: Job, end: Ticks);
}

enum Message {
    Arrive(Box<Job>),
    Abort(u64),
    Pause { mode: PauseMode, clears: bool, done: oneshot::Sender<()> },
    Wake,
    Flush,
    Die,
}

/// The handle of an engine that runs.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    sender: Sender<Message>,
    pace: Pace,
    shared: Arc<Shared>,
}

/// What the engine's thread shows.
#[derive(Debug)]
struct Shared {
    metrics: Mutex<Metrics>,
    /// Requests here, from the moment they are sent.
    in_flight: AtomicU64,
    /// Prompt tokens of those that have no token yet.
    queued_tokens: AtomicU64,
    /// When the last step ended.
    clock: Mutex<Ticks>,
    /// Whether it has died.
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

impl EngineHandle {
    /// Starts an engine; it ends when its handle is dropped.
    pub(crate) fn start(
        engine: Online,
        pace: Pace,
        metrics: Metrics,
        kv_events: Option<KvEvents>,
        server: Option<Ingest>,
    ) -> std::io::Result<(EngineHandle, JoinHandle<()>)> {
        EngineHandle::of(pace, metrics, move |inbox, shared| {
            Driver::new(engine, pace, inbox, shared, kv_events, server).run();
        })
    }

    /// Starts one whose latencies are stated.
    pub(crate) fn stated(
        latencies: Latencies,
        pace: Pace,
        metrics: Metrics,
    ) -> std::io::Result<(EngineHandle, JoinHandle<()>)> {
        EngineHandle::of(pace, metrics, move |inbox, shared| {
            Stated::new(latencies, pace, inbox, shared).run()
        })
    }

    /// A handle of the thread that runs `engine`.
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

    /// The engine's time.
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// A request comes; to one that has died in vain.
    pub(crate) fn arrive(&self, job: Job) {
        if self.is_down() {
            return job.outlet.fail();
        }
        self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        self.shared.queued_tokens.fetch_add(job.asked.prompt.len() as u64, Ordering::Relaxed);
        let outlet = Arc::clone(&job.outlet);
        if self.sender.send(Message::Arrive(Box::new(job))).is_err() {
            outlet.fail();
        }
    }

    /// A request's client is gone. Nothing where the request has ended.
    pub(crate) fn abort(&self, number: u64) {
        drop(self.sender.send(Message::Abort(number)));
    }

    /// Takes no more steps until it is woken, when `mode` is done with those that are here, which what is returned waits
    /// for; `clears` the prefix cache then.
    pub(crate) fn pause(&self, mode: PauseMode, clears: bool) -> oneshot::Receiver<()> {
        let (done, waits) = oneshot::channel();
        drop(self.sender.send(Message::Pause { mode, clears, done }));
        waits
    }

    /// Dies, with all requests that are here, or comes back with an empty cache.
    pub(crate) fn set_down(&self, down: bool) {
        if down && !self.shared.down.swap(down, Ordering::Relaxed) {
            drop(self.sender.send(Message::Die));
        }
        self.shared.down.store(down, Ordering::Relaxed);
    }

    /// Whether it has died.
    pub(crate) fn is_down(&self) -> bool {
        self.shared.down.load(Ordering::Relaxed)
    }

    /// Takes steps again.
    pub(crate) fn wake(&self) {
        drop(self.sender.send(Message::Wake));
    }

    /// Empties the prefix cache; false where requests are here.
    pub(crate) fn flush(&self) -> bool {
        self.in_flight() == 0 && self.sender.send(Message::Flush).is_ok()
    }

    /// Since when nothing is here, where nothing is.
    pub(crate) fn idle_since(&self) -> Option<Ticks> {
        (self.in_flight() == 0).then(|| *self.shared.clock())
    }

    /// Requests here.
    pub(crate) fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Prompt tokens of those that have no token yet.
    pub(crate) fn queued_tokens(&self) -> u64 {
        self.shared.queued_tokens.load(Ordering::Relaxed)
    }

    /// What it measures.
    pub(crate) fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.shared.metrics()
    }
}
