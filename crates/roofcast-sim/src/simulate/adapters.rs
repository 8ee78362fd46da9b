//! Use of LoRA adapters in a run: loads, time of their kernels, and waits for a buffer.
//!
//! Knows: sums over all replicas. Knows nothing about when adapters were loaded.

use crate::tally::{AdapterTally, Tally};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::workload::Workload;
use roofcast_cost::operator::Adapter;
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::Result;
use roofcast_facts::units::Bytes;
use serde::Serialize;

/// Use of LoRA adapters, over all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdapterUse {
    /// Number of different adapters that requests may name.
    pub adapters: u64,
    /// Most adapters whose requests run at one time on a replica.
    pub max_loras: u64,
    /// Bytes of one adapter on one rank.
    pub adapter_bytes: Bytes,
    /// Number of copies of an adapter from the host to the device.
    pub loads: u64,
    /// Number of adapters among them that were not on the host either, and were first read from storage.
    pub reads: u64,
    /// Seconds for which steps waited for loads.
    pub loading_s: f64,
    /// Seconds that the kernels of adapters added to steps.
    pub computing_s: f64,
    /// Number of admissions of requests that other requests overtook because other adapters were in use.
    pub waits: u64,
    /// Mean seconds from the first time that such a request was overtaken to its admission; `None` without waits.
    pub mean_wait_s: Option<f64>,
}

/// Refuses a workload whose requests name adapters, for a deployment that serves none.
pub(super) fn check(workload: &Workload, deployment: &Deployment, place: &str) -> Result<()> {
    if deployment.engine.lora.is_some() {
        return Ok(());
    }
    let accepted = "omitted, or served by vLLM with engine.enable_lora = true (--enable-lora)";
    workload.without_adapters(place, accepted)
}

/// Use of `adapters` different adapters on the replicas with these counters; `None` if none are served.
pub(super) fn used(deployment: &Deployment, tallies: &[&Tally], adapters: u64) -> Option<AdapterUse> {
    let settings = deployment.engine.lora.as_ref()?;
    let sum = |of: fn(&AdapterTally) -> u64| tallies.iter().map(|t| of(&t.adapters)).sum::<u64>();
    let seconds =
        |of: fn(&AdapterTally) -> Ticks| tallies.iter().map(|t| of(&t.adapters).seconds()).sum::<f64>();
    let waits = sum(|t| t.waits);
    Some(AdapterUse {
        adapters,
        max_loras: settings.max_loras,
        adapter_bytes: Adapter::of(deployment, settings).bytes(),
        loads: sum(|t| t.copies),
        reads: sum(|t| t.reads),
        loading_s: seconds(|t| t.loading),
        computing_s: seconds(|t| t.computing),
        waits,
        mean_wait_s: (waits > 0).then(|| seconds(|t| t.waiting) / waits as f64),
    })
}
