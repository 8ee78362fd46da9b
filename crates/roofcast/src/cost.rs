//! The price of a forward pass: its limit, operator by operator, and the forecast beside it.
//!
//! Knows: `limit = Σ operators max(FLOPs/peak, bytes/bandwidth)` and which term binds. Bytes are weights and KV.

use crate::deployment::Deployment;
use crate::efficiency::{Forecast, Mixers};
use crate::operator::collective::{Communication, communication, slowest};
use crate::operator::{Batch, Family, Work, work};
use crate::precision::Dtype;
use crate::units::{ByteRate, Bytes, FlopRate, Flops, Picoseconds};
use serde::Serialize;

/// What keeps a step from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory bandwidth.
    Memory,
    /// Arithmetic.
    Compute,
    /// Links.
    Communication,
}

/// Shares of the peaks that count as reachable; both 1 in a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilization {
    /// Model FLOPs utilization: scales compute.
    pub mfu: f64,
    /// Model bandwidth utilization: scales memory bandwidth.
    pub mbu: f64,
}

impl Utilization {
    /// The limit itself.
    pub const FULL: Utilization = Utilization { mfu: 1.0, mbu: 1.0 };
}

/// One operator over all its layers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operator {
    /// As in `qkv_proj`.
    pub name: &'static str,
    /// Its family.
    pub family: Family,
    /// Layers that have it.
    pub layers: u64,
    /// The dtype that computes.
    pub dtype: Dtype,
    /// Operations.
    pub flops: Flops,
    /// Weights read.
    pub weight_bytes: Bytes,
    /// KV cache read and written.
    pub kv_bytes: Bytes,
    /// FLOPs per byte.
    pub intensity: f64,
    /// What binds it.
    pub bound: Bound,
    /// Its limit.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
}

/// Totals over the rate that each would need alone. They overlap: not a partition of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Terms {
    /// All weights over the bandwidth.
    #[serde(rename = "weights_ms")]
    pub weights: Picoseconds,
    /// All KV over the bandwidth.
    #[serde(rename = "kv_ms")]
    pub kv: Picoseconds,
    /// All operations over their peaks.
    #[serde(rename = "flops_ms")]
    pub flops: Picoseconds,
    /// All messages over the slowest link.
    #[serde(rename = "communication_ms")]
    pub communication: Picoseconds,
}

/// The price of one forward pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// What cannot be beaten, without communication.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// With communication, nothing overlapped.
    #[serde(rename = "limit_with_communication_ms")]
    pub limit_with_communication: Picoseconds,
    /// What is expected.
    #[serde(rename = "forecast_ms")]
    pub forecast: Picoseconds,
    /// The forecast's band, 10th to 90th percentile.
    #[serde(rename = "forecast_band_ms")]
    pub forecast_band: [Picoseconds; 2],
    /// Which calibration the forecast used.
    pub forecast_source: String,
    /// What takes most of the time.
    pub bound: Bound,
    /// Totals.
    pub terms: Terms,
    /// Share of the peak rate that the limit would reach.
    pub mfu: f64,
    /// Share of the bandwidth that the limit would reach.
    pub mbu: f64,
    /// FLOPs per byte.
    pub intensity: f64,
    /// Messages.
    pub communication: Communication,
    /// The operators, in order of execution.
    pub operators: Vec<Operator>,
}

/// Prices `batch` on `deployment`.
pub fn cost(deployment: &Deployment, batch: &Batch, utilization: Utilization) -> Cost {
    let works = work(deployment, batch);
    let bandwidth = ByteRate(deployment.bandwidth().0 * utilization.mbu);
    let mut operators: Vec<Operator> = Vec::new();
    let mut terms = Terms {
        weights: Picoseconds::ZERO,
        kv: Picoseconds::ZERO,
        flops: Picoseconds::ZERO,
        communication: Picoseconds::ZERO,
    };
    let mut compute_bound = Picoseconds::ZERO;
    for work in &works {
        let (computing, moving) = times(work, bandwidth, utilization.mfu);
        let limit = computing.max(moving) * work.layers;
        terms.flops += computing * work.layers;
        terms.weights += Picoseconds::moving(work.weight_bytes, bandwidth) * work.layers;
        terms.kv += Picoseconds::moving(work.kv_bytes, bandwidth) * work.layers;
        if computing > moving {
            compute_bound += limit;
        }
        let bound = if computing > moving { Bound::Compute } else { Bound::Memory };
        merge(&mut operators, work, limit, bound);
    }
    for operator in &mut operators {
        let bytes = operator.weight_bytes + operator.kv_bytes;
        operator.intensity = ratio(operator.flops.as_f64(), bytes.as_f64());
    }
    let communication = communication(deployment, batch);
    terms.communication = communication.total();
    let limit: Picoseconds = operators.iter().map(|o| o.limit).sum();
    let flops: Flops = operators.iter().map(|o| o.flops).sum();
    let bytes: Bytes = operators.iter().map(|o| o.weight_bytes + o.kv_bytes).sum();
    let memory_bound = Picoseconds(limit.0 - compute_bound.0);
    let bound = if terms.communication > compute_bound.max(memory_bound) {
        Bound::Communication
    } else if compute_bound > memory_bound {
        Bound::Compute
    } else {
        Bound::Memory
    };
    let forecast = forecast(deployment, &works, batch, &communication);
    let limit_with_communication = limit + terms.communication;
    Cost {
        limit,
        limit_with_communication,
        // A user's own --mfu or --mbu may be below the generic one.
        forecast: forecast.time.max(limit_with_communication),
        forecast_band: forecast.band.map(|t| t.max(limit_with_communication)),
        forecast_source: deployment.efficiency.name.clone(),
        bound,
        terms,
        // Rounding to picoseconds may overshoot by parts in a billion.
        mfu: ratio(terms.flops.seconds() * utilization.mfu, limit.seconds()).min(1.0),
        mbu: ratio(bytes.as_f64(), deployment.bandwidth().0 * limit.seconds()).min(1.0),
        intensity: ratio(flops.as_f64(), bytes.as_f64()),
        communication,
        operators,
    }
}

/// The expected time of a forward pass, by the deployment's efficiency.
fn forecast(
    deployment: &Deployment,
    works: &[Work],
    batch: &Batch,
    communication: &Communication,
) -> Forecast {
    let efficiency = &deployment.efficiency;
    let bandwidth = deployment.bandwidth();
    let overhead = efficiency.overhead(
        communication.all_reduces,
        slowest(&deployment.accelerator, deployment.parallelism.tp).1,
        hidden_bytes(deployment),
        bandwidth,
        Mixers::of(&deployment.model),
    );
    let p = deployment.parallelism;
    let rank = |n: u64| n.div_ceil(p.replicas * p.attention_dp);
    let operators: Picoseconds = works.iter().map(|w| efficiency.time(w, bandwidth)).sum();
    let prompts = batch.groups.iter().any(|g| g.new > 1);
    let time = operators
        + efficiency.linked(communication)
        + overhead.step
        + if prompts { overhead.prefill } else { Picoseconds::ZERO }
        + overhead.sequence * rank(batch.sequences())
        + Picoseconds::from_seconds(overhead.token * rank(batch.tokens()) as f64);
    let factors = efficiency.band.map_or([1.0, 1.0], |b| if prompts { b.ttft } else { b.tpot });
    Forecast { time, band: factors.map(|f| Picoseconds::from_seconds(time.seconds() * f)) }
}

/// Bytes of a token's hidden state, in all layers together.
pub fn hidden_bytes(deployment: &Deployment) -> f64 {
    let model = &deployment.model;
    model.layers.len() as f64 * model.hidden as f64 * f64::from(deployment.base.bits()) / 8.0
}

/// Time to compute and time to move one layer's work.
fn times(work: &Work, bandwidth: ByteRate, mfu: f64) -> (Picoseconds, Picoseconds) {
    let computing = Picoseconds::computing(work.flops, FlopRate(work.rate.0 * mfu));
    (computing, Picoseconds::moving(work.weight_bytes + work.kv_bytes, bandwidth))
}

/// Adds one block's work to the operator of the same name and dtype.
fn merge(operators: &mut Vec<Operator>, work: &Work, limit: Picoseconds, bound: Bound) {
    let layers = work.layers;
    let (flops, weight_bytes, kv_bytes) =
        (work.flops * layers, work.weight_bytes * layers, work.kv_bytes * layers);
    match operators.iter_mut().find(|o| o.name == work.name && o.dtype == work.dtype) {
        Some(known) => {
            known.layers += layers;
            known.flops += flops;
            known.weight_bytes += weight_bytes;
            known.kv_bytes += kv_bytes;
            // The longer of two parts names the bound.
            if limit > known.limit {
                known.bound = bound;
            }
            known.limit += limit;
        }
        None => operators.push(Operator {
            name: work.name,
            family: work.family,
            layers,
            dtype: work.dtype,
            flops,
            weight_bytes,
            kv_bytes,
            intensity: 0.0,
            bound,
            limit,
        }),
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
