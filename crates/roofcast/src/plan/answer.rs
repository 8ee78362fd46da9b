//! The answer of a plan.
//!
//! Knows: the data reported for simulated deployments, and for others. Knows nothing about the search.

use super::bounded::Bounded;
use super::feasibility::SearchStage;
use super::launch::Launch;
use super::manifest::Manifest;
use super::over_time::OverTime;
use super::proof::Headroom;
use super::quality::Quality;
use super::space::{Candidate, CandidatePool, Cut, SearchSpace};
use crate::bands::Bands;
use crate::coefficients::Evidence;
use crate::kernel_time::Timed;
use crate::simulate::TimeShares;
use crate::spec::{Metric, Percentile, Slo};
use crate::summary::RunSummary;
use serde::Serialize;

/// The answer of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Number of deployments in the search.
    pub considered: u64,
    /// Deployments that were ruled out without a simulation.
    pub pruned: Pruned,
    /// Number of simulated deployments.
    pub simulated: u64,
    /// Number of deployments skipped because their objective is worse than the best one's.
    pub dearer: u64,
    /// Number of simulated deployments that met the SLO.
    pub feasible: u64,
    /// Requests of a simulation.
    pub requests: u64,
    /// Requested probability of meeting the SLO.
    pub confidence: f64,
    /// True if the best deployment reaches it; otherwise the best is the most likely one.
    pub confident: bool,
    /// True if the search was stopped before it ended.
    pub interrupted: bool,
    /// For a search that was stopped: lower bound of the objective over all deployments that meet the SLO.
    pub at_least: Option<f64>,
    /// For a search that was stopped: number of unjudged deployments whose objective is at most the best one's.
    pub unjudged: u64,
    /// Assumptions about the best's deployments; about the model if none met the SLO.
    pub assumptions: Vec<String>,
    /// The deployment with the lowest objective among the ones that reach the requested confidence.
    pub best: Option<Choice>,
    /// Deployments with a lower objective that meet the SLO as forecast, but do not reach the requested confidence.
    pub cheaper: Vec<Choice>,
    /// Deployments that no other one dominates in objective, TPOT and TTFT; best first.
    pub pareto: Vec<Choice>,
    /// Deployments that no other one dominates in output tokens per second per accelerator and interactivity; most
    /// tokens first.
    pub pareto_throughput: Vec<Choice>,
    /// For each accelerator, the deployment with the lowest objective; best first.
    pub by_accelerator: Vec<Choice>,
    /// All deployments that met the SLO as forecast, best first: first the ones that reach the requested confidence.
    pub ranked: Vec<Choice>,
    /// The nearest misses, if no deployment met the SLO.
    pub nearest: Vec<Near>,
    /// Accelerators that were not looked at: with a price, if the search lists its own; without one, if it lists none.
    pub not_searched: Vec<String>,
    /// Reasons for skipped deployments, with counts.
    pub left_out: Vec<LeftOut>,
    /// Engines that were not considered for disaggregation, with the reason; empty if disaggregation was not
    /// requested.
    pub not_apart: Vec<String>,
    /// For each accelerator, the smallest number that holds the model and a request.
    pub smallest: Vec<SmallestCount>,
    /// Effects of changes on the best deployment.
    pub what_if: Vec<WhatIf>,
    /// Replicas of the best deployment over time, if `search.interval_s` asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
    /// Results for the deployments requested by name.
    pub why: Vec<Near>,
    /// Commands that start the best deployment, for each pool and engine.
    pub launch: Vec<Launch>,
    /// Manifests that start the best deployment on clusters.
    pub manifests: Vec<Manifest>,
    /// Effects of the considered formats on quality.
    pub quality: Vec<Quality>,
    /// Arithmetic per dollar.
    pub flops_per_dollar: Vec<FlopsPerDollar>,
}

impl Plan {
    /// True if the search was stopped while some deployments were unjudged.
    pub fn is_open(&self) -> bool {
        self.interrupted && self.unjudged + self.dearer > 0
    }
}

/// Number of deployments that each stage ruled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    /// Ruled out because they do not fit.
    pub memory: u64,
    /// Ruled out because their limit misses the SLO.
    pub limit: u64,
    /// Ruled out because their steady state misses the SLO.
    pub estimate: u64,
}

/// A reason, and the number of deployments skipped for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The reason in words.
    pub reason: String,
    /// Number of deployments.
    pub count: u64,
}

/// A deployment that misses the SLO, or was requested by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Near {
    /// The deployment in words.
    pub deployment: String,
    /// Total number of accelerators.
    pub count: u64,
    /// Dollars per hour; `None` if the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// The stage that judged it; `None` if it was not judged.
    pub stage: Option<SearchStage>,
    /// The result in words.
    pub reason: String,
    /// Found value over allowed value; `None` if it meets the SLO or does not run.
    pub factor: Option<f64>,
}

/// The smallest number of accelerators of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmallestCount {
    /// Catalog id.
    pub accelerator: String,
    /// Number of accelerators.
    pub count: u64,
    /// Weight format.
    pub weights: String,
}

/// A change, and its effect on the best deployment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// The change.
    pub change: String,
    /// True if the best deployment still meets the SLO.
    pub meets: bool,
    /// The margin by which it does, or the reason for which it does not.
    pub because: String,
    /// The probability of meeting the SLO, by the bands; `None` if it is missed as forecast, and at the limit.
    pub chance: Option<f64>,
    /// Number of replicas with which it would; `None` if it does already, or if no number that was tried does.
    pub replicas: Option<u64>,
}

/// One pool of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolChoice {
    /// Catalog id.
    pub accelerator: String,
    /// Replicas.
    pub replicas: u64,
    /// Parallelism of each replica.
    #[serde(flatten)]
    pub cut: Cut,
}

/// One simulated deployment under the workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Index in the search.
    #[serde(skip)]
    pub(super) index: usize,
    /// Catalog id of the accelerator, for replicas that decode.
    pub accelerator: String,
    /// Total number of accelerators.
    pub count: u64,
    /// Tensor parallelism, for replicas that decode.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Expert-parallel ranks.
    pub ep: u64,
    /// Data parallelism of attention.
    pub attention_dp: u64,
    /// Replicas that decode, and compute prompts unless others do.
    pub replicas: u64,
    /// Replicas that compute prompts for others, if prefill is disaggregated.
    pub prefill: Option<PoolChoice>,
    /// Replicas on another accelerator that serve whole requests as well.
    pub beside: Option<PoolChoice>,
    /// Weight format.
    pub weights: String,
    /// KV format.
    pub kv: String,
    /// The engine, as in `vllm`.
    pub engine: String,
    /// Routing of requests to replicas.
    pub router: &'static str,
    /// True if prompts may be split over steps (chunked prefill).
    pub enable_chunked_prefill: bool,
    /// True if blocks are found again by their content (prefix cache).
    pub enable_prefix_caching: bool,
    /// GiB of host memory in which each engine keeps KV, too (`kv_offloading_size`); `None` without a host tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_tier_gib: Option<f64>,
    /// Number of draft tokens per step; `None` without drafts.
    pub num_speculative_tokens: Option<u64>,
    /// Token budget of a step.
    pub max_num_batched_tokens: u64,
    /// Maximum number of running requests.
    pub max_num_seqs: u64,
    /// Mean number of running requests in a step of a replica.
    pub batch: f64,
    /// Number of requests of full length that fit in the memory of one replica.
    pub max_batch: u64,
    /// Time per output token, mean and 99th percentile.
    pub tpot_ms: f64,
    /// 99th percentile of the time per output token.
    pub tpot_p99_ms: f64,
    /// Time to first token, mean and 99th percentile.
    pub ttft_ms: f64,
    /// 99th percentile of the time to first token.
    pub ttft_p99_ms: f64,
    /// End-to-end latency, mean and 99th percentile.
    pub e2el_ms: f64,
    /// 99th percentile of the end-to-end latency.
    pub e2el_p99_ms: f64,
    /// 99th percentile of the gaps between tokens.
    pub itl_p99_ms: f64,
    /// Times of a decode step and a prefill at the hardware's limits.
    pub limit: Times,
    /// Times of a decode step and a prefill by the cost model.
    pub forecast: Times,
    /// The bottleneck of most busy time: `memory`, `compute`, `communication` or `host`.
    pub bound: &'static str,
    /// The stage that judged it.
    pub stage: SearchStage,
    /// The evidence behind the forecast of its steps; `None` at the limit.
    pub evidence: Option<Evidence>,
    /// Kernel times behind the forecast of its steps; `None` if no kernel of its format was timed, and at the limit.
    pub kernels: Option<Timed>,
    /// Every bound with the run's value.
    pub bounds: Vec<Bounded>,
    /// The metric that is nearest to its bound, and the remaining fraction of the bound; `None` without bounds.
    pub headroom: Option<Headroom>,
    /// The probability of meeting the SLO, by simulations at quantiles of the band of step times; `None` at the
    /// limit, without bounds, and if a better deployment of equal objective is likely enough.
    pub chance: Option<f64>,
    /// Highest rate, found by simulation, at which the deployment meets the SLO; `None` if it was not searched.
    pub max_requests_per_s: Option<f64>,
    /// Load divided by the highest rate.
    pub utilization: Option<f64>,
    /// Output tokens per second at the load.
    pub output_tok_s: f64,
    /// Output tokens per second per accelerator.
    pub output_tok_s_per_accelerator: f64,
    /// Mean output tokens per second of one request.
    pub interactivity_tok_s: f64,
    /// Dollars per hour; `None` if the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// Dollars per million output tokens at the load.
    pub cost_per_million_tokens: Option<f64>,
    /// Joules per output token at the load and board power.
    pub joules_per_token: Option<f64>,
    /// Mean ratio of prefill to decode replicas of this shape, if the two are disaggregated.
    pub prefill_per_decode: f64,
    /// Error bands of the means; `None` at the limit.
    pub bands: Option<Bands>,
    /// Keys that a spec has in addition to the plan's own, as TOML: with them `roofcast simulate` repeats the proof.
    pub spec: toml::Table,
    /// Keys of the plan's spec that are removed from this one, as in `engine.speculative`.
    #[serde(skip)]
    pub dropped: Vec<&'static str>,
}

impl Choice {
    /// Names of its accelerators: `h200-sxm`, or `h100-sxm + h200-sxm` if the first computes prompts or both serve.
    pub fn accelerators(&self) -> String {
        self.kinds().join(" + ")
    }

    /// Numbers of its accelerators: `14 × h100-sxm`, `2 × l40s + 1 × h100-sxm`.
    pub fn hardware(&self) -> String {
        let own = self.tp * self.pp * self.attention_dp * self.replicas;
        let serving = self.accelerator.as_str();
        match self.kinds().as_slice() {
            [first, second] => {
                let count = |kind: &str| if kind == serving { own } else { self.count - own };
                format!("{} × {first} + {} × {second}", count(first), count(second))
            }
            _ => format!("{} × {serving}", self.count),
        }
    }

    /// Catalog ids of its one or two kinds of accelerators, as their pools are listed.
    pub fn kinds(&self) -> Vec<&str> {
        let [prefill, beside] =
            [&self.prefill, &self.beside].map(|p| p.as_ref().map(|p| p.accelerator.as_str()));
        let mut all: Vec<&str> =
            prefill.into_iter().chain([self.accelerator.as_str()]).chain(beside).collect();
        all.dedup();
        all
    }
}

/// TTFT and TPOT in words, and E2EL and ITL if they are bounded, each at the highest percentile that `slo` bounds:
/// `TTFT p99 361 ms, TPOT p90 43.2 ms`.
pub(super) fn told(summary: &RunSummary, slo: &Slo) -> String {
    let one = |metric: Metric| {
        let percentile = slo.of(metric).next().map_or(Percentile::P99, |bound| bound.percentile);
        let ms = summary.latency(metric).percentile(percentile);
        let digits = usize::from(matches!(metric, Metric::Tpot | Metric::Itl));
        format!("{} {} {ms:.digits$} ms", metric.name(), percentile.name())
    };
    let rest = [Metric::E2el, Metric::Itl].into_iter().filter(|metric| slo.of(*metric).next().is_some());
    [Metric::Ttft, Metric::Tpot].into_iter().chain(rest).map(one).collect::<Vec<_>>().join(", ")
}

/// Times of a decode step and a prefill by one cost model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// TPOT at the load.
    pub tpot_ms: f64,
    /// Time of one long prompt alone.
    pub prefill_ms: f64,
}

/// Peak 16-bit operations that a dollar buys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlopsPerDollar {
    /// Catalog id.
    pub accelerator: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Peak × 3600 / price.
    pub flops_per_dollar: f64,
}

/// The bottleneck with most of the busy time.
pub(super) fn bound(time: &TimeShares) -> &'static str {
    let shares = [
        ("memory", time.memory_s),
        ("compute", time.compute_s),
        ("communication", time.communication_s),
        ("host", time.host_s + time.swap_s),
    ];
    shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("memory", |(name, _)| name)
}

/// A deployment in words: `4 × h200-sxm as 2 replicas of tp 2, fp8 weights, fp8 KV`.
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
