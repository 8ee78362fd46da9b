//! Time from the start of a replica until it takes requests.
//!
//! Knows: a checkpoint's bytes come over a disk or a network, each node's on its own, also those that stay on the host;
//! then an engine imports, compiles, measures memory and captures graphs, for as long as in the log of one model: other
//! models' logs were not found. Knows nothing about images of containers and the start of machines.

use crate::memory::Memory;
use roofcast_ask::Deployment;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::units::Bytes;
use serde::Serialize;

/// Bytes per second of a network volume by default: 1,000 MiB/s, the most of an AWS gp3 volume before September 2025
/// (<https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html>).
pub const VOLUME_BYTES_PER_S: f64 = 1_048_576_000.0;

/// One part of a start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartPart {
    /// Name of the part.
    pub part: &'static str,
    /// Seconds of the part.
    pub seconds: f64,
    /// Address of the log from which the seconds are; empty for bytes over a rate.
    pub source: &'static str,
}

/// Time of a start.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Startup {
    /// Seconds in all.
    pub seconds: f64,
    /// Bytes of weights that one node reads.
    pub bytes: Bytes,
    /// Bytes per second at which they are read.
    pub bytes_per_s: f64,
    /// Seconds in addition on the first start, whose kernels are not compiled yet.
    pub first_s: f64,
    /// The parts of `seconds`.
    pub parts: Vec<StartPart>,
}

/// A start of vLLM 0.9 on compiled kernels in its cache: 59 s until it answers, of which 0.9 s are weights, 7.51 s
/// torch.compile from the cache and 17 s graphs.
const VLLM_LOG: &str = "https://github.com/vllm-project/vllm/issues/20264";
/// Seconds of that start by its log: all, weights, compiled kernels, graphs.
const VLLM_S: [f64; 4] = [59.0, 0.9, 7.51, 17.0];
/// Seconds of torch.compile without a cache: 19.37 s for Llama-3-8B
/// (<https://github.com/vllm-project/vllm/pull/11005>).
const UNCOMPILED_S: f64 = 19.37;
/// Seconds in which SGLang captures the graphs of its target model, and the log.
const SGLANG_GRAPHS: (f64, &str) = (12.11, "https://github.com/sgl-project/sglang/issues/10088");

impl Startup {
    /// The start of a replica of `deployment` whose weights are read at `bytes_per_s`.
    pub fn of(deployment: &Deployment, bytes_per_s: f64) -> Startup {
        let memory = Memory::of(deployment);
        let replica = deployment.parallelism.stage_ranks() * deployment.parallelism.pp;
        let node = deployment.accelerator.node_size.clamp(1, replica);
        let stages = deployment.stages.iter();
        let weights =
            memory.ranks().iter().zip(stages).map(|(rank, stage)| rank.weight_bytes + stage.host_bytes);
        let fullest = weights.max().unwrap_or_default();
        let bytes = Bytes(fullest.0 * node);
        let read = StartPart { part: "weights", seconds: bytes.as_f64() / bytes_per_s, source: "" };
        let (engine, first_s) = engine(deployment);
        let parts: Vec<StartPart> = [read].into_iter().chain(engine).collect();
        Startup { seconds: parts.iter().map(|part| part.seconds).sum(), bytes, bytes_per_s, first_s, parts }
    }
}

/// Parts of the engine's own, and the seconds that its first start takes in addition.
fn engine(deployment: &Deployment) -> (Vec<StartPart>, f64) {
    let captures = !deployment.engine.enforce_eager;
    match deployment.engine.kind() {
        EngineKind::Vllm => {
            let [all, weights, compiled, graphs] = VLLM_S;
            let part = |part, seconds| StartPart { part, seconds, source: VLLM_LOG };
            let mut parts = vec![part("process, profiling, warm-up", all - weights - compiled - graphs)];
            if captures {
                parts.extend([part("compiled kernels", compiled), part("graphs", graphs)]);
            }
            (parts, if captures { UNCOMPILED_S - compiled } else { 0.0 })
        }
        EngineKind::Sglang if captures => {
            let (seconds, source) = SGLANG_GRAPHS;
            (vec![StartPart { part: "graphs", seconds, source }], 0.0)
        }
        _ => (Vec::new(), 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    /// Llama-3.1-8B has 16.06 GB in 16 bits: 15.32 s at 1,048,576,000 B/s. vLLM adds 59 − 0.9 = 58.1 s, eager without its
    /// 24.51 s of kernels and graphs; the first start takes 19.37 − 7.51 = 11.86 s more.
    #[test]
    fn a_start_by_hand() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model("llama-3.1-8b").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let deployment = Deployment::resolve(model, chip, &DeploymentOptions::default()).unwrap();
        let start = Startup::of(&deployment, VOLUME_BYTES_PER_S);
        assert!((start.seconds - (15.32 + 58.1)).abs() < 0.02, "{start:?}");
        assert!((start.first_s - 11.86).abs() < 1e-9, "{start:?}");
        let sum: f64 = start.parts.iter().map(|part| part.seconds).sum();
        assert!((sum - start.seconds).abs() < 1e-9);
        // Weights on the host are read as well, and the accelerators need no room for them.
        let mut options = DeploymentOptions::default();
        options.engine.cpu_offload_gb = Some(8.0);
        let hosted = Deployment::resolve(deployment.model, deployment.accelerator, &options).unwrap();
        assert_eq!(Startup::of(&hosted, VOLUME_BYTES_PER_S).bytes, start.bytes);
    }
}
