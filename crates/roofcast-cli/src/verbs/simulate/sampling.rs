//! The text about the sampling error of a simulation.
//!
//! Knows: the errors that are worth a line. Knows nothing about errors of step times.

use crate::show::number::{grouped, percent, significant};
use crate::show::table;
use roofcast::simulate::Simulation;

/// Share from which a sampling error is said.
const SAID: f64 = 0.01;

/// Sampling errors of the means, the number of requests that a 99th percentile needs, and the metrics that have not settled; empty
/// if no error is worth a line.
pub(super) fn people(s: &Simulation) -> String {
    let errors = &s.sampling;
    let all = [("TTFT", errors.ttft), ("TPOT", errors.tpot), ("E2EL", errors.e2el)];
    let all = || all.iter().filter_map(|(name, error)| Some((*name, (*error)?)));
    let means: Vec<String> = all()
        .filter(|(_, e)| e.mean >= SAID)
        .map(|(name, e)| format!("{name} {}", percent(e.mean)))
        .collect();
    let mut parts = Vec::new();
    if !means.is_empty() {
        parts.push(format!("means of runs of so many requests differ by {} in 8 of 10", means.join(", ")));
    }
    let tails = all().filter_map(|(name, e)| Some((name, e.tail(significant), e.requests_for_p99?)));
    if let Some((name, tail, requests)) = tails.max_by_key(|(_, _, requests)| *requests) {
        let requests = rounded(requests);
        parts.push(format!(
            "too short for its p99: that of {name} is {tail}; about {} requests give it within 10 %",
            grouped(requests)
        ));
    }
    if !errors.unsettled.is_empty() {
        parts.push(unsettled(s));
    }
    if parts.is_empty() { String::new() } else { table::line(&format!("sampling: {}", parts.join("; "))) }
}

/// Why metrics have no sampling error, and what gives one.
fn unsettled(s: &Simulation) -> String {
    if s.load.overloaded {
        return "the run has not settled: the longer it lasts the longer requests wait, so that more of them tell no more; a lower \
                rate settles"
            .to_owned();
    }
    if let Some(scaling) = s.fleet.autoscale.filter(|scaling| scaling.started > 0) {
        return format!(
            "the run has not settled: {} replicas started within it; its figures are those of this course of the load, not of a \
             longer run",
            grouped(scaling.started)
        );
    }
    let names = s.sampling.unsettled.join(", ").to_uppercase();
    let advice = match s.first_wave {
        Some(_) => "more requests, or `--ramp-s` for the first wave, tell what lasts",
        None => "a longer run or a lower rate tells what lasts",
    };
    format!("not settled: {names}, which change over the run by more than chance; {advice}")
}

/// `count` with two digits, rounded up.
fn rounded(count: u64) -> u64 {
    let unit = 10_u64.pow(count.max(1).ilog10().saturating_sub(1));
    count.div_ceil(unit) * unit
}
