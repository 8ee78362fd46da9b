//! `[search]`: the choices that a plan searches, and its objective.

use super::LinkKind;
use super::Routing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[search]`: the choices that a plan searches. An empty list stands for the default.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSpec {
    /// Catalog ids of accelerators; every GPU and TPU with a price if empty.
    pub accelerators: Vec<String>,
    /// Most accelerators in total.
    pub max_accelerators: Option<u64>,
    /// Weight formats; the checkpoint's own if empty.
    pub weights: Vec<String>,
    /// KV-cache formats; `auto` if empty.
    pub kv: Vec<String>,
    /// Tensor-parallel degrees; every valid degree if empty.
    pub(crate) tp: Vec<u64>,
    /// Numbers of pipeline stages; 1 and every number of whole nodes if empty.
    pub(crate) pp: Vec<u64>,
    /// Degrees of data-parallel attention; if empty, every degree for models with experts, and 1 for others.
    pub(crate) attention_dp: Vec<u64>,
    /// Expert-parallel degrees; 1 and all ranks of a replica if empty.
    pub(crate) ep: Vec<u64>,
    /// Token budgets of a step; if empty, the budget of `[engine]`, or the engine's default, 2048 and 16384.
    pub max_num_batched_tokens: Vec<u64>,
    /// Bounds on the sequences that run at one time; the bound of `[engine]` if empty.
    pub max_num_seqs: Vec<u64>,
    /// Engines, as in `vllm`; the engine of `[engine]` if empty.
    pub engines: Vec<String>,
    /// Router policies; if empty, the policy of `[fleet]`, and prefix_aware as well if prompts share prefixes.
    pub(crate) routers: Vec<Routing>,
    /// Values of enable_chunked_prefill; the value of `[engine]` if empty.
    pub(crate) enable_chunked_prefill: Vec<bool>,
    /// Values of enable_prefix_caching; the value of `[engine]` if empty.
    pub(crate) enable_prefix_caching: Vec<bool>,
    /// Sizes of vLLM's host tier of each engine in GiB, 0 for none; the size of `[engine]` if empty.
    pub(crate) kv_offloading_size: Vec<u64>,
    /// Dollars per hour for one GiB of host memory, for the host tiers of a deployment; 0 if absent.
    pub(crate) host_memory_price: Option<f64>,
    /// True to use speculative decoding by `[engine.speculative]`, false not to; only true if empty.
    pub(crate) speculative: Vec<bool>,
    /// True to search disaggregated fleets as well, with prefill and decode pools.
    pub(crate) disaggregated: bool,
    /// True to search fleets with replicas on two kinds of accelerator as well.
    pub(crate) mixed: bool,
    /// Link of KV transfers; the fastest link between the accelerators if absent.
    pub(crate) link: Option<LinkKind>,
    /// Fewest accelerators in total; 1 if absent.
    pub(crate) min_accelerators: Option<u64>,
    /// Number of requests in the simulation that proves a deployment; more if they would be too few to show a growing
    /// queue.
    pub(crate) requests: Option<u64>,
    /// Length in seconds of the intervals for which the replicas of the best deployment are counted over time; not
    /// counted if absent.
    pub(crate) interval_s: Option<f64>,
    /// Seconds from the start of a replica until it accepts requests, for counts over time; 0 if absent.
    pub(crate) startup_s: Option<f64>,
    /// Lowest chance with which the best plan meets the SLO, given the bands of forecasts; 0.8 if absent.
    pub(crate) confidence: Option<f64>,
    /// Objective that the plan minimises.
    pub minimise: Objective,
    /// Dollars per accelerator per hour, by catalog id, in place of the catalog's price.
    pub(crate) prices: BTreeMap<String, f64>,
    /// Watts of an accelerator with its part of a server, by catalog id, in place of its board power.
    pub(crate) power_w: BTreeMap<String, f64>,
}

impl SearchSpec {
    /// Lowest chance with which the best plan meets the SLO.
    pub(crate) fn confidence(&self) -> f64 {
        /// Default of four in five: one of five plans misses its SLO.
        const USUAL: f64 = 0.8;
        self.confidence.unwrap_or(USUAL)
    }
}

/// Objectives of a plan; all are minimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Dollars per hour for the deployment.
    #[default]
    CostPerHour,
    /// Dollars per million output tokens, at the offered load.
    CostPerMillionTokens,
    /// Number of accelerators.
    Accelerators,
    /// Joules per output token.
    Energy,
}
