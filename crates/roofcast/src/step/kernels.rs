//! Counts of a layer's kernels whose times no table has.
//!
//! Knows: small kernels by mixer, feed-forward and engine, kernels of routed experts, and attentions between captured pieces.
//! Does not know times.

use crate::deployment::Deployment;
use crate::model::{Ffn, Layer, Mixer};
use crate::spec::EngineKind;

/// How many of `attentions` lie between captured pieces, and whether that holds for decodes: before 0.11 vLLM's default was
/// `PIECEWISE`, since then graphs of decodes are whole (its pull request 25444).
pub(super) fn pieces(deployment: &Deployment, attentions: u64) -> (u64, bool) {
    let engine = &deployment.engine;
    if engine.kind() != EngineKind::Vllm || !engine.is_since("0.8.0 (2025-03)") {
        return (0, false);
    }
    (attentions, !engine.is_since("0.11.0 (2025-10)"))
}

/// Kernels of routed experts: sorting of the copies, two grouped GEMMs with the activation in between, and the sum.
pub(super) const KERNELS_OF_EXPERTS: u64 = 5;

/// Small kernels of DeepSeek-V3.2's index: norm of keys, rotary embedding, Hadamard transform and quantization of queries and
/// of keys, cache write, scaling of heads' weights, and top-k (deepseek-ai/DeepSeek-V3.2-Exp, `inference/model.py`, `Indexer`).
const KERNELS_OF_INDEX: u64 = 9;

/// Small kernels of a layer in a decode step, whose times no table has: two norms with their residuals, and more by
/// the layer's parts. Counted in vLLM 0.33's `model_executor/models` (llama, qwen3, deepseek_v2, qwen3_next) after
/// its fusions.
pub(super) fn small_kernels(deployment: &Deployment, layer: &Layer) -> u64 {
    const NORMS: u64 = 2;
    let mixer = match &layer.mixer {
        // Rotary embedding and cache write; squares and scaling of norms over all heads; norm, rotary embedding and top-k of an
        // index of blocks.
        Mixer::Attention(a) => {
            2 + if layer.mixer.norms_all_heads() { 2 } else { 0 } + if a.index.is_some() { 3 } else { 0 }
        }
        // Two norms of latents, rotary embedding, cache write, and two batched GEMMs that absorb projections.
        Mixer::Latent(latent) => 6 + if latent.indexer.is_some() { KERNELS_OF_INDEX } else { 0 },
        Mixer::Compressed(_) => 6,
        // Split, gates, and the norm after the recurrence.
        Mixer::None => 0,
        Mixer::Both(..) => 5,
        _ => 3,
    };
    let feeds = match &layer.ffn {
        Ffn::Dense(_) => 1,
        // Router's top-k, and the shared experts' activation and sum.
        Ffn::Experts(experts) => 1 + if experts.shared.is_some() { 2 } else { 0 },
        Ffn::None => 0,
    };
    NORMS + mixer + feeds + quantizing(deployment)
}

/// Kernels of a layer that quantize activations and are not part of GEMM tables: SGLang's tables time its GEMM alone,
/// vLLM's and TensorRT-LLM's include both (floors of the tables, see `docs/cost-model.md`).
fn quantizing(deployment: &Deployment) -> u64 {
    let quantized = matches!(deployment.weights.as_str(), "fp8" | "fp8-block" | "nvfp4");
    if quantized && deployment.engine.kind() == EngineKind::Sglang { 3 } else { 0 }
}
