//! Efficiencies of kernels that nobody timed, by vendor and architecture.

use super::Calibration;
use crate::coefficients::KernelEfficiency;

impl Calibration {
    /// Efficiencies of a vendor's kernels on an architecture; those of the first vendor in the list for a vendor that it
    /// lacks.
    pub(super) fn efficiency(&self, vendor: &str, architecture: &str) -> KernelEfficiency {
        let of_vendor = self.shares.iter().find(|s| s.vendor == vendor).or(self.shares.first());
        of_vendor.map_or(KernelEfficiency::UNKNOWN, |s| KernelEfficiency {
            gemm: *s.gemm_of.get(architecture).unwrap_or(&s.gemm),
            experts: s.experts,
            attention: [*s.attention_of.get(architecture).unwrap_or(&s.attention[0]), s.attention[1]],
            link: s.link,
            start: s.start_us * 1e-6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama-3-8B has 32 layers of 32 heads of width 128, 524,288 FLOPs a pair. On an RX 9060 XT 1,024 tokens take 1024 /
    /// 2031.68 = 0.504 s behind 4,096 tokens and 1024 / 787.39 = 1.300 s behind 32,768: 1024 · 28,672 pairs in 0.797 s are
    /// 19.3 of 102.6 TFLOP/s. On Strix Halo 10 layers of 16 heads of width 256, 163,840 FLOPs a pair, take 0.724 s longer
    /// for 512 · 57,344 pairs (512 / 870.26 and 512 / 390.27 s): 6.65 of 59.39 TFLOP/s.
    #[test]
    fn attention_of_radeon_cards_by_hand() {
        let calibration = Calibration::embedded().unwrap();
        let attention = |architecture| calibration.efficiency("amd", architecture).attention;
        let share = |pairs: f64, flops: f64, seconds: f64, peak: f64| pairs * flops / seconds / peak;
        let rdna4 = share(1024.0 * 28_672.0, 524_288.0, 1024.0 / 787.39 - 1024.0 / 2031.68, 102.6e12);
        let rdna3 = share(512.0 * 57_344.0, 163_840.0, 512.0 / 390.27 - 512.0 / 870.26, 59.39e12);
        assert!(
            (attention("rdna4")[0] - rdna4).abs() < 0.005 && (attention("rdna3.5")[0] - rdna3).abs() < 0.005
        );
        // 6.48 billion weights of Llama-2-7B outside embedding and lm_head at 1327.48 prompt tokens/s.
        let products = 2.0 * 6.48e9 * 1327.48 / 59.39e12;
        let gemm = calibration.efficiency("amd", "rdna3.5").gemm;
        assert!((gemm[0] - products).abs() < 0.011, "{products}");
        // 15.4 GiB of Qwen3.8-27B, less an embedding of 0.7 GB, are read 12.56 times a second.
        let read = (15.4 * f64::from(1 << 30) - 0.7e9) * 12.56 / 256e9;
        assert!((gemm[1] - read).abs() < 0.01, "{read}");
        // 7.50 billion weights of Llama-3.1-8B outside embedding and lm_head at 3226.54 prompt tokens/s of 122.8 TFLOP/s, and
        // 19.76 GB of Qwen3-32B, less an embedding of 0.44 GB, read 31.58 times a second, beside 0.78 ms of host a token.
        let gemm = calibration.efficiency("amd", "rdna3").gemm;
        let products = 2.0 * 7.5e9 * 3226.54 / 122.8e12;
        let read = 19.32e9 / (1.0 / 31.58 - 0.78e-3) / 800e9;
        assert!((gemm[0] - products).abs() < 0.011 && (gemm[1] - read).abs() < 0.011, "{products} {read}");
        assert_eq!((attention("cdna3"), attention("rdna4")[1]), ([0.3, 0.6], 0.6));
    }
}
