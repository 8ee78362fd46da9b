//! The life of replicas: started and stopped by a scaler, failing and restarting, or both.
//!
//! Knows: what a start or a failure does to a fleet's replicas and their requests. A failed replica stays wanted: it restarts
//! in its place, and is not stopped before its return. Knows nothing about when starts and failures occur
//! ([`super::scaling`], [`super::failures`]).

use super::failures::{Change, Failures, LostRequest};
use super::{Fleet, Scaling, idle_since, in_flight};
use crate::engine::Replica;
use roofcast_ask::arrival::{Arrival, Departure};
use roofcast_ask::workload::{Prompt, Traffic};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::Result;

/// Starts, stops and failures of a fleet's replicas; replicas that an autoscaler's rule starts do not fail.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Starts and stops with the load, or by a schedule; `None` if all replicas are always wanted.
    pub(crate) scaling: Option<Scaling>,
    /// Failures and restarts; `None` if no replica fails.
    pub(crate) failures: Option<Failures>,
}

impl Life {
    /// True if failures or the decisions of an autoscaler take part in each step; a scaler without a rule runs when a
    /// request arrives.
    pub(super) fn attends(&self) -> bool {
        self.failures.is_some() || self.scaling.as_ref().is_some_and(Scaling::is_ruled)
    }

    /// True if all replicas are always up.
    pub(super) fn is_steady(&self) -> bool {
        self.scaling.is_none() && self.failures.is_none()
    }

    /// Time of the next failure or return of a replica, or of an autoscaler's next decision, or never.
    pub(super) fn due(&self) -> Ticks {
        let decision = self.scaling.as_ref().map_or(Ticks::NEVER, Scaling::due);
        self.failures.as_ref().map_or(decision, Failures::due)
    }

    /// Requests that wait for a replica to start or return; `None` if all replicas are always up.
    pub(super) fn parked(&mut self) -> Option<&mut Vec<LostRequest>> {
        match &mut self.failures {
            Some(failures) => Some(&mut failures.parked),
            None => self.scaling.as_mut().map(|scaling| &mut scaling.parked),
        }
    }

    /// True if a request waits for a replica to start or return.
    pub(super) fn has_parked(&self) -> bool {
        let waits_for_start = self.scaling.as_ref().is_some_and(|scaling| !scaling.parked.is_empty());
        waits_for_start || self.failures.as_ref().is_some_and(|failures| !failures.parked.is_empty())
    }

    /// Records that replica `index` has received a request.
    pub(super) fn hold(&mut self, index: usize, arrival: Arrival, prompt: &Prompt) {
        if let Some(failures) = &mut self.failures {
            failures.hold(index, arrival, prompt.clone());
        }
    }

    /// Records that replica `index` has answered or refused request `number`.
    pub(super) fn forget(&mut self, index: usize, number: u64) {
        if let Some(failures) = &mut self.failures {
            failures.release(index, number);
        }
    }

    /// Records that replica `index` has ended the requests in `departures`.
    #[inline(never)]
    pub(super) fn release(&mut self, index: usize, departures: &[Departure]) {
        departures.iter().for_each(|gone| self.forget(index, gone.arrival.number));
    }

    /// Time at which requests were last lost in a failure.
    pub(super) fn end(&self) -> Ticks {
        self.failures.as_ref().map_or(Ticks::ZERO, |failures| failures.lost_at)
    }

    /// Ends the run at `end`; `idle_since` returns the time at which a replica became idle.
    pub(super) fn close(&mut self, end: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        if let Some(failures) = &mut self.failures {
            failures.close(end);
        }
        if let Some(scaling) = &mut self.scaling {
            scaling.close(end, idle_since);
        }
    }

    /// Fraction of the run in which a replica was up, of the time in which it was paid for; 1 without failures.
    pub(crate) fn availability(&self) -> f64 {
        let Some(failures) = &self.failures else { return 1.0 };
        let paid_s = match &self.scaling {
            Some(scaling) => (0..scaling.count()).map(|index| scaling.lasted(index).seconds()).sum(),
            None => failures.whole_s(),
        };
        failures.availability(paid_s)
    }
}

/// Tokens in a replica's KV cache and of prompts without an output token, over the tokens of the KV cache.
fn kv_use(replica: &dyn Replica, block: u64) -> f64 {
    let (used, all) = replica.blocks();
    let tokens = (used * block + replica.prompt_tokens()) as f64;
    tokens / ((all * block).max(1) as f64)
}

impl Fleet {
    /// Starts and stops replicas when a request arrives at `at`.
    #[inline(never)]
    pub(super) fn scale(&mut self, at: Ticks) {
        let Some(scaling) = &mut self.life.scaling else { return };
        let load = |index: usize| in_flight(&self.replicas, &self.delivery.servers, index);
        let in_flight = (0..self.replicas.len()).map(load).sum();
        let failures = self.life.failures.as_ref();
        let down = |index: usize| failures.is_some_and(|failures| failures.is_down(index));
        let idle = |index: usize| {
            idle_since(self.replicas[index].as_ref()).filter(|_| load(index) == 0 && !down(index))
        };
        let starting = scaling.look(at, in_flight, &idle, &down, &mut self.open);
        self.start(starting);
    }

    /// Empties the caches of replicas that start.
    fn start(&mut self, starting: Vec<usize>) {
        for index in starting {
            self.replicas[index].restart();
            self.note_turn(index);
            self.watch.forget(index);
        }
    }

    /// Applies the decision of an autoscaler; a replica that is ready accepts the requests that waited for one.
    #[inline(never)]
    fn decide(&mut self, traffic: &mut Traffic) -> Result<()> {
        let Some(scaling) = &mut self.life.scaling else { return Ok(()) };
        let at = scaling.due();
        let block = scaling.block;
        if traffic.peek().is_none() && scaling.gives_up(at) {
            return Err(scaling.never_starts());
        }
        let load = |index: usize| {
            let replica = self.replicas[index].as_ref();
            (in_flight(&self.replicas, &self.delivery.servers, index), kv_use(replica, block))
        };
        let idle = |index: usize| {
            let empty = in_flight(&self.replicas, &self.delivery.servers, index) == 0;
            idle_since(self.replicas[index].as_ref()).filter(|_| empty)
        };
        let starting = scaling.decide(at, &load, &idle, &mut self.open);
        self.start(starting);
        if self.open.is_empty() {
            return Ok(());
        }
        let parked = self.life.parked().map(std::mem::take).unwrap_or_default();
        for (arrival, prompt) in parked {
            self.send(Arrival { at, ..arrival }, prompt, traffic)?;
        }
        Ok(())
    }

    /// Applies a failure, the return of a replica or the decision of an autoscaler: lost requests are sent again or fail,
    /// and a replica that returns or starts accepts the requests that waited for one.
    #[inline(never)]
    pub(super) fn change(&mut self, traffic: &mut Traffic) -> Result<()> {
        let scaling = self.life.scaling.as_ref();
        let Some(failures) = &mut self.life.failures else { return self.decide(traffic) };
        let due = failures.due();
        let runs = |index: usize| scaling.is_none_or(|scaling| scaling.is_ready(index, due));
        let Some((at, change)) = failures.change(&runs) else { return Ok(()) };
        if scaling.is_none() {
            self.open.clear();
            self.open.extend(failures.up());
        }
        let again = match change {
            Change::Fails(index) => {
                self.replicas[index].restart();
                self.turns.set(index, None);
                self.delivery.servers.restart(index);
                let lost = failures.lost(index, at);
                if !failures.retry {
                    for (arrival, _) in &lost {
                        self.results.lose(arrival, at, false);
                        traffic.refused(arrival.user, at.picoseconds());
                    }
                    return Ok(());
                }
                failures.check_progress()?;
                failures.retried += lost.len() as u64;
                lost
            }
            Change::Returns(_) => std::mem::take(&mut failures.parked),
            Change::Nothing => return Ok(()),
        };
        for (arrival, prompt) in again {
            self.scale(at);
            self.send_or_park(Arrival { at, ..arrival }, prompt, traffic)?;
        }
        Ok(())
    }
}
