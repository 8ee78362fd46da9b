//! Bounds that no forecast may violate, over the chips of the catalog, engines, models and weight formats. A failing
//! case is printed with its seed.

use crate::support::{catalog, model};
use proptest::prelude::*;
use roofcast::batch::Batch;
use roofcast::coefficients::Evidence;
use roofcast::cost::{Cost, Operator, Utilization, cost};
use roofcast::deployment::Options;
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::{EngineSpec, PrecisionSpec};
use roofcast::{Deployment, Forecaster};
use std::sync::Arc;

const MODELS: [&str; 6] = [
    "llama-3.1-8b",
    "llama-3.1-70b",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-v3",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
];
const ENGINES: [&str; 4] = ["vllm", "sglang", "tensorrt-llm", "llama.cpp"];
const FORMATS: [&str; 4] = ["bf16", "fp8", "nvfp4", "gptq-int4"];

#[derive(Debug, Clone, Copy)]
struct Case {
    chip: usize,
    engine: usize,
    model: usize,
    format: usize,
    tp: u32,
}

fn cases() -> impl Strategy<Value = Case> {
    let chips = catalog().accelerator_names().count();
    (0..chips, 0..ENGINES.len(), 0..MODELS.len(), 0..FORMATS.len(), 0..4_u32)
        .prop_map(|(chip, engine, model, format, tp)| Case { chip, engine, model, format, tp })
        .prop_filter("refused", |case| case.forecaster(FORMATS[case.format]).is_some())
}

impl Case {
    /// The forecaster of the case; `None` if the machine or the engine refuses it.
    fn forecaster(&self, format: &str) -> Option<Forecaster> {
        let chip = catalog().accelerator(catalog().accelerator_names().nth(self.chip)?).ok()?;
        let options = Options {
            precision: PrecisionSpec { weights: Some(format.into()), ..PrecisionSpec::default() },
            parallelism: RequestedParallelism { tp: Some(1 << self.tp), ..RequestedParallelism::default() },
            engine: EngineSpec { name: Some(ENGINES[self.engine].into()), ..EngineSpec::default() },
            ..Options::default()
        };
        let deployment =
            Deployment::resolve(model(MODELS[self.model]), Arc::new(chip.clone()), &options).ok()?;
        Forecaster::embedded(deployment).ok()
    }
}

fn priced(forecaster: &Forecaster, batch: &Batch) -> Cost {
    cost(forecaster, batch, Utilization::FULL)
}

/// Bytes that a kernel reads in some 10 µs, from which on its work takes the time and not its launch.
const AT_WORK: f64 = 30e6;

/// Bytes that an operator reads in one layer.
fn read(operator: &Operator) -> f64 {
    (operator.weight_bytes.0 + operator.kv_bytes.0) as f64 / operator.layers as f64
}

/// True if the operator's time is based on a kernel that was timed.
fn timed(operator: &Operator) -> bool {
    operator.rests_on.as_ref().is_some_and(|basis| basis.evidence != Evidence::Nothing)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_operator_beats_its_limit(case in cases(), n in 1..300_u64, tokens in 1..9000_u64) {
        let forecaster = case.forecaster(FORMATS[case.format]).unwrap();
        for batch in [Batch::decode(n, tokens), Batch::prefill(1, tokens)] {
            let step = priced(&forecaster, &batch);
            prop_assert!(step.forecast >= step.limit_with_communication);
            for operator in &step.operators {
                prop_assert!(operator.forecast >= operator.limit, "{operator:?}");
            }
        }
    }

    #[test]
    fn more_work_never_takes_less(case in cases(), n in 1..300_u64, tokens in 1..9000_u64, more in 1..3000_u64) {
        let forecaster = case.forecaster(FORMATS[case.format]).unwrap();
        let time = |batch: &Batch| priced(&forecaster, batch).forecast;
        let decode = time(&Batch::decode(n, tokens));
        prop_assert!(time(&Batch::decode(n + more, tokens)) >= decode, "batch");
        prop_assert!(time(&Batch::decode(n, tokens + more)) >= decode, "context");
        prop_assert!(time(&Batch::prefill(1, tokens + more)) >= time(&Batch::prefill(1, tokens)), "prompt");
    }

    #[test]
    fn kernels_at_work_are_within_six_limits(case in cases(), n in 1..300_u64, tokens in 1..9000_u64) {
        let step = priced(&case.forecaster(FORMATS[case.format]).unwrap(), &Batch::decode(n, tokens));
        for operator in step.operators.iter().filter(|o| read(o) > AT_WORK) {
            prop_assert!((0.02..=1.0).contains(&operator.share), "{operator:?}");
        }
        // A measured kernel may be as slow as it was measured, and the answer names it.
        let slow = |o: &&Operator| timed(o) && o.share < 1.0 / 6.0;
        let measured = step.operators.iter().filter(slow).map(|o| o.forecast.0).sum::<u64>();
        let kernels = step.operators.iter().map(|o| o.forecast.0).sum::<u64>();
        let at_work = step.operators.iter().map(read).sum::<f64>() > AT_WORK;
        prop_assert!(!at_work || kernels <= 6 * step.limit_with_communication.0 + measured, "{step:?}");
    }

    #[test]
    fn fewer_bits_are_no_slower_unless_measured(case in cases(), tokens in 1..9000_u64) {
        let Some((many, few)) = case.forecaster("bf16").zip(case.forecaster(FORMATS[case.format])) else { return Ok(()) };
        let [many, few] = [many, few].map(|forecaster| priced(&forecaster, &Batch::decode(1, tokens)));
        for (many, few) in many.operators.iter().zip(&few.operators).filter(|(many, _)| read(many) > AT_WORK) {
            prop_assert!(timed(few) || few.forecast <= many.forecast, "{many:?} {few:?}");
        }
    }
}
