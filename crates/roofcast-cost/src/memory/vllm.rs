//! vLLM's memory in addition to the weights: the step that it profiles at start-up, its sampler, graphs, and
//! allocations outside PyTorch.
//!
//! Knows: the budget is a fraction of the total memory that CUDA reports, so that the CUDA context, which exists
//! before the engine measures, is not part of it. Knows nothing about weights.
//!
//! Sources: `determine_available_memory` of `v1/worker/gpu_worker.py`, `_dummy_sampler_run` of `gpu_model_runner.py`
//! and `v1/sample` in vLLM 0.9 to 0.32; `sort` in PyTorch's `aten/src/ATen/native/cuda`; the table "Non-torch memory"
//! of github.com/llm-d/llm-d-benchmark, `config_explorer/empirical-vllm-memory-results.md`.

use crate::operator::Adapter;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{EngineKind, Release};
use roofcast_facts::units::Bytes;

/// First version that profiles with the V1 engine.
const V1: &str = "0.8.0";
/// First version that samples without a sort, by a Triton kernel for top-k and top-p that 0.16 lacks.
const WITHOUT_SORT: &str = "0.17.0";
/// First version that deducts an estimate of captured graphs from the budget, under CUDA; in earlier versions, graphs
/// use memory outside the budget.
const GRAPHS_COUNTED: &str = "0.20.0";

/// Bytes per vocabulary entry and sequence with a sort: logits in 16 bits and in fp32, sorted values and their 64-bit
/// indices, the sort's input indices, and the buffer of its second pass for values and indices (2 + 4 + 4 + 8 + 8 +
/// 12).
const SORTING: u64 = 38;
/// Bytes per vocabulary entry and sequence without a sort, according to logs of vLLM 0.19 and later. The sources
/// explain 14: logits in 16 bits and in fp32, probabilities, and the values that they are compared with (2 + 4 + 4 +
/// 4); 8 are not explained.
const FILTERING: u64 = 22;

/// GiB that libraries and modules of one rank occupy outside PyTorch: 0.13 to 0.14 on an H100 in llm-d's table.
const NOT_TORCH: f64 = 0.13;
/// GiB of communication buffers outside PyTorch over NVLink, per doubling of the ranks: 0.55 with two ranks in
/// llm-d's table, 0.95 with four in public logs. The buffers are NCCL's channels, its buffers for NVLink SHARP, and
/// the buffers of vLLM's own all-reduce.
const COMMUNICATION: f64 = 0.42;
/// Bytes of communication buffers between two ranks over PCIe: two channels, each with a send and a receive buffer of
/// 4 MiB, the default of `NCCL_BUFFSIZE`, and no NVLink SHARP. The number of channels is an assumption, made with
/// start-up logs of PCIe cards in view.
const COMMUNICATION_BY_PCIE: Bytes = Bytes(2 * 2 * (4 << 20));
/// GiB that vLLM estimates for captured graphs: the middle of ten public logs of vLLM 0.20 to 0.25, which range from
/// 0.07 to 2.35.
const GRAPHS: f64 = 0.65;
/// Bytes in a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Prompt tokens beyond which an engine before V1 enables chunked prefill by default, and its token budget and
/// sequences by default.
const CHUNKS_BEYOND: u64 = 32_768;
const V0_TOKENS: u64 = 2048;
const V0_SEQUENCES: u64 = 256;

/// First version that requests its share of the memory at start and refuses if less is free (`request_memory`).
const ASKED_AT_START: &str = "0.9.1";

/// True if memory of other processes is deducted from the KV cache: `non_torch_allocations` of the first V1 engines are
/// all bytes in use that PyTorch did not allocate (`gpu_worker.py`, vLLM 0.8.0 to 0.9.0).
pub(super) fn deducts_other_processes(release: &Release) -> bool {
    release.is_since(V1) && !release.is_since(ASKED_AT_START)
}

/// Bytes that sampling holds per vocabulary entry and sequence.
pub(super) fn sampler_bytes(release: &Release) -> u64 {
    if release.is_since(WITHOUT_SORT) { FILTERING } else { SORTING }
}

/// Tokens and sequences of the step that is profiled. Before V1 the step is one whole prompt of the longest length,
/// unless a prompt of that length would be split.
pub(super) fn profiled(deployment: &Deployment) -> (u64, u64) {
    let engine = &deployment.engine;
    if engine.is_since(V1) {
        return (deployment.engine.max_num_batched_tokens, deployment.engine.max_num_seqs);
    }
    let whole = deployment.longest().filter(|tokens| *tokens <= CHUNKS_BEYOND).unwrap_or(0);
    (
        engine.requested.max_num_batched_tokens.unwrap_or(whole.max(V0_TOKENS)),
        engine.requested.max_num_seqs.unwrap_or(V0_SEQUENCES),
    )
}

/// Bytes for images that fill the encoder's budget, which is the larger of the step's tokens and the tokens of the
/// largest image: their patches, and their output tokens, which are kept. Every rank computes whole images.
pub(super) fn encoder(deployment: &Deployment) -> Bytes {
    let engine = &deployment.engine;
    let profiled = engine.kind() == EngineKind::Vllm && !engine.language_model_only;
    let Some(tower) = deployment.model.tower.filter(|_| profiled) else { return Bytes::ZERO };
    let tokens = tower.largest.unwrap_or(0).max(deployment.engine.max_num_batched_tokens);
    let patches = tokens.saturating_mul(tower.patches_per_token.saturating_mul(tower.patch_width));
    Bytes(patches.saturating_add(tokens.saturating_mul(deployment.model.hidden))).scale(16, 8)
}

/// Bytes of the buffers of LoRA adapters on a rank of stage `stage`, which are allocated when the model is loaded: one
/// for each of `max_loras`, of the largest rank, in proportion to the stage's layers; `None` if none are served.
pub(super) fn adapters(deployment: &Deployment, stage: usize) -> Option<Bytes> {
    let settings = deployment.engine.lora.as_ref().filter(|_| !deployment.ideal)?;
    let all = Adapter::of(deployment, settings).bytes();
    let layers: u64 = deployment.stages.get(stage)?.blocks.iter().map(|(_, layers)| layers).sum();
    Some(all.scale(layers, deployment.model.layers.len() as u64) * settings.max_loras)
}

/// Bytes of communication buffers between ranks.
pub(super) fn communication(deployment: &Deployment) -> Bytes {
    let ranks = deployment.parallelism.stage_ranks() * deployment.parallelism.pp;
    let by_pcie = deployment.accelerator.link.as_ref().is_some_and(|link| link.topology.is_pcie());
    if by_pcie {
        return COMMUNICATION_BY_PCIE * (ranks - 1).min(2);
    }
    Bytes::from_f64(COMMUNICATION * (ranks as f64).log2() * GIB)
}

/// Bytes that libraries and modules of one rank occupy outside PyTorch.
pub(super) fn not_torch() -> Bytes {
    Bytes::from_f64(NOT_TORCH * GIB)
}

/// Bytes that are neither weights nor activations.
pub(super) fn runtime(deployment: &Deployment) -> Bytes {
    let engine = &deployment.engine;
    let captured = !engine.enforce_eager && deployment.accelerator.vendor == "nvidia";
    let graphs = captured && engine.is_since(GRAPHS_COUNTED);
    let graphs = if graphs { Bytes::from_f64(GRAPHS * GIB) } else { Bytes::ZERO };
    not_torch() + graphs + communication(deployment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::activation_peak;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_ask::spec::EngineSpec;
    use roofcast_facts::model::config;

    /// Qwen3-VL-2B, 8192 tokens a step. The largest image has 16,384 tokens of 4 patches; a patch holds twice 4096 and twice
    /// 1024 values, a token's output 2048: 16,384 · (4 · 10,240 + 2048) values of 2 bytes are 1.409 GB. Without encoders
    /// the widest layer counts, 8192 tokens of 2 · 2048 + 3 · 6144 values, 0.369 GB.
    #[test]
    fn the_largest_image_is_the_peak() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model("Qwen/Qwen3-VL-2B-Instruct").unwrap();
        let chip = catalog.accelerator("h100-sxm").unwrap();
        let peak = |text_alone: bool| {
            let model = config::read(&entry.id, "catalog", &entry.config).unwrap();
            let mut engine = EngineSpec {
                max_num_seqs: Some(1),
                max_num_batched_tokens: Some(8192),
                ..EngineSpec::default()
            };
            engine.language_model_only = text_alone.then_some(true);
            let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
            activation_peak(&Deployment::resolve(model.into(), chip.clone().into(), &options).unwrap())
        };
        assert_eq!(peak(false), Bytes(1_409_286_144));
        assert_eq!(peak(true), Bytes(369_098_752));
    }
}
