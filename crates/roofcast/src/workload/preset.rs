//! Workloads of the catalog: published figures of real traffic.

use super::empirical::Summary;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One entry of `catalog/workloads`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Name of the preset.
    pub id: String,
    /// Description of the recording: origin, place and time.
    pub about: String,
    /// Definition of one request: which part of the data is its prompt, and which its output.
    pub request: String,
    /// Web address of the published data.
    pub source: String,
    /// Recorded requests that the figures were computed from.
    pub requests: u64,
    /// Mean requests per second, where times were recorded.
    pub rate: Option<f64>,
    /// 1/cv² of the gaps, where times were recorded.
    pub burstiness: Option<f64>,
    /// Mean prompt tokens of the data; the docs show the quantiles' own mean next to it.
    pub input_mean: f64,
    /// Mean output tokens of the data.
    pub output_mean: Option<f64>,
    /// Quantiles and rank correlation of the lengths.
    pub lengths: Arc<Summary>,
}

impl Preset {
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        self.lengths.check(place, &self.id)?;
        let sane = |v: Option<f64>| v.is_none_or(|v| v > 0.0 && v <= 1e9);
        if sane(self.rate) && sane(self.burstiness) && sane(Some(self.input_mean)) && sane(self.output_mean) {
            return Ok(());
        }
        Err(Error::field(place, format!("workload {}", self.id), "a figure of 0 or less", "figures above 0"))
    }
}
