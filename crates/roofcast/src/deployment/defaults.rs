//! Defaults of an engine's sizes that depend on the chip and the model.
//!
//! Knows: the tokens and sequences of a step by memory. Fractions of the memory are in [`super::utilization`].

use super::utilization;
use crate::accelerator::Accelerator;
use crate::engine_settings::Defaults;
use crate::model::Model;
use crate::parallelism::Parallelism;
use crate::spec::{EngineKind, EngineSpec};

/// Defaults of `engine` on `accelerator`.
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
    }
}

/// vLLM's default tokens and sequences of a step: 8192 and 1024 from 70 GiB of memory on, 16,384 tokens from 160 GiB on since
/// 0.28, else 2048 and 256 (`EngineArgs.get_batch_defaults`, vLLM 0.11 to 0.32). The A100 is an exception, and so are chips
/// that share the host's memory, for which NVML has no answer: [`Accelerator::vllm_small_batches`]. SGLang has its
/// own; for other engines no chip is an exception.
pub(crate) fn batch(engine: &EngineSpec, accelerator: &Accelerator) -> (u64, u64) {
    if engine.kind() == EngineKind::Sglang {
        return utilization::sglang_batch(engine, accelerator);
    }
    let vllm = engine.kind() == EngineKind::Vllm;
    let gib = if vllm && accelerator.vllm_small_batches { 0 } else { accelerator.usable_bytes.0 >> 30 };
    match gib {
        160.. if vllm && engine.release().is_since("0.28.0") => (16_384, 1024),
        70.. => (8192, 1024),
        _ => (2048, 256),
    }
}

/// Tokens of the largest image or video of a model that needs it in one step: vLLM does not split such an item over steps
/// and raises its default for Gemma 4 to 2496, 32 frames of 78 tokens (`_get_min_mm_batched_tokens` of `engine/arg_utils.py`, vLLM 0.22 to 0.28; 0.21 has none).
fn whole_item(engine: &EngineSpec, model: &Model) -> u64 {
    let release = engine.release();
    let vllm = release.kind == EngineKind::Vllm && release.is_since("0.22.0");
    let whole = vllm && engine.language_model_only != Some(true);
    let gemma = model.architecture.starts_with("gemma4") && model.tower.is_some();
    if whole && gemma { 2496 } else { 0 }
}
