//! Kernels of quantized weights, chosen by name or by the engine's version.
//!
//! Knows: the contents of `catalog/kernels.toml`: the kernel of each format that was measured with an engine, the
//! number of rows from which on a kernel dequantizes its weights first, the number of rows that share one read of the
//! weights, and the number of additional kernels that it launches. Knows nothing about times.

mod figures;

use crate::spec::{EngineKind, Release};
use figures::ChipFigures;
pub use figures::ChipRates;
pub use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::FlopRate;
use roofcast_facts::version::precedes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const PLACE: &str = "catalog/kernels.toml";
const TEXT: &str = include_str!("../catalog/kernels.toml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kernel: Vec<QuantizedKernel>,
}

/// Named kernel of quantized weights.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizedKernel {
    /// Name of the kernel, as in `marlin`.
    pub name: String,
    /// Weight formats that it supports.
    pub(crate) formats: Vec<String>,
    /// Source of the kernel's behaviour by number of rows.
    pub(crate) source: String,
    /// Efficiency of HBM traffic in the kernel's GEMMs, if it differs from the usual efficiency.
    gemm_memory: Option<f64>,
    /// Efficiency of arithmetic in the kernel's GEMMs, if it differs from the usual efficiency.
    gemm_compute: Option<f64>,
    /// Fraction of the shorter of arithmetic and HBM traffic that is exposed in the kernel's GEMMs.
    gemm_exposed: Option<f64>,
    /// Formats that the kernel also multiplies in 16 bits, each with its dtype: if activations have 16 bits, or if
    /// the chip has no rate for the dtype.
    #[serde(default)]
    weight_only: BTreeMap<String, Dtype>,
    /// Vendors on whose chips the kernel runs; all if empty.
    #[serde(default)]
    vendors: Vec<String>,
    /// Dtype in which the chip must be able to compute; no requirement if absent.
    rate: Option<Dtype>,
    /// Architectures on whose chips the kernel's figures were measured.
    #[serde(default)]
    measured_on: Vec<String>,
    unpacks_from: Option<u64>,
    unpacking: Option<f64>,
    rows: Option<RowBlocks>,
    expert_rows: Option<RowBlocks>,
    crossings: Option<[f64; 2]>,
    #[serde(default)]
    launches: u64,
    /// FLOPs per multiprocessor and cycle of the GEMM in a kernel that also dequantizes.
    flops_a_cycle: Option<f64>,
    /// True if the GEMM of dequantized weights accumulates in 16 bits (`cublasHgemm`).
    #[serde(default)]
    fp16_accumulate: bool,
    /// Figures of chips, by architecture or vendor.
    #[serde(default)]
    on: Vec<ChipFigures>,
    #[serde(default)]
    default: Vec<Default>,
}

/// Dequantization of weights to 16 bits in a separate kernel before a GEMM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unpacking {
    /// Smallest number of rows at which weights are dequantized first.
    pub from: u64,
    /// Efficiency of the HBM traffic of dequantization: fraction of the bandwidth.
    pub share: f64,
    /// Speed of the following GEMM relative to the usual 16-bit GEMM.
    pub faster: f64,
}

/// Rows that share one read of the weights. In a small-M GEMM, `at_once` rows share one read; in a larger GEMM, rows
/// fill tiles, which compute all their rows and find the weights in caches.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowBlocks {
    /// Most rows of a small-M GEMM; for experts, most tokens.
    pub few: u64,
    /// Number of rows of a small-M GEMM that share one read.
    pub at_once: u64,
    /// Rows of a tile.
    pub tile: u64,
    /// Output columns of a tile; `None` if the number of tiles does not affect the time.
    pub width: Option<u64>,
    /// Number of tiles that keep one multiprocessor busy.
    #[serde(default)]
    pub resident: u64,
}

/// Behaviour of a kernel by number of rows.
#[derive(Debug, Clone, Copy, PartialEq, std::default::Default)]
pub struct Regimes {
    /// Dequantization before the GEMM; `None` if the kernel never dequantizes first.
    pub unpacking: Option<Unpacking>,
    /// Sharing of reads in GEMMs; `None` if one read serves all rows.
    pub rows: Option<RowBlocks>,
    /// Sharing of reads in routed experts; `None` if one read serves all rows.
    pub expert_rows: Option<RowBlocks>,
    /// Figures on the chip's architecture or its vendor's chips; none where nobody published some.
    pub on_chip: ChipRates,
    /// Additional HBM traffic of a GEMM's input, and of its output, as multiples of their bytes; `None` if measured
    /// times include it.
    pub crossings: Option<[f64; 2]>,
    /// Number of kernels that the host launches per GEMM in addition to the GEMM itself.
    pub launches: u64,
    /// Efficiency of HBM traffic in GEMMs; `None` for the usual efficiency.
    pub memory: Option<f64>,
    /// Efficiency of arithmetic in GEMMs; `None` for the usual efficiency.
    pub compute: Option<f64>,
    /// Fraction of the shorter of arithmetic and HBM traffic that is exposed in GEMMs; `None` for 0.
    pub exposed: Option<f64>,
    /// FLOP/s of the GEMM in a kernel that also dequantizes, an upper bound in addition to the 16-bit rate.
    pub beside_unpacking: Option<FlopRate>,
    /// Name of the kernel; `None` for the usual kernel.
    pub name: Option<&'static str>,
    /// True if the kernel's figures were measured on a chip of the architecture.
    pub is_measured: bool,
}

/// Versions of an engine that choose a kernel by default: `since` ≤ version < `until`, each with its month, as in
/// `0.5.3 (2024-07)`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Default {
    engine: String,
    weights: String,
    since: Option<String>,
    until: Option<String>,
}

/// Returns all named kernels.
pub fn kernels() -> Result<&'static [QuantizedKernel]> {
    static PARSED: OnceLock<Result<Vec<QuantizedKernel>>> = OnceLock::new();
    let parse =
        || toml::from_str::<File>(TEXT).map(|f| f.kernel).map_err(|e| Error::toml(PLACE, TEXT, "", &e));
    PARSED.get_or_init(parse).as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// Kernel for `weights` under `engine` on `chip`: the requested kernel, else the version's default; `None` if neither
/// is named.
pub(crate) fn kernel(
    release: &Release,
    named: Option<&str>,
    weights: &str,
    chip: &Accelerator,
) -> Result<Option<&'static QuantizedKernel>> {
    let all = || kernels().map(|all| all.iter().filter(|kernel| kernel.runs_on(chip)));
    let Some(name) = named else {
        return Ok(all()?.find(|k| k.default.iter().any(|d| d.holds(release, weights))));
    };
    let named = all()?.find(|k| k.name == name.replace('_', "-"));
    if let Some(kernel) = named.filter(|kernel| kernel.multiplies(weights)) {
        return Ok(Some(kernel));
    }
    let fitting: Vec<&str> = all()?.filter(|k| k.multiplies(weights)).map(|k| k.name.as_str()).collect();
    let accepted = match (fitting.is_empty(), untimed(name)) {
        (true, _) => format!("none: no kernel of {weights} has a name on {}", chip.id),
        (false, None) => fitting.join(", "),
        (false, Some(reason)) => format!("{}; {reason}", fitting.join(", ")),
    };
    Err(Error::field("engine", "quantization_kernel", format!("{name:?} for {weights} weights"), accepted))
}

/// Reason for which a kernel that other programs name is not forecast; `None` for an unknown name.
fn untimed(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().replace(['_', '-'], "").as_str() {
        "exllama" | "exllamav1" => {
            "ExLlama's first kernel (version 1 of transformers' exllama_config) was not timed, its second was"
        }
        "awqgemv" | "gemv" | "gemvfast" => {
            "AutoAWQ's kernels for one row (version gemv) were not timed, those for several (gemm) were"
        }
        "autoawq" => "AutoAWQ's kernel is awq-gemm",
        "marlin24" | "gptqmarlin24" => "no kernel of 2:4 sparsity was timed",
        _ => return None,
    })
}

/// Named kernel that computes GEMMs of `weights` under `engine` on `chip`, including kernels that dequantize because
/// activations have 16 bits or because the chip has no rate for the format's dtype. `None` if tables of kernel times
/// have the GEMM.
pub fn running(
    release: &Release,
    kernel_name: Option<&str>,
    weights: &str,
    activations: Option<Dtype>,
    chip: &Accelerator,
) -> Option<&'static QuantizedKernel> {
    let named = matches!(activations, Some(Dtype::Bf16 | Dtype::Fp16));
    let unpacks =
        |kernel: &&QuantizedKernel| kernel.weight_only.get(weights).is_some_and(|d| named || !chip.has(*d));
    let unpacking = kernels().ok()?.iter().filter(|_| release.kind == EngineKind::Vllm).find(unpacks);
    unpacking.or(kernel(release, kernel_name, weights, chip).ok().flatten())
}

impl QuantizedKernel {
    /// True if the kernel multiplies weights in a format.
    pub(crate) fn multiplies(&self, weights: &str) -> bool {
        self.formats.iter().any(|f| f == weights)
    }

    /// True if the kernel runs on `chip`.
    fn runs_on(&self, chip: &Accelerator) -> bool {
        (self.vendors.is_empty() || self.vendors.contains(&chip.vendor))
            && self.rate.is_none_or(|dtype| chip.has(dtype))
    }

    /// Behaviour of the kernel by number of rows on `chip`.
    pub fn regimes(&'static self, chip: &Accelerator) -> Regimes {
        let on_chip = self.on.iter().find(|f| f.apply_to(chip)).map(ChipFigures::rates).unwrap_or_default();
        Regimes {
            unpacking: self.unpacking(chip),
            rows: self.rows,
            expert_rows: self.expert_rows,
            on_chip,
            crossings: self.crossings,
            launches: self.launches,
            memory: self.gemm_memory,
            compute: on_chip.gemm.or(self.gemm_compute),
            exposed: self.gemm_exposed,
            beside_unpacking: self
                .flops_a_cycle
                .zip(chip.multiprocessor_cycles())
                .map(|(flops, cycles)| FlopRate(flops * cycles)),
            name: Some(&self.name),
            is_measured: self.measured_on.contains(&chip.architecture),
        }
    }

    /// Dequantization before the GEMM on `chip`, if the kernel does it.
    fn unpacking(&self, chip: &Accelerator) -> Option<Unpacking> {
        let usual = chip.peak_flops.get(&Dtype::Fp16);
        let faster = chip.fp16_accumulate_flops.filter(|_| self.fp16_accumulate).zip(usual);
        Some(Unpacking {
            from: self.unpacks_from?,
            share: self.unpacking?,
            faster: faster.map_or(1.0, |(half, usual)| half.0 / usual.0),
        })
    }
}

impl RowBlocks {
    /// Number of reads of the weights in a GEMM of `rows` rows; all tiles after the first find the weights in caches.
    pub fn reads(self, rows: f64) -> f64 {
        if rows > self.few as f64 { 1.0 } else { (rows / self.at_once as f64).ceil() }
    }

    /// Number of rows that a GEMM of `rows` rows computes, padding included.
    pub fn computed(self, rows: f64) -> f64 {
        if rows > self.few as f64 { (rows / self.tile as f64).ceil() * self.tile as f64 } else { rows }
    }

    /// Factor on the time of the arithmetic, above 1 if there are too few tiles to keep all multiprocessors busy.
    pub fn waits(self, rows: f64, outputs: f64, multiprocessors: u64) -> f64 {
        let Some(width) = self.width.filter(|_| rows > self.few as f64) else { return 1.0 };
        let tiles = (rows / self.tile as f64).ceil() * (outputs / width as f64).ceil();
        ((self.resident * multiprocessors) as f64 / tiles.max(1.0)).max(1.0)
    }
}

impl Default {
    fn holds(&self, release: &Release, weights: &str) -> bool {
        let same = release.name == self.engine && (self.weights == weights || self.weights.is_empty());
        let before = |bound: &String| release.version.as_deref().is_some_and(|v| precedes(v, bound));
        same && !self.since.as_ref().is_some_and(before) && self.until.as_ref().is_none_or(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip(id: &str) -> &'static Accelerator {
        roofcast_facts::Catalog::embedded().unwrap().accelerator(id).unwrap()
    }

    fn chosen(name: &str, version: Option<&str>, asked: Option<&str>, weights: &str) -> String {
        chosen_on("rtx-4090", name, version, asked, weights)
    }

    fn chosen_on(id: &str, name: &str, version: Option<&str>, asked: Option<&str>, weights: &str) -> String {
        kernel(&Release::new(name, version), asked, weights, chip(id))
            .map_or_else(|e| e.to_string(), |k| k.map_or("–".into(), |k| k.name.clone()))
    }

    /// Marlin serves formats for which the chip has no rate, and formats that the user requests to compute in 16
    /// bits: an H100 has a rate for fp8 and none for fp4. Other engines have other kernels.
    #[test]
    fn weights_that_are_unpacked_to_16_bits_have_one_kernel() {
        let chip = chip("h100-sxm");
        let runs = |name: &str, weights, activations| {
            running(&Release::new(name, None), None, weights, activations, chip)
                .map(|kernel| kernel.name.as_str())
        };
        assert_eq!(runs("vllm", "fp8", None), None);
        assert_eq!(runs("vllm", "fp8", Some(Dtype::Bf16)), Some("marlin"));
        assert_eq!(runs("vllm", "nvfp4", None), Some("marlin"));
        assert_eq!(runs("tensorrt-llm", "nvfp4", None), None);
        assert_eq!(runs("vllm", "bf16", Some(Dtype::Bf16)), None);
        assert_eq!(runs("vllm", "awq-int4", None), Some("awq-marlin"));
        assert_eq!(runs("transformers", "awq-int4", None), None);
    }

    /// cuBLAS runs on NVIDIA's chips only; GeForce cards accumulate in 16 bits at twice the usual rate: 330.3 instead
    /// of 165.2 TFLOP/s.
    #[test]
    fn rows_beyond_32_are_unpacked_on_nvidias_chips() {
        let kernel = kernels().unwrap().iter().find(|k| k.name == "gguf-cublas").unwrap();
        let card = kernel.unpacking(chip("rtx-4090")).unwrap();
        assert_eq!((card.from, card.share), (33, 1.0));
        assert!((card.faster - 2.0).abs() < 1e-3, "{card:?}");
    }

    /// Apple's chips use llama.cpp's Metal kernels in every version and no other kernels; no other chip has Metal
    /// kernels.
    #[test]
    fn a_kernel_runs_on_its_vendors_chips() {
        for version in [None, Some("b3000"), Some("2026-02")] {
            assert_eq!(chosen_on("m2-ultra", "llama.cpp", version, None, "q4_k_m"), "gguf-metal");
        }
        assert_eq!(chosen_on("mi300x", "llama.cpp", Some("b3000"), None, "q4_k_m"), "–");
        assert_eq!(chosen_on("epyc-9654", "llama.cpp", None, None, "q4_k_m"), "gguf-cpu");
        for weights in ["awq-int4", "gptq-int4"] {
            assert_eq!(chosen_on("mi300x", "vllm", None, None, weights), "triton-w4a16");
        }
        let refused = chosen("llama.cpp", None, Some("gguf-metal"), "q4_k_m");
        assert!(refused.contains("gguf-mmq, gguf-cublas"), "{refused}");
        for other in ["gguf-cublas", "gguf-mmq"] {
            let refused = chosen_on("m2-ultra", "llama.cpp", None, Some(other), "q4_k_m");
            assert!(refused.contains("accepted: gguf-metal"), "{refused}");
        }
    }

    /// Up to 5 rows share one read, and 6 to 8 rows need two reads; from 9 rows on, one read serves whole tiles of 32
    /// rows.
    #[test]
    fn rows_share_reads_in_blocks() {
        let blocks = RowBlocks { few: 8, at_once: 5, tile: 32, width: Some(64), resident: 2 };
        assert_eq!([1.0, 5.0, 6.0, 8.0, 9.0, 512.0].map(|r| blocks.reads(r)), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0]);
        assert_eq!([1.0, 8.0, 9.0, 32.0, 33.0].map(|r| blocks.computed(r)), [1.0, 8.0, 32.0, 32.0, 64.0]);
        // 32 rows of 3584 outputs are 56 tiles, but 76 cores need 152 to be busy; 128 rows are 224 tiles.
        assert_eq!([8.0, 32.0, 128.0].map(|r| blocks.waits(r, 3584.0, 76)), [1.0, 152.0 / 56.0, 1.0]);
        assert_eq!(RowBlocks { width: None, ..blocks }.waits(32.0, 3584.0, 76), 1.0);
    }

    /// SGLang repacks GPTQ and AWQ for Marlin on CUDA, unless another kernel is asked for, and nowhere else.
    #[test]
    fn sglang_repacks_for_marlin() {
        let on = |id: &str, version, weights| chosen_on(id, "sglang", version, None, weights);
        for version in [None, Some("0.4.6"), Some("0.5.23")] {
            assert_eq!(on("h100-sxm", version, "gptq-int4"), "marlin");
            assert_eq!(on("h100-sxm", version, "awq-int4"), "awq-marlin");
        }
        assert_eq!(on("mi300x", None, "gptq-int4"), "–");
        assert_eq!(chosen("sglang", None, Some("awq-gemm"), "awq-int4"), "awq-gemm");
    }

    /// In 2024 vLLM used three kernels for quantized weights on chips that compute in fp8, which an A100 does not.
    #[test]
    fn a_kernel_runs_on_chips_with_its_rate() {
        assert_eq!(chosen("vllm", Some("0.5.0"), None, "fp8"), "fp8-scaled-mm");
        assert_eq!(chosen("vllm", Some("2024-05/06"), None, "fp8"), "fp8-scaled-mm");
        assert_eq!(chosen("vllm", Some("0.6.3"), None, "fp8"), "–");
        assert_eq!(chosen_on("a100-sxm-80gb", "vllm", Some("0.5.0"), None, "fp8"), "–");
    }

    /// An A100 has 19.5 TFLOP/s in fp32, 128 FLOPs per multiprocessor and cycle with 108 multiprocessors at 1.41 GHz;
    /// an RTX 4090 has 82.6, 256 with 128 at 2.52 GHz. Marlin reaches 920 FLOPs per multiprocessor and cycle: 140
    /// TFLOP/s on the A100, and 297 on the RTX 4090, which exceeds the 165 of its tensor cores.
    #[test]
    fn unpacking_leaves_marlin_920_a_cycle() {
        let kernel = kernels().unwrap().iter().find(|k| k.name == "marlin").unwrap();
        let near = |id: &str, expected: f64| {
            let rate = kernel.regimes(chip(id)).beside_unpacking.unwrap().0;
            assert!((rate / expected - 1.0).abs() < 0.01, "{id} {rate}");
        };
        near("a100-sxm-80gb", 920.0 * 108.0 * 1.41e9);
        near("rtx-4090", 920.0 * 128.0 * 2.52e9);
        assert_eq!(kernel.regimes(chip("mi300x")).beside_unpacking, None);
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
        for (name, reason) in [("exllama", "first kernel"), ("gemv", "one row"), ("marlin-24", "2:4")] {
            let refused = chosen("transformers", None, Some(name), "awq-int4");
            assert!(refused.contains(reason) && refused.contains("awq-gemm"), "{refused}");
        }
    }
}
