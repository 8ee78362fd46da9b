//! Runs a workload through an engine in virtual time.
//!
//! Knows: requests are delivered at their times, a step that starts later sees them, and whoever ends may send the next.
//! Knows nothing about policies or prices.

use crate::engine::Engine;
use crate::engine::clock::Ticks;
use crate::engine::decodes::Decodes;
use crate::engine::distribution::Distribution;
use crate::engine::state::{Arrival, Sequence};
use crate::error::{Error, Result};
use crate::record::{Outcome, Record};
use crate::spec::Slo;
use crate::summary::{Statistics, Summary};

/// Where requests come from.
pub trait Source {
    /// When the next known request is due.
    fn peek(&self) -> Option<Ticks>;
    /// Takes it.
    fn next(&mut self) -> Option<Arrival>;
    /// Whether whoever is answered sends another request.
    fn closed(&self) -> bool;
    /// A request of `user` ended at `at`.
    fn completed(&mut self, user: u32, at: Ticks);
}

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

    fn sent(&mut self, at: Ticks) {
        self.first.get_or_insert(at);
    }

    fn refuse(&mut self, arrival: &Arrival) {
        self.refused += 1;
        self.sent(arrival.at);
        if let Some(records) = &mut self.records {
            records.push(Record { outcome: Outcome::Refused, output_len: 0, ..record(arrival, arrival.at) });
        }
    }

    fn finish(&mut self, sequence: &Sequence, end: Ticks) {
        let Sequence { arrival, first, preemptions, .. } = sequence;
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

/// Runs `source` through one replica until every request has ended.
pub fn run<D: Decodes, S: Source>(
    engine: &mut Engine<D>,
    source: &mut S,
    results: &mut Results,
) -> Result<()> {
    drive(engine, source, results)?;
    if let Some(records) = &mut results.records {
        records.sort_by_key(|r| r.id);
    }
    Ok(())
}

fn drive<D: Decodes, S: Source>(engine: &mut Engine<D>, source: &mut S, results: &mut Results) -> Result<()> {
    loop {
        while source.peek().is_some_and(|at| at <= engine.clock()) {
            deliver(engine, source, results);
        }
        if engine.is_empty() {
            let Some(at) = source.peek() else { return Ok(()) };
            engine.wait_until(at);
            continue;
        }
        // Whoever comes while others wait in order of arrival changes nothing until someone leaves; in a closed loop even
        // a refusal does, since the next request follows it.
        let horizon = if engine.blocked() && !source.closed() { None } else { source.peek() };
        if !engine.step(horizon.unwrap_or(Ticks::NEVER)) {
            return Err(Error::Stuck { waiting: engine.state.waiting() });
        }
        let clock = engine.clock();
        for gone in engine.drain() {
            results.finish(&gone, clock);
            source.completed(gone.arrival.user, clock);
        }
    }
}

fn deliver<D: Decodes, S: Source>(engine: &mut Engine<D>, source: &mut S, results: &mut Results) {
    let Some(arrival) = source.next() else { return };
    if engine.serves(&arrival) {
        results.sent(arrival.at);
        engine.arrive(arrival);
    } else {
        results.refuse(&arrival);
        source.completed(arrival.user, arrival.at);
    }
}
