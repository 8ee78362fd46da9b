//! Quoted numbers in a spec's TOML, in the notation of the command line: `input_len = "8k"`, `ttft_p99_ms = "2s"`.
//!
//! Knows: the keys that hold numbers. Knows nothing about which numbers a key accepts.

use super::keys::{KEYS, ValueType};
use super::number::{self, Unit};
use std::borrow::Cow;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Replaces each quoted number of a numeric key in `text` by a plain number. The number of lines stays unchanged, so
/// that errors name the lines of the file. A quoted text that is not a number is kept, and so is a `text` that is not
/// TOML.
pub fn unquoted(text: &str) -> Cow<'_, str> {
    let Ok(table) = DeTable::parse(text) else { return text.into() };
    let mut quoted = Vec::new();
    collect(table.get_ref(), "", &mut quoted);
    if quoted.is_empty() {
        return text.into();
    }
    quoted.sort_by_key(|(span, _)| span.start);
    let mut plain = String::with_capacity(text.len());
    let mut from = 0;
    for (span, number) in quoted {
        plain.push_str(text.get(from..span.start).unwrap_or_default());
        plain.push_str(&number);
        from = span.end;
    }
    plain.push_str(text.get(from..).unwrap_or_default());
    plain.into()
}

/// Collects the quoted numbers of the table at dotted path `above`, each with its position in the text.
fn collect(table: &DeTable, above: &str, found: &mut Vec<(Range<usize>, String)>) {
    for (key, value) in table {
        let path = match above {
            "" => key.get_ref().to_string(),
            above => format!("{above}.{}", key.get_ref()),
        };
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &path, found),
            DeValue::String(text) => {
                found.extend(number_of(&path, text).map(|number| (value.span(), number)));
            }
            _ => {}
        }
    }
}

/// The TOML number for the quoted text `text` of the key at `path`; `None` if it is not a number.
fn number_of(path: &str, text: &str) -> Option<String> {
    let whole = || number::whole(text).map(|n| n.to_string());
    let real = || match Unit::of_key(path) {
        Some(unit) => number::time(text, unit),
        None => number::real(text),
    };
    let kind = KEYS.iter().find(|key| key.path == path).map(|key| key.kind);
    match kind {
        Some(ValueType::Whole) => whole(),
        // Write a decimal point, by which TOML distinguishes floats from integers.
        Some(ValueType::Real) => real().map(|n| format!("{n:?}")),
        // A parameter of a length distribution: `{ kind = "uniform", min = "1k", max = "8k" }`.
        None => {
            let (of, name) = path.rsplit_once('.')?;
            let length = KEYS.iter().any(|key| key.path == of && key.kind == ValueType::Whole);
            (length && !["kind", "path", "format"].contains(&name)).then(whole)?
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_numbers_of_numeric_keys_are_plain() {
        let text = "[workload]\ninput_len = \"8k\" # long\noutput_len = { kind = \"uniform\", min = \"1K\", max = \"2k\" }\n\
                    arrivals = { kind = \"sessions\", rate = \"1e1\", think_s = \"500ms\" }\n[slo]\nttft_p99_ms = '2s'\n";
        let plain = "[workload]\ninput_len = 8000 # long\noutput_len = { kind = \"uniform\", min = 1024, max = 2000 }\n\
                     arrivals = { kind = \"sessions\", rate = 10.0, think_s = 0.5 }\n[slo]\nttft_p99_ms = 2000.0\n";
        assert_eq!(unquoted(text), plain);
    }

    #[test]
    fn words_stay_words() {
        for text in [
            "[parallelism]\nreplicas = \"3\"",
            "[model]\nname = \"8k\"",
            "[engine]\nversion = \"1e1\"",
            "[engine]\nmax_num_seqs = \"many\"",
            "[workload]\nseed = \"1.5\"",
            "no TOML \"8k\"",
        ] {
            assert!(matches!(unquoted(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
