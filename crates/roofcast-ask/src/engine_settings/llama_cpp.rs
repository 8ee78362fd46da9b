//! Slots of llama.cpp's server, and the cells of its KV cache.
//!
//! Knows: the defaults of `-np`, `-kvu`, `-b`, `-ub` and of the flags on kept prompts (b11434, `common/common.h`), and from a context (`-c`) the context of a slot and the cells of
//! each kind of layer. Without `-np` there are four slots, which share one cache; with it, each slot has an equal part
//! unless `-kvu` is set. A slot's context is a multiple of 256. A layer with a sliding window keeps `window · slots of
//! the stream + n_ubatch` cells in multiples of 256, at most the slot's context; a stream is one cache: of all slots if
//! unified, else of one slot. Does not know memory: `roofcast-cost` chooses the context if `-c` is absent.
//!
//! Source: start-up lines of llama-server b11549 over `-c`, `-np`, `-kvu`, `-ub` and `-fa`
//! (`crates/roofcast/tests/data/llama-server-b11549.csv`).

use crate::spec::EngineSpec;
use roofcast_facts::error::{Error, Result};

/// Slots without `-np`.
const SLOTS: u64 = 4;
/// Most sequences of a context: `LLAMA_MAX_SEQ`.
const MOST_SLOTS: u64 = 256;
/// Tokens of a logical batch: `-b`.
const BATCH: u64 = 2048;
/// Tokens of a micro-batch: `-ub`.
pub const MICRO_BATCH: u64 = 512;
/// Share of a prompt without `--slot-prompt-similarity`.
const SIMILARITY: f64 = 0.1;
/// MiB of prompts in the host's memory without `--cache-ram`.
const CACHE_RAM: i64 = 8192;
/// Checkpoints of a slot without `--ctx-checkpoints`.
const CHECKPOINTS: u64 = 32;
/// Cells of a cache are rounded up to a multiple of this number.
pub const CELLS: u64 = 256;

/// Slots and batches of llama.cpp's server.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slots {
    /// Number of slots.
    pub count: u64,
    /// True if all slots share one cache; false if each has an equal part.
    pub unified: bool,
    /// Context over all slots as requested: `-c`.
    pub n_ctx: Option<u64>,
    /// Prompt tokens of a micro-batch.
    pub n_ubatch: u64,
    /// True if layers with a sliding window keep the whole context.
    pub swa_full: bool,
    /// Share of a prompt from which on a request gets a slot by its prompt: `--slot-prompt-similarity`.
    pub prompt_similarity: f64,
    /// Least tokens of a piece of a prompt that is reused at another position: `--cache-reuse`.
    pub cache_reuse: u64,
    /// MiB of prompts that the host's memory keeps, without a bound below 0: `--cache-ram`.
    pub cache_ram: i64,
    /// Most checkpoints of a slot: `--ctx-checkpoints`.
    pub ctx_checkpoints: u64,
}

impl Slots {
    pub(super) fn of(spec: &EngineSpec) -> Slots {
        let keys = &spec.llama_cpp;
        let n_ctx = keys.n_ctx.filter(|tokens| *tokens > 0);
        let batch = spec.max_num_batched_tokens.unwrap_or(BATCH).min(n_ctx.unwrap_or(u64::MAX));
        Slots {
            count: spec.max_num_seqs.unwrap_or(SLOTS),
            unified: keys.kv_unified.unwrap_or(spec.max_num_seqs.is_none()),
            n_ctx,
            n_ubatch: keys.n_ubatch.unwrap_or(MICRO_BATCH).min(batch).max(1),
            swa_full: keys.swa_full.unwrap_or(false),
            prompt_similarity: keys.slot_prompt_similarity.unwrap_or(SIMILARITY),
            cache_reuse: keys.cache_reuse.unwrap_or(0),
            cache_ram: keys.cache_ram.unwrap_or(CACHE_RAM),
            ctx_checkpoints: keys.ctx_checkpoints.unwrap_or(CHECKPOINTS),
        }
    }

    /// Refuses sizes that llama.cpp refuses.
    pub(super) fn check(spec: &EngineSpec) -> Result<()> {
        let bounds = [
            ("max_num_seqs", spec.max_num_seqs, 1, MOST_SLOTS),
            ("n_ctx", spec.llama_cpp.n_ctx, 0, 1 << 31),
            ("n_ubatch", spec.llama_cpp.n_ubatch, 1, 1 << 24),
            ("cache_reuse", spec.llama_cpp.cache_reuse, 0, 1 << 31),
            ("ctx_checkpoints", spec.llama_cpp.ctx_checkpoints, 0, 1 << 16),
        ];
        let similarity = spec.llama_cpp.slot_prompt_similarity;
        if let Some(share) = similarity.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(Error::field(
                "engine",
                "slot_prompt_similarity",
                share,
                "0 to 1, as llama.cpp demands",
            ));
        }
        let cache_ram = spec.llama_cpp.cache_ram;
        if let Some(mib) = cache_ram.filter(|mib| !(-1..=1 << 40).contains(mib)) {
            return Err(Error::field("engine", "cache_ram", mib, "MiB from 0, or -1 for no bound"));
        }
        let wrong = bounds.into_iter().find_map(|(field, value, least, most)| {
            let value = value.filter(|v| !(least..=most).contains(v))?;
            Some(Error::field("engine", field, value, format!("{least} to {most}, as llama.cpp demands")))
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Number of caches: one that all slots share, or one a slot.
    pub fn streams(&self) -> u64 {
        if self.unified { 1 } else { self.count }
    }

    /// Context of a slot in tokens, for a context of `n_ctx` tokens over all slots.
    pub fn slot_context(&self, n_ctx: u64) -> u64 {
        (n_ctx / self.streams()).max(1).next_multiple_of(CELLS)
    }

    /// Cells of a layer without a window, over all streams.
    pub fn cells(&self, n_ctx: u64) -> u64 {
        self.slot_context(n_ctx).saturating_mul(self.streams())
    }

    /// Cells in one stream of a layer with a window of `window` tokens.
    pub fn window_cells(&self, window: u64, n_ctx: u64) -> u64 {
        let whole = self.slot_context(n_ctx);
        if self.swa_full {
            return whole;
        }
        let sharing = self.count / self.streams();
        window.saturating_mul(sharing).saturating_add(self.n_ubatch).next_multiple_of(CELLS).min(whole)
    }
}
