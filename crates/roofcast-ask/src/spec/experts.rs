//! `[engine.experts]`: experts of a layer on several ranks.
//!
//! Knows: the keys, by vLLM's names where vLLM has them, and SGLang's names of the backends. Whether they fit each other
//! is checked when a deployment is resolved.

use super::keys::about;
use serde::{Deserialize, Serialize};

/// Ways to bring tokens to the ranks of their experts and the results back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum All2AllBackend {
    /// Every rank gathers the tokens of all ranks; the sums are scattered back. vLLM's default.
    #[serde(alias = "naive", alias = "none")]
    AllgatherReducescatter,
    /// DeepEP's normal kernels: a token is sent once to each node and to each rank that has experts of it.
    #[serde(alias = "normal")]
    DeepepHighThroughput,
    /// DeepEP's low-latency kernels: a token is sent once for each of its experts.
    #[serde(alias = "low_latency")]
    DeepepLowLatency,
    /// Low latency in steps of decodes, high throughput in steps with prompts: SGLang's `--deepep-mode auto`.
    #[serde(alias = "deepep")]
    DeepepAuto,
}

impl All2AllBackend {
    /// True for DeepEP's kernels.
    pub fn is_deepep(self) -> bool {
        self != All2AllBackend::AllgatherReducescatter
    }
}

/// `[engine.experts]`: the exchange of tokens, its overlap, and the balance of experts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpertsSpec {
    #[doc = about!("engine.experts.all2all_backend")]
    pub all2all_backend: Option<All2AllBackend>,
    #[doc = about!("engine.experts.enable_dbo")]
    pub enable_dbo: bool,
    #[doc = about!("engine.experts.dbo_decode_token_threshold")]
    pub dbo_decode_token_threshold: Option<u64>,
    #[doc = about!("engine.experts.dbo_prefill_token_threshold")]
    pub dbo_prefill_token_threshold: Option<u64>,
    #[doc = about!("engine.experts.expert_imbalance")]
    pub expert_imbalance: Option<f64>,
    #[doc = about!("engine.experts.enable_eplb")]
    pub enable_eplb: bool,
    #[doc = about!("engine.experts.num_redundant_experts")]
    pub num_redundant_experts: Option<u64>,
    #[doc = about!("engine.experts.eplb_step_interval")]
    pub eplb_step_interval: Option<u64>,
}
