//! Tests of leaps under a policy that overtakes.

use super::*;
use crate::fleet::results::Results;
use crate::fleet::{Fleet, QueueOrder};
use crate::router::{Router, Routing};
use crate::scheduler::config::Order;
use crate::scheduler::state::decodes::{Each, Lockstep};
use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::spec::{CostKind, EngineSpec, ReservationKind, SchedulerKind, Slo};
use roofcast_ask::workload::{Arrivals, Length, LengthKind, Traffic, Workload};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::record::Record;
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

/// Serves a load above capacity, shortest prompt first.
fn served<D: Decodes + 'static>(forecaster: &Forecaster, order: Order) -> Vec<Record> {
    let (config, _) = EngineConfig::resolve(&forecaster.deployment, 600, false).unwrap();
    let price = StepPrices::new(forecaster.timing(config.cost));
    let engine = Engine::<D>::new(EngineConfig { order, ..config }, Policy::Shortest, price, Ticks::ZERO);
    let workload = Workload {
        requests: Some(80),
        seed: 1,
        arrivals: Arrivals::Poisson { rate: 100.0 },
        input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 1000 }),
        output_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 100 }),
        prefix: None,
        images: None,
        adapters: None,
        priorities: Vec::new(),
        classes: Vec::new(),
        max_tokens: None,
        max_concurrency: None,
    };
    let settings = &forecaster.deployment.engine;
    let mut fleet = Fleet::new(
        vec![Box::new(engine)],
        Router::new(Routing::RoundRobin, 0),
        QueueOrder::new(settings, 1),
        Results::new(Slo::default(), true, None),
    );
    fleet.serve(&mut Traffic::new(&workload, "test").unwrap()).unwrap();
    fleet.results.records.unwrap()
}

/// Leaps are steps if the policy says that it overtakes. If it does not say so, a leap passes arrivals that the policy
/// would admit first; the reference, which asks nothing of the order, shows the difference.
#[test]
fn a_policy_that_overtakes_says_so() {
    let forecaster = forecaster();
    let reference = served::<Each>(&forecaster, Order::Policy);
    let overtakes = reference.windows(2).any(|pair| pair[1].first_token < pair[0].first_token);
    assert!(overtakes, "no request overtakes another");
    assert_eq!(served::<Lockstep>(&forecaster, Order::Policy), reference);
    assert_eq!(served::<Each>(&forecaster, Order::Arrival), reference);
    assert_ne!(served::<Lockstep>(&forecaster, Order::Arrival), reference);
}
