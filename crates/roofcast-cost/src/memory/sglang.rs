//! SGLang's pool of recurrent states, kept in addition to its cache of keys and values, and the number of running
//! requests that the pool allows.
//!
//! Knows: `states = room × ratio/(1 + ratio) / bytes of a state`, with `mamba_full_memory_ratio`. With the radix
//! cache a running request holds three states (its own, and two that the tree may keep), and up to two more as
//! buffers of an overlapping schedule; without the cache it holds one. Drafts need a snapshot for every draft token.
//! Knows nothing about the tree. The padding slot of 0.5.18 and later, one state of hundreds, is not counted.
//!
//! Sources: `handle_max_mamba_cache` and `_calculate_mamba_ratio` of `model_runner.py` in SGLang 0.5.4 to 0.5.6,
//! `model_runner_kv_cache_mixin.py` in 0.5.7 to 0.5.15, `mem_cache/kv_cache_configurator.py` in 0.5.16 to 0.5.23;
//! `_mamba_radix_cache_resolution` of `arg_groups/overrides.py` in 0.5.23, `server_args.py` before.

use super::parts;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{EngineKind, MambaStrategy, Release};
use roofcast_facts::units::Bytes;

/// Number of states that a running request holds with a radix cache.
const HELD: u64 = 3;
/// Default bound on running requests under speculative decoding (`server_args.py`, 0.5.9).
const WITH_DRAFTS: u64 = 48;

/// First version of SGLang that buffers states by default, so that schedules may overlap.
const BUFFERS: &str = "0.5.14";
/// First version of SGLang that buffers Kimi Linear's states by default.
const BUFFERS_KDA: &str = "0.5.18";
/// First version of SGLang that reserves snapshots per running request; earlier versions reserve them per state.
const SNAPSHOTS_BY_REQUEST: &str = "0.5.7";
/// First version of SGLang that takes the memory of snapshots from the states' part of the room.
const SNAPSHOTS_SHARE: &str = "0.5.13";

/// Pool of recurrent states of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankStatePool {
    /// Bytes of states and of the snapshots for drafts.
    pub(super) bytes: Bytes,
    /// Maximum number of running requests.
    pub(super) requests: u64,
}

/// Pool on a rank of `stage` that has `room` bytes for states, keys and values; `None` if no layer has a state, or if
/// no layer caches keys and values.
pub(super) fn pool(deployment: &Deployment, stage: usize, room: Bytes) -> Option<RankStatePool> {
    let engine = &deployment.engine;
    if !pools(deployment) {
        return None;
    }
    let state = state_bytes(deployment, stage);
    if state == Bytes::ZERO {
        return None;
    }
    let ranks = deployment.parallelism.attention_dp;
    let drafted = engine.speculative.as_ref().map_or(0, |s| s.num_speculative_tokens + 1);
    let bound = engine.requested.max_num_seqs.or((drafted > 0).then_some(WITH_DRAFTS));
    let running = bound.map(|bound| (bound / ranks).max(1));
    let each = states_of_a_request(deployment);
    let state_count = match engine.states.max_mamba_cache_size {
        Some(states) => Some(states / ranks),
        None => running.filter(|_| !engine.states.keeps_radix_cache),
    };
    let ratio = engine.states.mamba_full_memory_ratio;
    let share = room.as_f64() * ratio / (1.0 + ratio) / state.as_f64();
    let snapshots = |states: u64| match running {
        Some(running) if engine.is_since(SNAPSHOTS_SHARE) => running.min(states / each) * drafted,
        Some(running) if engine.is_since(SNAPSHOTS_BY_REQUEST) => running * drafted,
        _ => states * drafted,
    };
    let by_memory = || {
        let of_drafts = drafted as f64;
        let states = if engine.is_since(SNAPSHOTS_SHARE) {
            share / (1.0 + of_drafts / each as f64)
        } else if engine.is_since(SNAPSHOTS_BY_REQUEST) {
            let reserved = (running.unwrap_or(0) * drafted) as f64;
            share - reserved * ratio / (1.0 + ratio)
        } else {
            share / (1.0 + of_drafts)
        };
        states.max(0.0) as u64
    };
    let states = state_count.unwrap_or_else(by_memory);
    Some(RankStatePool { bytes: state * (states + snapshots(states)), requests: states / each })
}

/// True if SGLang keeps states apart from keys and values, which some layer caches.
pub(super) fn pools(deployment: &Deployment) -> bool {
    let mut blocks = deployment.stages.iter().flat_map(|s| &s.blocks);
    deployment.engine.kind() == EngineKind::Sglang
        && !deployment.ideal
        && blocks.any(|(block, _)| block.mixer.kv_elements(1) > 0)
}

/// Bytes of the states of one request in all layers on a rank.
pub(super) fn state_bytes(deployment: &Deployment, stage: usize) -> Bytes {
    let blocks = deployment.stages.get(stage).map(|s| s.blocks.as_slice()).unwrap_or_default();
    blocks.iter().fold(Bytes::ZERO, |all, (block, layers)| {
        let whole = block.mixer.recurrence().map_or(0, |state| state.bytes);
        let rank_bytes = whole.div_ceil(u128::from(parts(deployment, &block.mixer).state));
        all + Bytes(u64::try_from(rank_bytes).unwrap_or(u64::MAX)) * *layers
    })
}

/// Number of states that a running request holds.
fn states_of_a_request(deployment: &Deployment) -> u64 {
    let engine = &deployment.engine;
    if !engine.states.keeps_radix_cache {
        return 1;
    }
    let overlaps = engine.states.overlaps;
    match engine.states.mamba_radix_cache_strategy {
        MambaStrategy::NoBuffer => HELD,
        MambaStrategy::ExtraBufferLazy => HELD + 1,
        MambaStrategy::ExtraBuffer => HELD + if overlaps { 2 } else { 1 },
        MambaStrategy::Auto if buffers(&engine.release, &deployment.model.architecture) && overlaps => {
            HELD + 2
        }
        MambaStrategy::Auto => HELD,
    }
}

/// True if the release buffers states of `architecture` by default.
fn buffers(release: &Release, architecture: &str) -> bool {
    let first = match architecture {
        "lfm2" | "lfm2_moe" | "jet_nemotron" => return false,
        "kimi_linear" => BUFFERS_KDA,
        _ => BUFFERS,
    };
    release.is_since(first)
}
