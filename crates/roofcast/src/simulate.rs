//! Runs a workload through an engine in virtual time.
//!
//! Knows: requests are delivered at their times, a step that starts later sees them, and whoever ends may send the next.
//! Knows nothing about policies or prices.

use crate::engine::clock::Ticks;
use crate::engine::distribution::Distribution;
use crate::engine::state::Arrival;
use crate::engine::{Departure, Replica};
use crate::error::{Error, Result};
use crate::record::{Outcome, Record};
use crate::spec::{EngineSpec, QueuePolicy, Slo};
use crate::summary::{Statistics, Summary};
use crate::workload::prediction::Guesses;
use crate::workload::{Request, Traffic};

/// Values of one metric: all of them while they are few, bins beyond.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    few: Vec<u64>,
    many: Option<Distribution>,
}

/// Values that are kept one by one.
const FEW: usize = 10_000;

impl Sample {
    fn add(&mut self, span: Ticks) {
        let ticks = u64::try_from(span.0).unwrap_or(u64::MAX);
        match &mut self.many {
            Some(bins) => bins.add(ticks, 1),
            None if self.few.len() < FEW => self.few.push(ticks),
            None => {
                let mut bins = Distribution::default();
                self.few.drain(..).chain([ticks]).for_each(|t| bins.add(t, 1));
                self.many = Some(bins);
            }
        }
    }

    /// Exact while the values are few; beyond, quantiles within 0.05 %.
    pub fn statistics(&self) -> Statistics {
        match &self.many {
            Some(bins) => bins.statistics(),
            None => Statistics::of(&mut self.few.iter().map(|t| Ticks::from(*t).ms()).collect::<Vec<f64>>()),
        }
    }
}

/// What clients saw.
#[derive(Debug, Clone, Default)]
pub struct Results {
    slo: Slo,
    /// Requests that came.
    taken: u64,
    /// Requests that got all their tokens.
    pub completed: u64,
    /// Requests that no engine with these settings could serve.
    pub refused: u64,
    input: u64,
    output: u64,
    good: u64,
    ttft: Sample,
    tpot: Sample,
    e2el: Sample,
    first: Option<Ticks>,
    /// When the last token came.
    pub end: Ticks,
    /// One for each request, where they are kept.
    pub records: Option<Vec<Record>>,
}

impl Results {
    /// Nothing yet; `records` says whether each request is kept.
    pub fn new(slo: Slo, records: bool) -> Results {
        Results { slo, records: records.then(Vec::new), ..Results::default() }
    }

    fn refuse(&mut self, arrival: &Arrival) {
        self.refused += 1;
        if let Some(records) = &mut self.records {
            records.push(Record { outcome: Outcome::Refused, output_len: 0, ..record(arrival, arrival.at) });
        }
    }

    fn finish(&mut self, gone: &Departure, end: Ticks) {
        let Departure { arrival, first, preemptions, cached } = gone;
        let (ttft, e2el) = (*first - arrival.at, end - arrival.at);
        let tpot = (arrival.output > 1).then(|| Ticks((end - *first).0 / u128::from(arrival.output - 1)));
        self.completed += 1;
        self.input += u64::from(arrival.input);
        self.output += u64::from(arrival.output);
        self.ttft.add(ttft);
        self.e2el.add(e2el);
        if let Some(tpot) = tpot {
            self.tpot.add(tpot);
        }
        self.end = self.end.max(end);
        let within = |most: Option<f64>, time: Option<Ticks>| most.zip(time).is_none_or(|(m, t)| t.ms() <= m);
        let good = within(self.slo.ttft_p99_ms, Some(ttft))
            && within(self.slo.tpot_p99_ms, tpot)
            && within(self.slo.e2el_p99_ms, Some(e2el));
        self.good += u64::from(good);
        if let Some(records) = &mut self.records {
            records.push(Record {
                first_token: Some(first.picoseconds()),
                preemptions: u64::from(*preemptions),
                cached_tokens: *cached,
                ..record(arrival, end)
            });
        }
    }

    /// In vLLM's keys; `itl` is the engine's.
    pub fn summary(&self, itl: &Distribution) -> Summary {
        let bounded = self.slo.ttft_p99_ms.or(self.slo.tpot_p99_ms).or(self.slo.e2el_p99_ms).is_some();
        Summary {
            completed: self.completed,
            failed: self.refused,
            duration: (self.end - self.first.unwrap_or_default()).seconds(),
            total_input_tokens: self.input,
            total_output_tokens: self.output,
            good: bounded.then_some(self.good),
            ttft: self.ttft.statistics(),
            tpot: self.tpot.statistics(),
            itl: itl.statistics(),
            e2el: self.e2el.statistics(),
        }
    }
}

fn record(arrival: &Arrival, end: Ticks) -> Record {
    let at = arrival.at.picoseconds();
    Record {
        id: arrival.number,
        outcome: Outcome::Completed,
        input_len: u64::from(arrival.input),
        output_len: u64::from(arrival.output),
        scheduled: at,
        sent: at,
        first_token: None,
        finished: end.picoseconds(),
        itl: Vec::new(),
        cached_tokens: 0,
        preemptions: 0,
        replica: 0,
        error: None,
    }
}

/// A run: traffic, a replica, and what clients see.
pub struct Run<'a> {
    /// Who serves.
    pub replica: &'a mut dyn Replica,
    /// Who asks.
    pub traffic: &'a mut Traffic,
    /// What clients see.
    pub results: &'a mut Results,
    /// What the queue sorts by.
    pub ranking: Ranking,
}

impl Run<'_> {
    /// Serves until every request has ended.
    pub fn finish(mut self) -> Result<()> {
        let mut departures = Vec::new();
        loop {
            while self.due().is_some_and(|at| at <= self.replica.clock()) {
                self.deliver();
            }
            if self.replica.is_empty() {
                let Some(at) = self.due() else { break };
                self.replica.wait_until(at);
                continue;
            }
            // Whoever comes while others wait in order of arrival changes nothing until someone leaves; in a closed loop
            // even a refusal does, since the next request follows it.
            let passing = self.replica.blocked() && !self.traffic.is_closed();
            let horizon = if passing { None } else { self.due() };
            if !self.replica.step(horizon.unwrap_or(Ticks::NEVER)) {
                return Err(Error::Stuck { waiting: self.replica.waiting() });
            }
            let clock = self.replica.clock();
            self.replica.drain(&mut departures);
            for gone in departures.drain(..) {
                self.results.finish(&gone, clock);
                self.traffic.completed(gone.arrival.user, clock.picoseconds(), gone.arrival.output_segment);
            }
        }
        if let Some(records) = &mut self.results.records {
            records.sort_by_key(|r| r.id);
        }
        Ok(())
    }

    fn due(&self) -> Option<Ticks> {
        self.traffic.peek().map(Ticks::from)
    }

    fn deliver(&mut self) {
        let Some(request) = self.traffic.next() else { return };
        let number = self.results.taken;
        self.results.taken += 1;
        let arrival = Arrival {
            number,
            at: Ticks::from(request.at),
            input: request.input_len,
            output: request.output_len,
            key: self.ranking.key(&request),
            user: request.user,
            output_segment: 0,
        };
        self.results.first.get_or_insert(arrival.at);
        if self.replica.serves(&arrival) {
            self.replica.arrive(arrival, request.prompt);
        } else {
            self.results.refuse(&arrival);
            self.traffic.completed(request.user, request.at, 0);
        }
    }
}

/// What a queue sorts by.
#[derive(Debug, Clone)]
pub enum Ranking {
    /// Arrival alone.
    Arrival,
    /// The request's priority.
    Priority,
    /// Its output's length, as far as it is known.
    Length(Guesses),
}

impl Ranking {
    /// The ranking of a spec's queue; `seed` of the predictions' errors.
    pub fn new(spec: &EngineSpec, seed: u64) -> Ranking {
        match spec.policy {
            QueuePolicy::Fcfs => Ranking::Arrival,
            QueuePolicy::Priority => Ranking::Priority,
            QueuePolicy::Sjf => Ranking::Length(Guesses::new(spec.length_prediction, seed)),
        }
    }

    fn key(&mut self, request: &Request) -> i64 {
        match self {
            Ranking::Arrival => 0,
            Ranking::Priority => i64::from(request.priority),
            Ranking::Length(guesses) => guesses.next(request.output_len),
        }
    }
}
