//! Limits of a machine: decode and prefill times, ridge points and critical batches, links, and KV cache compared
//! with recomputation.
//!
//! Knows: the closed forms of the roofline. Times come from [`crate::cost`].

mod adapters;
pub mod alternatives;
mod economy;
mod images;

pub use adapters::AdapterCost;
pub use economy::{CostCurve, CostPoint, cost_curves};
pub use images::{ImageCost, image};

use crate::capacity::reshaped;
use crate::cost::{Bottleneck, Cost, Utilization, bound, cost, limit};
use crate::forecaster::Forecaster;
use crate::memory::Memory;
use crate::operator::collective::{AllReduce, all_reduce};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::parallelism::indivisible;
use roofcast_facts::batch::Batch;
use roofcast_facts::error::Result;
use roofcast_facts::model::Ffn;
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::Picoseconds;
use serde::Serialize;

/// Question for [`limits`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitsQuestion {
    /// Sequences that decode together, over the whole deployment.
    pub batch: u64,
    /// Context of each sequence in tokens, the new token included.
    pub context: u64,
    /// Tokens of a prompt.
    pub prefill: u64,
    /// Fractions of the peak rates that a limit assumes to be reachable.
    pub utilization: Utilization,
}

impl LimitsQuestion {
    /// The forecaster of `deployment`, with the evidence of the steps of the question.
    ///
    /// # Errors
    /// Fails if the embedded calibration cannot be read.
    pub fn forecaster(&self, deployment: Deployment) -> Result<Forecaster> {
        Forecaster::embedded(deployment)?.asked(&self.steps())
    }

    /// The decode step and the prompt of the question.
    pub fn steps(&self) -> [Batch; 2] {
        [Batch::decode(self.batch, self.context), Batch::prefill(1, self.prefill)]
    }
}

/// Answer of [`limits`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// True if weights and the batch fit in memory; the times are valid in either case.
    pub fits: bool,
    /// Cost of one decode step of the batch.
    pub decode: Cost,
    /// Output tokens per second of the deployment, at the limit with messages between ranks.
    pub decode_tokens_per_s: f64,
    /// Output tokens per second of the deployment, by the forecast.
    pub decode_forecast_tokens_per_s: f64,
    /// Cost of one prompt.
    pub prefill: Cost,
    /// Prompt tokens per second of the deployment, at the limit with messages between ranks.
    pub prefill_tokens_per_s: f64,
    /// Prompt tokens per second of the deployment, by the forecast.
    pub prefill_forecast_tokens_per_s: f64,
    /// Ridge point of each dtype: FLOPs per byte at which compute and memory take equal time.
    pub ridge: Vec<Ridge>,
    /// Tokens in a step from which on a weight format is compute-bound.
    pub critical_batch: Vec<CriticalBatch>,
    /// One all-reduce of the decode step, by algorithm.
    pub all_reduce: Vec<AllReduce>,
    /// Degrees beyond which tensor parallelism does not shorten a step.
    pub tensor_parallel: TensorParallel,
    /// Experts that the decode step reads; `None` for dense models.
    pub experts: Option<ExpertsTouched>,
    /// Cost of keeping the KV cache compared with recomputing it.
    pub kv_cache: KvCache,
    /// Cost of LoRA adapters; `None` if none are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterCost>,
}

/// Routed experts of one layer that a decode step reads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExpertsTouched {
    /// Number of experts of the layer.
    pub count: u64,
    /// Number of experts that a token chooses.
    pub per_token: u64,
    /// Number of distinct experts that the batch reads, if tokens choose evenly and independently.
    pub distinct: f64,
    /// Limit of the step without messages if all tokens choose the same experts, as tokens of one text may: no step of this batch
    /// is faster.
    #[serde(rename = "least_ms")]
    pub least: Picoseconds,
}

/// Ridge point of a dtype.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ridge {
    /// Dtype of the arithmetic.
    pub dtype: Dtype,
    /// Peak FLOP/s over bandwidth in bytes/s.
    pub flops_per_byte: f64,
}

/// Tokens in a step from which on linear layers are compute-bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CriticalBatch {
    /// Bits per weight.
    pub weight_bits: u32,
    /// Dtype of the arithmetic.
    pub dtype: Dtype,
    /// Critical number of tokens: peak / bandwidth × (weight bytes / 2 FLOPs).
    pub batch: f64,
}

/// Degrees beyond which tensor parallelism does not shorten a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TensorParallel {
    /// Highest degree at which a compute-bound layer is not link-bound: d_ff × link rate / peak, with both directions
    /// of every axis in use.
    pub compute_bound_width: f64,
    /// Highest degree at which a memory-bound layer is not link-bound: d_ff × link rate / (batch × memory bandwidth),
    /// over one axis.
    pub memory_bound_width: f64,
    /// Decode step at each valid degree.
    pub degrees: Vec<Degree>,
    /// Highest degree at which messages take no longer than the rest of the step.
    pub useful_tp: u64,
}

/// Decode step at one degree of tensor parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Degree {
    /// Number of accelerators over which each layer is sharded.
    pub tp: u64,
    /// Limit without messages between ranks.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// Time of the messages between ranks.
    #[serde(rename = "communication_ms")]
    pub communication: Picoseconds,
    /// Bottleneck of the step.
    pub bound: Bottleneck,
}

/// Comparison of keeping the KV cache with recomputing it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvCache {
    /// Time of a decode step that reads the cache.
    #[serde(rename = "cached_ms")]
    pub cached: Picoseconds,
    /// Time of a decode step without a cache: the whole context passes through the model again.
    #[serde(rename = "recomputed_ms")]
    pub recomputed: Picoseconds,
    /// Fraction of a token's GEMM FLOPs that compute its keys and values: 1/6 for d_ff = 4 d, in kipply's
    /// calculation.
    pub kv_flops_share: f64,
    /// Context in tokens from which on the cache is faster at this batch.
    pub break_even_context: u64,
}

/// Answers `question` for the deployment of `forecaster`.
pub fn limits(forecaster: &Forecaster, question: &LimitsQuestion) -> Limits {
    let deployment = &forecaster.deployment;
    let decode = decode(forecaster, question);
    let prefill = cost(forecaster, &Batch::prefill(1, question.prefill), question.utilization);
    let replicas = deployment.parallelism.replicas as f64;
    let per_second = |tokens: f64, time: Picoseconds| tokens / time.seconds().max(1e-12);
    let prompts = question.prefill as f64 * replicas;
    Limits {
        fits: Memory::of(deployment)
            .sequences(question.context)
            .saturating_mul(deployment.parallelism.replicas)
            >= question.batch,
        decode_tokens_per_s: per_second(question.batch as f64, decode.limit_with_communication),
        decode_forecast_tokens_per_s: per_second(question.batch as f64, decode.forecast),
        prefill_tokens_per_s: per_second(prompts, prefill.limit_with_communication),
        prefill_forecast_tokens_per_s: per_second(prompts, prefill.forecast),
        ridge: ridge(deployment, question.utilization),
        critical_batch: critical_batch(deployment, question.utilization),
        all_reduce: all_reduce(
            &deployment.accelerator,
            deployment.parallelism.tp,
            decode.communication.message_bytes,
        ),
        tensor_parallel: tensor_parallel(forecaster, question),
        experts: experts(deployment, question),
        kv_cache: kv_cache(deployment, question, &decode),
        adapters: adapters::cost(forecaster, question),
        decode,
        prefill,
    }
}

/// Cost of one decode step: the function that a sweep evaluates at each point.
pub fn decode(forecaster: &Forecaster, question: &LimitsQuestion) -> Cost {
    cost(forecaster, &Batch::decode(question.batch, question.context), question.utilization)
}

fn experts(deployment: &Deployment, question: &LimitsQuestion) -> Option<ExpertsTouched> {
    let tokens = question.batch.div_ceil(deployment.parallelism.replicas);
    let batch = Batch::decode(question.batch, question.context);
    let least = || bound(deployment, &batch, question.utilization).limit;
    deployment.model.layers.iter().find_map(|layer| match &layer.ffn {
        Ffn::Experts(e) => Some(ExpertsTouched {
            count: e.count,
            per_token: e.per_token,
            distinct: e.distinct(tokens),
            least: least(),
        }),
        _ => None,
    })
}

fn ridge(deployment: &Deployment, utilization: Utilization) -> Vec<Ridge> {
    let bandwidth = deployment.bandwidth().0 * utilization.mbu;
    let peaks = deployment.accelerator.peak_flops.iter();
    peaks
        .map(|(dtype, rate)| Ridge { dtype: *dtype, flops_per_byte: rate.0 * utilization.mfu / bandwidth })
        .collect()
}

/// Critical batch of every sensible pair of weight width and compute dtype of the chip: 2·B FLOPs per weight against
/// the weight's bytes.
fn critical_batch(deployment: &Deployment, utilization: Utilization) -> Vec<CriticalBatch> {
    let base = deployment.base;
    let chip = &deployment.accelerator;
    let mut pairs = vec![(16, base), (8, base), (4, base)];
    pairs.extend(
        [(8, Dtype::Int8), (8, Dtype::Fp8), (4, Dtype::Fp4)].into_iter().filter(|(_, d)| chip.has(*d)),
    );
    let ridge = ridge(deployment, utilization);
    let ridge_of = |dtype| ridge.iter().find(|r| r.dtype == dtype).map_or(0.0, |r| r.flops_per_byte);
    pairs
        .into_iter()
        .map(|(weight_bits, dtype)| CriticalBatch {
            weight_bits,
            dtype,
            batch: ridge_of(dtype) * f64::from(weight_bits) / 16.0,
        })
        .collect()
}

fn tensor_parallel(forecaster: &Forecaster, question: &LimitsQuestion) -> TensorParallel {
    let deployment = &forecaster.deployment;
    let chip = &deployment.accelerator;
    let base_rate = chip.peak(deployment.base).map_or(f64::NAN, |r| r.0) * question.utilization.mfu;
    let (link, _) = chip.slowest_link(chip.node_size);
    // Each direction of a ring carries half of a message.
    let axis = link.0 * 2.0;
    let axes = chip.link.as_ref().and_then(|l| l.axes).map_or(1.0, f64::from);
    let d_ff = widest_ffn(deployment) as f64;
    let degrees: Vec<Degree> = degrees(deployment)
        .into_iter()
        .filter_map(|tp| {
            let other = reshaped(deployment, tp, deployment.parallelism.pp)?;
            let step = decode(&forecaster.reshaped(other), question);
            Some(Degree { tp, limit: step.limit, communication: step.terms.communication, bound: step.bound })
        })
        .collect();
    let useful = degrees.iter().filter(|d| d.communication <= d.limit).map(|d| d.tp).max();
    TensorParallel {
        compute_bound_width: d_ff * axes * axis / base_rate,
        memory_bound_width: d_ff * axis
            / (question.batch.max(1) as f64 * deployment.bandwidth().0 * question.utilization.mbu),
        useful_tp: useful.unwrap_or(1),
        degrees,
    }
}

/// Degrees of tensor parallelism: powers of two within a node that divide the heads.
fn degrees(deployment: &Deployment) -> Vec<u64> {
    let widest = deployment.accelerator.node_size.max(deployment.parallelism.tp).min(512);
    (0..10)
        .map(|p| 1 << p)
        .filter(|tp| *tp <= widest && indivisible(&deployment.model, *tp).is_none())
        .collect()
}

fn widest_ffn(deployment: &Deployment) -> u64 {
    use roofcast_facts::model::Ffn;
    let widths = deployment.model.layers.iter().map(|l| match &l.ffn {
        Ffn::Dense(d) => d.intermediate,
        Ffn::Experts(e) => e.expert.intermediate * e.per_token,
        Ffn::None => 0,
    });
    widths.max().unwrap_or(0)
}

fn kv_cache(deployment: &Deployment, question: &LimitsQuestion, decode: &Cost) -> KvCache {
    let again = |context: u64| {
        limit(deployment, &Batch::prefill(question.batch, context), question.utilization).limit
    };
    let cached =
        |context: u64| limit(deployment, &Batch::decode(question.batch, context), question.utilization).limit;
    let longest = deployment.model.max_context.unwrap_or(1 << 20).min(1 << 20);
    // With the context, recomputation grows faster than reads of the cache: bisection finds the first context at
    // which recomputation is slower.
    let mut below = 1;
    let mut above = longest + 1;
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        // A difference below one part in a thousand is ignored, because at short contexts nearly all bytes are
        // weights, with or without a cache.
        if again(middle).0 > cached(middle).0 + cached(middle).0 / 1000 {
            above = middle
        } else {
            below = middle
        }
    }
    KvCache {
        cached: decode.limit,
        recomputed: again(question.context),
        kv_flops_share: kv_flops_share(deployment),
        break_even_context: above,
    }
}

/// FLOPs of the key and value projections over the FLOPs of all matrices of the layers.
fn kv_flops_share(deployment: &Deployment) -> f64 {
    use roofcast_facts::model::TensorRole;
    let model = &deployment.model;
    let mut kv = 0.0;
    let mut all = 0.0;
    for tensor in model.layers.iter().flat_map(|l| l.tensors(model.hidden)) {
        let matrix = tensor.role == TensorRole::Linear
            || tensor.role == TensorRole::Expert
            || tensor.role == TensorRole::Router;
        let flops = if matrix { tensor.elements() as f64 } else { 0.0 };
        all += flops;
        if tensor.name == "self_attn.k_proj"
            || tensor.name == "self_attn.v_proj"
            || tensor.name.starts_with("self_attn.kv_")
        {
            kv += flops;
        }
    }
    if all > 0.0 { kv / all } else { 0.0 }
}

/// Arithmetic intensity of a linear layer at one batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntensityPoint {
    /// Rows of the batch.
    pub batch: u64,
    /// FLOPs per byte, activations included: 2·B·n·k / (n·k·w + B·(n + k)·a).
    pub flops_per_byte: f64,
    /// Bottleneck on this chip.
    pub bound: Bottleneck,
}

/// Arithmetic intensity of a `rows × columns` layer at each batch, activations included.
pub fn intensity(
    deployment: &Deployment,
    rows: u64,
    columns: u64,
    weight_bytes: f64,
    batches: &[u64],
) -> Vec<IntensityPoint> {
    let ridge = ridge(deployment, Utilization::FULL);
    let ridge = ridge.iter().find(|r| r.dtype == deployment.base).map_or(f64::INFINITY, |r| r.flops_per_byte);
    let activation = f64::from(deployment.base.bits()) / 8.0;
    let n = rows as f64;
    let k = columns as f64;
    let point = |&batch: &u64| {
        let b = batch as f64;
        let flops_per_byte = 2.0 * b * n * k / (n * k * weight_bytes + b * (n + k) * activation);
        IntensityPoint {
            batch,
            flops_per_byte,
            bound: if flops_per_byte < ridge { Bottleneck::Memory } else { Bottleneck::Compute },
        }
    };
    batches.iter().map(point).collect()
}
