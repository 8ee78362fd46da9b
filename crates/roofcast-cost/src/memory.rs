//! Memory: the bytes that weights, activations and the runtime leave for the KV cache, and the tokens that fit.
//!
//! Knows: `KV room = usable × utilization − weights/rank − activation peak − runtime`, per rank of each stage, in
//! whole blocks; a draft model's weights and KV are counted in addition. Other memory of an engine is described in
//! its file: [`vllm`], [`sglang`], [`llama_cpp`]; [`start`] decides whether the engine starts. TensorRT-LLM's
//! fraction applies to the free remainder: `KV room = (usable − weights/rank − activation peak − runtime) ×
//! utilization`. Memory of other processes is not free: SGLang, TensorRT-LLM and llama.cpp divide the remainder, and
//! vLLM refuses to start if less is free than its fraction of the whole. With `ideal`: nominal memory, perfect
//! sharding, nothing reserved.

mod deepep;
mod host;
mod llama_cpp;
pub mod log;
mod pages;
mod rank;
mod sglang;
mod start;
mod vllm;

pub(crate) use host::host_link;
pub use host::host_tier;
pub use host::load_rate;
pub use llama_cpp::{Pool, pool};
pub use pages::PagePool;
pub use rank::Rank;
pub use start::{Refusal, Start};

use sglang::RankStatePool;

use roofcast_ask::deployment::Deployment;
use roofcast_ask::kv_cache::groups::Groups;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::model::mixer::{Attention, CacheParts};
use roofcast_facts::model::{Ffn, Mixer};
use roofcast_facts::units::Bytes;
use std::collections::BTreeMap;

/// Assumed bytes of CUDA context, captured graphs and allocator slack on one accelerator, for engines without a
/// measurement: vLLM 0.19 had 2588 blocks on an RTX 4090 of 25.76 GB running Llama-3.1-8B, 1.0 GB less than weights
/// and profiled peak explain.
const RUNTIME: Bytes = Bytes(1_000_000_000);
/// Assumed bytes of communication buffers if ranks communicate, the size of NCCL's default channels.
const COMMUNICATOR: Bytes = Bytes(500_000_000);
/// Bytes that sampling holds per vocabulary entry and sequence, for engines without a measurement: 16-bit logits,
/// their fp32 copy, probabilities, and a sort with 64-bit indices (2 + 4 + 4 + 4 + 8).
const SAMPLER_BYTES: u64 = 22;
/// Assumed bytes per vocabulary entry and sequence in TensorRT-LLM, which chooses the largest logit without a sort:
/// 2 + 4.
const GREEDY_SAMPLER_BYTES: u64 = 6;

/// Bytes of the CUDA context: 78.57 of the 79.18 GiB of an H100 are free when an engine starts
/// (github.com/llm-d/llm-d-benchmark, `config_explorer/empirical-vllm-memory-results.md`).
const CONTEXT: Bytes = Bytes(625 << 20);

/// Memory of a deployment: how the fullest rank of each stage is divided, computed once.
#[derive(Debug, Clone)]
pub struct Memory<'a> {
    pub(crate) deployment: &'a Deployment,
    ranks: Vec<Rank>,
    /// SGLang's pools of recurrent states, by stage.
    states: Vec<Option<RankStatePool>>,
}

impl<'a> Memory<'a> {
    /// Divides the memory of `deployment`.
    pub fn of(deployment: &'a Deployment) -> Memory<'a> {
        let (ranks, states) = (0..deployment.stages.len()).map(|stage| rank(deployment, stage)).unzip();
        Memory { deployment, ranks, states }
    }

    /// Memory of the fullest rank of each stage.
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// Most running requests of one replica that its pool of recurrent states allows; `None` without such a pool.
    pub fn running(&self) -> Option<u64> {
        let fewest = self.states.iter().flatten().map(|pool| pool.requests).min()?;
        Some(fewest.saturating_mul(self.deployment.parallelism.attention_dp))
    }

    /// Number of sequences of `context` tokens that fit in the KV room of one replica at one time.
    pub fn sequences(&self, context: u64) -> u64 {
        let deployment = self.deployment;
        if llama_cpp::serves(deployment) {
            return llama_cpp::sequences(deployment, context);
        }
        let context = padded(deployment, context);
        if deployment.ideal {
            // Perfect sharding: the free bytes of all ranks are summed.
            return pooled_tokens(deployment, context) / context.max(1);
        }
        let fit = self.least(|stage, rank| {
            rank.kv_bytes.0.checked_div(sequence_bytes(deployment, stage, context).0).unwrap_or(u64::MAX)
        });
        self.running().map_or(fit, |most| fit.min(most))
    }

    /// KV tokens that fit in one replica, for sequences of `context` tokens: room × context / bytes of such a sequence.
    pub fn tokens(&self, context: u64) -> u64 {
        let deployment = self.deployment;
        if deployment.ideal {
            return pooled_tokens(deployment, context);
        }
        if llama_cpp::serves(deployment) && deployment.engine.num_gpu_blocks.is_none() {
            return llama_cpp::tokens(deployment, context);
        }
        let block = deployment.engine.block_size;
        self.least(|stage, rank| {
            share(rank.kv_bytes, context, sequence_bytes(deployment, stage, context)) / block * block
        })
    }

    /// Number of blocks, of `bytes` bytes on each rank, that fit in one replica with a single stage.
    pub fn blocks(&self, bytes: Bytes) -> u64 {
        let fit = self.ranks.iter().map(|rank| rank.kv_bytes.0 / bytes.0.max(1));
        fit.min().unwrap_or(0).saturating_mul(self.deployment.parallelism.attention_dp)
    }

    /// Sum over data-parallel ranks of the least `fit` of a stage's rank; 0 if weights and reserves alone do not fit.
    fn least(&self, fit: impl Fn(usize, &Rank) -> u64) -> u64 {
        let fits = self
            .ranks
            .iter()
            .enumerate()
            .map(|(stage, rank)| if rank.short_by_bytes > Bytes::ZERO { 0 } else { fit(stage, rank) });
        fits.min().unwrap_or(0).saturating_mul(self.deployment.parallelism.attention_dp)
    }
}

/// Memory of the fullest rank of `stage`, and its pool of recurrent states.
fn rank(deployment: &Deployment, stage: usize) -> (Rank, Option<RankStatePool>) {
    if llama_cpp::serves(deployment) {
        return (llama_cpp::rank(deployment, stage), None);
    }
    let draft = deployment.draft.as_ref().and_then(|d| d.stages.get(stage));
    let weight_bytes =
        deployment.stages[stage].weight_bytes + draft.map_or(Bytes::ZERO, |stage| stage.weight_bytes);
    let (activation_bytes, runtime_bytes) = beside_weights(deployment);
    let adapter_bytes = vllm::adapters(deployment, stage);
    let taken = weight_bytes + adapter_bytes.unwrap_or_default() + activation_bytes + runtime_bytes;
    let budget_bytes = budget(deployment, taken);
    let left = budget_bytes.saturating_sub(taken);
    let states = sglang::pool(deployment, stage, left);
    let state_bytes = states.map_or(Bytes::ZERO, |pool| pool.bytes);
    let taken = taken + state_bytes;
    let left = left.saturating_sub(state_bytes);
    let free_bytes = free(deployment);
    let (kv_bytes, most) = match asked_room(deployment, stage) {
        Some(asked) => (asked, free_bytes.saturating_sub(asked)),
        None => (left, budget_bytes),
    };
    let short_by_bytes = taken.saturating_sub(most).max(budget_bytes.saturating_sub(free_bytes));
    let rank = Rank {
        budget_bytes,
        weight_bytes,
        adapter_bytes,
        activation_bytes,
        runtime_bytes,
        state_bytes,
        host_bytes: Some(deployment.stages[stage].host_bytes).filter(|bytes| *bytes > Bytes::ZERO),
        free_bytes,
        kv_bytes,
        short_by_bytes,
    };
    (rank, states)
}

/// KV bytes of a sequence of `context` tokens on one rank of stage `stage`.
pub fn sequence_bytes(deployment: &Deployment, stage: usize, context: u64) -> Bytes {
    let draft = deployment.draft.as_ref().map_or(Bytes::ZERO, |d| sequence_bytes(d, stage, context));
    if let Some(pool) = PagePool::packed(deployment, stage) {
        return draft + pool.block * pool.kept(context);
    }
    let pooled = sglang::pools(deployment) && sglang::state_bytes(deployment, stage) > Bytes::ZERO;
    pages::mixers(deployment, stage)
        .into_iter()
        .flatten()
        .map(|(mixer, layers)| {
            let parts = parts(deployment, mixer);
            let rank_bytes = mixer.rank_bytes(deployment.kv, context, parts);
            let state_bytes = if pooled {
                rank_bytes.saturating_sub(mixer.rank_bytes(deployment.kv, 0, parts))
            } else {
                rank_bytes
            };
            (state_bytes + block_slack(deployment, mixer, context)) * layers
        })
        .fold(draft, |all, layers| all + layers)
}

/// Bytes of the compute buffer that llama.cpp reserves on one rank per token of the context; 0 for other engines.
pub(crate) fn compute_buffer(deployment: &Deployment) -> Bytes {
    if llama_cpp::serves(deployment) { llama_cpp::buffer_of_token(deployment) } else { Bytes::ZERO }
}

/// Bytes of one accelerator that no other process occupies.
fn free(deployment: &Deployment) -> Bytes {
    if deployment.ideal {
        return deployment.accelerator.memory_bytes;
    }
    deployment.accelerator.usable_bytes.saturating_sub(deployment.memory_used)
}

/// KV bytes that the user sets explicitly, in bytes or in blocks, whatever memory is free.
fn asked_room(deployment: &Deployment, stage: usize) -> Option<Bytes> {
    let engine = &deployment.engine;
    let blocks = engine.num_gpu_blocks.map(|blocks| {
        let pool = PagePool::of(deployment, stage).map(|pool| pool.block);
        pool.unwrap_or_else(|| sequence_bytes(deployment, stage, deployment.engine.block_size)) * blocks
    });
    blocks.or(engine.kv_cache_memory_bytes.map(Bytes)).filter(|_| !deployment.ideal)
}

/// Bytes on one rank in addition to weights and KV: activations at their peak, and the runtime with captured graphs
/// and communication buffers.
fn beside_weights(deployment: &Deployment) -> (Bytes, Bytes) {
    if deployment.ideal {
        return (Bytes::ZERO, Bytes::ZERO);
    }
    let shared = deployment.parallelism.stage_ranks() * deployment.parallelism.pp > 1;
    let runtime = if shared { RUNTIME + COMMUNICATOR } else { RUNTIME };
    match deployment.engine.kind() {
        EngineKind::Vllm => {
            (activation_peak(deployment), vllm::runtime(deployment) + deepep::buffers(deployment))
        }
        // SGLang's fraction excludes activations and graphs from the budget.
        EngineKind::Sglang => (Bytes::ZERO, vllm::not_torch()),
        _ => (activation_peak(deployment), runtime),
    }
}

/// Bytes of one rank's memory that the engine may use, of which `taken` bytes are not for KV.
///
/// vLLM's utilization is a fraction of the whole memory, including memory of other processes. TensorRT-LLM's
/// `free_gpu_memory_fraction` is a fraction of the memory that is free once the model is loaded and its largest step
/// has run, so that `taken` is deducted before the fraction.
fn budget(deployment: &Deployment, taken: Bytes) -> Bytes {
    if deployment.ideal {
        return deployment.accelerator.memory_bytes;
    }
    let usable = deployment.accelerator.usable_bytes;
    let free = free(deployment);
    let share = |of: Bytes| Bytes::from_f64(of.as_f64() * deployment.engine.gpu_memory_utilization);
    match deployment.engine.kind() {
        EngineKind::TensorrtLlm => (taken + share(free.saturating_sub(taken))).min(free),
        EngineKind::Sglang => share(free.saturating_sub(sglang_gone(deployment))),
        EngineKind::Vllm if vllm::deducts_other_processes(&deployment.engine.release) => {
            share(usable).saturating_sub(deployment.memory_used)
        }
        EngineKind::Vllm => share(usable),
        _ => share(usable).min(free),
    }
}

/// Bytes in use when SGLang first measures: the CUDA context and communication buffers. The fraction
/// `mem_fraction_static` of the remainder is for weights and cache, of which the cache gets `free once loaded − free
/// before × (1 − fraction)` (`profile_max_num_token`, 0.5.8).
fn sglang_gone(deployment: &Deployment) -> Bytes {
    CONTEXT + vllm::communication(deployment)
}

/// True if `gpu_memory_utilization` is a fraction of the memory that weights and activations leave free; false if it
/// is a fraction of the whole memory.
pub fn shares_what_is_free(deployment: &Deployment) -> bool {
    deployment.engine.kind() == EngineKind::TensorrtLlm
}

/// Peak bytes of activations: the larger of a layer with a full token budget, and of sampling for a full batch while
/// the last layer's output of every token is still held.
pub fn activation_peak(deployment: &Deployment) -> Bytes {
    let (tokens, sequences) = profiled(deployment);
    let base = u64::from(deployment.base.bits());
    let layer = Bytes(layer_width(deployment)).scale(base, 8) * tokens;
    let (of_logit, output) = match deployment.engine.kind() {
        EngineKind::TensorrtLlm => (GREEDY_SAMPLER_BYTES, Bytes::ZERO),
        EngineKind::Vllm => (
            vllm::sampler_bytes(&deployment.engine.release),
            Bytes(deployment.model.hidden).scale(base, 8) * tokens,
        ),
        _ => (SAMPLER_BYTES, Bytes::ZERO),
    };
    let sampling = Bytes(deployment.model.vocab) * of_logit * sequences + output;
    layer.max(sampling).max(vllm::encoder(deployment))
}

/// Tokens and sequences of the step whose peak memory is reserved.
fn profiled(deployment: &Deployment) -> (u64, u64) {
    match deployment.engine.kind() {
        EngineKind::Vllm => vllm::profiled(deployment),
        _ => (
            deployment.engine.max_num_batched_tokens,
            deployment.engine.max_num_seqs.div_ceil(deployment.parallelism.attention_dp),
        ),
    }
}

/// Values per token that a layer holds at one time: residual and normalized stream (2·hidden), and the widest
/// intermediate: gate, up and their product (3·intermediate/tp), or for each chosen expert the input of its
/// activation or the output of its down projection, whichever is wider, plus the activation's result.
fn layer_width(deployment: &Deployment) -> u64 {
    let p = deployment.parallelism;
    let model = &deployment.model;
    let inner = model.layers.iter().map(|layer| match &layer.ffn {
        Ffn::Dense(dense) => (if dense.gated { 3 } else { 2 }) * dense.intermediate.div_ceil(p.tp),
        Ffn::Experts(e) => {
            let slice = e.expert.intermediate.div_ceil(p.stage_ranks() / p.ep);
            let chosen = (2 * slice).max(e.latent.unwrap_or(model.hidden)) + slice;
            chosen * e.per_token.div_ceil(p.ep) + e.shared.map_or(0, |s| 3 * s.intermediate.div_ceil(p.tp))
        }
        Ffn::None => 0,
    });
    2 * model.hidden + inner.max().unwrap_or(0)
}

/// KV tokens that fit in one replica if the memory of all ranks is treated as one pool.
fn pooled_tokens(deployment: &Deployment, context: u64) -> u64 {
    let p = deployment.parallelism;
    let pool = deployment.accelerator.memory_bytes * (p.stage_ranks() * p.pp);
    let free = pool.saturating_sub(deployment.weight_bytes);
    let sequence = deployment.model.kv_bytes_per_sequence(deployment.kv, context);
    share(free, context, sequence)
}

fn share(room: Bytes, context: u64, sequence: Bytes) -> u64 {
    let tokens = (u128::from(room.0) * u128::from(context)).checked_div(u128::from(sequence.0));
    tokens.map_or(0, |t| u64::try_from(t).unwrap_or(u64::MAX))
}

/// `context` rounded up to whole blocks.
pub(crate) fn padded(deployment: &Deployment, context: u64) -> u64 {
    if deployment.ideal { context } else { context.next_multiple_of(block_tokens(deployment)) }
}

/// Tokens per KV block in vLLM. If layers with a recurrent state share the pool with attention, the block is enlarged
/// until an attention layer's page can hold a state.
///
/// Source: `HybridAttentionMambaModelConfig` in vLLM 0.11's `model_executor/models/config.py`.
pub fn block_tokens(deployment: &Deployment) -> u64 {
    let size = deployment.engine.block_size;
    let mixers = || deployment.stages.iter().flat_map(|s| s.blocks.iter().map(|(b, _)| &b.mixer));
    let state_of =
        |m: &Mixer| m.recurrence().map(|s| s.bytes.div_ceil(u128::from(parts(deployment, m).state)));
    let state = mixers().filter_map(state_of).max().unwrap_or(0);
    let token = mixers()
        .filter(|m| m.kv_elements(1) > 0)
        .map(|m| deployment.kv.width.bytes(m.kv_elements(1)).0.div_ceil(parts(deployment, m).cache))
        .min();
    match token {
        Some(token) if state > 0 && deployment.engine.kind() != EngineKind::Sglang => {
            let tokens = u64::try_from(state.div_ceil(u128::from(token.max(1)))).unwrap_or(1 << 32);
            tokens.min(1 << 32).next_multiple_of(size)
        }
        _ => size,
    }
}

/// Parts into which the ranks of a stage divide a layer's cache: KV heads by [`Deployment::kv_parts`], states by
/// their heads; latents and index keys are replicated on every rank.
fn parts(deployment: &Deployment, mixer: &Mixer) -> CacheParts {
    let tp = deployment.parallelism.tp;
    if deployment.ideal {
        return CacheParts { cache: tp, index: tp, state: tp };
    }
    let cache = match mixer {
        Mixer::Attention(a) | Mixer::Both(a, _) => deployment.cache_parts(Some(a.kv_heads)),
        _ => deployment.cache_parts(None),
    };
    CacheParts { cache, index: 1, state: mixer.state().map_or(1, |s| tp.min(s.heads).max(1)) }
}

/// Bytes that rounding adds to a layer's cache on a rank: one more block for a window or chunk that does not end with
/// a block, and in llama.cpp the cells of a micro-batch in addition to a window.
fn block_slack(deployment: &Deployment, mixer: &Mixer, context: u64) -> Bytes {
    let (Mixer::Attention(a), false) = (mixer, deployment.ideal) else { return Bytes::ZERO };
    let Some(most) = a.window.or(a.chunk).filter(|_| !a.shared_kv) else { return Bytes::ZERO };
    let tokens = if llama_cpp::serves(deployment) {
        llama_cpp::cells_beyond_window(deployment, most, context)
    } else {
        deployment.engine.block_size.min(context.saturating_sub(most))
    };
    let elements = u128::from(tokens) * u128::from(a.kv_elements_per_token());
    deployment.kv.width.bytes(elements.div_ceil(u128::from(deployment.kv_parts(a.kv_heads))))
}

/// Layers of `deployment` in vLLM's groups, with the bytes of a block on a rank; `None` if no layer has a window, or
/// if layers differ in more than the window.
pub fn layer_groups(deployment: &Deployment, block: u64) -> Option<(Groups, Bytes)> {
    let [stage] = deployment.stages.as_slice() else { return None };
    let mut layers: BTreeMap<u64, u64> = BTreeMap::new();
    let mut token = None;
    for (b, count) in &stage.blocks {
        let Mixer::Attention(a) = &b.mixer else { return None };
        let bytes = keeps_all(a).then(|| token_bytes(deployment, a))?;
        if *token.get_or_insert(bytes) != bytes {
            return None;
        }
        *layers.entry(a.window.unwrap_or(u64::MAX)).or_default() += count;
    }
    let (groups, size) = Groups::of_windows(&layers, block).filter(|_| !deployment.ideal)?;
    Some((groups, token? * (block * size)))
}

/// True if a layer keeps its own keys and values, of every token or of a sliding window.
fn keeps_all(a: &Attention) -> bool {
    a.chunk.is_none() && a.index.is_none() && !a.shared_kv
}

/// Bytes of one token's keys and values in one layer on a rank.
fn token_bytes(deployment: &Deployment, a: &Attention) -> Bytes {
    let parts = u128::from(deployment.cache_parts(Some(a.kv_heads)));
    deployment.kv.width.bytes(u128::from(a.kv_elements_per_token()).div_ceil(parts))
}
