//! Buffers of DeepEP on a rank under vLLM.
//!
//! Knows: both sizes of low-latency mode, and the fixed sizes of vLLM's managers. Low-latency mode has two send and two
//! receive buffers with a slot for every expert and every token that a rank may dispatch at one time (deepseek-ai/DeepEP,
//! `csrc/config.hpp`, `LowLatencyLayout`); vLLM dispatches at most 256 (`VLLM_MOE_DP_CHUNK_SIZE`). Each mode has a buffer
//! of 1 GiB for NVLink, normal mode another for the network (`VLLM_DEEPEP_BUFFER_SIZE_MB`,
//! `device_communicators/all2all.py`). The profiling step allocates them outside PyTorch, so that they count as runtime.
//! SGLang's are not in its budget.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::All2AllBackend;
use roofcast_facts::model::Ffn;
use roofcast_facts::units::Bytes;

/// Tokens that a rank of vLLM dispatches at one time in low-latency mode.
const TOKENS: u64 = 256;
/// Bytes of a buffer for one kind of link.
const LINK: Bytes = Bytes(1 << 30);

/// Bytes of the buffers on one rank; 0 without DeepEP.
pub(super) fn buffers(deployment: &Deployment) -> Bytes {
    let Some(backend) = deployment.experts.deepep() else { return Bytes::ZERO };
    let slots = deployment.model.layers.iter().filter_map(|layer| match &layer.ffn {
        Ffn::Experts(experts) => {
            let width = experts.width(deployment.model.hidden);
            // Values in 16 bits, and a pair of 16-bit scales for every 128.
            let message = 2 * width + (4 * (width / 128)).max(16);
            Some(4 * (experts.count + deployment.experts.redundant) * TOKENS * message)
        }
        Ffn::Dense(_) | Ffn::None => None,
    });
    let low_latency = LINK + Bytes(slots.max().unwrap_or(0));
    let between = deployment.parallelism.stage_ranks() > deployment.accelerator.node_size;
    let normal = if between { LINK + LINK } else { LINK };
    match backend {
        All2AllBackend::DeepepHighThroughput | All2AllBackend::AllgatherReducescatter => normal,
        All2AllBackend::DeepepLowLatency => low_latency,
        All2AllBackend::DeepepAuto => low_latency.max(normal),
    }
}
