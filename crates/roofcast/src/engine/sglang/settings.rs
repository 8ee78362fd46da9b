//! SGLang's settings, resolved: its defaults, and what it refuses.
//!
//! Source of the defaults: SGLang 0.5.23, `server_args.py` and `environ.py`; those that the memory decides, chunk and
//! requests, come with the deployment.

use crate::error::{Error, Result};
use crate::kv_cache::tier::HostTier;
use crate::scheduler::config::EngineConfig;
use crate::scheduler::sglang::{self, HiCache, Rules};
use crate::scheduler::state::polling::PollingConfig;
use crate::spec::{EngineSpec, QueuePolicy, SchedulePolicy, SchedulerKind};

const MAX_PREFILL_TOKENS: u64 = 16_384;
const PREEMPTION_THRESHOLD: i64 = 10;

/// Settings of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct SglangConfig {
    /// Settings of the scheduler.
    pub scheduler: sglang::ServerArgs,
    /// Tokens of a request, prompt and output.
    pub max_model_len: u64,
    /// The host tier, where there is one.
    pub(crate) host: Option<HostTier>,
    /// Steps in which requests are received.
    pub(crate) polling: PollingConfig,
}

/// Keys that are SGLang's alone, and whether they are set.
pub(crate) fn own_keys(spec: &EngineSpec) -> [(&'static str, bool); 20] {
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

/// Tokens of a chunk, `own` where the spec is silent; none where prompts are not chunked.
pub(crate) fn chunk(spec: &EngineSpec, own: u64) -> Option<u64> {
    match spec.chunked_prefill_size {
        Some(size) => u64::try_from(size).ok().filter(|size| *size > 0),
        None if spec.enable_chunked_prefill == Some(false) => None,
        None => Some(spec.max_num_batched_tokens.unwrap_or(own)),
    }
}

/// Tokens of a step where the spec is silent: a chunk, or whole prompts.
pub(crate) fn budget(spec: &EngineSpec, own: u64) -> u64 {
    chunk(spec, own).or(spec.max_prefill_tokens).unwrap_or(own)
}

/// Refuses keys that contradict each other, or belong to others.
pub(crate) fn check(spec: &EngineSpec) -> Result<()> {
    let refused =
        |field: &str, accepted: &str| Err(Error::field("engine", field, "set", accepted.to_owned()));
    if spec.scheduler() != SchedulerKind::Sglang {
        let set = own_keys(spec).into_iter().find(|(_, set)| *set);
        return set.map_or(Ok(()), |(field, _)| refused(field, "the scheduler sglang, or the key left out"));
    }
    if spec.chunked_prefill_size.is_some() && spec.max_num_batched_tokens.is_some() {
        return refused("max_num_batched_tokens", "left out beside chunked_prefill_size, which is the same");
    }
    if spec.enable_priority_scheduling == Some(true) && spec.schedule_policy != SchedulePolicy::Fcfs {
        return refused("enable_priority_scheduling", "with schedule_policy fcfs, as SGLang demands");
    }
    if spec.disable_radix_cache.is_some() && spec.enable_prefix_caching.is_some() {
        return refused("enable_prefix_caching", "left out beside disable_radix_cache, its opposite");
    }
    let tiered = spec.enable_hierarchical_cache == Some(true);
    let alone = spec.disable_radix_cache.unwrap_or(spec.enable_prefix_caching == Some(false));
    if tiered && alone {
        return refused("enable_hierarchical_cache", "with a radix tree: disable_radix_cache left out");
    }
    let sized =
        [spec.hicache_ratio.is_some(), spec.hicache_size.is_some(), spec.hicache_write_policy.is_some()];
    let named = ["hicache_ratio", "hicache_size", "hicache_write_policy"];
    match named.into_iter().zip(sized).find(|(_, set)| *set && !tiered) {
        Some((field, _)) => refused(field, "with enable_hierarchical_cache"),
        None => Ok(()),
    }
}

impl SglangConfig {
    /// The settings of a spec whose pool and `max_num_seqs` are those of `config`.
    pub(crate) fn resolve(spec: &EngineSpec, config: &EngineConfig) -> Result<SglangConfig> {
        let ranked = spec.policy != QueuePolicy::Fcfs;
        let conservativeness = spec.schedule_conservativeness.unwrap_or(1.0);
        if !(0.0..=1e3).contains(&conservativeness) {
            return Err(Error::field("engine", "schedule_conservativeness", conservativeness, "0 to 1000"));
        }
        let counts = [
            ("max_prefill_tokens", spec.max_prefill_tokens),
            ("prefill_max_requests", spec.prefill_max_requests),
            ("max_mamba_cache_size", spec.max_mamba_cache_size),
        ];
        let ratio = spec.mamba_full_memory_ratio.unwrap_or(1.0);
        if !(1e-3..=1e3).contains(&ratio) {
            return Err(Error::field("engine", "mamba_full_memory_ratio", ratio, "0.001 to 1000"));
        }
        if let Some((field, Some(value))) =
            counts.into_iter().find(|(_, value)| value.is_some_and(|v| v == 0 || v > 1 << 30))
        {
            return Err(Error::field("engine", field, value, "1 to 2^30"));
        }
        let chunked_prefill_size = chunk(spec, u64::from(config.max_num_batched_tokens));
        if let Some(size) = spec.chunked_prefill_size
            && size > 0
            && size % i64::from(config.block_size) != 0
        {
            let accepted = format!("a multiple of page_size ({}), or -1", config.block_size);
            return Err(Error::field("engine", "chunked_prefill_size", size, accepted));
        }
        let scheduler = sglang::ServerArgs {
            schedule_policy: spec.schedule_policy,
            schedule_conservativeness: conservativeness,
            max_total_tokens: config.blocks * u64::from(config.block_size),
            max_running_requests: config.max_num_seqs,
            // `max_num_batched_tokens`, the general name, sets both.
            max_prefill_tokens: spec
                .max_prefill_tokens
                .unwrap_or(MAX_PREFILL_TOKENS.max(spec.max_num_batched_tokens.unwrap_or(0))),
            chunked_prefill_size,
            enable_mixed_chunk: spec.enable_mixed_chunk.unwrap_or(false) && chunked_prefill_size.is_some(),
            page_size: u64::from(config.block_size),
            disable_radix_cache: !spec.keeps_radix_cache(),
            enable_priority_scheduling: spec.enable_priority_scheduling.unwrap_or(ranked),
            // What `policy` sorts by is smaller first.
            schedule_low_priority_values_first: spec.schedule_low_priority_values_first.unwrap_or(ranked),
            priority_scheduling_preemption_threshold: spec
                .priority_scheduling_preemption_threshold
                .unwrap_or(PREEMPTION_THRESHOLD),
            disable_priority_preemption: spec
                .disable_priority_preemption
                .unwrap_or(spec.policy == QueuePolicy::Sjf),
            retraction_policy: spec.retraction_policy.unwrap_or_default(),
            prefill_max_requests: spec.prefill_max_requests,
            disable_overlap_schedule: spec.disable_overlap_schedule.unwrap_or(false),
            hicache: config.host.map(|host| HiCache {
                host_tokens: host.tokens,
                write_policy: spec.hicache_write_policy.unwrap_or_default(),
            }),
            rules: Rules::of(spec.version.as_deref().filter(|_| spec.name() == "sglang")),
            records: false,
        };
        if let Some((field, found, accepted)) = scheduler.check() {
            return Err(Error::field("engine", field, found, accepted));
        }
        Ok(SglangConfig {
            scheduler,
            max_model_len: u64::from(config.max_model_len),
            host: config.host,
            polling: config.polling,
        })
    }
}
