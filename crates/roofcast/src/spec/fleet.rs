//! `[fleet]`: how replicas share the traffic.

use crate::error::{Error, Result};
use crate::router::Routing;
use serde::{Deserialize, Serialize};

/// `[fleet]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetSpec {
    /// How a replica is chosen for a request.
    pub router: Routing,
    /// Replicas that compute prompts alone; `decode` goes with it.
    pub prefill: Option<PoolSpec>,
    /// Replicas that decode alone.
    pub decode: Option<PoolSpec>,
    /// Replicas on other accelerators that serve the same requests.
    pub beside: Option<PoolSpec>,
    /// Requests that each of these gets for one that each of the others gets; 1 where absent.
    pub beside_weight: Option<f64>,
    /// Over what caches travel from prefill to decode.
    pub link: Option<LinkKind>,
    /// Replicas that start and stop with the load.
    pub autoscale: Option<AutoscaleSpec>,
}

impl FleetSpec {
    /// Names of the accelerators of a fleet; the first is the other kind if there are two: the kind that computes
    /// prompts, or that serves as well, then the kind that decodes. `own` for pools that name none.
    pub fn accelerators<'a>(&'a self, own: Option<&'a str>) -> [Option<&'a str>; 2] {
        let other = self.prefill.as_ref().or(self.beside.as_ref());
        [other, self.decode.as_ref()].map(|pool| pool.and_then(|pool| pool.accelerator.as_deref()).or(own))
    }
}

/// Largest weight of a replica on other accelerators against the fleet's own; the inverse is the smallest.
pub const MOST_WEIGHT: f64 = 1e3;
/// Maximum number of replicas with autoscaling.
const MOST_REPLICAS: u64 = 1024;
/// Maximum of a start-up or idle time in seconds: a day.
const LONGEST_S: f64 = 86_400.0;

/// `[fleet.autoscale]`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscaleSpec {
    /// Requests that a replica should have, waiting or running.
    pub target_in_flight: u64,
    /// Replicas that are always up.
    #[serde(default = "one")]
    pub min_replicas: u64,
    /// Replicas at most.
    pub max_replicas: u64,
    /// Seconds from the start of a replica until it takes requests.
    pub startup_s: f64,
    /// Seconds without a request after which a replica stops.
    pub idle_s: f64,
}

fn one() -> u64 {
    1
}

impl AutoscaleSpec {
    /// Refuses values that are out of range.
    pub fn check(&self, place: &str) -> Result<()> {
        let counts = [
            ("target_in_flight", self.target_in_flight, 1 << 20),
            ("max_replicas", self.max_replicas, MOST_REPLICAS),
            ("min_replicas", self.min_replicas, self.max_replicas),
        ];
        for (key, found, most) in counts {
            if !(1..=most).contains(&found) {
                let accepted = format!("1 to {most}");
                return Err(Error::field(place, format!("fleet.autoscale.{key}"), found, accepted));
            }
        }
        for (key, found) in [("startup_s", self.startup_s), ("idle_s", self.idle_s)] {
            if !(0.0..=LONGEST_S).contains(&found) {
                let accepted = format!("0 to {LONGEST_S} seconds");
                return Err(Error::field(place, format!("fleet.autoscale.{key}"), found, accepted));
            }
        }
        Ok(())
    }
}

/// `[fleet.prefill]`, `[fleet.decode]` and `[fleet.beside]`: equal replicas; missing keys are taken from
/// `[parallelism]` and `[engine]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSpec {
    /// On what, as `hardware.accelerator`, which holds where this is absent.
    pub accelerator: Option<String>,
    /// How many.
    pub replicas: Option<u64>,
    /// How one of them is chosen for a request; as in `[fleet]` where absent.
    pub router: Option<Routing>,
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Pipeline stages.
    pub pp: Option<u64>,
    /// Expert-parallel ranks.
    pub ep: Option<u64>,
    /// Data parallelism of attention.
    pub attention_dp: Option<u64>,
    /// Sequences that run at once.
    pub max_num_seqs: Option<u64>,
    /// Tokens that one step computes at most.
    pub max_num_batched_tokens: Option<u64>,
    /// KV blocks.
    pub num_gpu_blocks: Option<u64>,
}

/// Links between accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// Within a node: the accelerator's `link`.
    Nvlink,
    /// Between nodes: the accelerator's `network`.
    Network,
    /// Through the host.
    Pcie,
}

impl LinkKind {
    /// Name of the value in a spec.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Nvlink => "nvlink",
            LinkKind::Network => "network",
            LinkKind::Pcie => "pcie",
        }
    }
}
