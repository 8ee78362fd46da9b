//! Bands: the interval of measured over forecast.
//!
//! Knows: 10th and 90th percentile of measured over forecast, by depth of evidence. [`crate::calibrate`] derives
//! them.

use serde::{Deserialize, Serialize};

/// Bands of a depth of evidence: 10th and 90th percentile of measured over forecast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Depth of evidence that the band applies to.
    pub evidence: Evidence,
    /// Time to first token.
    pub ttft: [f64; 2],
    /// A step, and time per output token.
    pub tpot: [f64; 2],
    /// End to end.
    pub e2e: [f64; 2],
    /// Throughput.
    pub throughput: [f64; 2],
    /// Band of single steps and prompts without a queue; the band above if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Factors>,
    /// Band of open loops, in which a slower step also lengthens queues; the band above if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<Factors>,
}

/// Class of load, as far as errors depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Single steps, or one batch of prompts.
    Step,
    /// Requests that arrive as others end, or all at once.
    Closed,
    /// Requests that arrive at a rate of their own.
    Open,
}

/// 10th and 90th percentile of measured over forecast, by metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factors {
    /// Time to first token.
    pub ttft: [f64; 2],
    /// Time per output token.
    pub tpot: [f64; 2],
    /// End to end.
    pub e2e: [f64; 2],
    /// Throughput.
    pub throughput: [f64; 2],
}

impl Band {
    /// Factors for a class of load.
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
    /// No measurement that is similar enough.
    Nothing,
    /// The chip's architecture was measured.
    Architecture,
    /// The chip was measured.
    Accelerator,
    /// The chip was measured with the engine.
    Engine,
}
