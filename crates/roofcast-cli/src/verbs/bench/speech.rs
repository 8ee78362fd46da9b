//! The texts of requests: prompts from a file, or generated words, with notes on them.
//!
//! Knows: the formats of prompt files, by their extensions. [`texts`] defines the meaning of a row.

use crate::args::BenchArgs;
use crate::bench::target::Endpoint;
use crate::bench::texts::Text;
use crate::bench::{Speech, conversation, row_keys, texts, vocabulary};
use crate::input;
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The texts that the arguments ask for. Recorded lengths of answers are used only if neither flags nor spec give a
/// length.
pub(super) fn of(args: &BenchArgs, endpoint: Endpoint) -> Result<Speech> {
    let how = &args.how;
    let mut notes = Vec::new();
    let mut texts = how.prompts.as_deref().map(prompts).transpose()?.unwrap_or_default();
    // A spec with `[workload]` gives a length, too.
    let length_given = args.load.flags.get("workload.output_len").is_some() || args.deployment.spec.is_some();
    let estimated = texts.iter_mut().filter(|text| text.output_len.is_none() && text.recorded.is_some());
    if !length_given {
        let count = estimated.map(|text| text.output_len = text.recorded).count();
        if count > 0 {
            notes.push(format!(
                "{count} prompts ask for as many tokens as their recorded answers have, by their bytes; --output-len \
                 asks for others"
            ));
        }
    }
    notes.extend(suited(&mut texts, endpoint));
    let vocabulary = match &how.tokenizer {
        Some(path) => Some(vocabulary::parse(&path.display().to_string(), &input::text(path)?)?),
        None => None,
    };
    let seed = args.load.flags.get("workload.seed").and_then(toml::Value::as_integer);
    let seed = seed.and_then(|seed| u64::try_from(seed).ok());
    Ok(Speech {
        texts,
        vocabulary,
        seed: seed.unwrap_or_else(any_seed),
        seeded: seed.is_some(),
        notes,
        learn: !how.assume_tokens,
        busts: how.cache_bust.then(any_seed),
    })
}

/// Puts the keys of prompts into the form of the endpoint. Returns, and tells on stderr, what the endpoint cannot be sent.
fn suited(texts: &mut [Text], endpoint: Endpoint) -> Option<String> {
    let mut left = BTreeSet::new();
    for text in texts {
        let (sent, unsent) = row_keys::keys(endpoint, &text.keys);
        text.keys = sent;
        left.extend(unsent.into_iter().map(|key| format!("`{key}`")));
        let parts = conversation::unsent(endpoint, &text.turns);
        left.extend(parts.into_iter().map(|kind| format!("parts of type {kind}")));
    }
    let names: Vec<String> = left.into_iter().collect();
    let note = (!names.is_empty()).then(|| {
        format!(
            "not sent of the prompts, because {} has no place for it: {}",
            endpoint.path(),
            names.join(", ")
        )
    });
    if let Some(note) = &note {
        // If stderr is closed, the report still has the note.
        drop(writeln!(std::io::stderr(), "NOTE: {note}"));
    }
    note
}

/// Largest file of prompts in bytes; ShareGPT's has 0.7 GB.
const MOST_PROMPTS: u64 = 4 << 30;

/// A seed by the clock, so that words differ from every earlier run's if the user gives no seed.
fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64)
}

/// The prompts of a file: CSV and Parquet by extension, else JSON.
fn prompts(path: &Path) -> Result<Vec<Text>> {
    let place = path.display().to_string();
    let ends = |end: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(end));
    if ends("parquet") {
        return Ok(texts::rows(&place, parquet::rows(path)?)?);
    }
    let text = input::text_within(path, MOST_PROMPTS)?;
    if ends("csv") {
        return Ok(texts::rows(&place, cells(&place, &text)?)?);
    }
    Ok(texts::parse(&place, &text)?)
}

/// Rows of a CSV, with cells by column name; a cell that holds JSON is parsed.
fn cells(place: &str, text: &str) -> Result<Vec<Map<String, Value>>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().with_context(|| place.to_owned())?.clone();
    let cell = |(name, text): (&str, &str)| {
        let list = if text.starts_with(['[', '{']) { serde_json::from_str(text).ok() } else { None };
        let filled = !text.trim().is_empty();
        filled.then(|| (name.trim().to_owned(), list.unwrap_or_else(|| Value::from(text))))
    };
    let rows = reader.records().map(|row| Ok(header.iter().zip(&row?).filter_map(cell).collect()));
    rows.collect::<Result<_, csv::Error>>().with_context(|| place.to_owned())
}

#[cfg(not(feature = "parquet"))]
mod parquet {
    use super::{Map, Path, Result, Value};

    pub(super) fn rows(path: &Path) -> Result<Vec<Map<String, Value>>> {
        let accepted = "a build with the feature `parquet`, or JSON Lines or CSV";
        let shown_path = format!("{}, which this build does not read", path.display());
        Err(roofcast::Error::field("arguments", "--prompts", shown_path, accepted).into())
    }
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::{Context, Map, Path, Result, Value};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    use std::fs::File;

    /// Rows of a Parquet file, with their cells as JSON.
    pub(super) fn rows(path: &Path) -> Result<Vec<Map<String, Value>>> {
        let place = || path.display().to_string();
        let reader = SerializedFileReader::new(File::open(path).with_context(place)?).with_context(place)?;
        let rows = reader.get_row_iter(None).with_context(place)?.map(|row| Ok(cells(&row?)));
        rows.collect::<Result<_, parquet::errors::ParquetError>>().with_context(place)
    }

    fn cells(row: &Row) -> Map<String, Value> {
        row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
    }

    /// A Parquet cell as JSON: text, integers, lists and groups; prompts have no other types.
    fn value(field: &Field) -> Value {
        match field {
            Field::Str(text) => text.as_str().into(),
            Field::Int(n) => (*n).into(),
            Field::Long(n) => (*n).into(),
            Field::UInt(n) => (*n).into(),
            Field::ULong(n) => (*n).into(),
            Field::Group(row) => Value::Object(cells(row)),
            Field::ListInternal(list) => list.elements().iter().map(value).collect(),
            _ => Value::Null,
        }
    }
}
