//! Workload presets of the catalog: published figures of real traffic.
//!
//! Knows: figures of arrivals and lengths, and their valid ranges. Knows nothing about engines.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most accepted tokens of a prompt or an output.
pub const MOST_TOKENS: u64 = 100_000_000;

/// Probabilities of the quantiles in a table, from 0 for the observed minimum to 1 for the observed maximum.
pub const PROBABILITIES: [f64; 12] = [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0];

/// Quantiles at [`PROBABILITIES`].
pub type Quantiles = [f64; PROBABILITIES.len()];

/// Workload preset: one entry of `catalog/workloads`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Name of the preset.
    pub id: String,
    /// Description of the recording: origin, place and date.
    pub about: String,
    /// Definition of one request: the part of the data that is its prompt, and the part that is its output.
    pub request: String,
    /// Web address of the published data.
    pub source: String,
    /// Number of recorded requests from which the figures were computed.
    pub requests: u64,
    /// Mean requests per second, if times were recorded.
    pub rate: Option<f64>,
    /// Arrivals over the recording, if times were recorded.
    pub profile: Option<RateProfile>,
    /// Mean prompt tokens of the recorded data, which the docs compare with the mean of the quantiles.
    pub input_mean: f64,
    /// Mean output tokens of the recorded data.
    pub output_mean: Option<f64>,
    /// Quantiles of the lengths, and their rank correlation.
    pub lengths: Arc<PresetStatistics>,
}

/// Numbers of recorded requests in consecutive intervals of equal length.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RateProfile {
    /// Seconds of an interval.
    pub interval_s: f64,
    /// Number of requests in each interval.
    pub counts: Vec<u32>,
}

/// Published statistics of recorded lengths.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PresetStatistics {
    /// Quantiles of prompt tokens.
    pub input: Quantiles,
    /// Quantiles of output tokens; absent if only prompts were recorded.
    pub output: Option<Quantiles>,
    /// Spearman's rank correlation of prompt and output lengths.
    #[serde(default)]
    pub rank_correlation: f64,
    /// Statistics of each quarter of an hour of the recording, in order; empty if times were not recorded.
    #[serde(default)]
    pub quarters: Vec<Quarter>,
}

/// Statistics of the lengths recorded in a quarter of an hour.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Quarter {
    /// Number of requests in the quarter of an hour.
    pub requests: u64,
    /// Quantiles of prompt tokens.
    pub input: Quantiles,
    /// Quantiles of output tokens.
    pub output: Quantiles,
    /// Spearman's rank correlation of prompt and output lengths.
    pub rank_correlation: f64,
}

impl Quarter {
    /// The quarter's statistics as those of a whole recording.
    pub fn statistics(&self) -> PresetStatistics {
        PresetStatistics {
            input: self.input,
            output: Some(self.output),
            rank_correlation: self.rank_correlation,
            quarters: Vec::new(),
        }
    }
}

impl Preset {
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        self.lengths.check(place, &self.id)?;
        let sane = |v: Option<f64>| v.is_none_or(|v| v > 0.0 && v <= 1e9);
        let counted =
            |profile: &RateProfile| profile.interval_s > 0.0 && profile.counts.iter().any(|n| *n > 0);
        let counted = self.profile.as_ref().is_none_or(counted);
        if sane(self.rate) && counted && sane(Some(self.input_mean)) && sane(self.output_mean) {
            return Ok(());
        }
        Err(Error::field(place, format!("workload {}", self.id), "a figure of 0 or less", "figures above 0"))
    }
}

impl PresetStatistics {
    /// Mean number of prompt tokens of draws from the quantiles.
    pub fn input_mean(&self) -> f64 {
        mean(&self.input)
    }

    /// Mean number of output tokens of draws from the quantiles.
    pub fn output_mean(&self) -> Option<f64> {
        self.output.as_ref().map(mean)
    }

    /// Refuses quantiles that cannot be a distribution of lengths.
    fn check(&self, place: &str, id: &str) -> Result<()> {
        let sane =
            |q: &Quantiles| q.is_sorted() && q[0] >= 1.0 && q[PROBABILITIES.len() - 1] <= MOST_TOKENS as f64;
        let correlated = (-1.0..=1.0).contains(&self.rank_correlation);
        let quarters = self.quarters.iter().try_for_each(|quarter| quarter.statistics().check(place, id));
        if sane(&self.input) && self.output.as_ref().is_none_or(sane) && correlated && quarters.is_ok() {
            return Ok(());
        }
        let accepted = "quantiles that rise from 1 or more, and a rank correlation from -1 to 1";
        Err(Error::field(place, format!("workload {id}"), "no distribution of lengths", accepted))
    }
}

/// Mean of a distribution that is linear between quantiles.
pub fn mean(quantiles: &Quantiles) -> f64 {
    // A linear part from a to b has the mean (a + b)/2.
    over_lines(quantiles, |a, b| (a + b) / 2.0)
}

/// Mean of `each` over the linear parts between quantiles, weighted by probability.
pub fn over_lines(quantiles: &Quantiles, each: impl Fn(f64, f64) -> f64) -> f64 {
    let weights = PROBABILITIES.windows(2).map(|p| p[1] - p[0]);
    quantiles.windows(2).zip(weights).map(|(q, weight)| weight * each(q[0], q[1])).sum()
}
