//! Results of a run as clients see them: request by request, or aggregated in bounded memory.

mod first_wave;
mod sample;
mod watched;

use crate::fleet::flow::{self, Flow, Trend};
use crate::tally::distribution::Distribution;
pub use first_wave::FirstWave;
use roofcast_ask::arrival::{Arrival, Departure};
use roofcast_ask::sampling::{BatchMeans, SamplingErrors};
use roofcast_ask::spec::{Metric, Slo};
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::{Conversations, Request};
use roofcast_facts::clock::Ticks;
use roofcast_facts::record::{Outcome, Record};
use roofcast_facts::units::Picoseconds;
pub use sample::Sample;
use watched::Watched;

/// Verdict on overload: did more requests arrive than could be served?
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfferedLoad {
    /// Arrival rate in requests per second; `None` in a closed loop. Of conversations the rate at which turns are sent,
    /// under overload the rate at which they would be if none waited.
    pub offered_per_s: Option<f64>,
    /// True if the queue or the number of requests in flight grew for as long as requests arrived.
    pub overloaded: bool,
    /// Requests per second that were answered while the queue grew: the largest stable rate.
    pub stable_per_s: Option<f64>,
    /// Number of requests that would make such a run long enough for a verdict; `None` if this run was.
    pub too_short_below: Option<u64>,
}

fn ticks(ms: f64) -> Ticks {
    Picoseconds::from_seconds(ms / 1e3).into()
}

/// Results of a run.
#[derive(Debug, Clone, Default)]
pub struct Results {
    slo: Slo,
    /// For each metric, the bound that a good request meets.
    most: [Ticks; 4],
    /// SLO bounds, each with the number of requests that exceed it.
    watched: Vec<Watched>,
    /// Number of requests that arrived.
    pub(crate) taken: u64,
    /// Number of arrived requests that are judged by the SLO.
    pub(crate) judged: u64,
    /// Time from which arriving requests are judged.
    judged_from: Ticks,
    /// Number of requests that got all their tokens.
    pub completed: u64,
    /// Number of requests that no engine with these settings could serve.
    pub refused: u64,
    /// Number of requests that a queue limit or a rate limit rejected.
    pub(crate) rejected: u64,
    /// Number of requests that were lost with their replica.
    pub(crate) lost: u64,
    /// Number of requests that ended with an error because a shared KV cache overflowed.
    pub overflowed: u64,
    input: u64,
    output: u64,
    good: u64,
    /// Most requests that may miss a bound, if the SLO demands that a fraction of requests meets all bounds.
    bad: Option<u64>,
    /// True if the SLO is certainly missed; stored because it is read in every turn and changes only when a request
    /// ends.
    missed: bool,
    /// Prompt tokens of completed requests that were found in a prefix cache.
    cached: u64,
    ttft: Sample,
    tpot: Sample,
    e2el: Sample,
    /// Times to first token, times per output token and end-to-end latencies by batch, in picoseconds.
    batches: [BatchMeans; 3],
    flow: Flow,
    /// The first request of each user of a closed loop.
    wave: first_wave::Counts,
    /// Total time of completed requests from first to last token, in ticks.
    decoding: u128,
    first: Option<Ticks>,
    /// Time of the last token of the run.
    pub end: Ticks,
    last: Ticks,
    /// Number of requests that have yet to arrive; `None` if arrival times depend on answers.
    open: Option<u64>,
    /// Conversations whose turns the requests are; `None` for requests that arrive by themselves.
    conversations: Option<Conversations>,
    /// For the second and the last quarter of requests: their number, sum of arrival times, and sum of waits.
    quarters: [(u64, u128, u128); 2],
    /// Results of each class of requests; empty without classes.
    pub(crate) classes: Vec<Results>,
    /// One record per request; `None` if records are not kept.
    pub records: Option<Vec<Record>>,
    /// True if the run ended before all its requests.
    pub(crate) interrupted: bool,
}

impl Results {
    /// Empty results; `records` is true if each request is kept. `open` is the number of requests that will arrive,
    /// `None` if arrival times depend on answers.
    pub fn new(slo: Slo, records: bool, open: Option<u64>) -> Results {
        let most = Metric::ALL.map(|metric| slo.of_a_request(metric).map_or(Ticks::NEVER, ticks));
        let watched =
            slo.bounds().map(|bound| Watched { bound, most: ticks(bound.ms), beyond: 0, tolerated: None });
        let watched = watched.collect();
        Results { slo, most, watched, open, records: records.then(Vec::new), ..Results::default() }
    }

    /// Returns results of a run of `total` requests that ends as soon as the SLO is certainly missed: when more
    /// requests exceed a bound than its percentile allows, or too few can still meet every bound, whatever the
    /// remaining requests get.
    pub(crate) fn ending_when_missed(mut self, total: u64) -> Results {
        for watched in &mut self.watched {
            // Percentile q of n values is between rank ⌊q (n - 1)⌋ and the next, counted from 0 in ascending order.
            let rank = (watched.bound.percentile.share() * total.saturating_sub(1) as f64) as u64;
            watched.tolerated = Some(total.saturating_sub(rank + 1));
        }
        Results { bad: self.slo.needed(total).map(|needed| total.saturating_sub(needed)), ..self }
    }

    /// Returns the results with requests that were sent before `from` excluded from judgement.
    pub(crate) fn judged_from(self, from: Picoseconds) -> Results {
        Results { judged_from: from.into(), ..self }
    }

    /// Returns the results with the first `users` requests counted apart as well.
    pub(crate) fn with_first_wave(self, users: u64) -> Results {
        Results { wave: first_wave::Counts::of(users), ..self }
    }

    /// Returns the results of requests that are turns of `conversations`.
    pub(crate) fn of_conversations(self, conversations: Option<Conversations>) -> Results {
        Results { conversations, ..self }
    }

    /// Returns the results with batches of a run of `total` requests, for sampling errors.
    pub(crate) fn in_batches(self, total: u64) -> Results {
        Results { batches: [(); 3].map(|()| BatchMeans::of(total)), ..self }
    }

    /// Returns the results with classes of requests, each judged by one of `slos`.
    pub(crate) fn by_class(self, slos: impl Iterator<Item = Slo>) -> Results {
        let judged_from = self.judged_from;
        let class = |slo| Results { judged_from, ..Results::new(slo, false, None) };
        Results { classes: slos.map(class).collect(), ..self }
    }

    /// Applies `count` to the results of class `class`, if there are classes.
    #[inline(never)]
    fn in_class(&mut self, class: u32, count: impl FnOnce(&mut Results)) {
        if let Some(results) = self.classes.get_mut(class as usize) {
            count(results);
        }
    }

    /// True if the SLO is certainly missed, in a run that may end early.
    pub(crate) fn missed(&self) -> bool {
        self.missed
    }

    /// Sets `missed` if more requests exceed a bound than tolerated; called after each request.
    #[inline(always)]
    fn judge(&mut self) {
        let failed = self.failed();
        self.missed = match self.bad {
            Some(most) => self.completed - self.good + failed > most,
            None => self.watched.iter().any(|w| w.tolerated.is_some_and(|most| w.beyond + failed > most)),
        }
    }

    /// Counts an arriving request and returns it in the form that an engine receives.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, request: &Request, key: i64) -> Arrival {
        let arrival = super::arrival(self.taken, request, key);
        self.taken += 1;
        if !self.classes.is_empty() {
            self.in_class(request.class, |class| {
                class.arrive(request, key);
            });
        }
        if arrival.sent < self.judged_from {
            return arrival;
        }
        self.judged += 1;
        self.first.get_or_insert(arrival.sent);
        self.last = self.last.max(arrival.sent);
        if self.open.is_some() {
            self.flow.arrived(arrival.sent);
        }
        arrival
    }

    /// Counts a request that is not served: rejected by a queue limit or a rate limit if the engine `could` serve it, else
    /// refused because no engine with these settings could.
    pub(crate) fn refuse(&mut self, arrival: &Arrival, could: bool) {
        match could {
            true => self.fail(arrival, arrival.sent, Outcome::Rejected, |results| &mut results.rejected),
            false => self.fail(arrival, arrival.sent, Outcome::Refused, |results| &mut results.refused),
        }
    }

    /// Counts a request that was lost at `at` with its replica, or as the cache that it shared `overflowed`.
    pub(crate) fn lose(&mut self, arrival: &Arrival, at: Ticks, overflowed: bool) {
        match overflowed {
            true => self.fail(arrival, at, Outcome::Aborted, |results| &mut results.overflowed),
            false => self.fail(arrival, at, Outcome::Disconnected, |results| &mut results.lost),
        }
    }

    /// Counts a request that ends at `at` without an answer, by `count`.
    fn fail(&mut self, arrival: &Arrival, at: Ticks, outcome: Outcome, count: fn(&mut Results) -> &mut u64) {
        self.in_class(arrival.class, |class| class.fail(arrival, at, outcome, count));
        if arrival.sent < self.judged_from {
            return;
        }
        *count(self) += 1;
        self.judge();
        if self.open.is_some() {
            self.flow.left(at);
        }
        if let Some(records) = &mut self.records {
            records.push(Record { outcome, output_len: 0, ..record(arrival, at) });
        }
    }

    /// Number of requests that have ended, with an answer or without.
    pub(crate) fn ended(&self) -> u64 {
        self.completed + self.failed()
    }

    /// Number of requests that ended without an answer.
    fn failed(&self) -> u64 {
        self.refused + self.rejected + self.lost + self.overflowed
    }

    /// Records a request that replica `replica` completed at `end`.
    #[inline(always)]
    pub(crate) fn finish(&mut self, gone: &Departure, end: Ticks, replica: usize) {
        let Departure { arrival, first, preemptions, cached, .. } = gone;
        if !self.classes.is_empty() {
            self.in_class(arrival.class, |class| class.finish(gone, end, replica));
        }
        if arrival.sent < self.judged_from {
            return;
        }
        let (ttft, e2el) = (*first - arrival.sent, end - arrival.sent);
        let tpot = (arrival.output > 1).then(|| (end - *first) / u64::from(arrival.output - 1));
        self.watch(arrival, ttft, end);
        self.decoding += (end - *first).0;
        self.completed += 1;
        self.input += u64::from(arrival.input);
        self.output += u64::from(arrival.output);
        self.ttft.add(ttft);
        self.e2el.add(e2el);
        self.cached += *cached;
        let [ttfts, tpots, e2els] = &mut self.batches;
        ttfts.add(arrival.number, ttft.picoseconds().0);
        e2els.add(arrival.number, e2el.picoseconds().0);
        if let Some(tpot) = tpot {
            self.tpot.add(tpot);
            tpots.add(arrival.number, tpot.picoseconds().0);
        }
        self.end = self.end.max(end);
        // A request of one token has no TPOT and therefore meets every bound of it.
        // Gaps between tokens are counted by the engine, over all requests.
        let times = [ttft, tpot.unwrap_or_default(), e2el, Ticks::ZERO];
        let good = times.iter().zip(self.most).all(|(time, most)| *time <= most);
        self.good += u64::from(good);
        self.wave.add(arrival.number, ttft, good);
        for watched in &mut self.watched {
            watched.beyond += u64::from(times[watched.bound.metric as usize] > watched.most);
        }
        self.judge();
        if let Some(records) = &mut self.records {
            records.push(Record {
                first_token: Some(first.picoseconds()),
                preemptions: u64::from(*preemptions),
                cached_tokens: *cached,
                replica: replica as u64,
                ..record(arrival, end)
            });
        }
    }

    /// Counts a departure, and adds the wait for the first token if the request is in the second or last quarter.
    #[inline(always)]
    fn watch(&mut self, arrival: &Arrival, ttft: Ticks, end: Ticks) {
        let Some(total) = self.open else { return };
        self.flow.left(end);
        let quarter = match 4 * arrival.number {
            n if (total..2 * total).contains(&n) => &mut self.quarters[0],
            n if (3 * total..4 * total).contains(&n) => &mut self.quarters[1],
            _ => return,
        };
        quarter.0 += 1;
        quarter.1 += arrival.sent.0;
        quarter.2 += ttft.0;
    }

    /// The verdict on overload, from either of two signs: requests in flight that grow for as long as requests arrive
    /// ([`Flow`]), or waits that grow. If λ requests arrive and μ < λ are served each second, a request that arrives
    /// one second later waits λ/μ − 1 seconds longer; the growth between the second and the last quarter of the
    /// requests gives μ if the requests in flight do not. The decodes and thinking of all turns of a conversation take
    /// the place of a request's decode.
    pub(crate) fn load(&self) -> OfferedLoad {
        let first = self.first.unwrap_or_default();
        let span = (self.last - first).seconds();
        let Some(total) = self.open.filter(|n| *n > 1 && span > 0.0) else { return OfferedLoad::default() };
        let offered = (total - 1) as f64 / span;
        let decode_s = Ticks(self.decoding / u128::from(self.completed.max(1))).seconds();
        let lasting_s = self.conversations.map_or(decode_s, |c| c.turns * (decode_s + c.think_s));
        let trend = self.flow.trend(first, self.last, lasting_s);
        let wait = self.growing_wait();
        let stable_per_s = match (trend, wait) {
            (Trend::Growing(per_s), _) => Some((offered - per_s).max(0.0)),
            (_, Some(growth)) => Some(offered / (1.0 + growth)),
            _ => None,
        };
        let long_enough = (lasting_s * offered * flow::DECODES).ceil() as u64;
        let turns_per_s =
            self.conversations.filter(|_| stable_per_s.is_some()).map_or(0.0, |c| c.per_s * c.turns);
        OfferedLoad {
            offered_per_s: Some(offered.max(turns_per_s)),
            overloaded: stable_per_s.is_some(),
            stable_per_s,
            too_short_below: (trend == Trend::Short && wait.is_none()).then_some(long_enough.max(total + 1)),
        }
    }

    /// Growth of the wait for the first token, in seconds per second of arrival time; `None` if it does not grow.
    fn growing_wait(&self) -> Option<f64> {
        let mean = |sum: u128, count: u64| sum as f64 / count.max(1) as f64;
        let [(n2, at2, wait2), (n4, at4, wait4)] = self.quarters;
        let (waited, waits) = (mean(wait2, n2), mean(wait4, n4));
        let growth = (waits - waited) / (mean(at4, n4) - mean(at2, n2)).max(1.0);
        (n2 > 0 && n4 > 0 && growth > 0.02 && waits > 1.5 * waited).then_some(growth)
    }

    /// Results of the first wave; `None` without one.
    pub(crate) fn first_wave(&self) -> Option<FirstWave> {
        self.wave.results(self.slo.is_bounded())
    }

    /// Mean tokens of a completed request: of its prompt those that no prefix cache had, all of its prompt, and its output.
    pub(crate) fn mean_tokens(&self) -> [f64; 3] {
        let completed = self.completed.max(1) as f64;
        [self.input.saturating_sub(self.cached), self.input, self.output]
            .map(|tokens| tokens as f64 / completed)
    }

    /// Sampling errors of the metrics of a request, whose statistics `summary` has; none of a run that was stopped. Nothing
    /// settles in a run that is not `steady`.
    pub(crate) fn sampling(&self, summary: &RunSummary, steady: bool) -> SamplingErrors {
        if self.interrupted {
            return SamplingErrors::default();
        }
        let mut unsettled = Vec::new();
        let samples = [
            ("ttft", &self.ttft, &summary.ttft),
            ("tpot", &self.tpot, &summary.tpot),
            ("e2el", &self.e2el, &summary.e2el),
        ];
        let mut errors =
            samples.into_iter().zip(&self.batches).map(|((name, sample, statistics), batches)| {
                let error = batches.error(statistics, |share| sample.quantile(share))?;
                if steady && batches.settled() {
                    return Some(error);
                }
                unsettled.push(name);
                None
            });
        let [ttft, tpot, e2el] = std::array::from_fn(|_| errors.next().flatten());
        drop(errors);
        SamplingErrors { ttft, tpot, e2el, unsettled }
    }

    /// Latencies of completed requests, by name of the metric.
    pub(crate) fn latencies(&mut self) -> [(&'static str, Sample); 3] {
        let samples = [("ttft", &mut self.ttft), ("tpot", &mut self.tpot), ("e2el", &mut self.e2el)];
        samples.map(|(name, sample)| (name, std::mem::take(sample)))
    }

    /// Marks the run as stopped early, which gives no verdict on overload.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = true;
        self.open = None;
    }

    /// Finishes the results when every request has ended, or when the run is stopped.
    pub(crate) fn close(&mut self) {
        [&mut self.ttft, &mut self.tpot, &mut self.e2el].into_iter().for_each(Sample::sort);
        self.classes.iter_mut().for_each(Results::close);
        if let Some(records) = &mut self.records {
            records.sort_by_key(|r| r.id);
        }
    }

    /// The summary with vLLM's keys; `itl` is counted by the engine.
    pub(crate) fn summary(&self, itl: &Distribution) -> RunSummary {
        RunSummary {
            completed: self.completed,
            failed: self.failed(),
            duration: (self.end - self.first.unwrap_or_default()).seconds(),
            total_input_tokens: self.input,
            total_output_tokens: self.output,
            good: self.slo.is_bounded().then_some(self.good),
            ttft: self.ttft.statistics(),
            tpot: self.tpot.statistics(),
            itl: itl.statistics(),
            e2el: self.e2el.statistics(),
        }
    }
}

fn record(arrival: &Arrival, end: Ticks) -> Record {
    let at = arrival.sent.picoseconds();
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

#[cfg(test)]
mod tests;
