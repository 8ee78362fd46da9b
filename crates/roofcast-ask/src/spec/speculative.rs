//! `[engine.speculative]`: drafts of tokens, which the model verifies.

use super::EngineSpec;
use super::keys::about;
use roofcast_facts::catalog::kept_at_length;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Features;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::iter::repeat_n;

/// Most draft tokens per step.
const MOST_DRAFTS: u64 = 64;

/// Methods of drafting that a spec names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DraftMethod {
    /// The tokens that followed an earlier occurrence of the last ones (vLLM's `ngram`, `prompt_lookup_max` tokens of
    /// them); no drafts where they do not occur.
    Ngram,
    /// The checkpoint's own multi-token-prediction layers.
    Mtp,
    /// A drafter that reads the model's last hidden state.
    Eagle,
    /// A drafter that reads the hidden states of three of the model's layers.
    Eagle3,
    /// A drafter that writes all drafts of a step at once from hidden states of several layers.
    Dflash,
}

impl DraftMethod {
    /// First versions of vLLM that decide a step while the previous one with drafts of `method` runs: if asked to, and by
    /// themselves; `None` without a method is a draft model (0.14 to 0.33, `config/vllm.py`). N-grams are copied by the
    /// host, which needs the tokens first.
    pub(crate) fn decided_ahead(method: Option<DraftMethod>) -> Option<[&'static str; 2]> {
        match method {
            Some(DraftMethod::Ngram) => None,
            Some(DraftMethod::Mtp | DraftMethod::Eagle | DraftMethod::Eagle3) => Some(["0.14.0"; 2]),
            Some(DraftMethod::Dflash) => Some(["0.20.0"; 2]),
            None => Some(["0.16.0", "0.28.0"]),
        }
    }

    /// Hidden states that a drafter of its own config reads, of as many layers as the drafter has if it reads several;
    /// `None` for drafts without such a drafter.
    pub fn features(self, layers: u64) -> Option<Features> {
        match self {
            DraftMethod::Ngram | DraftMethod::Mtp => None,
            DraftMethod::Eagle => Some(Features::Last),
            DraftMethod::Eagle3 => Some(Features::Three),
            DraftMethod::Dflash => Some(Features::Layers(layers)),
        }
    }
}

/// `[engine.speculative]`: speculative decoding, with `draft_model`, `draft_cost` or `method`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeSpec {
    #[doc = about!("engine.speculative.num_speculative_tokens")]
    pub num_speculative_tokens: u64,
    #[doc = about!("engine.speculative.method")]
    #[serde(default)]
    pub method: Option<DraftMethod>,
    #[doc = about!("engine.speculative.draft_share")]
    #[serde(default)]
    pub draft_share: Option<f64>,
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
        let longest = (count + 1) as f64;
        if let Some(length) = spec.acceptance_length.filter(|length| !(1.0..=longest).contains(length)) {
            return Err(refused("acceptance_length", length, format!("1 to {longest} tokens")));
        }
        if let Some(share) = spec.draft_share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(refused("draft_share", share, "0 to 1, of a sequence's steps"));
        }
        spec.check_positions()?;
        spec.check_drafter()?;
        Ok(Some(spec))
    }
}

impl SpeculativeSpec {
    /// Time to draft one token, as a fraction of the model's step time; `None` of a draft model.
    pub fn cost(&self) -> Option<f64> {
        self.draft_cost.or((self.method == Some(DraftMethod::Ngram)).then_some(0.0))
    }

    /// True if the spec says how often drafts are accepted.
    pub(crate) fn states_acceptance(&self) -> bool {
        self.acceptance_rate.is_some()
            || self.acceptance_length.is_some()
            || self.acceptance.is_some()
            || self.acceptance_by_position.is_some()
            || self.accepted_per_position.is_some()
    }

    /// True if the drafter is named, and drafts after every step: vLLM's rules for drafts of this kind are known.
    pub(crate) fn is_regular(&self) -> bool {
        let named =
            self.method.is_some_and(|method| method != DraftMethod::Ngram) || self.draft_model.is_some();
        named && self.draft_share.is_none_or(|share| share >= 1.0)
    }

    /// Share of a sequence's steps that have drafts.
    ///
    /// # Errors
    /// N-grams occur again in some texts and not in others: their share must be stated.
    pub fn share(&self) -> Result<f64> {
        self.draft_share.or((self.method != Some(DraftMethod::Ngram)).then_some(1.0)).ok_or_else(|| {
            let accepted = "0 to 1: the share of a sequence's steps that have drafts, drafts / (generated - accepted \
                            tokens) of the server's counters, 1 where the output copies its prompt; without \
                            drafts vLLM counts no draft, so that its mean acceptance length leaves the step out";
            refused("draft_share", "missing with method = \"ngram\"", accepted)
        })
    }

    /// For each draft of a step with drafts, the probability that this draft and all earlier ones are accepted; for
    /// drafts whose cost is known.
    pub(crate) fn accepted(&self) -> Result<Vec<f64>> {
        self.share()?;
        let count = self.num_speculative_tokens as usize;
        let product = |all: &mut f64, rate: f64| {
            *all *= rate;
            Some(*all)
        };
        let together = self.method == Some(DraftMethod::Ngram);
        let of_length = |length: f64| match together {
            true => vec![(length - 1.0) / count as f64; count],
            false => kept_at_length(length, self.num_speculative_tokens),
        };
        let of_rate = |rate: f64| match together {
            true => vec![rate; count],
            false => repeat_n(rate, count).scan(1.0, product).collect(),
        };
        let given = [
            self.acceptance_rate.map(of_rate),
            self.acceptance_length.map(of_length),
            self.acceptance_by_position
                .as_ref()
                .map(|rates| rates.iter().copied().scan(1.0, product).collect()),
            self.accepted_per_position.clone(),
        ];
        let mut given = given.into_iter().flatten();
        let reached: Vec<f64> = given.next().ok_or_else(|| {
            let accepted = "0 to 1 (--acceptance-rate): how often a draft is right; nobody published figures of this model and \
                            method, which --acceptance published takes of a model that has them";
            refused("acceptance_rate", "missing", accepted)
        })?;
        if given.next().is_some() {
            let accepted = "one of acceptance_rate, acceptance_length, acceptance, acceptance_by_position or \
                            accepted_per_position";
            return Err(refused("acceptance_rate", "one of several", accepted));
        }
        if self.draft_model.is_none() && self.cost().is_none() {
            let accepted = "a catalog id, or draft_cost or method in its place";
            return Err(refused("draft_model", "missing", accepted));
        }
        Ok(reached)
    }

    /// Refuses drafts of two sources, and a share of a draft model, which drafts after every step.
    fn check_drafter(&self) -> Result<()> {
        if let Some(cost) = self.draft_cost.filter(|cost| !(0.0..=10.0).contains(cost)) {
            return Err(refused("draft_cost", cost, "0 to 10, of the model's step"));
        }
        let Some(model) = &self.draft_model else { return Ok(()) };
        if self.draft_cost.is_some() {
            let accepted = "a catalog id, or draft_cost in its place";
            return Err(refused("draft_model", "together with draft_cost", accepted));
        }
        if let Some(method) = self.method.filter(|method| method.features(1).is_none()) {
            let named = if method == DraftMethod::Mtp { "mtp" } else { "ngram" };
            return Err(refused("method", format!("{named} with draft_model {model}"), "one of the two"));
        }
        match self.draft_share {
            Some(share) if share < 1.0 => {
                let accepted = "1, or no draft_model: a draft model drafts after every step";
                Err(refused("draft_share", share, accepted))
            }
            _ => Ok(()),
        }
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
