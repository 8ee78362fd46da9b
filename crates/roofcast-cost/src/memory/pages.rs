//! The blocks of one request, as vLLM counts them at start-up: layers with equal retention form groups with equal
//! numbers of layers, whose blocks have equal bytes and come from one pool.
//!
//! Knows: a full-attention layer keeps `⌈L/b⌉` blocks of a request of L tokens; a layer with a window w keeps `⌈min(w
//! − 1 + tokens in flight, L)/b⌉ + 1`; a recurrent state occupies whole blocks, one plus one for each draft, and a
//! further one if prefixes are cached. Knows nothing about running requests; see [`roofcast_ask::kv_cache::groups`].
//!
//! Source: `v1/kv_cache_interface.py` and `_get_kv_cache_groups_uniform_page_size`, `unify_kv_cache_spec_page_size`
//! of `v1/core/kv_cache_utils.py` in vLLM 0.11 to 0.32.

use super::{block_tokens, keeps_all, parts, token_bytes};
use roofcast_ask::deployment::Deployment;
use roofcast_facts::model::Mixer;
use roofcast_facts::units::Bytes;
use std::collections::BTreeMap;

/// First version of vLLM that counts the tokens of every step in flight; 0.25.1 counts one step
/// (`max_in_flight_tokens`).
const ALL_IN_FLIGHT: &str = "0.26.0";
/// First version of vLLM that caches prefixes of models with recurrent states by default; in 0.26 and 0.27 the
/// feature exists but is off by default (`_set_default_chunked_prefill_and_prefix_caching_args` of
/// `engine/arg_utils.py`).
const HYBRID_PREFIXES: &str = "0.28.0";

/// Part of a request that a layer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    /// All tokens.
    All,
    /// The last tokens, up to this number.
    Window(u64),
    /// A state of fixed size.
    State,
}

/// Groups of layers with equal retention.
#[derive(Debug, Clone, Copy)]
struct RetentionClass {
    kept: Kept,
    groups: u64,
    /// Tokens per block.
    tokens: u64,
}

/// Pool of blocks on one rank of a stage.
#[derive(Debug)]
pub struct PagePool {
    /// Bytes of a block, over all layers of a group.
    pub(super) block: Bytes,
    kinds: Vec<RetentionClass>,
    in_flight: u64,
    state_blocks: u64,
}

impl PagePool {
    /// Pool on a rank of `stage`; `None` if these rules do not cover a layer's cache.
    pub(super) fn of(deployment: &Deployment, stage: usize) -> Option<PagePool> {
        let block = block_tokens(deployment);
        let layers = layers(deployment, stage)?;
        // A recurrent state has no bytes per token, so that it does not determine the block.
        let page = layers.keys().map(|(_, bytes)| *bytes * block).max().filter(|page| *page > Bytes::ZERO)?;
        let counts: Vec<u64> = layers.values().copied().collect();
        let size = group_size(&counts)?;
        let kind = |((kept, bytes), layers): (&(Kept, Bytes), &u64)| {
            let more = if *kept == Kept::State { 1 } else { page.0 / (bytes.0 * block).max(1) };
            RetentionClass { kept: *kept, groups: layers.div_ceil(size), tokens: block * more }
        };
        Some(PagePool {
            block: page * size,
            kinds: layers.iter().map(kind).collect(),
            in_flight: in_flight(deployment),
            state_blocks: state_blocks(deployment),
        })
    }

    /// Most blocks that a request of `context` tokens occupies.
    pub(super) fn blocks(&self, context: u64) -> u64 {
        let of = |kind: &RetentionClass| {
            let each = match kind.kept {
                Kept::All => context.div_ceil(kind.tokens),
                Kept::Window(window) => {
                    let kept = (window.saturating_sub(1) + self.in_flight).min(context);
                    kept.div_ceil(kind.tokens) + 1
                }
                Kept::State => self.state_blocks,
            };
            each * kind.groups
        };
        self.kinds.iter().map(of).sum()
    }
}

/// Number of layers by retention and by KV bytes per token on a rank; a recurrent state has 0 bytes per token.
fn layers(deployment: &Deployment, stage: usize) -> Option<BTreeMap<(Kept, Bytes), u64>> {
    let mut layers: BTreeMap<(Kept, Bytes), u64> = BTreeMap::new();
    let mut add = |kept, bytes, count: u64| *layers.entry((kept, bytes)).or_default() += count;
    for (block, count) in &deployment.stages.get(stage)?.blocks {
        match &block.mixer {
            Mixer::Attention(a) if a.shared_kv => {}
            Mixer::Attention(a) if keeps_all(a) => {
                let kept = a.window.map_or(Kept::All, Kept::Window);
                add(kept, token_bytes(deployment, a), *count);
            }
            Mixer::Latent(_) => {
                let token = block.mixer.rank_bytes(deployment.kv, 1, parts(deployment, &block.mixer));
                add(Kept::All, token, *count);
            }
            Mixer::Attention(_) | Mixer::Compressed(_) | Mixer::Both(..) => return None,
            mixer if mixer.recurrence().is_some() => add(Kept::State, Bytes::ZERO, *count),
            _ => {}
        }
    }
    Some(layers)
}

/// Number of layers in each group: the smallest of `counts`, the numbers of equal layers, or the largest if it is
/// less than 1.5 times the smallest.
fn group_size(counts: &[u64]) -> Option<u64> {
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    Some(if 2 * most < 3 * least { most } else { least })
}

/// Tokens that are scheduled and not yet finished: the tokens of one step per pipeline stage, or of two steps if one
/// step is scheduled ahead (`max_concurrent_batches` of `config/vllm.py`, with the first model runner).
fn in_flight(deployment: &Deployment) -> u64 {
    let engine = &deployment.engine;
    let ahead = engine.vllm().and_then(|own| own.async_scheduling).unwrap_or(true);
    let steps = match deployment.parallelism.pp {
        _ if !engine.is_since(ALL_IN_FLIGHT) => 1,
        1 if ahead => 2,
        stages => stages,
    };
    engine.max_num_batched_tokens * steps
}

/// Number of blocks that a recurrent state occupies.
fn state_blocks(deployment: &Deployment) -> u64 {
    let engine = &deployment.engine;
    let cached = engine.enable_prefix_caching.unwrap_or_else(|| engine.is_since(HYBRID_PREFIXES));
    let drafted = engine.speculative.as_ref().map_or(0, |s| s.num_speculative_tokens);
    1 + u64::from(cached) + drafted
}
