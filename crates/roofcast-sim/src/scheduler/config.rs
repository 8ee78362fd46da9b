//! An engine's settings, resolved: every default is filled in, and every count is within bounds.
//!
//! Knows: the meaning of each setting. Knows nothing about specs: [`super::settings`] converts them.

pub use roofcast_ask::engine_settings::{Balance, Order, PrefixCaching, Reservation};

use super::state::polling::PollingConfig;
use crate::kv_cache::slots::SlotCaching;
use crate::scheduler::vllm;
use roofcast_ask::kv_cache::groups::Groups;
use roofcast_ask::kv_cache::tier::HostTier;
use roofcast_ask::spec::{CostKind, KvLayout, QueuePolicy, SchedulerKind};
use roofcast_facts::encoder::PromptImages;

/// Settings of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// Images of every prompt; `None` if prompts are text.
    pub images: Option<PromptImages>,
    /// Number of KV blocks that requests can hold.
    pub blocks: u64,
    /// Tokens per block.
    pub block_size: u32,
    /// The groups of layers that have separate blocks.
    pub groups: Groups,
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// Most tokens of a step.
    pub max_num_batched_tokens: u32,
    /// Most tokens of a request, prompt and output.
    pub max_model_len: u32,
    /// True if a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// True if admission needs memory for the whole known sequence instead of its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Kind of prefix cache.
    pub prefixes: PrefixCaching,
    /// Rules of slots that keep their prompts; `None` without such slots.
    pub slots: Option<SlotCaching>,
    /// Number of blocks that stay free when a request is admitted while others run.
    pub watermark_blocks: u64,
    /// Order of the queue.
    pub order: Order,
    /// The steps in which waiting requests are considered.
    pub polling: PollingConfig,
    /// True if a step is decided when the one before it begins, as vLLM's AsyncScheduler does.
    pub ahead: bool,
    /// Number of data-parallel ranks of attention that are scheduled as one and get equal parts of the budget.
    pub attention_dp: u64,
    /// Data-parallel ranks that are engines, each with these settings; `None` if the replica is one engine.
    pub ranks: Option<RankSettings>,
    /// KV cache that a request reserves at admission.
    pub reservation: Reservation,
    /// Handling of a preempted request's KV cache.
    pub preemption: Preemption,
    /// True if each request's blocks are contiguous.
    pub contiguous: bool,
    /// Layout of the KV cache in memory; `None` if reads of block tables are not counted.
    pub layout: Option<KvLayout>,
    /// KV-cache tokens that fit in the swap space of host memory.
    pub swap_tokens: u64,
    /// The host tier; `None` without one.
    pub host: Option<HostTier>,
    /// Kind of scheduler.
    pub scheduler: SchedulerKind,
    /// Order in which waiting requests are admitted.
    pub queue: QueuePolicy,
    /// Kind of coefficients that price steps.
    pub cost: CostKind,
    /// Settings of vLLM's own scheduler, which identifies blocks; `None` if that scheduler cannot have these settings.
    pub by_block: Option<vllm::SchedulerConfig>,
    /// True if decodes advance in lockstep, so that counting blocks gives the decisions of the engine's own scheduler.
    pub counts: bool,
    /// True if requests leave with their first token because another replica decodes them.
    pub hands_over: bool,
}

/// Data-parallel ranks of a replica that are engines, each with a queue, limits and a cache of its own. They share
/// experts and step together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankSettings {
    /// Number of ranks.
    pub count: u64,
    /// Rule by which a request gets its rank.
    pub balance: Balance,
}

/// Handling of a preempted request's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preemption {
    /// The cache is dropped and recomputed.
    #[default]
    Recompute,
    /// The cache is moved to host memory and back.
    Swap,
}

impl EngineConfig {
    /// Number of engines with these settings in one replica.
    pub(crate) fn engines(&self) -> u64 {
        self.ranks.map_or(1, |ranks| ranks.count)
    }

    /// True if vLLM's own scheduler can have these settings: one group of layers, one data-parallel rank, and requests
    /// in order of arrival.
    pub(crate) fn is_plain(&self) -> bool {
        self.groups.are_one() && self.attention_dp == 1 && self.order == Order::Arrival
    }

    /// Most tokens of a prompt in one step: the token budget of one data-parallel rank, because a prompt is on one
    /// rank.
    pub(crate) fn rank_budget(&self) -> u64 {
        u64::from(self.max_num_batched_tokens) / self.attention_dp
    }

    /// True if requests may be preempted and then recompute their output like a prompt.
    pub fn preempts(&self) -> bool {
        matches!(self.reservation, Reservation::Grow | Reservation::Prompt)
    }
}
