//! Speed of the cost model: `cargo bench`. CPU time of this process; quote medians.

#![allow(missing_docs, clippy::unwrap_used)]

use divan::{Bencher, black_box};
use roofcast::cost::Utilization;
use roofcast::deployment::DeploymentOptions;
use roofcast::limits::{LimitsQuestion, decode, limits};
use roofcast::model::config;
use roofcast::{Catalog, Deployment, Forecaster, Spec};
use std::sync::Arc;

fn main() {
    divan::main();
}

fn forecaster(model: &str, chip: &str) -> Forecaster {
    let catalog = Catalog::embedded().unwrap();
    let entry = catalog.model(model).unwrap();
    let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
    let chip = Arc::new(catalog.accelerator(chip).unwrap().clone());
    Forecaster::embedded(Deployment::resolve(model, chip, &DeploymentOptions::default()).unwrap()).unwrap()
}

const QUESTION: LimitsQuestion =
    LimitsQuestion { batch: 1, context: 2048, prefill: 2048, utilization: Utilization::FULL };

/// A sweep of 1,000 points.
#[divan::bench(args = ["meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3"])]
fn sweep_of_1000(bencher: Bencher, model: &str) {
    let forecaster = forecaster(model, "h200-sxm");
    bencher.bench_local(|| {
        (1..=1000)
            .map(|batch| decode(&forecaster, &LimitsQuestion { batch, ..QUESTION }).limit.0)
            .sum::<u64>()
    });
}

/// One whole answer of `roofcast limits`.
#[divan::bench]
fn one_answer(bencher: Bencher) {
    let forecaster = forecaster("meta-llama/Llama-3.1-8B", "h100-sxm");
    bencher.bench_local(|| limits(black_box(&forecaster), &QUESTION));
}

/// The example plan of Llama-3.1-70B.
#[divan::bench]
fn plan_70b(bencher: Bencher) {
    let catalog = Catalog::embedded().unwrap();
    let spec = Spec::parse("plan-70b", include_str!("../../../examples/plan-70b.toml")).unwrap();
    let entry = catalog.model("meta-llama/Llama-3.1-70B").unwrap();
    let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
    bencher.bench_local(|| {
        roofcast::plan::plan(&spec, &model, catalog, &roofcast::plan::PlanQuestion::default()).unwrap()
    });
}

/// Parsing two of its files whole, as a user's own are.
#[divan::bench]
fn parse_catalog() -> usize {
    let texts = [
        include_str!("../../roofcast-facts/catalog/models/llama.toml"),
        include_str!("../../roofcast-facts/catalog/accelerators/nvidia.toml"),
    ];
    texts.iter().map(|t| Catalog::parse("bench", t).unwrap().model_names().count()).sum()
}
