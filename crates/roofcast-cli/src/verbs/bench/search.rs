//! `roofcast bench --find-rate LOW..HIGH` and `--find-users LOW..HIGH`: the highest load that meets the SLO.
//!
//! Knows: latency grows with the load, so that the range can be bisected, by ratio. Knows nothing about a single run.

use super::setup::Setup;
use super::sweep::Key;
use super::{Point, Subject, picture, table};
use crate::args::BenchArgs;
use crate::show::target::Target;
use crate::{exit, show};
use anyhow::Result;
use roofcast::Error;
use roofcast::spec::Slo;
use roofcast::workload::Workload;
use serde::Serialize;
use std::process::ExitCode;

/// Ratio of the bounds at which the search ends.
const CLOSE: f64 = 1.05;

/// The key that is searched, and its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Search {
    pub(super) key: Key,
    pub(super) low: f64,
    high: f64,
}

/// The highest load that meets the SLO, by search.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchSearch"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    /// Bounds to meet.
    slo: Slo,
    /// Result of a search for a rate, in requests per second.
    best_rate: Option<f64>,
    /// Result of a search for a number of users.
    best_users: Option<u64>,
    /// True if the SLO is met at the upper end, so that a higher load may meet it as well.
    at_least: bool,
    /// Run at each load, in the order of the search.
    points: Vec<Tried>,
}

/// A run at one load of a search.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchSearchPoint"))]
struct Tried {
    /// The load: users, or requests per second.
    value: f64,
    /// True if the run meets the SLO.
    meets_slo: bool,
    #[serde(flatten)]
    point: Point,
}

impl Search {
    /// The search that the arguments ask for, if any.
    pub(super) fn asked(args: &BenchArgs) -> Result<Option<Search>> {
        let accepted = "LOW..HIGH in requests per second above 0, LOW below HIGH, as 1..100";
        if let Some(text) = &args.find_rate {
            return Search::parse("--find-rate", Key::Rate, text, accepted).map(Some);
        }
        let accepted = "LOW..HIGH in whole users, LOW below HIGH, as 1..256";
        let text = args.find_users.as_ref();
        text.map(|text| Search::parse("--find-users", Key::Concurrency, text, accepted)).transpose()
    }

    /// Parses a range, as in `1..100`.
    fn parse(flag: &str, key: Key, text: &str, accepted: &str) -> Result<Search> {
        let fits = |v: &f64| match key {
            Key::Concurrency => v.fract() == 0.0 && (1.0..=1e6).contains(v),
            _ => (1e-6..=1e9).contains(v),
        };
        let end = |t: &str| t.trim().parse::<f64>().ok().filter(fits);
        let range = text.split_once("..").and_then(|(low, high)| Some((end(low)?, end(high)?)));
        let range = range.filter(|(low, high)| low < high);
        let (low, high) =
            range.ok_or_else(|| Error::field("arguments", flag, format!("{text:?}"), accepted))?;
        Ok(Search { key, low, high })
    }

    /// The next load to try: between `good`, which meets the SLO, and `bad`, which misses it; `None` if they are close.
    fn between(&self, good: f64, bad: f64) -> Option<f64> {
        let middle = (good * bad).sqrt();
        match self.key {
            Key::Concurrency => Some(middle.round().clamp(good + 1.0, bad)).filter(|users| *users < bad),
            _ => Some(middle),
        }
        .filter(|_| bad / good > CLOSE)
    }
}

/// The result of a search.
struct Found {
    best: Option<f64>,
    at_least: bool,
    points: Vec<Tried>,
    interrupted: bool,
}

/// Refuses a search without an SLO.
pub(super) fn check(args: &BenchArgs, slo: &Slo, workload: &Workload) -> Result<(), Error> {
    let searches = [("--find-rate", &args.find_rate), ("--find-users", &args.find_users)];
    let unbound = *slo == Slo::default() && workload.classes.iter().all(|class| class.slo == *slo);
    match searches.iter().find(|(_, range)| range.is_some()) {
        Some((flag, _)) if unbound => {
            let accepted = "--slo-ttft, --slo-tpot or --slo-e2el, or [slo] in the spec";
            Err(Error::field("arguments", flag, "without an SLO", accepted))
        }
        _ => Ok(()),
    }
}

pub(super) fn run(
    args: &BenchArgs,
    setup: &mut Setup,
    search: Search,
    file: Option<&Target>,
) -> Result<ExitCode> {
    let slo = setup.judge.slo;
    let result = find(setup, &search, &slo)?;
    if let Some(file) = file {
        let shown: Vec<_> = result.points.iter().map(|p| (p.value, &p.point)).collect();
        file.text(&picture::of_sweep(setup, search.key.name(), &shown))?;
    }
    finish(args, setup, &search, slo, result)
}

/// Bisects the range, by ratio, until its ends are close. No bisection is needed if the upper end meets the SLO.
fn find(setup: &mut Setup, search: &Search, slo: &Slo) -> Result<Found> {
    let mut result = Found { best: None, at_least: false, points: Vec::new(), interrupted: false };
    let mut keeps = |value: f64, result: &mut Found| -> Result<bool> {
        if result.interrupted {
            return Ok(false);
        }
        let workload = setup.at(search.key.at(value))?;
        let (point, _) = setup.measure(&workload)?;
        result.interrupted = point.report.interrupted;
        let meets_slo = point.report.meets(slo);
        result.points.push(Tried { value, meets_slo, point });
        if meets_slo {
            result.best = Some(value);
        }
        Ok(meets_slo)
    };
    if !keeps(search.low, &mut result)? {
        return Ok(result);
    }
    if keeps(search.high, &mut result)? {
        result.at_least = true;
        return Ok(result);
    }
    let mut good = search.low;
    let mut bad = search.high;
    while let Some(middle) = search.between(good, bad) {
        *(if keeps(middle, &mut result)? { &mut good } else { &mut bad }) = middle;
    }
    Ok(result)
}

fn finish(args: &BenchArgs, setup: &Setup, search: &Search, slo: Slo, found: Found) -> Result<ExitCode> {
    let Found { best, at_least, points, interrupted } = found;
    let users = search.key == Key::Concurrency;
    if args.output.json {
        let best_rate = best.filter(|_| !users);
        let best_users = best.filter(|_| users).map(|n| n as u64);
        let answer = Answer { subject: setup.subject(), slo, best_rate, best_users, at_least, points };
        show::json("roofcast/bench-search/2", &answer)?;
    } else {
        let rows: Vec<_> = points.iter().map(|p| (p.value, &p.point)).collect();
        table::show(args, &setup.subject(), search.key.name(), &rows)?;
        if !args.output.csv {
            show::text(&said(best, users, at_least))?;
        }
    }
    Ok(match best {
        _ if interrupted => exit::invalid(),
        Some(_) => ExitCode::SUCCESS,
        None => exit::infeasible(),
    })
}

/// The result in a sentence.
fn said(best: Option<f64>, users: bool, at_least: bool) -> String {
    let bound = if at_least { "at least " } else { "" };
    let open = if at_least { ", the upper end of the range" } else { "" };
    match (best, users) {
        (Some(users), true) => format!("The most users that keep the SLO: {bound}{users}{open}\n"),
        (Some(rate), false) => {
            format!("The highest rate that keeps the SLO: {bound}{rate:.3} requests/s{open}\n")
        }
        (None, true) => "Not even the fewest users keep the SLO.\n".to_owned(),
        (None, false) => "Not even the lowest rate keeps the SLO.\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_between_what_is_known() {
        let users = Search { key: Key::Concurrency, low: 1.0, high: 64.0 };
        // √(1·64) = 8; √(8·64) = 22.6 rounds to 23; neighbouring integers have no value between them.
        assert_eq!([(1.0, 64.0), (8.0, 64.0)].map(|(g, b)| users.between(g, b)), [Some(8.0), Some(23.0)]);
        assert_eq!((users.between(1.0, 2.0), users.between(1.0, 3.0)), (None, Some(2.0)));
        // 104/100 is within 5 %.
        assert_eq!(users.between(100.0, 104.0), None);
        let rate = Search { key: Key::Rate, low: 1.0, high: 100.0 };
        assert_eq!((rate.between(1.0, 100.0), rate.between(10.0, 10.4)), (Some(10.0), None));
    }

    #[test]
    fn ranges() {
        let range_of = |key, text| Search::parse("--find", key, text, "x").map(|s| (s.low, s.high)).ok();
        assert_eq!(
            (range_of(Key::Rate, "0.5..9"), range_of(Key::Concurrency, "1..256")),
            (Some((0.5, 9.0)), Some((1.0, 256.0)))
        );
        assert_eq!(
            (
                range_of(Key::Concurrency, "0..4"),
                range_of(Key::Concurrency, "1.5..4"),
                range_of(Key::Rate, "9..1")
            ),
            (None, None, None)
        );
    }
}
