//! Figures of a kernel that differ by chip.
//!
//! Knows: the keys of `[[kernel.on]]` in `catalog/kernels.toml`, and the chips that they apply to. Knows nothing about which
//! kernel runs.

use roofcast_facts::accelerator::Accelerator;
use serde::Deserialize;

/// Figures of a kernel on the chips of one architecture or vendor, with their source.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChipFigures {
    architecture: Option<String>,
    vendor: Option<String>,
    gemm: Option<f64>,
    experts: Option<f64>,
    attention_fp32: Option<f64>,
    #[serde(default)]
    input_ns: f64,
    /// Source of the figures.
    #[allow(dead_code)]
    source: String,
}

/// Rates of a kernel on one chip.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ChipRates {
    /// Efficiency of arithmetic in GEMMs: fraction of the peak; `None` for the kernel's own.
    pub gemm: Option<f64>,
    /// Efficiency of arithmetic in routed experts: fraction of the peak; `None` for the usual efficiency.
    pub experts: Option<f64>,
    /// Efficiency of arithmetic in attention: fraction of the rate in 32 bits; `None` for the usual efficiency of the usual
    /// rate.
    pub attention_fp32: Option<f64>,
    /// Seconds in which one thread converts an element of the input of routed experts, during which the others wait.
    pub input: f64,
}

impl ChipFigures {
    /// True if the figures hold on `chip`.
    pub(super) fn apply_to(&self, chip: &Accelerator) -> bool {
        self.architecture.as_ref().is_none_or(|architecture| *architecture == chip.architecture)
            && self.vendor.as_ref().is_none_or(|vendor| *vendor == chip.vendor)
    }

    /// The rates, in seconds and fractions.
    pub(super) fn rates(&self) -> ChipRates {
        ChipRates {
            gemm: self.gemm,
            experts: self.experts,
            attention_fp32: self.attention_fp32,
            input: self.input_ns * 1e-9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels;
    use super::ChipRates;
    use roofcast_facts::Catalog;

    fn rates(kernel: &str, chip: &str) -> ChipRates {
        let kernel = kernels().unwrap().iter().find(|k| k.name == kernel).unwrap();
        kernel.regimes(Catalog::embedded().unwrap().accelerator(chip).unwrap()).on_chip
    }

    fn near(figure: Option<f64>, published: f64) {
        assert!((figure.unwrap() / published - 1.0).abs() < 0.03, "{figure:?} {published}");
    }

    /// Qwen3-30B-A3B has 48 layers of 18.87M weights of attention and 8 experts of 3 · 2048 · 768, and 786,432 FLOPs of
    /// attention a pair. 512 prompt tokens on a Ryzen 9 7950X at 5 GHz (10.24 TOP/s in 8 bits, 2.56 TFLOP/s in 32) take 512 /
    /// 210.37 s.
    #[test]
    fn experts_on_a_processor_by_hand() {
        let x86 = rates("gguf-cpu", "epyc-9654");
        let products = 48.0 * 18.87e6 * 2.0 * 512.0 / (x86.gemm.unwrap() * 10.24e12);
        let attention = 786_432.0 * 512.0 * 512.0 / 2.0 / (x86.attention_fp32.unwrap() * 2.56e12);
        let conversion = 48.0 * 512.0 * 2048.0 * x86.input;
        let experts = 48.0 * 8.0 * 3.0 * 2048.0 * 768.0 * 2.0 * 512.0;
        let left = 512.0 / 210.37 - products - attention - conversion;
        near(x86.experts, experts / left / 10.24e12);
    }

    /// Qwen2.5-1.5B has 1.31 billion weights beside its embedding, and 28 layers of 12 heads of width 128. On 16 cores of
    /// 2.8 GHz with 256 operations a cycle in 8 bits and 32 in 32 bits, 512 tokens take 512 / 851.8 s without flash attention,
    /// and 8,192 tokens 8192 / 57.8 s with it.
    #[test]
    fn products_and_attention_on_neoverse_by_hand() {
        let arm = rates("gguf-cpu", "graviton-4");
        near(arm.gemm, 2.0 * 1.31e9 * 851.8 / (16.0 * 2.8e9 * 256.0));
        let pairs = 28.0 * 12.0 * 128.0 * 4.0 * 8192.0 * 8192.0 / 2.0;
        let seconds = 8192.0 / 57.8 - 16.0 * 512.0 / 851.8;
        near(arm.attention_fp32, pairs / seconds / (16.0 * 2.8e9 * 32.0));
        assert_eq!((arm.input, rates("gguf-mmq", "rtx-4090")), (0.0, ChipRates::default()));
    }
}
