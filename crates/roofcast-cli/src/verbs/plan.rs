//! `roofcast plan`: what to deploy.

mod table;
mod text;
pub(crate) mod view;

use crate::args::PlanArgs;
use crate::exit;
use crate::input::scenario::{Base, Scenario, Source};
use crate::page::Alone;
use crate::show::progress::Progress;
use crate::show::{self, target::Target};
use anyhow::Result;
use rayon::prelude::*;
use roofcast::Error;
use roofcast::Model;
use roofcast::plan::{Plan, Question, Trial, plan};
use roofcast::report::tradeoff;
use roofcast::simulate::{Options, Simulation, simulate_while};
use roofcast::spec::{CostKind, Objective};
use serde::Serialize;
use std::process::ExitCode;
use view::View;

/// What `roofcast plan` does when nothing is asked for.
const DEFAULT: Base = ("the default plan", include_str!("plan/default.toml"));

/// Sections of a spec that a plan reads.
const SECTIONS: [&str; 7] = ["model", "hardware", "precision", "engine", "workload", "slo", "search"];

/// The answer's schema.
const SCHEMA: &str = "roofcast/plan/3";

#[derive(Serialize)]
pub(crate) struct Answer<'a> {
    model: &'a str,
    cost: CostKind,
    minimise: Objective,
    #[serde(flatten)]
    plan: &'a Plan,
    /// The spec of the best: `roofcast simulate` repeats its proof.
    spec: Option<String>,
}

impl<'a> Answer<'a> {
    fn of(scenario: &Scenario, model: &'a Model, plan: &'a Plan) -> Answer<'a> {
        let minimise = scenario.spec.search.as_ref().map(|s| s.minimise).unwrap_or_default();
        let spec = plan.best.as_ref().map(|best| scenario.deployed(&best.spec));
        Answer { model: &model.name, cost: scenario.spec.engine.cost, minimise, plan, spec }
    }
}

pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let picture = Target::asked("--svg", args.svg.as_ref())?;
    let page = Alone::asked(args.html.as_ref())?;
    let scenario =
        Source::read(args.spec.as_deref(), DEFAULT, &args.source, &[&args.flags.settings])?.scenario(&[])?;
    if args.source.dump_spec {
        scenario.dump("plan SPEC.toml", None, &SECTIONS)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (spec, catalog, model) = (&scenario.spec, &*scenario.catalog, scenario.model()?);
    let progress = Progress::new("simulations")?;
    let question = Question {
        exhaustive: args.exhaustive,
        why: args.why.as_deref(),
        runner: &|trials| trials.par_iter().map(|trial| simulated(trial, &progress)).collect(),
        progress: &|simulated, _| {
            progress.at(simulated, 0);
        },
    };
    let found = plan(spec, &model, catalog, &question).map_err(|e| scenario.told(e))?;
    if !progress.goes_on() {
        return Err(interrupted().into());
    }
    drop(progress);
    if let Some(picture) = &picture {
        picture.text(&tradeoff::svg(&model.name, &found, &spec.slo))?;
    }
    if let Some(page) = &page {
        page.write("plan", &View::of(&scenario, &model, &found))?;
    }
    if args.output.json {
        show::json(SCHEMA, &Answer::of(&scenario, &model, &found))?;
    } else if args.output.csv {
        show::csv(&table::CSV, &found.ranked.iter().map(table::csv_row).collect::<Vec<_>>())?;
    } else {
        show::text(&text::people(spec, &model, catalog, (&found, show::table::is_wide()))?)?;
    }
    Ok(if found.best.is_some() { ExitCode::SUCCESS } else { exit::infeasible() })
}

/// A simulation of the search, which Ctrl-C ends, too.
fn simulated(trial: &Trial, progress: &Progress) -> Result<Simulation, Error> {
    let options = Options { leap: true, end_when_missed: trial.end_when_missed, ..Options::default() };
    let watch = &mut |_, _| progress.goes_on();
    let run = simulate_while(&trial.forecaster, &trial.spec, "plan", options, watch)?;
    if run.interrupted { Err(interrupted()) } else { Ok(run) }
}

/// A plan that Ctrl-C has ended: without its last simulations nothing says which deployment is best.
fn interrupted() -> Error {
    Error::field("plan", "simulations", "interrupted", "a plan that ends")
}
