//! The planner: finds the cheapest deployment that meets the SLO, proven by simulation.
//!
//! Knows: the stages of a search and their order. [`space`] enumerates the deployments; memory, the limit and a steady
//! state on means rule out infeasible ones ([`feasibility`]); the remaining ones are simulated, cheapest first, until
//! one meets the SLO ([`search`], [`proof`]); for the best one, the maximum load and the effects of changes are then
//! determined. Knows nothing about cores: a [`Runner`] runs simulations, and returns their results in order.

mod against_api;
mod answer;
mod apart;
mod bounded;
mod chance;
mod chips;
mod class_cost;
mod current;
mod curves;
mod demand;
mod deployed;
mod estimate;
mod exchange;
mod feasibility;
mod image;
mod largest;
mod launch;
mod link;
mod manifest;
mod margins;
mod mixed;
mod near;
mod nodes;
mod over_time;
mod pareto;
mod proof;
mod quality;
mod refused;
mod search;
mod space;
mod told;
mod why;

pub use against_api::AgainstApi;
pub use answer::{Choice, FlopsPerDollar, LeftOut, Plan, PoolChoice, Pruned, SmallestCount, Times, WhatIf};
pub use bounded::{Bounded, against};
pub use chance::step_band;
pub use class_cost::ClassCost;
pub use current::{Alternative, Current, current};
pub use curves::{AtSpeed, Curve, CurvePoint, Curves, curves};
pub use feasibility::{Miss, SearchStage};
pub use largest::{Largest, Range};
pub use launch::{Launch, ReplicaRole, launches};
pub use near::Near;
pub use over_time::{OverTime, ScheduleInterval};
pub use pareto::front;
pub use proof::{Headroom, Runner, Trial, in_turn, judged_load, missed};
pub use quality::Quality;
pub use space::Cut;

use demand::TrafficDemand;
use feasibility::Judge;
use manifest::{Served, manifests};
use roofcast_ask::deployment::support;
use roofcast_ask::spec::{CostKind, Spec};
use roofcast_ask::workload::Workload;
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::kernel_time;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use search::{Judged, Proven, Search};
use space::{Candidate, CandidatePool, SearchSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most misses that are reported if no deployment meets the SLO.
const NEAREST: usize = 5;

/// Options of a plan.
pub struct PlanQuestion<'a> {
    /// True to simulate every deployment that fits, without ruling out any by the limit or the estimate.
    pub exhaustive: bool,
    /// Name of deployments to explain, as in `accelerator=h100-sxm,tp=4,replicas=2`.
    pub why: Option<&'a str>,
    /// Function that runs simulations.
    pub runner: Runner<'a>,
    /// Function that is called with the number of simulations and the number of judged deployments.
    pub progress: &'a dyn Fn(u64, u64),
    /// Function that returns false to stop; the plan then holds the results up to that point.
    pub goes_on: &'a dyn Fn() -> bool,
    /// Factor of measured over forecast step times, measured on the current deployment.
    pub slower: f64,
}

impl Default for PlanQuestion<'_> {
    fn default() -> Self {
        PlanQuestion {
            exhaustive: false,
            why: None,
            runner: &in_turn,
            progress: &|_, _| {},
            goes_on: &|| true,
            slower: 1.0,
        }
    }
}

/// Searches for the best deployment for the workload and SLO of `spec`.
///
/// # Errors
/// The spec has no workload, or sets keys that a plan decides; the search contradicts itself; a format or chip is
/// unknown.
pub fn plan(spec: &Spec, model: &Arc<Model>, catalog: &Catalog, question: &PlanQuestion) -> Result<Plan> {
    let missing =
        || Error::field("spec", "workload", "missing", "[workload] with arrivals, input_len, output_len");
    let workload = spec.workload.as_ref().ok_or_else(missing)?;
    refused::check(spec, workload)?;
    support::check_answers("spec", model, workload)?;
    let requests = proof::asked(spec)?;
    let over_time = over_time::asked(spec, workload)?;
    let demand = TrafficDemand::of(workload, "spec")?;
    refused::too_long(spec, model, demand.full())?;
    let space = SearchSpace::of(spec, model, catalog, demand.shared)?;
    let judge = Judge::new(spec, model, &space, &demand, question.slower)?;
    let candidates = candidates(&judge)?;
    let search = spec.search.clone().unwrap_or_default();
    let mut base = spec.clone();
    base.workload = Some(proof::lengthened(workload, &demand, &spec.slo, requests));
    let mut search_state = Search {
        judge: &judge,
        candidates: &candidates,
        base: &base,
        objective: search.minimise,
        confidence: search.confidence(),
        runner: question.runner,
        progress: question.progress,
        goes_on: question.goes_on,
        judged: vec![Judged::MoreExpensive; candidates.len()],
        simulated: 0,
        prices: Arc::default(),
    };
    let unpriced = search_state.fall_back();
    search_state.run(question.exhaustive)?;
    let rival = why::without_pools(&mut search_state)?;
    let nearest = why::nearest(&mut search_state, NEAREST)?;
    let named = question.why.map(|named| why::asked(&mut search_state, named)).transpose()?;
    let mut plan = answer(&search_state, nearest, named.unwrap_or_default())?;
    plan.unpriced = unpriced;
    plan.without_pools = rival;
    if plan.best.is_none() {
        plan.assumptions.clone_from(&model.assumptions);
    }
    let mut plan = margins::explored(&mut search_state, plan)?;
    let against = search.against_api.zip(plan.best.as_ref());
    plan.against_api = against.and_then(|(prices, best)| {
        let rate = demand.rate.unwrap_or(best.output_tok_s / demand.output);
        let most = best.max_requests_per_s.map(|most| (most, !best.beyond_tried()));
        Some(AgainstApi::at(prices, best.cost_per_hour?, &demand, (rate, most)))
    });
    if let Some((asked, best)) = over_time.zip(plan.best.as_ref().map(|best| best.index)) {
        plan.over_time = over_time::over_time(&mut search_state, best, asked)?;
        plan.simulated = search_state.simulated;
    }
    Ok(plan)
}

/// All deployments of the search. Disaggregated deployments are combined from shapes that hold the model.
fn candidates(judge: &Judge) -> Result<Vec<Candidate>> {
    let fit = |shape: &usize| judge.estimate(*shape).is_some();
    let shapes: Vec<usize> = (0..judge.space.shapes.len()).filter(fit).collect();
    let mut all: Vec<Candidate> = shapes.iter().flat_map(|shape| judge.space.together(*shape)).collect();
    let fitting: Vec<usize> = shapes.into_iter().filter(|shape| judge.holds(*shape).is_none()).collect();
    if judge.apart() {
        all.extend(apart::apart(judge, &fitting)?);
    }
    if judge.spec.search.as_ref().is_some_and(|search| search.mixed) {
        all.extend(mixed::mixed(judge, &fitting)?);
    }
    Ok(all)
}

fn answer(found: &Search, nearest: Vec<Near>, why: Vec<Near>) -> Result<Plan> {
    let priced = found.ranked();
    let ranked: Vec<Choice> = priced.iter().map(|(index, proven)| choice(found, *index, proven)).collect();
    let value = |choice: &Choice| {
        let proven = priced.iter().find(|(index, _)| *index == choice.index);
        proven.map_or(f64::INFINITY, |(index, proven)| found.value_of(*index, &proven.run))
    };
    let mut seen = BTreeSet::new();
    let by_accelerator = ranked.iter().filter(|c| seen.insert(c.accelerators())).cloned().collect::<Vec<_>>();
    let mut pruned = Pruned::default();
    let mut dearer = 0;
    let mut missed = 0;
    let interrupted = !(found.goes_on)();
    let best_value = ranked.first().map_or(f64::INFINITY, &value);
    let likely = |choice: &Choice| choice.chance.is_none_or(|chance| chance >= found.confidence);
    let open = found.open(best_value).filter(|_| interrupted);
    let served =
        priced.first().map(|(index, _)| served(found, &found.candidates[*index])).unwrap_or_default();
    // Settings of one engine are proven for that engine alone.
    let launch = |pool: &Served| {
        let engine = pool.deployment.engine.kind().name();
        let all = launches(pool.deployment, pool.model, pool.role, pool.replicas);
        all.into_iter().filter(move |launch| launch.engine == engine)
    };
    let shapes = || found.judge.fitted.iter().flatten().map(|fitted| &fitted.forecaster.deployment);
    let weights: Vec<String> = shapes().map(|d| d.weights.clone()).collect();
    let kv: Vec<String> = shapes().map(|d| d.kv.name.to_owned()).collect();
    for judged in &found.judged {
        match judged {
            Judged::Missed(miss) if miss.stage == SearchStage::Memory => pruned.memory += 1,
            Judged::Missed(miss) if miss.stage == SearchStage::Limit => pruned.limit += 1,
            Judged::Missed(miss) if miss.stage == SearchStage::Estimate => pruned.estimate += 1,
            Judged::MoreExpensive => dearer += 1,
            Judged::Missed(_) => missed += 1,
            Judged::Meets(_) => {}
        }
    }
    Ok(Plan {
        considered: found.candidates.len() as u64,
        pruned,
        simulated: found.simulated,
        // A search that was stopped may also have skipped deployments with a lower objective.
        dearer: dearer - open.map_or(0, |(_, count)| count),
        feasible: ranked.len() as u64,
        missed,
        requests: found.base.workload.as_ref().map_or(0, Workload::total),
        interrupted,
        at_least: open.map(|(value, _)| value.min(best_value)),
        unjudged: open.map_or(0, |(_, count)| count),
        assumptions: assumptions(&served),
        confidence: found.confidence,
        confident: ranked.first().is_some_and(likely),
        best: ranked.first().cloned(),
        cheaper: ranked.iter().filter(|c| !likely(c) && value(c) < best_value).cloned().collect(),
        pareto: by_price(front(ranked.clone(), |c| vec![value(c), c.tpot_ms, c.ttft_ms]), value),
        pareto_throughput: by_throughput(&ranked),
        by_accelerator,
        ranked,
        nearest,
        not_searched: found.judge.space.not_searched.clone(),
        minimise: found.objective,
        unpriced: Vec::new(),
        left_out: left_out(found),
        not_apart: if found.judge.apart() { apart::left_out(found.judge) } else { Vec::new() },
        smallest: smallest(found),
        what_if: Vec::new(),
        over_time: None,
        against_api: None,
        without_pools: None,
        why,
        launch: served.iter().flat_map(launch).collect(),
        manifests: if served.is_empty() { Vec::new() } else { manifests(&served) },
        quality: quality::notes(&weights, &kv)?,
        flops_per_dollar: found.judge.space.chips.iter().filter_map(|c| flops_per_dollar(c)).collect(),
    })
}

/// Choices in ascending order of the objective, and of TPOT where that is equal.
fn by_price(mut choices: Vec<Choice>, value: impl Fn(&Choice) -> f64) -> Vec<Choice> {
    choices.sort_by(|a, b| value(a).total_cmp(&value(b)).then(a.tpot_ms.total_cmp(&b.tpot_ms)));
    choices
}

/// Choices that no other choice beats in both output tokens per second per accelerator and interactivity, in order of
/// descending tokens.
fn by_throughput(ranked: &[Choice]) -> Vec<Choice> {
    let axes = |c: &Choice| vec![-c.output_tok_s_per_accelerator, -c.interactivity_tok_s];
    let mut all = front(ranked.to_vec(), axes);
    all.sort_by(|a, b| b.output_tok_s_per_accelerator.total_cmp(&a.output_tok_s_per_accelerator));
    all
}

/// The pools of a deployment, each with the model that it serves.
fn served<'a>(found: &'a Search, candidate: &Candidate) -> Vec<Served<'a>> {
    // The Hugging Face id that the user gave; it may be a fine-tune of the catalog's entry.
    let named = found.base.model.name.as_deref().filter(|name| name.contains('/'));
    let decode = if candidate.prefill.is_some() { ReplicaRole::Decode } else { ReplicaRole::Replica };
    let prefill = candidate.prefill.map(|pool| (pool, ReplicaRole::Prefill));
    let beside = candidate.beside.map(|pool| (pool, ReplicaRole::Beside));
    let pools = prefill.into_iter().chain([(candidate.serving, decode)]).chain(beside);
    pools
        .filter_map(|(pool, role)| {
            let deployment = &found.judge.fitted[pool.shape].as_ref().ok()?.forecaster.deployment;
            let model = named.unwrap_or(&deployment.model.name);
            Some(Served { deployment, model, role, replicas: pool.replicas })
        })
        .collect()
}

/// The assumptions about the served deployments, each once.
fn assumptions(served: &[Served]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = served.iter().flat_map(|pool| &pool.deployment.assumptions);
    all.filter(|assumption| seen.insert(*assumption)).cloned().collect()
}

/// The reported form of a deployment that met the SLO in a simulation.
fn choice(found: &Search, index: usize, proven: &Proven) -> Choice {
    let run = &proven.run;
    let judge = found.judge;
    let candidate = &found.candidates[index];
    let serving = candidate.serving;
    let shape = &judge.space.shapes[serving.shape];
    let cut = shape.cut;
    let estimate = judge.estimate(serving.shape);
    let prefiller = judge.estimate(candidate.prefill.unwrap_or(serving).shape);
    let forecaster = judge.fitted[serving.shape].as_ref().ok().map(|f| &f.forecaster);
    let deployment = forecaster.map(|f| &f.deployment);
    let s = &run.summary;
    let count = candidate.accelerators;
    let output_tok_s = judge.demand.output_per_s().unwrap_or(s.output_throughput());
    let cost_per_hour = found.per_hour(candidate);
    let pool = |pool| pool_choice(judge.space, pool);
    let prefill = candidate.prefill.map(pool);
    let beside = candidate.beside.map(pool);
    let spec = judge.deployed(found.base, candidate);
    let [limit_prefill, prefill_ms] = prefiller.map_or([0.0; 2], |e| [e.prompt.limit_ms, e.prompt.ms]);
    Choice {
        index,
        accelerator: shape.chip.id.clone(),
        count,
        tp: cut.tp,
        pp: cut.pp,
        ep: cut.ep,
        attention_dp: cut.attention_dp,
        replicas: serving.replicas,
        prefill,
        beside,
        weights: deployment.map_or_else(String::new, |d| d.weights.clone()),
        kv: deployment.map_or_else(String::new, |d| d.kv.name.to_owned()),
        engine: spec.engine.name().to_owned(),
        router: spec.fleet.router.name(),
        enable_chunked_prefill: run.settings.enable_chunked_prefill,
        enable_prefix_caching: run.settings.enable_prefix_caching,
        host_tier_gib: spec.engine.vllm.kv_offloading_size.filter(|gib| *gib > 0.0),
        num_speculative_tokens: spec.engine.speculative.as_ref().map(|s| s.num_speculative_tokens),
        max_num_batched_tokens: u64::from(run.settings.max_num_batched_tokens),
        max_num_seqs: run.settings.max_num_seqs,
        batch: run.activity.mean_running,
        max_batch: estimate.map_or(0, |e| e.held),
        tpot_ms: s.tpot.mean,
        tpot_p99_ms: s.tpot.p99,
        ttft_ms: s.ttft.mean,
        ttft_p99_ms: s.ttft.p99,
        e2el_ms: s.e2el.mean,
        e2el_p99_ms: s.e2el.p99,
        itl_p99_ms: s.itl.p99,
        limit: Times { tpot_ms: run.limit_tpot_ms.min(s.tpot.mean), prefill_ms: limit_prefill },
        forecast: Times { tpot_ms: s.tpot.mean, prefill_ms },
        bound: run.bound,
        lifted_by: run.lifted_by.clone(),
        stage: SearchStage::Simulation,
        evidence: run.bands.as_ref().map(|b| b.evidence),
        kernels: forecaster.and_then(|f| timed(f, found.base.engine.cost)),
        bounds: bounded::bounded(proven, &found.base.slo),
        headroom: proof::headroom(run, &found.base.slo),
        chance: proven.chance(),
        max_requests_per_s: None,
        utilization: None,
        output_tok_s,
        output_tok_s_per_accelerator: output_tok_s / count as f64,
        interactivity_tok_s: if s.tpot.mean > 0.0 { 1e3 / s.tpot.mean } else { 0.0 },
        cost_per_hour,
        cost_per_million_tokens: cost_per_hour.map(|usd| usd / 3600.0 / output_tok_s * 1e6),
        cost_per_request: cost_per_hour.map(|usd| usd / 3600.0 * judge.demand.output / output_tok_s),
        classes: ClassCost::of(run, cost_per_hour, output_tok_s / judge.demand.output),
        joules_per_token: run.expense.watts.map(|watts| watts / output_tok_s),
        grams_co2e_per_million_tokens: answer::emitted(found.base, run.expense.watts, output_tok_s),
        prefill_per_decode: estimate.map_or(0.0, estimate::Estimate::prefill_per_decode),
        bands: run.bands.clone().filter(|_| found.base.engine.cost == CostKind::Forecast),
        spec: deployed::sections(found.base, &spec, deployment.map(|d| &*d.model)),
        dropped: deployed::dropped(found.base, &spec),
    }
}

fn pool_choice(space: &SearchSpace, pool: CandidatePool) -> PoolChoice {
    let shape = &space.shapes[pool.shape];
    PoolChoice { accelerator: shape.chip.id.clone(), replicas: pool.replicas, cut: shape.cut }
}

/// The measured kernel times on which a forecast is based; `None` at the limit.
fn timed(forecaster: &Forecaster, cost: CostKind) -> Option<kernel_time::Timed> {
    let d = &forecaster.deployment;
    let kernels = &forecaster.coefficients.kernels;
    kernel_time::timed(kernels, &d.engine.release, &d.weights, &d.accelerator)
        .filter(|_| cost == CostKind::Forecast)
}

/// Reasons for skipped deployments by chip, stage and metric, in order of descending frequency.
fn left_out(found: &Search) -> Vec<LeftOut> {
    let space = found.judge.space;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (shape, fitted) in space.shapes.iter().zip(&found.judge.fitted) {
        if let Err(reason) = fitted {
            let ranks = shape.cut.ranks();
            *counts
                .entry(format!("{} (tp {}, {ranks} ranks): {reason}", shape.chip.id, shape.cut.tp))
                .or_default() += 1;
        }
    }
    for (candidate, judged) in found.candidates.iter().zip(&found.judged) {
        let reason = match judged {
            Judged::Missed(miss) => match (miss.stage, miss.reason.split_once(':')) {
                (SearchStage::Memory, _) => "it does not fit".to_owned(),
                (SearchStage::Limit, Some((metric, _))) => format!("{metric} is missed at the limit"),
                (SearchStage::Limit, None) => "the load is beyond the limit".to_owned(),
                (SearchStage::Estimate, Some((metric, _))) => format!("{metric} is missed in steady state"),
                (SearchStage::Estimate, None) => "the load is more than it serves in steady state".to_owned(),
                (SearchStage::Simulation, _) => "the SLO is missed when simulated".to_owned(),
            },
            Judged::MoreExpensive if found.value(candidate).is_none() => {
                "no price or power in the catalog".to_owned()
            }
            Judged::MoreExpensive | Judged::Meets(_) => continue,
        };
        let sides = space.sides(candidate).into_iter().rev().flatten();
        let chips: Vec<&str> = sides.map(|(chip, _)| chip.id.as_str()).collect();
        *counts.entry(format!("{}: {reason}", chips.join(" + "))).or_default() += 1;
    }
    let mut all: Vec<LeftOut> = counts.into_iter().map(|(reason, count)| LeftOut { reason, count }).collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then(a.reason.cmp(&b.reason)));
    all
}

/// For each accelerator, the smallest replica that holds the model and one request.
fn smallest(found: &Search) -> Vec<SmallestCount> {
    let judge = found.judge;
    let holds = |shape: &usize| judge.estimate(*shape).is_some() && judge.holds(*shape).is_none();
    let launch_on = |chip: &Arc<Accelerator>| {
        let shapes = (0..judge.space.shapes.len()).filter(holds);
        let on_chip = shapes.filter(|shape| judge.space.shapes[*shape].chip.id == chip.id);
        let smallest_shape = on_chip.min_by_key(|shape| judge.space.shapes[*shape].cut.ranks())?;
        let deployment = &judge.fitted[smallest_shape].as_ref().ok()?.forecaster.deployment;
        let count = judge.space.shapes[smallest_shape].cut.ranks();
        Some(SmallestCount { accelerator: chip.id.clone(), count, weights: deployment.weights.clone() })
    };
    judge.space.chips.iter().filter_map(launch_on).collect()
}

/// Peak 16-bit operations that one dollar buys: peak per second × 3600 / hourly price; `None` without a price.
pub fn flops_per_dollar(chip: &Accelerator) -> Option<FlopsPerDollar> {
    let usd_per_hour = chip.price.as_ref()?.usd_per_hour;
    let peak = chip.peak(chip.sixteen_bit(roofcast_facts::precision::Dtype::Bf16)).ok()?;
    Some(FlopsPerDollar {
        accelerator: chip.id.clone(),
        usd_per_hour,
        flops_per_dollar: peak.0 * 3600.0 / usd_per_hour,
    })
}
