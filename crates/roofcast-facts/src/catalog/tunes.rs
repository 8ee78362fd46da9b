//! Fine-tunes whose name contains the whole name of an entry: `dolphin-2.9-llama3-8b`, `Qwen3-8B-abliterated`.
//!
//! Knows: the words that may surround the entry's name without changing a dimension, and that sizes must agree. Words
//! for another shape or an unknown format are known to [`super::conventions`].

use super::ModelEntry;
use super::conventions::Conventions;
use super::entries::{Entries, Slot};
use super::names::{self, canonical, joined, telling};
use crate::error::Result;
use crate::model::config;

/// Relative tolerance of a size in a name: of the total (makers round, and some count embeddings once), and of the
/// active parameters (makers count different parts).
const OFF: (f64, f64) = (0.08, 0.25);
/// Most words of a name that is examined, which bounds the time of a search.
const MOST_WORDS: usize = 24;

/// End of the ids of instructed models.
const INSTRUCTED: &str = "-Instruct";

/// Entry with the longest whole name in `base`, if only one entry has it and no other word may change the shape.
pub(super) fn within<'a>(
    entries: &'a Entries<ModelEntry>,
    rules: &Conventions,
    base: &str,
) -> Result<Option<&'a Slot<ModelEntry>>> {
    let words = telling(base);
    if words.len() > MOST_WORDS {
        return Ok(None);
    }
    let whole = |name: &str| around(&words, rules, name);
    let split = |name: &str| among(&words, rules, name);
    let mut best = longest(entries, whole);
    if best.is_empty() {
        best = longest(entries, split);
    }
    if best.len() > 1 {
        // A base and its instructed model differ in a word that is not compared; the name says which is meant.
        let instructed = names::words(base).iter().any(|word| word == "instruct");
        best.retain(|(_, slot, _)| slot.id.ends_with(INSTRUCTED) == instructed);
    }
    let [(_, slot, others)] = best.as_slice() else { return Ok(None) };
    let named = has_size(&words, others);
    let others = with_points(others);
    for word in &others {
        if rules.is_idle(word) {
            continue;
        }
        let free = named && !rules.tells_shape(word);
        let agrees = match size(word) {
            Some(size) => agrees(slot.get()?, size)?,
            None => free,
        };
        if !agrees {
            return Ok(None);
        }
    }
    Ok(Some(slot))
}

/// Length of the part of an entry's name that was found, and true if it is the whole name.
type Share = (usize, bool);

/// Entries that cover most of a name, with the other words of the name; `found` compares the name with each name of
/// an entry.
fn longest(
    entries: &Entries<ModelEntry>,
    found: impl Fn(&str) -> Option<(Share, Vec<String>)>,
) -> Vec<(Share, &Slot<ModelEntry>, Vec<String>)> {
    let mut best: Vec<(Share, &Slot<ModelEntry>, Vec<String>)> = Vec::new();
    for slot in entries.rev() {
        let Some((share, others)) = slot.names().filter_map(&found).max_by_key(|(share, _)| *share) else {
            continue;
        };
        if best.first().is_none_or(|b| b.0 < share) {
            best.clear();
        }
        if best.first().is_none_or(|b| b.0 == share) && best.iter().all(|b| b.1.id != slot.id) {
            best.push((share, slot, others));
        }
    }
    best
}

/// Length of an entry's name (without its date) whose words occur in order among `words`, one of them a size, and the
/// other words: `Llama-3.3-Swallow-70B`. A number in between means another version: `Qwen3.8-4B` is not `Qwen3-4B`.
fn among(words: &[String], rules: &Conventions, name: &str) -> Option<(Share, Vec<String>)> {
    let bare = rules.without_idle(name);
    let wanted = parts(&telling(&bare));
    let mut rest = wanted.iter().peekable();
    let mut others = Vec::new();
    for word in parts(words) {
        let between = rest.len() > 0 && rest.len() < wanted.len();
        if rest.next_if(|w| **w == word).is_some() {
            continue;
        }
        if between && word.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        others.push(word);
    }
    let sized = wanted.iter().any(|w| size(w).is_some());
    let share = (joined(&wanted).len(), bare == name);
    (rest.len() == 0 && sized && wanted.len() > 2).then_some((share, others))
}

/// Splits versions off words: `llama3` becomes `llama` and `3`, but `70b` and `a3b` stay whole.
fn parts(words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for word in words {
        let family = word.trim_end_matches(|c: char| c.is_ascii_digit());
        match family.len() {
            0 => all.push(word.clone()),
            at if at < word.len() && family.chars().all(|c| c.is_ascii_alphabetic()) => {
                all.extend([word[..at].to_owned(), word[at..].to_owned()]);
            }
            _ => all.push(word.clone()),
        }
    }
    all
}

/// Joins the parts of one size: `3` and `8b` become `3.8b`.
fn with_points(words: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        let size = all.last().map(|last| format!("{last}.{word}")).filter(|pair| size(pair).is_some());
        match (size, all.last_mut()) {
            (Some(size), Some(last)) => *last = size,
            _ => all.push(word.clone()),
        }
    }
    all
}

/// Length of an entry's name (without its date) that occurs contiguously among `words`, and the other words.
fn around(words: &[String], rules: &Conventions, name: &str) -> Option<(Share, Vec<String>)> {
    let bare = rules.without_idle(name);
    let wanted = canonical(&bare);
    for from in 0..words.len() {
        for to in from + 1..=words.len() {
            let run = joined(&words[from..to]);
            if run == wanted {
                let share = (wanted.len(), bare == name);
                return Some((share, [&words[..from], &words[to..]].concat()));
            }
            if run.len() > wanted.len() {
                break;
            }
        }
    }
    None
}

/// True if `words` has a size that is not among `others`: a name without a size is the name of a family, not of a
/// model.
fn has_size(words: &[String], others: &[String]) -> bool {
    let count = |list: &[String]| list.iter().filter(|w| size(w).is_some()).count();
    count(words) > count(others)
}

/// Number of parameters that a word such as `70b`, `a3b`, `3.8b` or `350m` states, and true if only active parameters
/// are counted.
pub(super) fn size(word: &str) -> Option<(f64, bool)> {
    let (word, active) = match word.strip_prefix('a') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => (rest, true),
        _ => (word, false),
    };
    let unit = word.chars().last()?;
    let scale = match unit {
        'b' => 1e9,
        'm' => 1e6,
        't' => 1e12,
        _ => return None,
    };
    let digits = &word[..word.len() - 1];
    let plain = digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.contains(['e', 'E']);
    let number = plain.then(|| digits.parse::<f64>().ok())??;
    Some((number * scale, active))
}

/// True if the entry's parameters are within tolerance of the size in a name.
fn agrees(entry: &ModelEntry, (wanted, active): (f64, bool)) -> Result<bool> {
    let p = config::read(&entry.id, "catalog", &entry.config)?.parameters();
    let near = |found: u64, off: f64| (found as f64 - wanted).abs() <= off * wanted.max(1e9);
    Ok(if active { near(p.active, OFF.1) } else { near(p.total, OFF.0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;
    use crate::catalog::conventions::conventions;

    fn found(name: &str) -> Option<String> {
        let catalog = Catalog::embedded().unwrap();
        within(&catalog.models, conventions().unwrap(), name).unwrap().map(|slot| slot.id.to_string())
    }

    #[test]
    fn a_whole_name_among_other_words() {
        for (name, id) in [
            ("cognitivecomputations/dolphin-2.9-llama3-8b", "meta-llama/Meta-Llama-3-8B"),
            ("huihui-ai/Qwen3-8B-abliterated", "Qwen/Qwen3-8B"),
            ("someone/Any-Llama-3.1-8B-SFT-v2", "meta-llama/Llama-3.1-8B"),
            ("Mistral Nemo 12B", "mistralai/Mistral-Nemo-Base-2407"),
            // Sizes agree within tolerance: the models have 107 and 12.8 billion.
            ("GLM-4.5-Air-106B-A12B", "zai-org/GLM-4.5-Air"),
            ("Phi-4-mini-3.8B", "microsoft/Phi-4-mini-instruct"),
            ("Phi 4 14B", "microsoft/phi-4"),
            // Other words between the words of the entry's name.
            ("tokyotech-llm/Llama-3.3-Swallow-70B-Instruct-v0.4", "meta-llama/Llama-3.3-70B-Instruct"),
            ("rinna/qwen2.5-bakeneko-32b-instruct", "Qwen/Qwen2.5-32B-Instruct"),
            ("rinna/qwen2.5-bakeneko-32b", "Qwen/Qwen2.5-32B"),
        ] {
            assert_eq!(found(name).as_deref(), Some(id), "{name}");
        }
    }

    /// Other sizes, words of other shapes, unknown formats and families without a size are no match.
    #[test]
    fn what_may_be_another_shape_is_not_guessed() {
        for name in [
            "cerebras/GLM-4.5-Air-REAP-82B-A12B",
            "yuhuili/EAGLE3-LLaMA3.1-8B",
            "Qwen3-8B-draft",
            "Qwen3-8B-w3a16",
            "Qwen3-8B-2bit",
            "Qwen3-30B-A3B-pruned",
            "Llama-3.1-8B-Llama-3.2-1B",
            "Qwen3-Embedding-14B",
            "Qwen3.8-4B",
            "gpt-neo-3B",
            "Qwen2-Audio-7B",
            "Mistral-NeMo-Minitron-8B",
            "Falcon3-Mamba-7B",
            "Qwen3-Coder-REAP-25B-A3B",
            "IQuest-Coder-V1-40B-Loop-Instruct",
            "Kimi-K2.7",
            "DeepSeek-V3.9",
            "gemma-4-32B",
            "",
        ] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    #[test]
    fn sizes_as_names_give_them() {
        assert_eq!(size("70b"), Some((70e9, false)));
        assert_eq!(size("a3b"), Some((3e9, true)));
        assert_eq!(size("1t"), Some((1e12, false)));
        assert_eq!(size("a1.8b"), Some((1.8e9, true)));
        for other in ["it", "b", "ab", "8x7b", "v2", "q4", "1e3b", ".5b", "1.2.3b"] {
            assert_eq!(size(other), None, "{other}");
        }
    }
}
