//! Settings of a tier of the KV cache in the host's memory: SGLang's HiCache, or vLLM's offloading connector.
//!
//! Knows: the defaults of their keys, and which of them need another. [`crate::memory`] knows the tokens that fit.

use crate::error::{Error, Result};
use crate::spec::{EngineSpec, EvictionPolicy, KvOffloadingBackend, QueuePolicy, SchedulerKind, WritePolicy};

/// Host tokens per device token of SGLang's HiCache.
const HICACHE_RATIO: f64 = 2.0;

/// A host tier, which `capacity` shows under any scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum HostTierSettings {
    /// SGLang's.
    HiCache(HiCacheSettings),
    /// vLLM's.
    Offloading(OffloadSettings),
}

/// SGLang's HiCache: keys of the host pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HiCacheSettings {
    /// Host tokens per device token.
    pub ratio: f64,
    /// GB of the host pool of each rank instead of the ratio; 0 for the ratio.
    pub gb: f64,
    /// Moment at which KV is copied to the host.
    pub write_policy: WritePolicy,
}

/// vLLM's offloading connector, with the names of its configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OffloadSettings {
    /// GiB of host memory of one engine, over all its ranks.
    pub gib: f64,
    /// Order in which chunks leave the host.
    pub eviction_policy: EvictionPolicy,
    /// Offers from which on a chunk is stored; below 2 each chunk is.
    pub store_threshold: u32,
    /// True if prompts alone are stored.
    pub offload_prompt_only: bool,
}

impl HostTierSettings {
    /// The host tier of `spec`; a size of 0 is none.
    pub(super) fn of(spec: &EngineSpec) -> Option<HostTierSettings> {
        if spec.enable_hierarchical_cache == Some(true) {
            return Some(HostTierSettings::HiCache(HiCacheSettings {
                ratio: spec.hicache_ratio.unwrap_or(HICACHE_RATIO),
                gb: spec.hicache_size.unwrap_or(0.0),
                write_policy: spec.hicache_write_policy.unwrap_or_default(),
            }));
        }
        let gib = spec.kv_offloading_size.filter(|gib| *gib != 0.0)?;
        Some(HostTierSettings::Offloading(OffloadSettings {
            gib,
            eviction_policy: spec.kv_offloading_eviction_policy.unwrap_or_default(),
            store_threshold: spec.kv_offloading_store_threshold.unwrap_or(0),
            offload_prompt_only: spec.kv_offloading_prompt_only.unwrap_or(true),
        }))
    }

    /// The key that enables it.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            HostTierSettings::HiCache(_) => "enable_hierarchical_cache",
            HostTierSettings::Offloading(_) => "kv_offloading_size",
        }
    }
}

/// Refuses keys of vLLM's host tier without its size, and what its model does not have.
pub(super) fn check(spec: &EngineSpec) -> Result<()> {
    let refused = |field: &str, accepted: &str| Err(Error::field("engine", field, "set", accepted));
    let keys = [
        ("kv_offloading_backend", spec.kv_offloading_backend.is_some()),
        ("kv_offloading_eviction_policy", spec.kv_offloading_eviction_policy.is_some()),
        ("kv_offloading_store_threshold", spec.kv_offloading_store_threshold.is_some()),
        ("kv_offloading_prompt_only", spec.kv_offloading_prompt_only.is_some()),
    ];
    if let Some((field, _)) = keys.into_iter().find(|(_, set)| *set && spec.kv_offloading_size.is_none()) {
        return refused(field, "with kv_offloading_size");
    }
    let Some(HostTierSettings::Offloading(_)) = HostTierSettings::of(spec) else { return Ok(()) };
    if spec.kv_offloading_backend == Some(KvOffloadingBackend::Lmcache) {
        let accepted = "native: LMCache's connector is not modelled";
        return Err(Error::field("engine", "kv_offloading_backend", "lmcache", accepted));
    }
    if spec.scheduler() != SchedulerKind::Vllm {
        let accepted = "the scheduler vllm, or the key left out; SGLang has enable_hierarchical_cache";
        return refused("kv_offloading_size", accepted);
    }
    if spec.policy != QueuePolicy::Fcfs || spec.speculative.is_some() {
        return refused("kv_offloading_size", "with policy fcfs and without drafts");
    }
    if spec.enable_prefix_caching == Some(false) {
        return refused("kv_offloading_size", "with enable_prefix_caching, whose hashes name the blocks");
    }
    Ok(())
}
