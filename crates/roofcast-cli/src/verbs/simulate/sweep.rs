//! `roofcast simulate --sweep KEY=VALUES`, several keys or several specs: one run per combination, several in
//! parallel.

#[cfg(feature = "parquet")]
mod cells;
mod picture;

use super::text::{answered_per_s, good_per_s};
use super::{Answer, about, sources};
use crate::args::SimulateArgs;
use crate::exit;
use crate::input::dimensions::{self, Dimension, product, word};
use crate::input::scenario::{Scenario, Source};
use crate::show::number::{grouped, percent, significant};
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::show::{self, table};
use crate::verbs::{band_factors, common_title, question};
use anyhow::{Context, Result};
use rayon::prelude::*;
use roofcast::report;
use roofcast::simulate::{RunOptions, Simulation, simulate_while};
use roofcast::spec::settings::Setting;
use roofcast::spec::{Slo, Spec};
use roofcast::workload::Workload;
use roofcast::{Deployment, Error, Forecaster};
use serde::Serialize;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::process::ExitCode;
use toml::Value;

/// Name of the dimension whose values are spec files.
const SPEC: &str = "spec";

/// Name and version of the document's schema.
const SCHEMA: &str = "roofcast/simulate-sweep/3";

#[derive(Serialize)]
struct Sweep<'a> {
    sweep: Vec<&'a str>,
    /// True if values are missing because Ctrl-C came before their runs had ended.
    interrupted: bool,
    points: Vec<Point<'a>>,
}

#[derive(Serialize)]
struct Point<'a> {
    values: &'a [Value],
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// One run of the sweep.
struct Run {
    /// Values of the run, one for each dimension.
    values: Vec<Value>,
    workload: Option<Workload>,
    slo: Slo,
    deployment: Deployment,
    simulation: Simulation,
}

impl Run {
    fn point(&self) -> Point<'_> {
        let answer = Answer::of(about(&self.deployment, &self.simulation), &self.simulation);
        Point { values: &self.values, answer }
    }

    fn json(&self) -> Result<Json> {
        Ok(serde_json::to_value(self.point())?)
    }

    /// The values in words, as in `2, 16`.
    fn name(&self) -> String {
        self.values.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

/// All combinations of the swept values, with the dimensions and sources.
struct Space<'a> {
    args: &'a SimulateArgs,
    sources: Vec<Source>,
    dimensions: Vec<Dimension>,
    points: Vec<Vec<Value>>,
    leap: bool,
}

/// One combination, resolved.
struct Cell {
    scenario: Scenario,
    forecaster: Forecaster,
}

impl Space<'_> {
    fn of(args: &SimulateArgs) -> Result<Space<'_>> {
        let (sources, dimensions) = (sources(args)?, dimensions(args)?);
        let points = product(&dimensions);
        Ok(Space { args, sources, dimensions, points, leap: !args.no_leap })
    }

    fn pool(&self) -> Result<rayon::ThreadPool> {
        let threads = self.args.threads.map_or(0, |n| n as usize);
        Ok(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?)
    }

    /// The values with their keys, as in `engine.scheduler = "orca", workload.arrivals.rate = 4`.
    fn named(&self, values: &[Value]) -> String {
        let named = self.dimensions.iter().zip(values).map(|(d, value)| format!("{} = {value}", d.path));
        named.collect::<Vec<_>>().join(", ")
    }

    fn cell(&self, values: &[Value]) -> Result<Cell> {
        let varied = || self.dimensions.iter().zip(values);
        let file = varied().find(|(d, _)| d.path == SPEC);
        let source = file.and_then(|(d, value)| d.values.iter().position(|v| v == value)).unwrap_or(0);
        let more: Vec<Setting> = varied()
            .filter(|(d, _)| d.path != SPEC)
            .map(|(d, value)| Setting::new(&d.path, value.clone()))
            .collect();
        let resolved = || -> Result<Cell> {
            let scenario = self.sources[source].scenario(&more)?;
            let forecaster = Forecaster::serving(scenario.deployment()?)?;
            Ok(Cell { scenario, forecaster })
        };
        resolved().with_context(|| format!("with {}", self.named(values)))
    }

    fn simulate(&self, cell: &Cell, watch: &mut dyn FnMut(u64, u64) -> bool) -> Result<Simulation> {
        let options = RunOptions { leap: self.leap, ..RunOptions::default() };
        let Cell { scenario, forecaster } = cell;
        simulate_while(forecaster, &scenario.spec, &scenario.place, options, watch)
            .map_err(|e| scenario.told(e))
    }

    fn run(&self, values: Vec<Value>, progress: &Progress) -> Result<Run> {
        let cell = self.cell(&values)?;
        let simulated = self.simulate(&cell, &mut |_, _| progress.goes_on());
        let mut simulation = simulated.with_context(|| format!("with {}", self.named(&values)))?;
        // The latencies of single requests are dropped: they are not drawn, and a sweep holds all runs in memory until
        // the last has ended.
        simulation.latencies = Default::default();
        let Spec { workload, slo, .. } = cell.scenario.spec;
        Ok(Run { values, workload, slo, deployment: cell.forecaster.deployment, simulation })
    }
}

/// True if the runs are stored in files instead of being printed.
#[cfg(feature = "parquet")]
pub(super) fn keeps(args: &SimulateArgs) -> bool {
    args.cells.cells.is_some()
}

/// False: without Parquet, this build cannot store runs.
#[cfg(not(feature = "parquet"))]
pub(super) fn keeps(_: &SimulateArgs) -> bool {
    false
}

pub(super) fn run(args: &SimulateArgs, picture: Option<&Target>) -> Result<ExitCode> {
    let space = Space::of(args)?;
    #[cfg(feature = "parquet")]
    if let Some(folder) = &args.cells.cells {
        return if args.cells.merge { cells::merge(&space, folder) } else { cells::run(&space, folder) };
    }
    let (asked, progress) = (space.points.len(), Progress::new("runs")?);
    progress.at(0, asked as u64);
    let one = |values: &Vec<Value>| {
        let run = progress.goes_on().then(|| space.run(values.clone(), &progress));
        progress.more(1);
        run
    };
    // All runs are awaited first, so that the reported error is the first value's, in whatever order the runs ended.
    let runs: Vec<Option<Result<Run>>> = space.pool()?.install(|| space.points.par_iter().map(one).collect());
    drop(progress);
    let dimensions = space.dimensions;
    let mut runs = runs.into_iter().flatten().collect::<Result<Vec<Run>>>()?;
    runs.retain(|run| !run.simulation.interrupted);
    let interrupted = runs.len() < asked;
    // A picture needs at least one run.
    if let Some(picture) = picture.filter(|_| !runs.is_empty()) {
        picture.text(&report::sweep::svg(&picture::of(&dimensions, &runs)))?;
    }
    if args.output.json {
        let sweep = dimensions.iter().map(|d| d.path.as_str()).collect();
        let points = runs.iter().map(Run::point).collect();
        show::json(SCHEMA, &Sweep { sweep, interrupted, points })?;
    } else if args.output.csv {
        let rows = runs.iter().map(|run| Ok(row(&run.json()?, interrupted))).collect::<Result<Vec<_>>>()?;
        show::csv(&header(&dimensions), &rows)?;
    } else {
        if interrupted {
            show::text(&format!("PARTIAL: interrupted when {} of {asked} runs had ended\n", runs.len()))?;
        }
        if !runs.is_empty() {
            let gap = if interrupted { "\n" } else { "" };
            show::text(&(gap.to_owned() + &people(&dimensions, &runs)))?;
        }
    }
    let served = runs.iter().any(|run| run.simulation.summary.completed > 0);
    Ok(code(interrupted, served))
}

/// Exit code of a sweep: `served` is true if a run served a request.
fn code(interrupted: bool, served: bool) -> ExitCode {
    match served {
        _ if interrupted => exit::invalid(),
        true => ExitCode::SUCCESS,
        false => exit::infeasible(),
    }
}

/// The dimensions of the sweep: the spec files if there are several, then each `--sweep`. The last dimension varies
/// fastest.
fn dimensions(args: &SimulateArgs) -> Result<Vec<Dimension>> {
    let file = |path: &PathBuf| Value::from(path.display().to_string());
    let several = (args.spec.len() > 1)
        .then(|| Dimension { path: SPEC.to_owned(), values: args.spec.iter().map(file).collect() });
    let given = [args.machine.settings.as_slice(), &args.traffic.settings];
    let swept = args.sweep.iter().map(|text| Dimension::read(text, &[], &given));
    let all = several.into_iter().map(Ok).chain(swept).collect::<Result<Vec<_>, Error>>()?;
    dimensions::check(&all)?;
    Ok(all)
}

/// Columns of the CSV after the values, each with its path in the JSON of a point.
const COLUMNS: [(&str, &str); 25] = [
    ("completed", "/completed"),
    ("refused", "/refused"),
    ("duration", "/duration"),
    ("request_throughput", "/request_throughput"),
    ("request_goodput", "/request_goodput"),
    ("output_throughput", "/output_throughput"),
    ("total_token_throughput", "/total_token_throughput"),
    ("mean_ttft_ms", "/mean_ttft_ms"),
    ("p50_ttft_ms", "/p50_ttft_ms"),
    ("p99_ttft_ms", "/p99_ttft_ms"),
    ("mean_tpot_ms", "/mean_tpot_ms"),
    ("p50_tpot_ms", "/p50_tpot_ms"),
    ("p99_tpot_ms", "/p99_tpot_ms"),
    ("p99_itl_ms", "/p99_itl_ms"),
    ("mean_e2el_ms", "/mean_e2el_ms"),
    ("p50_e2el_ms", "/p50_e2el_ms"),
    ("p99_e2el_ms", "/p99_e2el_ms"),
    ("mean_running", "/activity/mean_running"),
    ("max_waiting", "/activity/max_waiting"),
    ("preemptions", "/activity/preemptions"),
    ("mean_usage", "/kv_cache/mean_usage"),
    ("internal_fragmentation", "/kv_cache/internal_fragmentation"),
    ("external_fragmentation", "/kv_cache/external_fragmentation"),
    ("overloaded", "/load/overloaded"),
    ("dollars_per_million_output_tokens", "/expense/dollars_per_million_output_tokens"),
];

fn header(dimensions: &[Dimension]) -> Vec<&str> {
    let columns = COLUMNS.iter().map(|(name, _)| *name);
    dimensions.iter().map(|d| d.path.as_str()).chain(columns).chain(["interrupted"]).collect()
}

/// The CSV row of a point, from its JSON.
fn row(point: &Json, interrupted: bool) -> Vec<String> {
    let word = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let values = point["values"].as_array().into_iter().flatten().map(word);
    let columns = COLUMNS.iter().map(|(_, place)| point.pointer(place).unwrap_or(&Json::Null));
    values.chain(columns.map(plain)).chain([interrupted.to_string()]).collect()
}

/// A JSON value as a CSV cell: `1` for `1.0`.
fn plain(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        Json::Number(number) if number.is_f64() => number.as_f64().map(|v| v.to_string()).unwrap_or_default(),
        other => other.to_string(),
    }
}

fn people(dimensions: &[Dimension], runs: &[Run]) -> String {
    let title =
        common_title(&runs.iter().map(|run| about(&run.deployment, &run.simulation)).collect::<Vec<_>>());
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
        let at = overloaded.join("; ");
        table::line(&format!("Overload at {at}: the queue grows for as long as requests come."))
    };
    // Columns to drop are found by name, because goodput is not always present.
    let spare = ["preempted", "empty", "E2EL p50", "KV held", "running", "ITL p99"];
    let spare: Vec<usize> =
        spare.iter().filter_map(|name| header.iter().position(|column| column == name)).collect();
    let text = table::fitted(&header, &rows, keys.len(), &spare);
    format!("{title}{}{text}{}{note}{}", table::pairs(&asked(runs)), caches(&keys, runs), spans(runs))
}

/// The load and SLO that all runs have in common, by name; the varied keys are in the table.
fn asked(runs: &[Run]) -> Vec<(&'static str, String)> {
    let common = |of: &dyn Fn(&Run) -> Option<String>| {
        let first = of(runs.first()?)?;
        runs.iter().all(|run| of(run).as_ref() == Some(&first)).then_some(first)
    };
    let part = |say: fn(&Workload) -> String| common(&|run| run.workload.as_ref().map(say));
    let load: Vec<String> =
        [part(question::arrivals), part(question::lengths)].into_iter().flatten().collect();
    let load = (!load.is_empty()).then(|| ("load", load.join(", ")));
    let slo = common(&|run| Some(question::slo(&run.slo))).map(|slo| ("SLO", slo));
    load.into_iter().chain(slo).collect()
}

/// The bands of the forecasts, one line for all values with equal bands.
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
        table::line(&format!("80 % interval of the means{}: {line}", of(values)))
    };
    lines.iter().map(text).collect()
}

/// External fragmentation and block-table traffic, for runs that have either.
fn caches(keys: &[&str], runs: &[Run]) -> String {
    let all = || runs.iter().map(|run| run.simulation.kv_cache);
    let (gaps, tables) = (all().any(|k| k.external_fragmentation > 0.0), all().any(|k| k.tables.is_some()));
    if !gaps && !tables {
        return String::new();
    }
    let mut header = [keys, &["blocks", "of tokens"]].concat();
    header.extend(gaps.then_some(["external fragmentation", "scattered refusals"]).into_iter().flatten());
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

/// The row of a run for people; `judged` is true if there is an SLO.
fn shown(run: &Run, judged: bool) -> Vec<String> {
    let (sum, s) = (&run.simulation.summary, &run.simulation);
    let significant = |v: f64| if sum.completed == 0 { "–".to_owned() } else { significant(v) };
    let tpot = |v: f64| if sum.tpot.count == 0 { "–".to_owned() } else { significant(v) };
    let mut row: Vec<String> = run.values.iter().map(word).collect();
    row.push(significant(answered_per_s(s)));
    let good = || good_per_s(s).map_or_else(|| "–".to_owned(), significant);
    row.extend(judged.then(good));
    row.push(significant(sum.output_throughput()));
    row.extend([sum.ttft.median, sum.ttft.p99].map(significant));
    row.extend([sum.tpot.median, sum.tpot.p99, sum.itl.p99].map(tpot));
    row.extend([sum.e2el.median, sum.e2el.p99].map(significant));
    row.push(significant(s.activity.mean_running));
    row.extend([s.kv_cache.mean_usage, s.kv_cache.internal_fragmentation].map(percent));
    row.push(grouped(s.activity.preemptions));
    row
}
