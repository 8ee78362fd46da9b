//! Narrower weight formats against wider ones: a step with fewer bytes of weights is no slower, on every chip with measured
//! kernels, under every engine that measured them.

use crate::support::{catalog, model};
use roofcast::batch::Batch;
use roofcast::coefficients::Evidence;
use roofcast::cost::{Utilization, cost};
use roofcast::deployment::DeploymentOptions;
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::{CostKind, EngineSpec, PrecisionSpec};
use roofcast::{Deployment, Forecaster};
use std::collections::{BTreeMap, BTreeSet};
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
const ENGINES: [&str; 3] = ["vllm", "sglang", "tensorrt-llm"];
const MODELS: [(&str, u64); 5] = [
    ("Qwen/Qwen3-0.6B", 1),
    ("llama-3.1-8b", 1),
    ("llama-3.1-70b", 4),
    ("Qwen/Qwen3-30B-A3B", 1),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2),
];
/// A format, and the wider one of equal work.
const PAIRS: [(&str, &str); 8] = [
    ("fp8", "bf16"),
    ("fp8-dynamic", "bf16"),
    ("fp8-block", "bf16"),
    ("nvfp4", "fp8"),
    ("nvfp4", "bf16"),
    ("mxfp4", "bf16"),
    ("gptq-int4", "bf16"),
    ("awq-int4", "bf16"),
];
/// 87 sequences are beyond the rows of Marlin's published figures, 256 beyond those from which 4-bit weights no longer save time.
const BATCHES: [u64; 5] = [1, 8, 64, 87, 256];
/// A chip on which Marlin was measured to take longer than cuBLAS from some dozens of rows on: 141 TFLOP/s on an A100 (vLLM's
/// pull request 2497), which computes 312.
const MARLIN_MEASURED: &str = "a100-sxm";
/// Largest ratio of a narrower format's time to the wider one's: times outside the operators differ.
const MARGIN: f64 = 1.05;

/// Forecaster with weights in `format`; `None` if the deployment is refused.
fn forecaster(chip: &str, engine: &str, (name, tp): (&str, u64), format: &str) -> Option<Forecaster> {
    let options = DeploymentOptions {
        precision: PrecisionSpec { weights: Some(format.into()), ..PrecisionSpec::default() },
        parallelism: RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() },
        engine: EngineSpec { name: Some(engine.into()), ..EngineSpec::default() },
        ..DeploymentOptions::default()
    };
    let chip = Arc::new(catalog().accelerator(chip).unwrap().clone());
    let deployment = Deployment::resolve(model(name), chip, &options).ok()?;
    Some(Forecaster::embedded(deployment).unwrap())
}

/// Forecast in milliseconds of decode steps of [`BATCHES`] by format; empty for formats that are refused.
fn steps(chip: &str, engine: &str, model: (&str, u64)) -> BTreeMap<&'static str, [f64; BATCHES.len()]> {
    let formats: BTreeSet<&str> = PAIRS.into_iter().flat_map(|(narrow, wide)| [narrow, wide]).collect();
    let of = |format| {
        let timing = forecaster(chip, engine, model, format)?.timing(CostKind::Forecast);
        let ms = |batch| timing.step(timing.model.passes_of(&Batch::decode(batch, 2048)).into_iter());
        Some((format, BATCHES.map(|batch| ms(batch).total() * 1e3)))
    };
    formats.into_iter().filter_map(of).collect()
}

/// True if `chip` computes in 4-bit floats.
fn has_fp4(chip: &str) -> bool {
    catalog().accelerator(chip).unwrap().peak_flops.contains_key(&roofcast::precision::Dtype::Fp4)
}

#[test]
fn narrower_formats_are_no_slower() {
    let mut compared = 0;
    let mut slower = Vec::new();
    for (chip, engine, model) in cases() {
        let times = steps(chip, engine, model);
        for (narrow, wide) in PAIRS {
            // Without a rate of 4-bit floats nvfp4 is unpacked to 16 bits, which fp8 outdoes at many rows.
            let unpacked = (narrow, wide) == ("nvfp4", "fp8") && !has_fp4(chip);
            let marlin = matches!(engine, "vllm" | "sglang");
            let few = unpacked || chip == MARLIN_MEASURED && marlin;
            let Some((fewer, more)) = times.get(narrow).zip(times.get(wide)) else { continue };
            for (batch, (fewer, more)) in BATCHES.iter().zip(fewer.iter().zip(more)) {
                if few && *batch >= 64 {
                    continue;
                }
                compared += 1;
                if *fewer > MARGIN * more {
                    let name = model.0;
                    slower.push(format!(
                        "{chip} {engine} {name} {narrow} {fewer:.2} {wide} {more:.2} at {batch}"
                    ));
                }
            }
        }
    }
    assert!(compared > 3000, "{compared}");
    assert!(slower.is_empty(), "{} of {compared}:\n{}", slower.len(), slower.join("\n"));
}

/// A chip, and one of its architecture and bandwidth that has at least its multiprocessors and rates in these formats.
const NEWER: [(&str, &str); 3] = [("b200-sxm", "b300-sxm"), ("b200-sxm", "gb200"), ("b300-sxm", "gb300")];
/// Largest ratio of a newer chip's time to an older one's: tables of all-reduces differ.
const NEWER_MARGIN: f64 = 1.02;

/// A chip that supersedes another is no slower at equal work, in steps of decodes and in prompts.
#[test]
fn newer_chips_are_no_slower() {
    let mut slower = Vec::new();
    let mut compared = 0;
    for (older, newer) in NEWER {
        for (engine, model) in ENGINES.into_iter().flat_map(|engine| MODELS.map(|model| (engine, model))) {
            for format in ["bf16", "fp8", "fp8-block", "nvfp4", "mxfp4", "gptq-int4"] {
                let [first, second] = [older, newer].map(|chip| forecaster(chip, engine, model, format));
                let Some((first, second)) = first.zip(second) else { continue };
                // What is known less on the older chip bounds nothing.
                if first.coefficients.evidence < second.coefficients.evidence {
                    continue;
                }
                let works = BATCHES.map(|batch| Batch::decode(batch, 2048)).into_iter();
                for work in works.chain([512, 8192].map(|tokens| Batch::prefill(1, tokens))) {
                    let [before, after] = [&first, &second].map(|forecaster| {
                        let timing = forecaster.timing(CostKind::Forecast);
                        timing.step(timing.model.passes_of(&work).into_iter()).total() * 1e3
                    });
                    compared += 1;
                    if after > NEWER_MARGIN * before {
                        slower.push(format!(
                            "{newer} {after:.3} {older} {before:.3} {engine} {} {format} {work:?}",
                            model.0
                        ));
                    }
                }
            }
        }
    }
    assert!(compared > 1500, "{compared}");
    assert!(slower.is_empty(), "{} of {compared}:\n{}", slower.len(), slower.join("\n"));
}

/// Every chip with every engine and model.
fn cases() -> impl Iterator<Item = (&'static str, &'static str, (&'static str, u64))> {
    let of_chip =
        move |chip| ENGINES.into_iter().flat_map(move |engine| MODELS.map(|model| (chip, engine, model)));
    CHIPS.into_iter().flat_map(of_chip)
}

/// A chip computes in a narrow format if it has both the dtype and the scales; elsewhere the weights are unpacked to 16 bits, or the
/// format is refused. CDNA 4 and Trainium3 have MXFP4, Blackwell has both. vLLM emulates NVFP4 on every chip of AMD, and on no other.
#[test]
fn formats_compute_where_the_chip_has_them() {
    let computes = |chip: &str, format: &str| {
        let options = DeploymentOptions {
            precision: PrecisionSpec { weights: Some(format.into()), ..PrecisionSpec::default() },
            ..DeploymentOptions::default()
        };
        let chip = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let deployment = Deployment::resolve(model("llama-3.1-8b"), chip, &options).ok()?;
        let emulated = deployment.assumptions.iter().any(|note| note.contains("vLLM emulates nvfp4"));
        let step = cost(&Forecaster::ideal(deployment), &Batch::decode(1, 64), Utilization::FULL);
        let product = step.operators.iter().find(|o| o.name.name() == "gate_up_proj").unwrap();
        Some((product.dtype.to_string(), emulated))
    };
    for (chip, format, dtype, emulated) in [
        ("b200-sxm", "nvfp4", "fp4", false),
        ("mi355x", "nvfp4", "bf16", true),
        ("mi350x", "nvfp4", "bf16", true),
        ("mi300x", "nvfp4", "bf16", true),
        ("mi210", "nvfp4", "bf16", true),
        ("mi355x", "mxfp4", "fp4", false),
        ("mi300x", "mxfp4", "bf16", false),
        ("h200-sxm", "mxfp4", "bf16", false),
        ("h200-sxm", "nvfp4", "bf16", false),
        ("mi355x", "fp8", "fp8", false),
    ] {
        assert_eq!(computes(chip, format), Some((dtype.to_owned(), emulated)), "{chip} {format}");
    }
    for (chip, format) in [
        ("trainium2", "nvfp4"),
        ("trainium3", "nvfp4"),
        ("tpu-v6e", "nvfp4"),
        ("gaudi3", "nvfp4"),
        ("mi210", "fp8"),
        ("mi250x", "fp8"),
    ] {
        assert_eq!(computes(chip, format), None, "{chip} {format}");
    }
}

/// Llama-3.1-70B in GPTQ on a B200 with 87 sequences, where nobody timed Marlin: another kernel takes its place, and the answer
/// names both.
#[test]
fn a_kernel_beyond_its_figures_gives_way() {
    let forecaster = forecaster("b200-sxm", "vllm", ("llama-3.1-70b", 1), "gptq-int4").unwrap();
    let step = cost(&forecaster, &Batch::decode(87, 1024), Utilization::FULL);
    let product = step.operators.iter().find(|o| o.name.name() == "gate_up_proj").unwrap();
    let basis = product.rests_on.clone().unwrap();
    assert_eq!(basis.in_place_of.as_deref(), Some("marlin"));
    assert!(basis.kernel.starts_with("share of the limit, at most vllm"), "{basis:?}");
    let said = forecaster.not_measured().unwrap();
    assert!(
        said.starts_with("NOT MEASURED: nobody timed GEMMs with gptq-int4 weights on b200-sxm"),
        "{said}"
    );
}

/// One kernel of an engine computes the experts of a model on a chip over all widths of tensor parallelism, and twice as many chips
/// take no longer for a prompt. The time on an older chip may bound some of the widths.
#[test]
fn experts_have_one_kernel_over_all_widths() {
    let [oss, small, mixtral] =
        ["openai/gpt-oss-120b", "Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-Instruct-v0.1"];
    let cases = [
        (oss, "mxfp4"),
        (small, "bf16"),
        (small, "fp8"),
        (mixtral, "bf16"),
        (mixtral, "fp8"),
        (mixtral, "nvfp4"),
    ];
    let mut several = Vec::new();
    for (chip, engine) in CHIPS.into_iter().flat_map(|chip| ["vllm", "sglang"].map(|e| (chip, e))) {
        for (model, format) in cases {
            let of_width = |tp| {
                let forecaster = forecaster(chip, engine, (model, tp), format)?;
                let step = cost(&forecaster, &Batch::prefill(1, 8192), Utilization::FULL);
                let experts = step.operators.iter().find(|o| o.name.name() == "experts")?;
                let basis = &experts.rests_on.as_ref()?.kernel;
                let kernel = basis.split_once(", at most ").map_or(basis.as_str(), |(kernel, _)| kernel);
                Some((kernel.to_owned(), experts.forecast.ms()))
            };
            let widths: Vec<_> = [1, 2, 4, 8].into_iter().filter_map(of_width).collect();
            let uneven = widths.windows(2).any(|pair| pair[0].0 != pair[1].0 || pair[0].1 < 1.05 * pair[1].1);
            if uneven {
                several.push(format!("{chip} {engine} {model} {format}: {widths:?}"));
            }
        }
    }
    assert!(several.is_empty(), "{}", several.join("\n"));
}

/// Attention of a prompt or of decodes on one chip differs between engines by less than the ratio beyond which a kernel gives way
/// (2.5, with a tenth for other lengths than those at which they are compared), for heads of 128 and 256 and latent attention.
#[test]
fn engines_attend_in_similar_times() {
    let models = [
        ("llama-3.1-8b", 1),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 1),
        ("deepseek-v3", 8),
        ("google/gemma-4-31B-it", 1),
    ];
    let mut apart = Vec::new();
    for (chip, model) in CHIPS.into_iter().flat_map(|chip| models.map(|model| (chip, model))) {
        for batch in [Batch::prefill(1, 8192), Batch::decode(64, 8192)] {
            let attention = |engine: &str| {
                let step = cost(&forecaster(chip, engine, model, "bf16")?, &batch, Utilization::FULL);
                let timed = step.operators.iter().filter(|o| {
                    o.name.attends() && o.rests_on.as_ref().is_some_and(|b| b.evidence != Evidence::Nothing)
                });
                let longest = timed.max_by_key(|o| o.forecast)?;
                Some((longest.forecast.0 as f64, longest.rests_on.as_ref()?.kernel.clone()))
            };
            let times: Vec<_> =
                ["vllm", "sglang", "tensorrt-llm"].into_iter().filter_map(attention).collect();
            let of_all = times.iter().map(|(time, _)| *time);
            let ratio = of_all.clone().fold(0.0, f64::max) / of_all.fold(f64::INFINITY, f64::min);
            if times.len() > 1 && ratio > 2.75 {
                apart.push(format!("{chip} {} {ratio:.2}: {times:?}", model.0));
            }
        }
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
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
