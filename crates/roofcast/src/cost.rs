//! The price of a forward pass: its limit, operator by operator, and the forecast beside it.
//!
//! Knows: `limit = Σ operators max(FLOPs/peak, bytes/bandwidth)` and which term binds. Bytes are weights and KV.

use crate::deployment::Deployment;
use crate::efficiency::{Circumstances, Forecast, Mixers, busiest, waiting};
use crate::model::{Dense, Ffn, Layer};
use crate::operator::collective::{Communication, communication, slowest};
use crate::operator::{Batch, Family, Sequences, Work, work};
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
    let overhead = efficiency.overhead(&circumstances(deployment, communication.all_reduces));
    let p = deployment.parallelism;
    let rank = |n: u64| n.div_ceil(p.replicas * p.attention_dp);
    let replica = batch.local(p.replicas);
    let busiest = replica.local(p.attention_dp);
    let prompts = batch.groups.iter().any(Sequences::is_prompt);
    let times = match mixed(batch) {
        None => works.iter().map(|w| efficiency.time(w, bandwidth)).collect(),
        Some(parts) => beside(deployment, works, &parts),
    };
    let of = |attends: bool| {
        works.iter().zip(&times).filter(move |(w, _)| w.attends() == attends).map(|(_, t)| *t)
    };
    let device = of(false).sum::<Picoseconds>()
        + works.iter().map(|w| efficiency.calls(w)).sum()
        + efficiency.linked(communication)
        + overhead.step
        + if prompts { overhead.prefill + overhead.ending } else { Picoseconds::ZERO }
        + overhead.sequence * rank(batch.sequences())
        + Picoseconds::from_seconds(overhead.token * busiest.tokens() as f64)
        + Picoseconds::from_seconds(overhead.routed * replica.tokens() as f64);
    let waiting = waiting(device.seconds(), overhead.launches.seconds());
    let time = device + Picoseconds::from_seconds(waiting) + of(true).sum();
    let factors = efficiency.band.map_or([1.0, 1.0], |b| if prompts { b.ttft } else { b.tpot });
    Forecast { time, band: factors.map(|f| Picoseconds::from_seconds(time.seconds() * f)) }
}

/// What decides what steps of `all_reduces` messages cost beside their operators.
pub fn circumstances(deployment: &Deployment, all_reduces: u64) -> Circumstances {
    let eager = deployment.options.engine.enforce_eager.unwrap_or(false);
    Circumstances {
        all_reduces,
        latency: slowest(&deployment.accelerator, deployment.parallelism.tp).1,
        elementwise_bytes: elementwise_bytes(deployment),
        expert_bytes: expert_bytes(deployment),
        bandwidth: deployment.bandwidth(),
        mixers: Mixers::of(&deployment.model),
        eager_layers: if eager { deployment.model.layers.len() as u64 } else { 0 },
        host_speed: deployment.accelerator.host_speed,
    }
}

/// The decodes and the prompts of a batch that has both.
fn mixed(batch: &Batch) -> Option<[Batch; 2]> {
    let (decodes, prompts): (Vec<_>, Vec<_>) = batch.groups.iter().partition(|g| !g.is_prompt());
    let mixed = !decodes.is_empty() && !prompts.is_empty();
    mixed.then(|| [decodes, prompts].map(|groups| Batch { groups }))
}

/// The times of operators where one kernel may attend for decodes and prompts.
fn beside(deployment: &Deployment, works: &[Work], [decodes, prompts]: &[Batch; 2]) -> Vec<Picoseconds> {
    let efficiency = &deployment.efficiency;
    let bandwidth = deployment.bandwidth();
    let starting = |g: &Sequences| Sequences { context: 1, ..*g };
    let started = Batch { groups: decodes.groups.iter().map(starting).collect() };
    let longest = prompts.groups.iter().map(|g| g.new).max().unwrap_or(0);
    let [of_decodes, of_prompts, first] = [decodes, prompts, &started].map(|b| work(deployment, b));
    let time = |(index, whole): (usize, &Work)| {
        let parts = [&of_decodes, &of_prompts, &first].map(|w| w.get(index));
        match parts {
            [Some(decodes), Some(prompts), Some(first)] if efficiency.reach(whole).mixed_rows > 1.0 => {
                efficiency.time_mixed([decodes, prompts, first], longest, bandwidth)
            }
            _ => efficiency.time(whole, bandwidth),
        }
    };
    works.iter().enumerate().map(time).collect()
}

/// Bytes that norms and activation functions move for a token in all layers together: each layer's two norms read and write
/// the hidden state, what they add to the residual staying in caches, and an MLP's function reads its inner width, twice
/// where it is gated, and writes it. A routed expert's function is in its own kernel.
pub fn elementwise_bytes(deployment: &Deployment) -> f64 {
    let model = &deployment.model;
    let inner =
        |mlp: &Dense| (if mlp.gated { 3 } else { 2 }) * mlp.intermediate.div_ceil(deployment.parallelism.tp);
    let layer = |layer: &Layer| {
        let mlps = match &layer.ffn {
            Ffn::Dense(dense) => inner(dense),
            Ffn::Experts(experts) => experts.shared.iter().chain(&experts.beside).map(inner).sum(),
            Ffn::None => 0,
        };
        4 * model.hidden + mlps
    };
    let elements: u64 = model.layers.iter().map(layer).sum();
    elements as f64 * f64::from(deployment.base.bits()) / 8.0
}

/// Bytes of a token's hidden state for each expert that it passes on the busiest rank, in all layers together.
fn expert_bytes(deployment: &Deployment) -> f64 {
    let p = deployment.parallelism;
    let copies = |layer: &Layer| match &layer.ffn {
        Ffn::Experts(experts) => experts.per_token * experts.width(deployment.model.hidden),
        Ffn::Dense(_) | Ffn::None => 0,
    };
    let elements: u64 = deployment.model.layers.iter().map(copies).sum();
    let part = busiest(p.ep) / p.ep as f64;
    elements as f64 * part * f64::from(deployment.base.bits()) / 8.0
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::Options;
    use crate::efficiency::Overhead;
    use crate::model::config;
    use crate::parallelism::Request;
    use std::sync::Arc;

    fn deployment(model: &str, tp: u64, ep: u64) -> Deployment {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let parallelism = Request { count: Some(tp), tp: Some(tp), ep: Some(ep), ..Request::default() };
        Deployment::resolve(model, accelerator, &Options { parallelism, ..Options::default() }).unwrap()
    }

    /// Llama-3.1-8B: 32 layers of 4·4096 and 3·14,336 values, of which four ranks have 3·3584 each, in two bytes.
    #[test]
    fn norms_and_activation_functions_by_hand() {
        let llama = |tp| elementwise_bytes(&deployment("meta-llama/Llama-3.1-8B-Instruct", tp, 1));
        assert_eq!(llama(1), 32.0 * 2.0 * (16_384.0 + 43_008.0));
        assert_eq!(llama(4), 32.0 * 2.0 * (16_384.0 + 10_752.0));
    }

    /// Qwen3-30B-A3B: 48 layers, 8 experts a token, 2048 values in two bytes; of four ranks the busiest has 4^0.3/4 of them.
    #[test]
    fn what_passes_between_experts_by_hand() {
        let qwen = |tp, ep| expert_bytes(&deployment("Qwen/Qwen3-30B-A3B", tp, ep));
        let all = 48.0 * 8.0 * 2048.0 * 2.0;
        assert_eq!(qwen(1, 1), all);
        assert!((qwen(4, 4) / (all * 4f64.powf(0.3) / 4.0) - 1.0).abs() < 1e-12);
    }

    /// A host that launches layer by layer is waited for at one sequence, and hardly at prompts of 8192 tokens.
    #[test]
    fn an_eager_host_is_waited_for() {
        let captured = deployment("meta-llama/Llama-3.1-8B-Instruct", 1, 1);
        let mut eager = captured.clone();
        eager.options.engine.enforce_eager = Some(true);
        let later = |batch: &Batch| {
            let [eager, captured] =
                [&eager, &captured].map(|d| cost(d, batch, Utilization::FULL).forecast.seconds());
            eager / captured
        };
        assert!(later(&Batch::decode(1, 100)) > 1.3);
        assert!((1.0..1.001).contains(&later(&Batch::prefill(1, 8192))));
    }

    /// A host of half the speed takes twice as long for a step, for each sequence, for a prompt's end and to launch.
    #[test]
    fn a_slower_host_takes_longer() {
        let mut deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", 1, 1);
        deployment.options.engine.enforce_eager = Some(true);
        let of = |host_speed| {
            let at = Circumstances { host_speed, ..circumstances(&deployment, 0) };
            deployment.efficiency.overhead(&at)
        };
        let (usual, slow) = (of(1.0), of(0.5));
        let host = |o: &Overhead| [o.step, o.sequence, o.ending, o.launches];
        for (slow, usual) in host(&slow).into_iter().zip(host(&usual)) {
            assert!(usual > Picoseconds::ZERO && (slow.seconds() / usual.seconds() - 2.0).abs() < 1e-6);
        }
        assert_eq!(slow.token, usual.token);
    }
}
