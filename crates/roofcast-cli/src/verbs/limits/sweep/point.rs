//! One point of a sweep: what is asked at a value, and what it costs.

use roofcast::Forecaster;
use roofcast::batch::Batch;
use roofcast::capacity::reshaped;
use roofcast::cost::{Bound, Cost, cost};
use roofcast::limits::{Question, decode};
use serde::Serialize;

/// What is varied, and what is held.
pub(super) struct Asked<'a> {
    pub(super) forecaster: &'a Forecaster,
    pub(super) question: &'a Question,
    pub(super) key: &'a str,
    /// Tokens of an output, where evicted tokens are asked for.
    pub(super) output: Option<u64>,
    /// Settings that are compared.
    pub(super) compared: &'a [(String, Forecaster)],
}

#[derive(Serialize)]
pub(super) struct Point {
    pub(super) value: u64,
    pub(super) limit_ms: f64,
    pub(super) weights_ms: f64,
    pub(super) kv_ms: f64,
    pub(super) flops_ms: f64,
    pub(super) communication_ms: f64,
    pub(super) limit_with_communication_ms: f64,
    pub(super) forecast_ms: f64,
    pub(super) forecast_band_ms: [f64; 2],
    pub(super) bound: Bound,
    pub(super) tokens_per_s: f64,
    pub(super) mfu: f64,
    pub(super) mbu: f64,
    /// Of tokens at the forecast's rate, where the accelerator has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usd_per_million_tokens: Option<f64>,
    /// KV tokens that leave with the requests which finish, in the mean of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evicted_tokens_per_step: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compared: Vec<Compared>,
}

#[derive(Serialize)]
pub(super) struct Compared {
    pub(super) name: String,
    pub(super) forecast_ms: f64,
}

impl Asked<'_> {
    /// The point at `value`; none where that many ranks do not divide the heads.
    pub(super) fn point(&self, value: u64) -> Option<Point> {
        let (tokens, one) = self.price(self.forecaster, value)?;
        let compare = |(name, forecaster): &(String, Forecaster)| {
            let (_, cost) = self.price(forecaster, value)?;
            Some(Compared { name: name.clone(), forecast_ms: cost.forecast.ms() })
        };
        let asked = self.at(value);
        let deployment = &self.forecaster.deployment;
        let ranks = if self.key == "tp" {
            value * deployment.parallelism.pp * deployment.parallelism.replicas
        } else {
            deployment.parallelism.count()
        };
        let price = deployment.accelerator.price.as_ref().map(|p| p.usd_per_hour * ranks as f64);
        let hours = one.forecast.seconds() / 3600.0;
        Some(Point {
            value,
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
            mfu: one.mfu,
            mbu: one.mbu,
            usd_per_million_tokens: price.map(|usd| usd * hours / tokens as f64 * 1e6),
            // A request of `context` tokens leaves with its last of `output`: one in each output/batch steps.
            evicted_tokens_per_step: self
                .output
                .map(|output| (asked.batch * asked.context) as f64 / output as f64),
            compared: self.compared.iter().filter_map(compare).collect(),
        })
    }

    /// The question at `value`.
    fn at(&self, value: u64) -> Question {
        let q = *self.question;
        match self.key {
            "context" => Question { context: value, ..q },
            "prefill" => Question { prefill: value, ..q },
            // The token at a position attends to the prompt and to all tokens up to itself.
            "position" => Question { context: q.prefill + value, ..q },
            "tp" => q,
            _ => Question { batch: value, ..q },
        }
    }

    /// Tokens that a step computes and what it costs on the deployment of `forecaster`.
    fn price(&self, forecaster: &Forecaster, value: u64) -> Option<(u64, Cost)> {
        let q = self.at(value);
        Some(match self.key {
            "prefill" => (value, cost(forecaster, &Batch::prefill(1, value), q.utilization)),
            "tp" => {
                let deployment = &forecaster.deployment;
                let other = reshaped(deployment, value, deployment.parallelism.pp)?;
                (q.batch, decode(&forecaster.reshaped(other), &q))
            }
            _ => (q.batch, decode(forecaster, &q)),
        })
    }
}
