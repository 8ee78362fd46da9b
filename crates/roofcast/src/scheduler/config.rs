//! An engine's settings, resolved: every default filled in, every count within bounds.
//!
//! Knows what they mean. Knows nothing about where they come from: that is [`super::settings`]'s.

use super::state::polling::PollingConfig;
use super::state::queue::Order;
use crate::kv_cache::groups::Groups;
use crate::kv_cache::tier::HostTier;
use crate::scheduler::vllm;
use crate::spec::{CostKind, KvLayout, QueuePolicy, SchedulerKind};

/// Settings of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// KV blocks that requests can hold.
    pub blocks: u64,
    /// Tokens of a block.
    pub block_size: u32,
    /// The groups of layers that take blocks of their own.
    pub groups: Groups,
    /// Requests that run at once.
    pub max_num_seqs: u64,
    /// Tokens of a step.
    pub max_num_batched_tokens: u32,
    /// Tokens of a request, prompt and output.
    pub max_model_len: u32,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Admission needs room for the whole known sequence, not for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// How tokens that are there already are found.
    pub prefixes: Prefixes,
    /// Blocks kept free when admitting beside running requests.
    pub watermark_blocks: u64,
    /// The order of the queue.
    pub order: Order,
    /// In which steps waiting requests are considered.
    pub polling: PollingConfig,
    /// Data-parallel ranks, which have equal parts of the budget.
    pub attention_dp: u64,
    /// What admission takes of the cache.
    pub reservation: Reservation,
    /// What becomes of a preempted request's cache.
    pub preemption: Preemption,
    /// Whether each request's blocks are one piece of an address space.
    pub contiguous: bool,
    /// How tokens lie in memory, where what finds them is counted.
    pub layout: Option<KvLayout>,
    /// KV tokens that the host's memory holds.
    pub swap_tokens: u64,
    /// The host's memory as a tier of the cache, where it is one.
    pub host: Option<HostTier>,
    /// Which scheduler it is.
    pub scheduler: SchedulerKind,
    /// The order in which requests are admitted.
    pub queue: QueuePolicy,
    /// By which coefficients steps are priced.
    pub cost: CostKind,
    /// The settings of vLLM's scheduler itself, where decodes do not advance in lockstep and it runs block by block.
    pub by_block: Option<vllm::SchedulerConfig>,
    /// Whether requests leave with their first token, for another replica to decode.
    pub hands_over: bool,
}

/// What a request takes of the KV cache when it is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reservation {
    /// What it computes, and more as it grows.
    #[default]
    Grow,
    /// Its whole prompt, and more as it grows.
    Prompt,
    /// Prompt and output, as if the output's length were known.
    Oracle,
    /// Prompt and the client's bound on the output.
    Bound,
    /// Prompt, and its output's length rounded up to a power of two.
    Pow2,
    /// The longest sequence that is served.
    Max,
}

/// How tokens that are in the cache already are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefixes {
    /// They are not.
    #[default]
    Unknown,
    /// By full blocks of the same content.
    Blocks,
    /// By a radix tree, token by token.
    Tree,
}

/// What becomes of a preempted request's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preemption {
    /// It is dropped and computed again.
    #[default]
    Recompute,
    /// It goes to the host's memory and comes back.
    Swap,
}

impl EngineConfig {
    /// Tokens of a step on one data-parallel rank: the most that a prompt, which is on one of them, has in a step.
    pub fn rank_budget(&self) -> u64 {
        u64::from(self.max_num_batched_tokens) / self.attention_dp
    }

    /// Whether requests may be preempted and then compute their output like a prompt.
    pub fn preempts(&self) -> bool {
        matches!(self.reservation, Reservation::Grow | Reservation::Prompt)
    }
}
