//! Narrower weight formats against wider ones: a step with fewer bytes of weights is no slower, on every chip with measured
//! kernels, under every engine that measured them.

use crate::support::{catalog, model};
use roofcast::batch::Batch;
use roofcast::cost::{Utilization, cost};
use roofcast::deployment::DeploymentOptions;
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::{EngineSpec, PrecisionSpec};
use roofcast::{Deployment, Forecaster};
use std::sync::Arc;

const CHIPS: [&str; 11] = [
    "a100-sxm",
    "l40s",
    "rtx-4090",
    "h100-sxm",
    "h200-sxm",
    "b200-sxm",
    "b300-sxm",
    "gb200",
    "rtx-pro-6000",
    "rtx-5090",
    "gb10",
];
const MODELS: [(&str, u64); 5] = [
    ("Qwen/Qwen3-0.6B", 1),
    ("llama-3.1-8b", 1),
    ("llama-3.1-70b", 4),
    ("Qwen/Qwen3-30B-A3B", 1),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2),
];
/// A format, the wider one of equal work, and the batches for which bytes of weights decide: Marlin's dequantization takes
/// longer than moving 16 bits from some dozens of rows on.
const PAIRS: [(&str, &str, &[u64]); 6] = [
    ("fp8", "bf16", &[1, 8, 64]),
    ("fp8-dynamic", "bf16", &[1, 8, 64]),
    ("fp8-block", "bf16", &[1, 8, 64]),
    ("nvfp4", "fp8", &[1, 8, 64]),
    ("nvfp4", "bf16", &[1, 8, 64]),
    ("gptq-int4", "bf16", &[1, 8]),
];
/// Largest ratio of a narrower format's time to the wider one's: times outside the operators differ.
const MARGIN: f64 = 1.05;

/// Forecast in milliseconds of a decode step; `None` if the deployment is refused.
fn step(chip: &str, engine: &str, (name, tp): (&str, u64), format: &str, batch: u64) -> Option<f64> {
    let options = DeploymentOptions {
        precision: PrecisionSpec { weights: Some(format.into()), ..PrecisionSpec::default() },
        parallelism: RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() },
        engine: EngineSpec { name: Some(engine.into()), ..EngineSpec::default() },
        ..DeploymentOptions::default()
    };
    let chip = Arc::new(catalog().accelerator(chip).unwrap().clone());
    let deployment = Deployment::resolve(model(name), chip, &options).ok()?;
    let forecaster = Forecaster::embedded(deployment).unwrap();
    Some(cost(&forecaster, &Batch::decode(batch, 2048), Utilization::FULL).forecast.ms())
}

/// True if `chip` computes in 4-bit floats.
fn has_fp4(chip: &str) -> bool {
    catalog().accelerator(chip).unwrap().peak_flops.contains_key(&roofcast::precision::Dtype::Fp4)
}

#[test]
fn narrower_formats_are_no_slower() {
    let mut compared = 0;
    let mut slower = Vec::new();
    for chip in CHIPS {
        for engine in ["vllm", "sglang", "tensorrt-llm"] {
            for model in MODELS {
                for (narrow, wide, batches) in PAIRS {
                    // Without a rate of 4-bit floats nvfp4 is unpacked by Marlin.
                    let unpacked = narrow == "nvfp4" && !has_fp4(chip);
                    for batch in batches.iter().filter(|batch| !unpacked || **batch < 64) {
                        let of = |format| step(chip, engine, model, format, *batch);
                        let (Some(fewer), Some(more)) = (of(narrow), of(wide)) else { continue };
                        compared += 1;
                        if fewer > MARGIN * more {
                            slower.push(format!(
                                "{chip} {engine} {} {narrow} {fewer:.2} {wide} {more:.2} at {batch}",
                                model.0
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 1500, "{compared}");
    assert!(slower.is_empty(), "{} of {compared}:\n{}", slower.len(), slower.join("\n"));
}

/// The published checkpoint of a model whose maker scales its fp8 weights in blocks is what `fp8` means, by whatever name.
#[test]
fn fp8_means_the_published_checkpoint() {
    let named = |name: &str, format: Option<&str>| {
        let precision = PrecisionSpec { weights: format.map(Into::into), ..PrecisionSpec::default() };
        let options = DeploymentOptions { precision, ..DeploymentOptions::default() };
        let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let model = Arc::new(catalog().named(name).unwrap().model().unwrap());
        Deployment::resolve(model, chip, &options).unwrap().weights
    };
    for name in
        ["Qwen/Qwen3-30B-A3B-FP8", "qwen3-30b-a3b-fp8", "Qwen3-30B-A3B-FP8", "Qwen/Qwen3-235B-A22B-FP8"]
    {
        assert_eq!(named(name, None), "fp8-block", "{name}");
        assert_eq!(named(name, Some("fp8")), "fp8-block", "{name}");
    }
    assert_eq!(named("Qwen/Qwen3-30B-A3B", Some("fp8")), "fp8-block");
    // Of Llama no maker's checkpoint has blocks, and others' checkpoints state their own scales.
    assert_eq!(named("llama-3.1-8b", Some("fp8")), "fp8");
    assert_eq!(named("RedHatAI/Qwen3-32B-FP8-dynamic", None), "fp8-dynamic");
    assert_eq!(named("Qwen/Qwen3-32B-FP8-Static-PerTensor", None), "fp8");
}
