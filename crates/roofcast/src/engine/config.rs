//! An engine's settings, resolved: every default filled in, every count within bounds.
//!
//! Knows: each scheduler's own defaults, and what memory leaves for the cache.

use super::gate::GateConfig;
use super::queue::Order;
use super::sglang::settings;
use crate::deployment::Deployment;
use crate::engine::by_block;
use crate::error::{Error, Result};
use crate::kv_cache::groups::Groups;
use crate::memory;
use crate::scheduler::{Policy, vllm};
use crate::spec::{
    EngineSpec, KvLayout, PreemptionMode, QueuePolicy, ReservationKind, SchedulePolicy, SchedulerKind,
};

/// Settings of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
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
    /// Who comes first.
    pub order: Order,
    /// When newcomers are looked at.
    pub gate: GateConfig,
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

impl Config {
    /// The settings of one replica of `deployment`, whose requests have `context` tokens in the mean, and its policy.
    /// `shared` says whether prompts have tokens in common.
    pub fn resolve(deployment: &Deployment, context: u64, shared: bool) -> Result<(Config, Policy)> {
        let spec = &deployment.options.engine;
        let defaults = defaults(spec);
        let block_size = deployment.engine.block_size;
        let prefixes = prefixes(spec, shared);
        let (groups, room) = groups(deployment, prefixes, context.max(1));
        let blocks = usable_blocks(spec, block_size, room)?;
        let kv_tokens = groups.longest(blocks);
        let longest = deployment.longest().unwrap_or(u64::MAX).min(kv_tokens);
        let max_num_seqs = match (spec.max_num_seqs, defaults.max_num_seqs) {
            (None, Some(own)) => own,
            _ => deployment.engine.max_num_seqs,
        };
        // llama.cpp gives every slot its share of the cache.
        let slotted = spec.scheduler == SchedulerKind::LlamaCpp && spec.max_model_len.is_none();
        let max_model_len = if slotted { longest.min(kv_tokens / max_num_seqs) } else { longest };
        let budget = match (spec.max_num_batched_tokens, defaults.budget) {
            (None, Some(own)) => own,
            _ => deployment.engine.max_num_batched_tokens,
        };
        // Data-parallel ranks have a budget each; SGLang divides one.
        let ranks = deployment.parallelism.attention_dp;
        let budget =
            if spec.scheduler == SchedulerKind::Sglang { budget } else { budget.saturating_mul(ranks) };
        let max_num_seqs = match spec.scheduler {
            SchedulerKind::Sglang => max_num_seqs,
            _ => seats(spec, max_num_seqs, budget)?.min(spec.max_num_active_seqs.unwrap_or(u64::MAX)),
        };
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let config = Config {
            blocks,
            groups,
            block_size: narrow(block_size),
            max_num_seqs,
            max_num_batched_tokens: narrow(budget),
            max_model_len: narrow(max_model_len),
            enable_chunked_prefill: spec.enable_chunked_prefill.unwrap_or(defaults.chunked),
            scheduler_reserve_full_isl: spec.scheduler_reserve_full_isl.unwrap_or(defaults.reserve_full),
            prefixes,
            watermark_blocks: (share("watermark", spec.watermark.unwrap_or(defaults.watermark))?
                * (blocks + u64::from(spec.scheduler == SchedulerKind::Vllm)) as f64)
                as u64,
            order: match spec.policy {
                QueuePolicy::Fcfs => Order::Arrival,
                _ => Order::Key,
            },
            gate: gate(spec, budget, ranks)?,
            attention_dp: ranks,
            reservation: defaults.reservation,
            preemption: match spec.preemption_mode {
                PreemptionMode::Recompute => Preemption::Recompute,
                PreemptionMode::Swap => Preemption::Swap,
            },
            contiguous: reserves(spec) && spec.kv_layout.is_none_or(|l| l == KvLayout::Contiguous),
            layout: spec.kv_layout,
            swap_tokens: swap_tokens(deployment, spec, context)?,
            hands_over: false,
        };
        check(spec, &config)?;
        Ok((config, defaults.policy))
    }

    /// Tokens of a step on one data-parallel rank: the most that a prompt, which is on one of them, has in a step.
    pub fn rank_budget(&self) -> u64 {
        u64::from(self.max_num_batched_tokens) / self.attention_dp
    }

    /// The same settings for the scheduler that knows every block.
    pub fn vllm(&self, spec: &EngineSpec) -> vllm::Config {
        let drafts = spec.speculative.as_ref();
        let modelled = drafts.filter(|s| s.draft_model.is_some());
        vllm::Config {
            block_size: u64::from(self.block_size),
            num_gpu_blocks: u32::try_from(self.blocks + 1).unwrap_or(u32::MAX),
            max_num_seqs: self.max_num_seqs,
            max_num_active_seqs: spec.max_num_active_seqs,
            max_num_batched_tokens: u64::from(self.max_num_batched_tokens),
            max_model_len: u64::from(self.max_model_len),
            enable_chunked_prefill: self.enable_chunked_prefill,
            enable_prefix_caching: self.prefixes == Prefixes::Blocks,
            long_prefill_token_threshold: spec
                .long_prefill_token_threshold
                .unwrap_or(if self.attention_dp > 1 { self.rank_budget() } else { 0 }),
            long_prefill_token_threshold_adaptive: false,
            policy: if spec.policy == QueuePolicy::Fcfs {
                vllm::Policy::Fcfs
            } else {
                vllm::Policy::Priority
            },
            scheduler_reserve_full_isl: self.scheduler_reserve_full_isl,
            watermark: spec.watermark.unwrap_or(0.0),
            async_scheduling: spec.async_scheduling.unwrap_or(false),
            num_speculative_tokens: drafts.map_or(0, |s| s.num_speculative_tokens),
            num_lookahead_tokens: modelled.map_or(0, |s| s.num_speculative_tokens),
        }
    }

    /// Whether requests may be preempted and then compute their output like a prompt.
    pub fn preempts(&self) -> bool {
        matches!(self.reservation, Reservation::Grow | Reservation::Prompt)
    }
}

/// How prefixes are found, where they are: as asked, else where prompts have tokens in common. vLLM always looks, which
/// without them changes nothing but what a preempted request finds of its own.
fn prefixes(spec: &EngineSpec, shared: bool) -> Prefixes {
    let kind = match spec.scheduler {
        SchedulerKind::Vllm => Prefixes::Blocks,
        SchedulerKind::Sglang if settings::keeps_prefixes(spec) => return Prefixes::Tree,
        _ => Prefixes::Unknown,
    };
    let shareable = spec.kv_layout != Some(KvLayout::Vattention);
    if spec.enable_prefix_caching.unwrap_or(shared && shareable) { kind } else { Prefixes::Unknown }
}

/// The groups of layers that take blocks of their own, and how many blocks there is room for. vLLM gives back what falls
/// out of a window; elsewhere, and where blocks are known by their content, the room is computed once for requests of
/// `context` tokens.
fn groups(deployment: &Deployment, prefixes: Prefixes, context: u64) -> (Groups, u64) {
    let (spec, block) = (&deployment.options.engine, deployment.engine.block_size);
    let counted = spec.scheduler == SchedulerKind::Vllm && prefixes == Prefixes::Unknown && !by_block(spec);
    match Groups::of(deployment, block).filter(|_| counted) {
        Some((groups, bytes)) => (groups, memory::blocks(deployment, bytes)),
        None => (Groups::one(block), memory::tokens(deployment, context) / block),
    }
}

/// Blocks that requests can hold: vLLM keeps one of its own as the null block.
fn usable_blocks(spec: &EngineSpec, block_size: u64, room: u64) -> Result<u64> {
    let reserved = u64::from(spec.scheduler == SchedulerKind::Vllm);
    match spec.num_gpu_blocks {
        None if room <= reserved => Err(Error::field(
            "deployment",
            "KV cache",
            format!("{room} blocks of {block_size} tokens beside the weights"),
            "more memory or smaller weights (`roofcast capacity` says how much is missing), or num_gpu_blocks",
        )),
        Some(asked) if asked <= reserved || asked >= u64::from(u32::MAX) => {
            let accepted = "2 to 2^32 blocks; vLLM keeps one of them for itself";
            Err(Error::field("engine", "num_gpu_blocks", asked, accepted))
        }
        asked => Ok(asked.unwrap_or(room).min(u64::from(u32::MAX) - 1) - reserved),
    }
}

/// Seats that the budget of a step can serve.
fn seats(spec: &EngineSpec, max_num_seqs: u64, budget: u64) -> Result<u64> {
    if max_num_seqs <= budget {
        return Ok(max_num_seqs);
    }
    match spec.max_num_seqs {
        None => Ok(budget),
        Some(asked) => {
            let accepted = format!("at most max_num_batched_tokens ({budget}), as vLLM demands");
            Err(Error::field("engine", "max_num_seqs", asked, accepted))
        }
    }
}

/// When newcomers are looked at.
fn gate(spec: &EngineSpec, budget: u64, ranks: u64) -> Result<GateConfig> {
    use SchedulerKind::*;
    let held = matches!(spec.scheduler, TensorrtLlm | TensorrtLlmMaxUtilization);
    let asked = [
        ("batch_wait_timeout_iters", spec.batch_wait_timeout_iters.is_some(), held, "tensorrt-llm"),
        ("disable_overlap_scheduler", spec.disable_overlap_scheduler.is_some(), held, "tensorrt-llm"),
        ("batch_wait_max_tokens_ratio", spec.batch_wait_max_tokens_ratio.is_some(), held, "tensorrt-llm"),
        ("attention_dp_enable_balance", spec.attention_dp_enable_balance.is_some(), held, "tensorrt-llm"),
        ("attention_dp_time_out_iters", spec.attention_dp_time_out_iters.is_some(), held, "tensorrt-llm"),
    ];
    for (field, asked, has, whose) in asked {
        if asked && !has {
            let accepted = format!("the scheduler {whose}, or the key left out");
            return Err(Error::field("engine", field, "set", accepted));
        }
    }
    // A queue in another order has newcomers before those who were looked at.
    let in_order = spec.policy == QueuePolicy::Fcfs && spec.schedule_policy == SchedulePolicy::Fcfs;
    if !in_order && spec.scheduler_recv_interval.is_some_and(|steps| steps > 1) {
        let accepted = "left out, or policy and schedule_policy \"fcfs\"";
        return Err(Error::field("engine", "scheduler_recv_interval", "set", accepted));
    }
    let ratio = spec.batch_wait_max_tokens_ratio.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&ratio) {
        return Err(Error::field("engine", "batch_wait_max_tokens_ratio", ratio, "0 to 1"));
    }
    let balanced = ranks > 1 && spec.attention_dp_enable_balance.unwrap_or(false);
    let balance_steps = if balanced { spec.attention_dp_time_out_iters.unwrap_or(50) } else { 0 };
    Ok(GateConfig {
        recv_interval: spec.scheduler_recv_interval.unwrap_or(0),
        wait_steps: spec.batch_wait_timeout_iters.unwrap_or(0).max(balance_steps),
        wait_prompts: if balanced { ranks } else { 0 },
        overlaps: held && in_order && !spec.disable_overlap_scheduler.unwrap_or(false),
        wait_tokens: (ratio * budget as f64) as u64,
    })
}

fn share(field: &str, value: f64) -> Result<f64> {
    if (0.0..1.0).contains(&value) {
        return Ok(value);
    }
    Err(Error::field("engine", field, value, "0 to below 1"))
}

/// KV tokens that the host's memory holds: `swap_space` GiB for each accelerator.
fn swap_tokens(deployment: &Deployment, spec: &EngineSpec, context: u64) -> Result<u64> {
    let gib = spec.swap_space.unwrap_or(4.0);
    if !(0.0..=1e6).contains(&gib) {
        return Err(Error::field("engine", "swap_space", gib, "0 to 10^6 GiB"));
    }
    let one = memory::sequence_bytes(deployment, 0, context.max(1)).as_f64() / context.max(1) as f64;
    Ok((gib * f64::from(1 << 30) / one.max(1.0)) as u64)
}

/// Refuses what a scheduler does not have.
fn check(spec: &EngineSpec, config: &Config) -> Result<()> {
    settings::check(spec)?;
    check_prefixes(spec, config)?;
    check_layout(spec)?;
    let vllm_only = [
        ("long_prefill_token_threshold", spec.long_prefill_token_threshold.is_some()),
        ("max_num_active_seqs", spec.max_num_active_seqs.is_some()),
        ("async_scheduling", spec.async_scheduling == Some(true)),
    ];
    for (field, asked) in vllm_only {
        if asked && spec.scheduler != SchedulerKind::Vllm {
            return Err(Error::field("engine", field, "set", "the scheduler vllm, or the key left out"));
        }
    }
    if spec.max_num_active_seqs == Some(0) {
        return Err(Error::field("engine", "max_num_active_seqs", 0, "from 1"));
    }
    let swaps = config.preemption == Preemption::Swap;
    if swaps && spec.scheduler != SchedulerKind::VllmV0 {
        let accepted = "recompute; only vllm-v0 swaps";
        return Err(Error::field("engine", "preemption_mode", "swap", accepted));
    }
    if spec.scheduler == SchedulerKind::Lightllm && config.block_size != 1 {
        let accepted = "1: lightllm keeps its cache by the token";
        return Err(Error::field("engine", "block_size", config.block_size, accepted));
    }
    if spec.reservation != ReservationKind::Max && !reserves(spec) {
        let accepted = "left out; only static and orca reserve";
        return Err(Error::field("engine", "reservation", format!("{:?}", spec.reservation), accepted));
    }
    Ok(())
}

/// Refuses prefix caches that a scheduler does not have, and an order by prefixes that nobody finds.
fn check_prefixes(spec: &EngineSpec, config: &Config) -> Result<()> {
    if spec.enable_prefix_caching == Some(true) && config.prefixes == Prefixes::Unknown {
        let accepted = "the schedulers vllm and sglang, or the key left out";
        return Err(Error::field("engine", "enable_prefix_caching", "set", accepted));
    }
    if config.prefixes != Prefixes::Unknown && spec.kv_layout == Some(KvLayout::Vattention) {
        let accepted = "left out with vattention, whose requests share no pages";
        return Err(Error::field("engine", "enable_prefix_caching", "set", accepted));
    }
    let ordered = spec.schedule_policy == SchedulePolicy::Fcfs
        || (config.prefixes == Prefixes::Tree && spec.policy == QueuePolicy::Fcfs);
    if !ordered {
        let accepted = "with the scheduler sglang, its radix cache, and policy left out; else left out";
        return Err(Error::field("engine", "schedule_policy", "lpm", accepted));
    }
    Ok(())
}

/// Refuses layouts that a scheduler does not have.
fn check_layout(spec: &EngineSpec) -> Result<()> {
    use SchedulerKind::*;
    let (accepted, fits) = match spec.kv_layout {
        None => return Ok(()),
        Some(KvLayout::Contiguous) => (
            "with static, orca and llama.cpp, which reserve; others grow block by block",
            matches!(spec.scheduler, Static | Orca | LlamaCpp),
        ),
        Some(KvLayout::Vattention) => (
            "with vllm, vllm-v0, sarathi and splitfuse, whose requests grow by blocks of any size",
            matches!(spec.scheduler, Vllm | VllmV0 | Sarathi | Splitfuse),
        ),
        Some(KvLayout::Paged | KvLayout::Flashinfer) => {
            ("contiguous with llama.cpp, whose slots are single pieces", spec.scheduler != LlamaCpp)
        }
    };
    if fits {
        return Ok(());
    }
    let found = spec.kv_layout.map_or("", KvLayout::name);
    Err(Error::field("engine", "kv_layout", found, accepted))
}

/// Whether a scheduler reserves all that a request may take.
fn reserves(spec: &EngineSpec) -> bool {
    matches!(spec.scheduler, SchedulerKind::Static | SchedulerKind::Orca)
}

/// Tokens of a block where the spec is silent.
pub(crate) fn block_size(scheduler: SchedulerKind) -> u64 {
    use SchedulerKind::*;
    match scheduler {
        Static | Orca | Lightllm | LlamaCpp => 1,
        Sglang => settings::PAGE_SIZE,
        Vllm | VllmV0 | Sarathi | Splitfuse => 16,
        TensorrtLlm | TensorrtLlmMaxUtilization => 32,
    }
}

/// What a scheduler does where the spec is silent.
struct Defaults {
    policy: Policy,
    budget: Option<u64>,
    max_num_seqs: Option<u64>,
    reservation: Reservation,
    watermark: f64,
    chunked: bool,
    reserve_full: bool,
}

fn defaults(spec: &EngineSpec) -> Defaults {
    let reserved = match spec.reservation {
        ReservationKind::Max => Reservation::Max,
        ReservationKind::Pow2 => Reservation::Pow2,
        ReservationKind::Oracle => Reservation::Oracle,
    };
    let split = Defaults {
        policy: Policy::TokenBudget,
        budget: None,
        max_num_seqs: None,
        reservation: Reservation::Grow,
        watermark: 0.0,
        chunked: true,
        reserve_full: true,
    };
    let whole = |policy: Policy, reservation: Reservation| Defaults {
        policy,
        budget: Some(u64::from(u32::MAX)),
        max_num_seqs: None,
        reservation,
        watermark: 0.0,
        chunked: false,
        reserve_full: true,
    };
    match spec.scheduler {
        SchedulerKind::Vllm => split,
        SchedulerKind::Static => whole(Policy::Static, reserved),
        SchedulerKind::Orca => whole(Policy::Orca, reserved),
        SchedulerKind::VllmV0 => Defaults { watermark: 0.01, ..whole(Policy::VllmV0, Reservation::Prompt) },
        SchedulerKind::Sarathi => {
            Defaults { budget: Some(512), watermark: 0.01, reservation: Reservation::Prompt, ..split }
        }
        SchedulerKind::Splitfuse => Defaults { budget: Some(512), reserve_full: false, ..split },
        SchedulerKind::Lightllm => whole(Policy::LightLlm, Reservation::Prompt),
        SchedulerKind::Sglang => Defaults {
            budget: Some(
                settings::chunk(spec).or(spec.max_prefill_tokens).unwrap_or(settings::CHUNKED_PREFILL_SIZE),
            ),
            chunked: settings::chunk(spec).is_some(),
            ..split
        },
        SchedulerKind::LlamaCpp => Defaults {
            policy: Policy::LlamaCpp,
            budget: Some(2048),
            max_num_seqs: Some(4),
            reservation: Reservation::Max,
            ..split
        },
        SchedulerKind::TensorrtLlm => {
            Defaults { budget: Some(8192), reservation: Reservation::Bound, chunked: false, ..split }
        }
        SchedulerKind::TensorrtLlmMaxUtilization => {
            Defaults { budget: Some(8192), chunked: false, reserve_full: false, ..split }
        }
    }
}
