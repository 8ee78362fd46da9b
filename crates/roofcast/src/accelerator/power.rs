//! Power of an accelerator.
//!
//! Knows: the watts drawn at each bottleneck, and the clock at which arithmetic stays within a power limit. Knows
//! nothing about work.

use super::Accelerator;
use crate::error::{Error, Result};
use crate::units::FlopRate;

/// Fraction of the board power of an accelerator that idles at full clocks, or whose host is the bottleneck: 120 to
/// 140 of an H100's 700 W, with or without small kernels (`scripts/gpu-figures.py`).
const WAITING: f64 = 0.18;
/// Fraction of the board power of a memory-bound accelerator: on an H100, 501 of 700 W for GEMMs of one row, 542 for 16
/// rows, 545 for attention of decodes (`scripts/gpu-figures.py`).
const MOVING: f64 = 0.75;

/// Watts of an accelerator by bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Watts {
    /// Arithmetic is the bottleneck: the board power, or its limit.
    pub(crate) computing: f64,
    /// Memory or a link is the bottleneck.
    pub(crate) moving: f64,
    /// The accelerator idles, or waits for the host.
    pub(crate) waiting: f64,
}

impl Accelerator {
    /// Watts by bottleneck; `None` if the board power is unknown.
    pub(crate) fn watts(&self) -> Option<Watts> {
        let board = self.power_w?;
        let most = self.power_limit_w.unwrap_or(board);
        Some(Watts { computing: most, moving: (MOVING * board).min(most), waiting: WAITING * board })
    }

    /// The most watts: the power limit, or the board power.
    pub(crate) fn most_watts(&self) -> Option<f64> {
        self.power_limit_w.or(self.power_w)
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
        let clock = libm::cbrt((watts - idle) / (power - idle));
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
