//! An engine's settings, resolved: every default filled in, every count within bounds.
//!
//! Knows the meaning of each setting. [`super::settings`] knows where they come from.

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
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// Most tokens of a step.
    pub max_num_batched_tokens: u32,
    /// Most tokens of a request, prompt and output.
    pub max_model_len: u32,
    /// True if a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// True if admission needs room for the whole known sequence, not only for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Kind of prefix cache.
    pub prefixes: PrefixCaching,
    /// Blocks kept free when admitting while others run.
    pub watermark_blocks: u64,
    /// Order of the queue.
    pub order: Order,
    /// Steps in which waiting requests are considered.
    pub polling: PollingConfig,
    /// True if a step is decided when the one before it begins, as vLLM's AsyncScheduler does.
    pub ahead: bool,
    /// Data-parallel ranks, which get equal parts of the budget.
    pub attention_dp: u64,
    /// Cache reserved at admission.
    pub reservation: Reservation,
    /// Handling of a preempted request's cache.
    pub preemption: Preemption,
    /// True if each request's blocks are contiguous.
    pub contiguous: bool,
    /// Layout of tokens in memory, if reads of block tables are counted.
    pub layout: Option<KvLayout>,
    /// KV tokens that fit the host's memory.
    pub swap_tokens: u64,
    /// The host's memory as a tier of the cache, if it is one.
    pub host: Option<HostTier>,
    /// Kind of scheduler.
    pub scheduler: SchedulerKind,
    /// Order in which requests are admitted.
    pub queue: QueuePolicy,
    /// Kind of coefficients that price steps.
    pub cost: CostKind,
    /// Settings of vLLM's own scheduler, which decides block by block, if it has these settings.
    pub by_block: Option<vllm::SchedulerConfig>,
    /// True if decodes advance in lockstep, so that counting comes to the decisions of the engine's own scheduler.
    pub counts: bool,
    /// True if requests leave with their first token, for another replica to decode.
    pub hands_over: bool,
}

/// KV cache that a request reserves at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reservation {
    /// Blocks for the tokens that it computes, and more as it grows.
    #[default]
    Grow,
    /// Blocks for its whole prompt, and more as it grows.
    Prompt,
    /// Blocks for prompt and output, as if the output's length were known.
    Oracle,
    /// Blocks for prompt and the client's bound on the output.
    Bound,
    /// Blocks for the prompt, and its output's length rounded up to a power of two.
    Pow2,
    /// Blocks for the longest sequence that is served.
    Max,
}

/// Kind of prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefixCaching {
    /// No prefix cache.
    #[default]
    Unknown,
    /// By full blocks of equal content.
    Blocks,
    /// By a radix tree, token by token.
    Tree,
}

/// Handling of a preempted request's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preemption {
    /// Dropped and computed again.
    #[default]
    Recompute,
    /// Moved to the host's memory and back.
    Swap,
}

impl EngineConfig {
    /// True if vLLM's own scheduler has these settings: one group of layers, one data-parallel rank, requests in order
    /// of arrival.
    pub fn is_plain(&self) -> bool {
        self.groups.are_one() && self.attention_dp == 1 && self.order == Order::Arrival
    }

    /// Most tokens of a prompt in one step: the budget of one data-parallel rank, since a prompt is on one rank.
    pub(crate) fn rank_budget(&self) -> u64 {
        u64::from(self.max_num_batched_tokens) / self.attention_dp
    }

    /// True if requests may be preempted and then compute their output like a prompt.
    pub fn preempts(&self) -> bool {
        matches!(self.reservation, Reservation::Grow | Reservation::Prompt)
    }
}
