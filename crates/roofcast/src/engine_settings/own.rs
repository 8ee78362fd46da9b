//! Settings that only one scheduler has.
//!
//! Knows: the defaults of these keys, the scheduler that each key belongs to, and keys that exclude one another.
//! Source of SGLang's defaults: 0.5.23, `server_args.py` and `environ.py`; defaults of chunk and requests depend on
//! the memory and come from the deployment.

use crate::error::{Error, Result};
use crate::scheduler::{self, Profile};
use crate::spec::{
    EngineSpec, MambaStrategy, PreemptionMode, QueuePolicy, ReservationKind, RetractionPolicy,
    SchedulePolicy, SchedulerKind,
};

/// Default ratio in SGLang of the memory for recurrent states to the memory for keys and values.
const STATES_RATIO: f64 = 0.9;
const MAX_PREFILL_TOKENS: u64 = 16_384;
const PREEMPTION_THRESHOLD: i64 = 10;
/// Most steps for which TensorRT-LLM delays prompts until every data-parallel rank has one.
const BALANCE_STEPS: u64 = 50;

/// Settings that belong to one scheduler, by scheduler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Own {
    /// vLLM (V1).
    Vllm(VllmSettings),
    /// vLLM v0: treatment of a preempted request's cache.
    VllmV0(PreemptionMode),
    /// SGLang.
    Sglang(Box<SglangSettings>),
    /// TensorRT-LLM.
    TensorrtLlm(TensorrtLlmSettings),
    /// A scheduler that reserves contiguous memory for a request.
    Reserving(ReservationKind),
    /// A scheduler without keys of its own.
    None,
}

/// Settings of vLLM's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VllmSettings {
    /// Further bound on the number of running sequences.
    pub(crate) max_num_active_seqs: Option<u64>,
    /// Number of requests at a replica at which new requests are refused.
    pub max_num_queued_reqs: Option<u64>,
    /// Number of prompt tokens, of requests without a first token, at which new requests are refused.
    pub max_num_queued_tokens: Option<u64>,
    /// Data-parallel engines: steps between two steps that compute prompts together with decodes.
    pub(crate) prefill_schedule_interval: Option<u64>,
    /// Most tokens of one prompt in a step while other requests wait; 0 for no bound.
    pub(crate) long_prefill_token_threshold: Option<u64>,
    /// Asynchronous scheduling (`AsyncScheduler`) as requested; the version's default if absent.
    pub(crate) async_scheduling: Option<bool>,
}

/// Settings of SGLang's scheduler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SglangSettings {
    /// Order of the queue.
    pub(crate) schedule_policy: SchedulePolicy,
    /// Factor on the initial estimate of tokens still to be generated; larger values admit fewer requests.
    pub(crate) schedule_conservativeness: f64,
    /// Most tokens of a prefill chunk; `None` if prompts are computed whole.
    pub(crate) chunked_prefill_size: Option<u64>,
    /// Most tokens of a step, with chunks or with whole prompts.
    pub(crate) step_tokens: u64,
    /// Most prompt tokens of a step; a first prompt that is not chunked may exceed it.
    pub(crate) max_prefill_tokens: u64,
    /// True if running requests also decode in steps with prompts.
    pub(crate) enable_mixed_chunk: bool,
    /// Most requests with prompts in a step.
    pub(crate) prefill_max_requests: Option<u64>,
    /// True if no prefixes are cached.
    pub(crate) disable_radix_cache: bool,
    /// True if a step is scheduled only after the results of the previous step.
    pub(crate) disable_overlap_schedule: bool,
    /// Order in which running requests are retracted.
    pub(crate) retraction_policy: RetractionPolicy,
    /// True if the queue is ordered by priority.
    pub(crate) enable_priority_scheduling: bool,
    /// True if smaller values mean higher priority.
    pub(crate) schedule_low_priority_values_first: bool,
    /// True if a request of higher priority never preempts a running request.
    pub(crate) disable_priority_preemption: bool,
    /// Smallest difference of priorities at which a waiting request preempts a running one.
    pub(crate) priority_scheduling_preemption_threshold: i64,
    /// Decode steps between two polls for new requests.
    pub(crate) scheduler_recv_interval: u64,
}

/// Settings of TensorRT-LLM's schedulers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TensorrtLlmSettings {
    /// Most steps for which prompts are held back to form a larger batch.
    pub(crate) batch_wait_timeout_iters: u64,
    /// Fraction of the token budget that waiting prompts must fill to end the wait.
    pub(crate) batch_wait_max_tokens_ratio: f64,
    /// True if a step is scheduled while the previous one runs.
    pub(crate) overlaps: bool,
    /// Most steps for which prompts wait until every data-parallel rank has one; `None` to start at once.
    pub(crate) balance_steps: Option<u64>,
}

/// Keys of SGLang's pool of recurrent states, which affect memory under any scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StatePool {
    /// Number of states in the pool; if absent, as many as fit in memory.
    pub(crate) max_mamba_cache_size: Option<u64>,
    /// Memory for states over memory for keys and values.
    pub(crate) mamba_full_memory_ratio: f64,
    /// Rule by which the radix cache keeps states.
    pub(crate) mamba_radix_cache_strategy: MambaStrategy,
    /// True if prefixes stay in the cache for later requests.
    pub(crate) keeps_radix_cache: bool,
    /// True if a step is scheduled while the previous one runs.
    pub(crate) overlaps: bool,
}

impl StatePool {
    pub(super) fn of(spec: &EngineSpec) -> StatePool {
        StatePool {
            max_mamba_cache_size: spec.max_mamba_cache_size,
            mamba_full_memory_ratio: spec.mamba_full_memory_ratio.unwrap_or(STATES_RATIO),
            mamba_radix_cache_strategy: spec.mamba_radix_cache_strategy.unwrap_or_default(),
            keeps_radix_cache: !spec.disable_radix_cache.unwrap_or(spec.enable_prefix_caching == Some(false)),
            overlaps: spec.disable_overlap_schedule != Some(true),
        }
    }
}

impl Own {
    /// Resolves the settings of the scheduler of `spec`, with steps of `tokens` tokens and KV blocks of `block_size`
    /// tokens.
    pub(super) fn resolve(spec: &EngineSpec, profile: &Profile, tokens: u64, block_size: u64) -> Result<Own> {
        check_sglang(spec)?;
        super::tier::check(spec)?;
        check_keys(spec, profile)?;
        Ok(match spec.scheduler() {
            SchedulerKind::Vllm => Own::Vllm(vllm(spec)?),
            SchedulerKind::VllmV0 => Own::VllmV0(spec.preemption_mode),
            SchedulerKind::Sglang => Own::Sglang(Box::new(sglang(spec, tokens, block_size)?)),
            SchedulerKind::TensorrtLlm | SchedulerKind::TensorrtLlmMaxUtilization => {
                Own::TensorrtLlm(tensorrt_llm(spec)?)
            }
            SchedulerKind::Static | SchedulerKind::Orca => Own::Reserving(spec.reservation),
            SchedulerKind::Sarathi
            | SchedulerKind::Splitfuse
            | SchedulerKind::Lightllm
            | SchedulerKind::LlamaCpp => Own::None,
        })
    }
}

fn vllm(spec: &EngineSpec) -> Result<VllmSettings> {
    for (field, value) in [
        ("max_num_active_seqs", spec.max_num_active_seqs),
        ("prefill_schedule_interval", spec.prefill_schedule_interval),
    ] {
        if value == Some(0) {
            return Err(Error::field("engine", field, 0, "from 1"));
        }
    }
    Ok(VllmSettings {
        max_num_active_seqs: spec.max_num_active_seqs,
        max_num_queued_reqs: spec.max_num_queued_reqs,
        max_num_queued_tokens: spec.max_num_queued_tokens,
        prefill_schedule_interval: spec.prefill_schedule_interval,
        long_prefill_token_threshold: spec.long_prefill_token_threshold,
        async_scheduling: spec.async_scheduling,
    })
}

fn tensorrt_llm(spec: &EngineSpec) -> Result<TensorrtLlmSettings> {
    let ratio = spec.batch_wait_max_tokens_ratio.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&ratio) {
        return Err(Error::field("engine", "batch_wait_max_tokens_ratio", ratio, "0 to 1"));
    }
    let balanced = spec.attention_dp_enable_balance.unwrap_or(false);
    Ok(TensorrtLlmSettings {
        batch_wait_timeout_iters: spec.batch_wait_timeout_iters.unwrap_or(0),
        batch_wait_max_tokens_ratio: ratio,
        overlaps: spec.disable_overlap_scheduler != Some(true) && spec.async_scheduling != Some(false),
        balance_steps: balanced.then(|| spec.attention_dp_time_out_iters.unwrap_or(BALANCE_STEPS)),
    })
}

/// Tokens of SGLang's prefill chunk, `tokens` by default; `None` if prompts are computed whole.
fn chunk(spec: &EngineSpec, tokens: u64) -> Option<u64> {
    match spec.chunked_prefill_size {
        Some(size) => u64::try_from(size).ok().filter(|size| *size > 0),
        None if spec.enable_chunked_prefill == Some(false) => None,
        None => Some(tokens),
    }
}

fn sglang(spec: &EngineSpec, tokens: u64, block_size: u64) -> Result<SglangSettings> {
    let ranked = spec.policy != QueuePolicy::Fcfs;
    let schedule_conservativeness = spec.schedule_conservativeness.unwrap_or(1.0);
    if !(0.0..=1e3).contains(&schedule_conservativeness) {
        let found = schedule_conservativeness;
        return Err(Error::field("engine", "schedule_conservativeness", found, "0 to 1000"));
    }
    let pool = StatePool::of(spec);
    if !(1e-3..=1e3).contains(&pool.mamba_full_memory_ratio) {
        let found = pool.mamba_full_memory_ratio;
        return Err(Error::field("engine", "mamba_full_memory_ratio", found, "0.001 to 1000"));
    }
    let counts = [
        ("max_prefill_tokens", spec.max_prefill_tokens),
        ("prefill_max_requests", spec.prefill_max_requests),
        ("max_mamba_cache_size", spec.max_mamba_cache_size),
    ];
    for (field, value) in counts {
        if let Some(value) = value.filter(|v| *v == 0 || *v > 1 << 30) {
            return Err(Error::field("engine", field, value, "1 to 2^30"));
        }
    }
    let chunked_prefill_size = chunk(spec, tokens);
    let asked = chunked_prefill_size.filter(|_| spec.chunked_prefill_size.is_some());
    if let Some(size) = asked.filter(|size| !size.is_multiple_of(block_size)) {
        let accepted = format!("a multiple of page_size ({block_size}), or -1");
        return Err(Error::field("engine", "chunked_prefill_size", size, accepted));
    }
    Ok(SglangSettings {
        schedule_policy: spec.schedule_policy,
        schedule_conservativeness,
        chunked_prefill_size,
        step_tokens: chunked_prefill_size.or(spec.max_prefill_tokens).unwrap_or(tokens),
        // `max_num_batched_tokens`, the key of all engines, sets both the chunk and this bound.
        max_prefill_tokens: spec
            .max_prefill_tokens
            .unwrap_or(MAX_PREFILL_TOKENS.max(spec.max_num_batched_tokens.unwrap_or(0))),
        enable_mixed_chunk: spec.enable_mixed_chunk.unwrap_or(false) && chunked_prefill_size.is_some(),
        prefill_max_requests: spec.prefill_max_requests,
        disable_radix_cache: !pool.keeps_radix_cache,
        disable_overlap_schedule: !pool.overlaps,
        retraction_policy: spec.retraction_policy.unwrap_or_default(),
        enable_priority_scheduling: spec.enable_priority_scheduling.unwrap_or(ranked),
        // If `policy` ranks requests, smaller values come first unless this key is set.
        schedule_low_priority_values_first: spec.schedule_low_priority_values_first.unwrap_or(ranked),
        disable_priority_preemption: spec
            .disable_priority_preemption
            .unwrap_or(spec.policy == QueuePolicy::Sjf),
        priority_scheduling_preemption_threshold: spec
            .priority_scheduling_preemption_threshold
            .unwrap_or(PREEMPTION_THRESHOLD),
        scheduler_recv_interval: spec.scheduler_recv_interval.unwrap_or(0),
    })
}

/// Names of the keys that SGLang's scheduler alone has, each with true if the spec sets it.
fn sglang_keys(spec: &EngineSpec) -> [(&'static str, bool); 20] {
    [
        ("chunked_prefill_size", spec.chunked_prefill_size.is_some()),
        ("max_prefill_tokens", spec.max_prefill_tokens.is_some()),
        ("enable_mixed_chunk", spec.enable_mixed_chunk.is_some()),
        ("schedule_conservativeness", spec.schedule_conservativeness.is_some()),
        ("prefill_max_requests", spec.prefill_max_requests.is_some()),
        ("disable_radix_cache", spec.disable_radix_cache.is_some()),
        ("disable_overlap_schedule", spec.disable_overlap_schedule.is_some()),
        ("retraction_policy", spec.retraction_policy.is_some()),
        ("enable_priority_scheduling", spec.enable_priority_scheduling.is_some()),
        ("schedule_low_priority_values_first", spec.schedule_low_priority_values_first.is_some()),
        ("disable_priority_preemption", spec.disable_priority_preemption.is_some()),
        ("priority_scheduling_preemption_threshold", spec.priority_scheduling_preemption_threshold.is_some()),
        ("max_mamba_cache_size", spec.max_mamba_cache_size.is_some()),
        ("mamba_full_memory_ratio", spec.mamba_full_memory_ratio.is_some()),
        ("mamba_radix_cache_strategy", spec.mamba_radix_cache_strategy.is_some()),
        ("enable_hierarchical_cache", spec.enable_hierarchical_cache.is_some()),
        ("hicache_ratio", spec.hicache_ratio.is_some()),
        ("hicache_size", spec.hicache_size.is_some()),
        ("hicache_write_policy", spec.hicache_write_policy.is_some()),
        ("scheduler_recv_interval", spec.scheduler_recv_interval.is_some()),
    ]
}

/// Refuses SGLang's keys under another scheduler, and combinations of keys that contradict one another.
fn check_sglang(spec: &EngineSpec) -> Result<()> {
    let refused = |field: &str, accepted: &str| Err(Error::field("engine", field, "set", accepted));
    let sglang = spec.scheduler() == SchedulerKind::Sglang;
    if !sglang && let Some((field, _)) = sglang_keys(spec).into_iter().find(|(_, set)| *set) {
        return refused(field, "the scheduler sglang, or the key omitted");
    }
    if spec.chunked_prefill_size.is_some() && spec.max_num_batched_tokens.is_some() {
        return refused(
            "max_num_batched_tokens",
            "omitted together with chunked_prefill_size, which is the same",
        );
    }
    let prefixes_first = spec.schedule_policy != SchedulePolicy::Fcfs;
    if spec.enable_priority_scheduling == Some(true) && prefixes_first {
        return refused("enable_priority_scheduling", "with schedule_policy fcfs, as SGLang demands");
    }
    if spec.disable_radix_cache.is_some() && spec.enable_prefix_caching.is_some() {
        return refused("enable_prefix_caching", "omitted together with disable_radix_cache, its opposite");
    }
    let tiered = spec.enable_hierarchical_cache == Some(true);
    if tiered && !StatePool::of(spec).keeps_radix_cache {
        return refused("enable_hierarchical_cache", "with a radix tree: disable_radix_cache omitted");
    }
    let of_tier = [
        ("hicache_ratio", spec.hicache_ratio.is_some()),
        ("hicache_size", spec.hicache_size.is_some()),
        ("hicache_write_policy", spec.hicache_write_policy.is_some()),
    ];
    if let Some((field, _)) = of_tier.into_iter().find(|(_, set)| *set && !tiered) {
        return refused(field, "with enable_hierarchical_cache");
    }
    let in_order = spec.policy == QueuePolicy::Fcfs && !prefixes_first;
    if !in_order && spec.scheduler_recv_interval.is_some_and(|steps| steps > 1) {
        let accepted = "omitted, or policy and schedule_policy \"fcfs\"";
        return refused("scheduler_recv_interval", accepted);
    }
    let kept = StatePool::of(spec).keeps_radix_cache;
    if prefixes_first && !(sglang && kept && spec.policy == QueuePolicy::Fcfs) {
        let accepted = "with the scheduler sglang, its radix cache, and policy omitted; else omitted";
        return Err(Error::field("engine", "schedule_policy", "lpm", accepted));
    }
    Ok(())
}

/// Refuses keys of other schedulers.
fn check_keys(spec: &EngineSpec, profile: &Profile) -> Result<()> {
    let set = [
        ("long_prefill_token_threshold", spec.long_prefill_token_threshold.is_some()),
        ("async_scheduling", spec.async_scheduling == Some(true)),
        ("preemption_mode", spec.preemption_mode == PreemptionMode::Swap),
        ("reservation", spec.reservation != ReservationKind::Max),
        ("max_num_active_seqs", spec.max_num_active_seqs.is_some()),
        ("prefill_schedule_interval", spec.prefill_schedule_interval.is_some()),
        ("max_num_queued_reqs", spec.max_num_queued_reqs.is_some()),
        ("max_num_queued_tokens", spec.max_num_queued_tokens.is_some()),
        ("batch_wait_timeout_iters", spec.batch_wait_timeout_iters.is_some()),
        ("disable_overlap_scheduler", spec.disable_overlap_scheduler.is_some()),
        ("batch_wait_max_tokens_ratio", spec.batch_wait_max_tokens_ratio.is_some()),
        ("attention_dp_enable_balance", spec.attention_dp_enable_balance.is_some()),
        ("attention_dp_time_out_iters", spec.attention_dp_time_out_iters.is_some()),
    ];
    if let Some((key, _)) = set.into_iter().find(|(key, set)| *set && !profile.keys.contains(key)) {
        let have = SchedulerKind::ALL.iter().filter(|kind| scheduler::profile(**kind).keys.contains(&key));
        let have: Vec<&str> = have.map(|kind| kind.name()).collect();
        let accepted = format!("the scheduler {}, or the key omitted", have.join(" or "));
        return Err(Error::field("engine", key, "set", accepted));
    }
    Ok(())
}
