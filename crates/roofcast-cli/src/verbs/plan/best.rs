//! The best deployment of a plan for people: hardware, formats, price, reason, latencies and certainty.
//!
//! Knows: limits and capacity of a replica, the proof and its chance, the money of the answer. Knows nothing about the
//! other sections of the text.

use super::goal::Goal;
use super::table::{chance, latency, pools, word};
use super::{Answer, rests};
use crate::show::number::{counted, dollars, grouped, percent, significant};
use crate::show::table;
use anyhow::Result;
use roofcast::capacity::{CapacityQuestion, capacity};
use roofcast::coefficients::Evidence;
use roofcast::cost::{Cost, Utilization};
use roofcast::deployment::DeploymentOptions;
use roofcast::limits::{LimitsQuestion, limits};
use roofcast::plan::{AgainstApi, Choice, ClassCost, Cut, Plan};
use roofcast::spec::{Metric, Objective};
use roofcast::workload::Workload;
use roofcast::{Catalog, Deployment, Forecaster, Model, Spec};
use std::sync::Arc;

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

/// Mean step and mean prompt of a replica, and the replica's capacity.
struct Replica {
    /// Requests of the mean step.
    batch: u64,
    decode: Cost,
    /// Tokens of the mean prompt.
    tokens: u64,
    prefill: Cost,
    kv_tokens: u64,
    max_batch: u64,
    /// Sentence that says which kernels nobody timed on the architecture.
    untimed: Option<String>,
}

impl Replica {
    /// A replica of `best`, whose steps are slower than forecast by the factor of `answer`'s measurements.
    fn of(
        spec: &Spec,
        model: &Arc<Model>,
        catalog: &Catalog,
        (best, answer): (&Choice, &Answer),
    ) -> Result<Replica> {
        let slower = answer.current.map_or(1.0, |current| current.slower);
        let mut spec = spec.clone();
        if spec.engine.name() != best.engine {
            spec.engine.name = Some(best.engine.clone());
            spec.engine.version = None;
        }
        let Choice { tp, pp, ep, attention_dp, .. } = *best;
        let cut = Cut { tp, pp, ep, attention_dp };
        let replica = replica_of(&spec, model, catalog, (best, &best.accelerator, cut))?;
        let workload = spec.workload.as_ref();
        let [input, output] = [workload.map(Workload::input_mean), workload.map(Workload::output_mean)]
            .map(|n| n.unwrap_or(1.0) as u64);
        let full = CapacityQuestion {
            context: input + output,
            batch: 1,
            oversubscription_percent: 100,
            users: None,
        };
        let held = capacity(&replica, &full);
        let question = LimitsQuestion {
            batch: best.batch.round().max(1.0) as u64,
            context: input + output / 2,
            prefill: input.max(1),
            utilization: Utilization::FULL,
        };
        let serving = Forecaster::embedded(replica)?.under(workload)?.slowed(slower);
        let limit = limits(&serving, &question);
        // In a disaggregated deployment, prompts are computed by prefill replicas.
        let prefill = match &best.prefill {
            None => limit.prefill,
            Some(pool) => {
                let replica = replica_of(&spec, model, catalog, (best, &pool.accelerator, pool.cut))?;
                limits(&Forecaster::embedded(replica)?.slowed(slower), &question).prefill
            }
        };
        Ok(Replica {
            batch: question.batch,
            decode: limit.decode,
            tokens: question.prefill,
            prefill,
            kv_tokens: held.kv_tokens,
            max_batch: held.max_batch,
            untimed: serving.not_measured(),
        })
    }
}

/// The best deployment with every figure.
pub(super) fn in_detail(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    (best, answer): (&Choice, &Answer),
) -> Result<String> {
    let replica = Replica::of(spec, model, catalog, (best, answer))?;
    let step = |c: &Cost| {
        let [limit, forecast] = [c.limit_with_communication.ms(), c.forecast.ms()].map(significant);
        format!("{limit} ms limit ({}-bound), {forecast} ms forecast", word(c.bound))
    };
    let kind = best.beside.as_ref().map_or_else(String::new, |_| format!(" on {}", best.accelerator));
    let mut pairs = vec![("best", named(best))];
    pairs.extend(without_pools(answer));
    pairs.extend(rests::caveats(best, &answer.plan.ranked, replica.untimed.as_deref()));
    pairs.extend(money(best, answer));
    pairs.extend([
        ("proof", proof(best)),
        ("decode step", format!("{} requests{kind}: {}", replica.batch, step(&replica.decode))),
        ("prefill", format!("{} tokens{kind}: {}", grouped(replica.tokens), step(&replica.prefill))),
        (
            "capacity",
            format!(
                "{} KV tokens a replica{kind}, {} requests at full length",
                grouped(replica.kv_tokens),
                grouped(replica.max_batch)
            ),
        ),
        ("headroom", headroom(best)),
        ("bottleneck", bottleneck(best)),
        ("prefill:decode", format!("{} if disaggregated (replicas)", significant(best.prefill_per_decode))),
    ]);
    pairs.extend(rests::interval(best));
    Ok(table::pairs(&pairs))
}

/// The best deployment in a few lines: price, reason for the choice, latencies beside the SLO, chance and evidence.
pub(super) fn in_brief(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    (best, answer): (&Choice, &Answer),
) -> Result<String> {
    let replica = Replica::of(spec, model, catalog, (best, answer))?;
    let mut pairs = vec![("best", named(best))];
    pairs.extend(money(best, answer));
    pairs.push(("why", why(answer.plan)));
    pairs.extend(without_pools(answer));
    pairs.push(("meets", format!("{}; {}", times(best, false), headroom(best))));
    let caveats = rests::caveats(best, &answer.plan.ranked, replica.untimed.as_deref());
    pairs.extend(sure(best).map(|text| ("sure", text)));
    match caveats.is_empty() {
        true => pairs.extend(rests::basis_of(best).map(|text| ("evidence", text))),
        false => pairs.extend(caveats),
    }
    pairs.push(("bottleneck", bottleneck(best)));
    Ok(table::pairs(&pairs))
}

/// Accelerators, parallelism, formats and prices.
fn named(best: &Choice) -> String {
    format!(
        "{} as {}, {} weights, {} KV: ${}/h, ${}/M output tokens",
        best.hardware(),
        pools(best),
        best.weights,
        best.kv,
        dollars(best.cost_per_hour),
        dollars(best.cost_per_million_tokens)
    )
}

/// Dollars of a request, of an offline job, and against an API's prices.
fn money(best: &Choice, answer: &Answer) -> Vec<(&'static str, String)> {
    let each =
        best.cost_per_request.map(|usd| ("a request", format!("${} per 1,000", significant(usd * 1e3))));
    let classes = Some(best).filter(|best| !best.classes.is_empty()).map(|best| ("by class", by_class(best)));
    let job = answer.job.and_then(|job| job.done(best)).map(|text| ("the job", text));
    let api = answer.plan.against_api.as_ref().map(|api| ("against API", against(api, best)));
    each.into_iter().chain(classes).chain(job).chain(api).collect()
}

/// The part of the cost that each class of requests has.
fn by_class(best: &Choice) -> String {
    let class = |class: &ClassCost| {
        let each = class.dollars_per_request;
        let each = each.map_or_else(String::new, |usd| format!(", ${} per 1,000", significant(usd * 1e3)));
        format!("{} {} of the cost{each}", class.name, percent(class.share))
    };
    best.classes.iter().map(class).collect::<Vec<_>>().join("; ")
}

/// The comparison with an API in words.
fn against(api: &AgainstApi, best: &Choice) -> String {
    let verdict = if api.beats { "yes" } else { "no" };
    let cached = api.cached.map_or_else(String::new, |usd| format!(" (${usd} cached)"));
    let from = match (api.beats, api.reached) {
        (false, Some(false)) => format!(
            "; it would from {}/s on, which is more than it carries{}",
            significant(api.from_requests_per_s),
            if best.bounds.is_empty() { "" } else { " within the SLO" }
        ),
        (_, _) => format!("; from {}/s on", significant(api.from_requests_per_s)),
    };
    format!(
        "beats ${} in{cached} + ${} out per million: {verdict}, at {}/s (${} per 1,000 requests against ${}){from}",
        api.input,
        api.output,
        significant(api.requests_per_s),
        best.cost_per_request.map_or_else(|| "–".to_owned(), |usd| significant(usd * 1e3)),
        significant(api.api_dollars_per_request * 1e3),
    )
}

/// The reason for which no other deployment is the best.
fn why(found: &Plan) -> String {
    let least = match found.minimise {
        _ if !found.confident => "most likely",
        Objective::CostPerHour => "cheapest",
        Objective::CostPerMillionTokens => "cheapest per output token",
        Objective::Accelerators => "fewest accelerators",
        Objective::Energy => "least energy per output token",
    };
    let p = found.pruned;
    let bounded = found.best.as_ref().is_none_or(|best| !best.bounds.is_empty());
    let [limit, steady, simulated, unlikely, behind] = match bounded {
        true => [
            "miss the SLO at the limit",
            "miss it in steady state",
            "miss it when simulated",
            "are cheaper and too unlikely to meet it",
            "meet it and rank behind",
        ],
        false => [
            "do not carry the load at the limit",
            "do not in steady state",
            "do not when simulated",
            "are cheaper and too unlikely to carry it",
            "carry it and rank behind",
        ],
    };
    let cheaper = found.cheaper.len() as u64;
    let others = [
        (p.memory, "do not fit"),
        (p.limit, limit),
        (p.estimate, steady),
        (found.missed, simulated),
        (cheaper, unlikely),
        (found.feasible.saturating_sub(cheaper + 1), behind),
        (found.dearer, "are more expensive"),
        (found.unjudged, "were not judged"),
    ];
    let some = others.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = some.map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
    let of = counted(found.considered, "deployment");
    if parts.is_empty() {
        format!("{least} of {of}")
    } else {
        format!("{least} of {of}: {}", parts.join(", "))
    }
}

/// Result of the best deployment without pools, where the best has pools.
fn without_pools(answer: &Answer) -> Option<(&'static str, String)> {
    let rival = answer.plan.without_pools.as_ref()?;
    let dollars = dollars(rival.cost_per_hour);
    Some(("without pools", format!("{}, ${dollars}/h: {}", rival.deployment, rival.reason)))
}

/// The chance, and the intervals of bounded latencies.
fn sure(best: &Choice) -> Option<String> {
    let intervals: Vec<String> = best
        .bounds
        .iter()
        .filter_map(|bound| {
            let [low, high] = bound.interval?.map(significant);
            Some(format!("{} {} {low} to {high} ms", bound.metric, bound.percentile))
        })
        .collect();
    let goal = Goal::of(!best.bounds.is_empty());
    let untimed = best.evidence.is_some_and(|evidence| evidence <= Evidence::Family);
    let provided =
        if untimed { ", if kernels that nobody timed err no more than those that were" } else { "" };
    let likely = format!("{} likely to {}{provided}", chance(best.chance?), goal.meet);
    Some(match intervals.is_empty() {
        true => likely,
        false => format!("{likely}; in 8 of 10 cases {}", intervals.join(", ")),
    })
}

fn proof(best: &Choice) -> String {
    let goal = Goal::of(!best.bounds.is_empty());
    let likely = best.chance.map_or_else(String::new, |c| format!("; {} likely to {}", chance(c), goal.meet));
    format!("simulated: {}; {}-bound{likely}", times(best, true), best.bound)
}

/// Latencies of the simulation, each at its highest bounded percentile, with their range over seeds if `seeds` is set.
fn times(best: &Choice, seeds: bool) -> String {
    let gaps = best.bounds.iter().any(|bound| bound.metric == Metric::Itl.name());
    let time = |metric: Metric| {
        let (percentile, ms) = latency(best, metric);
        let bound = best.bounds.iter().find(|bound| bound.metric == metric.name());
        let span = bound.and_then(|bound| bound.over_seeds).filter(|_| seeds);
        let span = span.map_or_else(String::new, |span| {
            let [least, most] = span.map(significant);
            format!(" ({least} to {most} over seeds)")
        });
        format!("{} {percentile} {} ms{span}", metric.name(), significant(ms))
    };
    let metrics = Metric::OF_A_REQUEST.into_iter().chain(gaps.then_some(Metric::Itl));
    metrics.map(time).collect::<Vec<_>>().join(", ")
}

/// The resource that most of the busy time waits for.
fn bottleneck(best: &Choice) -> String {
    let flag = best.lifted_by.as_ref().map_or_else(String::new, |flag| format!("; {flag} lifts it"));
    let resource = match best.bound {
        "compute" => "compute: most of the busy time is arithmetic",
        "communication" => "links: most of the busy time is communication",
        "host" => "host: most of the busy time is launches and scheduling; larger batches help",
        "server" => "server: most steps last as long as its messages to clients",
        _ => "memory bandwidth: most of the busy time is reading weights and KV cache",
    };
    resource.to_owned() + &flag
}

fn headroom(best: &Choice) -> String {
    let bound = best.headroom.map(|h| match h.percentile {
        Some(percentile) => format!("{} {percentile} {} below its bound", h.metric, percent(h.share)),
        None => format!("{} {} above its minimum", h.metric, percent(h.share)),
    });
    let rate = best.max_requests_per_s.map(|rate| {
        let load =
            best.utilization.map_or_else(String::new, |u| format!(" (the load is {} of that)", percent(u)));
        let least = if best.beyond_tried() { " or more" } else { "" };
        let goal = Goal::of(!best.bounds.is_empty());
        format!("{} up to {} requests/s{least}{load}", goal.meets, significant(rate))
    });
    let parts: Vec<String> = bound.into_iter().chain(rate).collect();
    if parts.is_empty() { "no bound".to_owned() } else { parts.join("; ") }
}
