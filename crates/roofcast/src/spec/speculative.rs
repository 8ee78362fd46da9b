//! `[engine.speculative]`: drafts of tokens that the model verifies.

use super::{EngineSpec, SchedulerKind};
use crate::error::{Error, Result};
use serde::Deserialize;

/// The most drafts at once.
const MOST_DRAFTS: u64 = 64;

/// `[engine.speculative]`; `draft_model` or `draft_cost`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeSpec {
    /// Tokens drafted after each step of a sequence.
    pub num_speculative_tokens: u64,
    /// The probability that a draft is what the model itself says, where those before it are.
    pub acceptance_rate: f64,
    /// The model that drafts.
    #[serde(default)]
    pub draft_model: Option<String>,
    /// What drafting one token takes, as a share of the model's step.
    #[serde(default)]
    pub draft_cost: Option<f64>,
}

impl EngineSpec {
    /// Drafts, checked together with what they depend on.
    pub(crate) fn speculative(&self) -> Result<Option<&SpeculativeSpec>> {
        let Some(spec) = &self.speculative else { return Ok(None) };
        let refuse = |field: &str, found: String, accepted: String| {
            Err(Error::field("engine.speculative", field, found, accepted))
        };
        let (count, rate) = (spec.num_speculative_tokens, spec.acceptance_rate);
        if !(1..=MOST_DRAFTS).contains(&count) {
            return refuse("num_speculative_tokens", count.to_string(), format!("1 to {MOST_DRAFTS}"));
        }
        if !(0.0..=1.0).contains(&rate) {
            return refuse("acceptance_rate", rate.to_string(), "0 to 1".to_owned());
        }
        match (&spec.draft_model, spec.draft_cost) {
            (Some(_), None) => {}
            (None, Some(cost)) if (0.0..=10.0).contains(&cost) => {}
            (None, Some(cost)) => {
                return refuse("draft_cost", cost.to_string(), "0 to 10, of the model's step".to_owned());
            }
            (both, _) => {
                let found = if both.is_some() { "beside draft_cost" } else { "missing" };
                let accepted = "a catalog id, or draft_cost in its place";
                return refuse("draft_model", found.to_owned(), accepted.to_owned());
            }
        }
        if self.scheduler() != SchedulerKind::Vllm || self.async_scheduling == Some(true) {
            let accepted = "the scheduler vllm without async_scheduling, or no [engine.speculative]";
            return Err(Error::field("engine", "scheduler", "another, or async", accepted));
        }
        Ok(Some(spec))
    }
}
