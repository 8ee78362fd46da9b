//! What a plan answers.
//!
//! Knows: what is said of a deployment that was simulated, and of one that was not. Knows nothing about how they were found.

use super::feasibility::Stage;
use super::launch::Launch;
use super::manifest::Manifest;
use super::quality::Quality;
use super::space::{Candidate, Cut, Pool, Space};
use crate::bands::{Bands, Span};
use crate::coefficients::Evidence;
use crate::simulate::{Simulation, TimeShares};
use crate::spec::{Bound, Metric, Percentile, Slo};
use crate::summary::Summary;
use serde::Serialize;

/// The metric of a headroom where a share of the requests must keep every bound.
pub(super) const GOODPUT: &str = "goodput";

/// The answer of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Deployments looked at.
    pub considered: u64,
    /// Those that were ruled out without a simulation.
    pub pruned: Pruned,
    /// Those that were simulated.
    pub simulated: u64,
    /// Those that have more of what is minimised than the best, and were left.
    pub dearer: u64,
    /// Those that met the SLO when they were simulated.
    pub feasible: u64,
    /// Requests of a simulation.
    pub requests: u64,
    /// Whether the search was stopped before it ended.
    pub interrupted: bool,
    /// Of a search that was stopped: what is minimised is no less in any deployment that meets the SLO.
    pub at_least: Option<f64>,
    /// Of a search that was stopped: deployments of which nothing is known and that have no more of it than the best.
    pub unjudged: u64,
    /// What was assumed of the best's deployments; of the model where none met the SLO.
    pub assumptions: Vec<String>,
    /// What has least of what is minimised.
    pub best: Option<Choice>,
    /// Deployments that no other beats in the objective, TPOT and TTFT at once; best first.
    pub pareto: Vec<Choice>,
    /// Deployments that no other beats in output tokens a second per accelerator and in interactivity at once; most tokens first.
    pub pareto_throughput: Vec<Choice>,
    /// Of each accelerator what has least of what is minimised; best first.
    pub by_accelerator: Vec<Choice>,
    /// All that met the SLO, best first.
    pub ranked: Vec<Choice>,
    /// Where none did, those that came nearest.
    pub nearest: Vec<Near>,
    /// Why others were left out, with counts.
    pub left_out: Vec<LeftOut>,
    /// Engines that are not looked at with prefill and decode apart, with the reason; none where that was not asked for.
    pub not_apart: Vec<String>,
    /// Of each accelerator the fewest that hold the model and a request.
    pub smallest: Vec<Smallest>,
    /// What becomes of the best when something changes.
    pub what_if: Vec<WhatIf>,
    /// What was asked for by name, and what came of it.
    pub why: Vec<Near>,
    /// How to start the best, each pool with each engine.
    pub launch: Vec<Launch>,
    /// The same for clusters.
    pub manifests: Vec<Manifest>,
    /// What the formats that were looked at cost in quality.
    pub quality: Vec<Quality>,
    /// Arithmetic per dollar.
    pub flops_per_dollar: Vec<FlopsPerDollar>,
}

impl Plan {
    /// Whether the search was stopped while deployments were left of which nothing is known.
    pub fn is_open(&self) -> bool {
        self.interrupted && self.unjudged + self.dearer > 0
    }
}

/// Deployments by what ruled them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    /// They do not fit.
    pub memory: u64,
    /// Their limit misses the SLO.
    pub limit: u64,
    /// Their steady state misses it.
    pub estimate: u64,
}

/// A reason and how many deployments it left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// In words.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// A deployment that is no answer, or was asked for by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Near {
    /// In words.
    pub deployment: String,
    /// Accelerators in all.
    pub count: u64,
    /// Dollars per hour; none where the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// Which stage judged it; none where it was not looked at.
    pub stage: Option<Stage>,
    /// What came of it.
    pub reason: String,
    /// What was found over what is allowed; none where it meets the SLO or does not run.
    pub factor: Option<f64>,
}

/// The fewest accelerators of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Smallest {
    /// Catalog id.
    pub accelerator: String,
    /// How many.
    pub count: u64,
    /// In which weight format.
    pub weights: String,
}

/// A change and what becomes of the best under it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// What changes.
    pub change: String,
    /// Whether the best still meets the SLO.
    pub meets: bool,
    /// By what it does, or why it does not.
    pub because: String,
    /// Replicas of the best that would; none where it does, or where none of those tried do.
    pub replicas: Option<u64>,
}

/// One pool of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolChoice {
    /// Catalog id.
    pub accelerator: String,
    /// Replicas.
    pub replicas: u64,
    /// How each shares the model.
    #[serde(flatten)]
    pub cut: Cut,
}

/// One deployment under the workload, simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Its place in the search.
    #[serde(skip)]
    pub(super) index: usize,
    /// Catalog id, of replicas that decode.
    pub accelerator: String,
    /// Accelerators in all.
    pub count: u64,
    /// Tensor parallelism, of replicas that decode.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Expert-parallel ranks.
    pub ep: u64,
    /// Data parallelism of attention.
    pub attention_dp: u64,
    /// Replicas that decode, and compute prompts unless others do.
    pub replicas: u64,
    /// Replicas that compute prompts for them.
    pub prefill: Option<PoolChoice>,
    /// Replicas on another accelerator that serve the same requests.
    pub beside: Option<PoolChoice>,
    /// Weight format.
    pub weights: String,
    /// KV format.
    pub kv: String,
    /// The engine, as in `vllm`.
    pub engine: String,
    /// How requests are routed to replicas.
    pub router: &'static str,
    /// Whether prompts may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Whether blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Tokens that are drafted after each step; none without drafts.
    pub num_speculative_tokens: Option<u64>,
    /// Tokens of a step.
    pub max_num_batched_tokens: u64,
    /// Sequences at once.
    pub max_num_seqs: u64,
    /// Requests that run in a step of a replica, in the mean.
    pub batch: f64,
    /// Requests that fit the memory of one replica at full length.
    pub max_batch: u64,
    /// Time per output token, mean and 99th percentile.
    pub tpot_ms: f64,
    /// See above.
    pub tpot_p99_ms: f64,
    /// Time to first token, mean and 99th percentile.
    pub ttft_ms: f64,
    /// See above.
    pub ttft_p99_ms: f64,
    /// End-to-end latency, mean and 99th percentile.
    pub e2el_ms: f64,
    /// See above.
    pub e2el_p99_ms: f64,
    /// Step and prompt at the machine's limits.
    pub limit: Times,
    /// The same as priced.
    pub forecast: Times,
    /// What most of the replicas' busy time goes to: `memory`, `compute`, `communication` or `host`.
    pub bound: &'static str,
    /// Which stage judged it.
    pub stage: Stage,
    /// What the forecast of its steps rests on; none at the limit.
    pub evidence: Option<Evidence>,
    /// Every bound with what the run has.
    pub bounds: Vec<Bounded>,
    /// The metric that is nearest to its bound, and what is left to it as a share of the bound; none without bounds.
    pub headroom: Option<Headroom>,
    /// The chance that the bounds are met, given the bands; none at the limit and without bounds.
    pub chance: Option<f64>,
    /// Highest rate, found by simulation, at which the deployment meets the SLO; none where it was not looked for.
    pub max_requests_per_s: Option<f64>,
    /// Load as a share of it.
    pub utilization: Option<f64>,
    /// Output tokens per second at the load.
    pub output_tok_s: f64,
    /// The same per accelerator.
    pub output_tok_s_per_accelerator: f64,
    /// Output tokens per second of one request, in the mean.
    pub interactivity_tok_s: f64,
    /// Dollars per hour; none where the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// Dollars per million output tokens at the load.
    pub cost_per_million_tokens: Option<f64>,
    /// Joules per output token at the load and board power.
    pub joules_per_token: Option<f64>,
    /// Prefill replicas of this shape for one decode replica, if the two are apart, by the means.
    pub prefill_per_decode: f64,
    /// What the means may turn out to be; none at the limit.
    pub bands: Option<Bands>,
    /// What a spec has beside the plan's own, as TOML: with it `roofcast simulate` repeats the proof.
    pub spec: toml::Table,
    /// Keys of the plan's spec that it does not have any more, as in `engine.speculative`.
    #[serde(skip)]
    pub dropped: Vec<&'static str>,
}

impl Choice {
    /// Its accelerators in words: `h200-sxm`, or `h100-sxm + h200-sxm` where prompts are computed on the first or both serve all.
    pub fn accelerators(&self) -> String {
        self.kinds().join(" + ")
    }

    /// How many of each: `14 × h100-sxm`, `2 × l40s + 1 × h100-sxm`.
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

/// What is left to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Headroom {
    /// As in `TTFT`, or `goodput`.
    pub metric: &'static str,
    /// Of which percentile, as in `p99`; none of a goodput.
    pub percentile: Option<&'static str>,
    /// Share of the bound.
    pub share: f64,
}

/// A percentile of a run beside its bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounded {
    /// As in `TTFT`.
    pub metric: &'static str,
    /// As in `p90`.
    pub percentile: &'static str,
    /// Milliseconds as simulated.
    pub ms: f64,
    /// Milliseconds that are allowed.
    pub most_ms: f64,
}

/// Each bound of `slo` with what `summary` has, the highest percentile of a metric first.
pub(super) fn bounded(summary: &Summary, slo: &Slo) -> Vec<Bounded> {
    let all = Metric::ALL.into_iter().flat_map(|metric| slo.of(metric));
    let one = |bound: Bound| Bounded {
        metric: bound.metric.name(),
        percentile: bound.percentile.name(),
        ms: summary.bounded(&bound),
        most_ms: bound.ms,
    };
    all.map(one).collect()
}

/// TTFT and TPOT in words, each at the highest percentile that `slo` bounds: `TTFT p99 361 ms, TPOT p90 43.2 ms`.
pub(super) fn told(summary: &Summary, slo: &Slo) -> String {
    let one = |metric: Metric| {
        let percentile = slo.of(metric).next().map_or(Percentile::P99, |bound| bound.percentile);
        let ms = summary.latency(metric).percentile(percentile);
        let digits = usize::from(metric == Metric::Tpot);
        format!("{} {} {ms:.digits$} ms", metric.name(), percentile.name())
    };
    [Metric::Ttft, Metric::Tpot].map(one).join(", ")
}

/// Step and prompt times by one price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// TPOT at the load.
    pub tpot_ms: f64,
    /// One long prompt alone.
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

/// What most of the busy time goes to.
pub(super) fn bound(time: &TimeShares) -> &'static str {
    let shares = [
        ("memory", time.memory_s),
        ("compute", time.compute_s),
        ("communication", time.communication_s),
        ("host", time.host_s + time.swap_s),
    ];
    shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("memory", |(name, _)| name)
}

/// The chance that all bounds are met: the least of the metrics'; none where some requests may miss them. What is measured over what is forecast is taken as log-normal with
/// the band's 10th and 90th percentiles.
pub(super) fn chance(run: &Simulation, slo: &Slo) -> Option<f64> {
    let bands = run.bands.as_ref().filter(|_| slo.goodput.is_none())?;
    let chance = |bound: Bound| {
        let span = match bound.metric {
            Metric::Ttft => bands.ttft_ms,
            Metric::Tpot => bands.tpot_ms,
            Metric::E2el => bands.e2el_ms,
        };
        within(run.summary.bounded(&bound), span, bound.ms)
    };
    slo.bounds().map(chance).min_by(f64::total_cmp)
}

/// The chance that `forecast` turns out to be at most `bound`.
fn within(forecast: f64, span: Span, bound: f64) -> f64 {
    /// The 90th percentile of a standard normal.
    const Z90: f64 = 1.281_551_565_544_6;
    let [low, high] = span.factors.map(libm::log);
    let (middle, deviation) = (low.midpoint(high), ((high - low) / (2.0 * Z90)).max(1e-9));
    let z = (libm::log(bound / forecast.max(f64::MIN_POSITIVE)) - middle) / deviation;
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// A deployment in words: `4 × h200-sxm as 2 replicas of tp 2, fp8 weights, fp8 KV`.
pub(super) fn name(space: &Space, candidate: &Candidate) -> String {
    let shape = &space.shapes[candidate.serving.shape];
    let cut = |pool: Pool| {
        let Cut { tp, pp, ep, attention_dp } = space.shapes[pool.shape].cut;
        let mut text = format!("tp {tp}");
        for (name, degree) in [("pp", pp), ("dp", attention_dp), ("ep", ep)] {
            if degree > 1 {
                text += &format!(" {name} {degree}");
            }
        }
        text
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_of_a_bound_is_that_of_its_band() {
        let span = Span { factors: [0.8, 1.25], range: [0.0, 0.0] };
        // The band is even around 1 in logarithms: half. At 1.25 times the forecast it is the band's own 90 %, at 0.8 its 10 %.
        for (bound, chance) in [(100.0, 0.5), (125.0, 0.9), (80.0, 0.1)] {
            assert!((within(100.0, span, bound) - chance).abs() < 1e-9, "{bound}");
        }
    }
}
