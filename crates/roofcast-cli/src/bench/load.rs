//! A workload offered to a server in real time.
//!
//! Knows: when requests are due and which request waits for which answer; one task sends, and each request has a task
//! of its own. Knows nothing about aggregates of the answers.

use super::ask::{Asked, Asker, Question};
use super::clock::Clock;
use super::lag::{Lag, Late};
use super::prompt::Prompts;
use super::saturation::Saturation;
use super::stop::Stop;
use super::tally::Tally;
use super::window::Flown;
use super::{SILENCE, Told};
use roofcast::record::{Outcome, Record};
use roofcast::units::Picoseconds;
use roofcast::workload::request::OWN_SEGMENTS;
use roofcast::workload::{Request, Traffic};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Results of a run.
pub(super) struct Run {
    /// One record for each request that was sent, in order of the schedule; times count from the start of the run.
    pub(super) records: Vec<Record>,
    /// Time in flight of each request, by the client's clock.
    pub(super) flown: Vec<Flown>,
    /// Class of each request by its id; empty without classes.
    pub(super) class_of: BTreeMap<u64, u32>,
    /// Sums over the answers that the records do not have.
    pub(super) tally: Tally,
    /// Lag of the client's loop.
    pub(super) late: Late,
    /// True if the user ended the run.
    pub(super) interrupted: bool,
    /// Number of failures that ended the run; `None` if the run ended otherwise.
    pub(super) stopped_after: Option<u64>,
    /// Growth of the requests in flight in requests per second, if it ended the run.
    pub(super) oversaturated: Option<f64>,
}

/// Conditions under which no more requests are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Bounds {
    /// Time after which no more requests are sent.
    pub(crate) duration: Option<Duration>,
    /// Number of failures after which no more requests are sent.
    pub(crate) most_failures: Option<u64>,
    /// True to stop once it is certain that the server cannot keep up with the rate.
    pub(crate) oversaturation: bool,
}

/// Requests that the client cancels on purpose, as users do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cancelling {
    /// Fraction of the requests.
    pub(crate) share: f64,
    /// Time after its sending at which a request is cancelled.
    pub(crate) after: Duration,
}

/// A request in flight.
struct Flight {
    user: u32,
    class: u32,
    scheduled: Picoseconds,
    sent: Picoseconds,
    input_len: u64,
    task: tokio::task::AbortHandle,
}

/// A run in progress.
struct Loop<'a> {
    asker: Arc<Asker>,
    lag: &'a Lag,
    prompts: &'a Prompts,
    traffic: Traffic,
    start: Picoseconds,
    flights: BTreeMap<u64, Flight>,
    /// Number of requests sent so far, those while users begin included.
    sent: u64,
    done: (mpsc::UnboundedSender<Asked>, mpsc::UnboundedReceiver<Asked>),
    bounds: Bounds,
    cancelling: Cancelling,
    repeats: bool,
    has_classes: bool,
    failures: u64,
    /// Detector of a server that does not keep up, if the run shall end then.
    watch: Option<Saturation>,
    /// Texts of answers in conversations, by the answer's segment in the traffic.
    said: BTreeMap<u32, String>,
    run: Run,
}

/// Parts and settings of a run.
pub(super) struct Means<'a> {
    pub(super) asker: Arc<Asker>,
    pub(super) prompts: &'a Prompts,
    pub(super) lag: &'a Lag,
    /// Number of connections that are opened before the first request.
    pub(super) ahead: usize,
    /// True if the user has stopped the bench already.
    pub(super) stopped: bool,
    pub(super) bounds: Bounds,
    pub(super) cancelling: Cancelling,
    /// True if requests that the server refuses for a while are repeated.
    pub(super) repeats: bool,
    /// True if the workload has classes of requests.
    pub(super) has_classes: bool,
}

/// Opens connections, then offers `traffic` until it is all answered, or until `stop` fires. `tell` receives the
/// number of answers so far.
pub(super) async fn drive(
    Means { asker, prompts, lag, ahead, stopped, bounds, cancelling, repeats, has_classes }: Means<'_>,
    traffic: Traffic,
    stop: &mut Stop,
    mut tell: impl FnMut(Told),
) -> Run {
    let clock = asker.servers.clock;
    let stopped = stopped || open(&asker, ahead, stop, &mut tell).await;
    let measuring = lag.start();
    let servers = Arc::clone(&asker.servers);
    // The counter is reset, because requests that the probes sent twice do not belong to the run.
    servers.take_resent();
    let run = Run {
        records: Vec::new(),
        flown: Vec::new(),
        class_of: BTreeMap::new(),
        tally: Tally::default(),
        late: Late::default(),
        interrupted: false,
        stopped_after: None,
        oversaturated: None,
    };
    let mut going = Loop {
        start: clock.now(),
        asker,
        lag,
        prompts,
        traffic,
        flights: BTreeMap::new(),
        sent: 0,
        done: mpsc::unbounded_channel(),
        bounds,
        cancelling,
        repeats,
        has_classes,
        failures: 0,
        watch: bounds.oversaturation.then(Saturation::default),
        said: BTreeMap::new(),
        run,
    };
    if stopped {
        going.interrupt(clock.now());
    } else {
        going.offer(clock, stop, tell).await;
    }
    let mut run = going.run;
    run.late = measuring.stop();
    run.tally.resent = servers.take_resent();
    run.tally.repeated = prompts.repeated(run.records.len() as u64);
    run.records.sort_unstable_by_key(|r| r.id);
    run
}

/// Opens `ahead` connections before a run; true if the user stopped meanwhile.
async fn open(asker: &Asker, ahead: usize, stop: &mut Stop, tell: &mut impl FnMut(Told)) -> bool {
    let mut opening = std::pin::pin!(tokio::time::timeout(asker.timeout, asker.servers.open(ahead)));
    let mut silence = std::pin::pin!(tokio::time::sleep(SILENCE));
    let mut is_silent = false;
    loop {
        tokio::select! {
            _ = stop.recv() => return true,
            // A connection that fails is ignored: the request that then opens one reports the failure.
            _ = &mut opening => return false,
            () = &mut silence, if !is_silent => {
                is_silent = true;
                tell(Told::Silent);
            }
        }
    }
}

impl Loop<'_> {
    async fn offer(&mut self, clock: Clock, stop: &mut Stop, mut tell: impl FnMut(Told)) {
        let mut silence = std::pin::pin!(tokio::time::sleep(SILENCE));
        let mut is_silent = false;
        loop {
            self.send_due(clock).await;
            let next = self.due();
            if next.is_none() && self.flights.is_empty() {
                return;
            }
            let due = clock.instant(self.start + next.unwrap_or_default());
            tokio::select! {
                biased;
                () = stop.recv() => return self.interrupt(clock.now()),
                asked = self.done.1.recv() => if let Some(asked) = asked {
                    self.answered(asked);
                    tell(Told::Answers(self.run.records.len() as u64));
                },
                () = &mut silence, if !is_silent => {
                    is_silent = true;
                    if !self.asker.servers.was_read_since(self.start) {
                        tell(Told::Silent);
                    }
                },
                () = tokio::time::sleep_until(due), if next.is_some() => (),
            }
        }
    }

    /// Time at which the next request is to be sent; `None` if no more are sent.
    fn due(&self) -> Option<Picoseconds> {
        let open =
            |at: &Picoseconds| self.bounds.duration.is_none_or(|most| at.0 / 1000 < most.as_nanos() as u64);
        let stopped = self.run.stopped_after.is_some() || self.run.oversaturated.is_some();
        self.traffic.peek().filter(|at| !stopped && open(at))
    }

    /// Time after which no request is sent, by the client's clock.
    fn closes(&self) -> Picoseconds {
        self.bounds
            .duration
            .map_or(Picoseconds(u64::MAX), |most| self.start + Picoseconds::from_seconds(most.as_secs_f64()))
    }

    /// Sends every request that is due, one by one.
    async fn send_due(&mut self, clock: Clock) {
        while self.due().is_some_and(|at| self.start + at <= clock.now()) {
            let Some(request) = self.traffic.next() else { return };
            self.send(&request, clock);
            // Yields after each request, so that the runtime polls its sockets before the next.
            tokio::task::yield_now().await;
            self.lag.looked();
        }
    }

    fn send(&mut self, request: &Request, clock: Clock) {
        let id = self.sent;
        self.sent += 1;
        let scheduled = self.start + request.at;
        let prompt = self.prompts.of(request, id, |segment| self.said.get(&segment).cloned());
        let input_len = prompt.input_len;
        let cancels = self.prompts.draws(id, self.cancelling.share);
        let question = Question {
            id,
            scheduled,
            input_len,
            output_len: prompt.output_len,
            turns: prompt.turns,
            keys: self.asker.form.prioritized(prompt.keys, request.priority),
            given_up_after: cancels.then_some(self.cancelling.after),
            repeats_until: self.repeats.then(|| self.closes()),
        };
        let asker = Arc::clone(&self.asker);
        let done = self.done.0.clone();
        let task = tokio::spawn(async move {
            // The receiver is gone if the run is over; then nobody needs the result.
            drop(done.send(asker.ask(question).await));
        });
        let flight = Flight {
            user: request.user,
            class: request.class,
            scheduled,
            sent: clock.now(),
            input_len,
            task: task.abort_handle(),
        };
        if let Some(watch) = &mut self.watch {
            watch.sent(Picoseconds(flight.sent.0.saturating_sub(self.start.0)));
        }
        self.flights.insert(id, flight);
    }

    fn answered(&mut self, asked: Asked) {
        let id = asked.record.id;
        let Some(flight) = self.flights.remove(&id) else { return };
        let at = Picoseconds(asked.ended.0.saturating_sub(self.start.0));
        if let Some(watch) = &mut self.watch {
            let first = asked.record.first_token.unwrap_or(asked.ended);
            self.run.oversaturated = self
                .run
                .oversaturated
                .or(watch.answered(at, Picoseconds(asked.ended.0.saturating_sub(first.0))));
        }
        if self.has_classes {
            self.run.class_of.insert(id, flight.class);
        }
        let is_exact = self.prompts.texts.is_empty() && self.prompts.images.is_none();
        self.run.tally.add(&asked, Some(flight.input_len).filter(|_| is_exact));
        if asked.record.outcome == Outcome::Completed {
            let segment = OWN_SEGMENTS | id as u32;
            if self.asker.keep_text {
                self.said.insert(segment, asked.text);
            }
            self.traffic.completed(flight.user, at, segment);
        } else {
            self.traffic.refused(flight.user, at);
            self.failures += u64::from(asked.record.outcome != Outcome::Cancelled);
            self.run.stopped_after = self.bounds.most_failures.filter(|most| self.failures >= *most);
        }
        self.keep(asked.record, asked.ended);
    }

    /// Aborts the requests in flight.
    fn interrupt(&mut self, now: Picoseconds) {
        self.run.interrupted = true;
        for (id, flight) in std::mem::take(&mut self.flights) {
            flight.task.abort();
            if self.has_classes {
                self.run.class_of.insert(id, flight.class);
            }
            let record = Record {
                id,
                outcome: Outcome::Unfinished,
                input_len: flight.input_len,
                output_len: 0,
                scheduled: flight.scheduled,
                sent: flight.sent,
                first_token: None,
                finished: now,
                itl: Vec::new(),
                cached_tokens: 0,
                preemptions: 0,
                replica: 0,
                error: Some("the run was interrupted".into()),
            };
            self.keep(record, now);
        }
    }

    /// Stores a record, after converting its times to the start of the run.
    fn keep(&mut self, mut record: Record, ended: Picoseconds) {
        self.run.flown.push(Flown { sent: record.sent, ended });
        let since = |at: Picoseconds| Picoseconds(at.0.saturating_sub(self.start.0));
        record.scheduled = since(record.scheduled);
        record.sent = since(record.sent);
        record.finished = since(record.finished);
        record.first_token = record.first_token.map(since);
        self.run.records.push(record);
    }
}
