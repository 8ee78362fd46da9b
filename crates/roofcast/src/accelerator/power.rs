//! An accelerator under a power limit.
//!
//! Knows: the clock at which arithmetic stays within the limit. Knows nothing about work.

use super::Accelerator;
use crate::error::{Error, Result};
use crate::units::FlopRate;

/// Fraction of the board power that an idle accelerator draws. An assumption, close to the idle power of data-centre
/// GPUs at full clocks.
pub(crate) const IDLE_POWER: f64 = 0.2;

impl Accelerator {
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
        let idle = IDLE_POWER * power;
        if !(watts > idle && watts <= power) {
            let accepted = format!("above {idle} (idle), at most {power} (`power_w` of {})", self.id);
            return Err(refused(accepted));
        }
        let clock = libm::cbrt((watts - idle) / (power - idle));
        let slower = |rate: FlopRate| FlopRate(rate.0 * clock);
        Ok(Accelerator {
            power_w: Some(watts),
            peak_flops: self.peak_flops.iter().map(|(dtype, rate)| (*dtype, slower(*rate))).collect(),
            fp16_accumulate_flops: self.fp16_accumulate_flops.map(slower),
            ..self.clone()
        })
    }
}
