//! Routers that weigh caches, on the load of a published comparison: the order of policies by the prompt tokens that
//! they find.

use super::fleets::{deployment, holds};
use roofcast::fleet::OracleHits;
use roofcast::parallelism::RequestedParallelism;
use roofcast::router::Routing;
use roofcast::simulate::{RunOptions, Simulation, simulate};
use roofcast::spec::settings::{Setting, lay};
use roofcast::spec::{EngineSpec, FleetSpec, PoolSpec, RoutingSpec, SchedulerKind};
use roofcast::{Forecaster, Spec};

/// 60 shared prefixes of 2,000 tokens: 120,000 tokens, of which one replica of 2,000 blocks of 16 tokens holds 32,000
/// and four replicas hold all.
fn workload() -> roofcast::workload::Workload {
    let keys = "[workload]\nseed = 3\nrequests = 600\narrivals = { kind = \"poisson\", rate = 12.0 }\ninput_len = 200\n\
                output_len = 20\nprefix = { length = 2000, count = 60, share = 1.0 }\n";
    Spec::parse("test", keys).unwrap().workload.unwrap()
}

fn served(scheduler: SchedulerKind, router: Routing) -> Simulation {
    served_with(scheduler, router, RoutingSpec::default())
}

fn served_with(scheduler: SchedulerKind, router: Routing, routing: RoutingSpec) -> Simulation {
    // SGLang's pages have one token.
    let blocks = if scheduler == SchedulerKind::Sglang { 32_000 } else { 2000 };
    let engine =
        EngineSpec { scheduler: Some(scheduler), num_gpu_blocks: Some(blocks), ..EngineSpec::default() };
    let parallelism = RequestedParallelism { replicas: Some(4), ..RequestedParallelism::default() };
    holds(
        &deployment(parallelism, engine),
        &workload(),
        FleetSpec { router, routing, ..FleetSpec::default() },
    )
}

/// The load with an oracle over `replicas` of `blocks` blocks.
fn with_oracle(scheduler: SchedulerKind, router: Routing, (replicas, blocks): (u64, u64)) -> OracleHits {
    let engine =
        EngineSpec { scheduler: Some(scheduler), num_gpu_blocks: Some(blocks), ..EngineSpec::default() };
    let parallelism = RequestedParallelism { replicas: Some(replicas), ..RequestedParallelism::default() };
    let forecaster = Forecaster::embedded(deployment(parallelism, engine)).unwrap();
    let fleet = FleetSpec { router, ..FleetSpec::default() };
    let spec = Spec { workload: Some(workload()), fleet, ..Spec::default() };
    let options = RunOptions { leap: true, oracle: true, ..RunOptions::default() };
    simulate(&forecaster, &spec, "test", options).unwrap().fleet.oracle.unwrap()
}

/// No router, with any cache size, finds more prompt tokens than the oracle. With room for all 60 prefixes of 2000
/// tokens the oracle misses each once, and finds (600 − 60) × 2000 tokens if all 60 occur.
#[test]
fn no_router_finds_more_than_the_oracle() {
    for router in [Routing::RoundRobin, Routing::LlmD, Routing::Kvaware] {
        for (replicas, blocks) in [(1, 700), (3, 700), (4, 2000)] {
            let hits = with_oracle(SchedulerKind::Vllm, router, (replicas, blocks));
            assert_eq!(hits.prompt_tokens, 600 * 2200);
            assert_eq!(hits.capacity_tokens, replicas * (blocks - 1) * 16);
            assert!(hits.found_tokens <= hits.most_tokens, "{router:?} {replicas} {hits:?}");
        }
    }
    let all = with_oracle(SchedulerKind::Vllm, Routing::LlmD, (4, 2000));
    assert_eq!(all.most_tokens, (600 - 60) * 2000);
    let few = with_oracle(SchedulerKind::Vllm, Routing::LlmD, (1, 700));
    assert!(few.most_tokens < all.most_tokens / 2 && few.found_tokens < few.most_tokens, "{few:?}");
    let tree = with_oracle(SchedulerKind::Sglang, Routing::CacheAware, (4, 20_000));
    assert!(tree.found_tokens <= tree.most_tokens, "{tree:?}");
}

fn found(s: &Simulation) -> f64 {
    let prefixes = s.fleet.prefixes.unwrap();
    prefixes.found_tokens as f64 / prefixes.prompt_tokens as f64
}

/// A policy that follows caches keeps each prefix on few replicas: 15 of the 60 on each, 30,000 of its 32,000 tokens.
/// Round robin spreads all 60 over all four, each of which holds a quarter. Dynamo's cost counts the blocks in use, so
/// that a busy holder loses to an idle replica, and it finds less than the others.
#[test]
fn routers_that_weigh_caches_find_more_than_turns() {
    for scheduler in [SchedulerKind::Vllm, SchedulerKind::Sglang] {
        let turns = served(scheduler, Routing::RoundRobin);
        for router in [Routing::DynamoKv, Routing::LlmD, Routing::CacheAware, Routing::Kvaware] {
            let followed = served(scheduler, router);
            let (more, less) = (found(&followed), found(&turns));
            assert!(more > 1.5 * less, "{scheduler:?} {router:?}: {more} of the prompts, {less} in turns");
            assert!(followed.summary.ttft.mean < turns.summary.ttft.mean, "{scheduler:?} {router:?}");
        }
    }
}

/// The best replica has at least the tokens of the chosen one, and the whole fleet at most all shared tokens.
#[test]
fn the_choice_is_held_beside_the_best() {
    let turns = served(SchedulerKind::Vllm, Routing::RoundRobin);
    let prefixes = turns.fleet.prefixes.unwrap();
    assert_eq!(prefixes.prompt_tokens, 600 * 2200);
    assert!(prefixes.found_tokens < prefixes.most_tokens && prefixes.most_tokens <= 600 * 2000);
}

/// Events that are late by a millisecond, less than a step, cost next to nothing. Events that never arrive leave a
/// router that weighs load alone: llm-d's scorer with a prefix weight of 0, request for request.
#[test]
fn a_late_view_finds_less() {
    let with = |event_delay_s: f64, prefix_cache_weight: f64| {
        let routing = RoutingSpec { event_delay_s, prefix_cache_weight, ..RoutingSpec::default() };
        served_with(SchedulerKind::Vllm, Routing::LlmD, routing)
    };
    let [at_once, soon, never, blind] =
        [(0.0, 3.0), (0.001, 3.0), (1e4, 3.0), (0.0, 0.0)].map(|(s, w)| with(s, w));
    assert!((found(&soon) / found(&at_once) - 1.0).abs() < 0.05, "{} {}", found(&soon), found(&at_once));
    assert!(found(&never) < 0.7 * found(&at_once), "{} {}", found(&never), found(&at_once));
    assert_eq!(never.fleet.prefixes, blind.fleet.prefixes);
    assert_eq!(never.summary.ttft.mean, blind.summary.ttft.mean);
}

#[test]
fn weights_and_places_that_cannot_be_are_refused() {
    let refused = |fleet: FleetSpec| {
        let forecaster =
            Forecaster::embedded(deployment(RequestedParallelism::default(), EngineSpec::default())).unwrap();
        let spec = Spec { workload: Some(workload()), fleet, ..Spec::default() };
        let options = roofcast::simulate::RunOptions::default();
        roofcast::simulate::simulate(&forecaster, &spec, "test", options).unwrap_err().to_string()
    };
    let routing = RoutingSpec { cache_threshold: 1.5, ..RoutingSpec::default() };
    let text = refused(FleetSpec { routing, ..FleetSpec::default() });
    assert!(text.contains("fleet.routing.cache_threshold") && text.contains("1.5"), "{text}");
    let routing = RoutingSpec { event_delay_s: 0.5, ..RoutingSpec::default() };
    let text = refused(FleetSpec { routing, router: Routing::CacheAware, ..FleetSpec::default() });
    assert!(text.contains("fleet.routing.event_delay_s") && text.contains("dynamo_kv"), "{text}");
    let decode = PoolSpec { router: Some(Routing::DynamoKv), ..PoolSpec::default() };
    let text = refused(FleetSpec { decode: Some(decode), ..FleetSpec::default() });
    assert!(text.contains("fleet.decode.router") && text.contains("least_loaded"), "{text}");
}

/// Every router refuses the keys of the others by name, and a router that is set over a file leaves them out.
#[test]
fn keys_of_another_router_are_refused() {
    let keys = [
        ("overlap_score_credit", &["dynamo_kv"][..]),
        ("host_cache_hit_weight", &["dynamo_kv"]),
        ("prefill_load_scale", &["dynamo_kv"]),
        ("decode_active_request_weight", &["dynamo_kv"]),
        ("router_temperature", &["dynamo_kv", "kv_aware"]),
        ("prefix_cache_weight", &["llm_d"]),
        ("host_prefix_cache_weight", &["llm_d"]),
        ("lora_affinity_weight", &["llm_d"]),
        ("queue_weight", &["llm_d"]),
        ("kv_cache_utilization_weight", &["llm_d"]),
        ("cache_threshold", &["cache_aware", "vllm_cache_aware"]),
        ("balance_abs_threshold", &["cache_aware", "vllm_cache_aware"]),
        ("balance_rel_threshold", &["cache_aware", "vllm_cache_aware"]),
        ("kv_aware_threshold", &["kvaware"]),
        ("kv_penalty_host", &["kv_aware"]),
        ("event_delay_s", &["dynamo_kv", "llm_d", "kvaware", "kv_aware", "lmetric"]),
    ];
    let all = keys.map(|(key, _)| format!("{key} = 0.125")).join("\n");
    for router in Routing::ALL {
        let name = router.name();
        for (key, readers) in keys {
            let routing: RoutingSpec = toml::from_str(&format!("{key} = 0.125")).unwrap();
            let answer = routing.check("test", &[router]);
            if readers.contains(&name) {
                assert!(answer.is_ok(), "{name} {key}");
                assert!(routing.check("test", &[Routing::RoundRobin, router]).is_ok(), "{name} {key}");
                continue;
            }
            let error = answer.unwrap_err().to_string();
            for part in [&format!("fleet.routing.{key}`"), "0.125", name, readers[0]] {
                assert!(error.contains(part), "{part} is not in {error}");
            }
        }
        let table: toml::Table = format!("[fleet.routing]\n{all}").parse().unwrap();
        let of_router = lay(table, &[Setting::new("fleet.router", name)]).unwrap();
        let section = of_router["fleet"]["routing"].as_table().unwrap();
        let keys_read = keys.iter().filter(|(_, readers)| readers.contains(&name)).count();
        assert_eq!(section.len(), keys_read, "{name}");
    }
}
