//! Bands: 80 % intervals of measured over forecast.
//!
//! Knows: 10th and 90th percentile of measured over forecast, by depth of evidence. `calibrate` derives
//! them.

use serde::{Deserialize, Serialize};

/// Bands of one depth of evidence: 10th and 90th percentile of measured over forecast, for a closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Depth of evidence that the band applies to.
    pub evidence: Evidence,
    /// Factors of the time to first token.
    pub ttft: [f64; 2],
    /// Factors of the time of a step, and of the time per output token.
    pub tpot: [f64; 2],
    /// Factors of the end-to-end latency.
    pub e2e: [f64; 2],
    /// Factors of the throughput.
    pub throughput: [f64; 2],
    /// Factors of single steps and of prompts without a queue; if absent, the factors above apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Factors>,
    /// Factors of open loops, in which a slower step also lengthens queues; if absent, the factors above apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<Factors>,
}

/// Class of load; errors of forecasts differ by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Single steps, or one batch of prompts without a queue.
    Step,
    /// Closed loop: requests arrive as others end, or all at once.
    Closed,
    /// Open loop: requests arrive at a given rate, however many are in flight.
    Open,
}

/// 10th and 90th percentile of measured over forecast, by metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Factors {
    /// Factors of the time to first token.
    pub ttft: [f64; 2],
    /// Factors of the time per output token.
    pub tpot: [f64; 2],
    /// Factors of the end-to-end latency.
    pub e2e: [f64; 2],
    /// Factors of the throughput.
    pub throughput: [f64; 2],
}

/// The 90th percentile of a standard normal.
pub const Z90: f64 = 1.281_551_565_544_6;

/// The value at the normal deviate `z` of the log-normal distribution with this 10th and 90th percentile.
pub fn at_deviate([low, high]: [f64; 2], z: f64) -> f64 {
    let weight = (1.0 + z / Z90) / 2.0;
    libm::exp(libm::log(low) * (1.0 - weight) + libm::log(high) * weight)
}

impl Band {
    /// Returns the factors of a class of load.
    pub fn factors(&self, load: Load) -> Factors {
        let Band { ttft, tpot, e2e, throughput, .. } = *self;
        let own = match load {
            Load::Step => self.step,
            Load::Closed => None,
            Load::Open => self.open_loop,
        };
        own.unwrap_or(Factors { ttft, tpot, e2e, throughput })
    }
}

/// Depth of evidence: how much of a deployment has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// No similar deployment was measured.
    Nothing,
    /// Another chip of the chip's architecture was measured.
    Architecture,
    /// The chip was measured.
    Accelerator,
    /// The chip was measured with the engine.
    Engine,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A band of 0.5 to 2 has the median √(0.5 · 2) = 1; its ends are at ∓z90, and half of z90 is 2^0.5.
    #[test]
    fn deviates_of_a_band() {
        for (z, value) in [(-Z90, 0.5), (0.0, 1.0), (Z90 / 2.0, 2f64.sqrt()), (Z90, 2.0)] {
            assert!((at_deviate([0.5, 2.0], z) - value).abs() < 1e-12, "{z}");
        }
    }
}
