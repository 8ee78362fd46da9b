//! SGLang's settings, resolved: defaults applied, and refused combinations rejected.
//!
//! Source of the defaults: SGLang 0.5.23, `server_args.py` and `environ.py`. The defaults of memory, chunk and number
//! of requests depend on the accelerator and come from the deployment.

use crate::scheduler::config::EngineConfig;
use crate::scheduler::sglang::{self, HiCache, Rules};
use crate::scheduler::state::polling::PollingConfig;
use roofcast_ask::engine_settings::{EngineSettings, Own};
use roofcast_ask::kv_cache::tier::HostTier;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::error::{Error, Result};

/// Factor on `schedule_conservativeness` with data-parallel attention (`_handle_data_parallelism` of `server_args.py`).
const OF_A_RANK: f64 = 0.3;

/// Settings of one replica of SGLang.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SglangConfig {
    /// Settings of the scheduler.
    pub(crate) scheduler: sglang::ServerArgs,
    /// Most tokens of a request, prompt and output together.
    pub(crate) max_model_len: u64,
    /// The host tier, if there is one.
    pub(crate) host: Option<HostTier>,
    /// The steps in which requests are received.
    pub(crate) polling: PollingConfig,
}

impl SglangConfig {
    /// Settings of one replica from `settings`; pool size and `max_num_seqs` are those in `config`.
    pub(crate) fn resolve(settings: &EngineSettings, config: &EngineConfig) -> Result<SglangConfig> {
        let Own::Sglang(own) = settings.own() else {
            return Err(Error::field("engine", "scheduler", config.scheduler.name(), "sglang"));
        };
        let version = settings.release.version.as_deref();
        let ranked = if config.engines() > 1 { OF_A_RANK } else { 1.0 };
        let scheduler = sglang::ServerArgs {
            schedule_policy: own.schedule_policy,
            schedule_conservativeness: own.schedule_conservativeness * ranked,
            max_total_tokens: config.blocks * u64::from(config.block_size),
            max_running_requests: config.max_num_seqs,
            max_prefill_tokens: own.max_prefill_tokens,
            chunked_prefill_size: own.chunked_prefill_size.map(|tokens| (tokens / config.engines()).max(1)),
            enable_mixed_chunk: own.enable_mixed_chunk,
            page_size: u64::from(config.block_size),
            disable_radix_cache: own.disable_radix_cache,
            enable_priority_scheduling: own.enable_priority_scheduling,
            schedule_low_priority_values_first: own.schedule_low_priority_values_first,
            priority_scheduling_preemption_threshold: own.priority_scheduling_preemption_threshold,
            disable_priority_preemption: own.disable_priority_preemption,
            retraction_policy: own.retraction_policy,
            prefill_max_requests: own.prefill_max_requests,
            disable_overlap_schedule: own.disable_overlap_schedule,
            rules: Rules::of(version.filter(|_| settings.kind() == EngineKind::Sglang)),
            records: false,
            hicache: config
                .host
                .zip(settings.hicache())
                .map(|(host, asked)| HiCache { host_tokens: host.tokens, write_policy: asked.write_policy }),
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
