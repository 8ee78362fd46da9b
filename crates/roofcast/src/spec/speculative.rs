//! `[engine.speculative]`: drafts of tokens, which the model verifies.

use super::EngineSpec;
use super::keys::about;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::fmt::Display;

/// Most draft tokens per step.
const MOST_DRAFTS: u64 = 64;

/// `[engine.speculative]`: speculative decoding, with either `draft_model` or `draft_cost`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeSpec {
    #[doc = about!("engine.speculative.num_speculative_tokens")]
    pub num_speculative_tokens: u64,
    #[doc = about!("engine.speculative.acceptance_rate")]
    #[serde(default)]
    pub acceptance_rate: Option<f64>,
    #[doc = about!("engine.speculative.draft_model")]
    #[serde(default)]
    pub draft_model: Option<String>,
    #[doc = about!("engine.speculative.draft_cost")]
    #[serde(default)]
    pub draft_cost: Option<f64>,
}

impl EngineSpec {
    /// Settings required for the memory of drafting: the number of drafts, and the draft model; `None` without drafts.
    pub(crate) fn drafted(&self) -> Result<Option<&SpeculativeSpec>> {
        let Some(spec) = &self.speculative else { return Ok(None) };
        let count = spec.num_speculative_tokens;
        if !(1..=MOST_DRAFTS).contains(&count) {
            return Err(refused("num_speculative_tokens", count, format!("1 to {MOST_DRAFTS}")));
        }
        if let Some(rate) = spec.acceptance_rate.filter(|rate| !(0.0..=1.0).contains(rate)) {
            return Err(refused("acceptance_rate", rate, "0 to 1"));
        }
        match (&spec.draft_model, spec.draft_cost) {
            (None, Some(cost)) if !(0.0..=10.0).contains(&cost) => {
                Err(refused("draft_cost", cost, "0 to 10, of the model's step"))
            }
            (Some(_), Some(_)) => {
                let accepted = "a catalog id, or draft_cost in its place";
                Err(refused("draft_model", "together with draft_cost", accepted))
            }
            _ => Ok(Some(spec)),
        }
    }
}

impl SpeculativeSpec {
    /// Probability that a draft is accepted, for drafts whose cost is known.
    pub(crate) fn accepted(&self) -> Result<f64> {
        let Some(rate) = self.acceptance_rate else {
            return Err(refused("acceptance_rate", "missing", "0 to 1: how often a draft is right"));
        };
        if self.draft_model.is_none() && self.draft_cost.is_none() {
            let accepted = "a catalog id, or draft_cost in its place";
            return Err(refused("draft_model", "missing", accepted));
        }
        Ok(rate)
    }
}

fn refused(field: &str, found: impl Display, accepted: impl Display) -> Error {
    Error::field("engine.speculative", field, found, accepted)
}
