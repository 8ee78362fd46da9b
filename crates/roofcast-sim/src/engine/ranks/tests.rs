//! Tests of ranks: one rank equals an engine alone, ranks step together, and their prices.

use super::*;
use crate::engine::price::StepPrices;
use crate::engine::{one, replica};
use crate::scheduler::config::{Balance, EngineConfig};
use proptest::prelude::*;
use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::{CostKind, EngineSpec, SchedulerKind};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::units::Picoseconds;
use std::sync::Arc;

const EXPERTS: &str = "Qwen/Qwen3-30B-A3B";

fn forecaster(model: &str, ranks: u64, engine: EngineSpec) -> Forecaster {
    let catalog = roofcast_facts::Catalog::embedded().unwrap();
    let entry = catalog.model(model).unwrap();
    let model = roofcast_facts::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
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

/// A request: milliseconds after the one before, prompt and output tokens, and the segment that its prompt begins with.
type Asked = (u64, u32, u32, u32);

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    prop::collection::vec((0_u64..60, 1_u32..400, 1_u32..120, 1_u32..4), 1..50)
}

/// Serves `asked`; returns number, time of the first token and end of each request, in order of ends.
fn serve(replica: &mut dyn Replica, asked: &[Asked]) -> Vec<(u64, Ticks, Ticks)> {
    let mut at = Ticks::ZERO;
    let mut ends = Vec::new();
    let mut departed = Vec::new();
    let mut until = |replica: &mut dyn Replica, horizon: Ticks| {
        while replica.due().is_some_and(|due| due < horizon) {
            assert!(replica.step(horizon, &mut departed));
            let end = replica.clock();
            ends.extend(departed.drain(..).map(|gone| (gone.arrival.number, gone.first, end)));
        }
    };
    for (number, &(gap, input, output, segment)) in asked.iter().enumerate() {
        at += Ticks::from(Picoseconds(gap * 1_000_000_000));
        until(replica, at);
        if replica.is_empty() {
            replica.wait_until(at);
        }
        let number = number as u64;
        let arrival =
            Arrival { number, sent: at, at, input, output, max_tokens: output, ..Arrival::default() };
        replica.arrive(arrival, Prompt::Shared { segment, length: input.min(64) });
    }
    until(replica, Ticks::NEVER);
    ends
}

fn schedulers() -> impl Strategy<Value = SchedulerKind> {
    prop::sample::select(vec![SchedulerKind::Vllm, SchedulerKind::Sglang])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A replica with one rank gives every request the times of an engine alone, to the last tick.
    #[test]
    fn one_rank_is_the_engine(
        asked in asked(), scheduler in schedulers(), leap in any::<bool>(), blocks in 60_u64..200,
    ) {
        let forecaster = forecaster(EXPERTS, 1, small(scheduler, blocks, CostKind::Forecast));
        let (config, policy) = EngineConfig::resolve(&forecaster.deployment, 300, true).unwrap();
        let mut alone = replica(&forecaster, (config.clone(), policy.clone()), 300, 1, leap).unwrap();
        let price = StepPrices::new(forecaster.timing(config.cost).of_rank());
        let settings = RankSettings { count: 1, balance: Balance::Score };
        let config = EngineConfig { ranks: Some(settings), ..config };
        let rank = one(&forecaster, (config, policy), price.clone(), (300, 1), leap).unwrap();
        let mut ranked = Ranks::new(vec![rank], settings, &price);
        prop_assert_eq!(serve(alone.as_mut(), &asked), serve(&mut ranked, &asked));
        let a = alone.tally();
        let b = ranked.tally();
        prop_assert_eq!((a.steps, a.running_steps, a.running_peak), (b.steps, b.running_steps, b.running_peak));
        prop_assert_eq!((a.token_steps, a.slack_steps, a.cached_tokens), (b.token_steps, b.slack_steps, b.cached_tokens));
        prop_assert_eq!((&a.itl, a.preemptions, a.decode_steps), (&b.itl, b.preemptions, b.decode_steps));
        prop_assert_eq!((a.blocks_peak, a.idle, a.swapping), (b.blocks_peak, b.idle, b.swapping));
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
        let mut came = Vec::new();
        let mut departed = Vec::new();
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
    let price = StepPrices::new(forecaster.timing(config.cost).of_rank());
    let rank = |_| one(forecaster, (config.clone(), policy.clone()), price.clone(), (300, 1), leap).unwrap();
    let settings = config.ranks.unwrap();
    Ranks::new((0..settings.count).map(rank).collect(), settings, &price)
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
        JointPrices::new(&StepPrices::new(forecaster.timing(cost).of_rank()))
            .price(&loads, &[], 2)
            .shares
            .total()
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
