//! `[engine.speculative]`: drafts of tokens, which the model verifies.

use super::EngineSpec;
use super::keys::about;
use roofcast_facts::catalog::kept_at_length;
use roofcast_facts::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::iter::repeat_n;

/// Most draft tokens per step.
const MOST_DRAFTS: u64 = 64;

/// `[engine.speculative]`: speculative decoding, with either `draft_model` or `draft_cost`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeSpec {
    #[doc = about!("engine.speculative.num_speculative_tokens")]
    pub num_speculative_tokens: u64,
    #[doc = about!("engine.speculative.acceptance_rate")]
    #[serde(default)]
    pub acceptance_rate: Option<f64>,
    #[doc = about!("engine.speculative.acceptance_length")]
    #[serde(default)]
    pub acceptance_length: Option<f64>,
    #[doc = about!("engine.speculative.acceptance")]
    #[serde(default)]
    pub acceptance: Option<String>,
    #[doc = about!("engine.speculative.acceptance_by_position")]
    #[serde(default)]
    pub acceptance_by_position: Option<Vec<f64>>,
    #[doc = about!("engine.speculative.accepted_per_position")]
    #[serde(default)]
    pub accepted_per_position: Option<Vec<f64>>,
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
        let most = (count + 1) as f64;
        if let Some(length) = spec.acceptance_length.filter(|length| !(1.0..=most).contains(length)) {
            return Err(refused("acceptance_length", length, format!("1 to {most} tokens")));
        }
        spec.check_positions()?;
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
    /// For each draft of a step, the probability that this draft and all earlier ones are accepted; for drafts whose cost
    /// is known.
    pub(crate) fn accepted(&self) -> Result<Vec<f64>> {
        let count = self.num_speculative_tokens as usize;
        let product = |all: &mut f64, rate: f64| {
            *all *= rate;
            Some(*all)
        };
        let given = [
            self.acceptance_rate.map(|rate| repeat_n(rate, count).scan(1.0, product).collect()),
            self.acceptance_length.map(|length| kept_at_length(length, self.num_speculative_tokens)),
            self.acceptance_by_position
                .as_ref()
                .map(|rates| rates.iter().copied().scan(1.0, product).collect()),
            self.accepted_per_position.clone(),
        ];
        let mut given = given.into_iter().flatten();
        let reached: Vec<f64> = given.next().ok_or_else(|| {
            let accepted = "0 to 1: how often a draft is right; or acceptance, by published figures";
            refused("acceptance_rate", "missing", accepted)
        })?;
        if given.next().is_some() {
            let accepted = "one of acceptance_rate, acceptance_length, acceptance, acceptance_by_position or \
                            accepted_per_position";
            return Err(refused("acceptance_rate", "one of several", accepted));
        }
        if self.draft_model.is_none() && self.draft_cost.is_none() {
            let accepted = "a catalog id, or draft_cost in its place";
            return Err(refused("draft_model", "missing", accepted));
        }
        Ok(reached)
    }

    /// Refuses lists by position that have another length than a draft, or values that are no probabilities.
    fn check_positions(&self) -> Result<()> {
        let lists = [
            ("acceptance_by_position", &self.acceptance_by_position),
            ("accepted_per_position", &self.accepted_per_position),
        ];
        for (field, list) in lists.into_iter().filter_map(|(field, list)| Some((field, list.as_ref()?))) {
            if list.len() as u64 != self.num_speculative_tokens {
                let accepted = format!("{}, as num_speculative_tokens", self.num_speculative_tokens);
                return Err(refused(field, format!("{} values", list.len()), accepted));
            }
            if let Some(value) = list.iter().find(|value| !(0.0..=1.0).contains(*value)) {
                return Err(refused(field, value, "values from 0 to 1"));
            }
        }
        let shares = self.accepted_per_position.as_deref().unwrap_or_default();
        match shares.iter().zip(shares.iter().skip(1)).find(|(share, next)| next > share) {
            None => Ok(()),
            Some((share, next)) => {
                let accepted =
                    "values that do not increase: a draft counts if all earlier ones are accepted too";
                Err(refused("accepted_per_position", format!("{share}, {next}"), accepted))
            }
        }
    }
}

fn refused(field: &str, found: impl Display, accepted: impl Display) -> Error {
    Error::field("engine.speculative", field, found, accepted)
}
