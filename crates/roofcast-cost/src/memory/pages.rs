//! The blocks of one request, as vLLM counts them at start-up: layers with equal retention form groups with equal
//! numbers of layers, whose blocks have equal bytes and come from one pool.
//!
//! Knows: a full-attention layer keeps `⌈L/b⌉` blocks of a request of L tokens; a layer with a window w keeps `⌈min(w
//! − 1 + tokens in flight, L)/b⌉ + 1`; a layer that attends to chunks of c tokens `⌈min(c + tokens in flight, L)/b⌉`;
//! a recurrent state occupies whole blocks, one plus one for each draft, and a further one if prefixes are cached.
//! Layers that all keep the same tokens form one group, whatever their bytes. Blocks of DeepSeek-V4 are in
//! [`packed`]. Knows nothing about which requests run; see [`roofcast_ask::kv_cache::groups`].
//!
//! Source: `v1/kv_cache_interface.py` and `_get_kv_cache_groups_uniform_type`,
//! `_get_kv_cache_groups_uniform_page_size`, `unify_kv_cache_spec_page_size` of `v1/core/kv_cache_utils.py` in vLLM
//! 0.11 to 0.32.

mod packed;

use super::{block_tokens, parts, token_bytes};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;
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
    /// The tokens of the last chunk of this size.
    Chunk(u64),
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
        let (block, kinds) = packed::pool(deployment, stage).or_else(|| alike(deployment, stage))?;
        Some(PagePool {
            block,
            kinds,
            in_flight: in_flight(deployment),
            state_blocks: state_blocks(deployment),
        })
    }

    /// Pool of DeepSeek-V4's packed blocks in vLLM, in which windows and states take many times the bytes that they
    /// hold; `None` for other models and engines.
    pub(super) fn packed(deployment: &Deployment, stage: usize) -> Option<PagePool> {
        let vllm = deployment.engine.kind() == EngineKind::Vllm && !deployment.ideal;
        let mut blocks = deployment.stages.get(stage)?.blocks.iter();
        let compresses = blocks.any(|(block, _)| matches!(block.mixer, Mixer::Compressed(_)));
        if vllm && compresses { PagePool::of(deployment, stage) } else { None }
    }

    /// Most blocks that a request of `context` tokens occupies while it is computed in whole steps.
    pub(super) fn blocks(&self, context: u64) -> u64 {
        self.with(context, self.in_flight)
    }

    /// Most blocks that a request of `context` tokens occupies between steps of one token.
    pub(super) fn kept(&self, context: u64) -> u64 {
        self.with(context, 0)
    }

    /// Most blocks of a request of `context` tokens, of which `in_flight` are not yet computed.
    fn with(&self, context: u64, in_flight: u64) -> u64 {
        let pages_of = |kind: &RetentionClass| {
            let each = match kind.kept {
                Kept::All => context.div_ceil(kind.tokens),
                Kept::Window(window) => {
                    let window_tokens = (window.saturating_sub(1) + in_flight).min(context);
                    window_tokens.div_ceil(kind.tokens) + 1
                }
                Kept::Chunk(chunk) => (chunk + in_flight).min(context).div_ceil(kind.tokens),
                Kept::State => self.state_blocks,
            };
            each * kind.groups
        };
        self.kinds.iter().map(pages_of).sum()
    }
}

/// Bytes of a block, and the groups, of layers whose pages are made equal: a layer with a smaller page has blocks of
/// more tokens if its page divides the largest, else the page is padded.
fn alike(deployment: &Deployment, stage: usize) -> Option<(Bytes, Vec<RetentionClass>)> {
    let block = block_tokens(deployment);
    let layers = layers(deployment, stage)?;
    // A recurrent state has no bytes per token, so that it does not determine the block.
    let token = layers.keys().map(|(_, bytes)| *bytes).max().filter(|token| *token > Bytes::ZERO)?;
    let retention = layers.keys().next().map(|(kept, _)| *kept).filter(|kept| *kept != Kept::State)?;
    if layers.keys().all(|(other, _)| *other == retention) {
        let tokens: Bytes = layers.iter().map(|((_, bytes), layers)| *bytes * *layers).sum();
        return Some((tokens * block, vec![RetentionClass { kept: retention, groups: 1, tokens: block }]));
    }
    let counts: Vec<u64> = layers.values().copied().collect();
    let size = group_size(&counts)?;
    let kind = |((retention, bytes), layers): (&(Kept, Bytes), &u64)| {
        let divides = *retention != Kept::State && token.0.is_multiple_of(bytes.0.max(1));
        let tokens = if divides { block * (token.0 / bytes.0.max(1)) } else { block };
        RetentionClass { kept: *retention, groups: layers.div_ceil(size), tokens }
    };
    Some((token * block * size, layers.iter().map(kind).collect()))
}

/// Mixers of a stage's layers and of multi-token-prediction layers that draft, with their numbers.
pub(super) fn mixers(deployment: &Deployment, stage: usize) -> Option<impl Iterator<Item = (&Mixer, u64)>> {
    let stage = deployment.stages.get(stage)?;
    let ahead = stage.ahead.iter().map(|(mixer, layers)| (mixer, *layers));
    Some(stage.blocks.iter().map(|(block, layers)| (&block.mixer, *layers)).chain(ahead))
}

/// Number of layers by retention and by KV bytes per token on a rank; a recurrent state has 0 bytes per token.
fn layers(deployment: &Deployment, stage: usize) -> Option<BTreeMap<(Kept, Bytes), u64>> {
    let mut layers: BTreeMap<(Kept, Bytes), u64> = BTreeMap::new();
    let mut add = |kept, bytes, count: u64| *layers.entry((kept, bytes)).or_default() += count;
    for (mixer, count) in mixers(deployment, stage)? {
        match mixer {
            Mixer::Attention(a) | Mixer::Both(a, _) if a.index.is_some() => return None,
            Mixer::Attention(a) if a.shared_kv => {}
            Mixer::Attention(a) | Mixer::Both(a, _) => {
                let retention = a.window.map(Kept::Window).or(a.chunk.map(Kept::Chunk)).unwrap_or(Kept::All);
                add(retention, token_bytes(deployment, a), count);
            }
            Mixer::Latent(_) => {
                let token = mixer.rank_bytes(deployment.kv, 1, parts(deployment, mixer));
                add(Kept::All, token, count);
            }
            Mixer::Compressed(_) => return None,
            _ => {}
        }
        if mixer.recurrence().is_some() {
            add(Kept::State, Bytes::ZERO, count);
        }
    }
    Some(layers)
}

/// Number of layers in each group: the smallest of `counts`, the numbers of equal layers, or the largest if it is
/// less than 1.5 times the smallest.
fn group_size(counts: &[u64]) -> Option<u64> {
    let smallest = *counts.iter().min()?;
    let largest = *counts.iter().max()?;
    Some(if 2 * largest < 3 * smallest { largest } else { smallest })
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
