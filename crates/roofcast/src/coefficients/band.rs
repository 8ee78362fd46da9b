//! Bands: 80 % intervals of measured over forecast.
//!
//! Knows: 10th and 90th percentile of measured over forecast, by depth of evidence. [`crate::calibrate`] derives
//! them.

use serde::{Deserialize, Serialize};

/// Bands of one depth of evidence: 10th and 90th percentile of measured over forecast, for a closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
