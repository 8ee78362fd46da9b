//! Settings that only one scheduler has.
//!
//! Knows: the defaults of these keys, and keys that exclude one another. [`crate::spec::keys`] knows the schedulers of
//! each key.
//! Source of SGLang's defaults: 0.5.23, `server_args.py` and `environ.py`; defaults of chunk and requests depend on
//! the memory and come from the deployment.

use crate::spec::{
    EngineSpec, MambaStrategy, PreemptionMode, QueuePolicy, ReservationKind, RetractionPolicy,
    SchedulePolicy, SchedulerKind,
};
use roofcast_facts::error::{Error, Result};

/// Default ratio in SGLang of the memory for recurrent states to the memory for keys and values.
const STATES_RATIO: f64 = 0.9;
/// SGLang's default of `--max-prefill-tokens`.
pub const MAX_PREFILL_TOKENS: u64 = 16_384;
const PREEMPTION_THRESHOLD: i64 = 10;
/// Most steps for which TensorRT-LLM delays prompts until every data-parallel rank has one.
const BALANCE_STEPS: u64 = 50;

/// Settings that belong to one scheduler, by scheduler.
#[derive(Debug, Clone, PartialEq)]
pub enum Own {
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
    pub max_num_active_seqs: Option<u64>,
    /// Number of requests at a replica at which new requests are refused.
    pub max_num_queued_reqs: Option<u64>,
    /// Number of prompt tokens, of requests without a first token, at which new requests are refused.
    pub max_num_queued_tokens: Option<u64>,
    /// Data-parallel engines: steps between two steps that compute prompts together with decodes.
    pub prefill_schedule_interval: Option<u64>,
    /// Most tokens of one prompt in a step while other requests wait; 0 for no bound.
    pub long_prefill_token_threshold: Option<u64>,
    /// Asynchronous scheduling (`AsyncScheduler`) as requested; the version's default if absent.
    pub async_scheduling: Option<bool>,
    /// Processes of the HTTP server as requested; one if absent.
    pub api_server_count: Option<u64>,
}

/// Settings of SGLang's scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct SglangSettings {
    /// Order of the queue.
    pub schedule_policy: SchedulePolicy,
    /// Factor on the initial estimate of tokens still to be generated; larger values admit fewer requests.
    pub schedule_conservativeness: f64,
    /// Most tokens of a prefill chunk; `None` if prompts are computed whole.
    pub chunked_prefill_size: Option<u64>,
    /// Most tokens of a step, with chunks or with whole prompts.
    pub step_tokens: u64,
    /// Most prompt tokens of a step; a first prompt that is not chunked may exceed it.
    pub max_prefill_tokens: u64,
    /// True if running requests also decode in steps with prompts.
    pub enable_mixed_chunk: bool,
    /// Most requests with prompts in a step.
    pub prefill_max_requests: Option<u64>,
    /// True if no prefixes are cached.
    pub disable_radix_cache: bool,
    /// True if a step is scheduled only after the results of the previous step.
    pub disable_overlap_schedule: bool,
    /// Order in which running requests are retracted.
    pub retraction_policy: RetractionPolicy,
    /// True if the queue is ordered by priority.
    pub enable_priority_scheduling: bool,
    /// True if smaller values mean higher priority.
    pub schedule_low_priority_values_first: bool,
    /// True if a request of higher priority never preempts a running request.
    pub disable_priority_preemption: bool,
    /// Smallest difference of priorities at which a waiting request preempts a running one.
    pub priority_scheduling_preemption_threshold: i64,
    /// Decode steps between two polls for new requests.
    pub scheduler_recv_interval: u64,
}

/// Settings of TensorRT-LLM's schedulers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorrtLlmSettings {
    /// Most steps for which prompts are held back to form a larger batch.
    pub batch_wait_timeout_iters: u64,
    /// Fraction of the token budget that waiting prompts must fill to end the wait.
    pub batch_wait_max_tokens_ratio: f64,
    /// True if a step is scheduled while the previous one runs.
    pub overlaps: bool,
    /// Most steps for which prompts wait until every data-parallel rank has one; `None` to start at once.
    pub balance_steps: Option<u64>,
}

/// Keys of SGLang's pool of recurrent states, which affect memory under any scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatePool {
    /// Number of states in the pool; if absent, as many as fit in memory.
    pub max_mamba_cache_size: Option<u64>,
    /// Memory for states over memory for keys and values.
    pub mamba_full_memory_ratio: f64,
    /// Rule by which the radix cache keeps states.
    pub mamba_radix_cache_strategy: MambaStrategy,
    /// True if prefixes stay in the cache for later requests.
    pub keeps_radix_cache: bool,
    /// True if a step is scheduled while the previous one runs.
    pub overlaps: bool,
}

impl StatePool {
    pub(super) fn of(spec: &EngineSpec) -> StatePool {
        StatePool {
            max_mamba_cache_size: spec.sglang.max_mamba_cache_size,
            mamba_full_memory_ratio: spec.sglang.mamba_full_memory_ratio.unwrap_or(STATES_RATIO),
            mamba_radix_cache_strategy: spec.sglang.mamba_radix_cache_strategy.unwrap_or_default(),
            keeps_radix_cache: !spec
                .sglang
                .disable_radix_cache
                .unwrap_or(spec.enable_prefix_caching == Some(false)),
            overlaps: spec.sglang.disable_overlap_schedule != Some(true),
        }
    }
}

impl Own {
    /// Resolves the settings of the scheduler of `spec`, with steps of `tokens` tokens and KV blocks of `block_size`
    /// tokens.
    pub(super) fn resolve(spec: &EngineSpec, tokens: u64, block_size: u64) -> Result<Own> {
        check_keys(spec)?;
        super::tier::check(spec)?;
        Ok(match spec.scheduler() {
            SchedulerKind::Vllm => Own::Vllm(vllm(spec)?),
            SchedulerKind::VllmV0 => Own::VllmV0(spec.vllm.preemption_mode),
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

/// Most processes of a server, more than a machine has cores for; each is simulated.
const MOST_SERVERS: u64 = 1024;

fn vllm(spec: &EngineSpec) -> Result<VllmSettings> {
    for (field, value) in [
        ("max_num_active_seqs", spec.vllm.max_num_active_seqs),
        ("prefill_schedule_interval", spec.vllm.prefill_schedule_interval),
    ] {
        if value == Some(0) {
            return Err(Error::field("engine", field, 0, "from 1"));
        }
    }
    if let Some(count) = spec.vllm.api_server_count.filter(|count| !(1..=MOST_SERVERS).contains(count)) {
        return Err(Error::field("engine", "api_server_count", count, format!("1 to {MOST_SERVERS}")));
    }
    Ok(VllmSettings {
        max_num_active_seqs: spec.vllm.max_num_active_seqs,
        max_num_queued_reqs: spec.vllm.max_num_queued_reqs,
        max_num_queued_tokens: spec.vllm.max_num_queued_tokens,
        prefill_schedule_interval: spec.vllm.prefill_schedule_interval,
        long_prefill_token_threshold: spec.vllm.long_prefill_token_threshold,
        async_scheduling: spec.vllm.async_scheduling,
        api_server_count: spec.vllm.api_server_count,
    })
}

fn tensorrt_llm(spec: &EngineSpec) -> Result<TensorrtLlmSettings> {
    let ratio = spec.tensorrt_llm.batch_wait_max_tokens_ratio.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&ratio) {
        return Err(Error::field("engine", "batch_wait_max_tokens_ratio", ratio, "0 to 1"));
    }
    let balanced = spec.tensorrt_llm.attention_dp_enable_balance.unwrap_or(false);
    Ok(TensorrtLlmSettings {
        batch_wait_timeout_iters: spec.tensorrt_llm.batch_wait_timeout_iters.unwrap_or(0),
        batch_wait_max_tokens_ratio: ratio,
        overlaps: spec.tensorrt_llm.disable_overlap_scheduler != Some(true),
        balance_steps: balanced
            .then(|| spec.tensorrt_llm.attention_dp_time_out_iters.unwrap_or(BALANCE_STEPS)),
    })
}

/// Tokens of SGLang's prefill chunk, `tokens` by default; `None` if prompts are computed whole.
fn chunk(spec: &EngineSpec, tokens: u64) -> Option<u64> {
    match spec.sglang.chunked_prefill_size {
        Some(size) => u64::try_from(size).ok().filter(|size| *size > 0),
        None if spec.enable_chunked_prefill == Some(false) => None,
        None => Some(tokens),
    }
}

fn sglang(spec: &EngineSpec, tokens: u64, block_size: u64) -> Result<SglangSettings> {
    check_sglang(spec)?;
    let ranked = spec.policy != QueuePolicy::Fcfs;
    let schedule_conservativeness = spec.sglang.schedule_conservativeness.unwrap_or(1.0);
    if !(0.0..=1e3).contains(&schedule_conservativeness) {
        let conservativeness = schedule_conservativeness;
        return Err(Error::field("engine", "schedule_conservativeness", conservativeness, "0 to 1000"));
    }
    let pool = StatePool::of(spec);
    if !(1e-3..=1e3).contains(&pool.mamba_full_memory_ratio) {
        let ratio = pool.mamba_full_memory_ratio;
        return Err(Error::field("engine", "mamba_full_memory_ratio", ratio, "0.001 to 1000"));
    }
    let counts = [
        ("max_prefill_tokens", spec.sglang.max_prefill_tokens),
        ("prefill_max_requests", spec.sglang.prefill_max_requests),
        ("max_mamba_cache_size", spec.sglang.max_mamba_cache_size),
    ];
    for (field, value) in counts {
        if let Some(value) = value.filter(|v| *v == 0 || *v > 1 << 30) {
            return Err(Error::field("engine", field, value, "1 to 2^30"));
        }
    }
    let chunked_prefill_size = chunk(spec, tokens);
    let chunk_size = chunked_prefill_size.filter(|_| spec.sglang.chunked_prefill_size.is_some());
    if let Some(size) = chunk_size.filter(|size| !size.is_multiple_of(block_size)) {
        let accepted = format!("a multiple of page_size ({block_size}), or -1");
        return Err(Error::field("engine", "chunked_prefill_size", size, accepted));
    }
    Ok(SglangSettings {
        schedule_policy: spec.sglang.schedule_policy,
        schedule_conservativeness,
        chunked_prefill_size,
        step_tokens: chunked_prefill_size.or(spec.sglang.max_prefill_tokens).unwrap_or(tokens),
        // `max_num_batched_tokens`, the key of all engines, sets both the chunk and this bound.
        max_prefill_tokens: spec
            .sglang
            .max_prefill_tokens
            .unwrap_or(MAX_PREFILL_TOKENS.max(spec.max_num_batched_tokens.unwrap_or(0))),
        enable_mixed_chunk: spec.sglang.enable_mixed_chunk.unwrap_or(false) && chunked_prefill_size.is_some(),
        prefill_max_requests: spec.sglang.prefill_max_requests,
        disable_radix_cache: !pool.keeps_radix_cache,
        disable_overlap_schedule: !pool.overlaps,
        retraction_policy: spec.sglang.retraction_policy.unwrap_or_default(),
        enable_priority_scheduling: spec.sglang.enable_priority_scheduling.unwrap_or(ranked),
        // If `policy` ranks requests, smaller values come first unless this key is set.
        schedule_low_priority_values_first: spec.sglang.schedule_low_priority_values_first.unwrap_or(ranked),
        disable_priority_preemption: spec
            .sglang
            .disable_priority_preemption
            .unwrap_or(spec.policy == QueuePolicy::Sjf),
        priority_scheduling_preemption_threshold: spec
            .sglang
            .priority_scheduling_preemption_threshold
            .unwrap_or(PREEMPTION_THRESHOLD),
        scheduler_recv_interval: spec.sglang.scheduler_recv_interval.unwrap_or(0),
    })
}

/// Refuses combinations of SGLang's keys that contradict one another.
fn check_sglang(spec: &EngineSpec) -> Result<()> {
    let refused = |field: &str, accepted: &str| Err(Error::field("engine", field, "set", accepted));
    if spec.sglang.chunked_prefill_size.is_some() && spec.max_num_batched_tokens.is_some() {
        return refused(
            "max_num_batched_tokens",
            "omitted together with chunked_prefill_size, which is the same",
        );
    }
    let prefixes_first = spec.sglang.schedule_policy != SchedulePolicy::Fcfs;
    if spec.sglang.enable_priority_scheduling == Some(true) && prefixes_first {
        return refused("enable_priority_scheduling", "with schedule_policy fcfs, as SGLang demands");
    }
    if spec.sglang.disable_radix_cache.is_some() && spec.enable_prefix_caching.is_some() {
        return refused("enable_prefix_caching", "omitted together with disable_radix_cache, its opposite");
    }
    let tiered = spec.sglang.enable_hierarchical_cache == Some(true);
    if tiered && !StatePool::of(spec).keeps_radix_cache {
        return refused("enable_hierarchical_cache", "with a radix tree: disable_radix_cache omitted");
    }
    let of_tier = [
        ("hicache_ratio", spec.sglang.hicache_ratio.is_some()),
        ("hicache_size", spec.sglang.hicache_size.is_some()),
        ("hicache_write_policy", spec.sglang.hicache_write_policy.is_some()),
    ];
    if let Some((field, _)) = of_tier.into_iter().find(|(_, set)| *set && !tiered) {
        return refused(field, "with enable_hierarchical_cache");
    }
    let in_order = spec.policy == QueuePolicy::Fcfs && !prefixes_first;
    if !in_order && spec.sglang.scheduler_recv_interval.is_some_and(|steps| steps > 1) {
        let accepted = "omitted, or policy and schedule_policy \"fcfs\"";
        return refused("scheduler_recv_interval", accepted);
    }
    let keeps_cache = StatePool::of(spec).keeps_radix_cache;
    if prefixes_first && !(keeps_cache && spec.policy == QueuePolicy::Fcfs) {
        let accepted = "with SGLang's radix cache, and policy omitted; else omitted";
        return Err(Error::field("engine", "schedule_policy", "lpm", accepted));
    }
    Ok(())
}

/// Refuses a key that the scheduler does not have.
fn check_keys(spec: &EngineSpec) -> Result<()> {
    let Some(key) = spec.misplaced() else { return Ok(()) };
    let have: Vec<&str> = key.schedulers.iter().map(|kind| kind.name()).collect();
    let accepted = format!("the scheduler {}, or the key omitted", have.join(" or "));
    Err(Error::field("engine", key.name(), "set", accepted))
}
