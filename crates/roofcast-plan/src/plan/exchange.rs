//! Flags of commands for experts on several ranks.
//!
//! Knows: backends of vLLM 0.33 and SGLang 0.5.23. Knows nothing about the rest of a command.

use roofcast_ask::command::{CommandLine, whole};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::All2AllBackend;

/// Keys that have no effect unless another one is set.
const IDLE: [&str; 3] = [
    "engine.experts.dbo_decode_token_threshold",
    "engine.experts.dbo_prefill_token_threshold",
    "engine.experts.eplb_step_interval",
];

/// Adds vLLM's flags. It has no backend that changes with the step: prompts and decodes then have servers of their own.
pub(super) fn vllm(line: &mut CommandLine, d: &Deployment) -> Result<(), String> {
    let experts = &d.experts;
    let backend = experts.backend.map(|backend| match backend {
        All2AllBackend::AllgatherReducescatter => "allgather_reducescatter",
        All2AllBackend::DeepepHighThroughput => "deepep_high_throughput",
        All2AllBackend::DeepepLowLatency | All2AllBackend::DeepepAuto => "deepep_low_latency",
    });
    if let Some(backend) = backend {
        line.set("all2all", backend)?;
    }
    if let Some([decode, prefill]) = experts.overlap {
        line.set("engine.experts.enable_dbo", true)?;
        line.set("engine.experts.dbo_decode_token_threshold", whole(decode))?;
        line.set("engine.experts.dbo_prefill_token_threshold", whole(prefill))?;
    }
    if let Some(steps) = experts.step_interval {
        line.set("engine.experts.enable_eplb", true)?;
        line.set("engine.experts.num_redundant_experts", whole(experts.redundant))?;
        line.set("engine.experts.eplb_step_interval", whole(steps))?;
    }
    line.covers(&IDLE);
    line.covers(&["engine.experts.all2all_backend"]);
    Ok(())
}

/// Adds SGLang's flags. With DeepEP it has as many expert-parallel ranks as tensor-parallel ones.
pub(super) fn sglang(line: &mut CommandLine, d: &Deployment) -> Result<(), String> {
    let experts = &d.experts;
    let mode = experts.deepep().map(|backend| match backend {
        All2AllBackend::DeepepHighThroughput => "normal",
        All2AllBackend::DeepepLowLatency => "low_latency",
        All2AllBackend::DeepepAuto | All2AllBackend::AllgatherReducescatter => "auto",
    });
    if let Some(mode) = mode {
        let ep = d.parallelism.ep;
        let ranks = d.parallelism.stage_ranks();
        if ep != ranks {
            return Err(format!("with DeepEP SGLang spreads experts over all {ranks} ranks, not over {ep}"));
        }
        line.set("all2all", "deepep")?;
        line.set("deepep_mode", mode)?;
    }
    if experts.overlap.is_some() {
        line.set("engine.experts.enable_dbo", true)?;
    }
    if let Some(steps) = experts.step_interval {
        line.set("engine.experts.enable_eplb", true)?;
        line.set("engine.experts.eplb_step_interval", whole(steps))?;
    }
    if experts.redundant > 0 {
        line.set("engine.experts.num_redundant_experts", whole(experts.redundant))?;
    }
    line.covers(&["engine.experts.all2all_backend", "engine.experts.eplb_step_interval"]);
    Ok(())
}
