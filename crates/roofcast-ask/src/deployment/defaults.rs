//! Defaults of an engine's step sizes that depend on the chip and the model.
//!
//! Knows: the default tokens and sequences of a step by the chip's memory. The default fraction of the memory is in
//! [`super::utilization`].

use super::utilization;
use crate::engine_settings::{Defaults, GraphBound};
use crate::parallelism::Parallelism;
use crate::spec::{EngineKind, EngineSpec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::model::Model;

/// Tokens of a batch (`-b`) and slots of llama.cpp's server, on every chip.
const LLAMA_CPP: (u64, u64) = (2048, 4);

/// Defaults of `engine` on `accelerator` for `model`.
pub(super) fn of(
    engine: &EngineSpec,
    accelerator: &Accelerator,
    parallelism: Parallelism,
    model: &Model,
) -> Defaults {
    let (tokens, max_num_seqs) = batch(engine, accelerator);
    Defaults {
        max_num_seqs,
        max_num_batched_tokens: tokens.max(whole_item(engine, model)),
        gpu_memory_utilization: utilization::default(engine, accelerator, parallelism, model),
        captured_tokens: GraphBound::of(engine, accelerator, model),
    }
}

/// vLLM's default tokens and sequences of a step: 8192 and 1024 from 70 GiB of memory (since 0.28, 16,384 tokens from
/// 160 GiB), else 2048 and 256 (`EngineArgs.get_batch_defaults`, vLLM 0.11 to 0.32). The A100 and chips that share
/// the host's memory, for which NVML reports none, are exceptions: [`Accelerator::vllm_small_batches`]. SGLang and
/// llama.cpp have separate defaults; for other engines no chip is an exception.
pub fn batch(engine: &EngineSpec, accelerator: &Accelerator) -> (u64, u64) {
    if engine.kind() == EngineKind::Sglang {
        return utilization::sglang_batch(engine, accelerator);
    }
    if engine.kind() == EngineKind::LlamaCpp {
        return LLAMA_CPP;
    }
    let vllm = engine.kind() == EngineKind::Vllm;
    let gib = if vllm && accelerator.vllm_small_batches { 0 } else { accelerator.usable_bytes.0 >> 30 };
    match gib {
        160.. if vllm && engine.release().is_since("0.28.0") => (16_384, 1024),
        70.. => (8192, 1024),
        _ => (2048, 256),
    }
}

/// Tokens of the largest image or video, for a model that must compute each item within one step; else 0. vLLM raises
/// its default tokens of a step to this number: 2496 for Gemma 4, 32 frames of 78 tokens
/// (`_get_min_mm_batched_tokens` of `engine/arg_utils.py`, vLLM 0.22 to 0.28; not in 0.21).
fn whole_item(engine: &EngineSpec, model: &Model) -> u64 {
    let release = engine.release();
    let vllm = release.kind == EngineKind::Vllm && release.is_since("0.22.0");
    let whole = vllm && engine.language_model_only != Some(true);
    let gemma = model.architecture.starts_with("gemma4") && model.tower.is_some();
    if whole && gemma { 2496 } else { 0 }
}
