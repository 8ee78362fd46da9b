//! Summary of MLPerf's LoadGen, `mlperf_log_summary.txt`.
//!
//! Knows: the lines of `loadgen/results.cc` (5.1): times in ns, `Time to Output Token` as the mean over samples of the
//! time after the first token divided by the further tokens, percentiles by rank. The summary states neither model nor
//! prompt lengths.

use super::super::benchmark::ClientLoad;
use super::super::{Lengths, MeasurementKind, Metrics};
use super::client_run::ClientRun;
use roofcast_facts::error::{Error, Result};
use std::collections::BTreeMap;

pub(super) fn wrote(text: &str) -> bool {
    text.contains("MLPerf Results Summary")
}

/// Lines `name : value`; names are compared without the padding before the colon.
struct Summary<'a> {
    place: &'a str,
    lines: BTreeMap<&'a str, &'a str>,
}

impl Summary<'_> {
    fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(text) = self.lines.get(name) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        number.map(Some).ok_or_else(|| Error::field(self.place, name, text, "a number from 0"))
    }

    fn ms(&self, name: &str) -> Result<Option<f64>> {
        Ok(self.number(name)?.filter(|ns| *ns > 0.0).map(|ns| ns / 1e6))
    }

    fn refuse<T>(&self, name: &str, accepted: &str) -> Result<T> {
        let given = self.lines.get(name).copied().unwrap_or("missing");
        Err(Error::field(self.place, name, given, accepted))
    }
}

pub(super) fn read(place: &str, text: &str) -> Result<ClientRun> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let summary = Summary { place, lines: pairs.map(|(name, value)| (name.trim(), value.trim())).collect() };
    let is = |name: &str, value: &str| summary.lines.get(name).is_some_and(|found| *found == value);
    if !is("Result is", "VALID") {
        return summary.refuse("Result is", "VALID");
    }
    if summary.lines.get("Mode").is_some_and(|mode| !mode.starts_with("Performance")) {
        return summary.refuse("Mode", "PerformanceOnly");
    }
    let samples = summary.number("Completed samples per second")?.or(summary.number("Samples per second")?);
    let tokens = summary.number("Completed tokens per second")?.or(summary.number("Tokens per second")?);
    let mut run = match summary.lines.get("Scenario").copied().unwrap_or_default() {
        "Server" => {
            let scheduled = summary.number("Scheduled samples per second")?.or(summary.number("target_qps")?);
            let Some(rate) = scheduled.filter(|rate| *rate > 0.0) else {
                return summary.refuse("Scheduled samples per second", "a rate above 0");
            };
            ClientRun::under(ClientLoad::Rate(rate, None))
        }
        "SingleStream" => ClientRun::under(ClientLoad::Users(1)),
        "Offline" => {
            let mut run = ClientRun::under(ClientLoad::AtOnce(1));
            run.kind = MeasurementKind::OfflineMaxThroughput;
            run.concurrency = None;
            run
        }
        _ => return summary.refuse("Scenario", "Server, Offline or SingleStream"),
    };
    let mean =
        samples.zip(tokens).filter(|(samples, _)| *samples > 0.0).map(|(samples, tokens)| tokens / samples);
    run.output = mean.map(|tokens| {
        let tokens = tokens.round().max(1.0) as u64;
        Lengths { min: tokens, max: tokens }
    });
    let offline = run.kind == MeasurementKind::OfflineMaxThroughput;
    run.measured = Metrics {
        ttft_ms: summary.ms("Mean First Token latency (ns)")?,
        tpot_ms: summary.ms("Mean Time to Output Token (ns)")?,
        // Offline, a sample's latency counts from the start of the whole run.
        e2e_ms: if offline { None } else { summary.ms("Mean latency (ns)")? },
        output_tok_s: tokens.filter(|_| offline),
        ..Metrics::default()
    };
    Ok(run)
}
