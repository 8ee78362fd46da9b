//! Speed of the engine: 10,000 requests of the workload on which simulators are compared, by scheduler, load and
//! cache. `benches/peers/simulate.py` pairs whole runs with a peer.
#![allow(missing_docs, clippy::unwrap_used)] // divan's generated items; a benchmark may stop

use roofcast::deployment::DeploymentOptions;
use roofcast::simulate::{self, simulate};
use roofcast::{Catalog, Deployment, Forecaster, Spec, model};
use std::sync::Arc;

fn main() {
    divan::main();
}

fn run(bencher: divan::Bencher<'_, '_>, engine: &str, arrivals: &str, length: &str) {
    let text = format!(
        "[model]\nname = \"meta-llama/Llama-3.1-8B-Instruct\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\n{engine}\n\
         [workload]\nrequests = 10000\nseed = 42\n{length}\n[workload.arrivals]\n{arrivals}\n"
    );
    let spec = Spec::parse("bench", &text).unwrap();
    let catalog = Catalog::embedded().unwrap();
    let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
    let model = Arc::new(model::config::read(&entry.id, "catalog", &entry.config).unwrap());
    let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
    let deployment = Deployment::resolve(model, accelerator, &DeploymentOptions::of(&spec)).unwrap();
    let forecaster = Forecaster::embedded(deployment).unwrap();
    let options = simulate::RunOptions { leap: true, ..Default::default() };
    bencher.bench_local(|| simulate(&forecaster, &spec, "bench", options).unwrap());
}

const LENGTHS: &str = "input_len = { kind = \"lognormal\", mu = 6.9, sigma = 0.7 }\n\
                       output_len = { kind = \"lognormal\", mu = 5.3, sigma = 0.8 }";

#[divan::bench(args = ["2", "20", "30 (overload)", "20 (preempting)"])]
fn poisson(bencher: divan::Bencher<'_, '_>, load: &str) {
    let (rate, rest) = load.split_once(' ').unwrap_or((load, ""));
    let engine = if rest.is_empty() || rest.contains("overload") { "" } else { "num_gpu_blocks = 7000" };
    run(bencher, engine, &format!("kind = \"poisson\"\nrate = {rate}.0"), LENGTHS);
}

#[divan::bench]
fn closed_loop_of_256_users(bencher: divan::Bencher<'_, '_>) {
    run(bencher, "", "kind = \"closed_loop\"\nconcurrency = 256", "input_len = 1024\noutput_len = 1024");
}

#[divan::bench]
fn prefix_caching(bencher: divan::Bencher<'_, '_>) {
    run(bencher, "enable_prefix_caching = true", "kind = \"poisson\"\nrate = 20.0", LENGTHS);
}

#[divan::bench(args = ["static", "orca", "vllm-v0", "sarathi", "lightllm", "sglang", "llama.cpp", "tensorrt-llm"])]
fn scheduler(bencher: divan::Bencher<'_, '_>, name: &str) {
    run(bencher, &format!("scheduler = \"{name}\""), "kind = \"poisson\"\nrate = 20.0", LENGTHS);
}
