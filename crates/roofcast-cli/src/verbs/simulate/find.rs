//! `roofcast simulate --find KEY=LOW..HIGH`: the largest value of a key that meets the SLO.
//!
//! Knows: each value is judged as a plan judges a deployment, by a run long enough for a verdict. The library chooses
//! the values to try.

use super::classes::unseen;
use super::{about, source};
use crate::args::SimulateArgs;
use crate::input::scenario::Source;
use crate::show::number::significant;
use crate::show::progress::Progress;
use crate::show::table;
use crate::verbs::{About, question};
use crate::{exit, show};
use anyhow::{Context, Result};
use roofcast::memory::Memory;
use roofcast::plan::{Bounded, Range, against, judged_load, missed, step_band};
use roofcast::simulate::{ClassResults, RunOptions, Simulation, simulate_while};
use roofcast::spec::keys::{self, ValueType};
use roofcast::spec::settings::{self, Setting};
use roofcast::spec::{CostKind, Slo, number};
use roofcast::summary::RunSummary;
use roofcast::{Error, Forecaster, Spec};
use serde::Serialize;
use std::collections::BTreeSet;
use std::process::ExitCode;
use toml::Value;

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/simulate-find/1";

/// Name of the number of users as a multiple of the requests that memory holds, which is no key of a spec.
const OVERSUBSCRIPTION: &str = "oversubscription";

/// The key that is searched, and its range.
#[derive(Debug, Clone, PartialEq)]
struct Search {
    path: String,
    /// Name of the key as the user gave it.
    name: String,
    range: Range,
}

/// The largest value of a key that meets the SLO, by bisection.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Found"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    /// Bounds to meet.
    slo: Slo,
    /// The dotted key of the spec.
    key: &'a str,
    /// Lower end of the range.
    low: f64,
    /// Upper end of the range.
    high: f64,
    /// The largest value that meets the SLO.
    best: Option<f64>,
    /// True if the upper end meets the SLO, so that larger values may meet it as well.
    at_least: bool,
    /// The smallest value above `best` that misses the SLO.
    missed: Option<&'a Tried>,
    /// 80 % interval of `best`; absent at the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<Interval>,
    /// Number of simulations.
    simulations: usize,
    /// True if the search was stopped.
    interrupted: bool,
    /// Values in the order in which they were tried.
    points: &'a [Tried],
}

/// 80 % interval of the largest value that meets the SLO: the largest values at the ends of the band of step times.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FoundInterval"))]
struct Interval {
    /// 10th and 90th percentile of measured over forecast step times.
    step_factors: [f64; 2],
    /// The largest value with the slowest steps of the band; `null` if no value meets the SLO.
    low: Option<f64>,
    /// The largest value with the fastest steps of the band; `null` if no value meets the SLO.
    high: Option<f64>,
    /// True if `high` is the upper end of the range, so that larger values may meet the SLO as well.
    at_least: bool,
}

/// A value and its verdict.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FoundPoint"))]
struct Tried {
    /// The value.
    value: f64,
    /// True if the value meets the SLO.
    meets_slo: bool,
    /// Reason why the SLO is missed.
    because: Option<String>,
    /// Each bound with the run's value. If the run ended early because a bound was certain to be missed, the value
    /// covers the requests until then.
    bounds: Vec<Bounded>,
    /// Bounds of classes of requests with the run's values; empty without classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ClassBound>,
}

/// A bound of a class of requests.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ClassBound {
    /// Name of the class.
    name: String,
    /// Number of requests of the class; without any, its bounds are not judged and their values are 0.
    requests: u64,
    #[serde(flatten)]
    bound: Bounded,
}

/// The simulation of a deployment at one value.
struct Run {
    forecaster: Forecaster,
    spec: Spec,
    simulated: roofcast::Result<Simulation>,
}

pub(super) fn run(args: &SimulateArgs, asked: &str) -> Result<ExitCode> {
    let search = Search::parse(asked)?;
    let source = source(args, args.spec.first())?;
    let base = source.scenario(&[])?;
    let slo = base.spec.slo;
    let classes = base.spec.workload.as_ref().map_or(Vec::new(), |workload| workload.classes.clone());
    if !slo.is_bounded() && !classes.iter().any(|class| class.slo.is_bounded()) {
        let accepted = "--ttft-p99, --tpot-p99 or another bound, or [slo] in the spec";
        return Err(Error::field("arguments", "--find", "without an SLO", accepted).into());
    }
    let progress = Progress::open("simulations")?;
    let mut points = Vec::new();
    let mut last = None;
    let largest = search.range.largest(&mut |value| {
        if !progress.goes_on() {
            return Ok(None);
        }
        last = Some(search.at(&source, (value, 1.0), !args.no_leap, &progress));
        let Some(Ok(run)) = &last else { return Ok(None) };
        if run.simulated.as_ref().is_ok_and(|run| run.interrupted) {
            return Ok(None);
        }
        let miss = missed(&run.simulated, &slo);
        let bounds = run.simulated.as_ref().map(|run| against(&run.summary, &slo)).unwrap_or_default();
        let meets_slo = miss.is_none();
        let classes = run.simulated.as_ref().map(by_class).unwrap_or_default();
        points.push(Tried { value, meets_slo, because: miss.map(|miss| miss.reason), bounds, classes });
        progress.more(1);
        Ok(Some(meets_slo))
    })?;
    let Some(run) = last.transpose()? else { return Ok(exit::invalid()) };
    let band = step_band(&run.forecaster).filter(|_| run.spec.engine.cost == CostKind::Forecast);
    let interval = match band {
        Some(band) if progress.goes_on() => search.interval(band, largest.best, &|value, slower| {
            search.keeps(&source, (value, slower), &slo, !args.no_leap, &progress)
        })?,
        _ => None,
    };
    let interrupted = !progress.goes_on();
    drop(progress);
    let about = match &run.simulated {
        Ok(simulated) => about(&run.forecaster.deployment, simulated),
        Err(_) => About::of(&run.forecaster.deployment),
    };
    let missed = points.iter().find(|tried: &&Tried| Some(tried.value) == largest.missed);
    let Range { low, high, .. } = search.range;
    let (best, at_least) = (largest.best, largest.best.is_some() && largest.missed.is_none());
    let key = search.path.as_str();
    let simulations = points.len();
    let points = &points;
    let answer = Answer {
        about,
        slo,
        key,
        low,
        high,
        best,
        at_least,
        missed,
        interval,
        simulations,
        interrupted,
        points,
    };
    if args.output.json {
        show::json(SCHEMA, &answer)?;
    } else {
        show::text(&people(&search, &run.spec, &answer))?;
    }
    Ok(match best {
        _ if interrupted => exit::invalid(),
        Some(_) => ExitCode::SUCCESS,
        None => exit::infeasible(),
    })
}

/// The bounds of all classes with the values of `run`.
fn by_class(run: &Simulation) -> Vec<ClassBound> {
    let bounds_of = |class: &ClassResults| {
        let name = class.name.clone();
        let requests = class.requests;
        let bounds = against(&class.summary, &class.slo).into_iter();
        bounds.map(move |bound| ClassBound { name: name.clone(), requests, bound })
    };
    run.classes.iter().flat_map(bounds_of).collect()
}

impl Search {
    /// Parses `KEY=LOW..HIGH` of a key that has numbers.
    fn parse(text: &str) -> Result<Search> {
        let wrong = || {
            let accepted = "KEY=LOW..HIGH of a key with numbers above 0, LOW below HIGH, as rate=1..100 or \
                            max-num-seqs=8..1024";
            Error::field("arguments", "--find", format!("{text:?}"), accepted)
        };
        let (name, range) = text.split_once('=').ok_or_else(wrong)?;
        let (path, kind) = match name.trim() {
            OVERSUBSCRIPTION => (OVERSUBSCRIPTION.to_owned(), ValueType::Real),
            name => {
                let path = settings::path(name).ok_or_else(wrong)?;
                let kind = keys::at(&path).ok_or_else(wrong)?.kind;
                (path, kind)
            }
        };
        let whole = match kind {
            ValueType::Whole => true,
            ValueType::Real => false,
            _ => return Err(wrong().into()),
        };
        let end = |text: &str| number::real(text).filter(|n| *n > 0.0 && (!whole || n.fract() == 0.0));
        let (low, high) = range.split_once("..").ok_or_else(wrong)?;
        let low = end(low).ok_or_else(wrong)?;
        let high = end(high).ok_or_else(wrong)?;
        if low >= high {
            return Err(wrong().into());
        }
        Ok(Search { path, name: name.trim().to_owned(), range: Range { low, high, whole } })
    }

    /// The key with `value`; an over-subscription is the number of users, as a multiple of the requests of mean full length
    /// that memory holds.
    fn setting(&self, source: &Source, value: f64) -> Result<Setting> {
        if self.path != OVERSUBSCRIPTION {
            return Ok(Setting::new(&self.path, self.value(value)));
        }
        let scenario = source.scenario(&[])?;
        let deployment = scenario.deployment()?;
        let tokens = scenario.spec.workload.as_ref().map_or(1.0, |w| w.input_mean() + w.output_mean());
        let fitting = Memory::of(&deployment).sequences(tokens as u64) * deployment.parallelism.replicas;
        let users = (value * fitting as f64).round().max(1.0);
        Ok(Setting::new("workload.arrivals.concurrency", Value::from(users as i64)))
    }

    fn value(&self, value: f64) -> Value {
        if self.range.whole { Value::from(value as i64) } else { Value::from(value) }
    }

    /// The 80 % interval of `best`, by the ends of `band`; `keeps` judges a value with step times of a factor on the
    /// forecast's. `None` if the search was stopped.
    fn interval(
        &self,
        band: [f64; 2],
        best: Option<f64>,
        keeps: &dyn Fn(f64, f64) -> Option<bool>,
    ) -> Result<Option<Interval>> {
        let mut stopped = false;
        let mut largest = |range: Range, slower: f64| {
            range.largest(&mut |value| {
                let keeps_slo = keeps(value, slower);
                stopped |= keeps_slo.is_none();
                Ok(keeps_slo)
            })
        };
        let [fast, slow] = band;
        let Range { low, high, whole } = self.range;
        // Slower steps do not raise the largest value, and faster ones do not lower it.
        let low_end = best.map(|best| largest(Range { low, high: best, whole }, slow)).transpose()?;
        let high_end = largest(Range { low: best.unwrap_or(low), high, whole }, fast)?;
        let low = low_end.and_then(|found| found.best);
        let high = high_end.best;
        let at_least = high.is_some() && high_end.missed.is_none();
        Ok((!stopped).then_some(Interval { step_factors: band, low, high, at_least }))
    }

    /// True if the deployment meets `slo` with `value` and step times of a factor on the forecast's; `None` if the
    /// search was stopped. A value that cannot be resolved does not meet it.
    fn keeps(
        &self,
        source: &Source,
        at: (f64, f64),
        slo: &Slo,
        leap: bool,
        progress: &Progress,
    ) -> Option<bool> {
        let met = self.at(source, at, leap, progress).is_ok_and(|run| missed(&run.simulated, slo).is_none());
        progress.more(1);
        progress.goes_on().then_some(met)
    }

    /// Simulates the deployment with `value` and step times of `slower` times the forecast; the run ends early when the
    /// SLO is certain to be missed.
    fn at(
        &self,
        source: &Source,
        (value, slower): (f64, f64),
        leap: bool,
        progress: &Progress,
    ) -> Result<Run> {
        let resolved = || -> Result<Run> {
            let scenario = source.scenario(&[self.setting(source, value)?])?;
            let workload = scenario.spec.workload.as_ref();
            let forecaster = Forecaster::serving(scenario.deployment()?)?.under(workload)?.slowed(slower);
            let mut spec = scenario.spec.clone();
            spec.workload = Some(judged_load(&spec, &scenario.place)?);
            let options = RunOptions { leap, end_when_missed: true, ..RunOptions::default() };
            let watch = &mut |_, _| progress.goes_on();
            let simulated = simulate_while(&forecaster, &spec, &scenario.place, options, watch);
            Ok(Run { forecaster, spec, simulated })
        };
        resolved().with_context(|| format!("with {} = {}", self.path, self.value(value)))
    }

    /// The largest value that meets the SLO, in words.
    fn best(&self) -> String {
        match self.path.as_str() {
            "workload.arrivals.rate" => "The highest rate that keeps the SLO".to_owned(),
            "workload.arrivals.concurrency" => "The most users that keep the SLO".to_owned(),
            OVERSUBSCRIPTION => {
                "The highest over-subscription (users over the requests of mean length that memory holds) that keeps the SLO"
                    .to_owned()
            }
            _ => format!("The largest {} that keeps the SLO", self.name),
        }
    }

    fn shown(&self, value: f64) -> String {
        if self.range.whole { format!("{value}") } else { significant(value) }
    }
}

fn people(search: &Search, spec: &Spec, answer: &Answer) -> String {
    let mut text = answer.about.title();
    let lengths = spec.workload.as_ref().map(|workload| {
        ("lengths", [vec![question::lengths(workload)], question::features(workload)].concat().join("; "))
    });
    let users = spec.workload.as_ref().and_then(question::users).map(|users| ("users", users));
    let slo = [("SLO", question::slo(&spec.slo))];
    text += &table::pairs(&lengths.into_iter().chain(users).chain(slo).collect::<Vec<_>>());
    if answer.interrupted {
        text += &format!("PARTIAL: interrupted after {} simulations\n\n", answer.simulations);
    }
    let name = |bound: &Bounded| format!("{} {}", bound.metric, bound.percentile);
    let mut names: Vec<String> = against(&RunSummary::default(), &spec.slo).iter().map(name).collect();
    for class in spec.workload.iter().flat_map(|workload| &workload.classes) {
        let bounds = against(&RunSummary::default(), &class.slo);
        names.extend(bounds.iter().map(|bound| format!("{} {}", class.name, name(bound))));
    }
    let mut header = vec![search.name.as_str(), "SLO"];
    header.extend(names.iter().map(String::as_str));
    let row = |tried: &Tried| {
        let mut row =
            vec![search.shown(tried.value), if tried.meets_slo { "met" } else { "missed" }.to_owned()];
        row.extend(tried.bounds.iter().map(|bound| significant(bound.ms)));
        let value = |class: &ClassBound| {
            if class.requests > 0 { significant(class.bound.ms) } else { "–".to_owned() }
        };
        row.extend(tried.classes.iter().map(value));
        row.resize(header.len(), "–".to_owned());
        row
    };
    text += &table::table(&header, &answer.points.iter().map(row).collect::<Vec<_>>(), 2);
    let classes = answer.points.iter().flat_map(|tried| &tried.classes);
    let names: BTreeSet<&str> =
        classes.filter(|class| class.requests == 0).map(|class| class.name.as_str()).collect();
    text.extend(names.into_iter().map(unseen));
    text += &table::line(&sentence(search, answer));
    if let Some(interval) = &answer.interval {
        text += &table::line(&spread(search, interval));
    }
    text
}

/// The 80 % interval in words.
fn spread(search: &Search, interval: &Interval) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| search.shown(value));
    let beyond = if interval.at_least { " or more" } else { "" };
    let [fast, slow] = interval.step_factors;
    format!(
        "80 % interval: {} to {}{beyond}, with step times of x{slow:.2} to x{fast:.2} of the forecast",
        shown(interval.low),
        shown(interval.high)
    )
}

fn sentence(search: &Search, answer: &Answer) -> String {
    let unit = if search.path == "workload.arrivals.rate" { " requests/s" } else { "" };
    let count = answer.simulations;
    let because = |tried: &Tried| {
        let why = tried.because.as_deref().unwrap_or("the SLO");
        format!("{}{unit} misses it: {why}", search.shown(tried.value))
    };
    match (answer.best, answer.missed) {
        (Some(best), Some(missed)) => format!(
            "{}: {}{unit}; {} ({count} simulations)",
            search.best(),
            search.shown(best),
            because(missed)
        ),
        (Some(best), None) => format!(
            "{}: at least {}{unit}, the upper end of the range ({count} simulations)",
            search.best(),
            search.shown(best)
        ),
        (None, Some(missed)) => format!(
            "No {} that was tried keeps the SLO; {} ({count} simulations)",
            search.name,
            because(missed)
        ),
        (None, None) => "Nothing was simulated.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_numbers_have_ranges() {
        let parsed = Search::parse("users=1..1e3").unwrap();
        assert_eq!(parsed.path, "workload.arrivals.concurrency");
        assert_eq!(parsed.range, Range { low: 1.0, high: 1000.0, whole: true });
        assert!(!Search::parse("rate=0.5..9").unwrap().range.whole);
        assert_eq!(Search::parse("max-num-batched-tokens=1k..8k").unwrap().range.high, 8000.0);
        for wrong in
            ["rate", "rate=1", "rate=0..4", "rate=4..4", "users=1.5..4", "weights=1..2", "depth=1..2"]
        {
            let message = Search::parse(wrong).unwrap_err().to_string();
            assert!(message.contains("--find") && message.contains("KEY=LOW..HIGH"), "{wrong}: {message}");
        }
    }
}
