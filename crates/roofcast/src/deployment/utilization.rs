//! The fraction of memory that an engine uses by default.
//!
//! Knows: vLLM's and TensorRT-LLM's constants, llama.cpp, which keeps nothing back, and SGLang's rule that leaves
//! room for activations and graphs: by memory, chunk, captured batch and ranks. [`crate::memory`] knows to which
//! memory the fraction applies.
//!
//! Sources: `vllm/config/cache.py` of vLLM 0.19 and 0.20; `server_args.py` of SGLang 0.4.2, 0.4.8 to 0.5.2 and 0.5.3
//! to 0.5.8, `arg_groups/memory_hook.py` of 0.5.23.

use crate::accelerator::Accelerator;
use crate::parallelism::Parallelism;
use crate::spec::EngineSpec;

/// The first version of vLLM whose default is 0.92; before it was 0.9.
const VLLM_RAISED: &str = "0.20.0";
/// The first version of SGLang whose fraction depends on the memory; before, it depended on the ranks alone.
const BY_MEMORY: &str = "0.4.8";
/// The first version whose rule counts the chunk and the largest captured batch.
const BY_CHUNK: &str = "0.5.3";
/// MiB of a GiB, as the rules count.
const GIB: f64 = 1024.0;
/// Default fraction of `engine` on `chip`.
pub(super) fn default(engine: &EngineSpec, chip: &Accelerator, parallelism: Parallelism) -> f64 {
    match engine.name() {
        "llama.cpp" => 1.0,
        "sglang" => fraction(engine, chip, parallelism),
        "vllm" if engine.is_since(VLLM_RAISED) => 0.92,
        _ => 0.9,
    }
}

/// Tokens of a chunk and the largest captured batch, by memory in MiB (`_handle_gpu_memory_settings`, 0.5.8).
fn defaults(mib: f64, tp: u64) -> (u64, u64) {
    let narrow = tp < 4;
    match mib / GIB {
        gib if gib < 20.0 => (2048, 8),
        gib if gib < 35.0 => (2048, if narrow { 24 } else { 80 }),
        gib if gib < 60.0 => (4096, if narrow { 32 } else { 160 }),
        gib if gib < 160.0 => (8192, if narrow { 256 } else { 512 }),
        _ => (16_384, 512),
    }
}

/// SGLang's `mem_fraction_static`.
fn fraction(engine: &EngineSpec, chip: &Accelerator, p: Parallelism) -> f64 {
    let mib = chip.usable_bytes.as_f64() / f64::from(1 << 20);
    // SGLang's tensor-parallel ranks hold the data-parallel ones of attention.
    let (tp, ranks) = (p.stage_ranks(), p.stage_ranks() * p.pp);
    if !engine.is_since(BY_MEMORY) {
        return match tp {
            16.. => 0.79,
            8.. => 0.81,
            4.. => 0.85,
            2.. => 0.87,
            _ => 0.88,
        };
    }
    let kept = if engine.is_since(BY_CHUNK) {
        let (chunk, batch) = defaults(mib, tp);
        let chunk = engine.chunked_prefill_size.and_then(|n| u64::try_from(n).ok()).unwrap_or(chunk);
        let mut kept = 512.0 + chunk.max(2048) as f64 * 1.5 + batch as f64 * 2.0 + ranks as f64 / 8.0 * GIB;
        if p.attention_dp > 1 {
            let more = if batch > 300 { 4.5 } else { 3.0 };
            kept += (batch * p.attention_dp) as f64 * more;
        }
        if mib > 60.0 * GIB { kept.max(10.0 * GIB) } else { kept }
    } else {
        let gib = match mib / GIB {
            gib if gib < 35.0 => 2.8 + ranks as f64 / 10.0,
            gib if gib < 90.0 => 9.5 + ranks as f64 / 2.0,
            gib if gib < 160.0 => 12.0 + ranks as f64 / 2.0,
            _ => 32.0,
        };
        (gib + if p.attention_dp > 1 { 4.0 } else { 0.0 }) * GIB
    };
    let drafts = if engine.speculative.is_some() { 2.0 * GIB } else { 0.0 };
    let share = ((mib - kept - drafts) / mib * 1000.0).round() / 1000.0;
    share.clamp(0.01, 1.0)
}
