//! The values of a sweep: ranges of whole numbers, and lists.

use std::iter::successors;

/// More points than anyone reads.
const MOST: usize = 100_000;
const LARGEST: u64 = 1 << 30;

/// `1..512`, `1..512:8`, `1..512:x2` or `1,2,4`, of numbers from `least`; none where it is neither, is empty or has more
/// than 100,000 of them.
pub(crate) fn numbers(text: &str, least: u64) -> Option<Vec<u64>> {
    let number = |s: &str| s.trim().parse::<u64>().ok().filter(|n| (least..=LARGEST).contains(n));
    let values = match text.split_once("..") {
        None => text.split(',').map(number).take(MOST + 1).collect::<Option<Vec<u64>>>()?,
        Some((from, rest)) => {
            let (to, step) = rest.split_once(':').unwrap_or((rest, "1"));
            let (from, to) = (number(from)?, number(to)?);
            let factor =
                step.strip_prefix('x').map(|f| number(f).filter(|f| *f > 1).ok_or(())).transpose().ok()?;
            let step = if factor.is_some() { 0 } else { number(step).filter(|s| *s > 0)? };
            let next = |v: &u64| Some(factor.map_or(v.saturating_add(step), |f| v.saturating_mul(f)));
            successors(Some(from), next).take_while(|v| *v <= to).take(MOST + 1).collect()
        }
    };
    (1..=MOST).contains(&values.len()).then_some(values)
}

/// A range of whole numbers, or a list of numbers and words as TOML has them.
pub(crate) fn settings(text: &str) -> Option<Vec<toml::Value>> {
    let range = text.split_once("..").is_some_and(|(from, _)| from.trim().parse::<u64>().is_ok());
    if range {
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX).into();
        return Some(numbers(text, 0)?.into_iter().map(whole).collect());
    }
    let values: Vec<toml::Value> = text.split(',').map(|word| setting(word.trim())).take(MOST + 1).collect();
    let whole = values.len() <= MOST && !text.split(',').any(|word| word.trim().is_empty());
    whole.then_some(values)
}

/// A number, `true` or `false`, what TOML writes in brackets or quotes, else a word.
pub(crate) fn setting(word: &str) -> toml::Value {
    let written = || {
        let marked = word.starts_with(['[', '{', '"']);
        let table: Option<toml::Table> = marked.then(|| format!("v = {word}").parse().ok()).flatten();
        table.and_then(|mut table| table.remove("v"))
    };
    let whole = word.parse::<i64>().ok().map(toml::Value::from);
    let real = || word.parse::<f64>().ok().map(toml::Value::from);
    let flag = || word.parse::<bool>().ok().map(toml::Value::from);
    whole.or_else(real).or_else(flag).or_else(written).unwrap_or_else(|| word.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_steps_and_lists() {
        assert_eq!(numbers("1..4", 1), Some(vec![1, 2, 3, 4]));
        assert_eq!(numbers("1..9:4", 1), Some(vec![1, 5, 9]));
        assert_eq!(numbers("1..512:x8", 1), Some(vec![1, 8, 64, 512]));
        assert_eq!(numbers("1024,8192", 1), Some(vec![1024, 8192]));
        for wrong in ["", "1..", "2..1", "0..4", "1..9:x1", "1..9:0", "1..9:x", "1..1073741824", "1,x"] {
            assert_eq!(numbers(wrong, 1), None, "{wrong}");
        }
        // Zero times anything stays zero.
        assert_eq!(numbers("0..4:x2", 0), None);
    }

    #[test]
    fn settings_are_tomls() {
        assert_eq!(settings("0..2"), Some(vec![0.into(), 1.into(), 2.into()]));
        let mixed: Vec<toml::Value> = vec![0.5.into(), 2.into(), true.into(), "llama.cpp".into()];
        assert_eq!(settings("0.5, 2, true,llama.cpp"), Some(mixed));
        assert_eq!((settings(""), settings("1,,2"), settings("3..1")), (None, None, None));
    }
}
