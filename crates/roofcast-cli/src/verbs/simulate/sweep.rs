//! `roofcast simulate --sweep KEY=VALUES`, several keys or several specs: one run a combination, several at a time.

mod picture;

use super::{Answer, about, sources};
use crate::args::SimulateArgs;
use crate::exit;
use crate::input::scenario::Source;
use crate::input::values::{refused, settings as values_of};
use crate::show::number::{grouped, percent, significant};
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::show::{self, table};
use crate::verbs::band_factors;
use anyhow::{Context, Result};
use rayon::prelude::*;
use roofcast::report;
use roofcast::simulate::{Options, Simulation, simulate_while};
use roofcast::spec::Slo;
use roofcast::spec::settings::{self, Setting};
use roofcast::{Deployment, Error, Forecaster};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use toml::Value;

/// The dimension of spec files.
const SPEC: &str = "spec";

/// The most runs of a sweep.
const MOST_POINTS: usize = 100_000;

#[derive(Serialize)]
struct Sweep<'a> {
    sweep: Vec<&'a str>,
    /// Whether values are missing, as Ctrl-C came before their runs had ended.
    interrupted: bool,
    points: Vec<Point<'a>>,
}

#[derive(Serialize)]
struct Point<'a> {
    values: &'a [Value],
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// A key and the values that it takes in turn.
struct Dimension {
    path: String,
    values: Vec<Value>,
}

impl Dimension {
    /// The last part of the key, which tells it from the others.
    fn short(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

/// A run of the sweep.
struct Run {
    /// A value for each dimension.
    values: Vec<Value>,
    slo: Slo,
    deployment: Deployment,
    simulation: Simulation,
}

impl Run {
    fn point(&self) -> Point<'_> {
        let answer =
            Answer { about: about(&self.deployment, &self.simulation), simulation: &self.simulation };
        Point { values: &self.values, answer }
    }

    /// `2, 16`.
    fn name(&self) -> String {
        self.values.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn run(args: &SimulateArgs, picture: Option<&Target>) -> Result<ExitCode> {
    let sources = sources(args)?;
    let dimensions = dimensions(args)?;
    let threads = args.threads.map_or(0, |n| n as usize);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let points = product(&dimensions);
    let (asked, progress) = (points.len(), Progress::new("runs")?);
    progress.at(0, asked as u64);
    let one = |values: Vec<Value>| {
        let named = dimensions.iter().zip(&values).map(|(d, value)| format!("{} = {value}", d.path));
        let shown = format!("with {}", named.collect::<Vec<_>>().join(", "));
        let go = || one(args, &sources, &dimensions, values, &progress).context(shown);
        let run = progress.goes_on().then(go);
        progress.more(1);
        run
    };
    // All results first: the error that is shown is that of the first value, whichever run ended first.
    let runs: Vec<Option<Result<Run>>> = pool.install(|| points.into_par_iter().map(one).collect());
    drop(progress);
    let mut runs = runs.into_iter().flatten().collect::<Result<Vec<Run>>>()?;
    runs.retain(|run| !run.simulation.interrupted);
    let interrupted = runs.len() < asked;
    if runs.is_empty() {
        return Err(Error::field("arguments", "--sweep", "interrupted", "one run that ends").into());
    }
    if let Some(picture) = picture {
        picture.text(&report::sweep::svg(&picture::of(&dimensions, &runs)))?;
    }
    if args.output.json {
        let sweep = dimensions.iter().map(|d| d.path.as_str()).collect();
        let points = runs.iter().map(Run::point).collect();
        show::json("roofcast/simulate-sweep/3", &Sweep { sweep, interrupted, points })?;
    } else if args.output.csv {
        show::csv(&header(&dimensions), &runs.iter().map(|run| row(run, interrupted)).collect::<Vec<_>>())?;
    } else {
        if interrupted {
            show::text(&format!("PARTIAL: interrupted when {} of {asked} runs had ended\n\n", runs.len()))?;
        }
        show::text(&people(&dimensions, &runs))?;
    }
    let served = runs.iter().any(|run| run.simulation.summary.completed > 0);
    Ok(match served {
        _ if interrupted => exit::invalid(),
        true => ExitCode::SUCCESS,
        false => exit::infeasible(),
    })
}

/// What varies: the spec files where there are several, then each `--sweep`, the last fastest.
fn dimensions(args: &SimulateArgs) -> Result<Vec<Dimension>> {
    let file = |path: &PathBuf| Value::from(path.display().to_string());
    let several = (args.spec.len() > 1)
        .then(|| Dimension { path: SPEC.to_owned(), values: args.spec.iter().map(file).collect() });
    let mut all: Vec<Dimension> = several.into_iter().collect();
    for text in &args.sweep {
        let next = dimension(args, text)?;
        if all.iter().any(|d| d.path == next.path) {
            return Err(Error::field(
                "arguments",
                "--sweep",
                format!("{} twice", next.path),
                "each key once",
            )
            .into());
        }
        all.push(next);
    }
    let points = all.iter().fold(1_usize, |n, d| n.saturating_mul(d.values.len()));
    if points > MOST_POINTS {
        let found = format!("{points} runs");
        return Err(
            Error::field("arguments", "--sweep", found, format!("at most {MOST_POINTS} in all")).into()
        );
    }
    Ok(all)
}

/// A key, by its flag's name or dotted, and its values.
fn dimension(args: &SimulateArgs, text: &str) -> Result<Dimension, Error> {
    let bad = || {
        let accepted = "a flag's name (rate, concurrency, tp, max-num-seqs, …) or a dotted key of the spec, then = \
                        and 1..32, 1..32:4, 1..32:x2 or a list as 0.5,1,2";
        Error::field("arguments", "--sweep", format!("{text:?}"), accepted)
    };
    let (name, values) = text.split_once('=').ok_or_else(bad)?;
    let path = settings::path(name.trim()).ok_or_else(bad)?;
    let given = args.machine.settings.iter().chain(&args.traffic.settings).find(|s| s.path == path);
    if let Some(flag) = given {
        let found = format!("{name} beside {}", flag.name());
        return Err(Error::field("arguments", "--sweep", found, "one of the two"));
    }
    Ok(Dimension { path: path.to_owned(), values: values_of(values).map_err(|why| refused(text, &why))? })
}

/// Every combination, the last dimension fastest.
fn product(dimensions: &[Dimension]) -> Vec<Vec<Value>> {
    dimensions.iter().fold(vec![Vec::new()], |all, d| {
        let with = |before: &Vec<Value>| {
            let before = before.clone();
            d.values.iter().map(move |value| [before.as_slice(), std::slice::from_ref(value)].concat())
        };
        all.iter().flat_map(with).collect()
    })
}

fn one(
    args: &SimulateArgs,
    sources: &[Source],
    dimensions: &[Dimension],
    values: Vec<Value>,
    progress: &Progress,
) -> Result<Run> {
    let varied = || dimensions.iter().zip(&values);
    let file = varied().find(|(d, _)| d.path == SPEC);
    let source = file.and_then(|(d, value)| d.values.iter().position(|v| v == value)).unwrap_or(0);
    let more: Vec<Setting> = varied()
        .filter(|(d, _)| d.path != SPEC)
        .map(|(d, value)| Setting::new(&d.path, value.clone()))
        .collect();
    let scenario = sources[source].scenario(&more)?;
    let options = Options { leap: !args.no_leap, ..Options::default() };
    let forecaster = Forecaster::embedded(scenario.deployment()?)?;
    let mut watch = |_, _| progress.goes_on();
    let mut simulation = simulate_while(&forecaster, &scenario.spec, &scenario.place, options, &mut watch)
        .map_err(|e| scenario.told(e))?;
    // Many runs are kept until the last has ended, and these are not drawn.
    simulation.latencies = Default::default();
    Ok(Run { values, slo: scenario.spec.slo, deployment: forecaster.deployment, simulation })
}

fn header(dimensions: &[Dimension]) -> Vec<&str> {
    let rest = [
        "completed",
        "refused",
        "duration",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        "mean_ttft_ms",
        "p50_ttft_ms",
        "p99_ttft_ms",
        "mean_tpot_ms",
        "p50_tpot_ms",
        "p99_tpot_ms",
        "p99_itl_ms",
        "mean_e2el_ms",
        "p50_e2el_ms",
        "p99_e2el_ms",
        "mean_running",
        "max_waiting",
        "preemptions",
        "mean_usage",
        "internal_fragmentation",
        "external_fragmentation",
        "overloaded",
        "dollars_per_million_output_tokens",
        "interrupted",
    ];
    dimensions.iter().map(|d| d.path.as_str()).chain(rest).collect()
}

fn row(run: &Run, interrupted: bool) -> Vec<String> {
    let s = &run.simulation;
    let (sum, optional) = (&s.summary, |v: Option<f64>| v.map_or_else(String::new, |v| v.to_string()));
    let mut row: Vec<String> = run.values.iter().map(word).collect();
    row.extend([sum.completed.to_string(), s.refused.to_string()]);
    row.extend([sum.duration, sum.request_throughput()].map(|v| v.to_string()));
    row.push(optional(sum.request_goodput()));
    row.extend([sum.output_throughput(), sum.total_token_throughput()].map(|v| v.to_string()));
    for latency in [&sum.ttft, &sum.tpot] {
        row.extend([latency.mean, latency.median, latency.p99].map(|v| v.to_string()));
    }
    row.extend([sum.itl.p99, sum.e2el.mean, sum.e2el.median, sum.e2el.p99].map(|v| v.to_string()));
    row.push(s.activity.mean_running.to_string());
    row.extend([s.activity.max_waiting, s.activity.preemptions].map(|v| v.to_string()));
    let k = &s.kv_cache;
    row.extend([k.mean_usage, k.internal_fragmentation, k.external_fragmentation].map(|v| v.to_string()));
    row.push(s.load.overloaded.to_string());
    row.push(optional(s.expense.dollars_per_million_output_tokens));
    row.push(interrupted.to_string());
    row
}

/// A value without the quotes of TOML.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn people(dimensions: &[Dimension], runs: &[Run]) -> String {
    let titles: Vec<String> =
        runs.iter().map(|run| about(&run.deployment, &run.simulation).title()).collect();
    let same = titles.iter().all(|title| *title == titles[0]);
    let title = if same { titles[0].as_str() } else { "" };
    let keys: Vec<&str> = dimensions.iter().map(Dimension::short).collect();
    let judged = runs.iter().any(|run| run.simulation.summary.request_goodput().is_some());
    let mut header = keys.clone();
    header.push("req/s");
    header.extend(judged.then_some("good/s"));
    header.extend(["output tok/s", "TTFT p50", "p99", "TPOT p50", "p99", "ITL p99", "E2EL p50", "E2EL p99"]);
    header.extend(["running", "KV held", "empty", "preempted"]);
    let rows: Vec<Vec<String>> = runs.iter().map(|run| shown(run, judged)).collect();
    let overloaded: Vec<String> =
        runs.iter().filter(|run| run.simulation.load.overloaded).map(Run::name).collect();
    let note = if overloaded.is_empty() {
        String::new()
    } else {
        format!("Overload at {}: the queue grows for as long as requests come.\n", overloaded.join("; "))
    };
    // By name, as goodput is not always there.
    let spare = ["preempted", "empty", "ITL p99", "E2EL p50", "KV held", "running"];
    let spare: Vec<usize> =
        spare.iter().filter_map(|name| header.iter().position(|column| column == name)).collect();
    let text = table::fitted(&header, &rows, keys.len(), &spare);
    format!("{title}{text}{}{note}{}", caches(&keys, runs), spans(runs))
}

/// How far off the forecasts may be, a line for all values that are known alike.
fn spans(runs: &[Run]) -> String {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let Some(bands) = &run.simulation.bands else { continue };
        let line = band_factors(bands);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, values)) => values.push(run.name()),
            None => lines.push((line, vec![run.name()])),
        }
    }
    let of = |values: &[String]| {
        if values.len() == runs.len() { String::new() } else { format!(", at {}", values.join("; ")) }
    };
    let text = |(line, values): &(String, Vec<String>)| {
        table::line(&format!("means, 10th to 90th percentile{}: {line}", of(values)))
    };
    lines.iter().map(text).collect()
}

/// What lies between pieces and what finds blocks, where a run has either.
fn caches(keys: &[&str], runs: &[Run]) -> String {
    let all = || runs.iter().map(|run| run.simulation.kv_cache);
    let (gaps, tables) = (all().any(|k| k.external_fragmentation > 0.0), all().any(|k| k.tables.is_some()));
    if !gaps && !tables {
        return String::new();
    }
    let mut header = [keys, &["blocks", "of tokens"]].concat();
    header.extend(gaps.then_some(["free beside longest gap", "scattered refusals"]).into_iter().flatten());
    header.extend(tables.then_some(["table bytes a layer reads", "sent a step"]).into_iter().flatten());
    let row = |run: &Run| {
        let k = run.simulation.kv_cache;
        let mut row: Vec<String> = run.values.iter().map(word).collect();
        row.extend([k.blocks, k.block_size].map(grouped));
        if gaps {
            row.extend([percent(k.external_fragmentation), grouped(k.scattered_refusals)]);
        }
        if tables {
            let bytes = k.tables.map_or([0.0; 2], |t| [t.read_bytes, t.sent_bytes]);
            row.extend(bytes.map(|bytes| grouped(bytes.round() as u64)));
        }
        row
    };
    table::table(&header, &runs.iter().map(row).collect::<Vec<_>>(), keys.len())
}

/// `judged` says whether there is an SLO to meet.
fn shown(run: &Run, judged: bool) -> Vec<String> {
    let (sum, s) = (&run.simulation.summary, &run.simulation);
    let significant = |v: f64| if sum.completed == 0 { "–".to_owned() } else { significant(v) };
    let mut row: Vec<String> = run.values.iter().map(word).collect();
    row.push(significant(sum.request_throughput()));
    let good = || sum.request_goodput().map_or_else(|| "–".to_owned(), significant);
    row.extend(judged.then(good));
    row.push(significant(sum.output_throughput()));
    row.extend([sum.ttft.median, sum.ttft.p99, sum.tpot.median, sum.tpot.p99].map(significant));
    row.extend([sum.itl.p99, sum.e2el.median, sum.e2el.p99].map(significant));
    row.push(significant(s.activity.mean_running));
    row.extend([s.kv_cache.mean_usage, s.kv_cache.internal_fragmentation].map(percent));
    row.push(grouped(s.activity.preemptions));
    row
}
