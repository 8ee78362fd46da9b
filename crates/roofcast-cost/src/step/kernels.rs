//! Numbers of kernels of a layer that no table times.
//!
//! Knows: small kernels by mixer, feed-forward part and engine, kernels of routed experts, and attention kernels
//! between captured pieces. Does not know times.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::model::{Ffn, Layer, Mixer};

/// Number of `attentions` that run between captured pieces of the graph, and true if this also applies to decodes:
/// before 0.11 vLLM's default was `PIECEWISE`, later graphs of decodes are whole (its pull request 25444).
pub(super) fn pieces(deployment: &Deployment, attentions: u64) -> (u64, bool) {
    let engine = &deployment.engine;
    if engine.kind() != EngineKind::Vllm || !engine.is_since("0.8.0 (2025-03)") {
        return (0, false);
    }
    (attentions, !engine.is_since("0.11.0 (2025-10)"))
}

/// Number of kernels of routed experts: sorting of the tokens' copies, two grouped GEMMs with the activation in
/// between, and the sum.
pub(super) const KERNELS_OF_EXPERTS: u64 = 5;

/// Number of small kernels of DeepSeek-V3.2's indexer: norm of keys, rotary embedding, Hadamard transform and
/// quantization of queries and of keys, cache write, scaling of head weights, and top-k
/// (deepseek-ai/DeepSeek-V3.2-Exp, `inference/model.py`, `Indexer`).
const KERNELS_OF_INDEX: u64 = 9;

/// Number of small kernels of a layer in a decode step, which no table times: two norms with their residuals, and
/// further ones by the parts of the layer, without the quantization of activations, which belongs to products. Counted in vLLM 0.33's `model_executor/models` (llama, qwen3, deepseek_v2,
/// qwen3_next), after its fusions.
pub(super) fn small_kernels(layer: &Layer) -> u64 {
    const NORMS: u64 = 2;
    let mixer = match &layer.mixer {
        // Rotary embedding and cache write; sums of squares and scaling for norms over all heads; norm, rotary
        // embedding and top-k for an index of blocks.
        Mixer::Attention(a) => {
            2 + if layer.mixer.norms_all_heads() { 2 } else { 0 } + if a.index.is_some() { 3 } else { 0 }
        }
        // Two norms of latents, rotary embedding, cache write, and two batched GEMMs with the absorbed projections.
        Mixer::Latent(latent) => 6 + if latent.indexer.is_some() { KERNELS_OF_INDEX } else { 0 },
        Mixer::Compressed(_) => 6,
        // Split, gates, and the norm after the recurrence.
        Mixer::None => 0,
        Mixer::Both(..) => 5,
        _ => 3,
    };
    let feeds = match &layer.ffn {
        Ffn::Dense(_) => 1,
        // Top-k of the router, and activation and sum of the shared experts.
        Ffn::Experts(experts) => 1 + if experts.shared.is_some() { 2 } else { 0 },
        Ffn::None => 0,
    };
    NORMS + mixer + feeds
}
