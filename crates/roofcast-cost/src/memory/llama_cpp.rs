//! llama.cpp's memory: its caches are as large as its context, whatever the device holds, and must fit.
//!
//! Knows: the bytes of the caches and of the recurrent states of [`Slots`], with states in 32 bits for each slot; the
//! compute buffer of a micro-batch, which is reserved for the whole context at the start; and the context if `-c` is
//! absent: the model's, for every stream, or as much as leaves [`MARGIN`] free (`--fit`). The input embedding stays on
//! the host. The compute buffer holds the masks of a micro-batch with all cells of a stream, and either the
//! intermediates of a feed-forward layer, or without flash attention the scores. Multi-token-prediction layers that draft
//! have a context of their own, with a cache of these layers alone, and states are kept for every draft that may be taken
//! back. Does not know `--fit`'s second step, which leaves layers on the host.
//!
//! Sources: start-up lines of llama-server b11549 (`crates/roofcast/tests/data/llama-server-b11549.csv`) for caches, states and
//! buffers; the logits of every token of a micro-batch before [`FEW_OUTPUTS_FROM`] in github.com/ggml-org/llama.cpp,
//! issue 23527 and pull request 23861; the embedding on the host in issues 5993 and 25700; the driver's memory in pull
//! request 15860; the margin in `common/common.h` (`fit_params_target`); the context of drafting layers in pull requests
//! 22673 and 28630, its kept states in `need_n_rs_seq` of `common/common.h`.

use super::{COMMUNICATOR, Rank, Refusal, Start, asked_room, budget, free, parts};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::{CELLS, Slots};
use roofcast_ask::spec::{AttentionBackend, DraftMethod, EngineKind};
use roofcast_facts::model::{Ffn, Mixer};
use roofcast_facts::units::Bytes;

/// Bytes of an intermediate value, which has 32 bits.
const SINGLE: u64 = 4;
/// Bytes of a value of the mask under flash attention; without it, a mask has 32 bits.
const HALF: u64 = 2;
/// Copies of the hidden state that are held in a feed-forward layer, or beside queries and keys.
const STREAMS: u64 = 5;
/// The same in the context of layers that draft: Qwen3.8-27B (`n_ubatch` 512, 8192 cells) logs 162.02 MiB, of which 32 MiB
/// are the cache and 8 MiB the mask; the others are (3 × 17,408 + 2 × 5,120) × 4 × 512 bytes.
const DRAFTING_STREAMS: u64 = 2;
/// Memory that `--fit` leaves free on each device.
const MARGIN: Bytes = Bytes(1 << 30);
/// Smallest context that `--fit` chooses.
const LEAST_CONTEXT: u64 = 4096;
/// Context of a model that states none.
const UNSTATED_CONTEXT: u64 = 1 << 20;
/// Bytes of the driver's context on a device: the 451 MiB that no buffer explains on an RTX 4090.
const DRIVER: Bytes = Bytes(451 << 20);
/// First build that uses flash attention by default if the chip supports it: `-fa auto`, August 2025.
const FLASH_FROM: u64 = 6325;
/// First build that may reserve logits for the last token of each slot alone: the one after b9272, which reserved them
/// for a whole micro-batch.
const FEW_OUTPUTS_FROM: u64 = 9273;
/// Most sequences that a search for the largest number considers.
const MOST_SEQUENCES: u64 = 1 << 20;

/// Cells of a server's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Cells of a layer without a window, over all slots.
    pub cells: u64,
    /// Longest sequence of a slot in tokens.
    pub slot_context: u64,
    /// True if all slots share the cells.
    pub unified: bool,
}

/// The cache of a server; `None` for other engines, and if the spec sets the number of blocks.
pub fn pool(deployment: &Deployment) -> Option<Pool> {
    let engine = &deployment.engine;
    let counted = engine.num_gpu_blocks.is_none() && engine.kv_cache_memory_bytes.is_none();
    (serves(deployment) && counted).then(|| {
        let slots = engine.slots;
        let n_ctx = n_ctx(deployment);
        let longest = [deployment.model.max_context, engine.max_model_len].into_iter().flatten().min();
        let slot_context = slots.slot_context(n_ctx).min(longest.unwrap_or(u64::MAX));
        Pool { cells: slots.cells(n_ctx), slot_context, unified: slots.unified }
    })
}

/// True if llama.cpp serves `deployment`.
pub(super) fn serves(deployment: &Deployment) -> bool {
    !deployment.ideal && deployment.engine.kind() == EngineKind::LlamaCpp
}

/// True if the build is `first` or later, or unknown.
fn is_since(deployment: &Deployment, first: u64) -> bool {
    let version = deployment.engine.release.version.as_deref();
    version.and_then(|v| v.strip_prefix('b')?.parse::<u64>().ok()).is_none_or(|build| build >= first)
}

/// True if attention scores are written to memory: as the spec requests, else in builds before [`FLASH_FROM`].
fn writes_scores(deployment: &Deployment) -> bool {
    match deployment.engine.attention_backend {
        Some(backend) => backend == AttentionBackend::Naive,
        None => !is_since(deployment, FLASH_FROM),
    }
}

/// Context over all slots in tokens, before it is rounded to cells. A spec with the length of a sequence alone has as
/// many cells as its slots need, or as fit if slots share them.
fn n_ctx(deployment: &Deployment) -> u64 {
    let slots = &deployment.engine.slots;
    if let Some(tokens) = slots.n_ctx {
        return tokens;
    }
    match deployment.engine.max_model_len.map(|tokens| tokens.next_multiple_of(CELLS)) {
        Some(each) if slots.unified => fitted(deployment, each.saturating_mul(slots.count)).max(each),
        Some(each) => each.saturating_mul(slots.count),
        None => {
            let trained = deployment.model.max_context.unwrap_or(UNSTATED_CONTEXT);
            fitted(deployment, trained.saturating_mul(slots.streams()))
        }
    }
}

/// Largest context, at most `most` tokens, that leaves [`MARGIN`] free; at least [`LEAST_CONTEXT`].
fn fitted(deployment: &Deployment, most: u64) -> u64 {
    let slots = &deployment.engine.slots;
    let step = CELLS * slots.streams();
    let fits = |steps: u64| fits(deployment, slots, steps * step, MARGIN);
    largest(most.div_ceil(step), fits).saturating_mul(step).max(LEAST_CONTEXT).min(most)
}

/// True if a context of `n_ctx` tokens over `slots` fits every device and leaves `margin` free.
fn fits(deployment: &Deployment, slots: &Slots, n_ctx: u64, margin: Bytes) -> bool {
    (0..deployment.stages.len()).all(|stage| {
        let needed =
            margin + taken(deployment, stage, slots, n_ctx) + kv_bytes(deployment, stage, slots, n_ctx);
        needed <= budget(deployment, Bytes::ZERO)
    })
}

/// Largest number up to `most` for which `fits` is true; 0 if it is false for 1.
fn largest(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    if fits(most) {
        return most;
    }
    let mut below = 0;
    let mut above = most;
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if fits(middle) { below = middle } else { above = middle }
    }
    below
}

/// Bytes of one device besides the caches of keys and values: weights, states, compute buffer, and the driver's.
fn taken(deployment: &Deployment, stage: usize, slots: &Slots, n_ctx: u64) -> Bytes {
    weights(deployment, stage)
        + states(deployment, stage, slots)
        + buffers(deployment, stage, slots, n_ctx)
        + driver(deployment)
}

/// Bytes of weights on one device of `stage`, a draft model's included.
fn weights(deployment: &Deployment, stage: usize) -> Bytes {
    let draft = deployment.draft.as_ref().and_then(|draft| draft.stages.get(stage));
    let on_device = deployment.stages[stage].weight_bytes.saturating_sub(on_host(deployment, stage));
    on_device + draft.map_or(Bytes::ZERO, |stage| stage.weight_bytes)
}

fn driver(deployment: &Deployment) -> Bytes {
    let p = deployment.parallelism;
    let context = if deployment.accelerator.vendor == "cpu" { Bytes::ZERO } else { DRIVER };
    if p.stage_ranks() * p.pp > 1 { context + COMMUNICATOR } else { context }
}

/// Bytes of the caches of keys and values on one device, a draft model's included.
fn kv_bytes(deployment: &Deployment, stage: usize, slots: &Slots, n_ctx: u64) -> Bytes {
    caches(deployment, stage, slots, n_ctx, false)
}

/// Bytes of the caches of keys and values on one device or, if `on_host` is true, in the host's memory.
fn caches(deployment: &Deployment, stage: usize, slots: &Slots, n_ctx: u64, on_host: bool) -> Bytes {
    let draft = deployment.draft.as_ref().filter(|draft| stage < draft.stages.len());
    let draft = draft.map_or(Bytes::ZERO, |draft| caches(draft, stage, slots, n_ctx, on_host));
    let layer = |mixer: &Mixer| {
        let cells = match mixer.window() {
            Some(window) => slots.window_cells(window, n_ctx) * slots.streams(),
            None => slots.cells(n_ctx),
        };
        let parts = parts(deployment, mixer);
        let cells_bytes = match mixer {
            Mixer::Attention(a) | Mixer::Both(a, _) if a.shared_kv => return Bytes::ZERO,
            Mixer::Attention(a) if a.index.is_none() => {
                let elements = u128::from(cells) * u128::from(a.kv_elements_per_token());
                deployment.kv.width.bytes(elements.div_ceil(u128::from(parts.cache)))
            }
            other => other.rank_bytes(deployment.kv, cells, parts),
        };
        cells_bytes.saturating_sub(state(mixer, parts.state))
    };
    let blocks = deployment.stages[stage].blocks.iter().filter(|(block, _)| block.cache_on_host == on_host);
    let ahead = deployment.stages[stage].ahead.iter().filter(|_| !on_host);
    let mixers = blocks.map(|(block, layers)| (&block.mixer, layers));
    let mixers = mixers.chain(ahead.map(|(mixer, layers)| (mixer, layers)));
    mixers.map(|(mixer, layers)| layer(mixer) * *layers).fold(draft, |all, bytes| all + bytes)
}

/// Copies of each recurrent state: one, and of families that can go back one more for each draft of a drafter that reads
/// the model's hidden states (`llm_arch_supports_rs_rollback`).
fn state_copies(deployment: &Deployment) -> u64 {
    let goes_back = deployment.model.architecture.starts_with("qwen3_5");
    let drafts = deployment.engine.speculative.as_ref().filter(|spec| {
        goes_back && matches!(spec.method, Some(DraftMethod::Mtp | DraftMethod::Eagle3 | DraftMethod::Dflash))
    });
    1 + drafts.map_or(0, |spec| spec.num_speculative_tokens)
}

/// Bytes of the recurrent states of all slots on one device.
fn states(deployment: &Deployment, stage: usize, slots: &Slots) -> Bytes {
    let blocks = deployment.stages[stage].blocks.iter().filter(|(block, _)| !block.cache_on_host);
    let stage_states =
        blocks.map(|(block, layers)| state(&block.mixer, parts(deployment, &block.mixer).state) * *layers);
    stage_states.fold(Bytes::ZERO, |all, bytes| all + bytes) * slots.count * state_copies(deployment)
}

fn state(mixer: &Mixer, parts: u64) -> Bytes {
    Bytes(u64::try_from(mixer.state_bytes().div_ceil(u128::from(parts.max(1)))).unwrap_or(u64::MAX))
}

/// Bytes of the compute buffers on one device: of the model, and of a draft model or drafting layers, which llama.cpp runs in a
/// separate context.
fn buffers(deployment: &Deployment, stage: usize, slots: &Slots, n_ctx: u64) -> Bytes {
    let draft = deployment.draft.as_ref().map_or(Bytes::ZERO, |draft| buffer(draft, slots, n_ctx, STREAMS));
    let ahead = deployment.stages[stage].ahead.as_ref();
    let ahead = ahead.map_or(Bytes::ZERO, |_| buffer(deployment, slots, n_ctx, DRAFTING_STREAMS));
    buffer(deployment, slots, n_ctx, STREAMS) + draft + ahead
}

/// Bytes of the compute buffer on one device for a context of `n_ctx` tokens over `slots`, with `streams` copies of the
/// hidden state. The largest of three phases counts in addition to the masks: a feed-forward layer, the scores of a layer,
/// or the logits.
fn buffer(deployment: &Deployment, slots: &Slots, n_ctx: u64, streams: u64) -> Bytes {
    let model = &deployment.model;
    let tp = deployment.parallelism.tp;
    let whole = slots.slot_context(n_ctx);
    let mixers = || model.layers.iter().map(|layer| &layer.mixer);
    let windows =
        mixers().filter_map(Mixer::window).min().map_or(0, |window| slots.window_cells(window, n_ctx));
    let global =
        if mixers().any(|mixer| mixer.kv_elements(1) > 0 && mixer.window().is_none()) { whole } else { 0 };
    let scored = writes_scores(deployment);
    let mask = (global + windows) * if scored { SINGLE } else { HALF };
    let width = mixers().map(|mixer| heads_width(mixer, tp)).max().unwrap_or_default();
    let scores = if scored { global.max(windows) * width.heads } else { 0 };
    let attention = scores + streams * model.hidden + width.values;
    let inner =
        model.layers.iter().map(|layer| feed_forward(&layer.ffn, model.hidden, tp)).max().unwrap_or(0);
    let logits = if is_since(deployment, FEW_OUTPUTS_FROM) { 0 } else { model.vocab + model.hidden };
    let values = attention.max(streams * model.hidden + inner).max(logits);
    // A tensor on the host is copied to the device for the time of one operation.
    let copied = deployment.stages.iter().map(|stage| stage.largest_on_host).max().unwrap_or_default();
    copied + Bytes((values * SINGLE + mask) * slots.n_ubatch.min(n_ctx.max(1)))
}

/// Heads of a layer on one device, and the values of queries, keys and values of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct HeadsWidth {
    heads: u64,
    values: u64,
}

fn heads_width(mixer: &Mixer, tp: u64) -> HeadsWidth {
    match mixer {
        Mixer::Attention(a) | Mixer::Both(a, _) => {
            let heads = a.heads.div_ceil(tp);
            HeadsWidth { heads, values: heads * a.head_dim + 2 * a.kv_heads.div_ceil(tp) * a.head_dim }
        }
        Mixer::Latent(l) => HeadsWidth { heads: l.heads.div_ceil(tp), values: 0 },
        _ => HeadsWidth::default(),
    }
}

/// Values of a token that a feed-forward layer holds at one time, without the hidden states: gate, up and their product,
/// or for each chosen expert its input and its output.
fn feed_forward(ffn: &Ffn, hidden: u64, tp: u64) -> u64 {
    match ffn {
        Ffn::Dense(dense) => (if dense.gated { 3 } else { 2 }) * dense.intermediate.div_ceil(tp),
        Ffn::Experts(e) => e.per_token * (e.expert.intermediate.div_ceil(tp) + hidden),
        Ffn::None => 0,
    }
}

/// Bytes of the compute buffer on one rank per token of a slot's context.
pub(super) fn buffer_of_token(deployment: &Deployment) -> Bytes {
    let slots = &deployment.engine.slots;
    let long = CELLS << 12;
    let buffer_at = |n_ctx: u64| buffer(deployment, &Slots { count: 1, ..*slots }, n_ctx, STREAMS);
    Bytes(buffer_at(2 * long).saturating_sub(buffer_at(long)).0 / long)
}

/// Cells beyond the window itself that a layer with a window of `window` tokens keeps of a sequence of `context`
/// tokens that has a cache of its own.
pub(super) fn cells_beyond_window(deployment: &Deployment, window: u64, context: u64) -> u64 {
    let slot = Slots { count: 1, ..deployment.engine.slots };
    slot.window_cells(window, context).saturating_sub(context.min(window))
}

/// Bytes of the weights of `stage` that stay on the host: the input embedding, unless lm_head shares its weights.
fn on_host(deployment: &Deployment, stage: usize) -> Bytes {
    let apart = !deployment.model.tied && deployment.accelerator.vendor != "cpu";
    let row = deployment.stages.get(stage).map_or(Bytes::ZERO, |s| s.embedding_row);
    if apart { row * deployment.model.vocab } else { Bytes::ZERO }
}

/// Memory of one device of `stage`. Without a requested context, all memory that remains is for the cache.
pub(super) fn rank(deployment: &Deployment, stage: usize) -> Rank {
    let slots = &deployment.engine.slots;
    let n_ctx = n_ctx(deployment);
    let taken = taken(deployment, stage, slots, n_ctx);
    let budget_bytes = budget(deployment, taken);
    let pool = kv_bytes(deployment, stage, slots, n_ctx);
    let hosted = deployment.stages[stage].host_bytes + caches(deployment, stage, slots, n_ctx, true);
    let kv_bytes = match asked_room(deployment, stage) {
        Some(asked) => asked,
        None if is_sized(deployment) => pool,
        None => budget_bytes.saturating_sub(taken).max(pool),
    };
    Rank {
        budget_bytes,
        weight_bytes: weights(deployment, stage),
        adapter_bytes: None,
        activation_bytes: buffers(deployment, stage, slots, n_ctx),
        runtime_bytes: driver(deployment),
        state_bytes: states(deployment, stage, slots),
        host_bytes: Some(hosted).filter(|bytes| *bytes > Bytes::ZERO),
        free_bytes: free(deployment),
        kv_bytes,
        short_by_bytes: (taken + kv_bytes).saturating_sub(budget_bytes),
    }
}

/// True if the spec determines the size of the cache.
fn is_sized(deployment: &Deployment) -> bool {
    deployment.engine.slots.n_ctx.is_some() || deployment.engine.max_model_len.is_some()
}

/// Number of sequences of `context` tokens that run at one time: by the slots if the spec sets the context of the
/// server, else as many as fit.
pub(super) fn sequences(deployment: &Deployment, context: u64) -> u64 {
    let slots = &deployment.engine.slots;
    let context = context.max(1);
    if let Some(n_ctx) = slots.n_ctx {
        let fitting = slots.slot_context(n_ctx) / context;
        let all = if slots.unified { fitting.min(slots.count) } else { fitting.min(1) * slots.count };
        return if fits(deployment, slots, n_ctx, Bytes::ZERO) { all } else { 0 };
    }
    largest(MOST_SEQUENCES, |count| {
        let n_ctx = context.next_multiple_of(CELLS).saturating_mul(count);
        fits(deployment, &Slots { count, ..*slots }, n_ctx, Bytes::ZERO)
    })
}

/// Number of tokens that fit in the cache, for sequences of `context` tokens: its cells if the spec sets the context of
/// the server, else as many as fit.
pub(super) fn tokens(deployment: &Deployment, context: u64) -> u64 {
    let slots = &deployment.engine.slots;
    if let Some(n_ctx) = slots.n_ctx {
        return if fits(deployment, slots, n_ctx, Bytes::ZERO) { slots.cells(n_ctx) } else { 0 };
    }
    let slots = Slots { count: sequences(deployment, context).max(1), ..*slots };
    let step = CELLS * slots.streams();
    largest(1 << 32, |steps| fits(deployment, &slots, steps.saturating_mul(step), Bytes::ZERO)) * step
}

/// Start-up report of llama.cpp's server.
pub(super) fn start(deployment: &Deployment, pool: Pool) -> Start {
    let slots = &deployment.engine.slots;
    let n_ctx = n_ctx(deployment);
    let stages = 0..deployment.stages.len();
    let left = |stage: &usize| {
        let taken = taken(deployment, *stage, slots, n_ctx);
        let needed = taken + kv_bytes(deployment, *stage, slots, n_ctx);
        budget(deployment, taken).as_f64() - needed.as_f64()
    };
    let tightest = stages.clone().min_by(|a, b| left(a).total_cmp(&left(b))).unwrap_or(0);
    let whole = kv_bytes(deployment, tightest, slots, n_ctx);
    Start {
        max_model_len: pool.slot_context,
        weight_bytes: stages.map(|stage| weights(deployment, stage)).max().unwrap_or(Bytes::ZERO),
        kv_bytes: whole,
        kv_tokens: pool.cells,
        max_concurrency: (pool.cells as f64 / pool.slot_context.max(1) as f64).min(slots.count as f64),
        max_running_requests: None,
        refusal: (left(&tightest) < 0.0).then(|| refusal(deployment, tightest, whole)),
    }
}

/// Reason why the server does not start: weights and buffers of `stage`, and a cache of `needed_bytes`, exceed its memory.
fn refusal(deployment: &Deployment, stage: usize, needed_bytes: Bytes) -> Refusal {
    let slots = &deployment.engine.slots;
    let n_ctx = n_ctx(deployment);
    let taken = taken(deployment, stage, slots, n_ctx);
    let budget_bytes = budget(deployment, taken);
    let step = CELLS * slots.streams();
    let longest = largest(n_ctx.div_ceil(step), |steps| fits(deployment, slots, steps * step, Bytes::ZERO));
    Refusal {
        loading_bytes: None,
        needed_bytes,
        available_bytes: budget_bytes.saturating_sub(taken),
        short_by_bytes: taken.saturating_sub(budget_bytes),
        budget_bytes,
        free_bytes: free(deployment),
        longest: longest * step,
        gpu_memory_utilization: None,
        max_num_seqs: None,
    }
}

#[cfg(test)]
mod tests;
