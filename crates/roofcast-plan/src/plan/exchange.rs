//! Flags of commands for experts on several ranks.
//!
//! Knows: names of vLLM 0.33 and SGLang 0.5.23. Knows nothing about the rest of a command.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::All2AllBackend;

/// Words of vLLM's command. It has no backend that changes with the step: prompts and decodes then have servers of
/// their own.
pub(super) fn vllm(d: &Deployment) -> Vec<String> {
    let experts = &d.experts;
    let mut words = Vec::new();
    let backend = experts.backend.map(|backend| match backend {
        All2AllBackend::AllgatherReducescatter => "allgather_reducescatter",
        All2AllBackend::DeepepHighThroughput => "deepep_high_throughput",
        All2AllBackend::DeepepLowLatency | All2AllBackend::DeepepAuto => "deepep_low_latency",
    });
    if let Some(backend) = backend {
        words.extend(["--all2all-backend".to_owned(), backend.to_owned()]);
    }
    if let Some([decode, prefill]) = experts.overlap {
        words.push("--enable-dbo".to_owned());
        words.extend(["--dbo-decode-token-threshold".to_owned(), decode.to_string()]);
        words.extend(["--dbo-prefill-token-threshold".to_owned(), prefill.to_string()]);
    }
    if let Some(steps) = experts.step_interval {
        let config = format!(r#"{{"num_redundant_experts":{},"step_interval":{steps}}}"#, experts.redundant);
        words.extend(["--enable-eplb".to_owned(), "--eplb-config".to_owned(), config]);
    }
    words
}

/// Words of SGLang's command.
pub(super) fn sglang(d: &Deployment) -> Vec<String> {
    let experts = &d.experts;
    let mut words = Vec::new();
    let mode = experts.deepep().map(|backend| match backend {
        All2AllBackend::DeepepHighThroughput => "normal",
        All2AllBackend::DeepepLowLatency => "low_latency",
        All2AllBackend::DeepepAuto | All2AllBackend::AllgatherReducescatter => "auto",
    });
    if let Some(mode) = mode {
        words.extend(["--moe-a2a-backend", "deepep", "--deepep-mode", mode].map(str::to_owned));
    }
    if experts.overlap.is_some() {
        words.push("--enable-two-batch-overlap".to_owned());
    }
    if let Some(steps) = experts.step_interval {
        let steps = steps.to_string();
        words.extend(["--enable-eplb", "--eplb-rebalance-num-iterations", steps.as_str()].map(str::to_owned));
    }
    if experts.redundant > 0 {
        words.extend(["--ep-num-redundant-experts".to_owned(), experts.redundant.to_string()]);
    }
    words
}
