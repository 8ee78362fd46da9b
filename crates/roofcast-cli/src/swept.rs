//! The values of a sweep: ranges of whole numbers, and lists.

use roofcast::Error;
use roofcast::spec::keys::{self, ValueType};
use roofcast::spec::number::{self, Unit};
use std::iter::successors;

/// Most points of a sweep.
const MOST: usize = 100_000;
const LARGEST: u64 = 1 << 30;

/// Reads `1..512`, `1..512:8`, `1..512:x2` or `1,2,4`; numbers must be at least `least`. The error is a message.
pub(crate) fn numbers(text: &str, least: u64) -> Result<Vec<u64>, String> {
    let count = |s: &str| {
        let whole = number::whole(s).and_then(|n| u64::try_from(n).ok());
        let whole = whole.filter(|n| (least..=LARGEST).contains(n));
        whole.ok_or_else(|| format!("{:?} is no whole number from {least} to 2^30", s.trim()))
    };
    let Some((from, rest)) = text.split_once("..") else {
        let values = text.split(',').map(count).take(MOST + 1).collect::<Result<Vec<u64>, _>>()?;
        return counted(text, values);
    };
    let (to, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let from = count(from)?;
    let to = count(to)?;
    if from > to {
        return Err(format!("{text} ends before it begins"));
    }
    let factor = step.strip_prefix('x');
    let size = factor.unwrap_or(step).trim().parse::<u64>().ok().filter(|n| (1..=LARGEST).contains(n));
    let size = size.ok_or_else(|| format!("{step:?} is no step, as 4 or x2"))?;
    if factor.is_some() && (size == 1 || from == 0) {
        return Err(format!("{text} never leaves {from}"));
    }
    let next = |v: &u64| Some(if factor.is_some() { v.saturating_mul(size) } else { v.saturating_add(size) });
    counted(text, successors(Some(from), next).take_while(|v| *v <= to).take(MOST + 1).collect())
}

/// The error for refused values of `--sweep`.
pub(crate) fn refused(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    let accepted = "values as 1..512, 1..512:8, 1..512:x2 or 1,2,4";
    Error::field("arguments", "--sweep", format!("{shown:?} ({why})"), accepted)
}

/// Returns `values`, or an error message if there are more than [`MOST`].
fn counted<T>(text: &str, values: Vec<T>) -> Result<Vec<T>, String> {
    match values.len() {
        0..=MOST => Ok(values),
        _ => {
            let shown: String = text.chars().take(40).collect();
            Err(format!("{shown} has more than {MOST} values"))
        }
    }
}

/// Reads a range of whole numbers, or a list of values, of the key at `path`. The error is a message.
pub(crate) fn settings(path: &str, text: &str) -> Result<Vec<toml::Value>, String> {
    let range = text.split_once("..").is_some_and(|(from, _)| from.trim().parse::<i64>().is_ok());
    if range {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX).into();
        return Ok(numbers(text, 0)?.into_iter().map(whole).collect());
    }
    if text.split(',').any(|word| word.trim().is_empty()) {
        return Err("a value is empty".to_owned());
    }
    counted(text, text.split(',').map(|word| setting(path, word.trim())).take(MOST + 1).collect())
}

/// Reads a value of the key at `path`: a number or time if the key holds one, `true` or `false`, TOML in brackets or
/// quotes, else a word. Values that do not fit the key are refused later, when the spec is read.
pub(crate) fn setting(path: &str, word: &str) -> toml::Value {
    let kind = keys::at(path).map(|key| key.kind);
    let of_key = match (kind, Unit::of_key(path)) {
        (Some(ValueType::Whole), _) => number::whole(word).map(toml::Value::from),
        (Some(ValueType::Real), Some(unit)) => number::time(word, unit).map(toml::Value::from),
        (Some(ValueType::Real), None) => number::real(word).map(toml::Value::from),
        _ => None,
    };
    // Formats and versions are words even if they look like numbers, as the KV format 8.
    let named = kind == Some(ValueType::Word) && path != "parallelism.replicas";
    let written = || {
        let marked = word.starts_with(['[', '{', '"']);
        let table: Option<toml::Table> = marked.then(|| format!("v = {word}").parse().ok()).flatten();
        table.and_then(|mut table| table.remove("v"))
    };
    if named {
        return written().unwrap_or_else(|| word.into());
    }
    let whole = word.parse::<i64>().ok().map(toml::Value::from);
    let real = || word.parse::<f64>().ok().map(toml::Value::from);
    let flag = || word.parse::<bool>().ok().map(toml::Value::from);
    whole.or(of_key).or_else(real).or_else(flag).or_else(written).unwrap_or_else(|| word.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_steps_and_lists() {
        assert_eq!(numbers("1..4", 1), Ok(vec![1, 2, 3, 4]));
        assert_eq!(numbers("1..9:4", 1), Ok(vec![1, 5, 9]));
        assert_eq!(numbers("1..512:x8", 1), Ok(vec![1, 8, 64, 512]));
        assert_eq!(numbers("1024,8192", 1), Ok(vec![1024, 8192]));
        for (wrong, why) in [
            ("", "\"\" is no whole number from 1 to 2^30"),
            ("1..", "\"\" is no whole number"),
            ("2..1", "2..1 ends before it begins"),
            ("0..4", "\"0\" is no whole number from 1"),
            ("1..9:x1", "1..9:x1 never leaves 1"),
            ("1..9:0", "\"0\" is no step"),
            ("1..9:x", "\"x\" is no step"),
            ("1..1073741824", "more than 100000 values"),
            ("1,x", "\"x\" is no whole number"),
        ] {
            let error = numbers(wrong, 1).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        // Zero times any factor stays zero, so the range would never end.
        assert!(numbers("0..4:x2", 0).unwrap_err().contains("never leaves 0"));
    }

    #[test]
    fn settings_are_what_their_key_holds() {
        assert_eq!(settings("slo.ttft_p99_ms", "50ms,2s"), Ok(vec![50.0.into(), 2000.0.into()]));
        assert_eq!(settings("engine.max_model_len", "8k,1e4"), Ok(vec![8000.into(), 10_000.into()]));
        assert_eq!(setting("engine.watermark", "0.01"), 0.01.into());
        // Names that look like numbers are words, as for their flags.
        assert_eq!(settings("precision.kv", "8,16"), Ok(vec!["8".into(), "16".into()]));
        assert_eq!(setting("engine.version", "0.11"), "0.11".into());
        assert_eq!(setting("parallelism.replicas", "4"), 4.into());
        assert_eq!(numbers("1k..4k:x2", 1), Ok(vec![1000, 2000, 4000]));
    }

    #[test]
    fn settings_are_tomls() {
        assert_eq!(settings("x", "0..2"), Ok(vec![0.into(), 1.into(), 2.into()]));
        let mixed: Vec<toml::Value> = vec![0.5.into(), 2.into(), true.into(), "llama.cpp".into()];
        assert_eq!(settings("x", "0.5, 2, true,llama.cpp"), Ok(mixed));
        assert!(["", "1,,2", "3..1", "-1..4"].iter().all(|wrong| settings("x", wrong).is_err()));
    }
}
