//! Aggregates of a run: vLLM's keys, the achieved load, the client's own state, and the verdict on the run.
//!
//! Knows: records and samples; when a run is invalid. Pure. The verb formats the result.

use super::caveats::{self, Given};
use super::classes::{self, ClassReport};
use super::load::Run;
use super::network;
use super::scrape::ServerMetrics;
use super::slices::{self, Slice};
use super::tally::share;
use super::window::{self, Position, Window};
use roofcast::record::{Outcome, Record};
use roofcast::spec::Slo;
use roofcast::summary::{FIGURES, RunSummary, Statistics};
use roofcast::units::Picoseconds;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;

/// Least fraction of the requested load that a valid run offers.
const LEAST_SHARE: f64 = 0.95;

/// Largest fraction of failures in a valid run.
const MOST_FAILED: f64 = 0.01;

/// The load that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Requested {
    /// Users of a closed loop, each with one request in flight.
    #[serde(rename = "requested_concurrency")]
    pub(crate) concurrency: Option<u64>,
    /// Requests per second of an open loop.
    #[serde(rename = "requested_rate")]
    pub(crate) rate: Option<f64>,
    /// True if users pause between requests, so that fewer requests are in flight than there are users.
    #[serde(skip)]
    pub(crate) thinks: bool,
}

/// Criteria for judging a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judge {
    pub(crate) slo: Slo,
    pub(crate) window: Window,
    /// Largest 99th percentile of the client's lag in a valid run, in milliseconds.
    pub(crate) most_lag_ms: f64,
    /// Latency of the network, which is taken off TTFT and end-to-end latencies.
    pub(crate) network: Option<Picoseconds>,
    /// Length in seconds of the intervals by which a run is reported.
    pub(crate) slice_s: Option<f64>,
}

/// State of the client itself, which shows if the client distorted the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct ClientState {
    /// Mean lag of the client's loop in milliseconds.
    pub(crate) lag_ms_mean: f64,
    /// Median lag in milliseconds.
    pub(crate) lag_ms_p50: f64,
    /// 99th percentile of the lag in milliseconds.
    pub(crate) lag_ms_p99: f64,
    /// Largest lag in milliseconds.
    pub(crate) lag_ms_max: f64,
    /// Delay from a request's due time to its sending, 99th percentile in milliseconds.
    pub(crate) send_delay_ms_p99: f64,
    /// Processor time of the client in seconds.
    pub(crate) cpu_s: f64,
    /// Processor seconds of the client per 1,000 tokens.
    pub(crate) cpu_s_per_1k_tokens: f64,
}

/// Results of a run and the verdict on its validity.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// True if the run is valid.
    pub(crate) valid: bool,
    /// True if the user ended the run.
    #[serde(skip)]
    pub(crate) interrupted: bool,
    /// Reasons why the run is invalid, one sentence each.
    pub(crate) invalid_because: Vec<String>,
    /// Caveats that do not invalidate the run, one sentence each.
    pub(crate) warnings: Vec<String>,
    #[serde(flatten)]
    pub(crate) summary: RunSummary,
    #[serde(flatten, serialize_with = "keys::ttft")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "keys::ttft_schema"))]
    pub(crate) ttft_from_schedule: Statistics,
    #[serde(flatten, serialize_with = "keys::e2el")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "keys::e2el_schema"))]
    pub(crate) e2el_from_schedule: Statistics,
    #[serde(flatten)]
    pub(crate) requested: Requested,
    /// Mean number of requests in flight, from sending to the end of the answer, while all users were active.
    pub(crate) achieved_concurrency: f64,
    /// Largest number of requests in flight.
    pub(crate) max_concurrent_requests: u64,
    /// Largest number of chunks with tokens that were read in one second.
    pub(crate) max_output_tokens_per_s: u64,
    /// Rate of the schedule as drawn, in requests per second; `None` if the server sets the pace.
    pub(crate) scheduled_rate: Option<f64>,
    /// Requests per second that were sent.
    pub(crate) achieved_rate: Option<f64>,
    /// State of the load generator itself.
    pub(crate) client: ClientState,
    /// Failures by kind, and the first message of each.
    pub(crate) failures: BTreeMap<Outcome, Failures>,
    /// Results of each class of requests, judged by its own SLO; absent without classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) classes: Vec<ClassReport>,
    /// Fraction of the counted prompts that had exactly the requested tokens; `None` if the server counts none.
    pub(crate) exact_prompts: Option<f64>,
    /// Number of completed answers with fewer tokens than requested.
    pub(crate) short_answers: u64,
    /// Fraction of the requested tokens that arrived.
    pub(crate) answered_share: Option<f64>,
    /// Number of completed answers whose tokens the server did not count.
    pub(crate) uncounted_answers: u64,
    /// Fraction of prompt tokens that the server took from a prefix cache, if it reports them.
    pub(crate) cached_share: Option<f64>,
    /// Number of prompts that had been sent before.
    pub(crate) repeated_prompts: u64,
    /// Number of requests that were sent twice, because a kept connection ended before their answer.
    pub(crate) resent: u64,
    /// Number of tries that the server refused and that were repeated by `--retry-after`.
    pub(crate) retried: u64,
    /// Number of requests that the client cancelled by `--cancel-share`.
    pub(crate) cancelled: u64,
    /// Requests at either end that are not counted.
    pub(crate) window: Window,
    /// Mean gap between chunks along the answers.
    pub(crate) itl_by_position: Vec<Position>,
    /// Latency of the network in milliseconds that is taken off TTFT and end-to-end latencies; absent without
    /// `--network-latency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_latency_ms: Option<f64>,
    /// The run by intervals of `--slice-duration`; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slices: Option<Vec<Slice>>,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Failures {
    /// Number of failures.
    pub(crate) count: u64,
    /// Message of the first one.
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
        let network = judge.network.unwrap_or_default();
        let counting = judge.window.of(&run.records).iter().filter(wanted);
        let counting: Vec<Record> = counting.map(|record| network::without(record, network)).collect();
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
            achieved_concurrency: window::concurrency(
                &run.flown,
                requested.concurrency.unwrap_or(1),
                judge.window.warmup_s,
            ),
            max_concurrent_requests: window::peak_concurrency(&run.flown),
            max_output_tokens_per_s: window::peak_tokens_per_s(&run.records),
            scheduled_rate: requested.rate.and_then(|_| window::rate(&run.records, |r| r.scheduled)),
            achieved_rate: window::rate(&run.records, |r| r.sent),
            client: client(run, cpu_s, tokens),
            failures: failures(&run.records),
            classes: classes::reports(&given.classes, counting, &run.class_of),
            exact_prompts: tally.exact(),
            short_answers: tally.short,
            answered_share: share(tally.tokens, tally.tokens_asked),
            uncounted_answers: tally.uncounted,
            cached_share: tally.cached_share().or_else(|| server?.cached_share()),
            repeated_prompts: tally.repeated,
            resent: tally.resent,
            retried: tally.retried,
            cancelled: run.records.iter().filter(|r| !wanted(r)).count() as u64,
            window: judge.window,
            itl_by_position: window::by_position(counting),
            network_latency_ms: judge.network.map(Picoseconds::ms),
            slices: judge.slice_s.map(|length_s| slices::slices(counting, length_s)),
            summary,
        };
        report.invalid_because = report.complaints(run, judge);
        for caveat in caveats::of(given, tally, server, report.summary.completed) {
            let list = if caveat.invalidates { &mut report.invalid_because } else { &mut report.warnings };
            list.push(caveat.text);
        }
        report.warnings.extend(report.classes.iter().filter_map(ClassReport::unseen));
        report.warnings.extend(slices::remarks(counting));
        if tally.retried > 0 {
            report.warnings.push(format!(
                "{} tries were refused and repeated after the time in Retry-After; times count from the first try",
                tally.retried
            ));
        }
        report.valid = report.invalid_because.is_empty();
        report
    }

    /// True if a run meets the SLO, and each class its own: every request was answered and every percentile keeps its bound, or, if the SLO
    /// requires a fraction of requests, that fraction keeps all bounds.
    pub(crate) fn meets(&self, slo: &Slo) -> bool {
        let s = &self.summary;
        let meets_slo = match slo.needed(s.completed + s.failed) {
            Some(needed) => s.good.unwrap_or(s.completed) >= needed,
            None => s.failed == 0 && slo.bounds().all(|bound| s.bounded(&bound) <= bound.ms),
        };
        self.valid && meets_slo && self.classes.iter().all(ClassReport::meets)
    }

    fn complaints(&self, run: &Run, judge: &Judge) -> Vec<String> {
        let mut complaints = Vec::new();
        if run.interrupted {
            complaints.push("the run was interrupted".to_owned());
        }
        if self.client.lag_ms_p99 > judge.most_lag_ms {
            complaints.push(format!(
                "the client lagged: its loop ran {:.1} ms late at the 99th percentile, above {} ms",
                self.client.lag_ms_p99, judge.most_lag_ms
            ));
        }
        let sent = run.records.len() as f64;
        if let Some(users) = self.requested.concurrency.filter(|_| !self.requested.thinks) {
            let wanted = (users as f64).min(sent);
            if self.achieved_concurrency < LEAST_SHARE * wanted {
                complaints.push(format!(
                    "fell short of the load: {:.1} of {wanted} requests in flight",
                    self.achieved_concurrency
                ));
            }
        }
        if let (Some(wanted), Some(achieved)) = (self.scheduled_rate, self.achieved_rate)
            && achieved < LEAST_SHARE * wanted
        {
            complaints.push(format!("fell short of the load: {achieved:.2} of {wanted:.2} requests/s sent"));
        }
        if let Some(most) = run.stopped_after {
            complaints.push(format!("the run was stopped after {most} failures (--max-failures)"));
        }
        if let Some(per_s) = run.oversaturated {
            complaints.push(format!(
                "the run was stopped: requests in flight grew by {per_s:.2} a second, as more come than are served (--stop-oversaturated)"
            ));
        }
        let failed = self.failures.values().map(|f| f.count).sum::<u64>();
        if failed as f64 > MOST_FAILED * sent {
            complaints.push(format!("{failed} of {sent} requests failed"));
        }
        if self.summary.completed == 0 {
            complaints.push("no request of the window completed".to_owned());
        }
        complaints
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
    let mut failures: BTreeMap<Outcome, Failures> = BTreeMap::new();
    for record in records.iter().filter(wanted).filter(|r| r.outcome != Outcome::Completed) {
        let first = || Failures { count: 0, first: record.error.clone().unwrap_or_default() };
        failures.entry(record.outcome).or_insert_with(first).count += 1;
    }
    failures
}

/// Serialization of statistics as the keys of a document, one for each figure except the standard deviation.
mod keys {
    use super::{FIGURES, SerializeMap, Serializer, Statistics};

    fn written<S: Serializer>(s: &Statistics, name: &str, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (figure, of) in FIGURES.into_iter().filter(|(figure, _)| *figure != "std") {
            map.serialize_entry(&format!("{figure}_{name}_from_schedule_ms"), &s.figure(of))?;
        }
        map.end()
    }

    pub(super) fn ttft<S: Serializer>(s: &Statistics, to: S) -> Result<S::Ok, S::Error> {
        written(s, "ttft", to)
    }

    pub(super) fn e2el<S: Serializer>(s: &Statistics, to: S) -> Result<S::Ok, S::Error> {
        written(s, "e2el", to)
    }

    #[cfg(feature = "schema")]
    fn described(suffix: &str, about: &str) -> schemars::Schema {
        let names: Vec<&str> = FIGURES.iter().map(|(figure, _)| *figure).filter(|f| *f != "std").collect();
        roofcast::schema::figures(&names, suffix, about)
    }

    #[cfg(feature = "schema")]
    pub(super) fn ttft_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        described("ttft_from_schedule_ms", "time from a request's due time to its first token")
    }

    #[cfg(feature = "schema")]
    pub(super) fn e2el_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        described("e2el_from_schedule_ms", "time from a request's due time to the end of its answer")
    }
}
