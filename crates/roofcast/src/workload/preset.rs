//! Workloads of the catalog: what is published of real traffic, as figures.

use super::empirical::Summary;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One entry of `catalog/workloads`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name.
    pub id: String,
    /// What was recorded, where and when.
    pub about: String,
    /// What one request is: which part of the data is its prompt, and which its answer.
    pub request: String,
    /// Where the data are published.
    pub source: String,
    /// How many requests it was computed from.
    pub requests: u64,
    /// Requests per second in the mean, where times were recorded.
    pub rate: Option<f64>,
    /// 1/cv² of the gaps, where times were recorded.
    pub burstiness: Option<f64>,
    /// Mean prompt tokens of the data; the quantiles' own mean is beside it in the docs.
    pub input_mean: f64,
    /// Mean answer tokens of the data.
    pub output_mean: Option<f64>,
    /// Quantiles and rank correlation.
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
