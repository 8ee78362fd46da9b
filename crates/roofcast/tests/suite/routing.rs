//! Routers that weigh caches, on the load of a published comparison: the order of policies by the prompt tokens that
//! they find.

use super::fleets::{deployment, holds};
use roofcast::parallelism::RequestedParallelism;
use roofcast::router::Routing;
use roofcast::simulate::Simulation;
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
    // SGLang's pages have one token.
    let blocks = if scheduler == SchedulerKind::Sglang { 32_000 } else { 2000 };
    let engine =
        EngineSpec { scheduler: Some(scheduler), num_gpu_blocks: Some(blocks), ..EngineSpec::default() };
    let parallelism = RequestedParallelism { replicas: Some(4), ..RequestedParallelism::default() };
    holds(&deployment(parallelism, engine), &workload(), FleetSpec { router, ..FleetSpec::default() })
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
    let decode = PoolSpec { router: Some(Routing::DynamoKv), ..PoolSpec::default() };
    let text = refused(FleetSpec { decode: Some(decode), ..FleetSpec::default() });
    assert!(text.contains("fleet.decode.router") && text.contains("least_loaded"), "{text}");
}
