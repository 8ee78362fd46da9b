//! Replicas that are more than one accelerator, and fleets that are more than equal replicas.

use super::engine::{records, same, schedulers, served, workloads};
use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::Spec;
use roofcast::deployment::{Deployment, Options};
use roofcast::parallelism::Request;
use roofcast::router::Routing;
use roofcast::simulate::{self, Simulation, simulate};
use roofcast::spec::{EngineSpec, FleetSpec, LinkKind, PoolSpec};
use roofcast::workload::Workload;
use std::sync::Arc;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

fn deployment(parallelism: Request, engine: EngineSpec) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let options = Options { parallelism, engine, ..Options::default() };
    Deployment::resolve(model(LLAMA), accelerator, &options).unwrap()
}

/// What came of a workload, with its records.
fn run(deployment: &Deployment, workload: &Workload, fleet: FleetSpec, leap: bool) -> Simulation {
    let spec = Spec { workload: Some(workload.clone()), fleet, ..Spec::default() };
    let options = simulate::Options { leap, records: true, ..simulate::Options::default() };
    simulate(deployment, &spec, "test", options).unwrap()
}

/// Stepping, leaping and leaping again are the same, nothing is lost, and every token is paid for.
fn holds(deployment: &Deployment, workload: &Workload, fleet: FleetSpec) -> Simulation {
    let all = [false, true, true].map(|leap| run(deployment, workload, fleet, leap));
    let [stepping, leaping, again] = &all;
    for (one, other) in [(stepping, leaping), (leaping, again)] {
        same(&one.records, &other.records);
        assert_eq!(one.activity, other.activity);
        assert_eq!((one.kv_cache, one.time, one.fleet), (other.kv_cache, other.time, other.fleet));
        assert_eq!(one.summary, other.summary);
    }
    let records = &leaping.records;
    assert!(records.iter().map(|r| r.id).eq(0..workload.requests.unwrap()));
    let tokens: u64 =
        records.iter().filter_map(|r| r.first_token.map(|_| r.input_len + r.output_len - 1)).sum();
    let a = &leaping.activity;
    assert_eq!(a.scheduled_tokens + a.cached_tokens, tokens + a.recomputed_tokens + a.idle_tokens);
    for record in records.iter().filter(|r| r.first_token.is_some()) {
        let first = record.first_token.unwrap();
        assert!(record.sent < first && first <= record.finished, "{}", record.to_line());
    }
    let [_, leaping, _] = all;
    leaping
}

fn pools() -> impl Strategy<Value = FleetSpec> {
    let router =
        || proptest::sample::select(vec![Routing::RoundRobin, Routing::LeastLoaded, Routing::PowerOfTwo]);
    let pool = || {
        (1_u64..4, router(), 1_u64..20, 300_u64..800, 60_u64..300).prop_map(
            |(replicas, router, seqs, budget, blocks)| PoolSpec {
                replicas: Some(replicas),
                router: Some(router),
                max_num_seqs: Some(seqs),
                max_num_batched_tokens: Some(budget),
                num_gpu_blocks: Some(blocks),
                ..PoolSpec::default()
            },
        )
    };
    let link = proptest::sample::select(vec![LinkKind::Nvlink, LinkKind::Network, LinkKind::Pcie]);
    (pool(), pool(), link).prop_map(|(prefill, decode, link)| FleetSpec {
        prefill: Some(prefill),
        decode: Some(decode),
        link: Some(link),
        ..FleetSpec::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping_through_stages(workload in workloads(), spec in schedulers(), pp in 2_u64..5) {
        let deployment = deployment(Request { pp: Some(pp), ..Request::default() }, spec);
        let (stepping, leaping) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
        same(records(&stepping), records(&leaping));
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, &a.itl, &a.decodes, a.mixed), (b.steps, &b.itl, &b.decodes, b.mixed));
    }

    #[test]
    fn pools_lose_nothing(workload in workloads(), fleet in pools()) {
        let deployment = deployment(Request::default(), EngineSpec::default());
        let run = holds(&deployment, &workload, fleet);
        // Whoever has more than one token was handed over, once.
        let handed = run.records.iter().filter(|r| r.first_token.is_some() && r.output_len > 1).count();
        prop_assert_eq!(run.fleet.transfers.unwrap().count, handed as u64);
    }
}
