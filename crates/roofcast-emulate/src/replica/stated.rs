//! An engine with fixed latencies: each request gets its first token a fixed time after its arrival, and every further
//! token a fixed time after the previous one, regardless of load.
//!
//! Knows: when each token is due. There is no scheduler, memory or cache: requests never wait, and nothing is cached.

use super::life::Life;
use super::{Message, Shared};
use crate::outlet::Failure;
use crate::pace::Pace;
use roofcast::clock::{TICKS_PER_PS, Ticks};
use roofcast::engine::online::Levels;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Longest sleep of an idle engine, after which it checks that its handle still exists.
const IDLE: Duration = Duration::from_secs(3600);

/// Fixed latencies, in milliseconds of engine time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// Time from a request's arrival to its first token, in milliseconds.
    pub ttft_ms: f64,
    /// Time from each token to the next, in milliseconds.
    pub itl_ms: f64,
}

impl Latencies {
    fn ttft(self) -> Ticks {
        ticks(self.ttft_ms)
    }

    fn itl(self) -> Ticks {
        ticks(self.itl_ms)
    }
}

fn ticks(ms: f64) -> Ticks {
    Ticks((ms * 1e9 * TICKS_PER_PS) as u128)
}

/// State of the engine's thread.
pub(super) struct Stated {
    latencies: Latencies,
    pace: Pace,
    inbox: Receiver<Message>,
    shared: Arc<Shared>,
    /// Requests by number, each with the number of its released tokens.
    here: BTreeMap<u64, (Life, usize)>,
    /// Due time of each request's next token.
    due: BTreeSet<(Ticks, u64)>,
}

impl Stated {
    pub(super) fn new(
        latencies: Latencies,
        pace: Pace,
        inbox: Receiver<Message>,
        shared: Arc<Shared>,
    ) -> Stated {
        Stated { latencies, pace, inbox, shared, here: BTreeMap::new(), due: BTreeSet::new() }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.inbox.recv_timeout(self.patience()) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return self.here.values().for_each(|(life, _)| life.job.outlet.fail(Failure::Aborted));
                }
            }
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            self.say();
            let levels = Levels { running: self.here.len() as u64, waiting: 0, deferred: 0, blocks: 0 };
            self.shared.metrics().levels(levels, 0);
        }
    }

    /// Time until the next token is due.
    fn patience(&self) -> Duration {
        self.due.first().map_or(IDLE, |(at, _)| self.pace.left(*at).min(IDLE))
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Arrive(job) => {
                let number = job.asked.number;
                let at = job.asked.at;
                let prompt = job.asked.prompt.len() as u64;
                let mut life = Life::new(job);
                (life.admitted, life.runs) = (Some(at), true);
                self.shared.metrics().admitted(prompt, 0, life.external(), false);
                self.here.insert(number, (life, 0));
                self.due.insert((at + self.latencies.ttft(), number));
            }
            Message::Abort(number) => {
                if self.remove(number).is_some() {
                    self.shared.metrics().left();
                }
            }
            Message::Die => {
                let numbers: Vec<u64> = self.here.keys().copied().collect();
                for life in numbers.into_iter().filter_map(|number| self.remove(number)).collect::<Vec<_>>() {
                    self.shared.metrics().aborted();
                    life.job.outlet.fail(Failure::Aborted);
                }
            }
            Message::State(latencies) => self.latencies = latencies,
            // There are no steps to pause, and no cache to empty.
            Message::Pause { .. } | Message::Wake | Message::Flush => {}
        }
    }

    /// Removes a request and returns it.
    fn remove(&mut self, number: u64) -> Option<Life> {
        let (life, said) = self.here.remove(&number)?;
        self.due.retain(|(_, other)| *other != number);
        if said == 0 {
            self.shared.queued_tokens.fetch_sub(life.job.asked.prompt.len() as u64, Ordering::Relaxed);
        }
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        Some(life)
    }

    /// Releases all tokens that are due.
    fn say(&mut self) {
        let now = self.pace.now();
        while let Some((at, number)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            let Some((life, said)) = self.here.get_mut(&number) else { continue };
            if *said == 0 {
                self.shared.queued_tokens.fetch_sub(life.job.asked.prompt.len() as u64, Ordering::Relaxed);
            }
            *said += 1;
            let last = *said >= life.job.asked.output.len();
            let mut metrics = self.shared.metrics();
            metrics.stepped(1, 1, self.pace.lag(at));
            life.sampled(1, at, &self.pace, &mut metrics);
            if !last {
                self.due.insert((at + self.latencies.itl(), number));
                continue;
            }
            let ended = life.ended(&self.pace);
            metrics.finished(&ended, life.job.facts);
            drop(metrics);
            *self.shared.clock() = at;
            let Some((mut life, _)) = self.here.remove(&number) else { continue };
            self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
            life.job.outlet.took(life.job.choice, ended.prefill, ended.decode);
            match life.job.onward.take() {
                Some(onward) => onward.go(*life.job, at),
                None => life.job.outlet.say(life.job.choice, 0, true),
            }
        }
    }
}
