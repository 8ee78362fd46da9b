//! Use of a fleet in a run: replicas, busy time, scaling and KV transfers of each pool.
//!
//! Knows: fractions of time, board energy and prices, from the times of each replica. Knows nothing about how replicas are
//! provisioned.

use super::TimeShares;
use super::provision::{Provision, ResolvedPool};
use crate::fleet::{Fleet, FoundPrefixes, OracleHits, Scaling};
use serde::Serialize;

/// The replicas of a run, by pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetUse {
    /// Number of accelerators of all replicas.
    pub accelerators: u64,
    /// Replicas that only compute prompts; `None` unless prefill is disaggregated.
    pub prefill: Option<PoolUse>,
    /// All other replicas.
    pub serving: PoolUse,
    /// Replicas on other accelerators that also serve whole requests; `None` without them.
    pub beside: Option<PoolUse>,
    /// KV transfers from prefill to decode replicas; `None` without pools.
    pub transfers: Option<TransferUse>,
    /// Number of replicas over time; `None` without autoscaling.
    pub autoscale: Option<ScalingUse>,
    /// Failures of replicas; absent without `fleet.failures`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailureUse>,
    /// Prompt tokens found in the prefix caches of chosen replicas; `None` if the router had no choice.
    pub prefixes: Option<FoundPrefixes>,
    /// Prompt tokens that an oracle would find; `None` if it was not asked, or for a run with too many blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle: Option<OracleHits>,
}

/// Failures of replicas in a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureUse {
    /// Number of failures.
    pub count: u64,
    /// Number of times that a request of a failed replica was sent again.
    pub retried: u64,
    /// Number of requests that failed with their replica.
    pub lost: u64,
    /// Seconds in which replicas were down, summed over replicas.
    pub down_s: f64,
    /// Fraction of the run in which a replica was up, on average over replicas.
    pub availability: f64,
}

/// Starts and stops of replicas in a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScalingUse {
    /// Seconds that replicas were up, including start-up, summed over replicas.
    pub replica_seconds: f64,
    /// Mean number of replicas over the run.
    pub mean_replicas: f64,
    /// Most replicas that were up at one time.
    pub max_replicas: u64,
    /// Number of replica starts after the initial ones.
    pub started: u64,
    /// Number of replica stops.
    pub stopped: u64,
}

/// Summary of autoscaling in a run of `duration` seconds.
fn scaled(scaling: &Scaling, duration: f64) -> ScalingUse {
    let replica_seconds = (0..scaling.count()).map(|index| scaling.lasted(index).seconds()).sum();
    ScalingUse {
        replica_seconds,
        mean_replicas: if duration > 0.0 { replica_seconds / duration } else { 0.0 },
        max_replicas: scaling.peak as u64,
        started: scaling.started,
        stopped: scaling.stopped,
    }
}

/// Use of the replicas of one pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolUse {
    /// Catalog id of the accelerator.
    pub accelerator: String,
    /// Number of replicas in the pool.
    pub replicas: u64,
    /// Number of accelerators of each replica.
    pub accelerators_each: u64,
    /// Fraction of the replicas' time in which they computed.
    pub busy: f64,
    /// Number of KV blocks of each replica.
    pub blocks: u64,
    /// Dollars per hour of all replicas while they are up; `None` if the price is unknown.
    pub dollars_per_hour: Option<f64>,
    /// Joules: 0.18 of the board power at all times, and the energy of the bytes read and of the FLOPs, at most the board power
    /// while busy; `None` if the power is unknown.
    pub joules: Option<f64>,
}

/// KV transfers between replicas in a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferUse {
    /// Number of KV transfers.
    pub count: u64,
    /// Mean time of a KV transfer on the link in milliseconds, which transfers from one replica to several share.
    pub mean_ms: f64,
    /// Mean time of a KV transfer in milliseconds if each had the link alone.
    pub alone_ms: f64,
}

/// Use of the fleet: its pools, and the fraction of time in which each computed.
pub(super) fn used(provision: &Provision, fleet: &Fleet, times: &[TimeShares], duration: f64) -> FleetUse {
    let scaling = fleet.life.scaling.as_ref().map(|scaling| scaled(scaling, duration));
    let pool = |pool: &ResolvedPool, times: &[TimeShares]| {
        let busy: f64 = times.iter().map(TimeShares::busy_s).sum();
        let idle: f64 = times.iter().map(|t| t.idle_s).sum();
        let chip = pool.chip();
        let each = pool.accelerators() as f64;
        let up = scaling.map_or(times.len() as f64, |s| s.mean_replicas);
        PoolUse {
            accelerator: chip.id.clone(),
            replicas: times.len() as u64,
            accelerators_each: pool.accelerators(),
            busy: if busy > 0.0 { busy / (busy + idle) } else { 0.0 },
            blocks: pool.config.blocks,
            dollars_per_hour: chip.price.as_ref().map(|p| p.usd_per_hour * each * up),
            joules: chip.watts().map(|watts| times.iter().map(|t| each * t.joules(watts)).sum()),
        }
    };
    let (prompts, others) = times.split_at(provision.prefillers() as usize);
    let (serving, beside) = others.split_at(provision.servers(times.len()).len());
    let transfers = fleet.delivery.pools.as_ref().map(|pools| TransferUse {
        count: pools.transfers,
        mean_ms: pools.ended.1.ms() / pools.ended.0.max(1) as f64,
        alone_ms: pools.ended.2.ms() / pools.ended.0.max(1) as f64,
    });
    FleetUse {
        accelerators: (0..times.len()).map(|index| provision.accelerators(index)).sum(),
        prefill: provision.prefill.as_ref().map(|p| pool(p, prompts)),
        serving: pool(&provision.serving, serving),
        beside: provision.beside.as_ref().map(|p| pool(p, beside)),
        transfers,
        autoscale: scaling,
        failures: fleet.life.failures.as_ref().map(|failures| FailureUse {
            count: failures.count,
            retried: failures.retried,
            lost: fleet.results.lost,
            down_s: failures.down.seconds(),
            availability: fleet.life.availability(),
        }),
        prefixes: Some(fleet.watch.prefixes).filter(|prefixes| prefixes.prompt_tokens > 0),
        oracle: fleet.watch.oracle.as_ref().and_then(|oracle| oracle.hits(provision.cached_tokens())),
    }
}
