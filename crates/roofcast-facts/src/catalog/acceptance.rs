//! Published acceptance of drafts, by model, method and data set: the lines of `catalog/acceptance.csv`.
//!
//! Knows: which line a spec asks for, and the fraction of steps in which each draft is kept. Knows nothing about how drafts
//! are verified.

use super::names::canonical;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::sync::OnceLock;

const PLACE: &str = "catalog/acceptance.csv";
const TEXT: &str = include_str!("../../catalog/acceptance.csv");
/// Word that asks for a model's first line.
const PUBLISHED: &str = "published";
/// Endings of checkpoints' names that state a format.
const FORMATS: [&str; 4] = ["-NVFP4", "-MXFP4", "-FP8", "-INT4"];

/// One line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Name of the model without organisation and format.
    model: String,
    /// Method that drafts.
    method: String,
    dataset: String,
    /// Reasoning or temperature; empty if the source states neither.
    mode: String,
    /// Numbers of drafts, separated by spaces.
    drafts: String,
    /// Tokens per step for each number of drafts.
    lengths: String,
    /// Percent of steps in which each draft and all earlier ones are kept, for the largest number of drafts; empty if
    /// the source has none.
    kept: String,
    /// Web address of the figures.
    source: String,
}

/// Published acceptance of a model's drafts.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedAcceptance {
    /// For each draft of a step, the fraction of steps in which it and all earlier ones are kept.
    pub kept: Vec<f64>,
    /// Method, data set, mode and source.
    pub origin: String,
}

impl Line {
    /// Method, data set and mode.
    fn label(&self) -> String {
        let parts = [&self.method, &self.dataset, &self.mode];
        parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
    }

    /// True if `asked` is `published`, the data set, the data set with its method or mode, or all three.
    fn is(&self, asked: &str) -> bool {
        let Line { method, dataset, mode, .. } = self;
        let names = [
            PUBLISHED.to_owned(),
            dataset.clone(),
            format!("{dataset}, {mode}"),
            format!("{method}, {dataset}"),
            self.label(),
        ];
        names.iter().any(|name| name.eq_ignore_ascii_case(asked.trim()))
    }

    /// The figures for `drafts` drafts: rates by position, which more drafts leave as they are, or the acceptance length
    /// for exactly this number; `None` if the source has neither.
    fn kept(&self, drafts: u64) -> Option<Vec<f64>> {
        let by_position: Vec<f64> = numbers(&self.kept).map(|percent| percent / 100.0).collect();
        let count = drafts as usize;
        if by_position.len() >= count {
            return Some(by_position[..count].to_vec());
        }
        let at = numbers(&self.drafts).position(|known| known == drafts as f64)?;
        Some(kept_at_length(numbers(&self.lengths).nth(at)?, drafts))
    }

    /// The label with the numbers of drafts that have figures.
    fn offered(&self) -> String {
        let positions = numbers(&self.kept).count();
        let drafts = if positions > 0 { format!("1 to {positions}") } else { self.drafts.replace(' ', ", ") };
        format!("\"{}\" ({drafts} drafts)", self.label())
    }
}

fn numbers(text: &str) -> impl Iterator<Item = f64> {
    text.split_whitespace().filter_map(|number| number.parse().ok())
}

/// The figures of `model` for `drafts` drafts that `asked` names: the first line of the file that fits.
pub fn acceptance(model: &str, drafts: u64, asked: &str) -> Result<PublishedAcceptance> {
    let refused = |found: String, accepted: String| {
        Err(Error::field("engine.speculative", "acceptance", found, accepted))
    };
    let of_model: Vec<&Line> = lines()?.iter().filter(|line| names(line, model)).collect();
    if of_model.is_empty() {
        let mut all: Vec<&str> = lines()?.iter().map(|line| line.model.as_str()).collect();
        all.dedup();
        let accepted = format!("acceptance_rate, or a model with published figures: {}", all.join(", "));
        return refused(format!("{asked:?} with {model}"), accepted);
    }
    let fitting =
        of_model.iter().find_map(|line| Some((line, line.kept(drafts).filter(|_| line.is(asked))?)));
    match fitting {
        Some((line, kept)) => {
            let origin = format!("{} ({})", line.label(), line.source);
            Ok(PublishedAcceptance { kept, origin })
        }
        None => {
            let offered: Vec<String> = of_model.iter().map(|line| line.offered()).collect();
            let accepted = format!("{PUBLISHED}, or of {model}: {}", offered.join("; "));
            refused(format!("{asked:?} with {drafts} drafts"), accepted)
        }
    }
}

/// The first figures of `model` for `drafts` drafts by `method`, as in `MTP`; `None` if nobody published them.
pub fn usual_acceptance(model: &str, drafts: u64, method: &str) -> Option<PublishedAcceptance> {
    let of_method = |line: &&Line| names(line, model) && line.method.eq_ignore_ascii_case(method);
    let mut fitting = lines().ok()?.iter().filter(of_method);
    fitting.find_map(|line| {
        let origin = format!("{} ({})", line.label(), line.source);
        Some(PublishedAcceptance { kept: line.kept(drafts)?, origin })
    })
}

/// For each of `drafts` drafts, the fraction of steps in which it and all earlier ones are accepted, if a step has
/// `length` tokens on average and every draft is accepted equally often after the earlier ones: p, p², …, with 1 + p +
/// … + p^drafts = `length`, found by bisection.
pub fn kept_at_length(length: f64, drafts: u64) -> Vec<f64> {
    /// Halvings after which the bounds of the rate are neighbouring floating-point numbers.
    const HALVINGS: u32 = 60;
    let rates = |rate: f64| (1..=drafts as i32).map(move |place| libm::pow(rate, f64::from(place)));
    let mut low = 0.0;
    let mut high = 1.0;
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if 1.0 + rates(middle).sum::<f64>() < length { low = middle } else { high = middle }
    }
    rates(high).collect()
}

/// True if a line is about `model`, whatever its organisation and format.
fn names(line: &Line, model: &str) -> bool {
    let short_name = model.rsplit('/').next().unwrap_or(model);
    let upper = short_name.to_ascii_uppercase();
    let format = FORMATS.iter().find(|format| upper.ends_with(*format));
    let plain = format.map_or(short_name, |format| &short_name[..short_name.len() - format.len()]);
    canonical(plain) == canonical(&line.model)
}

/// The lines, parsed once.
fn lines() -> Result<&'static [Line]> {
    static LINES: OnceLock<Result<Vec<Line>>> = OnceLock::new();
    let parse = || {
        let failed = |e: csv::Error| Error::Parse { place: PLACE.into(), message: e.to_string() };
        let reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(TEXT.as_bytes());
        reader.into_deserialize().collect::<std::result::Result<Vec<Line>, _>>().map_err(failed)
    };
    LINES.get_or_init(parse).as_deref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kimi-K3's rates by position for 7 drafts on coding: 87, 72 and 59 % of steps keep the first three.
    #[test]
    fn rates_by_position_are_taken_as_published() {
        let published = acceptance("moonshotai/Kimi-K3", 3, "coding").unwrap();
        assert_eq!(published.kept, [0.87, 0.72, 0.59]);
        assert!(published.origin.starts_with("DSpark, coding (https://"), "{}", published.origin);
    }

    /// gpt-oss-20b with 3 drafts of EAGLE-3 on MT-Bench emits 2.70 tokens a step: 1 + p + p² + p³ = 2.70 has p = 0.7575:
    /// 1 + 0.7575 + 0.5738 + 0.4347 = 2.766 is too much, p = 0.7400 gives 1 + 0.7400 + 0.5476 + 0.4052 = 2.6928, and p =
    /// 0.7420 gives 1 + 0.7420 + 0.5506 + 0.4085 = 2.7011.
    #[test]
    fn a_length_is_one_rate_for_all_positions() {
        let published = acceptance("openai/gpt-oss-20b", 3, "EAGLE-3, MT-Bench").unwrap();
        let p = published.kept[0];
        assert!((p - 0.7417).abs() < 3e-4, "{p}");
        assert!((published.kept[1] - p * p).abs() < 1e-12 && (published.kept[2] - p * p * p).abs() < 1e-12);
        assert!((1.0 + published.kept.iter().sum::<f64>() - 2.70).abs() < 1e-9);
    }

    /// The first line of a model is its default; a checkpoint's format is not part of its name.
    #[test]
    fn lines_are_found_by_name() {
        let origin = |model: &str, drafts, asked| acceptance(model, drafts, asked).unwrap().origin;
        assert!(
            origin("Qwen/Qwen3.5-397B-A17B", 2, "published")
                .starts_with("MTP, SPEED-Bench coding, thinking on (")
        );
        assert_eq!(
            origin("nvidia/Kimi-K2.5-NVFP4", 2, "speed-bench coding, thinking off"),
            origin("moonshotai/Kimi-K2.5", 2, "EAGLE-3, SPEED-Bench coding, thinking off")
        );
    }

    #[test]
    fn refusals_list_what_is_known() {
        let refused = |model, drafts, asked| acceptance(model, drafts, asked).unwrap_err().to_string();
        let none = refused("meta-llama/Llama-3.1-8B", 3, "published");
        assert!(none.contains("gpt-oss-20b") && none.contains("Kimi-K3"), "{none}");
        let other = refused("openai/gpt-oss-20b", 3, "GSM8K");
        assert!(other.contains("\"P-EAGLE, HumanEval\" (3, 7 drafts)"), "{other}");
        let count = refused("openai/gpt-oss-20b", 4, "published");
        assert!(count.contains("with 4 drafts"), "{count}");
    }

    /// Every figure can be kept: lengths are at most one more than the drafts, rates by position do not increase.
    #[test]
    fn every_line_is_sound() {
        for line in lines().unwrap() {
            assert!(line.source.starts_with("https://"), "{line:?}");
            assert_eq!(numbers(&line.drafts).count(), numbers(&line.lengths).count(), "{line:?}");
            for (drafts, length) in numbers(&line.drafts).zip(numbers(&line.lengths)) {
                assert!(length >= 1.0 && length <= drafts + 1.0, "{line:?}");
                let rates = line.kept(drafts as u64).unwrap();
                assert!(rates.is_sorted_by(|a, b| a >= b) && rates.len() as f64 == drafts, "{line:?}");
            }
        }
    }
}
