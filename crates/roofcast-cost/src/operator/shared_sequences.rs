//! Messages of decode context parallelism: ranks that share the cached tokens of sequences.
//!
//! Knows: for a decode, each layer gathers the queries of all such ranks, then the logarithms of the softmax sums in 32
//! bits, and scatters the sums of outputs back to their heads (vLLM 0.33, `v1/attention/ops/common.py`,
//! `cp_lse_ag_out_rs`). For a prompt, each layer gathers the cached tokens before its chunk. Latent attention is absorbed, so
//! that queries and outputs have the latent's width. Knows nothing about time.

use roofcast_ask::deployment::Deployment;
use roofcast_facts::model::Mixer;

/// Messages of equal layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SharedSequences {
    /// Number of layers.
    pub(crate) layers: f64,
    /// Bytes that all ranks together gather or scatter for one decode: queries, logarithms, outputs.
    pub(crate) decode: [f64; 3],
    /// Bytes of one cached token before a chunk of a prompt.
    pub(crate) cached: f64,
}

/// Messages of all layers of `deployment`; empty if ranks do not share sequences.
pub(crate) fn messages(deployment: &Deployment) -> Vec<SharedSequences> {
    let ranks = deployment.sequence_ranks;
    if ranks < 2 {
        return Vec::new();
    }
    let value = f64::from(deployment.base.bits()) / 8.0;
    let cache = deployment.kv.width.as_f64() / 8.0;
    let blocks = deployment.stages.iter().flat_map(|stage| &stage.blocks);
    let messages_of = |mixer: &Mixer| {
        let (heads, [query, output], cached) = match mixer {
            Mixer::Attention(a) => {
                let parts = deployment.kv_parts(a.kv_heads);
                (a.heads, [a.head_dim, a.v_head_dim], a.kv_elements_per_token().div_ceil(parts))
            }
            Mixer::Latent(l) => (l.heads, [l.kv_lora_rank + l.qk_rope_head_dim, l.kv_lora_rank], l.cached()),
            _ => return None,
        };
        let gathered = (heads.div_ceil(deployment.parallelism.tp) * ranks) as f64;
        let decode = [
            gathered * query as f64 * value,
            gathered * ranks as f64 * 4.0,
            gathered * output as f64 * value,
        ];
        Some((decode, cached as f64 * cache))
    };
    let messages = blocks.filter_map(|(block, layers)| {
        let (decode, cached) = messages_of(&block.mixer)?;
        Some(SharedSequences { layers: *layers as f64, decode, cached })
    });
    messages.collect()
}
