//! llama.cpp's memory: it uses the whole device, without a reserved fraction.
//!
//! Knows: the input embedding stays on the host, and the intermediates of a micro-batch are in one buffer that is
//! reserved for the whole context at the start. Without flash attention, the buffer holds the scores of `n_ubatch`
//! queries with every token of every slot, in 32 bits: `n_ctx · n_ubatch · heads · 4` bytes, plus a mask of `n_ctx ·
//! n_ubatch · 4`; the logits, `n_ubatch · vocabulary · 4`, reuse this memory. With flash attention, only the logits
//! remain. Layers with a window w keep `min(n_ctx, w + n_ubatch)` cells of each slot, in multiples of 256. Does not
//! know `--kv-unified`, which keeps the `n_ubatch` cells once for all slots.
//!
//! Sources: `llama_new_context_with_model` reserves the graph at `n_ctx` (llama.cpp of May 2024); the size of the
//! scores in github.com/ikawrakow/ik_llama.cpp, pull request 237; the embedding on the host in
//! github.com/ggml-org/llama.cpp, issues 5993 and 25700; the window's cells in `src/llama-kv-cache-iswa.cpp` of
//! b11434.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{AttentionBackend, EngineKind};
use roofcast_facts::model::Mixer;
use roofcast_facts::units::Bytes;

/// Prompt tokens per micro-batch: `--ubatch-size`.
const MICRO_BATCH: u64 = 512;
/// Bytes of an intermediate value, which has 32 bits.
const SINGLE: u64 = 4;
/// Copies of the hidden state that a layer holds at one time.
const STREAMS: u64 = 4;
/// Cells of a window's cache are rounded up to a multiple of this number.
const CELLS: u64 = 256;
/// First build that uses flash attention by default if the chip supports it: `-fa auto`, August 2025.
const FLASH_FROM: u64 = 6325;

/// True if llama.cpp serves `deployment`.
pub(super) fn serves(deployment: &Deployment) -> bool {
    !deployment.ideal && deployment.engine.kind() == EngineKind::LlamaCpp
}

fn micro_batch(deployment: &Deployment) -> u64 {
    deployment.engine.requested.max_num_batched_tokens.unwrap_or(MICRO_BATCH).min(MICRO_BATCH)
}

/// True if attention scores are written to memory: as the spec requests, else in builds before [`FLASH_FROM`].
fn writes_scores(deployment: &Deployment) -> bool {
    let engine = &deployment.engine;
    match engine.attention_backend {
        Some(backend) => backend == AttentionBackend::Naive,
        None => {
            let build =
                engine.release.version.as_deref().and_then(|v| v.strip_prefix('b')?.parse::<u64>().ok());
            build.is_some_and(|build| build < FLASH_FROM)
        }
    }
}

/// Bytes of the compute buffer on one rank per token of the context.
pub(super) fn buffer_of_token(deployment: &Deployment) -> Bytes {
    if !writes_scores(deployment) {
        return Bytes::ZERO;
    }
    let heads = deployment.model.layers.iter().map(|layer| match &layer.mixer {
        Mixer::Attention(a) | Mixer::Both(a, _) => a.heads,
        _ => 0,
    });
    let heads = heads.max().unwrap_or(0).div_ceil(deployment.parallelism.tp);
    Bytes((heads + 1) * SINGLE * micro_batch(deployment))
}

/// Bytes of the compute buffer on one rank that do not depend on the context.
pub(super) fn buffer(deployment: &Deployment) -> Bytes {
    let model = &deployment.model;
    let logits = if writes_scores(deployment) { 0 } else { model.vocab };
    Bytes((STREAMS * model.hidden + logits) * SINGLE * micro_batch(deployment))
}

/// Cells beyond the window itself that a layer with a window of `window` tokens keeps of a sequence of `context`
/// tokens.
pub(super) fn cells_beyond_window(deployment: &Deployment, window: u64, context: u64) -> u64 {
    let cells = context.min(window.saturating_add(micro_batch(deployment))).next_multiple_of(CELLS);
    cells - context.min(window)
}

/// Bytes of the weights of `stage` that stay on the host: the input embedding, unless lm_head shares its weights.
pub(super) fn on_host(deployment: &Deployment, stage: usize) -> Bytes {
    let apart = !deployment.model.tied && deployment.accelerator.vendor != "cpu";
    let row = deployment.stages.get(stage).map_or(Bytes::ZERO, |s| s.embedding_row);
    if apart { row * deployment.model.vocab } else { Bytes::ZERO }
}
