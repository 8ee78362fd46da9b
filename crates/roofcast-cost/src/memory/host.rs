//! Host memory as a tier of the KV cache: its capacity in tokens, and the speed of copies.
//!
//! Knows: the size of SGLang's HiCache pool, set as a multiple of the device's tokens or in bytes per rank (SGLang
//! 0.5.23, `mem_cache/pool_host/base.py`); the size of vLLM's offloading tier, set in bytes of all ranks, in whole
//! chunks (vLLM 0.33, `v1/kv_offload/cpu/spec.py`). Every rank copies its part over its own link, at [`LINK_SHARE`]
//! of the link's nominal rate and at most at its part of the bandwidth of the host's memory. Knows nothing about the
//! latency of single copies, or about the tokens in the pool.

use super::sequence_bytes;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::{HiCacheSettings, HostTierSettings, StorageSettings};
use roofcast_ask::kv_cache::tier::{CopySpeed, HostTier, StorageTier};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::ByteRate;

/// Efficiency of a host link for copies of whole blocks: 50 of 63 GB/s on an H100 with PCIe 5, in each direction
/// (vLLM's post on its offloading connector, 2026-01-08).
const LINK_SHARE: f64 = 0.8;
/// Assumed nominal rate in bytes per second of a host link that the catalog lacks: PCIe 4.0 x16.
const HOST_LINK: ByteRate = ByteRate(31.5e9);
/// Assumed efficiency of copies in the host's memory: fraction of the nominal bandwidth, usual for streaming access.
const MEMORY_SHARE: f64 = 0.8;
/// Length in tokens of the sequence from which bytes per token are derived: longer than every sliding window.
const LONG: u64 = 1 << 20;

/// Rate in bytes per second at which one rank copies from its host's memory.
pub fn load_rate(deployment: &Deployment) -> ByteRate {
    rates(deployment).0
}

/// Nominal rate in bytes per second from the host's memory to one rank, and the rate that it reaches.
pub(crate) fn host_link(deployment: &Deployment) -> [ByteRate; 2] {
    [nominal(deployment), load_rate(deployment)]
}

/// Computes the host tier behind a device pool of `device_tokens` tokens, if the spec enables one.
///
/// # Errors
/// Fails if the model keeps state other than the KV of its whole context, or if a size is out of range.
pub fn host_tier(deployment: &Deployment, device_tokens: u64) -> Result<Option<HostTier>> {
    let Some(asked) = &deployment.engine.host_tier else { return Ok(None) };
    let key = asked.key();
    let token = token_bytes(deployment).ok_or_else(|| {
        let given = format!("set with {}", deployment.model.name);
        let accepted =
            "a model whose layers all keep KV of the whole context: host pools of windows and states are not modelled";
        Error::field("engine", key, given, accepted)
    })?;
    let (tokens, storage) = match asked {
        HostTierSettings::HiCache(asked) => (hicache(deployment, asked, token.busiest, device_tokens)?, None),
        HostTierSettings::Offloading(asked) => {
            let storage = asked.storage.map(|asked| storage(deployment, asked, token.all)).transpose()?;
            (blocks_of(deployment, "kv_offloading_size", asked.gib, token.all)?, storage)
        }
    };
    let ranks = deployment.parallelism.attention_dp as f64;
    let (alone, share) = rates(deployment);
    let copied_s = token.busiest / (alone.0 * ranks);
    Ok(Some(HostTier {
        tokens,
        storage,
        speed: CopySpeed { store_s: copied_s, load_s: copied_s, latency_s: 0.0, share },
        layers: deployment.model.layers.len() as u64,
        token_bytes: token.all,
    }))
}

fn bounded(field: &str, value: f64, most: f64) -> Result<f64> {
    let accepted = format!("0 to {most}");
    let fits = (0.0..=most).contains(&value);
    if fits { Ok(value) } else { Err(Error::field("engine", field, value, accepted)) }
}

/// Tokens of HiCache's host pool: whole pages, plus one page.
fn hicache(deployment: &Deployment, asked: &HiCacheSettings, token: f64, device_tokens: u64) -> Result<u64> {
    let ratio = bounded("hicache_ratio", asked.ratio, 1e3)?;
    let size = bounded("hicache_size", asked.gb, 1e6)?;
    let tokens = if size > 0.0 {
        ((size * 1e9 / token) as u64).saturating_mul(deployment.parallelism.attention_dp)
    } else {
        (device_tokens as f64 * ratio) as u64
    };
    let page = deployment.engine.block_size;
    Ok(tokens - tokens % page + page)
}

/// Tokens in `gib` GiB of one of vLLM's tiers, in whole chunks of one block each; `field` names the size. Each
/// data-parallel engine has a separate tier.
fn blocks_of(deployment: &Deployment, field: &str, gib: f64, token: f64) -> Result<u64> {
    let bytes = bounded(field, gib, 1e6)? * f64::from(1 << 30);
    let block = deployment.engine.block_size;
    let blocks = (bytes / (token * block as f64)) as u64;
    if blocks == 0 {
        let accepted = format!("at least one block, {:.4} GiB", token * block as f64 / f64::from(1 << 30));
        return Err(Error::field("engine", field, gib, accepted));
    }
    Ok((blocks * block).saturating_mul(deployment.parallelism.attention_dp))
}

/// The storage below vLLM's host tier. Each data-parallel engine has a separate one; all ranks of an engine share it.
fn storage(deployment: &Deployment, asked: StorageSettings, token: f64) -> Result<StorageTier> {
    let rate = |field: &str, gb: f64| {
        let fits = gb > 0.0 && gb <= 1e4;
        if fits { Ok(gb * 1e9) } else { Err(Error::field("engine", field, gb, "above 0, at most 10000")) }
    };
    let latency_s = bounded("kv_storage_latency_ms", asked.latency_ms, 1e5)? / 1e3;
    let bytes = token / deployment.parallelism.attention_dp as f64;
    let speed = CopySpeed {
        store_s: bytes / rate("kv_storage_write_gb_s", asked.write_gb_s)?,
        load_s: bytes / rate("kv_storage_read_gb_s", asked.read_gb_s)?,
        latency_s,
        share: 1.0,
    };
    Ok(StorageTier { tokens: blocks_of(deployment, "kv_storage_size", asked.gib, token)?, speed })
}

/// KV bytes of one token.
struct TokenBytes {
    /// Bytes on the rank with the most.
    busiest: f64,
    /// Bytes on all ranks of one data-parallel rank of attention.
    all: f64,
}

/// Derives the bytes per token; `None` if the bytes of a sequence are not proportional to its tokens.
fn token_bytes(deployment: &Deployment) -> Option<TokenBytes> {
    let stages = |tokens: u64| {
        (0..deployment.stages.len()).map(move |stage| sequence_bytes(deployment, stage, tokens).0)
    };
    let single = stages(LONG).max()?;
    let two = stages(2 * LONG).max()?;
    let each = |bytes: u64| bytes as f64 / LONG as f64;
    let all = stages(LONG).sum::<u64>() * deployment.parallelism.tp;
    (two == 2 * single && single > 0).then(|| TokenBytes { busiest: each(single), all: each(all) })
}

/// Copy rate between an accelerator and its host's memory in one direction while the other is idle, and the fraction
/// of the rate that each direction reaches while both copy.
fn rates(deployment: &Deployment) -> (ByteRate, f64) {
    let host = deployment.accelerator.host_link.as_ref();
    let link = nominal(deployment).0 * LINK_SHARE;
    let memory =
        host.and_then(|link| link.memory_bytes_per_s).map_or(f64::INFINITY, |rate| rate.0 * MEMORY_SHARE);
    let alone = link.min(memory);
    (ByteRate(alone), (memory / 2.0 / alone).min(1.0))
}

/// Nominal rate of the link to the host's memory.
fn nominal(deployment: &Deployment) -> ByteRate {
    let accelerator = &deployment.accelerator;
    let chip_link =
        accelerator.link.as_ref().filter(|link| link.topology.is_pcie()).map(|link| link.bytes_per_s);
    let host = accelerator.host_link.as_ref().map(|link| link.bytes_per_s);
    host.or(chip_link).unwrap_or(HOST_LINK)
}
