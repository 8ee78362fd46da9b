//! Fleets that are refused.
//!
//! Knows: keys of `[fleet]` that exclude each other, and schedulers whose replicas hand over no KV caches. Knows nothing about how
//! replicas are provisioned.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{AutoscaleRule, CostKind, FleetSpec, MOST_WEIGHT, SchedulerKind};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::error::{Error, Result};

/// Refuses failures and slow replicas where they are not simulated.
pub(super) fn varied(forecaster: &Forecaster, fleet: &FleetSpec, place: &str) -> Result<()> {
    let slow_limit = fleet.slow.is_some() && forecaster.deployment.engine.cost == CostKind::Limit;
    if slow_limit {
        let accepted = "omitted with engine.cost = \"limit\", which no machine falls short of";
        return Err(Error::field(place, "fleet.slow", "set", accepted));
    }
    let ruled = fleet.autoscale.as_ref().is_some_and(|autoscale| autoscale.rule != AutoscaleRule::Immediate);
    if ruled && fleet.failures.is_some() {
        let accepted = "omitted with a rule of fleet.autoscale, whose autoscaler's view of failed replicas is not simulated";
        return Err(Error::field(place, "fleet.failures", "set", accepted));
    }
    if fleet.prefill.is_none() && fleet.decode.is_none() {
        return Ok(());
    }
    let varied = [("fleet.failures", fleet.failures.is_some()), ("fleet.slow", fleet.slow.is_some())];
    match varied.iter().find(|(_, set)| *set) {
        None => Ok(()),
        Some((field, _)) => {
            let accepted = "omitted with fleet.prefill and fleet.decode, whose replicas are alike and do not fail: what \
                            becomes of KV caches under way is not simulated";
            Err(Error::field(place, *field, "set", accepted))
        }
    }
}

/// Refuses a weight that is out of range, or whose pool is missing.
pub(super) fn weighed(fleet: &FleetSpec, place: &str) -> Result<()> {
    let Some(weight) = fleet.beside_weight else { return Ok(()) };
    let accepted = match fleet.beside {
        None => "omitted without fleet.beside".to_owned(),
        Some(_) if (1.0 / MOST_WEIGHT..=MOST_WEIGHT).contains(&weight) => return Ok(()),
        Some(_) => format!("{} to {MOST_WEIGHT}", 1.0 / MOST_WEIGHT),
    };
    Err(Error::field(place, "fleet.beside_weight", weight, accepted))
}

/// Schedulers whose replicas can hand over KV caches.
pub(super) const POOLED: &str = "vllm, tensorrt-llm or tensorrt-llm-max-utilization";

/// Succeeds if replicas with this scheduler can hand over KV caches; else returns the reason why not.
pub fn has_pools(scheduler: SchedulerKind) -> std::result::Result<(), &'static str> {
    match scheduler {
        SchedulerKind::Vllm | SchedulerKind::TensorrtLlm | SchedulerKind::TensorrtLlmMaxUtilization => Ok(()),
        SchedulerKind::Sglang => {
            Err("SGLang's queues of requests under way (prealloc, transfer) are not simulated")
        }
        _ => Err("its engine computes prompts where it decodes"),
    }
}

/// Refuses a number of replicas or accelerators that the spec of the deployment sets although `[fleet]` decides it; the
/// error states `reason`.
pub fn uncounted(deployment: &Deployment, reason: &str, place: &str) -> Result<()> {
    let shares = deployment.requested_shares();
    for (field, value) in [("replicas", shares.replicas), ("count", shares.count)] {
        if let Some(value) = value {
            return Err(Error::field(place, field, value, format!("omitted: {reason}")));
        }
    }
    Ok(())
}
