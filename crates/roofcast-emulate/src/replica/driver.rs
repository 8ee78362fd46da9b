//! One engine on its clock: a thread that takes steps, waits until each has ended, and publishes its results.
//!
//! Knows: requests that arrive before a step ends are handed to the engine before the next step; sampled tokens are
//! published when the step ends. Times are engine times, so that a thread that wakes late shifts no later step.

use super::life::Life;
use super::{Job, Message, Shared};
use crate::dialect::Dialect;
use crate::kv_events::KvEvents;
use crate::outlet::Failure;
use crate::pace::Pace;
use crate::sleep::PauseMode;
use roofcast::clock::Ticks;
use roofcast::engine::online::{Change, Done, Event, Online};
use roofcast::fleet::Ingest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

/// State of the engine's thread.
pub(super) struct Driver {
    engine: Online,
    pace: Pace,
    inbox: Receiver<Message>,
    shared: Arc<Shared>,
    /// Front-end server before the engine, if its processing time is modelled.
    server: Option<Ingest>,
    /// Requests that are not in the engine yet, in order of their times: they arrived after the last step ended, are in
    /// the front-end server, or have KV caches in transfer.
    coming: VecDeque<Box<Job>>,
    here: BTreeMap<u64, Life>,
    events: Vec<Event>,
    kv_events: Option<KvEvents>,
    paused: Option<PauseMode>,
    /// Sender that is notified when no request runs any more, during a pause.
    stilled: Option<oneshot::Sender<()>>,
    /// True if the prefix cache is emptied as soon as no request is left.
    clears: bool,
    /// True if a request for an adapter was ever served.
    adapters: bool,
}

/// Longest sleep of an idle engine, after which it checks that its handle still exists.
const IDLE: Duration = Duration::from_secs(3600);

impl Driver {
    pub(super) fn new(
        engine: Online,
        pace: Pace,
        inbox: Receiver<Message>,
        shared: Arc<Shared>,
        kv_events: Option<KvEvents>,
        server: Option<Ingest>,
    ) -> Driver {
        Driver {
            engine,
            pace,
            inbox,
            shared,
            server,
            coming: VecDeque::new(),
            here: BTreeMap::new(),
            events: Vec::new(),
            kv_events,
            paused: None,
            stilled: None,
            clears: false,
            adapters: false,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.inbox.recv_timeout(self.patience()) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.close(),
            }
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            if self.paused.is_none() {
                self.hand_over();
            }
            if !self.works() {
                self.rest();
                continue;
            }
            let start = self.engine.clock();
            match self.engine.step(&mut self.events) {
                Some(done) => {
                    self.live_through(start, done);
                    self.overflow();
                }
                None => self.show(),
            }
            // This is checked before waiting for a message, because a pause that waits for the last request may have
            // ended.
            if !self.works() {
                self.rest();
            }
        }
    }

    /// True if there is work and the engine is not paused.
    fn works(&self) -> bool {
        !self.engine.is_empty() && self.paused != Some(PauseMode::Keep)
    }

    /// Longest wait for a message: zero if there is work, else until the next KV cache in transfer arrives.
    fn patience(&self) -> Duration {
        if self.works() {
            return Duration::ZERO;
        }
        match self.coming.front().filter(|_| self.paused.is_none()) {
            Some(next) => self.pace.left(next.asked.at).min(IDLE),
            None => IDLE,
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Arrive(mut job) => {
                self.adapters |= job.adapter.is_some();
                // A request with a transferred KV cache has already passed the server of the other instance.
                if let Some(server) = self.server.as_mut().filter(|_| job.asked.transferred == 0) {
                    let running = self.engine.levels().running;
                    job.asked.at = server.pass(job.asked.at, job.asked.prompt.len() as u64, running);
                }
                // Requests of several threads may come out of order of their time stamps.
                let at = self.coming.partition_point(|other| other.asked.at <= job.asked.at);
                self.coming.insert(at, job);
            }
            Message::Abort(number) => {
                if self.abort(number).is_some() {
                    self.shared.metrics().left();
                }
            }
            Message::Pause { mode, clears, done } => {
                (self.paused, self.stilled) = (Some(mode), Some(done));
                self.clears = clears;
                if mode == PauseMode::Abort {
                    self.abort_all(|job| job.outlet.say(job.choice, 0, true));
                }
            }
            Message::Die => {
                self.abort_all(|job| job.outlet.fail(Failure::Aborted));
                self.clears = true;
            }
            Message::Wake => {
                (self.paused, self.stilled) = (None, None);
                self.clears = false;
                self.engine.wait_until(self.pace.now());
            }
            Message::Flush => self.flush(),
            // This engine takes steps, which determine the latencies.
            Message::State(_) => {}
        }
    }

    /// Removes a request in any state and returns it.
    fn abort(&mut self, number: u64) -> Option<Box<Job>> {
        let coming = self.coming.iter().position(|job| job.asked.number == number);
        let waited = coming.and_then(|at| self.coming.remove(at));
        let life = self.here.remove(&number);
        let started = life.as_ref().is_some_and(|life| life.first.is_some());
        let job = waited.or(life.map(|life| life.job))?;
        self.engine.abort(number);
        if !started {
            self.shared.queued_tokens.fetch_sub(job.asked.prompt.len() as u64, Ordering::Relaxed);
        }
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    /// Aborts all requests; `tell` notifies the client of each.
    fn abort_all(&mut self, tell: impl Fn(&Job)) {
        let coming = self.coming.iter().map(|job| job.asked.number);
        let numbers: Vec<u64> = coming.chain(self.here.keys().copied()).collect();
        for number in numbers {
            if let Some(job) = self.abort(number) {
                self.shared.metrics().aborted();
                tell(&job);
            }
        }
    }

    fn flush(&mut self) {
        if !self.engine.flush() {
            return;
        }
        self.clears = false;
        if let Some(kv_events) = &mut self.kv_events {
            kv_events.clear();
        }
    }

    /// Ends a pause's wait and empties the prefix cache if asked to; called when there is no work.
    fn rest(&mut self) {
        if self.clears && self.engine.is_empty() {
            self.flush();
        }
        if let Some(stilled) = self.stilled.take() {
            // An error means that nobody waits for the pause any more.
            _ = stilled.send(());
        }
        self.show();
    }

    /// Moves the requests that the next step may schedule into the engine's queue; an idle engine first advances its
    /// time to the first of these requests.
    fn hand_over(&mut self) {
        while let Some(next) = self.coming.front() {
            let now = if self.engine.is_empty() { self.pace.now() } else { self.engine.clock() };
            if next.asked.at > now {
                break;
            }
            let Some(job) = self.coming.pop_front() else { break };
            if !self.engine.serves(&job.asked) {
                self.shared.queued_tokens.fetch_sub(job.asked.prompt.len() as u64, Ordering::Relaxed);
                self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                job.outlet.fail(Failure::Aborted);
                continue;
            }
            self.engine.arrive(&job.asked);
            self.here.insert(job.asked.number, Life::new(job));
        }
    }

    /// Waits until a step has ended, and publishes its results.
    fn live_through(&mut self, start: Ticks, done: Done) {
        self.begin(start);
        let lag = self.pace.wait(done.end);
        self.tell_cache();
        *self.shared.clock() = done.end;
        let sampled = self.events.iter().filter(|event| matches!(event, Event::Sampled { .. })).count();
        self.shared.metrics().stepped(done.tokens, sampled as u64, lag);
        self.tell_copies();
        self.show();
        let mut metrics = self.shared.metrics();
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
                    let Some(mut life) = self.here.remove(&number) else { continue };
                    self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                    let ended = life.ended(&self.pace);
                    metrics.finished(&ended, life.job.facts);
                    life.job.outlet.took(life.job.choice, ended.prefill, ended.decode);
                    match life.job.onward.take() {
                        Some(onward) => onward.go(*life.job, done.end),
                        None => life.job.outlet.say(life.job.choice, 0, true),
                    }
                }
                Event::Admitted { .. } | Event::Preempted { .. } => {}
            }
        }
    }

    /// Ends every request in a slot of llama.cpp with an error, if the cells that the slots share do not suffice: a
    /// running request was preempted, or a prompt with a free slot has no room.
    fn overflow(&mut self) {
        let limits = self.engine.capacity();
        if self.shared.metrics().fixed().dialect != Dialect::LlamaCpp {
            return;
        }
        let slots = usize::try_from(limits.max_num_seqs).unwrap_or(usize::MAX);
        let levels = self.engine.levels();
        // A request that asks for a busy slot waits beside free ones.
        let has_place = |(number, _): &(&u64, &Life)| !self.engine.awaits_slot(**number);
        let in_slots = || self.here.iter().filter(has_place).take(slots);
        let demand: u64 = in_slots().map(|(_, life)| life.held()).sum();
        let preempted = in_slots().any(|(_, life)| life.preemptions > 0);
        let waits = levels.waiting > 0 && levels.running < limits.max_num_seqs;
        if !(preempted || waits && demand > limits.num_gpu_blocks.saturating_sub(1) * limits.block_size) {
            return;
        }
        for number in in_slots().map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(job) = self.abort(number) {
                self.shared.metrics().aborted();
                job.outlet.fail(Failure::Overflow);
            }
        }
    }

    /// Publishes the copies to and from the host tier that have ended.
    fn tell_copies(&mut self) {
        if self.engine.host_tier().is_some() {
            let mut copies = Vec::new();
            self.engine.take_copies(&mut copies);
            self.shared.metrics().copied(&copies, self.engine.copying());
        }
    }

    /// Publishes the changes that the step made to the prefix cache.
    fn tell_cache(&mut self) {
        let Some(kv_events) = &mut self.kv_events else { return };
        let mut events = Vec::new();
        for change in kv_events.changes(&mut self.engine) {
            match change {
                Change::Stored { owner, first, contents } => {
                    if let Some(life) = self.here.get_mut(&owner) {
                        let chain = &mut life.chain;
                        let request = &life.job.asked;
                        let adapter = life.job.adapter.as_deref();
                        events.push(kv_events.store((request, adapter), chain, first as usize, &contents));
                    }
                }
                Change::Removed { content } => events.extend(kv_events.remove(content)),
            }
        }
        kv_events.tell(events);
    }

    /// Publishes the scheduling decisions of a step, when it begins.
    fn begin(&mut self, start: Ticks) {
        let mut metrics = self.shared.metrics();
        for event in &self.events {
            match *event {
                Event::Admitted { number, cached, loaded, resumed } => {
                    let Some(life) = self.here.get_mut(&number) else { continue };
                    life.runs = true;
                    if !resumed {
                        life.admitted = Some(start);
                        (life.cached, life.loaded) = (cached - loaded, loaded);
                        if life.job.asked.transferred == 0 {
                            life.job.outlet.found(life.job.choice, cached, self.engine.slot(number));
                        }
                    }
                    let prompt = life.job.asked.prompt.len() as u64;
                    metrics.admitted(prompt, cached - loaded, life.external(), resumed);
                }
                Event::Preempted { number } => {
                    metrics.preempted();
                    if let Some(life) = self.here.get_mut(&number) {
                        life.preemptions += 1;
                        life.runs = false;
                    }
                }
                Event::Sampled { .. } | Event::Finished { .. } => {}
            }
        }
        drop(metrics);
        self.show();
    }

    fn show(&mut self) {
        let deferred = self.coming.iter().filter(|job| job.asked.transferred > 0).count() as u64;
        let mut levels = self.engine.levels();
        if self.paused.is_some() {
            // Requests that arrived during a pause count as waiting.
            levels.waiting += self.coming.len() as u64 - deferred;
        }
        let mut metrics = self.shared.metrics();
        metrics.levels(levels, deferred);
        metrics.busy_slots(self.engine.busy_slots());
        if self.adapters {
            let names = |runs: bool| -> BTreeSet<&str> {
                let lives = self.here.values().filter(|life| life.runs == runs);
                lives.filter_map(|life| Some(life.job.adapter.as_ref()?.name.as_str())).collect()
            };
            let list = |runs: bool| names(runs).into_iter().collect::<Vec<_>>().join(",");
            metrics.adapters(list(false), list(true));
        }
    }

    fn close(mut self) {
        self.here.values().for_each(|life| life.job.outlet.fail(Failure::Aborted));
        self.coming.drain(..).for_each(|job| job.outlet.fail(Failure::Aborted));
    }
}
