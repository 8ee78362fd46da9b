//! Data-parallel ranks as engines: each has a queue, limits and a KV cache of its own, behind a balancer.
//!
//! Knows: which rank gets a request; ranks share experts and therefore step together, with the price of [`price`], and a
//! rank without work waits for the others. Equal steps of all ranks are taken at once. Knows nothing about the decisions
//! of an engine.

mod balancer;
mod load;
mod price;
#[cfg(test)]
mod tests;

use super::price::{JointSteps, StepPrices};
use super::{Replica, steps_within};
use crate::scheduler::config::RankSettings;
use crate::scheduler::state::KvPull;
use crate::tally::Tally;
use crate::timeline::{JointSegments, Timeline};
use balancer::{Balancer, Counts};
pub(super) use load::{Repeats, StepLoad};
use price::JointPrices;
use roofcast_ask::arrival::{Arrival, Departure, SequenceId};
use roofcast_ask::workload::Prompt;
use roofcast_facts::clock::{Ticks, sum_of_run};
use roofcast_facts::shares::BottleneckShares;
use std::borrow::Cow;

/// An engine that can be one of several ranks which step together.
pub(super) trait Rank: Replica {
    /// Decides the next step; [`Replica::step`] then runs it. Returns the work whose price the rank needs, which is
    /// empty if only results are due; `None` if the step has nothing for this rank.
    fn prepare(&mut self) -> Option<StepLoad>;
    /// Steps that equal the prepared one.
    fn repeats(&mut self) -> Repeats {
        Repeats::default()
    }
    /// Sets number and price of the steps of which the prepared one is the first; `None` lets the rank price its steps
    /// itself.
    fn impose(&mut self, price: Option<JointSteps>);
    /// Moves the clock to `time`, until which other ranks computed, and drops a prepared step without work.
    fn wait_for_others(&mut self, time: Ticks);
}

/// The data-parallel ranks of one replica.
pub(super) struct Ranks {
    ranks: Vec<Box<dyn Rank>>,
    balancer: Balancer,
    price: JointPrices,
    /// End of the last step.
    clock: Ticks,
    /// Counts that the ranks reported at the start and at the end of the last step.
    reported: [Vec<Counts>; 2],
    /// Counters of the replica that are no sums over ranks; the others stay 0.
    own: Tally,
    timeline: Option<Box<Timeline>>,
}

impl Ranks {
    /// Idle `ranks`; `prices` has the times of one rank's steps.
    pub(super) fn new(ranks: Vec<Box<dyn Rank>>, settings: RankSettings, prices: &StepPrices) -> Ranks {
        let idle = vec![[0; 2]; ranks.len()];
        Ranks {
            balancer: Balancer::new(settings.balance, ranks.len()),
            ranks,
            price: JointPrices::new(prices),
            clock: Ticks::ZERO,
            reported: [idle.clone(), idle],
            own: Tally::default(),
            timeline: None,
        }
    }

    /// Lets `act` run on a rank that records in the replica's timeline.
    fn with<T>(&mut self, rank: usize, act: impl FnOnce(&mut dyn Rank) -> T) -> T {
        let rank = self.ranks[rank].as_mut();
        *rank.timeline() = self.timeline.take();
        let result = act(rank);
        self.timeline = rank.timeline().take();
        result
    }

    /// Chooses the rank of a request that arrives at `at`.
    fn choose(&mut self, at: Ticks) -> usize {
        let reported = &self.reported[usize::from(at >= self.clock)];
        self.balancer.choose(at, reported)
    }

    fn sum(&self, of: impl Fn(&dyn Rank) -> u64) -> u64 {
        self.ranks.iter().map(|rank| of(rank.as_ref())).sum()
    }

    /// Records the counts of every rank at the end of a step, and the largest numbers of the replica.
    fn report(&mut self) {
        self.reported.swap(0, 1);
        self.reported[1] = self.counts();
        self.own.waiting_peak = self.own.waiting_peak.max(self.sum(|rank| rank.waiting()));
    }

    /// Numbers of waiting and of running requests of each rank.
    fn counts(&self) -> Vec<Counts> {
        let counts = |rank: &dyn Rank| [rank.waiting(), rank.in_flight() - rank.waiting()];
        self.ranks.iter().map(|rank| counts(rank.as_ref())).collect()
    }

    /// The equal steps that start before `horizon` with the prepared one, of the work `loads` of the ranks that are
    /// `busy`.
    fn joint(&mut self, loads: &[StepLoad], busy: &[bool], horizon: Ticks) -> JointSteps {
        let repeats = |(rank, busy): (&mut Box<dyn Rank>, &bool)| match *busy {
            true => Some(rank.repeats()),
            false => (!rank.is_empty()).then(Repeats::default),
        };
        let repeats: Vec<Repeats> = self.ranks.iter_mut().zip(busy).filter_map(repeats).collect();
        let repeated_steps = repeats.iter().map(|repeats| repeats.steps).min().unwrap_or(1);
        let repeats = if repeated_steps > 1 { repeats } else { Vec::new() };
        let adapted = load::adapted(loads.iter().map(|load| load.adapted.as_slice()));
        let joint = JointSteps { adapted, ..self.price.price(loads, &repeats, self.ranks.len() as u64) };
        let until = repeats.iter().map(|repeats| repeats.until).fold(horizon, Ticks::min);
        // Without steps in flight the first step starts now, else the second is decided when the one in flight ends.
        let flight = repeats.iter().filter_map(|repeats| repeats.in_flight).max();
        let start = self.clock + flight.unwrap_or(Ticks::ZERO);
        if repeated_steps.min(joint.count) <= 1 || until <= start || joint.shares.total() == 0 {
            return JointSteps { count: 1, growth: 0, ..joint };
        }
        let left = if until == Ticks::NEVER { until } else { until - start };
        let decided = u64::from(flight.is_some());
        let step_limit = repeated_steps.min(joint.count) - decided;
        let count = decided + steps_within(joint.shares.total(), joint.growth, left, step_limit);
        JointSteps { count, ..joint }
    }

    /// Runs `rank`'s step; returns false if there was no work.
    fn step_of(&mut self, rank: usize, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        let from = departed.len();
        let went = self.with(rank, |rank| rank.step(horizon, departed));
        let count = self.ranks.len() as SequenceId;
        departed[from..].iter_mut().for_each(|gone| gone.id = gone.id * count + rank as SequenceId);
        went
    }

    /// Moves all ranks to the end of the last step on any rank.
    fn meet(&mut self) {
        self.clock = self.ranks.iter().map(|rank| rank.clock()).fold(self.clock, Ticks::max);
        self.ranks.iter_mut().for_each(|rank| rank.wait_for_others(self.clock));
    }

    /// Runs a step that all ranks take together; while no rank computes, copies are awaited until `horizon`.
    fn step_together(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        let all = 0..self.ranks.len();
        let loads: Vec<_> = all.clone().map(|rank| self.with(rank, |rank| rank.prepare())).collect();
        if loads.iter().all(Option::is_none) {
            // Ranks may wait for copies from the host.
            let went = all.clone().filter(|rank| self.step_of(*rank, horizon, departed)).count() > 0;
            self.meet();
            return went;
        }
        let busy: Vec<bool> = loads.iter().map(Option::is_some).collect();
        let loads: Vec<StepLoad> = loads.into_iter().flatten().collect();
        let computes = loads.iter().any(|load| !load.is_empty());
        let joint = self.joint(&loads, &busy, horizon);
        let JointSteps { count, shares, growth, .. } = joint;
        if count > 1 {
            // Before the last step the counts are those of the first.
            self.reported[1] = self.counts();
        }
        let before =
            [self.sum(|rank| rank.tally().running_steps), self.sum(|rank| rank.tally().decode_steps)];
        if let Some(timeline) = &mut self.timeline {
            timeline.ranks = Some(JointSegments::default());
        }
        let end = self.clock + Ticks(sum_of_run(shares.total(), growth, count).max(1));
        for rank in all.filter(|rank| busy[*rank]) {
            if let Some(segments) = self.timeline.as_mut().and_then(|timeline| timeline.ranks.as_mut()) {
                segments.begin_rank();
            }
            self.ranks[rank].impose(Some(joint));
            self.step_of(rank, end, departed);
            self.ranks[rank].impose(None);
        }
        self.meet();
        if let Some(timeline) = &mut self.timeline {
            timeline.end_ranks();
        }
        if computes {
            let running = self.sum(|rank| rank.tally().running_steps) - before[0];
            let decoded = self.sum(|rank| rank.tally().decode_steps) > before[1];
            self.own.steps += count;
            self.own.decode_steps += if decoded { count } else { 0 };
            self.own.running_peak = self.own.running_peak.max(running / count);
            self.own.mixed = self.own.mixed.plus(self.price.sum(joint));
        }
        self.report();
        true
    }
}

impl Replica for Ranks {
    fn serves(&self, arrival: &Arrival) -> bool {
        self.ranks.first().is_some_and(|rank| rank.serves(arrival))
    }

    fn arrive(&mut self, arrival: Arrival, prompt: Prompt) {
        let rank = self.choose(arrival.at);
        self.with(rank, |rank| rank.arrive(arrival, prompt));
        self.own.waiting_peak = self.own.waiting_peak.max(self.waiting());
    }

    fn clock(&self) -> Ticks {
        self.clock
    }

    fn wait_until(&mut self, time: Ticks) {
        self.own.idle += time - self.clock;
        self.clock = self.clock.max(time);
        self.ranks.iter_mut().for_each(|rank| rank.wait_until(time));
    }

    fn blocked(&self) -> bool {
        // Every arrival changes the balancer's counts, which age.
        false
    }

    fn is_empty(&self) -> bool {
        self.ranks.iter().all(|rank| rank.is_empty())
    }

    fn in_flight(&self) -> u64 {
        self.sum(|rank| rank.in_flight())
    }

    fn waiting(&self) -> u64 {
        self.sum(|rank| rank.waiting())
    }

    fn prompt_tokens(&self) -> u64 {
        self.sum(|rank| rank.prompt_tokens())
    }

    fn cached(&self, prompt: &Prompt) -> u64 {
        self.ranks[self.balancer.preferred()].cached(prompt)
    }

    fn cached_on_host(&self, prompt: &Prompt) -> u64 {
        self.ranks[self.balancer.preferred()].cached_on_host(prompt)
    }

    fn blocks(&self) -> (u64, u64) {
        (self.sum(|rank| rank.blocks().0), self.sum(|rank| rank.blocks().1))
    }

    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        self.step_together(horizon, departed)
    }

    fn receive(&mut self, guest: Departure, at: Ticks) {
        let rank = self.choose(at);
        self.with(rank, |rank| rank.receive(guest, at));
    }

    fn drain_admitted(&mut self, into: &mut Vec<KvPull>) {
        for (lane, rank) in self.ranks.iter_mut().enumerate() {
            let from = into.len();
            rank.drain_admitted(into);
            into[from..].iter_mut().for_each(|pull| pull.lane = lane);
        }
    }

    fn landed(&mut self, pull: KvPull) {
        self.with(pull.lane, |rank| rank.landed(pull));
    }

    fn release(&mut self, id: SequenceId) {
        let count = self.ranks.len() as SequenceId;
        self.with((id % count) as usize, |rank| rank.release(id / count));
    }

    fn restart(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.restart());
        self.balancer.restart();
        self.reported.iter_mut().for_each(|counts| counts.fill([0; 2]));
    }

    fn tally(&self) -> Cow<'_, Tally> {
        let tallies: Vec<_> = self.ranks.iter().map(|rank| rank.tally()).collect();
        Cow::Owned(self.own.over(&tallies))
    }

    fn shares(&mut self) -> BottleneckShares<Ticks> {
        self.own.mixed.map(Ticks)
    }

    fn timeline(&mut self) -> &mut Option<Box<Timeline>> {
        &mut self.timeline
    }
}
