//! Host memory as a tier of the KV cache: its capacity in tokens, and the speed of copies.
//!
//! Knows: SGLang's HiCache sizes its host pool by a ratio of the device's tokens or by bytes of each rank (SGLang
//! 0.5.23, `mem_cache/pool_host/base.py`), every rank copies its part over its own link, and the link reaches
//! [`LINK_SHARE`] of its nominal rate. Knows nothing about host memory that several accelerators share and that is
//! slower than their links together, about the latency of single copies, or about the tokens in the pool.

use super::sequence_bytes;
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::kv_cache::tier::HostTier;
use crate::units::ByteRate;

/// Efficiency of a host link for copies of whole blocks: 50 of 63 GB/s on an H100 with PCIe 5, in each direction
/// (vLLM's post on its offloading connector, 2026-01-08).
const LINK_SHARE: f64 = 0.8;
/// Nominal rate of a host link that is missing in the catalog: PCIe 4.0 x16. An assumption.
const HOST_LINK: ByteRate = ByteRate(31.5e9);
/// Length of the sequence that measures bytes per token: beyond every sliding window.
const LONG: u64 = 1 << 20;

/// The host tier of a device pool of `device_tokens`, if the spec enables one.
///
/// # Errors
/// If the model keeps anything other than KV of its whole context, or a size is out of range.
pub fn host_tier(deployment: &Deployment, device_tokens: u64) -> Result<Option<HostTier>> {
    let Some(asked) = &deployment.engine.host_tier else { return Ok(None) };
    let bounded = |field: &str, value: f64, most: f64| {
        let accepted = format!("0 to {most}");
        let fits = (0.0..=most).contains(&value);
        if fits { Ok(value) } else { Err(Error::field("engine", field, value, accepted)) }
    };
    let ratio = bounded("hicache_ratio", asked.ratio, 1e3)?;
    let size = bounded("hicache_size", asked.gb, 1e6)?;
    let token = token_bytes(deployment).ok_or_else(|| {
        let found = format!("set with {}", deployment.model.name);
        let accepted =
            "a model whose layers all keep KV of the whole context: host pools of windows and states are not modelled";
        Error::field("engine", "enable_hierarchical_cache", found, accepted)
    })?;
    let ranks = deployment.parallelism.attention_dp;
    let tokens = if size > 0.0 {
        ((size * 1e9 / token) as u64).saturating_mul(ranks)
    } else {
        (device_tokens as f64 * ratio) as u64
    };
    let page = deployment.engine.block_size;
    let seconds_per_token = token / (rate(deployment).0 * ranks as f64);
    let layers = deployment.model.layers.len() as u64;
    Ok(Some(HostTier { tokens: tokens - tokens % page + page, seconds_per_token, layers }))
}

/// Bytes of a token on the rank with the most; `None` if the bytes of a sequence do not grow linearly with its
/// tokens.
fn token_bytes(deployment: &Deployment) -> Option<f64> {
    let most = |tokens: u64| {
        (0..deployment.stages.len()).map(|stage| sequence_bytes(deployment, stage, tokens).0).max()
    };
    let (one, two) = (most(LONG)?, most(2 * LONG)?);
    (two == 2 * one && one > 0).then(|| one as f64 / LONG as f64)
}

/// Bytes per second in one direction between an accelerator and its host's memory.
fn rate(deployment: &Deployment) -> ByteRate {
    let accelerator = &deployment.accelerator;
    let own = accelerator.link.as_ref().filter(|link| link.topology.is_pcie()).map(|link| link.bytes_per_s);
    let nominal = accelerator.host_link.as_ref().map(|link| link.bytes_per_s).or(own).unwrap_or(HOST_LINK);
    ByteRate(nominal.0 * LINK_SHARE)
}
