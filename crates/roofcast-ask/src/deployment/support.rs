//! Engines by vendor, format and model: the one table of every verb and writer.
//!
//! Knows: the vendors of the chips on which an engine runs, the formats of weights and KV caches that it has, and models that
//! generate nothing. Knows nothing about speed. An engine without an entry has no rules here. Sources:
//! * vLLM: docs.vllm.ai "Installation" (CUDA from compute capability 7.0, ROCm, XPU, TPU, CPU, and the hardware plugins of
//!   Ascend, Neuron and MUSA); `CacheDType` in `vllm/config/cache.py` of 0.33; `nvfp4` needs Blackwell (FlashInfer).
//! * SGLang: docs.sglang.io "Hardware platforms"; `--kv-cache-dtype` in `server_args.py` of 0.5.23; TPUs have another
//!   program, SGLang-JAX.
//! * TensorRT-LLM: nvidia.github.io/TensorRT-LLM "Supported Hardware" (from Ampere) and "Numerical Precision".
//! * llama.cpp: docs/build.md of b11549 (CUDA, HIP, SYCL, Metal, CANN, MUSA, CPU); `-ctk` in `common/arg.cpp`.

use crate::spec::EngineKind;
use crate::workload::Workload;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use roofcast_facts::precision::{Format, KvFormat, WeightFormat};

/// The line of an engine in the table.
struct Support {
    engine: EngineKind,
    vendors: &'static [&'static str],
    /// NVIDIA's architectures before the first one with which the engine runs.
    too_old: &'static [&'static str],
    /// Formats of the KV cache. `nvfp4` also needs a chip that computes in 4-bit floats.
    kv: &'static [&'static str],
    weights: Weights,
}

/// Weights that an engine reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weights {
    /// Checkpoints of Hugging Face, and GGUF files.
    CheckpointsAndGguf,
    /// Checkpoints of Hugging Face.
    Checkpoints,
    /// GGUF files.
    Gguf,
}

const TABLE: [Support; 4] = [
    Support {
        engine: EngineKind::Vllm,
        vendors: &["nvidia", "amd", "intel", "google", "cpu", "aws", "huawei", "moore-threads"],
        too_old: &["pascal"],
        kv: &["bf16", "fp16", "fp32", "fp8", "int8", "int4", "nvfp4"],
        weights: Weights::CheckpointsAndGguf,
    },
    Support {
        engine: EngineKind::Sglang,
        vendors: &["nvidia", "amd", "intel", "cpu", "huawei"],
        too_old: &["pascal", "volta"],
        kv: &["bf16", "fp16", "fp32", "fp8", "nvfp4"],
        weights: Weights::CheckpointsAndGguf,
    },
    Support {
        engine: EngineKind::TensorrtLlm,
        vendors: &["nvidia"],
        too_old: &["pascal", "volta", "turing"],
        kv: &["bf16", "fp16", "fp32", "fp8", "int8", "nvfp4"],
        weights: Weights::Checkpoints,
    },
    Support {
        engine: EngineKind::LlamaCpp,
        vendors: &["nvidia", "amd", "intel", "apple", "cpu", "huawei", "moore-threads"],
        too_old: &[],
        kv: &["fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"],
        weights: Weights::Gguf,
    },
];

/// Formats with 16 or more bits, which every engine reads.
const WIDE: [&str; 3] = ["bf16", "fp16", "fp32"];

fn of(engine: EngineKind) -> Option<&'static Support> {
    TABLE.iter().find(|support| support.engine == engine)
}

/// True unless the engine is known not to run on `chip`.
pub fn runs_on(engine: EngineKind, chip: &Accelerator) -> bool {
    of(engine).is_none_or(|support| {
        support.vendors.contains(&chip.vendor.as_str())
            && !support.too_old.contains(&chip.architecture.as_str())
    })
}

/// Names of the engines that run on `chip`.
pub fn engines_of(chip: &Accelerator) -> Vec<&'static str> {
    TABLE
        .iter()
        .map(|support| support.engine)
        .filter(|engine| runs_on(*engine, chip))
        .map(EngineKind::name)
        .collect()
}

/// Formats of the KV cache that the engine has on `chip`; `None` for an engine without an entry.
pub fn kv_formats(engine: EngineKind, chip: &Accelerator) -> Option<Vec<&'static str>> {
    let all = of(engine)?.kv.iter().copied();
    Some(all.filter(|kv| *kv != "nvfp4" || chip.computes(&Format::NVFP4)).collect())
}

/// True if the only 8-bit elements of the engine's KV cache are floats.
pub(super) fn floats_alone(engine: EngineKind) -> bool {
    of(engine).is_some_and(|support| support.kv.contains(&"fp8") && !support.kv.contains(&"int8"))
}

/// The reason why the engine does not read weights in the format `name`; `None` if it does.
pub fn unread(engine: EngineKind, name: &str) -> Option<&'static str> {
    let reads = of(engine)?.weights;
    // A file with a format per tensor is of no mixture.
    let gguf = name == "gguf" || matches!(name.parse(), Ok(WeightFormat::Gguf(_)));
    let of_others = ["mlx-", "exl-"].iter().any(|family| name.starts_with(family));
    // ggml has a type of its own for each of these 4-bit floats.
    let in_gguf = gguf || ["mxfp4", "nvfp4"].contains(&name) || WIDE.contains(&name);
    match reads {
        Weights::CheckpointsAndGguf if of_others => {
            Some("formats of checkpoints, as fp8, awq or nvfp4, or of GGUF")
        }
        Weights::Checkpoints if of_others || gguf => {
            Some("formats of checkpoints, as bf16, fp8, awq or nvfp4")
        }
        Weights::Gguf if !in_gguf => Some("formats of GGUF, as q8_0, q4_k_m, bf16 or mxfp4"),
        _ => None,
    }
}

/// Refuses a named engine that does not run on `chip`.
pub(super) fn check_chip(named: Option<EngineKind>, chip: &Accelerator) -> Result<()> {
    match named.filter(|engine| !runs_on(*engine, chip)) {
        None => Ok(()),
        Some(engine) => {
            let accepted = format!("an engine that runs on {}: {}", chip.id, engines_of(chip).join(", "));
            Err(Error::field("engine", "name", format!("{:?}", engine.name()), accepted))
        }
    }
}

/// Refuses formats that a named engine lacks on `chip`, and a KV cache in 4-bit floats on a chip without them.
pub(super) fn check_formats(
    named: Option<EngineKind>,
    chip: &Accelerator,
    weights: &str,
    kv: KvFormat,
) -> Result<()> {
    let Some(engine) = named else {
        if kv.name == "nvfp4" && !chip.computes(&Format::NVFP4) {
            let accepted = format!("bf16, fp16, fp8, int8 or int4: {} does not compute in nvfp4", chip.id);
            return Err(Error::field("precision", "kv", format!("{:?}", kv.name), accepted));
        }
        return Ok(());
    };
    if let Some(accepted) = unread(engine, weights) {
        let accepted = format!("{accepted}: {} reads no others", engine.name());
        return Err(Error::field("precision", "weights", format!("{weights:?}"), accepted));
    }
    match kv_formats(engine, chip) {
        Some(formats) if !formats.contains(&kv.name) => {
            let accepted = format!("auto, {}: those of {} on {}", formats.join(", "), engine.name(), chip.id);
            Err(Error::field("precision", "kv", format!("{:?}", kv.name), accepted))
        }
        _ => Ok(()),
    }
}

/// Words in the names of models that give a vector or a score for a prompt.
const ENCODING: [&str; 6] = ["embedding", "embeddings", "embed", "reranker", "rerank", "embedder"];

/// True for a model that generates no text.
pub fn encodes(model: &Model) -> bool {
    let name = model.name.to_lowercase();
    name.split(|c: char| !c.is_alphanumeric()).any(|word| ENCODING.contains(&word))
}

/// Refuses answers of more than one token from a model that generates none.
pub fn check_answers(place: &str, model: &Model, workload: &Workload) -> Result<()> {
    if !encodes(model) || workload.output_mean() <= 1.0 {
        return Ok(());
    }
    let accepted = format!("1: {} gives a vector or a score for a prompt and generates nothing", model.name);
    Err(Error::field(place, "workload.output_len", format!("{:.0}", workload.output_mean()), accepted))
}

/// Refuses a model that generates no text, where tokens are decoded.
pub fn check_generates(place: &str, model: &Model) -> Result<()> {
    if !encodes(model) {
        return Ok(());
    }
    let accepted = format!(
        "a model that generates: {} gives a vector or a score for a prompt; limits --sweep prefill=… and simulate \
         --output-len 1 compute prompts",
        model.name
    );
    Err(Error::field(place, "model.name", &model.name, accepted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_facts::catalog::Catalog;

    fn chip(id: &str) -> Accelerator {
        Catalog::embedded().unwrap().accelerator(id).unwrap().clone()
    }

    #[test]
    fn engines_run_on_the_chips_of_their_vendors() {
        let names = |id: &str| engines_of(&chip(id)).join(" ");
        assert_eq!(names("h100-sxm"), "vllm sglang tensorrt-llm llama.cpp");
        assert_eq!(names("mi300x"), "vllm sglang llama.cpp");
        assert_eq!(names("tpu-v6e"), "vllm");
        assert_eq!(names("v100-32gb"), "vllm llama.cpp");
        assert_eq!(names("p40"), "llama.cpp");
        assert!(
            runs_on(EngineKind::Other, &chip("tpu-v6e")) && runs_on(EngineKind::Transformers, &chip("p40"))
        );
    }

    #[test]
    fn a_refusal_names_what_runs() {
        let error = check_chip(Some(EngineKind::TensorrtLlm), &chip("mi300x")).unwrap_err().to_string();
        assert!(
            error.contains("tensorrt-llm") && error.contains("mi300x: vllm, sglang, llama.cpp"),
            "{error}"
        );
        assert!(check_chip(None, &chip("mi300x")).is_ok());
    }

    #[test]
    fn a_cache_in_four_bit_floats_needs_a_chip_that_has_them() {
        let checked = |engine: Option<EngineKind>, id: &str, kv: &str| {
            check_formats(engine, &chip(id), "bf16", kv.parse().unwrap())
        };
        for engine in [None, Some(EngineKind::Vllm), Some(EngineKind::Sglang), Some(EngineKind::TensorrtLlm)]
        {
            assert!(
                checked(engine, "h100-sxm", "nvfp4").is_err() && checked(engine, "b200-sxm", "nvfp4").is_ok()
            );
        }
        // AMD's 4-bit floats are MXFP4.
        assert!(checked(Some(EngineKind::Vllm), "mi355x", "nvfp4").is_err());
        assert!(checked(Some(EngineKind::LlamaCpp), "b200-sxm", "nvfp4").is_err());
        assert!(checked(Some(EngineKind::LlamaCpp), "h100-sxm", "q8_0").is_ok());
        let error = checked(Some(EngineKind::Vllm), "h100-sxm", "q8_0").unwrap_err().to_string();
        assert!(error.contains("`kv`") && error.contains("fp8"), "{error}");
    }

    #[test]
    fn engines_read_their_own_kinds_of_files() {
        for (engine, format, reads) in [
            (EngineKind::LlamaCpp, "q4_k_m", true),
            (EngineKind::LlamaCpp, "bf16", true),
            (EngineKind::LlamaCpp, "fp8", false),
            (EngineKind::Vllm, "q4_k_m", true),
            (EngineKind::Vllm, "mlx-4bit", false),
            (EngineKind::TensorrtLlm, "q4_k_m", false),
            (EngineKind::TensorrtLlm, "nvfp4", true),
            (EngineKind::Other, "exl-3bpw", true),
        ] {
            assert_eq!(unread(engine, format).is_none(), reads, "{engine:?} {format}");
        }
    }

    #[test]
    fn names_tell_models_that_generate_nothing() {
        let model = |name: &str| Catalog::embedded().unwrap().named(name).unwrap().model().unwrap();
        assert!(encodes(&model("Qwen/Qwen3-Embedding-8B")) && !encodes(&model("Qwen/Qwen3-8B")));
    }
}
