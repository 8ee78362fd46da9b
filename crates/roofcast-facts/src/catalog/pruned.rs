//! Checkpoints with fewer experts than the model that they are named after: `GLM-4.5-Air-REAP-82B-A12B`.
//!
//! Knows: the name states the remaining parameters, from which the remaining experts per layer follow. Source: REAP
//! (arXiv 2510.13999) removes an equal number of experts from every layer and nothing else.

use super::entries::Slot;
use super::names::{short, words};
use super::{ModelEntry, tunes};
use crate::error::Result;
use crate::model::{Ffn, Model, config};

/// Name of a pruned checkpoint in parts: the base model's name without sizes, and the remaining parameters, total and
/// active.
pub(super) struct PrunedName {
    /// Base model's name without sizes.
    pub(super) base: String,
    total: f64,
    active: Option<f64>,
}

/// Splits a name that declares pruning and states a total; `None` for any other name.
pub(super) fn read(name: &str) -> Option<PrunedName> {
    let all = words(short(name));
    let says_so = |word: &String| word.starts_with("reap");
    if !all.iter().any(says_so) {
        return None;
    }
    let mut total = None;
    let mut active = None;
    let mut base_words = Vec::new();
    for word in all.into_iter().filter(|w| !says_so(w)) {
        match tunes::size(&word) {
            Some((size, true)) => active = Some(size),
            Some(_) if total.is_some() => return None, // the model's own size as well: not told apart
            Some((size, false)) => total = Some(size),
            None => base_words.push(word),
        }
    }
    Some(PrunedName { base: base_words.join("-"), total: total?, active })
}

impl PrunedName {
    /// The smallest model of `slots` that has more parameters than the checkpoint and about as many active
    /// parameters.
    pub(super) fn among<'a>(
        &self,
        slots: &[&'a Slot<ModelEntry>],
    ) -> Result<Option<(&'a Slot<ModelEntry>, u64)>> {
        let mut best: Option<(u64, &Slot<ModelEntry>, u64)> = None;
        for slot in slots {
            let model = config::read(&slot.id, "catalog", &slot.get()?.config)?;
            let p = model.parameters();
            let uses = |active: f64| (p.active as f64 - active).abs() <= 0.25 * active;
            let Some(experts) = self.experts(&model).filter(|_| self.active.is_none_or(uses)) else {
                continue;
            };
            if best.is_none_or(|(total, _, _)| p.total < total) {
                best = Some((p.total, slot, experts));
            }
        }
        Ok(best.map(|(_, slot, experts)| (slot, experts)))
    }

    /// Experts per layer of `model` that remain, from the stated total: (total − parameters outside
    /// experts)/(parameters of one expert in every layer).
    fn experts(&self, model: &Model) -> Option<u64> {
        let per_expert: u128 = model
            .layers
            .iter()
            .filter_map(|layer| match &layer.ffn {
                Ffn::Experts(e) => Some(e.expert.elements(e.width(model.hidden)) + u128::from(model.hidden)),
                _ => None,
            })
            .sum();
        let count = model.layers.iter().find_map(|layer| match &layer.ffn {
            Ffn::Experts(e) => Some((e.count, e.per_token)),
            _ => None,
        });
        let (count, per_token) = count?;
        let rest = model.parameters().total as f64 - count as f64 * per_expert as f64;
        let left = ((self.total - rest) / per_expert as f64).round();
        (left >= per_token as f64 && left < count as f64).then_some(left as u64)
    }
}

/// Returns `model` with `count` experts per layer.
pub(super) fn keep(mut model: Model, count: u64) -> Model {
    for layer in &mut model.layers {
        if let Ffn::Experts(experts) = &mut layer.ffn {
            if experts.router_bias == experts.count {
                experts.router_bias = count;
            }
            experts.count = count;
        }
    }
    model
}

#[cfg(test)]
mod tests {
    use crate::Catalog;

    /// Experts that remain according to the model cards: 96 of 128, 180 of 256, 103 of 128 (the name's 25 B, a whole
    /// number, gives 104), 96 of 160, 80 of 160.
    #[test]
    fn experts_by_the_printed_total() {
        let catalog = Catalog::embedded().unwrap();
        for (name, id, kept) in [
            ("cerebras/GLM-4.5-Air-REAP-82B-A12B", "zai-org/GLM-4.5-Air", 96),
            ("cerebras/MiniMax-M2-REAP-162B-A10B", "MiniMaxAI/MiniMax-M2", 180),
            ("cerebras/Qwen3-Coder-REAP-25B-A3B", "Qwen/Qwen3-Coder-30B-A3B-Instruct", 104),
            ("cerebras/GLM-4.6-REAP-218B-A32B-FP8", "zai-org/GLM-4.6", 96),
            ("cerebras/Qwen3-Coder-REAP-246B-A35B-FP8", "Qwen/Qwen3-Coder-480B-A35B-Instruct", 80),
        ] {
            let named = catalog.named(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(named.entry.id, id, "{name}");
            let model = named.model().unwrap();
            let count = model.layers.iter().find_map(|l| match &l.ffn {
                crate::model::Ffn::Experts(e) => Some(e.count),
                _ => None,
            });
            assert_eq!(count, Some(kept), "{name}");
            let assumption = format!("{kept} of the experts");
            assert!(model.assumptions.iter().any(|a| a.contains(&assumption)), "{:?}", model.assumptions);
        }
    }

    /// A name whose total exceeds the model's, or that states no total, gives no number of experts.
    #[test]
    fn others_are_not_guessed() {
        for name in ["GLM-4.5-Air-REAP-182B-A12B", "GLM-4.5-Air-REAP", "Qwen3-8B-REAP-6B", "REAP-82B"] {
            assert!(Catalog::embedded().unwrap().named(name).is_err(), "{name}");
        }
    }
}
