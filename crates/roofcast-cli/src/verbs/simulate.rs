//! `roofcast simulate`: forecasts the metrics that a benchmark client would measure.

mod beside;
mod cache;
mod classes;
pub(crate) mod find;
mod sampling;
mod series;
mod special;
pub(crate) mod sweep;
mod text;
pub(crate) mod view;

use super::{About, warned};
use crate::args::SimulateArgs;
use crate::input::scenario::{Base, Source};
use crate::page::Alone;
use crate::show;
use crate::show::progress::Progress;
use crate::show::records::Records;
use crate::show::target::Target;
use crate::verbs::question::asked;
use crate::{exit, host};
use anyhow::Result;
use roofcast::report::{chrome, run};
use roofcast::simulate::{RunOptions, Simulation, TpotComparison, simulate_while};
use roofcast::{Deployment, Error, Forecaster, Spec};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use view::View;

/// The spec that `roofcast simulate` runs without arguments.
pub(super) const DEFAULT: Base = ("the default simulation", include_str!("simulate/default.toml"));

/// Sections of a spec that a simulation reads.
const SECTIONS: [&str; 8] =
    ["model", "hardware", "precision", "parallelism", "engine", "workload", "fleet", "slo"];

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/simulate/2";

/// Forecast of the metrics that a benchmark client would measure under a load.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Simulation"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    #[serde(flatten)]
    simulation: &'a Simulation,
    /// Comparison of the forecast TPOT with the one of `--measured-tpot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<TpotComparison>,
}

impl<'a> Answer<'a> {
    fn of(about: About<'a>, simulation: &'a Simulation) -> Answer<'a> {
        Answer { about, simulation, measured: None }
    }
}

pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode> {
    if args.source.dump_spec {
        return dump(args);
    }
    if args.spec.len() > 1 || !args.sweep.is_empty() || sweep::keeps(args) {
        files_of_one_run(args)?;
        let picture = Target::asked("--svg", args.svg.as_ref())?;
        return sweep::run(args, picture.as_ref());
    }
    if let Some(asked) = &args.find {
        return find::run(args, asked);
    }
    let files = Files::asked(args)?;
    let scenario = source(args, args.spec.first())?.scenario(&[])?;
    let deployment = scenario.deployment()?;
    scenario.starts(&deployment)?;
    let options = RunOptions {
        leap: !args.no_leap,
        oracle: args.oracle,
        records: args.records.is_some() || host::wants_records(),
        series: args.series.is_some() || args.svg.is_some() || args.html.is_some(),
        trace: match (&args.trace, &args.html) {
            (Some(_), _) => Some(args.trace_limit),
            (None, html) => html.as_ref().map(|_| view::EVENTS),
        },
        end_when_missed: false,
    };
    let forecaster = Forecaster::serving(deployment)?.under(scenario.spec.workload.as_ref())?;
    let deployment = &forecaster.deployment;
    let progress = Progress::new("requests")?;
    let watch = &mut |done, all| progress.at(done, all);
    let mut simulation = simulate_while(&forecaster, &scenario.spec, &scenario.place, options, watch)
        .map_err(|e| scenario.told(e))?;
    drop(progress);
    if let Some(page) = &files.page {
        page.write("serve", &View::of(deployment, &simulation, &scenario.spec))?;
    }
    files.write(&about(deployment, &simulation).name(), &scenario.spec, &mut simulation)?;
    host::recorded(&mut simulation.records);
    let measured = args.measured_tpot.and_then(|ms| TpotComparison::of(&simulation, ms));
    let title = about(deployment, &simulation);
    if args.output.json {
        show::json(SCHEMA, &Answer { measured, ..Answer::of(title, &simulation) })?;
    } else if args.output.csv {
        let interrupted = simulation.interrupted;
        let rows = simulation.summary.metrics().map(|(name, s)| csv_row(name, s, interrupted));
        let header = ["metric", "mean_ms", "std_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "interrupted"];
        show::csv(&header, &rows)?;
    } else if let Some(measured) = &measured {
        show::text(&beside::people(&title, &scenario.spec, measured))?;
    } else {
        let text = text::people(&title, (&scenario.spec, &scenario.defaults), &simulation);
        show::text(&(warned(&forecaster) + &text))?;
    }
    Ok(match &simulation {
        s if s.interrupted => exit::invalid(),
        s if s.summary.completed == 0 => exit::infeasible(),
        _ => ExitCode::SUCCESS,
    })
}

/// Description of the deployment, with the accelerators of all pools.
fn about<'a>(deployment: &'a Deployment, s: &Simulation) -> About<'a> {
    let about = About { count: s.fleet.accelerators, ..About::of(deployment) };
    let prompts = &s.fleet.prefill;
    let serving = &s.fleet.serving.accelerator;
    let beside = &s.fleet.beside;
    let other = prompts.as_ref().or(beside.as_ref()).map(|pool| &pool.accelerator);
    match other.filter(|other| *other != serving) {
        Some(other) => {
            let (first, second) = if prompts.is_some() { (other, serving) } else { (serving, other) };
            let both = format!("{first} + {second}");
            About { hardware: both.into(), ..about }
        }
        None => about,
    }
}

/// The files to write in addition to the answer.
struct Files {
    records: Option<Records>,
    series: Option<Target>,
    trace: Option<Target>,
    picture: Option<Target>,
    page: Option<Alone>,
}

impl Files {
    fn asked(args: &SimulateArgs) -> Result<Files> {
        Ok(Files {
            records: Records::asked(args.records.as_ref())?,
            series: Target::asked("--series", args.series.as_ref())?,
            trace: Target::asked("--trace", args.trace.as_ref())?,
            picture: Target::asked("--svg", args.svg.as_ref())?,
            page: Alone::asked(args.html.as_ref())?,
        })
    }

    fn write(&self, title: &str, spec: &Spec, simulation: &mut Simulation) -> Result<()> {
        if let Some(records) = &self.records {
            records.write(&simulation.records)?;
        }
        if let Some(file) = &self.series {
            file.lines(series::lines(simulation))?;
        }
        if let Some(file) = &self.trace {
            let traces = std::mem::take(&mut simulation.traces);
            file.lines(chrome::lines(traces, simulation.kv_cache.blocks))?;
        }
        if let Some(file) = &self.picture {
            let question = asked(spec.workload.as_ref(), &spec.slo);
            file.text(&run::svg(title, &question, simulation, &spec.slo))?;
        }
        Ok(())
    }
}

/// The source of one question: a spec file, or the default, with flags applied.
fn source(args: &SimulateArgs, file: Option<&PathBuf>) -> Result<Source> {
    let flags = [args.machine.settings.as_slice(), &args.traffic.settings];
    Source::read(file.map(PathBuf::as_path), DEFAULT, &args.source, &flags)
}

/// The sources of all questions, one per spec file.
fn sources(args: &SimulateArgs) -> Result<Vec<Source>> {
    match args.spec.as_slice() {
        [] => Ok(vec![source(args, None)?]),
        files
            if files.len() > 1
                && (args.source.from_command.is_some() || args.source.from_manifest.is_some()) =>
        {
            let accepted = "it with one spec, or none";
            Err(Error::field("arguments", "--from-command", "together with several specs", accepted).into())
        }
        files => files.iter().map(|file| source(args, Some(file))).collect(),
    }
}

/// Refuses flags for files that only a single run can write, if there are several specs.
fn files_of_one_run(args: &SimulateArgs) -> Result<()> {
    let flags = [
        ("--records", args.records.is_some()),
        ("--series", args.series.is_some()),
        ("--trace", args.trace.is_some()),
        ("--html", args.html.is_some()),
        ("--measured-tpot", args.measured_tpot.is_some()),
        ("--find", args.find.is_some()),
    ];
    match flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            let accepted = "it with one spec and without --sweep: it is of one run";
            Err(Error::field("arguments", flag, "together with several runs", accepted).into())
        }
        None => Ok(()),
    }
}

/// Prints the resolved spec; its first line has the flags that have no key in a spec.
fn dump(args: &SimulateArgs) -> Result<ExitCode> {
    if args.spec.len() > 1 {
        return Err(
            Error::field("arguments", "--dump-spec", "together with several specs", "one spec").into()
        );
    }
    let scenario = source(args, args.spec.first())?.scenario(&[])?;
    let sweeps: String = args.sweep.iter().map(|text| format!(" --sweep {text}")).collect();
    let leap = if args.no_leap { " --no-leap" } else { "" };
    let oracle = if args.oracle { " --oracle" } else { "" };
    scenario.dump(
        &format!("simulate SPEC.toml{sweeps}{leap}{oracle}"),
        Some(&scenario.deployment()?),
        &SECTIONS,
    )?;
    Ok(ExitCode::SUCCESS)
}

fn csv_row(name: &str, s: &roofcast::summary::Statistics, interrupted: bool) -> Vec<String> {
    let figures = [s.mean, s.std, s.median, s.p90, s.p95, s.p99];
    let figures = figures.map(|v| if s.count > 0 { v.to_string() } else { String::new() });
    [name.to_owned()].into_iter().chain(figures).chain([interrupted.to_string()]).collect()
}
