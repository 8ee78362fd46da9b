//! The whole text of a plan for people: every section and table.

use super::goal::Goal;
use super::table::{Columns, chance, choices, distinct, near, throughput};
use super::{Answer, best, commands, over_time, rests};
use crate::show::number::{counted, dollars, grouped, percent, significant};
use crate::show::table;
use crate::verbs::assumed;
use crate::verbs::question::{defaults, load, slo, users};
use anyhow::Result;
use roofcast::measurement::Metrics;
use roofcast::plan::{Alternative, Choice, Current, FlopsPerDollar, Plan, Quality, WhatIf, judged_load};
use roofcast::spec::{CostKind, Metric, Objective};
use roofcast::workload::Workload;
use roofcast::{Catalog, Model, Spec};
use std::sync::Arc;

/// Most rows of the ranked table without `--wide`.
const ROWS: usize = 10;

/// Every section of the answer.
pub(super) fn people(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    (answer, wide): (&Answer, bool),
) -> Result<String> {
    let plan = answer.plan;
    let mut text = begin(spec, model, answer);
    let search = spec.search.clone().unwrap_or_default();
    let routers = plan.ranked.iter().any(|c| c.router != plan.ranked[0].router);
    let columns = Columns { wide, engines: search.engines.len() > 1, routers, tokens: wide };
    if let Some(best) = &plan.best {
        text += &best::in_detail(spec, model, catalog, (best, answer))?;
    }
    let goal = Goal::of(spec.slo.is_bounded());
    text += &(table::line(&counts(plan, goal)) + "\n" + &rests::not_searched(plan, answer.chose));
    for reason in &plan.not_apart {
        text += &table::line(&format!("not searched: {reason}"));
        text += "\n";
    }
    if plan.best.is_some() {
        text += &ranked(plan, columns, goal);
        text += "Pareto front: price against TPOT and TTFT\n\n";
        let tokens = wide || distinct(&plan.pareto).len() < plan.pareto.len();
        text += &choices(&plan.pareto, Columns { tokens, ..columns });
        text += "Pareto front: throughput per accelerator against speed per user\n\n";
        text += &throughput(&plan.pareto_throughput);
        text += &rests::people(plan);
    } else {
        text += &none(plan, goal);
    }
    if !plan.why.is_empty() {
        text += "deployments named in the question\n\n";
        text += &near(&plan.why);
    }
    text += &left_out(plan);
    text += &what_ifs(plan);
    text += &over_time::people(plan, wide);
    if spec.search.is_some() && !plan.flops_per_dollar.is_empty() {
        text += "peak 16-bit FLOPs per dollar\n\n";
        text += &arithmetic(plan);
    }
    text += &quality(plan);
    Ok(text + &end(answer))
}

/// The question, and everything that bounds the answer: assumptions, missing prices, an early end, low confidence, and
/// the deployment that runs now.
pub(super) fn begin(spec: &Spec, model: &Model, answer: &Answer) -> String {
    let found = answer.plan;
    let goal = Goal::of(spec.slo.is_bounded());
    let mut text = found.best.as_ref().and_then(rests::untimed).unwrap_or_default();
    text += &spec.workload.as_ref().map_or_else(String::new, |w| question(spec, model, w, answer));
    if !found.assumptions.is_empty() {
        text += &(assumed(&found.assumptions) + "\n");
    }
    text += &rests::unpriced(found, &spec.search.clone().unwrap_or_default());
    if found.interrupted {
        text += &partial(found, found.minimise, goal);
    }
    if let Some(now) = answer.current {
        text += &current(now, found);
    }
    if found.best.is_some() && !found.confident {
        let share = percent(found.confidence);
        let wider = if spec.slo.is_bounded() { ", wider bounds" } else { "" };
        text += &table::line(&format!(
            "LOW CONFIDENCE: no deployment of this search is {share} likely to {}; the most likely one follows. \
             Try more accelerators{wider} or a lower --confidence",
            goal.meet
        ));
        text += "\n";
    }
    text
}

/// The commands that start and measure the best deployment.
pub(super) fn end(answer: &Answer) -> String {
    let mut text = commands::launch(&answer.plan.launch);
    if !answer.removed.is_empty() {
        let names = answer.removed.join(", ");
        text += &table::line(&format!("removed from --launch-dir (files of an earlier plan): {names}"));
        text += "\n";
    }
    if let Some(line) = &answer.bench {
        text += &format!("measure it (best.toml is the spec that --launch-dir writes)\n\n  {line}\n\n");
    }
    text
}

/// Table of deployments that meet the SLO: first with the required probability, then cheaper ones with a lower
/// probability.
fn ranked(found: &Plan, columns: Columns, goal: Goal) -> String {
    let shown = |list: &[Choice]| match columns.wide {
        true => choices(list, columns),
        false => choices(distinct(list).into_iter().take(ROWS), columns),
    };
    let share = percent(found.confidence);
    if !found.confident {
        return format!(
            "deployments whose forecast {}, most likely first\n\n{}",
            goal.meets,
            shown(&found.ranked)
        );
    }
    let weighed = found.ranked.iter().any(|c| c.chance.is_some());
    let likely = |c: &&Choice| c.chance.map_or(!weighed, |chance| chance >= found.confidence);
    let sure: Vec<Choice> = found.ranked.iter().filter(likely).cloned().collect();
    let how = if weighed { format!(", {share} likely or more") } else { String::new() };
    let mut text =
        format!("deployments that {} in simulation{how}, best first\n\n{}", goal.meet, shown(&sure));
    if !found.cheaper.is_empty() {
        text +=
            &format!("cheaper, but less than {share} likely to {}\n\n{}", goal.meet, shown(&found.cheaper));
    }
    text
}

/// The partial result of a search that was stopped.
fn partial(found: &Plan, minimise: Objective, goal: Goal) -> String {
    let bound = |value: f64| match minimise {
        Objective::CostPerHour => format!("at less than ${}/h", dollars(Some(value))),
        Objective::CostPerMillionTokens => format!("at less than ${}/M output tokens", dollars(Some(value))),
        Objective::Accelerators => format!("of fewer than {} accelerators", significant(value)),
        Objective::Energy => format!("of less than {} J per token", significant(value)),
    };
    let lower_bound = found
        .at_least
        .filter(|_| found.simulated > 0)
        .map_or_else(String::new, |value| format!("; no deployment {} {}", bound(value), goal.meets));
    let open = match (found.unjudged, &found.best) {
        (0, _) => String::new(),
        (n, Some(_)) => format!(", {} that cost no more than the best were not simulated", grouped(n)),
        (n, None) => format!(", {} deployments were not simulated", grouped(n)),
    };
    table::line(&format!(
        "PARTIAL: interrupted after {}{open}{lower_bound}",
        counted(found.simulated, "simulation")
    )) + "\n"
}

/// The result if no deployment met the SLO, or none before the search was stopped.
pub(super) fn none(found: &Plan, goal: Goal) -> String {
    let verdict = match (found.is_open(), found.simulated) {
        (false, 0) if !found.unpriced.is_empty() && found.minimise != Objective::Accelerators => {
            "no deployment with a price"
        }
        // Without a price the question has no answer yet, and these deployments are the nearest to the bounds.
        (false, _) if !found.unpriced.is_empty() => "none of the deployments ranked by number",
        (false, _) => "no deployment",
        (true, 0) => {
            return format!("unknown whether a deployment {}: none was simulated\n\n", goal.meets);
        }
        (true, _) => "no simulated deployment",
    };
    format!("{verdict} {}; the nearest ones\n\n{}", goal.meets, near(&found.nearest))
}

/// The deployment that runs now, its figures, and the first change to make.
fn current(now: &Current, found: &Plan) -> String {
    let ms = |m: Option<f64>| m.map_or_else(|| "–".to_owned(), significant);
    let row = |name: &str, m: &Metrics| {
        let figures = [m.ttft_ms, m.tpot_ms, m.e2e_ms].map(ms);
        [vec![name.to_owned()], figures.to_vec()].concat()
    };
    let rows = [row("measured", &now.measured), row("forecast", &now.forecast), row("limit", &now.limit)];
    let mut text = format!("current deployment: {} × {}\n\n", now.count, now.accelerator);
    text += &table::table(&["", "TTFT ms", "TPOT ms", "E2EL ms"], &rows, 1);
    let factor = significant(now.slower);
    text += &table::line(&format!(
        "measured steps take {factor} times the forecast; the plan scales its forecasts by this factor"
    ));
    text += &now.notes.iter().map(|note| table::line(note)).collect::<String>();
    text += "\nchanges on these accelerators under the plan's load, best first\n\n";
    let row = |a: &Alternative| {
        let mut row = vec![a.change.clone(), if a.meets { "met" } else { "missed" }.to_owned()];
        row.extend([a.ttft_p99_ms, a.tpot_p99_ms, a.e2el_ms, a.output_tok_s].map(significant));
        row.push(format!("{:+.0} %", a.gain * 100.0));
        row
    };
    let header = ["change", "SLO", "TTFT p99", "TPOT p99", "E2EL", "tok/s", "faster"];
    let rows: Vec<_> = [&now.now].into_iter().chain(&now.changes).take(ROWS).map(row).collect();
    text += &table::table(&header, &rows, 2);
    if let (Some(best), Some(cost)) = (&found.best, now.cost_per_hour) {
        let could = dollars(best.cost_per_hour);
        text += &table::line(&format!("potential saving: ${could}/h instead of ${}/h", dollars(Some(cost))));
        text += "\n";
    }
    text
}

/// The effect of the rows' formats on quality, as far as it was measured.
fn quality(found: &Plan) -> String {
    let stands = |q: &&Quality| found.ranked.iter().any(|c| q.is_of(&c.weights, &c.kv));
    let line = |q: &Quality| {
        let part = if q.of == "kv" { "KV" } else { "weights" };
        let source = q.source.as_ref().map_or_else(String::new, |source| format!(" ({source})"));
        (format!("{} {part}", q.format), format!("{}{source}", q.note))
    };
    let lines: Vec<(String, String)> = found.quality.iter().filter(stands).map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let rows: Vec<(&str, String)> = lines.iter().map(|(name, note)| (name.as_str(), note.clone())).collect();
    format!("quality of formats, by published measurements\n\n{}", table::pairs(&rows))
}

/// Numbers of deployments by the stage that judged them.
pub(super) fn counts(found: &Plan, goal: Goal) -> String {
    let p = found.pruned;
    format!(
        "{} deployments considered: {} do not fit, {} {} at the limit, {} in steady state; {} of {} \
         requests; {} more expensive ones skipped",
        grouped(found.considered),
        grouped(p.memory),
        grouped(p.limit),
        goal.miss,
        grouped(p.estimate),
        counted(found.simulated, "simulation"),
        grouped(found.requests),
        grouped(found.dearer),
    )
}

fn question(spec: &Spec, model: &Model, workload: &Workload, answer: &Answer) -> String {
    let slower = answer.current.map_or(1.0, |current| current.slower);
    let price = match spec.engine.cost {
        CostKind::Limit => "hardware limits, which no engine exceeds".to_owned(),
        CostKind::Forecast if slower != 1.0 => {
            format!("{} times the forecast, as in the measured run", significant(slower))
        }
        CostKind::Forecast => "forecast with the built-in calibration".to_owned(),
    };
    let mut pairs = vec![("model", model.name.clone()), ("load", load(workload))];
    let judged = judged_load(spec, "spec").ok();
    pairs.extend(judged.as_ref().and_then(users).map(|users| ("users", users)));
    let waits = |metric| spec.slo.of(metric).next().is_none();
    let open = spec.slo.is_bounded() && waits(Metric::Ttft) && waits(Metric::E2el);
    let open = if open { "; TTFT has no bound, prompts may wait" } else { "" };
    // A job has a deadline in the place of an SLO.
    if spec.slo.is_bounded() || answer.job.is_none() {
        pairs.push(("SLO", slo(&spec.slo) + open));
    }
    pairs.extend(answer.job.map(|job| ("job", job.question())));
    pairs.extend(defaults(answer.defaults));
    pairs.push(("step times", price));
    table::pairs(&pairs)
}

/// Effects of changes on the best deployment; empty without a best one.
fn what_ifs(found: &Plan) -> String {
    let changes = found.what_if.iter();
    let rows: Vec<_> = changes.map(|w| (w.change.as_str(), what_if(w, found.confidence))).collect();
    if rows.is_empty() { String::new() } else { format!("what if\n\n{}", table::pairs(&rows)) }
}

fn what_if(w: &WhatIf, confidence: f64) -> String {
    let verdict = match w.chance.filter(|chance| *chance < confidence) {
        _ if !w.meets => "missed".to_owned(),
        Some(_) => format!("met as forecast, less than {} likely", percent(confidence)),
        None => "still met".to_owned(),
    };
    let replicas = w.replicas.map_or_else(String::new, |n| format!("; {n} replicas suffice"));
    let likely = w.chance.map_or_else(String::new, |c| format!("; {} likely", chance(c)));
    format!("{verdict}: {}{likely}{replicas}", w.because)
}

/// Reasons for skipped deployments, and the smallest replicas that hold the model.
pub(super) fn left_out(found: &Plan) -> String {
    let is_shown = |reason: &str| found.best.is_none() || reason.contains("price");
    let shown_reasons = found.left_out.iter().filter(|l| is_shown(&l.reason)).take(12);
    let rows: Vec<_> = shown_reasons.map(|l| vec![l.reason.clone(), grouped(l.count)]).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text += "excluded\n\n";
        text += &table::table(&["reason", "deployments"], &rows, 1);
    }
    if !found.smallest.is_empty() {
        let smallest =
            found.smallest.iter().map(|s| format!("{} × {} ({})", s.count, s.accelerator, s.weights));
        text += &table::line(&format!("the model fits from {}", smallest.collect::<Vec<_>>().join(", ")));
        text.push('\n');
    }
    text
}

fn arithmetic(found: &Plan) -> String {
    let mut list = found.flops_per_dollar.clone();
    list.sort_by(|a, b| b.flops_per_dollar.total_cmp(&a.flops_per_dollar));
    let row = |f: &FlopsPerDollar| {
        vec![f.accelerator.clone(), dollars(Some(f.usd_per_hour)), format!("{:.2e}", f.flops_per_dollar)]
    };
    table::table(&["accelerator", "$/h", "FLOPs/$"], &list.iter().map(row).collect::<Vec<_>>(), 1)
}
