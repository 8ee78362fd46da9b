//! `[fleet]`: how replicas share the traffic.

use super::autoscale::{AutoscaleSpec, LONGEST_S, MOST_REPLICAS};
use super::failures::{FailuresSpec, SlowSpec};
use super::keys::about;
use super::rate_limit::RateLimitSpec;
use roofcast_facts::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// `[fleet]`: replicas, and how requests are distributed over them.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetSpec {
    #[doc = about!("fleet.router")]
    pub router: Routing,
    /// Settings of the routers that weigh cached prefixes.
    pub routing: RoutingSpec,
    /// Pool of replicas that only compute prompts; requires `decode`.
    pub prefill: Option<PoolSpec>,
    /// Pool of replicas that only decode; requires `prefill`.
    pub decode: Option<PoolSpec>,
    /// Pool of replicas on other accelerators that serve requests like the fleet's own replicas.
    pub beside: Option<PoolSpec>,
    #[doc = about!("fleet.beside_weight")]
    pub beside_weight: Option<f64>,
    #[doc = about!("fleet.link")]
    pub link: Option<LinkKind>,
    #[doc = about!("fleet.max_local_prefill_length")]
    pub max_local_prefill_length: Option<u64>,
    #[doc = about!("fleet.non_cached_tokens")]
    pub non_cached_tokens: Option<u64>,
    /// Autoscaling: replicas that start and stop with the load.
    pub autoscale: Option<AutoscaleSpec>,
    /// Schedule: replicas that start and stop at planned times.
    pub schedule: Option<ScheduleSpec>,
    /// Failures: replicas that lose their requests and restart.
    pub failures: Option<FailuresSpec>,
    /// Replicas that are slower than the others.
    pub slow: Option<SlowSpec>,
    /// Rate limits of a gateway in front of the replicas.
    pub rate_limit: Option<RateLimitSpec>,
}

impl FleetSpec {
    /// Longest prompt in tokens that a decode replica computes itself, by Dynamo's key, or by llm-d's, which states the shortest
    /// of the others (`nonCachedTokens`; 0 hands over none); 0 if every prompt goes to the prefill pool.
    ///
    /// # Errors
    /// Both keys are set, or one of them without pools; `place` names the spec.
    pub fn local_prefill(&self, place: &str) -> Result<u64> {
        let (key, found, longest) = match (self.max_local_prefill_length, self.non_cached_tokens) {
            (None, None) => return Ok(0),
            (Some(_), Some(least)) => {
                let accepted = "omitted beside max_local_prefill_length, which is the same by Dynamo's name";
                return Err(Error::field(place, "fleet.non_cached_tokens", least, accepted));
            }
            (Some(longest), None) => ("fleet.max_local_prefill_length", longest, longest),
            (None, Some(least)) => {
                ("fleet.non_cached_tokens", least, least.checked_sub(1).unwrap_or(u64::MAX))
            }
        };
        match self.prefill {
            Some(_) => Ok(longest),
            None => Err(Error::field(place, key, found, "omitted without fleet.prefill and fleet.decode")),
        }
    }

    /// Routers of the fleet and of its pools.
    pub fn routers(&self) -> Vec<Routing> {
        let pools = [&self.prefill, &self.decode, &self.beside].into_iter().flatten();
        let mut routers = vec![self.router];
        routers.extend(pools.filter_map(|pool| pool.router));
        routers.dedup();
        routers
    }

    /// Catalog ids of the accelerators of a fleet: of the prefill or the `beside` pool, and of the decode pool. `own`
    /// stands for a pool that does not exist or names no accelerator.
    pub fn accelerators<'a>(&'a self, own: Option<&'a str>) -> [Option<&'a str>; 2] {
        let other = self.prefill.as_ref().or(self.beside.as_ref());
        [other, self.decode.as_ref()].map(|pool| pool.and_then(|pool| pool.accelerator.as_deref()).or(own))
    }
}

/// Router policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Replicas in turn.
    #[default]
    RoundRobin,
    /// The replica with the fewest requests in flight.
    LeastLoaded,
    /// The replica with fewer requests in flight of two that are drawn at random.
    PowerOfTwo,
    /// The replica that served the prompt's prefix before, unless it has far more requests than the least loaded
    /// replica.
    PrefixAware,
    /// The replica that served the session before.
    SessionSticky,
    /// The replica with the least cost of uncached prompt blocks and blocks in use: NVIDIA Dynamo's KV router.
    DynamoKv,
    /// The replica with the highest weighted sum of prefix, queue and KV cache scores: llm-d's inference scheduler.
    LlmD,
    /// The replica to which the longest prefix was sent while loads are balanced, else the shortest queue: SGLang's
    /// model gateway.
    CacheAware,
    /// The replica with the longest cached prefix if few tokens remain to compute, else the one with the fewest
    /// requests: vLLM production stack's `kvaware`.
    Kvaware,
    /// The least loaded of the replicas to which the longest prefix was sent while loads are balanced, else the shortest
    /// queue: `cache_aware` of vLLM's router.
    VllmCacheAware,
    /// The replica with the least product of tokens to prefill and requests: `kv_aware` of vLLM's router.
    KvAware,
    /// The replica with the least product of tokens to prefill and requests: the rule of LMetric's paper.
    Lmetric,
}

roofcast_facts::named! { Routing {
    RoundRobin: "round_robin",
    LeastLoaded: "least_loaded",
    PowerOfTwo: "power_of_two",
    PrefixAware: "prefix_aware",
    SessionSticky: "session_sticky",
    DynamoKv: "dynamo_kv",
    LlmD: "llm_d",
    CacheAware: "cache_aware",
    Kvaware: "kvaware",
    VllmCacheAware: "vllm_cache_aware",
    KvAware: "kv_aware",
    Lmetric: "lmetric",
} }

impl Routing {
    /// True if replicas tell the policy by KV events what their caches hold.
    pub fn receives_events(self) -> bool {
        matches!(
            self,
            Routing::DynamoKv | Routing::LlmD | Routing::Kvaware | Routing::KvAware | Routing::Lmetric
        )
    }

    /// True if the policy weighs the cached tokens of replicas (`router::cache`).
    pub fn weighs_caches(self) -> bool {
        self.receives_events() || matches!(self, Routing::CacheAware | Routing::VllmCacheAware)
    }

    /// True if the policy reads the key `key` of `[fleet.routing]`.
    pub fn reads(self, key: &str) -> bool {
        let keys: &[&str] = match self {
            Routing::DynamoKv => &[
                "overlap_score_credit",
                "host_cache_hit_weight",
                "prefill_load_scale",
                "decode_active_request_weight",
                "router_temperature",
            ],
            Routing::LlmD => &[
                "prefix_cache_weight",
                "host_prefix_cache_weight",
                "lora_affinity_weight",
                "queue_weight",
                "kv_cache_utilization_weight",
            ],
            Routing::CacheAware | Routing::VllmCacheAware => {
                &["cache_threshold", "balance_abs_threshold", "balance_rel_threshold"]
            }
            Routing::Kvaware => &["kv_aware_threshold"],
            Routing::KvAware => &["kv_penalty_host", "router_temperature"],
            _ => &[],
        };
        keys.contains(&key) || key == "event_delay_s" && self.receives_events()
    }
}

/// `[fleet.routing]`: weights and thresholds of the routers that weigh cached prefixes, by each router's own names and
/// defaults.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingSpec {
    #[doc = about!("fleet.routing.overlap_score_credit")]
    pub overlap_score_credit: f64,
    #[doc = about!("fleet.routing.host_cache_hit_weight")]
    pub host_cache_hit_weight: f64,
    #[doc = about!("fleet.routing.prefill_load_scale")]
    pub prefill_load_scale: f64,
    #[doc = about!("fleet.routing.decode_active_request_weight")]
    pub decode_active_request_weight: f64,
    #[doc = about!("fleet.routing.router_temperature")]
    pub router_temperature: f64,
    #[doc = about!("fleet.routing.prefix_cache_weight")]
    pub prefix_cache_weight: f64,
    #[doc = about!("fleet.routing.host_prefix_cache_weight")]
    pub host_prefix_cache_weight: f64,
    #[doc = about!("fleet.routing.lora_affinity_weight")]
    pub lora_affinity_weight: f64,
    #[doc = about!("fleet.routing.queue_weight")]
    pub queue_weight: f64,
    #[doc = about!("fleet.routing.kv_cache_utilization_weight")]
    pub kv_cache_utilization_weight: f64,
    #[doc = about!("fleet.routing.cache_threshold")]
    pub cache_threshold: f64,
    #[doc = about!("fleet.routing.balance_abs_threshold")]
    pub balance_abs_threshold: f64,
    #[doc = about!("fleet.routing.balance_rel_threshold")]
    pub balance_rel_threshold: f64,
    #[doc = about!("fleet.routing.kv_aware_threshold")]
    pub kv_aware_threshold: f64,
    #[doc = about!("fleet.routing.kv_penalty_host")]
    pub kv_penalty_host: f64,
    #[doc = about!("fleet.routing.event_delay_s")]
    pub event_delay_s: f64,
}

impl Default for RoutingSpec {
    /// Defaults of Dynamo 1.6.1 (`dynamo-kv-router/src/scheduling/config.rs`), llm-d inference scheduler 520af478
    /// (`pkg/epp/config/loader/defaults.go`), SGLang's model gateway (command line, 2026), vLLM production stack a6c01db0
    /// (`src/vllm_router/parsers/parser.py`) and vLLM's router 0.1.17 (`py_src/vllm_router/router_args.py`).
    fn default() -> RoutingSpec {
        RoutingSpec {
            overlap_score_credit: 1.0,
            host_cache_hit_weight: 0.75,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            router_temperature: 0.0,
            prefix_cache_weight: 3.0,
            host_prefix_cache_weight: 0.0,
            lora_affinity_weight: 0.0,
            queue_weight: 2.0,
            kv_cache_utilization_weight: 2.0,
            cache_threshold: 0.3,
            balance_abs_threshold: 64.0,
            balance_rel_threshold: 1.5,
            kv_aware_threshold: 2000.0,
            kv_penalty_host: 0.8,
            event_delay_s: 0.0,
        }
    }
}

impl RoutingSpec {
    /// Refuses weights and thresholds that are negative or not finite, and those that none of `routers` reads, unless they
    /// are the defaults.
    ///
    /// # Errors
    /// The error names the key, the value found and the accepted values.
    pub fn check(&self, place: &str, routers: &[Routing]) -> Result<()> {
        for ((key, found, most), (_, default, _)) in self.values().into_iter().zip(Self::default().values()) {
            let refuse =
                |accepted: String| Err(Error::field(place, format!("fleet.routing.{key}"), found, accepted));
            if !(0.0..=most).contains(&found) {
                return refuse(format!("0 to {most}"));
            }
            if found != default && !routers.iter().any(|router| router.reads(key)) {
                let names = |routers: Vec<Routing>, by: &str| {
                    routers.into_iter().map(Routing::name).collect::<Vec<_>>().join(by)
                };
                let readers = Routing::ALL.into_iter().filter(|router| router.reads(key)).collect();
                let router = names(routers.to_vec(), "\", \"");
                return refuse(format!(
                    "omitted with router = \"{router}\", which does not read it; {} can",
                    names(readers, " or ")
                ));
            }
        }
        Ok(())
    }

    /// The keys, each with its value and the largest one.
    fn values(&self) -> [(&'static str, f64, f64); 16] {
        [
            ("overlap_score_credit", self.overlap_score_credit, MOST_WEIGHT),
            ("host_cache_hit_weight", self.host_cache_hit_weight, MOST_WEIGHT),
            ("host_prefix_cache_weight", self.host_prefix_cache_weight, MOST_WEIGHT),
            ("prefill_load_scale", self.prefill_load_scale, MOST_WEIGHT),
            ("decode_active_request_weight", self.decode_active_request_weight, MOST_WEIGHT),
            ("router_temperature", self.router_temperature, MOST_WEIGHT),
            ("prefix_cache_weight", self.prefix_cache_weight, MOST_WEIGHT),
            ("lora_affinity_weight", self.lora_affinity_weight, MOST_WEIGHT),
            ("queue_weight", self.queue_weight, MOST_WEIGHT),
            ("kv_cache_utilization_weight", self.kv_cache_utilization_weight, MOST_WEIGHT),
            ("cache_threshold", self.cache_threshold, 1.0),
            ("balance_abs_threshold", self.balance_abs_threshold, 1e9),
            ("balance_rel_threshold", self.balance_rel_threshold, 1e9),
            ("kv_aware_threshold", self.kv_aware_threshold, 1e9),
            ("kv_penalty_host", self.kv_penalty_host, 1.0),
            ("event_delay_s", self.event_delay_s, LONGEST_S),
        ]
    }
}

/// Largest weight of a replica on other accelerators relative to an own replica; the smallest weight is the inverse.
pub const MOST_WEIGHT: f64 = 1e3;
/// Shortest interval of a schedule in seconds.
const SHORTEST_S: f64 = 0.001;

/// `[fleet.schedule]`: numbers of replicas over time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    #[doc = about!("fleet.schedule.interval_s")]
    pub interval_s: f64,
    #[doc = about!("fleet.schedule.startup_s")]
    #[serde(default)]
    pub startup_s: f64,
    #[doc = about!("fleet.schedule.replicas")]
    pub replicas: Vec<u64>,
}

impl ScheduleSpec {
    /// Refuses values that are out of range; `section` names them in errors.
    pub fn check(&self, place: &str, section: &str) -> Result<()> {
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

    /// Largest number of replicas in the schedule.
    pub fn most(&self) -> u64 {
        self.replicas.iter().copied().max().unwrap_or(1)
    }
}

/// A pool of equal replicas: one of the tables `prefill`, `decode` and `beside` of `[fleet]`. Absent keys default to
/// `[parallelism]` and `[engine]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSpec {
    #[doc = about!("fleet.decode.accelerator")]
    pub accelerator: Option<String>,
    #[doc = about!("fleet.decode.replicas")]
    pub replicas: Option<u64>,
    #[doc = about!("fleet.decode.router")]
    pub router: Option<Routing>,
    #[doc = about!("fleet.decode.tp")]
    pub tp: Option<u64>,
    #[doc = about!("fleet.decode.pp")]
    pub pp: Option<u64>,
    #[doc = about!("fleet.decode.ep")]
    pub ep: Option<u64>,
    #[doc = about!("fleet.decode.attention_dp")]
    pub attention_dp: Option<u64>,
    #[doc = about!("fleet.decode.max_num_seqs")]
    pub max_num_seqs: Option<u64>,
    #[doc = about!("fleet.decode.max_num_batched_tokens")]
    pub max_num_batched_tokens: Option<u64>,
    #[doc = about!("fleet.decode.num_gpu_blocks")]
    pub num_gpu_blocks: Option<u64>,
}

/// Links between accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// Link within a node: the accelerator's `link`.
    Nvlink,
    /// Link between nodes: the accelerator's `network`.
    Network,
    /// PCIe link, through the host.
    Pcie,
}

roofcast_facts::named! { LinkKind {
    Nvlink: "nvlink",
    Network: "network",
    Pcie: "pcie",
} }
