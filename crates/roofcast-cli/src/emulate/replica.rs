//! One engine on the wall clock: a thread that takes steps, waits until each has ended, and says what came of it.
//!
//! Knows: requests that came until a step ended are handed over before the next one; what a step sampled is heard when it
//! ends. Times are those of the engine, so that a thread that wakes late loses nothing. Knows nothing about HTTP.

use super::kv_events::{Chain, KvEvents};
use super::metrics::{Ended, Facts, Metrics};
use super::outlet::Outlet;
use super::pace::Pace;
use roofcast::engine::clock::Ticks;
use roofcast::engine::online::{Asked, Change, Event, Online};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request for an engine, and where its tokens go.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) asked: Asked,
    pub(crate) outlet: Arc<Outlet>,
    /// Which choice of the outlet's.
    pub(crate) choice: usize,
    pub(crate) facts: Facts,
}

enum Message {
    Arrive(Box<Job>),
    Abort(u64),
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
}

impl Shared {
    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EngineHandle {
    /// Starts an engine; it ends when its handle is dropped.
    pub(crate) fn start(
        mut engine: Online,
        pace: Pace,
        metrics: Metrics,
        kv_events: Option<KvEvents>,
    ) -> std::io::Result<(EngineHandle, JoinHandle<()>)> {
        if kv_events.is_some() {
            engine.watch_cache();
        }
        let (sender, inbox) = channel();
        let shared = Arc::new(Shared {
            metrics: Mutex::new(metrics),
            in_flight: AtomicU64::new(0),
            queued_tokens: AtomicU64::new(0),
        });
        let driver = Driver {
            engine,
            pace,
            inbox,
            shared: Arc::clone(&shared),
            coming: VecDeque::new(),
            here: BTreeMap::new(),
            events: Vec::new(),
            kv_events,
        };
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || driver.run())?;
        Ok((EngineHandle { sender, pace, shared }, thread))
    }

    /// The engine's time.
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// A request comes.
    pub(crate) fn arrive(&self, job: Job) {
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

/// The engine's thread.
struct Driver {
    engine: Online,
    pace: Pace,
    inbox: Receiver<Message>,
    shared: Arc<Shared>,
    /// Those that came after the last step ended, in order.
    coming: VecDeque<Box<Job>>,
    here: BTreeMap<u64, Life>,
    events: Vec<Event>,
    kv_events: Option<KvEvents>,
}

/// A request in the engine.
struct Life {
    job: Box<Job>,
    admitted: Option<Ticks>,
    first: Option<Ticks>,
    last: Ticks,
    tokens: u64,
    cached: u64,
    preemptions: u64,
    /// The hashes of its blocks, as far as they were told.
    chain: Chain,
}

/// How long an idle engine sleeps before it looks whether its handle still exists.
const IDLE: Duration = Duration::from_secs(3600);

impl Driver {
    fn run(mut self) {
        loop {
            let idle = self.engine.is_empty() && self.coming.is_empty();
            match self.inbox.recv_timeout(if idle { IDLE } else { Duration::ZERO }) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.close(),
            }
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            self.hand_over();
            let start = self.engine.clock();
            match self.engine.step(&mut self.events) {
                Some(done) => self.live_through(start, done),
                None => self.show(),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Arrive(job) => {
                // Stamps of several threads may come out of order.
                let at = self.coming.partition_point(|other| other.asked.at <= job.asked.at);
                self.coming.insert(at, job);
            }
            Message::Abort(number) => self.abort(number),
        }
    }

    fn abort(&mut self, number: u64) {
        let coming = self.coming.iter().position(|job| job.asked.number == number);
        let known = coming.is_some() || self.here.contains_key(&number);
        if !known {
            return;
        }
        let waited = coming.and_then(|at| self.coming.remove(at));
        self.engine.abort(number);
        let life = self.here.remove(&number);
        let started = life.as_ref().is_some_and(|life| life.first.is_some());
        if let Some(job) = waited.or(life.map(|life| life.job)).filter(|_| !started) {
            self.shared.queued_tokens.fetch_sub(job.asked.prompt.len() as u64, Ordering::Relaxed);
        }
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics().aborted();
    }

    /// Those that came until the last step ended join the queue; an idle engine waits for the first.
    fn hand_over(&mut self) {
        while let Some(next) = self.coming.front() {
            if !self.engine.is_empty() && next.asked.at > self.engine.clock() {
                break;
            }
            let Some(job) = self.coming.pop_front() else { break };
            self.engine.arrive(&job.asked);
            let life = Life {
                job,
                admitted: None,
                first: None,
                last: Ticks::ZERO,
                tokens: 0,
                cached: 0,
                preemptions: 0,
                chain: Chain::new(),
            };
            self.here.insert(life.job.asked.number, life);
        }
    }

    /// Waits until a step has ended, and says what came of it.
    fn live_through(&mut self, start: Ticks, done: roofcast::engine::online::Done) {
        self.begin(start);
        let due = self.pace.wall(done.end);
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        let lag = Instant::now().saturating_duration_since(due);
        self.tell_cache();
        let mut metrics = self.shared.metrics();
        metrics.stepped(done.tokens, lag);
        metrics.levels(self.engine.levels());
        for event in self.events.drain(..) {
            match event {
                Event::Sampled { number, tokens } => {
                    let Some(life) = self.here.get_mut(&number) else { continue };
                    if life.first.is_none() {
                        let queued = life.job.asked.prompt.len() as u64;
                        self.shared.queued_tokens.fetch_sub(queued, Ordering::Relaxed);
                    }
                    life.sampled(tokens, done.end, &self.pace, &mut metrics);
                }
                Event::Finished { number } => {
                    let Some(life) = self.here.remove(&number) else { continue };
                    self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                    metrics.finished(&life.ended(&self.pace), life.job.facts);
                    life.job.outlet.say(life.job.choice, 0, true);
                }
                Event::Admitted { .. } | Event::Preempted { .. } => {}
            }
        }
    }

    /// What the step did to the prefix cache is told.
    fn tell_cache(&mut self) {
        let Some(kv_events) = &mut self.kv_events else { return };
        let mut told = Vec::new();
        for change in kv_events.changes(&mut self.engine) {
            match change {
                Change::Stored { owner, first, contents } => {
                    if let Some(life) = self.here.get_mut(&owner) {
                        let (asked, chain) = (&life.job.asked, &mut life.chain);
                        told.push(kv_events.store(asked, chain, first as usize, &contents));
                    }
                }
                Change::Removed { content } => told.extend(kv_events.remove(content)),
            }
        }
        kv_events.tell(told);
    }

    /// What the step that begins decided is seen at once.
    fn begin(&mut self, start: Ticks) {
        let mut metrics = self.shared.metrics();
        metrics.levels(self.engine.levels());
        for event in &self.events {
            match *event {
                Event::Admitted { number, cached, resumed } => {
                    let Some(life) = self.here.get_mut(&number) else { continue };
                    metrics.admitted(life.job.asked.prompt.len() as u64, cached, resumed);
                    if !resumed {
                        life.admitted = Some(start);
                        life.cached = cached;
                        life.job.outlet.found(life.job.choice, cached);
                    }
                }
                Event::Preempted { number } => {
                    metrics.preempted();
                    if let Some(life) = self.here.get_mut(&number) {
                        life.preemptions += 1;
                    }
                }
                Event::Sampled { .. } | Event::Finished { .. } => {}
            }
        }
    }

    fn show(&mut self) {
        self.shared.metrics().levels(self.engine.levels());
    }

    fn close(mut self) {
        self.here.values().for_each(|life| life.job.outlet.fail());
        self.coming.drain(..).for_each(|job| job.outlet.fail());
    }
}

impl Life {
    fn sampled(&mut self, tokens: u64, at: Ticks, pace: &Pace, metrics: &mut Metrics) {
        match self.first {
            None => {
                self.first = Some(at);
                let (asked, cached) = (&self.job.asked, self.cached);
                metrics.first_token(asked.prompt.len() as u64, cached, pace.seconds(at - asked.at));
            }
            Some(_) => metrics.next_token(pace.seconds(at - self.last)),
        }
        metrics.generated(tokens);
        self.last = at;
        self.tokens += tokens;
        self.job.outlet.say(self.job.choice, tokens, false);
    }

    fn ended(&self, pace: &Pace) -> Ended {
        let asked = &self.job.asked;
        let admitted = self.admitted.unwrap_or(asked.at);
        let first = self.first.unwrap_or(self.last);
        let span = |from: Ticks, to: Ticks| pace.seconds(to - from);
        Ended {
            e2e: span(asked.at, self.last),
            queue: span(asked.at, admitted),
            prefill: span(admitted, first),
            decode: span(first, self.last),
            inference: span(admitted, self.last),
            prompt_tokens: asked.prompt.len() as u64,
            computed_prompt_tokens: asked.prompt.len() as u64 - self.cached,
            generation_tokens: self.tokens,
            preemptions: self.preemptions,
        }
    }
}
