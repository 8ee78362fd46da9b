//! Cost of LoRA adapters in a decode step: their bytes, the time that they add, and the time of a load.
//!
//! Knows: every sequence of the batch names an adapter, and as many differ as run at one time. Knows nothing about which
//! adapters are loaded when.

use super::LimitsQuestion;
use crate::forecaster::Forecaster;
use crate::memory;
use crate::operator::{AdaptedTokens, Adapter};
use roofcast_ask::spec::CostKind;
use roofcast_facts::units::{Bytes, Picoseconds};
use serde::Serialize;

/// Cost of LoRA adapters in the decode step, in addition to the step's own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdapterCost {
    /// Number of adapters in the step: `max_loras`, or one for each sequence of a data-parallel rank if these are fewer.
    pub adapters: u64,
    /// Rank with which they are computed.
    pub max_lora_rank: u64,
    /// Bytes of one adapter on one rank.
    pub bytes: Bytes,
    /// Time added to the step at the limit: FLOPs or bytes of the adapters.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// Time added to the step as forecast, with the kernels that the adapters launch.
    #[serde(rename = "forecast_ms")]
    pub forecast: Picoseconds,
    /// Time to copy one adapter from the host to the device, for which a step waits.
    #[serde(rename = "load_ms")]
    pub load: Picoseconds,
}

/// The cost of adapters in the step of `question`; `None` if none are served.
pub(super) fn cost(forecaster: &Forecaster, question: &LimitsQuestion) -> Option<AdapterCost> {
    let deployment = &forecaster.deployment;
    let settings = deployment.engine.lora.as_ref()?;
    let batch = question.batch.div_ceil(deployment.parallelism.replicas);
    let tokens_of = |tokens: u64| AdaptedTokens { adapters: settings.max_loras.min(tokens), tokens };
    let all = tokens_of(batch);
    let of_rank = tokens_of(batch.div_ceil(deployment.parallelism.attention_dp));
    let bytes = Adapter::of(deployment, settings).bytes();
    let stage = bytes.as_f64() / deployment.parallelism.pp as f64;
    let added = |kind| Picoseconds::from_seconds(forecaster.timing(kind).adapters(of_rank, all).total());
    Some(AdapterCost {
        adapters: of_rank.adapters,
        max_lora_rank: settings.max_lora_rank,
        bytes,
        limit: added(CostKind::Limit),
        forecast: added(CostKind::Forecast),
        load: Picoseconds::from_seconds(stage / memory::load_rate(deployment).0),
    })
}
