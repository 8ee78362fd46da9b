//! Goldens by hand: kernels of adapters, and drafts that are verified within windows.

use super::*;
use crate::coefficients::{EngineTimes, KernelEfficiency};
use crate::profile::Profiles;
use roofcast_ask::deployment::DeploymentOptions;
use roofcast_ask::spec::{EngineSpec, VllmSpec};
use roofcast_facts::model::config;
use std::borrow::Cow;

/// `model` on one H100.
fn deployment(model: &str, engine: EngineSpec) -> Deployment {
    let catalog = roofcast_facts::Catalog::embedded().unwrap();
    let entry = catalog.model(model).unwrap();
    let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
    let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
    Deployment::resolve(model, chip, &DeploymentOptions { engine, ..DeploymentOptions::default() }).unwrap()
}

/// Times with kernels from `profiles`.
fn timing(deployment: &Deployment, profiles: Cow<'static, Profiles>, engine: EngineTimes) -> Timing {
    let kernels = KernelTimes::Measured {
        profiles,
        shares: KernelEfficiency::UNKNOWN,
        host: KernelEfficiency::UNKNOWN,
    };
    let coefficients = Coefficients { kernels, engine, ..Coefficients::ideal(1.0, 1.0) };
    Timing::new(deployment, Arc::new(StepModel::compile(deployment)), Arc::new(coefficients))
}

/// Each of 32 layers of Llama-3.1-8B has four adapted GEMMs with two kernels: 256 kernels of 2 µs are 512 µs, whatever
/// the number of adapters. They count as memory-bound.
#[test]
fn kernels_of_adapters_by_hand() {
    let vllm = VllmSpec { enable_lora: Some(true), ..VllmSpec::default() };
    let deployment =
        deployment("meta-llama/Llama-3.1-8B-Instruct", EngineSpec { vllm, ..EngineSpec::default() });
    let with = |small_kernel: f64| {
        let engine = EngineTimes { small_kernel, ..EngineTimes::default() };
        timing(&deployment, Cow::Owned(Profiles::default()), engine)
    };
    for adapters in [1, 3] {
        let tokens = AdaptedTokens { adapters, tokens: 10 };
        let [none, two] = [0.0, 2e-6].map(|seconds| with(seconds).adapters(tokens, tokens));
        assert!((two.memory - none.memory - 512e-6).abs() < 1e-12, "{adapters}: {two:?} {none:?}");
        assert_eq!(two.compute, none.compute);
    }
}

/// Gemma-3-1B attends to 512 tokens in 22 of 26 layers: there eight sequences that verify drafts read as much of 10,000 tokens as
/// of 512, and half as much of 256. In the other four layers 10,000 tokens take longer than 512, in proportion to their
/// number beyond the kernel's start: (10,000 − 512)/(512 − 256) times what 512 exceed 256.
#[test]
fn drafts_are_verified_within_windows() {
    let deployment = deployment("google/gemma-3-1b-it", EngineSpec::default());
    let timing = timing(&deployment, Cow::Borrowed(Profiles::embedded().unwrap()), EngineTimes::default());
    let attention = |window: bool| {
        let is = |operator: &Operator| match &operator.form {
            Form::Context(form) => {
                form.decode.terms.first().is_some_and(|(reach, _)| (*reach == 512) == window)
            }
            _ => false,
        };
        timing.model.operators.iter().position(is).unwrap()
    };
    let seconds = |index: usize, context: u64| {
        assert!(matches!(timing.operators[index].measured, Some(MeasuredTimes::Context(_))));
        let verifying = Sequences { count: 8, ..Sequences::verify(4, context) };
        let pass = Pass {
            rows: 32,
            sampled: 32,
            sequences: 8,
            tokens: 32,
            decodes: 0,
            share: 1.0,
            contexts: Contexts::Groups(Cow::Borrowed(&[])),
            chunks: Cow::Owned(vec![verifying]),
            longest: 0,
            ends: false,
        };
        timing.time(index, &pass).iter().sum::<f64>()
    };
    let [within, full] = [true, false].map(attention);
    let [short, edge, long] = [256, 512, 10_000].map(|context| seconds(within, context));
    assert!(short < edge && edge == long, "{short} {edge} {long}");
    let [short, edge, long] = [256, 512, 10_000].map(|context| seconds(full, context));
    assert!(((long - edge) / (edge - short) / (9488.0 / 256.0) - 1.0).abs() < 1e-6, "{short} {edge} {long}");
}
