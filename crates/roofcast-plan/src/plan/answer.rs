//! The answer of a plan.
//!
//! Knows: the data that are reported for simulated deployments and for others. Knows nothing about the search.

use super::against_api::AgainstApi;
use super::bounded::Bounded;
use super::class_cost::ClassCost;
use super::feasibility::SearchStage;
use super::launch::Launch;
use super::manifest::Manifest;
use super::near::Near;
use super::over_time::OverTime;
use super::proof::Headroom;
use super::quality::Quality;
use super::space::{Candidate, CandidatePool, Cut, SearchSpace};
use roofcast_ask::carbon::Grid;
use roofcast_ask::spec::{Metric, Objective, Percentile, Slo, Spec};
use roofcast_ask::summary::RunSummary;
use roofcast_cost::bands::Bands;
use roofcast_cost::coefficients::Evidence;
use roofcast_cost::kernel_time::Timed;
use serde::Serialize;

/// The answer of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// Number of deployments in the search.
    pub considered: u64,
    /// Numbers of deployments that were ruled out without a simulation, by stage.
    pub pruned: Pruned,
    /// Number of simulated deployments.
    pub simulated: u64,
    /// Number of deployments that were skipped because their objective is worse than the best one's.
    pub dearer: u64,
    /// Number of simulated deployments that met the SLO.
    pub feasible: u64,
    /// Number of simulated deployments that missed the SLO.
    pub missed: u64,
    /// Number of requests in a simulation.
    pub requests: u64,
    /// Required probability of meeting the SLO.
    pub confidence: f64,
    /// True if the best deployment has the required probability; otherwise the best is the most likely one.
    pub confident: bool,
    /// True if the search was stopped before it ended.
    pub interrupted: bool,
    /// Lower bound of the objective over all deployments that meet the SLO, for a search that was stopped.
    pub at_least: Option<f64>,
    /// Number of unjudged deployments whose objective is at most the best one's, for a search that was stopped.
    pub unjudged: u64,
    /// Assumptions about the best deployment; about the model if no deployment met the SLO.
    pub assumptions: Vec<String>,
    /// The deployment with the lowest objective among the ones with the required probability; `None` if no deployment
    /// met the SLO.
    pub best: Option<Choice>,
    /// Deployments with a lower objective that meet the SLO in the forecast, but with less than the required
    /// probability.
    pub cheaper: Vec<Choice>,
    /// Pareto front over objective, TPOT and TTFT, in order of ascending objective.
    pub pareto: Vec<Choice>,
    /// Pareto front over output tokens per second per accelerator and interactivity, in order of descending tokens.
    pub pareto_throughput: Vec<Choice>,
    /// For each accelerator the deployment with the lowest objective, in order of ascending objective.
    pub by_accelerator: Vec<Choice>,
    /// All deployments that met the SLO in the forecast, best first; the ones with the required probability precede the
    /// others.
    pub ranked: Vec<Choice>,
    /// The nearest misses, if no deployment met the SLO.
    pub nearest: Vec<Near>,
    /// Accelerators outside the search: if the search lists accelerators, other ones with a price; else accelerators
    /// without a price.
    pub not_searched: Vec<String>,
    /// Objective by which deployments are ranked: the number of accelerators if the requested one is known of none.
    pub minimise: Objective,
    /// Accelerators of the search without the price or power that the requested objective needs.
    pub unpriced: Vec<String>,
    /// Reasons for skipped deployments, each with a count.
    pub left_out: Vec<LeftOut>,
    /// Engines that were not considered for disaggregation, each with the reason; empty if disaggregation was not
    /// requested.
    pub not_apart: Vec<String>,
    /// For each accelerator, the smallest number that holds the model and one request.
    pub smallest: Vec<SmallestCount>,
    /// Effects of changes on the best deployment.
    pub what_if: Vec<WhatIf>,
    /// Replicas of the best deployment over time, if `search.interval_s` asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
    /// The best deployment against an API's prices, if `search.against_api` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_api: Option<AgainstApi>,
    /// If the best deployment is disaggregated, the best one that is not: with its chance if it meets the SLO, else with the
    /// reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_pools: Option<Near>,
    /// Results of the deployments that the user asked about by name.
    pub why: Vec<Near>,
    /// Commands that start the best deployment with its engine, one for each pool.
    pub launch: Vec<Launch>,
    /// Manifests that start the best deployment on clusters.
    pub manifests: Vec<Manifest>,
    /// Measured effects of the considered formats on quality.
    pub quality: Vec<Quality>,
    /// Peak arithmetic per dollar, by accelerator.
    pub flops_per_dollar: Vec<FlopsPerDollar>,
}

impl Plan {
    /// True if the search was stopped before all deployments were judged.
    pub fn is_open(&self) -> bool {
        self.interrupted && self.unjudged + self.dearer > 0
    }
}

/// Number of deployments that each stage ruled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pruned {
    /// Deployments that do not fit in memory.
    pub memory: u64,
    /// Deployments whose limit misses the SLO.
    pub limit: u64,
    /// Deployments whose steady state misses the SLO.
    pub estimate: u64,
}

/// A reason, and the number of deployments that were skipped for this reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Text of the reason.
    pub reason: String,
    /// Number of deployments.
    pub count: u64,
}

/// The smallest number of accelerators of one kind that holds the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SmallestCount {
    /// Catalog id of the accelerator.
    pub accelerator: String,
    /// Number of accelerators.
    pub count: u64,
    /// Weight format.
    pub weights: String,
}

/// A change, and its effect on the best deployment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIf {
    /// Text of the change.
    pub change: String,
    /// True if the best deployment still meets the SLO after the change.
    pub meets: bool,
    /// Text of the margin, or of the reason if the SLO is missed.
    pub because: String,
    /// Probability of meeting the SLO, from the bands of forecasts; `None` if the forecast misses the SLO, and at the
    /// limit.
    pub chance: Option<f64>,
    /// Number of replicas with which the SLO is met; `None` if it is met already, or with none of the numbers that were
    /// tried.
    pub replicas: Option<u64>,
}

/// One pool of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolChoice {
    /// Catalog id of the accelerator.
    pub accelerator: String,
    /// Number of replicas in the pool.
    pub replicas: u64,
    /// Parallelism of each replica.
    #[serde(flatten)]
    pub cut: Cut,
}

/// One simulated deployment, with its results under the workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Choice {
    /// Index of the deployment in the search.
    #[serde(skip)]
    pub(super) index: usize,
    /// Catalog id of the accelerator of the decode replicas.
    pub accelerator: String,
    /// Total number of accelerators.
    pub count: u64,
    /// Tensor-parallel degree of the decode replicas.
    pub tp: u64,
    /// Number of pipeline stages.
    pub pp: u64,
    /// Number of expert-parallel ranks.
    pub ep: u64,
    /// Number of data-parallel ranks of attention.
    pub attention_dp: u64,
    /// Number of replicas that decode; they also compute prompts unless prefill is disaggregated.
    pub replicas: u64,
    /// Pool of replicas that only compute prompts; `None` unless prefill is disaggregated.
    pub prefill: Option<PoolChoice>,
    /// Pool of replicas on another accelerator that also serve whole requests; `None` without one.
    pub beside: Option<PoolChoice>,
    /// Weight format.
    pub weights: String,
    /// Format of the KV cache.
    pub kv: String,
    /// Name of the engine, as in `vllm`.
    pub engine: String,
    /// Name of the router policy.
    pub router: &'static str,
    /// True if prompts may be split over steps (chunked prefill).
    pub enable_chunked_prefill: bool,
    /// True if blocks are found by their content (prefix cache).
    pub enable_prefix_caching: bool,
    /// GiB of host memory in which each engine also keeps KV cache (`kv_offloading_size`); `None` without a host tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_tier_gib: Option<f64>,
    /// Number of draft tokens per step; `None` without drafts.
    pub num_speculative_tokens: Option<u64>,
    /// Token budget of a step.
    pub max_num_batched_tokens: u64,
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// Mean number of running requests in a step of one replica.
    pub batch: f64,
    /// Number of requests of full length that fit in the memory of one replica.
    pub max_batch: u64,
    /// Mean time per output token in milliseconds.
    pub tpot_ms: f64,
    /// 99th percentile of the time per output token in milliseconds.
    pub tpot_p99_ms: f64,
    /// Mean time to first token in milliseconds.
    pub ttft_ms: f64,
    /// 99th percentile of the time to first token in milliseconds.
    pub ttft_p99_ms: f64,
    /// Mean end-to-end latency in milliseconds.
    pub(crate) e2el_ms: f64,
    /// 99th percentile of the end-to-end latency in milliseconds.
    pub e2el_p99_ms: f64,
    /// 99th percentile of the gaps between tokens in milliseconds.
    pub itl_p99_ms: f64,
    /// Times of a decode step and of a prefill at the hardware's limits.
    pub limit: Times,
    /// Times of a decode step and of a prefill by the chosen cost model.
    pub forecast: Times,
    /// Bottleneck of most of the busy time: `memory`, `compute`, `communication`, `host`, or `server` for the messages of the
    /// engine's server.
    pub bound: &'static str,
    /// Flag of the engine that lifts the bottleneck; absent if no flag does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// The stage that judged the deployment.
    pub stage: SearchStage,
    /// Measurements that support the forecast of step times; `None` at the limit.
    pub evidence: Option<Evidence>,
    /// Measured kernel times on which the forecast of step times is based; `None` if no kernel with this format was
    /// measured, and at the limit.
    pub kernels: Option<Timed>,
    /// Every bound of the SLO, with the run's value.
    pub bounds: Vec<Bounded>,
    /// The metric that is nearest to its bound, with the remaining fraction of the bound; `None` without bounds.
    pub headroom: Option<Headroom>,
    /// Probability of meeting the SLO, from simulations at quantiles of the band of step times; `None` at the limit,
    /// without bounds, and if a better deployment with equal objective has the required probability.
    pub chance: Option<f64>,
    /// Highest rate in requests per second at which the deployment meets the SLO in simulations; `None` if it was not
    /// searched.
    pub max_requests_per_s: Option<f64>,
    /// Offered rate divided by the highest rate.
    pub utilization: Option<f64>,
    /// Output tokens per second at the offered load.
    pub output_tok_s: f64,
    /// Output tokens per second per accelerator, at the offered load.
    pub output_tok_s_per_accelerator: f64,
    /// Mean output tokens per second of one request.
    pub interactivity_tok_s: f64,
    /// Dollars per hour; `None` if the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// Dollars per million output tokens, at the offered load.
    pub cost_per_million_tokens: Option<f64>,
    /// Dollars per request, at the offered load; `None` if the catalog has no price.
    pub cost_per_request: Option<f64>,
    /// For each class of requests, its part of the cost; empty without classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassCost>,
    /// Joules per output token, at the offered load and the simulation's mean power; `None` if the catalog has no
    /// power.
    pub joules_per_token: Option<f64>,
    /// Grams of CO2 equivalent per million output tokens; absent without `hardware.grid_g_per_kwh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grams_co2e_per_million_tokens: Option<f64>,
    /// Ratio of prefill to decode replicas of this shape that balances the two, if prefill and decode were
    /// disaggregated.
    pub prefill_per_decode: f64,
    /// Bands of the means; `None` at the limit.
    pub bands: Option<Bands>,
    /// Keys to add to the plan's spec, as TOML, so that `roofcast simulate` repeats the proof.
    #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, serde_json::Value>"))]
    pub spec: toml::Table,
    /// Keys to remove from the plan's spec, as in `engine.speculative`.
    #[serde(skip)]
    pub dropped: Vec<&'static str>,
}

impl Choice {
    /// Catalog ids of the accelerators: `h200-sxm`, or `h100-sxm + h200-sxm` if the first kind computes prompts or both
    /// serve.
    pub fn accelerators(&self) -> String {
        self.kinds().join(" + ")
    }

    /// True if the highest rate is the highest that was tried, so that the deployment may carry more.
    pub fn beyond_tried(&self) -> bool {
        self.utilization.is_some_and(|used| used * super::margins::MOST_TRIED <= 1.0 + 1e-9)
    }

    /// Numbers of accelerators with their ids: `14 × h100-sxm`, `2 × l40s + 1 × h100-sxm`.
    pub fn hardware(&self) -> String {
        let serving_count = self.tp * self.pp * self.attention_dp * self.replicas;
        let serving = self.accelerator.as_str();
        match self.kinds().as_slice() {
            [first, second] => {
                let count =
                    |kind: &str| if kind == serving { serving_count } else { self.count - serving_count };
                format!("{} × {first} + {} × {second}", count(first), count(second))
            }
            _ => format!("{} × {serving}", self.count),
        }
    }

    /// Catalog ids of the one or two kinds of accelerator, in the order in which pools are listed.
    pub fn kinds(&self) -> Vec<&str> {
        let [prefill, beside] =
            [&self.prefill, &self.beside].map(|p| p.as_ref().map(|p| p.accelerator.as_str()));
        let mut all: Vec<&str> =
            prefill.into_iter().chain([self.accelerator.as_str()]).chain(beside).collect();
        all.dedup();
        all
    }
}

/// Grams of CO2 equivalent per million output tokens, of a deployment that draws `watts` at `tokens_per_s`; `None` without
/// a grid.
pub(super) fn emitted(spec: &Spec, watts: Option<f64>, tokens_per_s: f64) -> Option<f64> {
    Some(Grid::of(&spec.hardware)?.grams(watts? / tokens_per_s * 1e6))
}

/// Text of TTFT and TPOT, and of E2EL and ITL if they are bounded, each at the highest percentile that `slo` bounds:
/// `TTFT p99 361 ms, TPOT p90 43.2 ms`.
pub(super) fn told(summary: &RunSummary, slo: &Slo) -> String {
    let latency_text = |metric: Metric| {
        let percentile = slo.of(metric).next().map_or(Percentile::P99, |bound| bound.percentile);
        let ms = summary.latency(metric).percentile(percentile);
        let digits = usize::from(matches!(metric, Metric::Tpot | Metric::Itl));
        format!("{} {} {ms:.digits$} ms", metric.name(), percentile.name())
    };
    let rest = [Metric::E2el, Metric::Itl].into_iter().filter(|metric| slo.of(*metric).next().is_some());
    [Metric::Ttft, Metric::Tpot].into_iter().chain(rest).map(latency_text).collect::<Vec<_>>().join(", ")
}

/// Times of a decode step and of a prefill by one cost model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Times {
    /// Time per output token at the offered load in milliseconds.
    pub tpot_ms: f64,
    /// Time of one long prompt alone in milliseconds.
    pub(crate) prefill_ms: f64,
}

/// Peak 16-bit operations that a dollar buys.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlopsPerDollar {
    /// Catalog id of the accelerator.
    pub accelerator: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Peak FLOP/s × 3600 / price.
    pub flops_per_dollar: f64,
}

/// Text of a deployment: `4 × h200-sxm as 2 replicas of tp 2, fp8 weights, fp8 KV`.
pub(super) fn name(space: &SearchSpace, candidate: &Candidate) -> String {
    let shape = &space.shapes[candidate.serving.shape];
    let cut = |pool: CandidatePool| space.shapes[pool.shape].cut;
    let pools = match candidate.prefill {
        None => format!("{} × {}", candidate.serving.replicas, cut(candidate.serving)),
        Some(prefill) => format!(
            "{}P × {} + {}D × {}",
            prefill.replicas,
            cut(prefill),
            candidate.serving.replicas,
            cut(candidate.serving)
        ),
    };
    let beside = candidate.beside.map(|pool| format!(" + {} × {}", pool.replicas, cut(pool)));
    let pools = pools + &beside.unwrap_or_default();
    let mut sides: Vec<_> = space.sides(candidate).into_iter().flatten().collect();
    if candidate.prefill.is_some() {
        sides.reverse();
    }
    let chips: Vec<String> =
        sides.into_iter().map(|(chip, count)| format!("{count} × {}", chip.id)).collect();
    let mut text = format!("{} as {pools}", chips.join(" + "));
    for (value, what) in [(&shape.weights, "weights"), (&shape.kv, "KV")] {
        if let Some(value) = value {
            text += &format!(", {value} {what}");
        }
    }
    let bounds = [(shape.max_num_batched_tokens, "tokens a step"), (shape.max_num_seqs, "sequences")];
    for (most, what) in bounds {
        text += &most.map_or(String::new(), |most| format!(", {most} {what}"));
    }
    for word in shape.told.words() {
        text += &format!(", {word}");
    }
    text
}
