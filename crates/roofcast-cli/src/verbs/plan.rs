//! `roofcast plan`: what to deploy.

use super::bands;
use crate::args::PlanArgs;
use crate::exit;
use crate::input::scenario::{Base, Source};
use crate::show::number::{counted, dollars, grouped, percent, significant};
use crate::show::target::Target;
use crate::show::{self, table};
use anyhow::Result;
use roofcast::capacity::{self, capacity};
use roofcast::cost::Utilization;
use roofcast::deployment::Options;
use roofcast::limits::{self, limits};
use roofcast::plan::{Choice, Plan, plan};
use roofcast::report::tradeoff;
use roofcast::spec::{CostKind, Objective};
use roofcast::workload::{Arrivals, Workload};
use roofcast::{Catalog, Deployment, Forecaster, Model, Spec};
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;

/// What `roofcast plan` does when nothing is asked for.
const DEFAULT: Base = ("the default plan", include_str!("plan/default.toml"));

/// Sections of a spec that a plan reads.
const SECTIONS: [&str; 7] = ["model", "hardware", "precision", "engine", "workload", "slo", "search"];

#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    cost: CostKind,
    minimise: Objective,
    #[serde(flatten)]
    plan: &'a Plan,
}

pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let picture = Target::asked("--svg", args.svg.as_ref())?;
    let scenario =
        Source::read(args.spec.as_deref(), DEFAULT, &args.source, &[&args.flags.settings])?.scenario(&[])?;
    if args.source.dump_spec {
        scenario.dump("plan SPEC.toml", None, &SECTIONS)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (spec, catalog, model) = (&scenario.spec, &*scenario.catalog, scenario.model()?);
    let bar = show::progress::bar("shapes");
    let found = plan(spec, &model, catalog, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })
    .map_err(|e| scenario.told(e))?;
    bar.finish_and_clear();
    let minimise = spec.search.as_ref().map(|s| s.minimise).unwrap_or_default();
    if let Some(picture) = &picture {
        picture.text(&tradeoff::svg(&model.name, &found, &spec.slo))?;
    }
    if args.output.json {
        show::json(
            "roofcast/plan/2",
            &Answer { model: &model.name, cost: spec.engine.cost, minimise, plan: &found },
        )?;
    } else if args.output.csv {
        show::csv(&CSV, &found.pareto.iter().map(csv_row).collect::<Vec<_>>())?;
    } else {
        show::text(&people(spec, &model, catalog, &found)?)?;
    }
    Ok(if found.best.is_some() { ExitCode::SUCCESS } else { exit::infeasible() })
}

const CSV: [&str; 16] = [
    "accelerator",
    "count",
    "tp",
    "pp",
    "replicas",
    "weights",
    "kv",
    "batch",
    "max_batch",
    "tpot_ms",
    "ttft_ms",
    "ttft_p99_ms",
    "max_requests_per_s",
    "output_tok_s",
    "cost_per_hour",
    "cost_per_million_tokens",
];

fn csv_row(c: &Choice) -> Vec<String> {
    let usd = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    let counts = [c.count, c.tp, c.pp, c.replicas].map(|n| n.to_string());
    let mut row = vec![c.accelerator.clone()];
    row.extend(counts);
    row.extend([c.weights.clone(), c.kv.clone(), c.batch.to_string(), c.max_batch.to_string()]);
    row.extend(
        [c.tpot_ms, c.ttft_ms, c.ttft_p99_ms, c.max_requests_per_s, c.output_tok_s].map(|v| v.to_string()),
    );
    row.extend([usd(c.cost_per_hour), usd(c.cost_per_million_tokens)]);
    row
}

fn people(spec: &Spec, model: &Arc<Model>, catalog: &Catalog, found: &Plan) -> Result<String> {
    let mut text = match &spec.workload {
        Some(workload) => question(spec, model, workload),
        None => String::new(),
    };
    if let Some(best) = &found.best {
        text += &best_in_detail(spec, model, catalog, best)?;
    }
    text += &format!(
        "{} deployments considered, {} fit and keep the SLO; the Pareto set, best first\n\n",
        grouped(found.considered),
        grouped(found.feasible)
    );
    text += &choices(&found.pareto);
    if !found.throughput.is_empty() {
        text += "the best of each accelerator\n\n";
        text += &choices(&found.by_accelerator);
        text += "highest throughput within the SLO, per accelerator\n\n";
        text += &throughput(&found.throughput);
    }
    if found.best.is_none() || found.left_out.iter().any(|l| l.reason.contains("price")) {
        text += "left out\n\n";
        let rows: Vec<_> = found.left_out.iter().map(|l| vec![l.reason.clone(), grouped(l.count)]).collect();
        text += &table::table(&["reason", "deployments"], &rows, 1);
    }
    if spec.search.is_some() && !found.flops_per_dollar.is_empty() {
        text += "peak 16-bit arithmetic for a dollar\n\n";
        text += &arithmetic(found);
    }
    if let Some(best) = &found.best {
        text += &format!("start each replica of the best with\n\n  {}\n", best.command);
    }
    Ok(text)
}

fn question(spec: &Spec, model: &Model, workload: &Workload) -> String {
    let load = match &workload.arrivals {
        Arrivals::ClosedLoop { concurrency, .. } => {
            format!("{} requests always in flight", grouped(*concurrency))
        }
        arrivals => format!("{} requests/s", significant(arrivals.rate().unwrap_or(0.0))),
    };
    let bound = |name: &str, v: Option<f64>| v.map(|v| format!("{name} ≤ {v} ms"));
    let slo: Vec<_> = [
        bound("TTFT p99", spec.slo.ttft_p99_ms),
        bound("TPOT", spec.slo.tpot_p99_ms),
        bound("E2EL", spec.slo.e2el_p99_ms),
    ]
    .into_iter()
    .flatten()
    .collect();
    let slo = if slo.is_empty() { "none".to_owned() } else { slo.join(", ") };
    let price = match spec.engine.cost {
        CostKind::Limit => "the machine's limits: no real engine is faster",
        CostKind::Forecast => "as forecast, by the catalog's calibration",
    };
    let pairs = [
        ("model", model.name.clone()),
        (
            "load",
            format!(
                "{load}, {:.0} prompt and {:.0} output tokens on average",
                workload.input_mean(),
                workload.output_mean()
            ),
        ),
        ("SLO", slo),
        ("step times", price.to_owned()),
    ];
    table::pairs(&pairs)
}

/// The replica of a choice, resolved again.
fn replica_of(spec: &Spec, model: &Arc<Model>, catalog: &Catalog, choice: &Choice) -> Result<Deployment> {
    let mut options = Options::of(spec);
    // Only what was searched over: the checkpoint's own formats have no name that says all.
    let search = spec.search.clone().unwrap_or_default();
    if !search.weights.is_empty() {
        options.precision.weights = Some(choice.weights.clone());
    }
    if !search.kv.is_empty() {
        options.precision.kv = Some(choice.kv.clone());
    }
    options.parallelism =
        roofcast::parallelism::Request { tp: Some(choice.tp), pp: Some(choice.pp), ..Default::default() };
    let chip = Arc::new(catalog.accelerator(&choice.accelerator)?.clone());
    Ok(Deployment::resolve(Arc::clone(model), chip, &options)?)
}

/// Limits and capacity of the best choice's replica.
fn best_in_detail(spec: &Spec, model: &Arc<Model>, catalog: &Catalog, best: &Choice) -> Result<String> {
    let Some(workload) = &spec.workload else { return Ok(String::new()) };
    let replica = replica_of(spec, model, catalog, best)?;
    let (input, output) = (workload.input_mean() as u64, workload.output_mean() as u64);
    let held = capacity(
        &replica,
        &capacity::Question { context: input + output, batch: 1, oversubscription_percent: 100, users: None },
    );
    let question = limits::Question {
        batch: best.batch,
        context: input + output / 2,
        prefill: input.max(1),
        utilization: Utilization::FULL,
    };
    let limit = limits(&Forecaster::embedded(replica)?, &question);
    let step = |c: &roofcast::cost::Cost| {
        format!(
            "{} ms limit ({:?}-bound), {} ms forecast",
            significant(c.limit_with_communication.ms()),
            c.bound,
            significant(c.forecast.ms())
        )
        .to_lowercase()
    };
    let mut pairs = vec![
        (
            "best",
            format!(
                "{} × {} as {} of tp {}, {} weights, {} KV: ${}/h",
                best.count,
                best.accelerator,
                counted(best.replicas, "replica"),
                best.tp,
                best.weights,
                best.kv,
                dollars(best.cost_per_hour)
            ),
        ),
        ("decode step", format!("{} requests: {}", best.batch, step(&limit.decode))),
        ("prefill", format!("{} tokens: {}", grouped(question.prefill), step(&limit.prefill))),
        (
            "capacity",
            format!(
                "{} KV tokens a replica, {} requests at full length",
                grouped(held.kv_tokens),
                grouped(held.max_batch)
            ),
        ),
        ("load", format!("{} of what keeps the SLO", percent(best.utilization))),
        (
            "if split",
            format!("{} prefill servers for one decode server", significant(best.prefill_per_decode)),
        ),
    ];
    if let Some(b) = &best.bands {
        pairs.push(("10th to 90th", bands(b)));
    }
    if spec.slo.tpot_p99_ms.is_some_and(|most| best.forecast.tpot_ms > most) {
        let forecast = significant(best.forecast.tpot_ms);
        pairs.push((
            "beware",
            format!("the forecast is {forecast} ms a token, beyond the SLO; --cost forecast plans for it"),
        ));
    }
    Ok(table::pairs(&pairs))
}

fn choices(list: &[Choice]) -> String {
    let header = [
        "accelerator",
        "weights",
        "KV",
        "count",
        "tp",
        "pp",
        "replicas",
        "batch",
        "TPOT ms",
        "TTFT ms",
        "p99",
        "forecast TPOT",
        "load",
        "$/h",
        "$/M tokens",
    ];
    let row = |c: &Choice| {
        let counts = [c.count, c.tp, c.pp, c.replicas, c.batch].map(|n| n.to_string());
        let mut row = vec![c.accelerator.clone(), c.weights.clone(), c.kv.clone()];
        row.extend(counts);
        row.extend([c.tpot_ms, c.ttft_ms, c.ttft_p99_ms, c.forecast.tpot_ms].map(significant));
        row.extend([percent(c.utilization), dollars(c.cost_per_hour), dollars(c.cost_per_million_tokens)]);
        row
    };
    table::fitted(&header, &list.iter().map(row).collect::<Vec<_>>(), 3, &[11, 9, 5, 6])
}

fn throughput(list: &[Choice]) -> String {
    let header =
        ["accelerator", "weights", "KV", "tp", "requests/s each", "tokens/s each", "$/M tokens when full"];
    let row = |c: &Choice| {
        let each = c.max_output_tok_s / c.count as f64;
        let full = c.cost_per_hour.map(|usd| usd / 3600.0 / c.max_output_tok_s * 1e6);
        let figures = [significant(c.qps_per_accelerator), grouped(each as u64), dollars(full)];
        let mut row = vec![c.accelerator.clone(), c.weights.clone(), c.kv.clone(), c.tp.to_string()];
        row.extend(figures);
        row
    };
    table::table(&header, &list.iter().map(row).collect::<Vec<_>>(), 3)
}

fn arithmetic(found: &Plan) -> String {
    let mut list = found.flops_per_dollar.clone();
    list.sort_by(|a, b| b.flops_per_dollar.total_cmp(&a.flops_per_dollar));
    let row = |f: &roofcast::plan::FlopsPerDollar| {
        vec![f.accelerator.clone(), dollars(Some(f.usd_per_hour)), format!("{:.2e}", f.flops_per_dollar)]
    };
    table::table(&["accelerator", "$/h", "FLOPs/$"], &list.iter().map(row).collect::<Vec<_>>(), 1)
}
