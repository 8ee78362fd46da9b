//! Bands: how far from a forecast what was measured lay.
//!
//! Knows: 10th and 90th percentile of measured over forecast, by how much of a deployment was measured. Knows nothing about
//! how they were found: that is [`crate::calibrate`]'s.

use serde::{Deserialize, Serialize};

/// Bands of a depth of evidence: 10th and 90th percentile of measured over forecast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// What was measured of the deployment.
    pub evidence: Evidence,
    /// Time to first token.
    pub ttft: [f64; 2],
    /// A step, and time per output token.
    pub tpot: [f64; 2],
    /// End to end.
    pub e2e: [f64; 2],
    /// Throughput.
    pub throughput: [f64; 2],
    /// Of single steps and prompts, behind no queue; as above where none were judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Factors>,
    /// Where requests come at a rate of their own, and a step that is slower makes queues longer; as above where none were judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<Factors>,
}

/// What runs, as far as errors depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Single steps, or one batch of prompts.
    Step,
    /// Requests that come as others end, or all at once.
    Closed,
    /// Requests that come at a rate of their own.
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
    /// Its factors of a load.
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

/// How much of a deployment has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Nothing of its kind.
    Nothing,
    /// The chip's generation.
    Architecture,
    /// The chip.
    Accelerator,
    /// The chip with the engine.
    Engine,
}
