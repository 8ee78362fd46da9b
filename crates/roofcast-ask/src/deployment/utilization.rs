//! Default fraction of the memory that an engine uses, and SGLang's defaults for its chunk and its number of
//! requests.
//!
//! Knows: the constants of vLLM and TensorRT-LLM; that llama.cpp uses all memory; and SGLang's rule that reserves
//! memory for activations and graphs, by memory size, chunk, captured steps, ranks and the size of a vision tower.
//! `memory` defines the memory to which a fraction applies. DeepEP's buffers, and SGLang's pools whose size
//! is set after capture, are not counted.
//!
//! Sources: `vllm/config/cache.py` of vLLM 0.19 and 0.20; `server_args.py` of SGLang 0.4.2, 0.4.8 to 0.5.2, 0.5.3 to
//! 0.5.18, `arg_groups/memory_hook.py` of 0.5.20 and 0.5.23.

use crate::parallelism::Parallelism;
use crate::spec::{EngineKind, EngineSpec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::model::Model;
use roofcast_facts::model::mixer::Mixer;

/// First version of vLLM with a default utilization of 0.92; earlier versions use 0.9.
const VLLM_RAISED: &str = "0.20.0";
/// First version of SGLang whose fraction depends on the memory; in earlier versions it depends on the ranks alone.
const BY_MEMORY: &str = "0.4.8";
/// First version of SGLang whose rule counts the chunk and the largest captured batch.
const BY_CHUNK: &str = "0.5.3";
/// First version of SGLang that captures steps with prompts and reserves memory for them.
const PREFILL_GRAPHS: &str = "0.5.10";
/// First version of SGLang that reserves no separate memory for drafts.
const DRAFTS_COUNTED: &str = "0.5.14";
/// First version of SGLang with a larger chunk and captured batch on cards below 35 GiB; 0.5.20 has the smaller ones.
const SMALL_RAISED: &str = "0.5.21";
/// Default maximum number of running requests. SGLang's rule gives 2048 to 4096, and more than 2048 only if the pool
/// holds more than four of the longest requests (`resolve_max_num_reqs`).
const SGLANG_REQUESTS: u64 = 2048;
/// MiB in a GiB; SGLang's rules count in MiB.
const GIB: f64 = 1024.0;
/// Default fraction of the memory of `chip` that `engine` uses.
pub(super) fn default(
    engine: &EngineSpec,
    chip: &Accelerator,
    parallelism: Parallelism,
    model: &Model,
) -> f64 {
    match engine.kind() {
        EngineKind::LlamaCpp => 1.0,
        EngineKind::Sglang => fraction(engine, chip, parallelism, model),
        EngineKind::Vllm if engine.release().is_since(VLLM_RAISED) => 0.92,
        _ => 0.9,
    }
}

/// SGLang's default tokens of a chunk, and its bound on running requests.
pub(super) fn sglang_batch(engine: &EngineSpec, chip: &Accelerator) -> (u64, u64) {
    (by_memory(engine, mib(chip), 1).0, SGLANG_REQUESTS)
}

fn mib(chip: &Accelerator) -> f64 {
    chip.usable_bytes.as_f64() / f64::from(1 << 20)
}

/// Default tokens of a chunk, and the largest captured batch, by memory in MiB (`_handle_gpu_memory_settings`, 0.5.8
/// to 0.5.23).
fn by_memory(engine: &EngineSpec, mib: f64, tp: u64) -> (u64, u64) {
    let narrow = tp < 4;
    match mib / GIB {
        gib if gib < 20.0 => (2048, 8),
        gib if gib < 35.0 && engine.release().is_since(SMALL_RAISED) => (4096, if narrow { 48 } else { 160 }),
        gib if gib < 35.0 => (2048, if narrow { 24 } else { 80 }),
        gib if gib < 60.0 => (4096, if narrow { 32 } else { 160 }),
        gib if gib < 160.0 => (8192, if narrow { 256 } else { 512 }),
        _ => (16_384, 512),
    }
}

/// SGLang's default `mem_fraction_static`.
fn fraction(engine: &EngineSpec, chip: &Accelerator, p: Parallelism, model: &Model) -> f64 {
    let mib = mib(chip);
    // SGLang's `tp` includes the data-parallel ranks of attention.
    let tp = p.stage_ranks();
    let ranks = p.stage_ranks() * p.pp;
    if !engine.release().is_since(BY_MEMORY) {
        return match tp {
            16.. => 0.79,
            8.. => 0.81,
            4.. => 0.85,
            2.. => 0.87,
            _ => 0.88,
        };
    }
    let reserved = if engine.release().is_since(BY_CHUNK) {
        kept(engine, p, model, mib)
    } else {
        let gib = match mib / GIB {
            gib if gib < 35.0 => 2.8 + ranks as f64 / 10.0,
            gib if gib < 90.0 => 9.5 + ranks as f64 / 2.0,
            gib if gib < 160.0 => 12.0 + ranks as f64 / 2.0,
            _ => 32.0,
        };
        (gib + if p.attention_dp > 1 { 4.0 } else { 0.0 }) * GIB
    };
    let drafts = engine.speculative.is_some() && !engine.release().is_since(DRAFTS_COUNTED);
    let drafts = if drafts { 2.0 * GIB } else { 0.0 };
    let share = ((mib - reserved - drafts) / mib * 1000.0).round() / 1000.0;
    (share * of_tower(engine, model)).clamp(0.01, 1.0)
}

/// MiB that SGLang reserves for activations and graphs.
fn kept(engine: &EngineSpec, p: Parallelism, model: &Model, mib: f64) -> f64 {
    let ranks = p.stage_ranks() * p.pp;
    let (chunk, batch) = by_memory(engine, mib, p.stage_ranks());
    let chunk = engine.sglang.chunked_prefill_size.and_then(|n| u64::try_from(n).ok()).unwrap_or(chunk);
    let bound = engine.max_num_seqs.filter(|_| engine.release().is_since(SMALL_RAISED));
    let batch = bound.map_or(batch, |bound| batch.min(bound));
    let mut reserved = 512.0 + chunk.max(2048) as f64 * 1.5 + batch as f64 * 2.0 + ranks as f64 / 8.0 * GIB;
    if p.attention_dp > 1 {
        let more = if batch > 300 { 4.5 } else { 3.0 };
        reserved += (batch * p.attention_dp) as f64 * more;
    }
    if engine.release().is_since(PREFILL_GRAPHS) && engine.enforce_eager != Some(true) {
        let latent = model.layers.iter().any(|layer| matches!(layer.mixer, Mixer::Latent(_)));
        reserved += if latent { 1.5 * GIB } else { 8.0 * captured(chunk) as f64 };
    }
    if mib > 60.0 * GIB { reserved.max(10.0 * GIB) } else { reserved }
}

/// Number of captured step sizes with prompts, up to `chunk` tokens: multiples of 4 up to 32, of 16 up to 256, of 32
/// up to 512, of 64 up to 1024, of 256 up to 4096 and of 512 beyond (`generate_prefill_cuda_graph_batch_sizes`,
/// 0.5.23).
fn captured(chunk: u64) -> u64 {
    let spans = [(0, 32, 4), (32, 256, 16), (256, 512, 32), (512, 1024, 64), (1024, 4096, 256)];
    let upto = |(from, to, step): (u64, u64, u64)| chunk.min(to).saturating_sub(from) / step;
    spans.into_iter().map(upto).sum::<u64>() + chunk.saturating_sub(4096) / 512
}

/// Factor on the fraction for a model with a vision tower: 0.95, reduced by a tenth for each additional multiple of
/// ViT-L's layers × width² (24 layers of 1024), by at most a fifth (`adjust_mem_fraction_for_vlm`, 0.5.9 to 0.5.23).
fn of_tower(engine: &EngineSpec, model: &Model) -> f64 {
    let Some(tower) = model.tower.filter(|_| engine.language_model_only != Some(true)) else { return 1.0 };
    let size = |layers: u64, width: u64| layers as f64 * (width as f64).powi(2);
    let [layers, width] = tower.by_plain_keys;
    let ratio = size(layers.unwrap_or(24), width.unwrap_or(1024)) / size(24, 1024);
    0.95 * (1.0 - 0.1 * (ratio - 1.0)).clamp(0.8, 1.05)
}
