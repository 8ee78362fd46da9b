//! `[search]`: the choices that a plan searches, and its objective.

use super::LinkKind;
use super::Routing;
use super::keys::about;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[search]`: the choices that a plan searches. An empty list stands for the default.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSpec {
    #[doc = about!("search.accelerators")]
    pub accelerators: Vec<String>,
    #[doc = about!("search.max_accelerators")]
    pub max_accelerators: Option<u64>,
    #[doc = about!("search.weights")]
    pub weights: Vec<String>,
    #[doc = about!("search.kv")]
    pub kv: Vec<String>,
    #[doc = about!("search.tp")]
    pub tp: Vec<u64>,
    #[doc = about!("search.pp")]
    pub pp: Vec<u64>,
    #[doc = about!("search.attention_dp")]
    pub attention_dp: Vec<u64>,
    #[doc = about!("search.ep")]
    pub ep: Vec<u64>,
    #[doc = about!("search.max_num_batched_tokens")]
    pub max_num_batched_tokens: Vec<u64>,
    #[doc = about!("search.max_num_seqs")]
    pub max_num_seqs: Vec<u64>,
    #[doc = about!("search.engines")]
    pub engines: Vec<String>,
    #[doc = about!("search.routers")]
    pub routers: Vec<Routing>,
    #[doc = about!("search.enable_chunked_prefill")]
    pub enable_chunked_prefill: Vec<bool>,
    #[doc = about!("search.enable_prefix_caching")]
    pub enable_prefix_caching: Vec<bool>,
    #[doc = about!("search.kv_offloading_size")]
    pub kv_offloading_size: Vec<u64>,
    #[doc = about!("search.host_memory_price")]
    pub host_memory_price: Option<f64>,
    #[doc = about!("search.speculative")]
    pub speculative: Vec<bool>,
    #[doc = about!("search.disaggregated")]
    pub disaggregated: bool,
    #[doc = about!("search.mixed")]
    pub mixed: bool,
    #[doc = about!("search.link")]
    pub link: Option<LinkKind>,
    #[doc = about!("search.min_accelerators")]
    pub min_accelerators: Option<u64>,
    #[doc = about!("search.requests")]
    pub requests: Option<u64>,
    #[doc = about!("search.interval_s")]
    pub interval_s: Option<f64>,
    #[doc = about!("search.startup_s")]
    pub startup_s: Option<f64>,
    #[doc = about!("search.confidence")]
    pub confidence: Option<f64>,
    #[doc = about!("search.minimise")]
    pub minimise: Objective,
    #[doc = about!("search.prices")]
    pub prices: BTreeMap<String, f64>,
    #[doc = about!("search.power_w")]
    pub power_w: BTreeMap<String, f64>,
    #[doc = about!("search.usd_per_kwh")]
    pub usd_per_kwh: Option<f64>,
    #[doc = about!("search.against_api")]
    pub against_api: Option<ApiPrices>,
}

impl SearchSpec {
    /// Lowest chance with which the best plan meets the SLO.
    pub fn confidence(&self) -> f64 {
        /// Default of four in five: one of five plans misses its SLO.
        const USUAL: f64 = 0.8;
        self.confidence.unwrap_or(USUAL)
    }
}

/// Prices of an API, in dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiPrices {
    /// Dollars per million prompt tokens.
    pub input: f64,
    /// Dollars per million output tokens.
    pub output: f64,
    /// Dollars per million prompt tokens that the API has in its cache; `None` if they cost the price of others.
    pub cached: Option<f64>,
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
