//! Power of an accelerator.
//!
//! Knows: power is a constant plus the energy of bytes read and of arithmetic, each proportional to its number (Choi, Bedard, Fowler
//! and Vuduc, A roofline model of energy, IPDPS 2013); the rate of arithmetic that the board power sustains, and the clock at
//! which arithmetic stays within a power limit. Knows nothing about work.

use super::Accelerator;
use crate::error::{Error, Result};
use crate::precision::Dtype;
use crate::units::FlopRate;

/// Fraction of the board power of an accelerator that idles at full clocks, waits for the host or exchanges messages: 120 to
/// 140 of an H100's 700 W, with or without small kernels (`scripts/gpu-figures.py`).
const WAITING: f64 = 0.18;
/// Fraction of the board power that reads at full bandwidth add: GEMMs of one row read 2.9 of an H100's 3.35 TB/s at 501 W, of
/// which 130 are idle: 371 / 700 · 3.35 / 2.9 (`scripts/gpu-figures.py`).
const READING: f64 = 0.61;
/// Fraction of the peak FLOP/s at which an H100 computes at its board power (`sustained_flops` over `peak_flops`): 683 of 989
/// TFLOP/s. 16 rows of a GEMM say the same: 39 W more than one row for 46 TFLOP/s.
const SUSTAINED: f64 = 0.69;

/// Watts of an accelerator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watts {
    /// The accelerator idles, or waits for the host or for messages.
    pub waiting: f64,
    /// Added by reads of memory at full bandwidth.
    pub reading: f64,
    /// Added by arithmetic at the peak rate, which no chip sustains.
    pub arithmetic: f64,
    /// The board power, or its limit.
    pub most: f64,
}

impl Watts {
    /// Joules of an accelerator that is up for `up` seconds, of which it works in `busy`, and whose bytes and FLOPs take `reading`
    /// and `arithmetic` seconds at full rates.
    pub fn joules(&self, up: f64, busy: f64, [reading, arithmetic]: [f64; 2]) -> f64 {
        let work = self.reading * reading + self.arithmetic * arithmetic;
        self.waiting * up + work.min((self.most - self.waiting) * busy)
    }
}

impl Accelerator {
    /// Watts by kind of work; `None` if the board power is unknown.
    pub fn watts(&self) -> Option<Watts> {
        let board = self.power_w?;
        let limit_w = self.power_limit_w.unwrap_or(board);
        let waiting = WAITING * board;
        Some(Watts {
            waiting,
            reading: READING * board,
            arithmetic: (limit_w - waiting) / SUSTAINED,
            most: limit_w,
        })
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

    /// A board of 1000 W draws 180 while it waits. In 10 s of which 5 are busy, reads that take 2 s at full bandwidth add 2 · 610 J,
    /// and FLOPs that take 1 s at the peak 820 / 0.69 = 1188 J; no more than 820 W can be added while it is busy. Under a limit
    /// of 600 W, arithmetic adds 420 / 0.69 = 608.7 W at its slower peak.
    #[test]
    fn joules_by_work() {
        let board = Accelerator { power_w: Some(1000.0), ..round_machine() };
        let watts = board.watts().unwrap();
        let joules = |work| watts.joules(10.0, 5.0, work);
        assert!((joules([0.0; 2]) - 1800.0).abs() < 1e-9);
        assert!((joules([2.0, 1.0]) - (1800.0 + 1220.0 + 820.0 / 0.69)).abs() < 1e-9);
        assert!((joules([50.0, 50.0]) - (1800.0 + 5.0 * 820.0)).abs() < 1e-9);
        let limited = board.limited(600.0).unwrap().watts().unwrap();
        assert!((limited.arithmetic - 420.0 / 0.69).abs() < 1e-9 && limited.most == 600.0);
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
