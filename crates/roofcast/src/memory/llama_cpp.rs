//! What llama.cpp takes of the memory: all of it, with no share kept back.
//!
//! Knows: the input embedding stays on the host, and what a micro-batch computes lies in one buffer that is reserved for the
//! whole context at the start. Without flash attention that buffer is the scores of `n_ubatch` queries with every token of
//! every slot, in 32 bits: `n_ctx · n_ubatch · heads · 4` bytes, beside a mask of `n_ctx · n_ubatch · 4`; the logits,
//! `n_ubatch · vocabulary · 4`, reuse it. With flash attention the logits are what is left.
//!
//! Sources: `llama_new_context_with_model` reserves the graph at `n_ctx` (llama.cpp of May 2024); the size of the scores in
//! github.com/ikawrakow/ik_llama.cpp, pull request 237; the embedding on the host in github.com/ggml-org/llama.cpp, issues
//! 5993 and 25700.

use crate::deployment::Deployment;
use crate::model::Mixer;
use crate::spec::AttentionBackend;
use crate::units::Bytes;

/// Prompt tokens that are computed at once: `--ubatch-size`.
const MICRO_BATCH: u64 = 512;
/// Bytes of a computed value.
const SINGLE: u64 = 4;
/// Copies of the hidden state that a layer has at once.
const STREAMS: u64 = 4;
/// The first build whose flash attention is on wherever the chip has it: `-fa auto`, August 2025.
const FLASH_FROM: u64 = 6325;

/// Whether `deployment` is served by llama.cpp.
pub(super) fn serves(deployment: &Deployment) -> bool {
    !deployment.ideal && deployment.options.engine.name() == "llama.cpp"
}

fn micro_batch(deployment: &Deployment) -> u64 {
    deployment.options.engine.max_num_batched_tokens.unwrap_or(MICRO_BATCH).min(MICRO_BATCH)
}

/// Whether scores are written to memory: where the spec says so, else before build [`FLASH_FROM`].
fn writes_scores(deployment: &Deployment) -> bool {
    let engine = &deployment.options.engine;
    match engine.attention_backend {
        Some(backend) => backend == AttentionBackend::Naive,
        None => {
            let build = engine.version.as_deref().and_then(|v| v.strip_prefix('b')?.parse::<u64>().ok());
            build.is_some_and(|build| build < FLASH_FROM)
        }
    }
}

/// Bytes of the compute buffer on one rank for each token of the context.
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

/// Bytes of it whatever the context.
pub(super) fn buffer(deployment: &Deployment) -> Bytes {
    let model = &deployment.model;
    let logits = if writes_scores(deployment) { 0 } else { model.vocab };
    Bytes((STREAMS * model.hidden + logits) * SINGLE * micro_batch(deployment))
}

/// Weights of `stage` that stay on the host: the input embedding, unless it is the output's, too.
pub(super) fn on_host(deployment: &Deployment, stage: usize) -> Bytes {
    let apart = !deployment.model.tied && deployment.accelerator.vendor != "cpu";
    let row = deployment.stages.get(stage).map_or(Bytes::ZERO, |s| s.embedding_row);
    if apart { row * deployment.model.vocab } else { Bytes::ZERO }
}
