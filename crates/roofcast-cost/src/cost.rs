//! The cost of a forward pass: its limit, operator by operator, and the forecast.
//!
//! Knows: `limit = Σ operators max(FLOPs/peak, bytes/bandwidth)` and the bottleneck of each operator. The bytes are
//! those of weights and KV cache. Knows nothing about schedules.

use crate::coefficients::{Coefficients, Evidence, Load, ends};
use crate::forecaster::Forecaster;
use crate::kernel_time::Basis;
use crate::operator::Work;
use crate::operator::collective::Communication;
use crate::step::{Pass, StepModel};
use crate::timing::Timing;
use roofcast_ask::deployment::Deployment;
use roofcast_facts::batch::{Batch, Sequences};
use roofcast_facts::model::{Family, OperatorKind};
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::{Bytes, Flops, Picoseconds};
use serde::Serialize;
use std::sync::Arc;

/// Bottleneck of a step or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// HBM bandwidth.
    Memory,
    /// Arithmetic rate.
    Compute,
    /// Links between accelerators.
    Communication,
}

roofcast_facts::named! { Bottleneck {
    Memory: "memory",
    Compute: "compute",
    Communication: "communication",
} }

/// Fractions of the peak rates that a limit assumes to be reachable, each above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilization {
    /// Model FLOPs utilization: fraction of the peak FLOP/s.
    pub mfu: f64,
    /// Model bandwidth utilization: fraction of the memory bandwidth.
    pub mbu: f64,
}

impl Utilization {
    /// Full peak rates, which give the limit itself.
    pub const FULL: Utilization = Utilization { mfu: 1.0, mbu: 1.0 };
}

/// Cost of one operator, summed over all layers that have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperatorCost {
    /// Kind of operator, as in `qkv_proj`.
    pub name: OperatorKind,
    /// Family of the operator.
    pub family: Family,
    /// True if weights or cache lie in the host's memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_host: bool,
    /// Number of layers with this operator.
    pub layers: u64,
    /// Dtype of the arithmetic.
    pub dtype: Dtype,
    /// FLOPs of the pass.
    pub flops: Flops,
    /// Bytes of weights read.
    pub weight_bytes: Bytes,
    /// Bytes of KV cache read and written.
    pub kv_bytes: Bytes,
    /// Arithmetic intensity: FLOPs per byte.
    pub intensity: f64,
    /// Bottleneck at the limit.
    pub bound: Bottleneck,
    /// Limit of the operator.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// Forecast time of the operator's kernels.
    #[serde(rename = "forecast_ms")]
    pub forecast: Picoseconds,
    /// Efficiency: limit over forecast.
    pub share: f64,
    /// Measurement or assumption behind the forecast; `None` for a limit alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rests_on: Option<Basis>,
}

/// Times that a forecast adds outside operators.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddedTimes {
    /// Time of norms, rotary embeddings, cache writes, activations, routing and sampling.
    #[serde(rename = "small_kernels_ms")]
    pub small_kernels: Picoseconds,
    /// Exposed launch time.
    #[serde(rename = "launches_ms")]
    pub launches: Picoseconds,
    /// Exposed host time of a step.
    #[serde(rename = "host_ms")]
    pub host: Picoseconds,
    /// Time for which a step waits for the server's messages to clients.
    #[serde(rename = "server_ms")]
    pub server: Picoseconds,
    /// Exposed time of messages between ranks.
    #[serde(rename = "links_ms")]
    pub links: Picoseconds,
}

impl AddedTimes {
    fn of(expected: &Timing, pass: &Pass) -> AddedTimes {
        let beside = expected.beside(pass);
        let time = Picoseconds::from_seconds;
        AddedTimes {
            small_kernels: time(beside.small_kernels),
            launches: time(beside.launches),
            host: time(beside.host),
            server: time(beside.server),
            links: time(beside.links),
        }
    }
}

/// Time of each total at its own rate, as if it were alone. The times overlap, so they are not a partition of the
/// limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Terms {
    /// Bytes of all weights over the bandwidth.
    #[serde(rename = "weights_ms")]
    pub weights: Picoseconds,
    /// Bytes of KV cache over the bandwidth.
    #[serde(rename = "kv_ms")]
    pub kv: Picoseconds,
    /// FLOPs over the peak rates of their dtypes.
    #[serde(rename = "flops_ms")]
    pub flops: Picoseconds,
    /// Bytes of all messages over the rate of the slowest link.
    #[serde(rename = "communication_ms")]
    pub communication: Picoseconds,
}

/// The cost of one forward pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// Limit without messages between ranks.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// Limit plus the time of messages between ranks, without overlap.
    #[serde(rename = "limit_with_communication_ms")]
    pub limit_with_communication: Picoseconds,
    /// Forecast time of the pass.
    #[serde(rename = "forecast_ms")]
    pub forecast: Picoseconds,
    /// Band of the forecast: 10th to 90th percentile.
    #[serde(rename = "forecast_band_ms")]
    pub forecast_band: [Picoseconds; 2],
    /// Name of the calibration and measurements behind the forecast.
    pub forecast_source: String,
    /// Depth of evidence behind the forecast; `None` for a limit.
    pub forecast_evidence: Option<Evidence>,
    /// Bottleneck of the limit: the resource with the largest part of its time.
    pub bound: Bottleneck,
    /// Bottleneck of the forecast: `memory`, `compute`, `communication`, `host`, or `server` if the server's messages to
    /// clients take longer than the device.
    pub forecast_bound: &'static str,
    /// Flag of the engine that lifts the forecast's bottleneck; absent if no flag does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// Time of each total at its own rate.
    pub terms: Terms,
    /// Model FLOPs utilization of a pass that reaches the limit.
    pub mfu: f64,
    /// Model bandwidth utilization of a pass that reaches the limit.
    pub mbu: f64,
    /// Arithmetic intensity: FLOPs per byte.
    pub intensity: f64,
    /// Messages between ranks.
    pub communication: Communication,
    /// The operators, in order of execution.
    pub operators: Vec<OperatorCost>,
    /// Times that the forecast adds outside operators; all zero for a limit.
    pub beside: AddedTimes,
    /// Measurement behind the forecast of all-reduces; absent for a limit, and if there are none or none were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_reduces_rest_on: Option<Basis>,
}

/// Computes the cost of `batch` on the deployment of `forecaster`, for one round in which every sequence of the batch
/// computes its new tokens. With pipeline stages, the round is one microbatch through all stages; see
/// [`crate::step`].
pub fn cost(forecaster: &Forecaster, batch: &Batch, utilization: Utilization) -> Cost {
    let model = Arc::new(StepModel::compile(&forecaster.deployment));
    let limit = price(&forecaster.deployment, &model, batch, utilization);
    let expected = Timing::new(&forecaster.deployment, model, Arc::clone(&forecaster.coefficients));
    let passes = expected.model.passes_of(batch);
    let mut limit = limit;
    if let Some(pass) = passes.first() {
        limit.operators.iter_mut().for_each(|operator| operator.expect(&expected, pass));
        limit.beside = AddedTimes::of(&expected, pass);
        limit.all_reduces_rest_on = expected.all_reduces().cloned();
    }
    let shares = expected.step(passes.into_iter());
    let time = shares.total();
    let forecast_bound = shares.scaled(1e12).whole().largest();
    let server = (forecast_bound == "server").then(|| shares.server / shares.overlapped);
    let lifted_by = server.and_then(|ratio| forecaster.deployment.lifts_server(ratio));
    let prompts = batch.groups.iter().any(Sequences::is_prompt);
    let width = forecaster.coefficients.band.map_or(1.0, |band| match prompts {
        true => band.widths(Load::Prompt).ttft,
        false => band.widths(Load::Step).tpot,
    });
    let limit_time = limit.limit_with_communication;
    // The user's `--mfu` or `--mbu` may be below the measured efficiency.
    let at_least = |seconds: f64| Picoseconds::from_seconds(seconds).max(limit_time);
    Cost {
        forecast: at_least(time),
        forecast_band: ends(width).map(|factor| at_least(time * factor)),
        forecast_source: forecaster.coefficients.name.clone(),
        forecast_bound,
        lifted_by,
        forecast_evidence: Some(forecaster.coefficients.evidence),
        ..limit
    }
}

/// Computes the limit of `batch` on `deployment`; the forecast in the result equals the limit.
pub fn limit(deployment: &Deployment, batch: &Batch, utilization: Utilization) -> Cost {
    price(deployment, &Arc::new(StepModel::compile(deployment)), batch, utilization)
}

/// Computes the bound of `batch`: its limit if all tokens choose the same experts, as tokens of one text may. Independent tokens
/// read more.
pub fn bound(deployment: &Deployment, batch: &Batch, utilization: Utilization) -> Cost {
    price(deployment, &Arc::new(StepModel::compile(deployment).alike()), batch, utilization)
}

fn price(deployment: &Deployment, model: &Arc<StepModel>, batch: &Batch, utilization: Utilization) -> Cost {
    let Utilization { mfu, mbu } = utilization;
    let ideal = Timing::new(deployment, Arc::clone(model), Arc::new(Coefficients::ideal(mfu, mbu)));
    let passes = model.passes_of(batch);
    let total = |pass: &Pass| ideal.step(std::iter::once(pass.clone())).total();
    let longest = passes.iter().max_by(|a, b| total(a).total_cmp(&total(b)));
    longest.map_or_else(
        || Breakdown::default().cost(deployment, Communication::NONE, mfu),
        |pass| Breakdown::of(&ideal, pass, mbu).cost(deployment, ideal.communication(pass), mfu),
    )
}

/// Limit of a pass, operator by operator. Terms are in seconds.
#[derive(Default)]
struct Breakdown {
    operators: Vec<OperatorCost>,
    weights: f64,
    kv: f64,
    flops: f64,
    compute_bound: Picoseconds,
}

impl Breakdown {
    fn of(ideal: &Timing, pass: &Pass, mbu: f64) -> Breakdown {
        let mut all = Breakdown::default();
        let bandwidth = ideal.model.bandwidth.0 * mbu;
        for (index, operator) in ideal.model.operators.iter().enumerate() {
            let layers = operator.layers as f64;
            let demand = ideal.demand(index, pass);
            let [computing, moving] = ideal.time(index, pass);
            let limit = Picoseconds::from_seconds(computing + moving);
            // At the limit, the longer of arithmetic and HBM traffic fully overlaps the shorter.
            let bound = if computing > 0.0 { Bottleneck::Compute } else { Bottleneck::Memory };
            if bound == Bottleneck::Compute {
                all.compute_bound += limit;
            }
            let part = ideal.model.pipelined(pass);
            all.weights += demand.weight_bytes * layers / bandwidth * part;
            all.kv += demand.kv_bytes * layers / bandwidth * part;
            all.flops += ideal.computing(index, pass);
            let operator_cost = OperatorCost::of(operator, demand.times(layers), limit, bound);
            match all.operators.iter_mut().find(|o| o.is_alike(operator)) {
                Some(first) => first.merge(&operator_cost),
                None => all.operators.push(operator_cost),
            }
        }
        all
    }

    fn cost(mut self, deployment: &Deployment, communication: Communication, mfu: f64) -> Cost {
        for operator in &mut self.operators {
            let bytes = operator.weight_bytes + operator.kv_bytes;
            operator.intensity = ratio(operator.flops.as_f64(), bytes.as_f64());
        }
        let terms = Terms {
            weights: Picoseconds::from_seconds(self.weights),
            kv: Picoseconds::from_seconds(self.kv),
            flops: Picoseconds::from_seconds(self.flops),
            communication: communication.total(),
        };
        let limit: Picoseconds = self.operators.iter().map(|o| o.limit).sum();
        let flops: Flops = self.operators.iter().map(|o| o.flops).sum();
        let bytes: Bytes = self.operators.iter().map(|o| o.weight_bytes + o.kv_bytes).sum();
        let memory_bound = Picoseconds(limit.0 - self.compute_bound.0);
        let bound = if terms.communication > self.compute_bound.max(memory_bound) {
            Bottleneck::Communication
        } else if self.compute_bound > memory_bound {
            Bottleneck::Compute
        } else {
            Bottleneck::Memory
        };
        let limit_with_communication = limit + terms.communication;
        Cost {
            limit,
            limit_with_communication,
            forecast: limit_with_communication,
            forecast_band: [limit_with_communication; 2],
            forecast_source: "limit".to_owned(),
            forecast_evidence: None,
            bound,
            forecast_bound: bound.name(),
            lifted_by: None,
            terms,
            // Rounding to picoseconds may overshoot 1 by parts in a billion.
            mfu: ratio(terms.flops.seconds() * mfu, limit.seconds()).min(1.0),
            mbu: ratio(bytes.as_f64(), deployment.bandwidth().0 * limit.seconds()).min(1.0),
            intensity: ratio(flops.as_f64(), bytes.as_f64()),
            communication,
            operators: self.operators,
            beside: AddedTimes::default(),
            all_reduces_rest_on: None,
        }
    }
}

impl OperatorCost {
    fn of(
        operator: &crate::operator::Operator,
        demand: Work,
        limit: Picoseconds,
        bound: Bottleneck,
    ) -> OperatorCost {
        OperatorCost {
            name: operator.kind,
            family: operator.kind.family(),
            on_host: operator.on_host,
            layers: operator.layers,
            dtype: operator.dtype,
            flops: Flops(demand.flops.round() as u128),
            weight_bytes: Bytes::from_f64(demand.weight_bytes),
            kv_bytes: Bytes::from_f64(demand.kv_bytes),
            intensity: 0.0,
            bound,
            limit,
            forecast: limit,
            share: 1.0,
            rests_on: None,
        }
    }

    /// True for an operator of equal kind, dtype and place.
    fn is_alike(&self, operator: &crate::operator::Operator) -> bool {
        (self.name, self.dtype, self.on_host) == (operator.kind, operator.dtype, operator.on_host)
    }

    /// Sets the operator's forecast from `expected`.
    fn expect(&mut self, expected: &Timing, pass: &Pass) {
        let operators = expected.model.operators.iter().enumerate();
        let same = || operators.clone().filter(|(_, o)| self.is_alike(o));
        let seconds: f64 = same().map(|(i, _)| expected.time_of_step(i, pass).iter().sum::<f64>()).sum();
        self.rests_on = same().map(|(i, _)| expected.basis(i)).max_by_key(|basis| basis.evidence).cloned();
        self.forecast = Picoseconds::from_seconds(seconds).max(self.limit);
        self.share = ratio(self.limit.seconds(), self.forecast.seconds());
    }

    /// Adds the cost of an operator of equal name in other layers.
    fn merge(&mut self, other: &OperatorCost) {
        self.layers += other.layers;
        self.flops += other.flops;
        self.weight_bytes += other.weight_bytes;
        self.kv_bytes += other.kv_bytes;
        // The part with the longer limit determines the bottleneck.
        if other.limit > self.limit {
            self.bound = other.bound;
        }
        self.limit += other.limit;
        self.forecast += other.forecast;
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_ask::parallelism::RequestedParallelism;
    use roofcast_facts::model::config;

    fn forecaster(model: &str) -> Forecaster {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let options = DeploymentOptions {
            parallelism: RequestedParallelism::default(),
            ..DeploymentOptions::default()
        };
        Forecaster::embedded(Deployment::resolve(model, accelerator, &options).unwrap()).unwrap()
    }

    /// With one sequence of a small model, the device waits for a host that launches kernel by kernel; with a prompt
    /// of 8192 tokens it hardly does.
    #[test]
    fn an_eager_host_is_waited_for() {
        let captured = forecaster("Qwen/Qwen2.5-0.5B-Instruct");
        let mut eager = captured.clone();
        eager.deployment.engine.enforce_eager = true;
        let later = |batch: &Batch| {
            let [eager, captured] =
                [&eager, &captured].map(|f| cost(f, batch, Utilization::FULL).forecast.seconds());
            eager / captured
        };
        assert!(later(&Batch::decode(1, 100)) > 1.3);
        assert!((1.0..1.02).contains(&later(&Batch::prefill(8, 8192))));
    }
}
