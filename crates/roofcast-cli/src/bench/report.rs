//! Aggregates of a run: vLLM's keys, the achieved load, the client's own state, and the verdict on the run.
//!
//! Knows: records and samples; when a run is invalid. Pure. The verb formats the result.

use super::caveats::{self, Given};
use super::load::Run;
use super::scrape::ServerMetrics;
use super::tally::share;
use super::window::{self, Position, Window};
use roofcast::record::{Outcome, Record};
use roofcast::spec::Slo;
use roofcast::summary::{FIGURES, RunSummary, Statistics};
use roofcast::units::Picoseconds;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;

/// Least fraction of the requested load that a valid run offers.
const LEAST_SHARE: f64 = 0.95;

/// Largest fraction of failures in a valid run.
const MOST_FAILED: f64 = 0.01;

/// The load that was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Requested {
    /// Users of a closed loop, each with one request in flight.
    pub(crate) concurrency: Option<u64>,
    /// Requests per second of an open loop.
    pub(crate) rate: Option<f64>,
    /// True if users pause between requests, so that fewer requests are in flight than there are users.
    pub(crate) thinks: bool,
}

/// Criteria for judging a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judge {
    pub(crate) slo: Slo,
    pub(crate) window: Window,
    /// Largest 99th percentile of the client's lag in a valid run, in milliseconds.
    pub(crate) most_lag_ms: f64,
}

/// State of the client itself, which shows if the client distorted the measurement.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct ClientState {
    /// Mean lag of the client's loop in milliseconds.
    pub(crate) lag_ms_mean: f64,
    pub(crate) lag_ms_p50: f64,
    pub(crate) lag_ms_p99: f64,
    pub(crate) lag_ms_max: f64,
    /// Delay from a request's due time to its sending, 99th percentile in milliseconds.
    pub(crate) send_delay_ms_p99: f64,
    /// Processor time of the client in seconds.
    pub(crate) cpu_s: f64,
    pub(crate) cpu_s_per_1k_tokens: f64,
}

/// Results of a run and the verdict on its validity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) valid: bool,
    /// True if the user ended the run.
    pub(crate) interrupted: bool,
    /// Reasons why the run is invalid, one sentence each.
    pub(crate) invalid_because: Vec<String>,
    /// Caveats that do not invalidate the run, one sentence each.
    pub(crate) warnings: Vec<String>,
    pub(crate) summary: RunSummary,
    pub(crate) ttft_from_schedule: Statistics,
    pub(crate) e2el_from_schedule: Statistics,
    pub(crate) requested: Requested,
    pub(crate) achieved_concurrency: f64,
    pub(crate) max_concurrent_requests: u64,
    pub(crate) max_output_tokens_per_s: u64,
    /// Rate of the schedule as drawn, in requests per second; `None` if the server sets the pace.
    pub(crate) scheduled_rate: Option<f64>,
    pub(crate) achieved_rate: Option<f64>,
    pub(crate) client: ClientState,
    /// Failures by kind, and the first message of each.
    pub(crate) failures: BTreeMap<Outcome, Failures>,
    /// Fraction of the counted prompts that had exactly the requested tokens; `None` if the server counts none.
    pub(crate) exact_prompts: Option<f64>,
    /// Number of completed answers with fewer tokens than requested.
    pub(crate) short_answers: u64,
    pub(crate) answered_share: Option<f64>,
    /// Number of completed answers whose tokens the server did not count.
    pub(crate) uncounted_answers: u64,
    /// Fraction of prompt tokens that the server took from a prefix cache, if it reports them.
    pub(crate) cached_share: Option<f64>,
    /// Number of prompts that had been sent before.
    pub(crate) repeated_prompts: u64,
    /// Number of requests that were sent twice.
    pub(crate) resent: u64,
    /// Number of requests that the client cancelled on purpose.
    pub(crate) cancelled: u64,
    pub(crate) window: Window,
    pub(crate) itl_by_position: Vec<Position>,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Failures {
    pub(crate) count: u64,
    pub(crate) first: String,
}

impl Report {
    /// The report of a run, in which the client used `cpu_s` seconds of processor time.
    pub(super) fn of(
        run: &Run,
        server: Option<&ServerMetrics>,
        (requested, given): (Requested, &Given),
        judge: &Judge,
        cpu_s: f64,
    ) -> Report {
        let tally = &run.tally;
        let counting: Vec<Record> = judge.window.of(&run.records).iter().filter(wanted).cloned().collect();
        let counting = counting.as_slice();
        let summary = RunSummary::of(counting, &judge.slo);
        let tokens: u64 = run.records.iter().map(|r| r.output_len).sum();
        let mut report = Report {
            valid: true,
            interrupted: run.interrupted,
            invalid_because: Vec::new(),
            warnings: Vec::new(),
            ttft_from_schedule: from_schedule(counting, |r| r.first_token),
            e2el_from_schedule: from_schedule(counting, |r| Some(r.finished)),
            requested,
            achieved_concurrency: window::concurrency(&run.flown, requested.concurrency.unwrap_or(1)),
            max_concurrent_requests: window::peak_concurrency(&run.flown),
            max_output_tokens_per_s: window::peak_tokens_per_s(&run.records),
            scheduled_rate: requested.rate.and_then(|_| window::rate(&run.records, |r| r.scheduled)),
            achieved_rate: window::rate(&run.records, |r| r.sent),
            client: client(run, cpu_s, tokens),
            failures: failures(&run.records),
            exact_prompts: tally.exact(),
            short_answers: tally.short,
            answered_share: share(tally.tokens, tally.tokens_asked),
            uncounted_answers: tally.uncounted,
            cached_share: tally.cached_share().or_else(|| server?.cached_share()),
            repeated_prompts: tally.repeated,
            resent: tally.resent,
            cancelled: run.records.iter().filter(|r| !wanted(r)).count() as u64,
            window: judge.window,
            itl_by_position: window::by_position(counting),
            summary,
        };
        report.invalid_because = report.complaints(run, judge);
        for caveat in caveats::of(given, tally, server, report.summary.completed) {
            let list = if caveat.invalidates { &mut report.invalid_because } else { &mut report.warnings };
            list.push(caveat.text);
        }
        report.valid = report.invalid_because.is_empty();
        report
    }

    /// True if a run meets the SLO: every request was answered and every percentile keeps its bound, or, if the SLO
    /// requires a fraction of requests, that fraction keeps all bounds.
    pub(crate) fn meets(&self, slo: &Slo) -> bool {
        let s = &self.summary;
        let kept = match slo.needed(s.completed + s.failed) {
            Some(needed) => s.good.unwrap_or(s.completed) >= needed,
            None => s.failed == 0 && slo.bounds().all(|bound| s.bounded(&bound) <= bound.ms),
        };
        self.valid && kept
    }

    fn complaints(&self, run: &Run, judge: &Judge) -> Vec<String> {
        let mut found = Vec::new();
        if run.interrupted {
            found.push("the run was interrupted".to_owned());
        }
        if self.client.lag_ms_p99 > judge.most_lag_ms {
            found.push(format!(
                "the client lagged: its loop ran {:.1} ms late at the 99th percentile, above {} ms",
                self.client.lag_ms_p99, judge.most_lag_ms
            ));
        }
        let sent = run.records.len() as f64;
        if let Some(users) = self.requested.concurrency.filter(|_| !self.requested.thinks) {
            let wanted = (users as f64).min(sent);
            if self.achieved_concurrency < LEAST_SHARE * wanted {
                found.push(format!(
                    "fell short of the load: {:.1} of {wanted} requests in flight",
                    self.achieved_concurrency
                ));
            }
        }
        if let (Some(wanted), Some(achieved)) = (self.scheduled_rate, self.achieved_rate)
            && achieved < LEAST_SHARE * wanted
        {
            found.push(format!("fell short of the load: {achieved:.2} of {wanted:.2} requests/s sent"));
        }
        if let Some(most) = run.stopped_after {
            found.push(format!("the run was stopped after {most} failures (--max-failures)"));
        }
        if let Some(per_s) = run.oversaturated {
            found.push(format!(
                "the run was stopped: requests in flight grew by {per_s:.2} a second, as more come than are served (--stop-oversaturated)"
            ));
        }
        let failed = self.failures.values().map(|f| f.count).sum::<u64>();
        if failed as f64 > MOST_FAILED * sent {
            found.push(format!("{failed} of {sent} requests failed"));
        }
        if self.summary.completed == 0 {
            found.push("no request of the window completed".to_owned());
        }
        found
    }
}

fn from_schedule(records: &[Record], time: impl Fn(&Record) -> Option<Picoseconds>) -> Statistics {
    let done = records.iter().filter(|r| r.outcome == Outcome::Completed);
    let late = |r: &Record| Some(Picoseconds(time(r)?.0.saturating_sub(r.scheduled.0)).ms());
    Statistics::of(&mut done.filter_map(late).collect::<Vec<_>>())
}

fn client(run: &Run, cpu_s: f64, tokens: u64) -> ClientState {
    let delay = |r: &Record| Picoseconds(r.sent.0.saturating_sub(r.scheduled.0)).ms();
    ClientState {
        lag_ms_mean: run.late.mean,
        lag_ms_p50: run.late.p50,
        lag_ms_p99: run.late.p99,
        lag_ms_max: run.late.max,
        send_delay_ms_p99: Statistics::of(&mut run.records.iter().map(delay).collect::<Vec<_>>()).p99,
        cpu_s,
        cpu_s_per_1k_tokens: if tokens > 0 { cpu_s * 1e3 / tokens as f64 } else { 0.0 },
    }
}

/// True unless the client cancelled the request itself.
fn wanted(record: &&Record) -> bool {
    record.outcome != Outcome::Cancelled
}

fn failures(records: &[Record]) -> BTreeMap<Outcome, Failures> {
    let mut found: BTreeMap<Outcome, Failures> = BTreeMap::new();
    for record in records.iter().filter(wanted).filter(|r| r.outcome != Outcome::Completed) {
        let first = || Failures { count: 0, first: record.error.clone().unwrap_or_default() };
        found.entry(record.outcome).or_insert_with(first).count += 1;
    }
    found
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("valid", &self.valid)?;
        map.serialize_entry("invalid_because", &self.invalid_because)?;
        map.serialize_entry("warnings", &self.warnings)?;
        let summary = serde_json::to_value(&self.summary).map_err(serde::ser::Error::custom)?;
        for (key, value) in summary.as_object().into_iter().flatten() {
            map.serialize_entry(key, value)?;
        }
        for (name, s) in [("ttft", &self.ttft_from_schedule), ("e2el", &self.e2el_from_schedule)] {
            for (figure, of) in FIGURES.into_iter().filter(|(figure, _)| *figure != "std") {
                map.serialize_entry(&format!("{figure}_{name}_from_schedule_ms"), &s.figure(of))?;
            }
        }
        map.serialize_entry("requested_concurrency", &self.requested.concurrency)?;
        map.serialize_entry("achieved_concurrency", &self.achieved_concurrency)?;
        map.serialize_entry("max_concurrent_requests", &self.max_concurrent_requests)?;
        map.serialize_entry("max_output_tokens_per_s", &self.max_output_tokens_per_s)?;
        map.serialize_entry("requested_rate", &self.requested.rate)?;
        map.serialize_entry("scheduled_rate", &self.scheduled_rate)?;
        map.serialize_entry("achieved_rate", &self.achieved_rate)?;
        map.serialize_entry("client", &self.client)?;
        map.serialize_entry("failures", &self.failures)?;
        map.serialize_entry("exact_prompts", &self.exact_prompts)?;
        map.serialize_entry("short_answers", &self.short_answers)?;
        map.serialize_entry("answered_share", &self.answered_share)?;
        map.serialize_entry("uncounted_answers", &self.uncounted_answers)?;
        map.serialize_entry("cached_share", &self.cached_share)?;
        map.serialize_entry("repeated_prompts", &self.repeated_prompts)?;
        map.serialize_entry("resent", &self.resent)?;
        map.serialize_entry("cancelled", &self.cancelled)?;
        map.serialize_entry("window", &self.window)?;
        map.serialize_entry("itl_by_position", &self.itl_by_position)?;
        map.end()
    }
}
