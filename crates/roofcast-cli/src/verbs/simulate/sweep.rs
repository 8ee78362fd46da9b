//! `roofcast simulate --sweep KEY=VALUES`, several keys or several specs: one run per combination, several in
//! parallel.

#[cfg(feature = "parquet")]
pub(crate) mod cells;
mod picture;
mod rows;

use super::{Answer, about, sources};
use crate::args::SimulateArgs;
use crate::exit;
use crate::input::dimensions::{self, Dimension, product, word};
use crate::input::scenario::{Scenario, Source};
use crate::show::column::Tabled;
use crate::show::picture::{Picture, pictures};
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::show::{self, Document};
use crate::verbs::limits::sweep::said;
use anyhow::{Context, Result, anyhow};
use rayon::prelude::*;
use roofcast::memory::Memory;
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
use std::sync::atomic::{AtomicU64, Ordering};
use toml::Value;

/// Name of the dimension whose values are spec files.
const SPEC: &str = "spec";

/// Name and version of the document's schema.
const SCHEMA: &str = "roofcast/simulate-sweep/3";

/// Runs over all combinations of the values of keys.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Sweep<'a> {
    /// Swept dotted keys; `spec` first if several spec files are compared.
    sweep: Vec<&'a str>,
    /// True if values are missing because Ctrl-C came before their runs had ended.
    interrupted: bool,
    /// Values at which there is no such deployment, each with the reason.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    skipped: &'a [String],
    /// Runs in the order of the combinations, the last key varying fastest.
    points: Vec<Point<'a>>,
}

/// One run of a sweep: the value of each swept key, and the run's answer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Point<'a> {
    /// Values of the point, one for each swept key.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<roofcast::schema::SweptValue>"))]
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
pub(crate) struct Space {
    sources: Vec<Source>,
    dimensions: Vec<Dimension>,
    points: Vec<Vec<Value>>,
    /// Values of degrees of parallelism at which there is no deployment, each with the reason.
    skipped: Vec<String>,
    leap: bool,
    /// Number of concurrent runs; `None` for the number of cores.
    threads: Option<u64>,
}

/// A sweep whose runs have ended, as far as it was not interrupted.
pub(crate) struct Swept {
    dimensions: Vec<Dimension>,
    runs: Vec<Run>,
    skipped: Vec<String>,
    /// Number of runs of the whole sweep.
    all: usize,
}

/// Data for the page: the answer, its picture for places of several widths, and its table.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RunSweepAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Sweep<'a>>,
    pictures: Vec<Picture>,
    table: Tabled,
}

/// One combination, resolved.
struct Cell {
    scenario: Scenario,
    forecaster: Forecaster,
}

impl Space {
    fn of(args: &SimulateArgs) -> Result<Space> {
        let sources = sources(args)?;
        let dimensions = dimensions(args)?;
        let points = product(&dimensions);
        let skipped = Vec::new();
        let leap = !args.no_leap;
        Space { sources, dimensions, points, skipped, leap, threads: args.threads }.legal()
    }

    /// The combinations at which there is a deployment, if degrees of parallelism vary.
    fn legal(mut self) -> Result<Space> {
        let mut illegal = Vec::new();
        if self.dimensions.iter().any(|d| d.path.starts_with("parallelism.")) {
            for values in std::mem::take(&mut self.points) {
                match self.cell(&values) {
                    Ok(cell) if Memory::of(&cell.forecaster.deployment).sequences(1) == 0 => {
                        illegal.push(anyhow!(
                            "with {}: the weights leave no memory for KV cache",
                            self.named(&values)
                        ));
                    }
                    Err(error) if dimensions::is_illegal(&self.dimensions, &error) => illegal.push(error),
                    // Other errors are reported when the runs are computed.
                    _ => self.points.push(values),
                }
            }
        }
        if self.points.is_empty() && !illegal.is_empty() {
            return Err(illegal.remove(0));
        }
        self.skipped = illegal.iter().map(|error| format!("{error:#}")).collect();
        Ok(self)
    }

    /// The sweep of one key of a spec that came over the network.
    pub(crate) fn received(source: Source, sweep: &str) -> Result<Space> {
        let dimensions = vec![Dimension::read(sweep, &[], &[])?];
        let points = product(&dimensions);
        Space { sources: vec![source], dimensions, points, skipped: Vec::new(), leap: true, threads: None }
            .legal()
    }

    fn pool(&self) -> Result<rayon::ThreadPool> {
        let threads = self.threads.map_or(0, |n| n as usize);
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
            let workload = scenario.spec.workload.as_ref();
            let forecaster = Forecaster::serving(scenario.deployment()?)?.under(workload)?;
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

    /// Runs one combination; `goes_on` gets the number of its requests, and ends the run with `false`.
    fn run(&self, values: Vec<Value>, goes_on: &(dyn Fn(u64) -> bool + Sync)) -> Result<Run> {
        let cell = self.cell(&values)?;
        let simulated = self.simulate(&cell, &mut |_, all| goes_on(all));
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
        return if args.cells.merge {
            cells::merge(&space, args, folder)
        } else {
            cells::run(&space, args, folder)
        };
    }
    let progress = Progress::new("runs")?;
    let report = |done, all| {
        progress.at(done, all);
    };
    let swept = Swept::of(space, &report, &|_| progress.goes_on())?;
    drop(progress);
    let Swept { dimensions, runs, skipped, all } = &swept;
    let interrupted = swept.interrupted();
    // A picture needs at least one run.
    if let Some(picture) = picture.filter(|_| !runs.is_empty()) {
        picture.text(&report::sweep::svg(&picture::of(dimensions, runs)))?;
    }
    if args.output.json {
        show::json(SCHEMA, &swept.answer())?;
    } else if args.output.csv {
        let rows = runs.iter().map(|run| Ok(row(&run.json()?, interrupted))).collect::<Result<Vec<_>>>()?;
        show::csv(&header(dimensions), &rows)?;
    } else {
        if interrupted {
            show::text(&format!("PARTIAL: interrupted when {} of {all} runs had ended\n", runs.len()))?;
        }
        if !runs.is_empty() {
            let gap = if interrupted { "\n" } else { "" };
            show::text(&(gap.to_owned() + &rows::people(dimensions, runs) + &said(skipped)))?;
        }
    }
    let served = runs.iter().any(|run| run.simulation.summary.completed > 0);
    Ok(code(interrupted, served))
}

impl Swept {
    /// Runs the sweep. `told` receives the number of ended runs and of all; `goes_on` receives the number of ended
    /// requests of a run, and returns false to stop.
    pub(crate) fn of(
        space: Space,
        told: &(dyn Fn(u64, u64) + Sync),
        goes_on: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Swept> {
        let all = space.points.len();
        let ended = AtomicU64::new(0);
        told(0, all as u64);
        let run_of = |values: &Vec<Value>| {
            let run = goes_on(0).then(|| space.run(values.clone(), goes_on));
            told(ended.fetch_add(1, Ordering::Relaxed) + 1, all as u64);
            run
        };
        // All runs are awaited first, so that the reported error is the first value's, in whatever order the runs ended.
        let runs: Vec<Option<Result<Run>>> =
            space.pool()?.install(|| space.points.par_iter().map(run_of).collect());
        let mut runs = runs.into_iter().flatten().collect::<Result<Vec<Run>>>()?;
        runs.retain(|run| !run.simulation.interrupted);
        Ok(Swept { dimensions: space.dimensions, runs, skipped: space.skipped, all })
    }

    fn interrupted(&self) -> bool {
        self.runs.len() < self.all
    }

    fn answer(&self) -> Sweep<'_> {
        Sweep {
            sweep: self.dimensions.iter().map(|d| d.path.as_str()).collect(),
            interrupted: self.interrupted(),
            skipped: &self.skipped,
            points: self.runs.iter().map(Run::point).collect(),
        }
    }

    /// Data for the page.
    pub(crate) fn view(&self) -> View<'_> {
        let picture = picture::of(&self.dimensions, &self.runs);
        View {
            report: Document { schema: SCHEMA, body: self.answer() },
            pictures: pictures(|width| report::sweep::figure(&picture, width)),
            table: rows::table(&self.runs),
        }
    }
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
const COLUMNS: [(&str, &str); 30] = [
    ("completed", "/completed"),
    ("refused", "/refused"),
    ("rejected", "/rejected"),
    ("failed", "/failed"),
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
    ("mean_replicas", "/fleet/autoscale/mean_replicas"),
    ("max_waiting", "/activity/max_waiting"),
    ("preemptions", "/activity/preemptions"),
    ("mean_usage", "/kv_cache/mean_usage"),
    ("internal_fragmentation", "/kv_cache/internal_fragmentation"),
    ("external_fragmentation", "/kv_cache/external_fragmentation"),
    ("overloaded", "/load/overloaded"),
    ("dollars_per_million_output_tokens", "/expense/dollars_per_million_output_tokens"),
    ("joules_per_output_token", "/expense/joules_per_output_token"),
    ("watts", "/expense/watts"),
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
