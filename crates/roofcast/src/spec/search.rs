//! `[search]`: the choices that a plan searches, and its objective.

use super::LinkKind;
use super::Routing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[search]`: the choices of a plan.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSpec {
    /// Catalog ids; every GPU and TPU with a price where absent.
    pub accelerators: Vec<String>,
    /// Accelerators in all, at most.
    pub max_accelerators: Option<u64>,
    /// Weight formats; the checkpoint's own where empty.
    pub weights: Vec<String>,
    /// KV-cache formats; `auto` where empty.
    pub kv: Vec<String>,
    /// Tensor-parallel degrees; every legal one where empty.
    pub tp: Vec<u64>,
    /// Pipeline stages; 1 and every number of whole nodes where empty.
    pub pp: Vec<u64>,
    /// Degrees of data-parallel attention; of models with experts every one where empty, of others 1.
    pub attention_dp: Vec<u64>,
    /// Expert-parallel degrees; all ranks of a replica and 1 where empty.
    pub ep: Vec<u64>,
    /// Budgets of a step; the engine's default, 2048 and 16384 where empty, unless `[engine]` has one.
    pub max_num_batched_tokens: Vec<u64>,
    /// Bounds on the sequences that run at once; as `[engine]` has it where empty.
    pub max_num_seqs: Vec<u64>,
    /// Engines, as in `vllm`; `[engine]`'s where empty.
    pub engines: Vec<String>,
    /// Router policies; `[fleet]`'s where empty, and prefix_aware in addition where prompts share prefixes.
    pub routers: Vec<Routing>,
    /// Values of enable_chunked_prefill; `[engine]`'s where empty.
    pub enable_chunked_prefill: Vec<bool>,
    /// Values of enable_prefix_caching; `[engine]`'s where empty.
    pub enable_prefix_caching: Vec<bool>,
    /// Values of speculative decoding, by `[engine.speculative]`; on where empty.
    pub speculative: Vec<bool>,
    /// Also search disaggregated fleets, with prefill and decode pools.
    pub disaggregated: bool,
    /// Also search fleets with replicas on two accelerators.
    pub mixed: bool,
    /// Link of KV transfers; the fastest between the accelerators where absent.
    pub link: Option<LinkKind>,
    /// Accelerators in all, at least; 1 where absent.
    pub min_accelerators: Option<u64>,
    /// Requests of a simulation that proves a deployment; more where they would be too few to see a queue grow.
    pub requests: Option<u64>,
    /// Seconds of the intervals in which replicas of the best are counted over time; not counted where absent.
    pub interval_s: Option<f64>,
    /// Seconds from the start of a replica until it takes requests, over time; 0 where absent.
    pub startup_s: Option<f64>,
    /// The chance of meeting the SLO, given the bands of forecasts, that the best plan has at least; 0.8 where absent.
    pub confidence: Option<f64>,
    /// Objective to minimise.
    pub minimise: Objective,
    /// Dollars per accelerator and hour in place of the catalog's price, by catalog id.
    pub prices: BTreeMap<String, f64>,
    /// Watts of an accelerator and its part of a server, in place of its board power, by catalog id.
    pub power_w: BTreeMap<String, f64>,
}

impl SearchSpec {
    /// The chance of meeting the SLO that the best plan has at least.
    pub(crate) fn confidence(&self) -> f64 {
        /// Four in five: one of five plans misses its SLO.
        const USUAL: f64 = 0.8;
        self.confidence.unwrap_or(USUAL)
    }
}

/// Objectives of a plan; all are minimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Dollars per hour of the deployment.
    #[default]
    CostPerHour,
    /// Dollars per million output tokens at the offered load.
    CostPerMillionTokens,
    /// Accelerators.
    Accelerators,
    /// Joules per output token.
    Energy,
}
