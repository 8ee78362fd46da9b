//! `[fleet]`: how replicas share the traffic.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// `[fleet]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetSpec {
    /// How a replica is chosen for a request.
    pub router: Routing,
    /// Settings of the routers that weigh caches.
    pub routing: RoutingSpec,
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
    /// Replicas that start and stop at planned times.
    pub schedule: Option<ScheduleSpec>,
}

impl FleetSpec {
    /// Names of the accelerators of a fleet; the first is the other kind if there are two: the kind that computes
    /// prompts, or that serves as well, then the kind that decodes. `own` for pools that name none.
    pub fn accelerators<'a>(&'a self, own: Option<&'a str>) -> [Option<&'a str>; 2] {
        let other = self.prefill.as_ref().or(self.beside.as_ref());
        [other, self.decode.as_ref()].map(|pool| pool.and_then(|pool| pool.accelerator.as_deref()).or(own))
    }
}

/// Routing policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// The replicas in turn.
    #[default]
    RoundRobin,
    /// The replica with the fewest requests.
    LeastLoaded,
    /// The less loaded of two at random.
    PowerOfTwo,
    /// The replica that served the prompt's prefix before, unless it has far more requests than the least loaded one.
    PrefixAware,
    /// The replica that served the session before.
    SessionSticky,
    /// Least cost of uncached prompt blocks and blocks in use: NVIDIA Dynamo's KV router.
    DynamoKv,
    /// Highest weighted sum of prefix, queue and KV cache scores: llm-d's inference scheduler.
    LlmD,
    /// Longest prefix sent before while loads are balanced, the shortest queue otherwise: SGLang's model gateway.
    CacheAware,
    /// Longest cached prefix where few tokens are left to compute: vLLM production stack's `kvaware`.
    Kvaware,
}

impl Routing {
    /// Name of the policy in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Routing::RoundRobin => "round_robin",
            Routing::LeastLoaded => "least_loaded",
            Routing::PowerOfTwo => "power_of_two",
            Routing::PrefixAware => "prefix_aware",
            Routing::SessionSticky => "session_sticky",
            Routing::DynamoKv => "dynamo_kv",
            Routing::LlmD => "llm_d",
            Routing::CacheAware => "cache_aware",
            Routing::Kvaware => "kvaware",
        }
    }

    /// True if the policy weighs the cached tokens of replicas (`router::cache`).
    pub fn weighs_caches(self) -> bool {
        matches!(self, Routing::DynamoKv | Routing::LlmD | Routing::CacheAware | Routing::Kvaware)
    }
}

/// `[fleet.routing]`: weights and thresholds of the routers that weigh caches, by each router's own names and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingSpec {
    /// Dynamo: blocks credited for one cached block (`overlap_score_credit`).
    pub overlap_score_credit: f64,
    /// Dynamo: weight of the blocks still to prefill.
    pub prefill_load_scale: f64,
    /// Dynamo: weight of one request in flight, in blocks.
    pub decode_active_request_weight: f64,
    /// Dynamo: 0 takes the least cost; above 0 draws by the softmax of costs over their range.
    pub router_temperature: f64,
    /// llm-d: weight of the cached share of the prompt.
    pub prefix_cache_weight: f64,
    /// llm-d: weight of the shorter queue.
    pub queue_weight: f64,
    /// llm-d: weight of the free share of the KV cache.
    pub kv_cache_utilization_weight: f64,
    /// SGLang's gateway: share of a prompt that must match.
    pub cache_threshold: f64,
    /// SGLang's gateway: requests between the most and the least loaded replica up to which loads are balanced.
    pub balance_abs_threshold: f64,
    /// SGLang's gateway: ratio of these loads up to which they are balanced.
    pub balance_rel_threshold: f64,
    /// vLLM production stack: uncached prompt tokens at most for the choice by cache.
    pub kv_aware_threshold: f64,
}

impl Default for RoutingSpec {
    /// Defaults of Dynamo 1.6.1 (`dynamo-kv-router/src/scheduling/config.rs`), llm-d inference scheduler 520af478
    /// (`pkg/epp/config/loader/defaults.go`), SGLang's model gateway (command line, 2026) and vLLM production stack a6c01db0
    /// (`src/vllm_router/parsers/parser.py`).
    fn default() -> RoutingSpec {
        RoutingSpec {
            overlap_score_credit: 1.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            router_temperature: 0.0,
            prefix_cache_weight: 3.0,
            queue_weight: 2.0,
            kv_cache_utilization_weight: 2.0,
            cache_threshold: 0.3,
            balance_abs_threshold: 64.0,
            balance_rel_threshold: 1.5,
            kv_aware_threshold: 2000.0,
        }
    }
}

impl RoutingSpec {
    /// Refuses weights and thresholds that are negative or not finite.
    ///
    /// # Errors
    /// Names the key, the value found and the accepted ones.
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        let values = [
            ("overlap_score_credit", self.overlap_score_credit, MOST_WEIGHT),
            ("prefill_load_scale", self.prefill_load_scale, MOST_WEIGHT),
            ("decode_active_request_weight", self.decode_active_request_weight, MOST_WEIGHT),
            ("router_temperature", self.router_temperature, MOST_WEIGHT),
            ("prefix_cache_weight", self.prefix_cache_weight, MOST_WEIGHT),
            ("queue_weight", self.queue_weight, MOST_WEIGHT),
            ("kv_cache_utilization_weight", self.kv_cache_utilization_weight, MOST_WEIGHT),
            ("cache_threshold", self.cache_threshold, 1.0),
            ("balance_abs_threshold", self.balance_abs_threshold, 1e9),
            ("balance_rel_threshold", self.balance_rel_threshold, 1e9),
            ("kv_aware_threshold", self.kv_aware_threshold, 1e9),
        ];
        for (key, found, most) in values {
            if !(0.0..=most).contains(&found) {
                let accepted = format!("0 to {most}");
                return Err(Error::field(place, format!("fleet.routing.{key}"), found, accepted));
            }
        }
        Ok(())
    }
}

/// Largest weight of a replica on other accelerators against the fleet's own; the inverse is the smallest.
pub const MOST_WEIGHT: f64 = 1e3;
/// Maximum number of replicas with autoscaling.
const MOST_REPLICAS: u64 = 1024;
/// Maximum of a start-up or idle time in seconds: a day.
const LONGEST_S: f64 = 86_400.0;
/// Minimum of an interval in seconds.
const SHORTEST_S: f64 = 0.001;

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

/// `[fleet.schedule]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Seconds of an interval.
    pub interval_s: f64,
    /// Seconds from the start of a replica until it takes requests: it is started that much earlier.
    #[serde(default)]
    pub startup_s: f64,
    /// Replicas that take requests in each interval; the last number holds after the last interval.
    pub replicas: Vec<u64>,
}

impl ScheduleSpec {
    /// Refuses values that are out of range; `section` names them in errors.
    pub(crate) fn check(&self, place: &str, section: &str) -> Result<()> {
        let refuse = |key: &str, found: String, accepted: String| {
            Err(Error::field(place, format!("{section}.{key}"), found, accepted))
        };
        if !(SHORTEST_S..=LONGEST_S).contains(&self.interval_s) {
            let accepted = format!("{SHORTEST_S} to {LONGEST_S} seconds");
            return refuse("interval_s", self.interval_s.to_string(), accepted);
        }
        if !(0.0..=LONGEST_S).contains(&self.startup_s) {
            return refuse("startup_s", self.startup_s.to_string(), format!("0 to {LONGEST_S} seconds"));
        }
        if self.replicas.is_empty() {
            return refuse(
                "replicas",
                "empty".to_owned(),
                "a number for each interval, as [1, 3, 2]".to_owned(),
            );
        }
        match self.replicas.iter().find(|n| !(1..=MOST_REPLICAS).contains(*n)) {
            Some(n) => refuse("replicas", n.to_string(), format!("numbers from 1 to {MOST_REPLICAS}")),
            None => Ok(()),
        }
    }

    /// Maximum number of replicas.
    pub(crate) fn most(&self) -> u64 {
        self.replicas.iter().copied().max().unwrap_or(1)
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
    pub(crate) fn name(self) -> &'static str {
        match self {
            LinkKind::Nvlink => "nvlink",
            LinkKind::Network => "network",
            LinkKind::Pcie => "pcie",
        }
    }
}
