//! Which kernel multiplies quantized weights: chosen by name, else what the engine's version uses.
//!
//! Knows: `catalog/kernels.toml`, whose kernels are like those that were measured with an engine and a format, and from how
//! many rows on they unpack their weights. Knows nothing about times.

use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::precision::Dtype;
use crate::spec::EngineSpec;
use crate::version::Version;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const PLACE: &str = "catalog/kernels.toml";
const TEXT: &str = include_str!("../catalog/kernels.toml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kernel: Vec<Kernel>,
}

/// A kernel of quantized weights.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// As in `marlin`.
    pub name: String,
    /// Weight formats that it multiplies.
    pub formats: Vec<String>,
    /// Whose measured products its are.
    pub like: Measured,
    /// Where its regimes stand.
    pub source: String,
    /// Share of the peak, in the place of the measured one.
    pub gemm_compute: Option<f64>,
    /// Share of the shorter of computing and moving that the longer does not hide, in the place of the measured one.
    pub gemm_exposed: Option<f64>,
    /// Formats that it multiplies beside, in 16 bits, where activations have those or the chip has no rate for the dtype.
    #[serde(default)]
    weight_only: BTreeMap<String, Dtype>,
    /// Whose chips alone unpack; all where absent.
    vendor: Option<String>,
    unpacks_from: Option<u64>,
    unpacking: Option<f64>,
    /// Whether unpacked weights are multiplied with sums of 16 bits (`cublasHgemm`).
    #[serde(default)]
    fp16_accumulate: bool,
    #[serde(default)]
    default: Vec<Default>,
}

/// An engine with a weight format; any format where that is empty.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// As in `vllm`.
    pub engine: String,
    /// As in `gptq-int4`.
    pub weights: String,
}

/// Weights unpacked to 16 bits before a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unpacking {
    /// From so many rows on.
    pub from: u64,
    /// Share of the bandwidth at which that reads and writes.
    pub share: f64,
    /// Times of the usual rate of 16-bit products at which they are then multiplied.
    pub faster: f64,
}

/// Where a kernel is the engine's own choice; versions are `since` ≤ version < `until`, each with its month: `0.5.3 (2024-07)`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Default {
    engine: String,
    weights: String,
    since: Option<String>,
    until: Option<String>,
}

/// Every kernel that has a name.
pub fn kernels() -> Result<&'static [Kernel]> {
    static PARSED: OnceLock<Result<Vec<Kernel>>> = OnceLock::new();
    let parse =
        || toml::from_str::<File>(TEXT).map(|f| f.kernel).map_err(|e| Error::toml(PLACE, TEXT, "", &e));
    PARSED.get_or_init(parse).as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// The kernel of `weights` under `engine`: the one named, else the version's own; none where no kernel has a name.
pub fn kernel(engine: &EngineSpec, weights: &str) -> Result<Option<&'static Kernel>> {
    let all = kernels()?;
    let Some(name) = &engine.quantization_kernel else {
        return Ok(all.iter().find(|k| k.default.iter().any(|d| d.holds(engine, weights))));
    };
    let named = all.iter().find(|k| k.name == name.replace('_', "-"));
    let fitting = || {
        let names = all.iter().filter(|k| k.multiplies(weights)).map(|k| k.name.as_str()).collect::<Vec<_>>();
        if names.is_empty() { format!("none: no kernel of {weights} has a name") } else { names.join(", ") }
    };
    match named {
        Some(kernel) if kernel.multiplies(weights) => Ok(Some(kernel)),
        _ => Err(Error::field(
            "engine",
            "quantization_kernel",
            format!("{name:?} for {weights} weights"),
            fitting(),
        )),
    }
}

/// The format under which `engine` was measured with the kernel that multiplies `weights` there; none where that is their own,
/// or another engine's.
pub fn measured_as(
    engine: &EngineSpec,
    weights: &str,
    activations: Option<Dtype>,
    chip: &Accelerator,
) -> Option<&'static str> {
    let named = matches!(activations, Some(Dtype::Bf16 | Dtype::Fp16));
    let unpacks = |kernel: &&Kernel| kernel.weight_only.get(weights).is_some_and(|d| named || !chip.has(*d));
    let kernel = kernels().ok()?.iter().find(unpacks).or(kernel(engine, weights).ok().flatten())?;
    let like = Some(kernel.like.weights.as_str()).filter(|like| !like.is_empty() && *like != weights);
    like.filter(|_| kernel.like.engine == engine.name())
}

impl Kernel {
    /// Whether it multiplies weights of a format.
    pub fn multiplies(&self, weights: &str) -> bool {
        self.formats.iter().any(|f| f == weights)
    }

    /// From how many rows on it unpacks its weights on `chip`, and how fast.
    pub fn unpacking(&self, chip: &Accelerator) -> Option<Unpacking> {
        let usual = chip.peak_flops.get(&Dtype::Fp16);
        let faster = chip.fp16_accumulate_flops.filter(|_| self.fp16_accumulate).zip(usual);
        if self.vendor.as_ref().is_some_and(|vendor| *vendor != chip.vendor) {
            return None;
        }
        Some(Unpacking {
            from: self.unpacks_from?,
            share: self.unpacking?,
            faster: faster.map_or(1.0, |(half, usual)| half.0 / usual.0),
        })
    }
}

impl Default {
    fn holds(&self, engine: &EngineSpec, weights: &str) -> bool {
        let same = engine.name() == self.engine && (self.weights == weights || self.weights.is_empty());
        let before = |release: &String| engine.version.as_deref().is_some_and(|v| precedes(v, release));
        same && !self.since.as_ref().is_some_and(before) && self.until.as_ref().is_none_or(before)
    }
}

/// Whether `version` is before `release`; by the month where it is a date. What is neither, as `nightly`, is new.
fn precedes(version: &str, release: &str) -> bool {
    if let Some(order) = Version::compare(version, release) {
        return order.is_lt();
    }
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    let (date, month) = (numbers(version), numbers(release.split('(').nth(1).unwrap_or_default()));
    !date.is_empty() && date < month
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str, version: Option<&str>, asked: Option<&str>, weights: &str) -> String {
        let engine = EngineSpec {
            name: Some(name.into()),
            version: version.map(str::to_owned),
            quantization_kernel: asked.map(str::to_owned),
            ..EngineSpec::default()
        };
        kernel(&engine, weights).map_or_else(|e| e.to_string(), |k| k.map_or("–".into(), |k| k.name.clone()))
    }

    /// Marlin unpacks what a chip has no rate for, and what is asked to be computed in 16 bits; an H100 has one for fp8 and
    /// none for fp4, other engines have other kernels.
    #[test]
    fn weights_that_are_unpacked_to_16_bits_have_one_kernel() {
        let chip = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
        let like = |name: &str, weights, activations| {
            let engine = EngineSpec { name: Some(name.into()), ..EngineSpec::default() };
            measured_as(&engine, weights, activations, chip)
        };
        assert_eq!(like("vllm", "fp8", None), None);
        assert_eq!(like("vllm", "fp8", Some(Dtype::Bf16)), Some("gptq-int4"));
        assert_eq!(like("vllm", "nvfp4", None), Some("gptq-int4"));
        assert_eq!(like("tensorrt-llm", "nvfp4", None), None);
        assert_eq!(like("vllm", "bf16", Some(Dtype::Bf16)), None);
        assert_eq!(like("vllm", "awq-int4", None), Some("gptq-int4"));
        assert_eq!(like("transformers", "awq-int4", None), None);
        assert_eq!(like("vllm", "gptq-int4", None), None);
    }

    /// cuBLAS is NVIDIA's; GeForce cards keep sums of 16 bits at twice the rate of others: 330.3 of 165.2 TFLOP/s.
    #[test]
    fn rows_beyond_32_are_unpacked_on_nvidias_chips() {
        let unpacking = |chip: &str| {
            let kernel = kernels().unwrap().iter().find(|k| k.name == "gguf-cublas").unwrap();
            kernel.unpacking(crate::Catalog::embedded().unwrap().accelerator(chip).unwrap())
        };
        let card = unpacking("rtx-4090").unwrap();
        assert_eq!((card.from, card.share), (33, 1.0));
        assert!((card.faster - 2.0).abs() < 1e-3, "{card:?}");
        assert_eq!(unpacking("m2-ultra"), None);
    }

    #[test]
    fn the_version_chooses_and_the_name_overrides() {
        assert_eq!(chosen("vllm", Some("0.5.0"), None, "awq-int4"), "awq");
        assert_eq!(chosen("vllm", Some("2024-05/06"), None, "awq-int4"), "awq");
        assert_eq!(chosen("vllm", Some("0.11.0"), None, "awq-int4"), "awq-marlin");
        assert_eq!(chosen("vllm", None, None, "awq-int4"), "awq-marlin");
        assert_eq!(chosen("vllm", None, Some("awq"), "awq-int4"), "awq");
        assert_eq!(chosen("transformers", None, None, "awq-int4"), "–");
        assert_eq!(chosen("transformers", None, Some("exllama_v2"), "awq-int4"), "exllama-v2");
        assert_eq!(chosen("vllm", Some("nightly"), None, "awq-int4"), "awq-marlin");
        assert_eq!(chosen("llama.cpp", None, None, "q4_k_m"), "gguf-mmq");
        for (version, kernel) in [
            ("b3000", "gguf-cublas"),
            ("2024-05/06", "gguf-cublas"),
            ("b3216", "gguf-mmq"),
            ("build 7941-7948 (2026-02)", "gguf-mmq"),
            ("2026-02", "gguf-mmq"),
        ] {
            assert_eq!(chosen("llama.cpp", Some(version), None, "q4_k_m"), kernel, "{version}");
        }
        let refused = chosen("vllm", None, Some("marlin"), "awq-int4");
        assert!(refused.contains("awq-marlin, awq, awq-gemm, exllama-v2"), "{refused}");
        assert!(chosen("vllm", None, Some("marlin"), "bf16").contains("none"));
    }
}
