//! Defaults of each scheduler, and the settings that it refuses.
//!
//! Knows: sizes, caches and reservations of each [`SchedulerKind`]. Knows nothing about the decisions of a scheduler.

use crate::spec::{KvLayout, SchedulerKind};

/// Layouts of the KV cache that a scheduler with paged blocks supports.
const LAYOUTS: &[KvLayout] = &[KvLayout::Paged, KvLayout::Flashinfer, KvLayout::Vattention];

/// Defaults and restrictions of a scheduler.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Order of admission without an order in the spec.
    pub order: Order,
    /// Tokens per KV block.
    pub(crate) block_size: u64,
    /// The only supported block size in tokens; `None` if others are supported.
    pub only_block_size: Option<u64>,
    /// Token budget of a step; `None` for the engine's own default.
    pub max_num_batched_tokens: Option<u64>,
    /// Most requests that run at one time; `None` for the engine's own default.
    pub max_num_seqs: Option<u64>,
    /// KV cache that a request reserves at admission.
    pub reservation: Reservation,
    /// True if a spec may choose the reservation and contiguous memory.
    pub reserves: bool,
    /// Fraction of the blocks that stays free when a request is admitted while others run.
    pub(crate) watermark: f64,
    /// True if a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// True if admission needs memory for the whole known sequence instead of its first chunk.
    pub(crate) scheduler_reserve_full_isl: bool,
    /// Kind of prefix cache that the scheduler has.
    pub prefixes: PrefixCaching,
    /// Number of blocks of the pool that the scheduler reserves for itself.
    pub null_blocks: u64,
    /// True if blocks outside a sliding window are freed.
    pub frees_windows: bool,
    /// True if a step may be decided when the step before begins.
    pub decides_ahead: bool,
    /// True if a step's token budget bounds the number of running requests.
    pub bounds_sequences: bool,
    /// True if data-parallel ranks divide one token budget.
    pub divides_budget: bool,
    /// Rule by which a request gets its data-parallel rank if each rank is an engine; `None` if ranks are scheduled as
    /// one.
    pub balance: Option<Balance>,
    /// True if each request gets a slot of the cache, as in llama.cpp.
    pub has_slots: bool,
    /// Supported layouts of the KV cache in memory.
    pub layouts: &'static [KvLayout],
}

/// Order in which waiting requests are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By arrival; preempted requests return to the head.
    #[default]
    Arrival,
    /// By key, smaller first; equal keys by arrival.
    Key,
    /// By the policy, which may admit a request before one that arrived earlier, so that every arrival may change the
    /// next decision.
    Policy,
}

/// KV cache that a request reserves at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reservation {
    /// Blocks for the tokens that are computed, and further blocks as the sequence grows.
    #[default]
    Grow,
    /// Blocks for the whole prompt, and further blocks as the sequence grows.
    Prompt,
    /// Blocks for prompt and output, as if the output length were known.
    Oracle,
    /// Blocks for the prompt and the client's bound on output tokens.
    Bound,
    /// Blocks for the prompt, and for the output length rounded up to a power of two.
    Pow2,
    /// Blocks for the longest sequence that the engine serves.
    Max,
}

/// Rule by which a request gets its data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// The rank with the smallest 4 × waiting + running requests, by counts that are up to 100 ms old: vLLM's internal
    /// load balancing.
    Score,
    /// The ranks in turn: SGLang's `round_robin`.
    RoundRobin,
}

/// Kind of prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefixCaching {
    /// No prefix cache.
    #[default]
    Unknown,
    /// Full blocks are found by their content.
    Blocks,
    /// Tokens are found in a radix tree.
    Tree,
    /// Each slot keeps the tokens of its last request.
    Slots,
}

impl Profile {
    /// Profile of a scheduler.
    pub fn of(kind: SchedulerKind) -> Profile {
        match kind {
            SchedulerKind::Static => static_batch(),
            SchedulerKind::Orca => orca(),
            SchedulerKind::VllmV0 => vllm_v0(),
            SchedulerKind::Vllm => vllm(),
            SchedulerKind::Sarathi => sarathi(),
            SchedulerKind::Splitfuse => splitfuse(),
            SchedulerKind::TensorrtLlm => guaranteed_no_evict(),
            SchedulerKind::TensorrtLlmMaxUtilization => max_utilization(),
            SchedulerKind::Lightllm => lightllm(),
            SchedulerKind::Sglang => sglang(),
            SchedulerKind::LlamaCpp => llama_cpp(),
        }
    }

    /// Profile of a policy with a token budget that decodes and chunks of prompts share, and blocks of 16 tokens.
    fn chunked(order: Order) -> Profile {
        Profile {
            order,
            block_size: 16,
            only_block_size: None,
            max_num_batched_tokens: None,
            max_num_seqs: None,
            reservation: Reservation::Grow,
            reserves: false,
            watermark: 0.0,
            enable_chunked_prefill: true,
            scheduler_reserve_full_isl: true,
            prefixes: PrefixCaching::Unknown,
            null_blocks: 0,
            frees_windows: false,
            decides_ahead: false,
            bounds_sequences: true,
            divides_budget: false,
            balance: None,
            has_slots: false,
            layouts: &[KvLayout::Paged, KvLayout::Flashinfer],
        }
    }

    /// Profile of a policy with whole prompts, steps of any size and blocks of one token.
    fn whole(order: Order, reservation: Reservation) -> Profile {
        Profile {
            block_size: 1,
            max_num_batched_tokens: Some(u64::from(u32::MAX)),
            reservation,
            enable_chunked_prefill: false,
            ..Profile::chunked(order)
        }
    }
}

/// Defaults of static batching: whole prompts, memory reserved at admission.
fn static_batch() -> Profile {
    Profile {
        reserves: true,
        layouts: &[KvLayout::Paged, KvLayout::Flashinfer, KvLayout::Contiguous],
        ..Profile::whole(Order::Arrival, Reservation::Max)
    }
}

/// Defaults of Orca: whole prompts, memory reserved at admission.
fn orca() -> Profile {
    Profile {
        reserves: true,
        layouts: &[KvLayout::Paged, KvLayout::Flashinfer, KvLayout::Contiguous],
        ..Profile::whole(Order::Arrival, Reservation::Max)
    }
}

/// Defaults of vLLM v0: whole prompts, a watermark of 1 %, and swapping on request.
fn vllm_v0() -> Profile {
    Profile {
        block_size: 16,
        watermark: 0.01,
        layouts: &[KvLayout::Paged, KvLayout::Flashinfer, KvLayout::Vattention],
        ..Profile::whole(Order::Arrival, Reservation::Prompt)
    }
}

/// Defaults of vLLM v1: a null block, a prefix cache of blocks, and blocks outside sliding windows freed.
fn vllm() -> Profile {
    Profile {
        prefixes: PrefixCaching::Blocks,
        null_blocks: 1,
        frees_windows: true,
        decides_ahead: true,
        balance: Some(Balance::Score),
        layouts: LAYOUTS,
        ..Profile::chunked(Order::Arrival)
    }
}

/// Defaults of Sarathi: 512 tokens per step, all blocks of a prompt allocated at admission, vLLM v0's watermark.
fn sarathi() -> Profile {
    Profile {
        max_num_batched_tokens: Some(512),
        watermark: 0.01,
        reservation: Reservation::Prompt,
        layouts: LAYOUTS,
        ..Profile::chunked(Order::Arrival)
    }
}

/// Defaults of SplitFuse: 512 tokens per step.
fn splitfuse() -> Profile {
    Profile {
        max_num_batched_tokens: Some(512),
        scheduler_reserve_full_isl: false,
        layouts: LAYOUTS,
        ..Profile::chunked(Order::Arrival)
    }
}

/// Defaults of TensorRT-LLM's `GUARANTEED_NO_EVICT`: blocks for prompt and output are reserved, so that no request is
/// evicted.
fn guaranteed_no_evict() -> Profile {
    Profile { reservation: Reservation::Bound, scheduler_reserve_full_isl: true, ..max_utilization() }
}

/// Defaults of TensorRT-LLM's `MAX_UTILIZATION`: the request admitted last is paused when blocks run out.
fn max_utilization() -> Profile {
    Profile {
        block_size: 32,
        max_num_batched_tokens: Some(8192),
        enable_chunked_prefill: false,
        scheduler_reserve_full_isl: false,
        ..Profile::chunked(Order::Arrival)
    }
}

/// Defaults of LightLLM: whole prompts, KV cache in blocks of one token.
fn lightllm() -> Profile {
    Profile { only_block_size: Some(1), ..Profile::whole(Order::Arrival, Reservation::Prompt) }
}

/// Defaults of SGLang: pages of one token, a radix tree, one token budget that data-parallel ranks divide.
/// `schedule_policy` may sort its queue.
fn sglang() -> Profile {
    Profile {
        block_size: 1,
        prefixes: PrefixCaching::Tree,
        bounds_sequences: false,
        divides_budget: true,
        balance: Some(Balance::RoundRobin),
        ..Profile::chunked(Order::Policy)
    }
}

/// Defaults of llama.cpp: four slots, and steps of 2048 tokens. A slot with its own part of the cache reserves this part
/// at admission.
fn llama_cpp() -> Profile {
    Profile {
        block_size: 1,
        max_num_batched_tokens: Some(2048),
        max_num_seqs: Some(4),
        reservation: Reservation::Max,
        has_slots: true,
        prefixes: PrefixCaching::Slots,
        layouts: &[KvLayout::Contiguous],
        ..Profile::chunked(Order::Arrival)
    }
}
