//! Limits of a machine: decode and prefill times, ridge points and critical batches, links, and KV cache against
//! recomputation.
//!
//! Knows: the closed forms of the roofline. Times come from [`crate::cost`].

pub mod alternatives;

use crate::batch::Batch;
use crate::capacity::reshaped;
use crate::cost::{Bottleneck, Cost, Utilization, cost, limit};
use crate::deployment::Deployment;
use crate::forecaster::Forecaster;
use crate::memory;
use crate::operator::collective::{AllReduce, all_reduce, slowest};
use crate::parallelism::indivisible;
use crate::precision::Dtype;
use crate::units::Picoseconds;
use serde::Serialize;

/// Question for [`limits`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitsQuestion {
    /// Sequences that decode together, over the whole deployment.
    pub batch: u64,
    /// Context of each sequence in tokens, the new one included.
    pub context: u64,
    /// Tokens of a prompt.
    pub prefill: u64,
    /// Fractions of the peaks that count as reachable.
    pub utilization: Utilization,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limits {
    /// True if weights and the batch fit the memory; the times are valid in either case.
    pub fits: bool,
    /// One decode step of the batch.
    pub decode: Cost,
    /// Output tokens per second of the deployment, at the limit with communication.
    pub decode_tokens_per_s: f64,
    /// One prompt.
    pub prefill: Cost,
    /// Prompt tokens per second of the deployment, at the limit with communication.
    pub prefill_tokens_per_s: f64,
    /// FLOPs per byte and dtype at which compute and bandwidth balance.
    pub ridge: Vec<Ridge>,
    /// Tokens in a step from which a weight format is compute-bound.
    pub critical_batch: Vec<CriticalBatch>,
    /// One all-reduce of the decode step, by algorithm.
    pub all_reduce: Vec<AllReduce>,
    /// Degrees at which tensor parallelism stops helping.
    pub tensor_parallel: TensorParallel,
    /// Experts that the decode step reads; `None` for dense models.
    pub experts: Option<ExpertsTouched>,
    /// Cost of keeping the KV cache compared with recomputing it.
    pub kv_cache: KvCache,
}

/// Routed experts of a layer in a decode step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ExpertsTouched {
    /// Experts of the layer.
    pub count: u64,
    /// Experts that a token chooses.
    pub per_token: u64,
    /// Distinct experts that the batch touches, if tokens choose evenly.
    pub distinct: f64,
}

/// The ridge point of a dtype.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ridge {
    /// Dtype that computes.
    pub dtype: Dtype,
    /// Peak FLOP/s over bytes/s.
    pub flops_per_byte: f64,
}

/// Tokens in a step from which linear layers are compute-bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CriticalBatch {
    /// Bits of a weight.
    pub weight_bits: u32,
    /// Dtype that computes.
    pub dtype: Dtype,
    /// peak / bandwidth × (weight bytes / 2 FLOPs).
    pub batch: f64,
}

/// Degrees at which tensor parallelism stops helping.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorParallel {
    /// d_ff × link rate / peak, with both directions of every axis in use: a compute-bound layer is link-bound at
    /// higher degrees.
    pub compute_bound_width: f64,
    /// d_ff × link rate / (batch × memory bandwidth), over one axis: a memory-bound layer is link-bound at higher
    /// degrees.
    pub memory_bound_width: f64,
    /// The decode step at each legal degree.
    pub degrees: Vec<Degree>,
    /// The widest degree at which communication takes no more time than the rest.
    pub useful_tp: u64,
}

/// The decode step at one degree of tensor parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Degree {
    /// Accelerators that share each layer.
    pub tp: u64,
    /// Limit without communication.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// Communication.
    #[serde(rename = "communication_ms")]
    pub communication: Picoseconds,
    /// Bottleneck of the step.
    pub bound: Bottleneck,
}

/// Keeping the KV cache against recomputing it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KvCache {
    /// Decode step with the cache.
    #[serde(rename = "cached_ms")]
    pub cached: Picoseconds,
    /// Decode step without a cache: the whole context passes through the model again.
    #[serde(rename = "recomputed_ms")]
    pub recomputed: Picoseconds,
    /// Fraction of a token's matrix FLOPs that compute its keys and values; kipply's 1/6 for d_ff = 4 d.
    pub kv_flops_share: f64,
    /// Context from which the cache is faster at this batch.
    pub break_even_context: u64,
}

/// Answers `question` for the deployment of `forecaster`.
pub fn limits(forecaster: &Forecaster, question: &LimitsQuestion) -> Limits {
    let deployment = &forecaster.deployment;
    let decode = decode(forecaster, question);
    let prefill = cost(forecaster, &Batch::prefill(1, question.prefill), question.utilization);
    let replicas = deployment.parallelism.replicas as f64;
    let per_second = |tokens: f64, cost: &Cost| tokens / cost.limit_with_communication.seconds().max(1e-12);
    Limits {
        fits: memory::sequences(deployment, question.context).saturating_mul(deployment.parallelism.replicas)
            >= question.batch,
        decode_tokens_per_s: per_second(question.batch as f64, &decode),
        prefill_tokens_per_s: per_second(question.prefill as f64 * replicas, &prefill),
        ridge: ridge(deployment, question.utilization),
        critical_batch: critical_batch(deployment, question.utilization),
        all_reduce: all_reduce(
            &deployment.accelerator,
            deployment.parallelism.tp,
            decode.communication.message_bytes,
        ),
        tensor_parallel: tensor_parallel(forecaster, question),
        experts: experts(deployment, question.batch.div_ceil(deployment.parallelism.replicas)),
        kv_cache: kv_cache(deployment, question, &decode),
        decode,
        prefill,
    }
}

/// One decode step, the point function of a sweep.
pub fn decode(forecaster: &Forecaster, question: &LimitsQuestion) -> Cost {
    cost(forecaster, &Batch::decode(question.batch, question.context), question.utilization)
}

fn experts(deployment: &Deployment, tokens: u64) -> Option<ExpertsTouched> {
    deployment.model.layers.iter().find_map(|layer| match &layer.ffn {
        crate::model::Ffn::Experts(e) => {
            Some(ExpertsTouched { count: e.count, per_token: e.per_token, distinct: e.distinct(tokens) })
        }
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

/// Every sensible pair of weight width and compute dtype of the chip: 2·B FLOPs a weight against its bytes.
fn critical_batch(deployment: &Deployment, utilization: Utilization) -> Vec<CriticalBatch> {
    let base = deployment.base;
    let chip = &deployment.accelerator;
    let mut pairs = vec![(16, base), (8, base), (4, base)];
    pairs.extend(
        [(8, Dtype::Int8), (8, Dtype::Fp8), (4, Dtype::Fp4)].into_iter().filter(|(_, d)| chip.has(*d)),
    );
    let ridge = ridge(deployment, utilization);
    let of = |dtype| ridge.iter().find(|r| r.dtype == dtype).map_or(0.0, |r| r.flops_per_byte);
    pairs
        .into_iter()
        .map(|(weight_bits, dtype)| CriticalBatch {
            weight_bits,
            dtype,
            batch: of(dtype) * f64::from(weight_bits) / 16.0,
        })
        .collect()
}

fn tensor_parallel(forecaster: &Forecaster, question: &LimitsQuestion) -> TensorParallel {
    let deployment = &forecaster.deployment;
    let chip = &deployment.accelerator;
    let base_rate = chip.peak(deployment.base).map_or(f64::NAN, |r| r.0) * question.utilization.mfu;
    let (link, _) = slowest(chip, chip.node_size);
    // Both directions of a ring carry half a message each.
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

/// Powers of two within a node that divide the heads.
fn degrees(deployment: &Deployment) -> Vec<u64> {
    let most = deployment.accelerator.node_size.max(deployment.parallelism.tp).min(512);
    (0..10)
        .map(|p| 1 << p)
        .filter(|tp| *tp <= most && indivisible(&deployment.model, *tp).is_none())
        .collect()
}

fn widest_ffn(deployment: &Deployment) -> u64 {
    use crate::model::Ffn;
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
    let most = deployment.model.max_context.unwrap_or(1 << 20).min(1 << 20);
    // Recomputation grows faster with context than reading the cache: bisect for the first context at which it is
    // slower.
    let (mut below, mut above) = (1, most + 1);
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        // A difference of one part in a thousand is ignored, because at short contexts both read nearly only the
        // weights.
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

/// FLOPs of the key and value projections over the FLOPs of all layer matrices.
fn kv_flops_share(deployment: &Deployment) -> f64 {
    use crate::model::TensorRole;
    let model = &deployment.model;
    let (mut kv, mut all) = (0.0, 0.0);
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

/// One point of the intensity curve of a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct IntensityPoint {
    /// Rows in the batch.
    pub batch: u64,
    /// FLOPs per byte, with inputs and outputs: 2·B·n·k / (n·k·w + B·(n + k)·a).
    pub flops_per_byte: f64,
    /// Bottleneck on this chip.
    pub bound: Bottleneck,
}

/// The arithmetic intensity of one `rows × columns` layer against batch, activations counted.
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
    let (n, k) = (rows as f64, columns as f64);
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
