//! `roofcast plan`: what to deploy.

mod table;
mod text;

use crate::args::{CostArg, PlanArgs};
use crate::show::target::Target;
use crate::show::{self};
use crate::{exit, input};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use roofcast::plan::{Choice, Plan, Question, Trial, plan};
use roofcast::report::tradeoff;
use roofcast::spec::{CostKind, Objective};
use roofcast::{Catalog, Spec};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;

/// What `roofcast plan` does when nothing is asked for.
const DEFAULT_SPEC: &str = include_str!("plan/default.toml");

#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    cost: CostKind,
    minimise: Objective,
    #[serde(flatten)]
    plan: &'a Plan,
    /// The spec of the best: `roofcast simulate` repeats its proof.
    spec: Option<String>,
}

pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let picture = Target::asked("--svg", args.svg.as_ref())?;
    let mut catalog = input::catalog(&args.catalog)?;
    let mut spec = match &args.spec {
        Some(path) => input::spec(Some(path))?,
        None => Spec::parse("the default plan", DEFAULT_SPEC)?,
    };
    searched(args, &mut spec, &mut catalog)?;
    if let Some(cost) = args.cost {
        spec.engine.cost = if cost == CostArg::Limit { CostKind::Limit } else { CostKind::Forecast };
    }
    let named = args.model.clone().or(input::model_of(&spec, args.spec.as_deref()));
    let named = named.ok_or_else(|| {
        roofcast::Error::field("spec", "model.name", "missing", "a catalog id or a config.json")
    })?;
    let model = input::model(&named, &catalog)?;
    let bar = progress_bar();
    let question = Question {
        exhaustive: args.exhaustive,
        why: args.why.as_deref(),
        runner: &|trials| trials.par_iter().map(Trial::run).collect(),
        progress: &|simulated, _| bar.set_position(simulated),
    };
    let found = plan(&spec, &model, &catalog, &question)?;
    bar.finish_and_clear();
    let minimise = spec.search.as_ref().map(|s| s.minimise).unwrap_or_default();
    if let Some(picture) = &picture {
        picture.text(&tradeoff::svg(&model.name, &found, &spec.slo))?;
    }
    let proof = found.best.as_ref().map(|best| proof_spec(args, &spec, &named, best)).transpose()?;
    if args.output.json {
        let cost = spec.engine.cost;
        let answer = Answer { model: &model.name, cost, minimise, plan: &found, spec: proof };
        show::json("roofcast/plan/3", &answer)?;
    } else if args.output.csv {
        show::csv(&table::CSV, &found.ranked.iter().map(table::csv_row).collect::<Vec<_>>())?;
    } else {
        show::text(&text::people(&spec, &model, &catalog, (&found, args.wide))?)?;
    }
    Ok(if found.best.is_some() { ExitCode::SUCCESS } else { exit::infeasible() })
}

/// The plan's own spec without its search, and with what makes the best over it.
fn proof_spec(args: &PlanArgs, spec: &Spec, model: &str, best: &Choice) -> Result<String> {
    let text = args.spec.as_ref().map_or(Ok(DEFAULT_SPEC.to_owned()), |path| input::text(path))?;
    let mut table: toml::Table = toml::from_str(&text)?;
    for section in ["search", "parallelism"] {
        table.remove(section);
    }
    if let Some(hardware) = table.get_mut("hardware").and_then(toml::Value::as_table_mut) {
        hardware.remove("count");
    }
    lay(&mut table, &best.spec);
    let cost = match spec.engine.cost {
        CostKind::Limit => "limit",
        CostKind::Forecast => "forecast",
    };
    lay(&mut table, &toml::toml! { engine = { cost = cost } });
    if spec.model.path.is_none() {
        let mut named = toml::Table::new();
        named.insert("name".to_owned(), model.into());
        lay(&mut table, &toml::toml! { model = named });
    }
    Ok(table.to_string())
}

/// The keys of `over` take the places of those in `table`, section by section.
fn lay(table: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (table.get_mut(key).and_then(toml::Value::as_table_mut), value.as_table()) {
            (Some(inner), Some(value)) => lay(inner, value),
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

/// Accelerators by flag or spec, each by its id.
fn searched(args: &PlanArgs, spec: &mut Spec, catalog: &mut Cow<'static, Catalog>) -> Result<()> {
    let folder = input::folder(args.spec.as_deref());
    if let Some(name) = &args.hardware {
        spec.search.get_or_insert_default().accelerators =
            vec![input::accelerator(name, Path::new(""), catalog)?];
    }
    let search = spec.search.iter_mut().flat_map(|s| &mut s.accelerators);
    for name in search.chain(&mut spec.hardware.accelerator) {
        *name = input::accelerator(name, folder, catalog)?;
    }
    Ok(())
}

/// Progress on a terminal, nothing in a pipe; short searches end before it is drawn.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    let style = ProgressStyle::with_template("{spinner} {pos} simulations, {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.with_style(style)
}
