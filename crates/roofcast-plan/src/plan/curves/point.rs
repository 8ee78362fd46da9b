//! Reported curves, and the points that have the lowest cost.
//!
//! Knows: the figures of each point, and the least expensive points over several curves. Knows nothing about
//! simulations.

use crate::plan::space::Cut;
use roofcast_cost::bands::Bands;
use roofcast_cost::coefficients::Evidence;
use roofcast_cost::kernel_time::Timed;
use serde::Serialize;

/// Curves of throughput per accelerator against interactivity, one for each kind of deployment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curves {
    /// The curves, in the order of the search.
    pub curves: Vec<Curve>,
    /// The cheapest replica for each minimum speed of a user, found by bisection over users.
    pub at_speed: Vec<AtSpeed>,
    /// Accelerators without a curve, each with the reason.
    pub left_out: Vec<String>,
    /// Number of simulations.
    pub simulated: u64,
    /// True if the simulations were stopped before all were done.
    pub interrupted: bool,
}

impl Curves {
    /// The curve whose best point has the lowest cost per token, and that point; without prices, the one with the most
    /// tokens per accelerator. `None` if no point meets the SLO.
    pub fn cheapest(&self) -> Option<(&Curve, &CurvePoint)> {
        self.by_cost().first().copied()
    }

    /// The curves with a best point, each with that point, in order of ascending cost per token, then of descending
    /// tokens per accelerator.
    pub fn by_cost(&self) -> Vec<(&Curve, &CurvePoint)> {
        let mut all: Vec<_> =
            self.curves.iter().filter_map(|curve| Some((curve, curve.best.as_ref()?))).collect();
        let cost = |p: &CurvePoint| p.cost_per_million_tokens.unwrap_or(f64::INFINITY);
        all.sort_by(|(_, a), (_, b)| {
            let rate = |p: &CurvePoint| p.output_tok_s_per_accelerator;
            cost(a).total_cmp(&cost(b)).then(rate(b).total_cmp(&rate(a)))
        });
        all
    }
}

/// The cheapest replica whose users have a speed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtSpeed {
    /// Least output tokens per second of one user.
    pub tok_s: f64,
    /// Name of the point's curve.
    pub curve: String,
    /// The replica with the most users that keep the speed.
    pub point: CurvePoint,
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curve {
    /// Name: the accelerator, with format, engine or parallelism if curves differ in these: `h100-sxm, fp8`.
    pub name: String,
    /// Catalog id of the accelerator.
    pub accelerator: String,
    /// Dollars per hour for one accelerator; `None` if the catalog has no price.
    pub usd_per_hour: Option<f64>,
    /// Pareto front of output tokens per accelerator and interactivity, and the best point; in order of descending
    /// interactivity.
    pub points: Vec<CurvePoint>,
    /// The point with the most output tokens per accelerator that meets the SLO, found by bisection over users; `None`
    /// if no point meets it.
    pub best: Option<CurvePoint>,
}

/// Results of one simulated replica under a closed loop of users.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CurvePoint {
    /// Number of users of the replica, each with one request in flight.
    pub users: u64,
    /// Number of accelerators of the replica.
    pub count: u64,
    /// Parallelism of the replica.
    #[serde(flatten)]
    pub cut: Cut,
    /// Format of the weights.
    pub weights: String,
    /// Format of the KV cache.
    pub kv: String,
    /// Name of the engine, as in `vllm`.
    pub engine: String,
    /// Mean output tokens per second of one user while an answer is generated: 1000 / TPOT.
    pub interactivity_tok_s: f64,
    /// Output tokens per second of the replica in steady state.
    pub output_tok_s: f64,
    /// Output tokens per second per accelerator.
    pub output_tok_s_per_accelerator: f64,
    /// Mean time per output token in milliseconds.
    pub tpot_ms: f64,
    /// 99th percentile of the time per output token in milliseconds.
    pub tpot_p99_ms: f64,
    /// Mean time per output token at the hardware's limits in milliseconds.
    pub limit_tpot_ms: f64,
    /// Mean time to first token in milliseconds.
    pub ttft_ms: f64,
    /// 99th percentile of the time to first token in milliseconds.
    pub ttft_p99_ms: f64,
    /// Mean end-to-end latency in milliseconds.
    pub e2el_ms: f64,
    /// Dollars per million output tokens; `None` if the catalog has no price.
    pub cost_per_million_tokens: Option<f64>,
    /// Joules per output token, at the simulation's mean power; `None` if the catalog has no power.
    pub joules_per_token: Option<f64>,
    /// Grams of CO2 equivalent per million output tokens; absent without `hardware.grid_g_per_kwh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grams_co2e_per_million_tokens: Option<f64>,
    /// Bottleneck of most of the busy time: `memory`, `compute`, `communication`, `host` or `server`.
    pub bound: &'static str,
    /// Text of the SLO bound that the point misses; `None` if it meets the SLO.
    pub missed: Option<String>,
    /// Measurements that support the forecast of step times; `None` at the limit.
    pub evidence: Option<Evidence>,
    /// Measured kernel times on which the forecast of step times is based; `None` if no kernel with this format was
    /// measured, and at the limit.
    pub kernels: Option<Timed>,
    /// Bands of the means; `None` at the limit.
    pub bands: Option<Bands>,
}

impl CurvePoint {
    /// 80 % interval of output tokens per second of one user; `None` at the limit.
    pub fn interactivity_range(&self) -> Option<[f64; 2]> {
        let [fast, slow] = self.bands.as_ref()?.tpot_ms?.range;
        (fast > 0.0).then(|| [1e3 / slow, 1e3 / fast])
    }

    /// 80 % interval of output tokens per second per accelerator; `None` at the limit.
    pub fn throughput_range(&self) -> Option<[f64; 2]> {
        let span = self.bands.as_ref()?.output_tok_s?;
        Some(span.factors.map(|factor| factor * self.output_tok_s_per_accelerator))
    }
}
