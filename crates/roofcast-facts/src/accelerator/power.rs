//! Power of an accelerator.
//!
//! Knows: the watts drawn at each bottleneck, the rate of arithmetic that the board power sustains, and the clock at
//! which arithmetic stays within a power limit. Knows nothing about work.

use super::Accelerator;
use crate::error::{Error, Result};
use crate::precision::Dtype;
use crate::units::FlopRate;

/// Fraction of the board power of an accelerator that idles at full clocks, or whose host is the bottleneck: 120 to
/// 140 of an H100's 700 W, with or without small kernels (`scripts/gpu-figures.py`).
const WAITING: f64 = 0.18;
/// Fraction of the board power of a memory-bound accelerator: on an H100, 501 of 700 W for GEMMs of one row, 542 for 16
/// rows, 545 for attention of decodes (`scripts/gpu-figures.py`).
const MOVING: f64 = 0.75;

/// Watts of an accelerator by bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watts {
    /// Arithmetic is the bottleneck: the board power, or its limit.
    pub computing: f64,
    /// Memory or a link is the bottleneck.
    pub moving: f64,
    /// The accelerator idles, or waits for the host.
    pub waiting: f64,
}

impl Accelerator {
    /// Watts by bottleneck; `None` if the board power is unknown.
    pub fn watts(&self) -> Option<Watts> {
        let board = self.power_w?;
        let limit = self.power_limit_w.unwrap_or(board);
        Some(Watts { computing: limit, moving: (MOVING * board).min(limit), waiting: WAITING * board })
    }

    /// The most watts: the power limit, or the board power.
    pub fn most_watts(&self) -> Option<f64> {
        self.power_limit_w.or(self.power_w)
    }

    /// FLOP/s of a large GEMM in arithmetic of `dtype`: `rate`, unless the board power sustains less.
    pub fn sustained(&self, dtype: Dtype, rate: FlopRate) -> f64 {
        self.sustained_flops.get(&dtype).map_or(rate.0, |sustained| sustained.0.min(rate.0))
    }

    /// Returns the accelerator under a power limit of `watts`. Arithmetic at full rate draws the board power. Under a
    /// limit, the clock f falls until idle + (board − idle) · (f / boost)³ equals the limit: dynamic power is
    /// proportional to V² f, and voltage falls with the clock. Bandwidth is unchanged, because steps that read memory
    /// draw less than the limit.
    ///
    /// # Errors
    /// Fails if the limit is at most the idle power or above the board power, or if the board power is unknown.
    pub fn limited(&self, watts: f64) -> Result<Accelerator> {
        let refused = |accepted: String| Error::field("hardware", "power_limit_w", watts, accepted);
        let Some(power) = self.power_w else {
            return Err(refused(format!("none: {} has no `power_w`", self.id)));
        };
        let idle = WAITING * power;
        if !(watts > idle && watts <= power) {
            let accepted = format!("above {idle} (idle), at most {power} (`power_w` of {})", self.id);
            return Err(refused(accepted));
        }
        let full = self.power_limit_w.unwrap_or(power);
        let clock = libm::cbrt((watts - idle) / (full - idle));
        let slower = |rate: FlopRate| FlopRate(rate.0 * clock);
        Ok(Accelerator {
            power_limit_w: Some(watts),
            peak_flops: self.peak_flops.iter().map(|(dtype, rate)| (*dtype, slower(*rate))).collect(),
            sustained_flops: self
                .sustained_flops
                .iter()
                .map(|(dtype, rate)| (*dtype, slower(*rate)))
                .collect(),
            fp16_accumulate_flops: self.fp16_accumulate_flops.map(slower),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::accelerator::Accelerator;
    use crate::accelerator::tests::round_machine;
    use crate::precision::Dtype;
    use crate::units::FlopRate;

    /// Of 1000 W, 750 are drawn while reading memory and 180 while waiting; a limit of 600 W bounds both kinds of
    /// work.
    #[test]
    fn watts_by_bottleneck() {
        let board = Accelerator { power_w: Some(1000.0), ..round_machine() };
        let watts = |chip: &Accelerator| {
            let watts = chip.watts().unwrap();
            [watts.computing, watts.moving, watts.waiting]
        };
        assert_eq!(watts(&board), [1000.0, 750.0, 180.0]);
        assert_eq!(watts(&board.limited(600.0).unwrap()), [600.0, 600.0, 180.0]);
        assert_eq!(round_machine().watts(), None);
    }

    #[test]
    fn sustained_rates_bound_peaks() {
        let mut chip = round_machine();
        chip.sustained_flops.insert(Dtype::Bf16, FlopRate(60e12));
        chip.check("round").unwrap();
        assert_eq!(chip.sustained(Dtype::Bf16, FlopRate(100e12)), 60e12);
        assert_eq!(chip.sustained(Dtype::Bf16, FlopRate(50e12)), 50e12);
        assert_eq!(chip.sustained(Dtype::Fp8, FlopRate(200e12)), 200e12);
        chip.sustained_flops.insert(Dtype::Bf16, FlopRate(101e12));
        let message = chip.check("round").unwrap_err().to_string();
        assert!(message.contains("sustained_flops.bf16") && message.contains("at most `peak_flops.bf16`"));
    }
}
