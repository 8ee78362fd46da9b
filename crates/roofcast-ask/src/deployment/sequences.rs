//! Decode context parallelism: the KV cache of a sequence, sharded by its tokens over ranks that otherwise keep copies.
//!
//! Knows: which degrees engines accept. Tensor-parallel ranks beyond the number of KV heads keep copies of heads, and all
//! ranks keep the latent of MLA; `decode_context_parallel_size` of them share the tokens instead. It divides the
//! tensor-parallel degree, and is at most the number of copies (vLLM 0.33, docs/serving/context_parallel_deployment.md).
//! A scheduler's block then has as many times its tokens (`VllmConfig`, `scheduler_block_size`).

use crate::parallelism::Parallelism;
use crate::spec::{EngineKind, EngineSpec};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Mixer, Model};

/// Ranks over which the tokens of a sequence are sharded; 1 without decode context parallelism.
pub(super) fn ranks(engine: &EngineSpec, model: &Model, parallelism: Parallelism) -> Result<u64> {
    let ranks = engine.decode_context_parallel_size.unwrap_or(1);
    let refused =
        |accepted: String| Err(Error::field("engine", "decode_context_parallel_size", ranks, accepted));
    if ranks == 1 {
        return Ok(1);
    }
    if !matches!(engine.kind(), EngineKind::Vllm | EngineKind::Sglang) {
        return refused("1: vllm and sglang have it".to_owned());
    }
    let mut limit = parallelism.tp;
    for layer in &model.layers {
        let copies = match &layer.mixer {
            Mixer::Attention(a)
                if a.window.is_none() && a.chunk.is_none() && a.index.is_none() && !a.shared_kv =>
            {
                parallelism.tp / a.kv_heads.max(1)
            }
            Mixer::Latent(l) if l.indexer.is_none() => parallelism.tp,
            Mixer::None => continue,
            _ => return refused(format!("1: {} has layers that do not attend to all tokens", model.name)),
        };
        limit = limit.min(copies);
    }
    if ranks == 0 || ranks > limit || !parallelism.tp.is_multiple_of(ranks) {
        let tp = parallelism.tp;
        return refused(format!("a divisor of tp = {tp}, at most {} copies of the cache", limit.max(1)));
    }
    Ok(ranks)
}
