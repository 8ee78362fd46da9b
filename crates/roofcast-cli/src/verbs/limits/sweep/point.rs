//! One point of a sweep: the step at a combination of values, and its cost.

use super::Step;
use roofcast::batch::Batch;
use roofcast::capacity::widened;
use roofcast::cost::{Bottleneck, Cost, cost};
use roofcast::limits::{LimitsQuestion, decode};
use roofcast::memory::Memory;
use roofcast::{Deployment, Forecaster};
use serde::Serialize;
use toml::Value;

/// One of the sweep's deployments, compiled.
pub(super) struct Machine {
    /// Values of the spec's keys at which this is the deployment.
    pub(super) values: Vec<Value>,
    pub(super) forecaster: Forecaster,
    /// Quantities of the step, from the flags, before the swept values are applied.
    pub(super) question: LimitsQuestion,
    /// Compared settings, each with its name and its compiled deployment.
    pub(super) compared: Vec<(String, Forecaster)>,
}

/// The step at one combination of values.
pub(super) struct Asked<'a> {
    pub(super) machine: &'a Machine,
    pub(super) step: Step,
    /// Swept quantities of the step, with their values.
    pub(super) keys: Vec<(&'a str, u64)>,
    /// Output tokens of a request, if the rate of freed KV tokens is asked for.
    pub(super) output: Option<u64>,
}

/// The decode step at one combination of values.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitsPoint"))]
pub(super) struct Point {
    /// Values of the point, one for each swept key.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<roofcast::schema::SweptValue>"))]
    pub(super) values: Vec<Value>,
    /// Limit of the step in milliseconds, without communication.
    pub(super) limit_ms: f64,
    /// Time to read the weights at peak bandwidth.
    pub(super) weights_ms: f64,
    /// Time to read the KV cache at peak bandwidth.
    pub(super) kv_ms: f64,
    /// Time of the FLOPs at peak rate.
    pub(super) flops_ms: f64,
    /// Time of the messages over the slowest link.
    pub(super) communication_ms: f64,
    /// Limit plus communication, without overlap.
    pub(super) limit_with_communication_ms: f64,
    /// Forecast of the step.
    pub(super) forecast_ms: f64,
    /// 80 % interval of the forecast.
    pub(super) forecast_band_ms: [f64; 2],
    /// Bottleneck of the step.
    pub(super) bound: Bottleneck,
    /// Tokens per second at the limit, including communication over links.
    pub(super) tokens_per_s: f64,
    /// Tokens per second at the forecast.
    pub(super) forecast_tokens_per_s: f64,
    /// Fraction of peak FLOP/s at the limit.
    pub(super) mfu: f64,
    /// Fraction of peak bandwidth at the limit.
    pub(super) mbu: f64,
    /// Tokens of a sequence of the step.
    pub(super) tokens: u64,
    /// True if memory holds the KV cache of the step's sequences.
    pub(super) fits: bool,
    /// Dollars per million tokens at the forecast throughput; absent if the accelerator has no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usd_per_million_tokens: Option<f64>,
    /// Mean KV tokens per step that finished requests free; absent without `--output-len`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evicted_tokens_per_step: Option<f64>,
    /// Forecasts with each setting of the kind given to `--compare`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compared: Vec<Compared>,
}

/// Forecast of the step with one setting.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitsCompared"))]
pub(super) struct Compared {
    /// Name of the setting.
    pub(super) name: String,
    /// Forecast of the step in milliseconds.
    pub(super) forecast_ms: f64,
}

impl Asked<'_> {
    /// Computes the point at `values` of all keys; `None` if the number of ranks does not divide the heads.
    pub(super) fn point(&self, values: &[Value]) -> Option<Point> {
        let (tokens, one) = self.price(&self.machine.forecaster)?;
        let compare = |(name, forecaster): &(String, Forecaster)| {
            let (_, cost) = self.price(forecaster)?;
            Some(Compared { name: name.clone(), forecast_ms: cost.forecast.ms() })
        };
        let question = self.question();
        let deployment = &self.machine.forecaster.deployment;
        let ranks =
            self.widened(deployment)?.map_or(deployment.parallelism.count(), |d| d.parallelism.count());
        let price = deployment.accelerator.price.as_ref().map(|p| p.usd_per_hour * ranks as f64);
        let hours = one.forecast.seconds() / 3600.0;
        Some(Point {
            values: values.to_vec(),
            limit_ms: one.limit.ms(),
            weights_ms: one.terms.weights.ms(),
            kv_ms: one.terms.kv.ms(),
            flops_ms: one.terms.flops.ms(),
            communication_ms: one.terms.communication.ms(),
            limit_with_communication_ms: one.limit_with_communication.ms(),
            forecast_ms: one.forecast.ms(),
            forecast_band_ms: one.forecast_band.map(|t| t.ms()),
            bound: one.bound,
            tokens_per_s: tokens as f64 / one.limit_with_communication.seconds().max(1e-12),
            forecast_tokens_per_s: tokens as f64 / one.forecast.seconds().max(1e-12),
            mfu: one.mfu,
            mbu: one.mbu,
            tokens: if self.step == Step::Prefill { question.prefill } else { question.context },
            fits: self.fits(deployment),
            usd_per_million_tokens: price.map(|usd| usd * hours / tokens as f64 * 1e6),
            // A finished request frees `context` tokens, and one request finishes every output/batch steps.
            evicted_tokens_per_step: self
                .output
                .map(|output| (question.batch * question.context) as f64 / output as f64),
            compared: self.machine.compared.iter().filter_map(compare).collect(),
        })
    }

    fn key(&self, name: &str) -> Option<u64> {
        self.keys.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The step's quantities, with the swept values applied.
    pub(super) fn question(&self) -> LimitsQuestion {
        let fixed = self.machine.question;
        let prefill = self.key("prefill").unwrap_or(fixed.prefill);
        // The token at a position attends to the prompt and to all output tokens up to itself.
        let behind = self.key("position").map(|position| prefill + position);
        LimitsQuestion {
            batch: self.key("batch").unwrap_or(fixed.batch),
            context: behind.or(self.key("context")).unwrap_or(fixed.context),
            prefill,
            ..fixed
        }
    }

    /// True if memory holds the KV cache of the step's sequences, on the deployment or, in a sweep of `tp`, on that
    /// number of ranks.
    fn fits(&self, deployment: &Deployment) -> bool {
        let other = self.widened(deployment).flatten();
        let deployment = other.as_ref().unwrap_or(deployment);
        let q = self.question();
        let (sequences, tokens) = match self.step {
            Step::Prefill => (1, q.prefill),
            Step::Decode | Step::Position => (q.batch, q.context),
        };
        Memory::of(deployment).sequences(tokens).saturating_mul(deployment.parallelism.replicas) >= sequences
    }

    /// Number of tokens that the step computes, and its cost on the deployment of `forecaster`.
    fn price(&self, forecaster: &Forecaster) -> Option<(u64, Cost)> {
        let q = self.question();
        let price = |forecaster: &Forecaster| match self.step {
            Step::Prefill => (q.prefill, cost(forecaster, &Batch::prefill(1, q.prefill), q.utilization)),
            Step::Decode | Step::Position => (q.batch, decode(forecaster, &q)),
        };
        Some(match self.widened(&forecaster.deployment)? {
            None => price(&forecaster.clone().asked(&q.steps()).ok()?),
            Some(other) => price(&forecaster.reshaped(other).asked(&q.steps()).ok()?),
        })
    }

    /// In a sweep of `tp`, `deployment` with that degree; `Some(None)` in another sweep, `None` if it is not valid.
    fn widened(&self, deployment: &Deployment) -> Option<Option<Deployment>> {
        self.key("tp").map_or(Some(None), |tp| widened(deployment, tp).map(Some))
    }
}
