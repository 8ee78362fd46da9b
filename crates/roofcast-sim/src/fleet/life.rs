//! The life of replicas: always up, started and stopped by a scaler, or failing and restarting.
//!
//! Knows: which of the three a fleet has, and what a start or a failure does to its replicas and their requests. Knows
//! nothing about when they occur ([`super::scaling`], [`super::failures`]).

use super::failures::{Change, Failures, LostRequest};
use super::{Fleet, Scaling, idle_since, in_flight};
use crate::engine::Replica;
use roofcast_ask::arrival::{Arrival, Departure};
use roofcast_ask::workload::{Prompt, Traffic};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::{Error, Result};

/// Starts and stops of a fleet's replicas.
#[derive(Debug)]
pub(crate) enum Life {
    /// All replicas are always up.
    Steady,
    /// Replicas start and stop with the load, or by a schedule.
    Scaled(Scaling),
    /// Replicas fail and restart.
    Failing(Failures),
}

impl Life {
    /// True if failures or the decisions of an autoscaler take part in each step; a scaler without a rule runs when a
    /// request arrives.
    pub(super) fn attends(&self) -> bool {
        matches!(self, Life::Failing(_)) || self.scaling().is_some_and(Scaling::is_ruled)
    }

    /// True if all replicas are always up.
    pub(super) fn is_steady(&self) -> bool {
        matches!(self, Life::Steady)
    }

    /// Failures of the replicas; `None` if none fails.
    pub(crate) fn failures(&self) -> Option<&Failures> {
        if let Life::Failing(failures) = self { Some(failures) } else { None }
    }

    /// Autoscaling state; `None` if the number of replicas is fixed.
    pub(crate) fn scaling(&self) -> Option<&Scaling> {
        if let Life::Scaled(scaling) = self { Some(scaling) } else { None }
    }

    /// Time of the next failure or return of a replica, or of an autoscaler's next decision, or never.
    pub(super) fn due(&self) -> Ticks {
        match self {
            Life::Steady => Ticks::NEVER,
            Life::Scaled(scaling) => scaling.due(),
            Life::Failing(failures) => failures.due(),
        }
    }

    /// Requests that wait for a replica to start or return; `None` if all replicas are always up.
    pub(super) fn parked(&mut self) -> Option<&mut Vec<LostRequest>> {
        match self {
            Life::Steady => None,
            Life::Scaled(scaling) => Some(&mut scaling.parked),
            Life::Failing(failures) => Some(&mut failures.parked),
        }
    }

    /// True if a request waits for a replica to start or return.
    pub(super) fn has_parked(&self) -> bool {
        match self {
            Life::Steady => false,
            Life::Scaled(scaling) => !scaling.parked.is_empty(),
            Life::Failing(failures) => !failures.parked.is_empty(),
        }
    }

    /// Records that replica `index` has received a request.
    pub(super) fn hold(&mut self, index: usize, arrival: Arrival, prompt: &Prompt) {
        if let Life::Failing(failures) = self {
            failures.hold(index, arrival, prompt.clone());
        }
    }

    /// Records that replica `index` has answered or refused request `number`.
    pub(super) fn forget(&mut self, index: usize, number: u64) {
        if let Life::Failing(failures) = self {
            failures.release(index, number);
        }
    }

    /// Records that replica `index` has ended the requests in `departures`.
    #[inline(never)]
    pub(super) fn release(&mut self, index: usize, departures: &[Departure]) {
        departures.iter().for_each(|gone| self.forget(index, gone.arrival.number));
    }

    /// Ends the run at `end`; `idle_since` returns the time at which a replica became idle.
    pub(super) fn close(&mut self, end: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        match self {
            Life::Steady => {}
            Life::Scaled(scaling) => scaling.close(end, idle_since),
            Life::Failing(failures) => failures.close(end),
        }
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
        let Life::Scaled(scaling) = &mut self.life else { return };
        let load = |index: usize| in_flight(&self.replicas, &self.delivery.servers, index);
        let in_flight = (0..self.replicas.len()).map(load).sum();
        let idle = |index: usize| idle_since(self.replicas[index].as_ref()).filter(|_| load(index) == 0);
        let starting = scaling.look(at, in_flight, &idle, &mut self.open);
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
        let Life::Scaled(scaling) = &mut self.life else { return Ok(()) };
        let at = scaling.due();
        let block = scaling.block;
        if traffic.peek().is_none() && scaling.gives_up(at) {
            return Err(Error::Stuck { waiting: scaling.parked.len() as u64 });
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
        let Life::Failing(failures) = &mut self.life else { return self.decide(traffic) };
        let Some((at, change)) = failures.change() else { return Ok(()) };
        self.open.clear();
        self.open.extend(failures.up());
        let again = match change {
            Change::Fails(index) => {
                self.replicas[index].restart();
                self.turns.set(index, None);
                self.delivery.servers.restart(index);
                let lost = failures.lost(index);
                if !failures.retry {
                    for (arrival, _) in &lost {
                        self.results.lose(arrival, at, false);
                        traffic.refused(arrival.user, at.picoseconds());
                    }
                    return Ok(());
                }
                failures.retried += lost.len() as u64;
                lost
            }
            Change::Returns(_) => std::mem::take(&mut failures.parked),
        };
        for (arrival, prompt) in again {
            self.send_or_park(Arrival { at, ..arrival }, prompt, traffic)?;
        }
        Ok(())
    }
}
