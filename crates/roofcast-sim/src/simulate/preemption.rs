//! Costs of a preemption by swapping and by recomputing, so that a run shows why one takes longer.
//!
//! Knows: the copies of a sequence's blocks to the host and back, and a prompt of as many tokens. Knows nothing about which
//! request is preempted.

use super::Activity;
use super::provision::Provision;
use crate::engine::swap_time;
use roofcast_ask::spec::SchedulerKind;
use roofcast_facts::batch::Batch;
use serde::Serialize;

/// Times of one mean preemption.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PreemptionCosts {
    /// Mean tokens of a preempted request.
    pub tokens: u64,
    /// Milliseconds to copy its KV cache to the host and back, block by block and layer by layer.
    pub swap_ms: f64,
    /// Milliseconds to compute its tokens again as a prompt.
    pub recompute_ms: f64,
}

/// The costs of the mean preemption of `activity`; `None` without one, and of schedulers that do not swap.
pub(super) fn costs(provision: &Provision, activity: &Activity) -> Option<PreemptionCosts> {
    let config = &provision.serving.config;
    if activity.preemptions == 0 || config.scheduler != SchedulerKind::VllmV0 {
        return None;
    }
    // A swapped token is copied twice.
    let moved = activity.recomputed_tokens + activity.swapped_tokens / 2;
    let tokens = (moved / activity.preemptions).max(1);
    let forecaster = &provision.serving.forecaster;
    let swap = swap_time(&forecaster.deployment, tokens, config.block_size).ms();
    let timing = forecaster.timing(config.cost);
    let prompt = timing.step(timing.model.passes_of(&Batch::prefill(1, tokens)).into_iter());
    Some(PreemptionCosts { tokens, swap_ms: 2.0 * tokens as f64 * swap, recompute_ms: prompt.total() * 1e3 })
}
