//! The text of a plan for people.

use super::table::{Columns, chance, choices, distinct, latency, near, pools, throughput, word};
use super::{Answer, commands, over_time, rests};
use crate::show::number::{counted, dollars, grouped, percent, significant};
use crate::show::table;
use crate::verbs::assumed;
use crate::verbs::question::{defaults, load, slo, users};
use anyhow::Result;
use roofcast::capacity::{CapacityQuestion, capacity};
use roofcast::cost::Utilization;
use roofcast::deployment::DeploymentOptions;
use roofcast::limits::{LimitsQuestion, limits};
use roofcast::measurement::Metrics;
use roofcast::plan::{Alternative, Choice, Current, Cut, FlopsPerDollar, Plan, Quality, WhatIf, judged_load};
use roofcast::spec::{CostKind, Metric, Objective};
use roofcast::workload::Workload;
use roofcast::{Catalog, Deployment, Forecaster, Model, Spec};
use std::sync::Arc;

/// Most rows of the ranked table without `--wide`.
const ROWS: usize = 10;

pub(super) fn people(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    (answer, wide): (&Answer, bool),
) -> Result<String> {
    let plan = answer.plan;
    let slower = answer.current.map_or(1.0, |current| current.slower);
    let mut text = spec
        .workload
        .as_ref()
        .map_or_else(String::new, |w| question(spec, model, w, (slower, answer.defaults)));
    if !plan.assumptions.is_empty() {
        text += &(assumed(&plan.assumptions) + "\n");
    }
    text += &rests::unpriced(plan, &spec.search.clone().unwrap_or_default());
    if plan.interrupted {
        text += &partial(plan, plan.minimise);
    }
    if let Some(now) = answer.current {
        text += &current(now, plan);
    }
    let search = spec.search.clone().unwrap_or_default();
    let routers = plan.ranked.iter().any(|c| c.router != plan.ranked[0].router);
    let columns = Columns { wide, engines: search.engines.len() > 1, routers, tokens: wide };
    if let Some(best) = &plan.best {
        if !plan.confident {
            let share = percent(plan.confidence);
            text += &table::line(&format!(
                "LOW CONFIDENCE: no deployment of this search is {share} likely to meet the SLO; the most likely one follows. \
                 Try more accelerators, wider bounds or a lower --confidence"
            ));
            text += "\n";
        }
        text += &best_in_detail(spec, model, catalog, (best, &plan.ranked, slower))?;
    }
    text += &(counts(plan) + &rests::not_searched(plan, answer.chose));
    for reason in &plan.not_apart {
        text += &table::line(&format!("not searched: {reason}"));
        text += "\n";
    }
    if plan.best.is_some() {
        text += &ranked(plan, columns);
        text += "Pareto front: price against TPOT and TTFT\n\n";
        let tokens = wide || distinct(&plan.pareto).len() < plan.pareto.len();
        text += &choices(&plan.pareto, Columns { tokens, ..columns });
        text += "Pareto front: throughput per accelerator against speed per user\n\n";
        text += &throughput(&plan.pareto_throughput);
        text += &rests::people(plan);
    } else {
        text += &none(plan);
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
    text += &commands::launch(&plan.launch);
    if !answer.removed.is_empty() {
        let names = answer.removed.join(", ");
        text += &table::line(&format!("removed from --launch-dir (files of an earlier plan): {names}"));
        text += "\n";
    }
    if let Some(line) = &answer.bench {
        text += &format!("measure it (best.toml is the spec that --launch-dir writes)\n\n  {line}\n\n");
    }
    Ok(text)
}

/// Table of deployments that meet the SLO: first with the required probability, then cheaper ones with a lower
/// probability.
fn ranked(found: &Plan, columns: Columns) -> String {
    let shown = |list: &[Choice]| match columns.wide {
        true => choices(list, columns),
        false => choices(distinct(list).into_iter().take(ROWS), columns),
    };
    let share = percent(found.confidence);
    if !found.confident {
        return format!(
            "deployments whose forecast meets the SLO, most likely first\n\n{}",
            shown(&found.ranked)
        );
    }
    let weighed = found.ranked.iter().any(|c| c.chance.is_some());
    let likely = |c: &&Choice| c.chance.map_or(!weighed, |chance| chance >= found.confidence);
    let sure: Vec<Choice> = found.ranked.iter().filter(likely).cloned().collect();
    let how = if weighed { format!(", {share} likely or more") } else { String::new() };
    let mut text =
        format!("deployments that meet the SLO in simulation{how}, best first\n\n{}", shown(&sure));
    if !found.cheaper.is_empty() {
        text +=
            &format!("cheaper, but less than {share} likely to meet the SLO\n\n{}", shown(&found.cheaper));
    }
    text
}

/// The partial result of a search that was stopped.
fn partial(found: &Plan, minimise: Objective) -> String {
    let bound = |value: f64| match minimise {
        Objective::CostPerHour => format!("at less than ${}/h", dollars(Some(value))),
        Objective::CostPerMillionTokens => format!("at less than ${}/M tokens", dollars(Some(value))),
        Objective::Accelerators => format!("of fewer than {} accelerators", significant(value)),
        Objective::Energy => format!("of less than {} J per token", significant(value)),
    };
    let lower_bound = found
        .at_least
        .filter(|_| found.simulated > 0)
        .map_or_else(String::new, |value| format!("; no deployment {} meets the SLO", bound(value)));
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
fn none(found: &Plan) -> String {
    let verdict = match (found.is_open(), found.simulated) {
        (false, 0) if !found.unpriced.is_empty() && found.minimise != Objective::Accelerators => {
            "no deployment with a price meets the SLO; the nearest ones"
        }
        // Without a price the question has no answer yet, and these deployments are the nearest to the bounds.
        (false, _) if !found.unpriced.is_empty() => {
            "none of the deployments ranked by number meets the SLO; the nearest ones"
        }
        (false, _) => "no deployment meets the SLO; the nearest ones",
        (true, 0) => {
            return "unknown whether a deployment meets the SLO: none was simulated\n\n".to_owned();
        }
        (true, _) => "no simulated deployment meets the SLO; the nearest ones",
    };
    format!("{verdict}\n\n{}", near(&found.nearest))
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

fn counts(found: &Plan) -> String {
    let p = found.pruned;
    let text = format!(
        "{} deployments considered: {} do not fit, {} miss the SLO at the limit, {} in steady state; {} of {} \
         requests; {} more expensive ones skipped",
        grouped(found.considered),
        grouped(p.memory),
        grouped(p.limit),
        grouped(p.estimate),
        counted(found.simulated, "simulation"),
        grouped(found.requests),
        grouped(found.dearer),
    );
    table::line(&text) + "\n"
}

fn question(spec: &Spec, model: &Model, workload: &Workload, (slower, not_given): (f64, &[&str])) -> String {
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
    pairs.push(("SLO", slo(&spec.slo) + open));
    pairs.extend(defaults(not_given));
    pairs.push(("step times", price));
    table::pairs(&pairs)
}

/// Resolves a replica of a choice again, on this accelerator with this parallelism.
fn replica_of(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    (choice, accelerator, cut): (&Choice, &str, Cut),
) -> Result<Deployment> {
    let mut options = DeploymentOptions::of(spec);
    // Only searched keys are set, because the names of a checkpoint's own formats do not describe the formats
    // completely.
    let search = spec.search.clone().unwrap_or_default();
    if !search.weights.is_empty() {
        options.precision.weights = Some(choice.weights.clone());
    }
    if !search.kv.is_empty() {
        options.precision.kv = Some(choice.kv.clone());
    }
    options.parallelism = roofcast::parallelism::RequestedParallelism {
        tp: Some(cut.tp),
        pp: Some(cut.pp),
        ep: Some(cut.ep),
        attention_dp: Some(cut.attention_dp),
        ..Default::default()
    };
    let chip = catalog.accelerator(accelerator)?;
    let (options, chip) = options.counted(spec.hardware.convention, chip);
    Ok(Deployment::resolve(Arc::clone(model), Arc::new(chip), &options)?)
}

/// Limits and capacity of a replica of the best choice, whose steps take `slower` times the forecast.
fn best_in_detail(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    (best, ranked, slower): (&Choice, &[Choice], f64),
) -> Result<String> {
    let Some(workload) = spec.workload.clone() else { return Ok(String::new()) };
    let mut spec = spec.clone();
    if spec.engine.name() != best.engine {
        spec.engine.name = Some(best.engine.clone());
        spec.engine.version = None;
    }
    let Choice { tp, pp, ep, attention_dp, .. } = *best;
    let cut = Cut { tp, pp, ep, attention_dp };
    let replica = replica_of(&spec, model, catalog, (best, &best.accelerator, cut))?;
    let input = workload.input_mean() as u64;
    let output = workload.output_mean() as u64;
    let context = input + output;
    let full = CapacityQuestion { context, batch: 1, oversubscription_percent: 100, users: None };
    let room = capacity(&replica, &full);
    let question = LimitsQuestion {
        batch: best.batch.round().max(1.0) as u64,
        context: input + output / 2,
        prefill: input.max(1),
        utilization: Utilization::FULL,
    };
    let limit = limits(&Forecaster::embedded(replica)?.slowed(slower), &question);
    // In a disaggregated deployment, prompts are computed by prefill replicas.
    let prefill = match &best.prefill {
        None => limit.prefill.clone(),
        Some(pool) => {
            let replica = replica_of(&spec, model, catalog, (best, &pool.accelerator, pool.cut))?;
            limits(&Forecaster::embedded(replica)?.slowed(slower), &question).prefill
        }
    };
    let step = |c: &roofcast::cost::Cost| {
        let [limit, forecast] = [c.limit_with_communication.ms(), c.forecast.ms()].map(significant);
        format!("{limit} ms limit ({}-bound), {forecast} ms forecast", word(c.bound))
    };
    let kind = best.beside.as_ref().map_or_else(String::new, |_| format!(" on {}", best.accelerator));
    let mut pairs = vec![
        (
            "best",
            format!(
                "{} as {}, {} weights, {} KV: ${}/h, ${}/M tokens",
                best.hardware(),
                pools(best),
                best.weights,
                best.kv,
                dollars(best.cost_per_hour),
                dollars(best.cost_per_million_tokens)
            ),
        ),
        ("proof", proof(best)),
        ("decode step", format!("{} requests{kind}: {}", question.batch, step(&limit.decode))),
        ("prefill", format!("{} tokens{kind}: {}", grouped(question.prefill), step(&prefill))),
        (
            "capacity",
            format!(
                "{} KV tokens a replica{kind}, {} requests at full length",
                grouped(room.kv_tokens),
                grouped(room.max_batch)
            ),
        ),
        ("headroom", headroom(best)),
        ("bottleneck", bottleneck(best.bound).to_owned()),
        ("prefill:decode", format!("{} if disaggregated (replicas)", significant(best.prefill_per_decode))),
    ];
    pairs.extend(rests::interval(best));
    for (index, line) in rests::caveats(best, ranked, [&limit.decode, &prefill]).into_iter().enumerate() {
        pairs.insert(1 + index, line);
    }
    Ok(table::pairs(&pairs))
}

fn proof(best: &Choice) -> String {
    let gaps = best.bounds.iter().any(|bound| bound.metric == Metric::Itl.name());
    let times = Metric::OF_A_REQUEST.into_iter().chain(gaps.then_some(Metric::Itl)).map(|metric| {
        let (percentile, ms) = latency(best, metric);
        let bound = best.bounds.iter().find(|bound| bound.metric == metric.name());
        let seeds = bound.and_then(|bound| bound.over_seeds).map_or_else(String::new, |span| {
            let [least, most] = span.map(significant);
            format!(" ({least} to {most} over seeds)")
        });
        format!("{} {percentile} {} ms{seeds}", metric.name(), significant(ms))
    });
    let likely = best.chance.map_or_else(String::new, |c| format!("; {} likely to meet the SLO", chance(c)));
    let times = times.collect::<Vec<_>>().join(", ");
    format!("simulated: {times}; {}-bound{likely}", best.bound)
}

/// The resource that most of the busy time waits for.
fn bottleneck(bound: &str) -> &'static str {
    match bound {
        "compute" => "compute: most of the busy time is arithmetic",
        "communication" => "links: most of the busy time is communication",
        "host" => "host: most of the busy time is launches and scheduling; larger batches help",
        _ => "memory bandwidth: most of the busy time is reading weights and KV cache",
    }
}

fn headroom(best: &Choice) -> String {
    let bound = best.headroom.map(|h| match h.percentile {
        Some(percentile) => format!("{} {percentile} {} below its bound", h.metric, percent(h.share)),
        None => format!("{} {} above its minimum", h.metric, percent(h.share)),
    });
    let rate = best.max_requests_per_s.map(|rate| {
        let load =
            best.utilization.map_or_else(String::new, |u| format!(" (the load is {} of that)", percent(u)));
        format!("meets the SLO up to {} requests/s{load}", significant(rate))
    });
    let parts: Vec<String> = bound.into_iter().chain(rate).collect();
    if parts.is_empty() { "no bound".to_owned() } else { parts.join("; ") }
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

fn left_out(found: &Plan) -> String {
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
