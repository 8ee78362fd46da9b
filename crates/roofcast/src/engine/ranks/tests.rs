//! Tests of ranks: one rank equals an engine alone, nothing is lost, ranks step together, and their prices.

use super::*;
use crate::deployment::{Deployment, DeploymentOptions};
use crate::engine::price::StepPrices;
use crate::engine::{one, replica};
use crate::fleet::results::Results;
use crate::fleet::{Fleet, QueueOrder};
use crate::forecaster::Forecaster;
use crate::parallelism::RequestedParallelism;
use crate::record::Record;
use crate::router::{Router, Routing};
use crate::scheduler::config::{Balance, EngineConfig};
use crate::spec::{CostKind, EngineSpec, SchedulerKind, Slo};
use crate::workload::{Arrivals, Length, LengthKind, Prefix, Traffic, Workload};
use proptest::prelude::*;
use std::sync::Arc;

const EXPERTS: &str = "Qwen/Qwen3-30B-A3B";
const DENSE: &str = "meta-llama/Llama-3.1-8B-Instruct";

fn forecaster(model: &str, ranks: u64, engine: EngineSpec) -> Forecaster {
    let catalog = crate::Catalog::embedded().unwrap();
    let entry = catalog.model(model).unwrap();
    let model = crate::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
    let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
    let parallelism =
        RequestedParallelism { tp: Some(1), attention_dp: Some(ranks), ..RequestedParallelism::default() };
    let options = DeploymentOptions { engine, parallelism, ..DeploymentOptions::default() };
    Forecaster::embedded(Deployment::resolve(model.into(), chip, &options).unwrap()).unwrap()
}

fn small(scheduler: SchedulerKind, blocks: u64, cost: CostKind) -> EngineSpec {
    let size = if scheduler == SchedulerKind::Sglang { 1 } else { 16 };
    EngineSpec {
        scheduler: Some(scheduler),
        name: (scheduler == SchedulerKind::Sglang).then(|| "sglang".to_owned()),
        num_gpu_blocks: Some(blocks * 16 / size),
        max_num_seqs: Some(16),
        cost,
        ..EngineSpec::default()
    }
}

fn serve(replica: Box<dyn Replica>, workload: &Workload) -> Fleet {
    let results = Results::new(Slo::default(), true, None);
    let mut fleet =
        Fleet::new(vec![replica], Router::new(Routing::RoundRobin, 0), QueueOrder::Arrival, results);
    fleet.serve(&mut Traffic::new(workload, "test").unwrap()).unwrap();
    fleet
}

fn records(fleet: &Fleet) -> &[Record] {
    fleet.results.records.as_ref().unwrap()
}

fn workload(requests: u64, seed: u64, arrivals: Arrivals) -> Workload {
    Workload {
        requests: Some(requests),
        seed,
        input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 400 }),
        output_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 120 }),
        prefix: Some(Prefix { length: 64, count: 2, share: 0.5, skew: 0.0 }),
        priorities: Vec::new(),
        max_tokens: None,
        max_concurrency: None,
        arrivals,
    }
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        (20.0_f64..400.0).prop_map(|rate| Arrivals::Poisson { rate }),
        (1_u64..40).prop_map(|concurrency| Arrivals::ClosedLoop {
            concurrency,
            think_s: None,
            ramp_s: None,
            turn_round_s: None
        }),
    ]
}

fn schedulers() -> impl Strategy<Value = SchedulerKind> {
    prop::sample::select(vec![SchedulerKind::Vllm, SchedulerKind::Sglang])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A replica with one rank gives every request the times of an engine alone, to the last tick.
    #[test]
    fn one_rank_is_the_engine(
        arrivals in arrivals(), scheduler in schedulers(), seed in any::<u64>(), leap in any::<bool>(),
        shared in any::<bool>(), blocks in 60_u64..200,
    ) {
        let forecaster = forecaster(EXPERTS, 1, small(scheduler, blocks, CostKind::Forecast));
        let (config, policy) = EngineConfig::resolve(&forecaster.deployment, 300, true).unwrap();
        let alone = replica(&forecaster, (config.clone(), policy.clone()), 300, seed, leap).unwrap();
        let timing = forecaster.timing(config.cost).of_rank();
        let price = StepPrices::new(timing.clone());
        let settings = RankSettings { count: 1, balance: Balance::Score, shared };
        let config = EngineConfig { ranks: Some(settings), ..config };
        let rank = one(&forecaster, (config, policy), price, (300, seed), leap).unwrap();
        let ranked = Ranks::new(vec![rank], settings, timing);
        let load = workload(60, seed, arrivals);
        let (alone, ranked) = (serve(alone, &load), serve(Box::new(ranked), &load));
        prop_assert_eq!(records(&alone), records(&ranked));
        let (a, b) = (alone.replicas[0].tally(), ranked.replicas[0].tally());
        prop_assert_eq!((a.steps, a.running_steps, a.running_peak), (b.steps, b.running_steps, b.running_peak));
        prop_assert_eq!((a.token_steps, a.slack_steps, a.cached_tokens), (b.token_steps, b.slack_steps, b.cached_tokens));
        prop_assert_eq!((a.itl.count(), a.preemptions, a.decode_steps), (b.itl.count(), b.preemptions, b.decode_steps));
    }

    /// Every request ends once, every token is computed, every block returns, and visiting every sequence in each step
    /// gives equal times.
    #[test]
    fn nothing_is_lost_between_ranks(
        arrivals in arrivals(), scheduler in schedulers(), seed in any::<u64>(), ranks in 2_u64..5,
        model in prop::sample::select(vec![EXPERTS, DENSE]), blocks in 60_u64..200,
    ) {
        let forecaster = forecaster(model, ranks, small(scheduler, blocks, CostKind::Limit));
        let load = workload(80, seed, arrivals);
        let run = |leap| {
            let settings = EngineConfig::resolve(&forecaster.deployment, 300, true).unwrap();
            serve(replica(&forecaster, settings, 300, seed, leap).unwrap(), &load)
        };
        let (leaping, stepping) = (run(true), run(false));
        prop_assert_eq!(records(&leaping), records(&stepping));
        prop_assert!(records(&leaping).iter().map(|r| r.id).eq(0..80));
        prop_assert_eq!(leaping.results.completed, 80);
        let tally = leaping.replicas[0].tally();
        let served: u64 = records(&leaping).iter().map(|r| r.input_len + r.output_len - 1).sum();
        prop_assert_eq!(
            tally.scheduled_tokens + tally.cached_tokens,
            served + tally.recomputed_tokens + tally.idle_tokens
        );
        prop_assert!(leaping.replicas[0].is_empty());
        if scheduler == SchedulerKind::Vllm {
            prop_assert_eq!(leaping.replicas[0].blocks().0, 0);
        }
    }

    /// Ranks that share experts end every step at one time; a request leaves the rank that it came to, and holds blocks
    /// on no other.
    #[test]
    fn ranks_step_together(
        scheduler in schedulers(), inputs in prop::collection::vec((1_u32..500, 1_u32..60, 0_u64..50), 1..40),
        leap in any::<bool>(),
    ) {
        let forecaster = forecaster(EXPERTS, 3, small(scheduler, 200, CostKind::Forecast));
        let mut ranks = ranks_of(&forecaster, leap);
        let (mut came, mut departed) = (Vec::new(), Vec::new());
        for (number, (input, output, steps)) in inputs.into_iter().enumerate() {
            let before: Vec<u64> = ranks.ranks.iter().map(|rank| rank.in_flight()).collect();
            let at = ranks.clock();
            let arrival = Arrival { number: number as u64, at, sent: at, input, output, max_tokens: output, ..Arrival::default() };
            if ranks.is_empty() {
                ranks.wait_until(at);
            }
            ranks.arrive(arrival, Prompt::Own);
            came.push(ranks.ranks.iter().zip(before).position(|(rank, before)| rank.in_flight() > before).unwrap());
            for _ in 0..steps {
                ranks.step(Ticks::NEVER, &mut departed);
                prop_assert!(ranks.ranks.iter().all(|rank| rank.clock() == ranks.clock));
                for (index, rank) in ranks.ranks.iter().enumerate().filter(|(_, rank)| rank.is_empty()) {
                    prop_assert!(scheduler == SchedulerKind::Sglang || rank.blocks().0 == 0, "rank {index}");
                }
            }
        }
        while !ranks.is_empty() {
            prop_assert!(ranks.step(Ticks::NEVER, &mut departed));
        }
        prop_assert_eq!(departed.len(), came.len());
        for gone in departed {
            prop_assert_eq!((gone.id % 3) as usize, came[gone.arrival.number as usize]);
        }
    }
}

fn ranks_of(forecaster: &Forecaster, leap: bool) -> Ranks {
    let (config, policy) = EngineConfig::resolve(&forecaster.deployment, 300, false).unwrap();
    let timing = forecaster.timing(config.cost).of_rank();
    let rank = |_| {
        let price = StepPrices::new(timing.clone());
        one(forecaster, (config.clone(), policy.clone()), price, (300, 1), leap).unwrap()
    };
    let settings = config.ranks.unwrap();
    Ranks::new((0..settings.count).map(rank).collect(), settings, timing)
}

/// Two requests come to two idle ranks of vLLM. Each has the queue, the limits and the cache of an engine: 16 sequences,
/// 8192 tokens, 100 blocks less the null block.
#[test]
fn each_rank_has_limits_of_its_own() {
    let forecaster = forecaster(EXPERTS, 2, small(SchedulerKind::Vllm, 100, CostKind::Limit));
    let (config, _) = EngineConfig::resolve(&forecaster.deployment, 300, false).unwrap();
    assert_eq!((config.blocks, config.max_num_seqs, config.max_num_batched_tokens), (99, 16, 8192));
    let mut ranks = ranks_of(&forecaster, true);
    for number in 0..2 {
        ranks.arrive(
            Arrival { number, input: 30, output: 4, max_tokens: 4, ..Arrival::default() },
            Prompt::Own,
        );
    }
    assert_eq!(ranks.ranks.iter().map(|rank| rank.waiting()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(ranks.blocks(), (0, 198));
}

/// SGLang divides `max_running_requests` and the chunk among ranks: 16 and 8192 over 4 are 4 and 2048.
#[test]
fn ranks_of_sglang_divide_the_limits() {
    let forecaster = forecaster(EXPERTS, 4, small(SchedulerKind::Sglang, 100, CostKind::Limit));
    let (config, _) = EngineConfig::resolve(&forecaster.deployment, 300, false).unwrap();
    assert_eq!((config.max_num_seqs, config.max_num_batched_tokens), (4, 2048));
    let settings = crate::engine::SglangConfig::resolve(&forecaster.deployment.engine, &config).unwrap();
    assert_eq!(settings.scheduler.chunked_prefill_size, Some(2048));
    assert!((settings.scheduler.schedule_conservativeness - 0.3).abs() < 1e-12);
}

/// Three decodes on one rank and one on the other: at the limit the experts compute four tokens, so that the step takes
/// less than with three decodes on both. In a captured graph the second rank computes three rows, too, and so does an
/// idle rank. A context of 9000 tokens on one rank takes as long as on both.
#[test]
fn the_slowest_rank_sets_the_price() {
    let price = |cost: CostKind, loads: &[(u64, u64)]| {
        let forecaster = forecaster(EXPERTS, 2, EngineSpec::default());
        let loads: Vec<StepLoad> =
            loads.iter().map(|&(n, all)| StepLoad { decodes: n, all, ..StepLoad::default() }).collect();
        JointPrices::new(forecaster.timing(cost).of_rank()).price(&loads, 2).total()
    };
    use CostKind::{Forecast, Limit};
    assert!(price(Limit, &[(3, 300), (1, 100)]) < price(Limit, &[(3, 300), (3, 300)]));
    assert_eq!(price(Limit, &[(3, 300), (1, 100)]), price(Limit, &[(1, 100), (3, 300)]));
    assert_eq!(price(Forecast, &[(3, 300), (1, 100)]), price(Forecast, &[(3, 300), (3, 300)]));
    assert_eq!(price(Forecast, &[(3, 300)]), price(Forecast, &[(3, 300), (3, 300)]));
    for cost in [Limit, Forecast] {
        assert_eq!(price(cost, &[(1, 100), (1, 9000)]), price(cost, &[(1, 9000), (1, 9000)]));
        assert!(price(cost, &[(1, 100), (1, 9000)]) > price(cost, &[(1, 100), (1, 100)]));
    }
}
