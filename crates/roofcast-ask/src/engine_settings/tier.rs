//! Settings of a host tier, host memory behind the KV cache: SGLang's HiCache, or vLLM's offloading connector, with
//! storage below it.
//!
//! Knows: the defaults of the keys, and which keys require another key. `memory` knows the tokens that fit.

use crate::spec::{EngineSpec, EvictionPolicy, KvOffloadingBackend, QueuePolicy, WritePolicy};
use roofcast_facts::error::{Error, Result};

/// SGLang's default size of HiCache: host tokens per device token.
const HICACHE_RATIO: f64 = 2.0;
/// Default rate of storage in GB/s, in each direction: AISimulate's for its third tier (aisimulate-core 0.13.0,
/// `src/engine/config.rs`).
pub const STORAGE_GB_S: f64 = 10.0;
/// Default latency of storage in milliseconds, from the same source.
const STORAGE_LATENCY_MS: f64 = 0.1;

/// Settings of a host tier, which `capacity` shows under any scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HostTierSettings {
    /// SGLang's HiCache.
    HiCache(HiCacheSettings),
    /// vLLM's offloading connector.
    Offloading(OffloadSettings),
}

/// Settings of SGLang's HiCache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HiCacheSettings {
    /// Host tokens per device token.
    pub ratio: f64,
    /// GB of each rank's host pool, which replaces `ratio`; 0 to use `ratio`.
    pub gb: f64,
    /// Event at which KV is copied to the host.
    pub write_policy: WritePolicy,
}

/// Settings of vLLM's offloading connector, under the names of its configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OffloadSettings {
    /// GiB of host memory of one engine, for all its ranks together.
    pub gib: f64,
    /// Order in which chunks are evicted from the host.
    pub eviction_policy: EvictionPolicy,
    /// Number of offers of a chunk at which it is stored; values below 2 store it at the first.
    pub store_threshold: u32,
    /// True to store the chunks of prompts only.
    pub offload_prompt_only: bool,
    /// Storage below the host; `None` without it.
    pub storage: Option<StorageSettings>,
}

/// Settings of storage below the host: a disk or a file server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageSettings {
    /// GiB of one engine, for all its ranks together.
    pub gib: f64,
    /// Rate of reads in GB/s.
    pub read_gb_s: f64,
    /// Rate of writes in GB/s.
    pub write_gb_s: f64,
    /// Milliseconds from the start of a copy to its first byte.
    pub latency_ms: f64,
}

impl HostTierSettings {
    /// Takes the host tier from `spec`; a size of 0 disables it.
    pub(super) fn of(spec: &EngineSpec) -> Option<HostTierSettings> {
        if spec.sglang.enable_hierarchical_cache == Some(true) {
            return Some(HostTierSettings::HiCache(HiCacheSettings {
                ratio: spec.sglang.hicache_ratio.unwrap_or(HICACHE_RATIO),
                gb: spec.sglang.hicache_size.unwrap_or(0.0),
                write_policy: spec.sglang.hicache_write_policy.unwrap_or_default(),
            }));
        }
        let gib = spec.vllm.kv_offloading_size.filter(|gib| *gib != 0.0)?;
        Some(HostTierSettings::Offloading(OffloadSettings {
            gib,
            eviction_policy: spec.vllm.kv_offloading_eviction_policy.unwrap_or_default(),
            store_threshold: spec.vllm.kv_offloading_store_threshold.unwrap_or(0),
            offload_prompt_only: spec.vllm.kv_offloading_prompt_only.unwrap_or(true),
            storage: spec.vllm.kv_storage_size.filter(|gib| *gib != 0.0).map(|gib| StorageSettings {
                gib,
                read_gb_s: spec.vllm.kv_storage_read_gb_s.unwrap_or(STORAGE_GB_S),
                write_gb_s: spec.vllm.kv_storage_write_gb_s.unwrap_or(STORAGE_GB_S),
                latency_ms: spec.vllm.kv_storage_latency_ms.unwrap_or(STORAGE_LATENCY_MS),
            }),
        }))
    }

    /// Name of the key that enables the tier.
    pub fn key(&self) -> &'static str {
        match self {
            HostTierSettings::HiCache(_) => "enable_hierarchical_cache",
            HostTierSettings::Offloading(_) => "kv_offloading_size",
        }
    }
}

/// Refuses keys of vLLM's host tier if its size is not set, and features of the tier that are not modelled.
pub(super) fn check(spec: &EngineSpec) -> Result<()> {
    let refused = |field: &str, accepted: &str| Err(Error::field("engine", field, "set", accepted));
    let keys = [
        ("kv_offloading_backend", spec.vllm.kv_offloading_backend.is_some()),
        ("kv_offloading_eviction_policy", spec.vllm.kv_offloading_eviction_policy.is_some()),
        ("kv_offloading_store_threshold", spec.vllm.kv_offloading_store_threshold.is_some()),
        ("kv_offloading_prompt_only", spec.vllm.kv_offloading_prompt_only.is_some()),
    ];
    if let Some((field, _)) = keys.into_iter().find(|(_, set)| *set && spec.vllm.kv_offloading_size.is_none())
    {
        return refused(field, "with kv_offloading_size");
    }
    check_storage(spec)?;
    let Some(HostTierSettings::Offloading(_)) = HostTierSettings::of(spec) else { return Ok(()) };
    if spec.vllm.kv_offloading_backend == Some(KvOffloadingBackend::Lmcache) {
        let accepted = "native: LMCache's connector is not modelled";
        return Err(Error::field("engine", "kv_offloading_backend", "lmcache", accepted));
    }
    if spec.policy != QueuePolicy::Fcfs || spec.speculative.is_some() {
        return refused("kv_offloading_size", "with policy fcfs and without drafts");
    }
    if spec.enable_prefix_caching == Some(false) {
        return refused("kv_offloading_size", "with enable_prefix_caching, whose hashes name the blocks");
    }
    Ok(())
}

/// Refuses keys of storage below the host tier without the storage or without vLLM's host tier.
fn check_storage(spec: &EngineSpec) -> Result<()> {
    let refused = |field: &str, accepted: &str| Err(Error::field("engine", field, "set", accepted));
    let rates = [
        ("kv_storage_read_gb_s", spec.vllm.kv_storage_read_gb_s),
        ("kv_storage_write_gb_s", spec.vllm.kv_storage_write_gb_s),
        ("kv_storage_latency_ms", spec.vllm.kv_storage_latency_ms),
    ];
    let size = spec.vllm.kv_storage_size;
    if let Some((field, _)) = rates.into_iter().find(|(_, rate)| rate.is_some() && size.is_none()) {
        return refused(field, "with kv_storage_size");
    }
    if size.is_none_or(|gib| gib == 0.0) {
        return Ok(());
    }
    if spec.vllm.kv_offloading_size.is_none_or(|gib| gib == 0.0) {
        let accepted = "with kv_offloading_size: all data pass through vLLM's host tier; SGLang's storage is not modelled";
        return refused("kv_storage_size", accepted);
    }
    if spec.vllm.kv_offloading_store_threshold.is_some_and(|offers| offers >= 2) {
        return refused("kv_offloading_store_threshold", "below 2 with kv_storage_size, as in vLLM");
    }
    Ok(())
}
