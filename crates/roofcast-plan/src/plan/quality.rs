//! Measured effects of formats on the quality of answers.
//!
//! Knows: one line for each format, with its source, from `catalog/quality.toml`, and the formats without an entry.
//! Knows nothing about performance: a plan shows these notes together with its rows, and no number follows from them.

use roofcast_facts::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const FILE: &str = include_str!("../../catalog/quality.toml");
const PLACE: &str = "catalog/quality.toml";
/// Formats without a loss of quality.
const WHOLE: [&str; 3] = ["bf16", "fp16", "fp32"];
/// The note on a format without an entry.
const UNKNOWN: &str = "no measurement was found";

/// The effect of one format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// Name of the format, as in `fp8`.
    pub format: String,
    /// Subject of the format: `weights`, or `kv` for the KV cache.
    pub of: String,
    /// The measured effect, or a note that no measurement is known.
    pub note: String,
    /// Author of the measurement; `None` without a measurement.
    pub source: Option<String>,
    /// Web address of the source.
    pub(crate) url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    quality: Vec<Quality>,
}

impl Quality {
    /// True if the entry applies to one of the formats `weights` and `kv`, which are named as in a choice.
    pub fn is_of(&self, weights: &str, kv: &str) -> bool {
        match self.of.as_str() {
            "kv" => self.format == kv,
            _ => parts(weights).any(|part| part == self.format),
        }
    }
}

/// The formats of a checkpoint, whose name may combine several.
fn parts(weights: &str) -> impl Iterator<Item = &str> {
    weights.split('+')
}

/// A note on each of these formats of weights and KV caches: first the entries of the file, in order, and then formats
/// without an entry.
pub(super) fn notes(weights: &[String], kv: &[String]) -> Result<Vec<Quality>> {
    let file: File = toml::from_str(FILE).map_err(|e| Error::toml(PLACE, FILE, "", &e))?;
    let weights = weights.iter().flat_map(|weights| parts(weights)).map(|format| ("weights", format));
    let kv = kv.iter().map(|format| ("kv", format.as_str()));
    let mut formats: BTreeSet<(&str, &str)> = weights.chain(kv).collect();
    formats.retain(|(_, format)| !WHOLE.contains(format));
    let mut notes = file.quality;
    notes.retain(|q| formats.contains(&(q.of.as_str(), q.format.as_str())));
    let noted = |of: &str, format: &str| notes.iter().any(|q| q.of == of && q.format == format);
    let unknown = formats.into_iter().rev().filter(|(of, format)| !noted(of, format));
    let unknown: Vec<Quality> = unknown
        .map(|(of, format)| Quality {
            format: format.to_owned(),
            of: of.to_owned(),
            note: UNKNOWN.to_owned(),
            source: None,
            url: None,
        })
        .collect();
    notes.extend(unknown);
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_facts::precision::{KvFormat, WeightFormat};

    fn of(weights: &[&str], kv: &[&str]) -> Vec<Quality> {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        notes(&owned(weights), &owned(kv)).unwrap()
    }

    #[test]
    fn every_entry_is_of_a_format_that_can_be_asked_for_and_has_a_source() {
        let file: File = toml::from_str(FILE).unwrap();
        let mut seen = BTreeSet::new();
        for q in &file.quality {
            let named = match q.of.as_str() {
                "kv" => q.format.parse::<KvFormat>().map(|kv| kv.name),
                "weights" => q.format.parse::<WeightFormat>().map(|weights| weights.name()),
                other => panic!("{other}"),
            };
            assert_eq!(named.unwrap(), q.format);
            assert!(seen.insert((&q.of, &q.format)), "{} has two", q.format);
            assert!(q.source.is_some() && q.url.as_deref().is_some_and(|url| url.starts_with("https://")));
        }
    }

    #[test]
    fn weights_and_caches_have_notes_of_their_own_and_sixteen_bits_none() {
        let notes = of(&["fp8", "bf16", "fp8"], &["fp8", "bf16"]);
        let names: Vec<_> = notes.iter().map(|q| (q.of.as_str(), q.format.as_str())).collect();
        assert_eq!(names, [("weights", "fp8"), ("kv", "fp8")]);
        assert!(notes[0].is_of("fp8", "bf16") && !notes[0].is_of("bf16", "fp8"));
        assert!(notes[1].is_of("bf16", "fp8"));
    }

    #[test]
    fn a_format_that_nobody_measured_says_so_and_those_of_a_mixture_come_apart() {
        let notes = of(&["mxfp4+exl-3bpw"], &["q5_1"]);
        let formats: Vec<_> = notes.iter().map(|q| (q.format.as_str(), q.source.is_some())).collect();
        assert_eq!(formats, [("mxfp4", true), ("exl-3bpw", false), ("q5_1", false)]);
        assert_eq!(notes[2].note, UNKNOWN);
        assert!(notes[0].is_of("mxfp4+exl-3bpw", "bf16"));
    }
}
