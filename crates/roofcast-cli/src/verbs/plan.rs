//! `roofcast plan`: finds the best deployment for a load and an SLO.

mod best;
mod commands;
pub(crate) mod curves;
mod files;
mod goal;
mod job;
mod measured;
mod over_time;
mod rests;
mod screen;
mod table;
mod text;
pub(crate) mod view;

use crate::args::PlanArgs;
use crate::exit;
use crate::input::scenario::{Base, Scenario, Source};
use crate::page::Alone;
use crate::show::progress::Progress;
use crate::show::{self, target::Target};
use crate::verbs::question::asked;
use anyhow::Result;
use job::Job;
use rayon::prelude::*;
use roofcast::Error;
use roofcast::Model;
use roofcast::plan::{Choice, Current, Plan, PlanQuestion, Trial, current, plan};
use roofcast::report::tradeoff;
use roofcast::simulate::Simulation;
use roofcast::spec::CostKind;
use serde::Serialize;
use std::process::ExitCode;
use view::View;

/// The spec that `roofcast plan` runs without arguments.
const DEFAULT: Base = ("the default plan", include_str!("plan/default.toml"));

/// Sections of a spec that a plan reads.
const SECTIONS: [&str; 7] = ["model", "hardware", "precision", "engine", "workload", "slo", "search"];

/// Name of the spec file of the best deployment, in the folder of [`PlanArgs::launch_dir`] and in the command that
/// checks it.
const SPEC: &str = "best.toml";

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/plan/3";

/// A plan: the deployments that meet the SLO, best first.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Plan"))]
pub(crate) struct Answer<'a> {
    /// Id of the served model.
    model: &'a str,
    /// Cost by which steps are priced: the limit or the forecast.
    cost: CostKind,
    #[serde(flatten)]
    plan: &'a Plan,
    /// The spec of the best deployment, with which `roofcast simulate` repeats its simulation.
    spec: Option<String>,
    /// The command that measures the best deployment where it runs; it reads `spec` from best.toml.
    bench: Option<String>,
    /// The deployment that runs now, if a measured run was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<&'a Current>,
    /// The offline job whose rate is the load, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Job>,
    /// True if the spec or a flag lists the accelerators.
    #[serde(skip)]
    chose: bool,
    /// Names of the parts of load and SLO that are defaults.
    #[serde(skip)]
    defaults: &'a [&'static str],
    /// Names of files of an earlier plan in the folder of `--launch-dir` that were removed, because this plan does not
    /// write them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
}

impl<'a> Answer<'a> {
    fn of(
        scenario: &'a Scenario,
        model: &'a Model,
        plan: &'a Plan,
        current: Option<&'a Current>,
    ) -> Answer<'a> {
        let spec = plan.best.as_ref().map(|best| scenario.deployed(&best.spec, &best.dropped));
        let bench = plan.best.as_ref().map(bench);
        let model = &model.name;
        let cost = scenario.spec.engine.cost;
        let defaults = scenario.defaults.as_slice();
        let removed = Vec::new();
        Answer { model, cost, plan, spec, bench, current, job: None, chose: true, defaults, removed }
    }
}

pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let picture = Target::asked("--svg", args.svg.as_ref())?;
    let page = Alone::asked(args.html.as_ref())?;
    let folder = args.launch_dir.as_deref().map(files::checked).transpose()?;
    let job = Job::asked(args);
    let (scenario, row) = match &args.measured {
        Some(path) => measured::scenario(args, path)?,
        None => (asked_scenario(args, job)?, None),
    };
    if args.source.dump_spec {
        scenario.dump("plan SPEC.toml", None, &SECTIONS)?;
        return Ok(ExitCode::SUCCESS);
    }
    let spec = &scenario.spec;
    let catalog = &*scenario.catalog;
    let model = scenario.model()?;
    let progress = Progress::open("simulations")?;
    let runner = |trials: &[Trial]| -> Vec<roofcast::Result<Simulation>> {
        let run_of = |trial: &Trial| trial.run_while(&mut |_, _| progress.goes_on());
        trials.par_iter().map(run_of).collect()
    };
    let current = row.map(|row| current(spec, &model, catalog, &row, &runner)).transpose();
    let current = current.map_err(|e| scenario.told(e))?;
    let question = PlanQuestion {
        exhaustive: args.exhaustive,
        why: args.why.as_deref(),
        runner: &runner,
        progress: &|simulated, _| {
            progress.at(simulated, 0);
        },
        goes_on: &|| progress.goes_on(),
        slower: current.as_ref().map_or(1.0, |current| current.slower),
    };
    if args.curve {
        let drawn = roofcast::plan::curves(spec, &model, catalog, &question);
        drop(progress);
        let answer = drawn.map_err(|e| scenario.told(e))?;
        return curves::write(args, (&scenario, &model, &answer), (picture.as_ref(), page.as_ref()));
    }
    let planned = plan(spec, &model, catalog, &question).map_err(|e| scenario.told(by_flag(e)))?;
    drop(progress);
    if let Some(picture) = &picture {
        let question = asked(spec.workload.as_ref(), &spec.slo);
        picture.text(&tradeoff::svg(&model.name, &question, &planned, &spec.slo))?;
    }
    if let Some(page) = &page {
        page.write("plan", &View::of(&scenario, &model, &planned))?;
    }
    let mut answer = Answer::of(&scenario, &model, &planned, current.as_ref());
    answer.job = job;
    answer.chose = args.spec.is_some() || args.flags.get("search.accelerators").is_some();
    if let Some(folder) = &folder {
        answer.removed = files::write(folder, &answer)?;
    }
    if args.output.json {
        show::json(SCHEMA, &answer)?;
    } else if args.output.csv {
        show::csv(&table::CSV, &table::csv_rows(&planned))?;
    } else {
        let wide = show::table::is_wide();
        show::text(&match wide || args.all {
            true => text::people(spec, &model, catalog, (&answer, wide))?,
            false => screen::people(spec, &model, catalog, &answer)?,
        })?;
    }
    Ok(match (planned.interrupted, planned.confident) {
        (true, _) => exit::invalid(),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => exit::infeasible(),
    })
}

/// The question of a plan without a measured run; a `job` is a load.
fn asked_scenario(args: &PlanArgs, job: Option<Job>) -> Result<Scenario> {
    let settings = &args.flags.settings;
    let load = job.map_or_else(Vec::new, |job| job.settings(settings, args.spec.is_none()));
    Source::read(args.spec.as_deref(), DEFAULT, &args.source, &[&load, settings])?.scenario(&[])
}

/// An error about the deployment that `--why` names, with the flag.
fn by_flag(error: Error) -> Error {
    match error {
        Error::Field { place, field, found, accepted } if field == "why" => {
            Error::Field { place, field: "--why".to_owned(), found, accepted }
        }
        other => other,
    }
}

/// The command that measures `best` where it runs, with the load and the bounds of its spec.
fn bench(best: &Choice) -> String {
    // Several replicas are reached at one address, the router's.
    let whose =
        if best.replicas > 1 || best.prefill.is_some() || best.beside.is_some() { "ROUTER" } else { "HOST" };
    format!("roofcast bench {SPEC} --url http://{whose}:8000")
}
