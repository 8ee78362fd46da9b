//! Tests of leaps: under a policy that overtakes, and of a replica whose queue is blocked.

use super::*;
use crate::scheduler::config::Order;
use crate::scheduler::state::decodes::{Each, Lockstep};
use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::spec::{CostKind, EngineSpec, ReservationKind, SchedulerKind};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::units::Picoseconds;
use std::sync::Arc;

fn forecaster() -> Forecaster {
    let catalog = roofcast_facts::Catalog::embedded().unwrap();
    let entry = catalog.model("meta-llama/Llama-3.1-8B").unwrap();
    let model = roofcast_facts::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
    let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
    let engine = EngineSpec {
        scheduler: Some(SchedulerKind::Orca),
        reservation: ReservationKind::Oracle,
        num_gpu_blocks: Some(3000),
        max_num_seqs: Some(8),
        cost: CostKind::Limit,
        ..EngineSpec::default()
    };
    let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
    Forecaster::ideal(Deployment::resolve(model.into(), chip, &options).unwrap())
}

/// Serves 80 requests, one every 10 ms, shortest prompt first; returns number, first token and end of each in order of
/// ends. A step may pass the next arrival if the engine says that it is blocked.
fn served<D: Decodes>(forecaster: &Forecaster, order: Order) -> Vec<(u64, Ticks, Ticks)> {
    let (config, _) = EngineConfig::resolve(&forecaster.deployment, 600, false).unwrap();
    let price = StepPrices::new(forecaster.timing(config.cost));
    let mut engine = Engine::<D>::new(EngineConfig { order, ..config }, Policy::Shortest, price, Ticks::ZERO);
    let mut ends = Vec::new();
    let mut departed = Vec::new();
    let mut run_until = |engine: &mut Engine<D>, next: Ticks| {
        while engine.due().is_some_and(|due| due < next) {
            let horizon = if engine.blocked() { Ticks::NEVER } else { next };
            assert!(engine.step(horizon, &mut departed));
            let end = engine.clock();
            ends.extend(departed.drain(..).map(|gone| (gone.arrival.number, gone.first, end)));
        }
    };
    for number in 0..80 {
        let at = Ticks::from(Picoseconds(number * 10_000_000_000));
        run_until(&mut engine, at);
        if engine.is_empty() {
            engine.wait_until(at);
        }
        let input = 1 + (number as u32 * 397) % 1000;
        let output = 1 + (number as u32 * 61) % 100;
        let arrival =
            Arrival { number, sent: at, at, input, output, max_tokens: output, ..Arrival::default() };
        engine.arrive(arrival, Prompt::Own);
    }
    run_until(&mut engine, Ticks::NEVER);
    ends
}

/// Leaps are steps if the policy says that it overtakes. If it does not say so, a leap passes arrivals that the policy
/// would admit first; the reference, which asks nothing of the order, shows the difference.
#[test]
fn a_policy_that_overtakes_says_so() {
    let forecaster = forecaster();
    let reference = served::<Each>(&forecaster, Order::Policy);
    let mut by_number = reference.clone();
    by_number.sort();
    assert!(by_number.windows(2).any(|pair| pair[1].1 < pair[0].1), "no request overtakes another");
    assert_eq!(served::<Lockstep>(&forecaster, Order::Policy), reference);
    assert_eq!(served::<Each>(&forecaster, Order::Arrival), reference);
    assert_ne!(served::<Lockstep>(&forecaster, Order::Arrival), reference);
}

/// Eight of twelve requests run and four wait: the replica is blocked, so that one leap passes all arrivals up to the first
/// end. With nothing in the queue an arrival would run at once, and a replica that takes every step singly looks at
/// each.
#[test]
fn a_replica_with_a_queue_is_blocked() {
    fn blocked<D: Decodes>(forecaster: &Forecaster, requests: u64) -> (bool, u64) {
        let (config, _) = EngineConfig::resolve(&forecaster.deployment, 600, false).unwrap();
        let price = StepPrices::new(forecaster.timing(config.cost));
        let mut engine = Engine::<D>::new(config, Policy::Orca, price, Ticks::ZERO);
        for number in 0..requests {
            let arrival = Arrival { number, input: 100, output: 50, max_tokens: 50, ..Arrival::default() };
            engine.arrive(arrival, Prompt::Own);
        }
        let mut departed = Vec::new();
        assert!(engine.step(Ticks(1), &mut departed) && departed.is_empty());
        (engine.blocked(), engine.waiting())
    }
    let forecaster = forecaster();
    assert_eq!(blocked::<Lockstep>(&forecaster, 12), (true, 4));
    assert_eq!(blocked::<Lockstep>(&forecaster, 8), (false, 0));
    assert_eq!(blocked::<Each>(&forecaster, 12), (false, 4));
}
