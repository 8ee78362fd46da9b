//! Dimensions of a sweep: keys, and the values that each takes in turn.
//!
//! Knows: the syntax of `--sweep KEY=VALUES`, the order of combinations, and the key on the x axis of a picture. The
//! verb or the spec knows the meaning of a key.

use crate::swept::{numbers, refused, settings as values_of};
use roofcast::Error;
use roofcast::spec::keys;
use roofcast::spec::settings::{self, Setting};
use toml::Value;

/// Most combinations of a sweep.
const MOST: usize = 100_000;

/// A key of a sweep and its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dimension {
    /// Dotted path of a key of the spec, or name of a key that only the verb has.
    pub(crate) path: String,
    pub(crate) values: Vec<Value>,
}

impl Dimension {
    /// Reads `KEY=VALUES`. A key of the verb's `own` keys has whole numbers; any other is a key of the spec, by its
    /// dotted path or its flag's name, and must not be `given` as a flag, too.
    pub(crate) fn read(text: &str, own: &[&str], given: &[&[Setting]]) -> Result<Dimension, Error> {
        let bad = || {
            let own_keys = own.iter().map(|key| format!("{key}, ")).collect::<String>();
            let accepted = format!(
                "{own_keys}a flag's name (tp, weights, max-num-seqs, …) or a dotted key of the spec, then = and 1..32, 1..32:4, \
                 1..32:x2 or a list as 0.5,1,2"
            );
            let shown: String = text.chars().take(80).collect();
            Error::field("arguments", "--sweep", format!("{shown:?}"), accepted)
        };
        let (name, values) = text.split_once('=').ok_or_else(bad)?;
        let name = name.trim();
        if own.contains(&name) {
            let whole = |n: u64| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
            let values = numbers(values, 1).map_err(|why| refused(text, &why))?;
            return Ok(Dimension { path: name.to_owned(), values: values.into_iter().map(whole).collect() });
        }
        let path = settings::path(name).ok_or_else(bad)?;
        if let Some(flag) = given.iter().copied().flatten().find(|s| s.path == path) {
            let conflict = format!("{name} together with {}", flag.name());
            return Err(Error::field("arguments", "--sweep", conflict, "one of the two"));
        }
        let values = values_of(&path, values).map_err(|why| refused(text, &why))?;
        Ok(Dimension { path, values })
    }

    /// The last part of the dotted key, as a column's title.
    pub(crate) fn short(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

/// Refuses a key that occurs twice, and too many combinations.
pub(crate) fn check(dimensions: &[Dimension]) -> Result<(), Error> {
    let twice = |(at, d): &(usize, &Dimension)| dimensions[..*at].iter().any(|before| before.path == d.path);
    if let Some((_, d)) = dimensions.iter().enumerate().find(twice) {
        return Err(Error::field("arguments", "--sweep", format!("{} twice", d.path), "each key once"));
    }
    let all = dimensions.iter().fold(1_usize, |n, d| n.saturating_mul(d.values.len()));
    if all > MOST {
        let run_count = format!("{all} runs");
        let accepted = format!("at most {MOST} in all");
        return Err(Error::field("arguments", "--sweep", run_count, accepted));
    }
    Ok(())
}

/// Every combination of values; the last dimension varies fastest.
pub(crate) fn product(dimensions: &[Dimension]) -> Vec<Vec<Value>> {
    dimensions.iter().fold(vec![Vec::new()], |all, d| {
        let with = |before: &Vec<Value>| {
            let before = before.clone();
            d.values.iter().map(move |value| [before.as_slice(), std::slice::from_ref(value)].concat())
        };
        all.iter().flat_map(with).collect()
    })
}

/// Index of the dimension on a picture's x axis: the last one with several numbers, else the last one.
pub(crate) fn axis(dimensions: &[Dimension]) -> usize {
    let long = |d: &Dimension| d.values.len() > 1 && d.values.iter().all(|v| number(v).is_some());
    dimensions.iter().rposition(long).unwrap_or(dimensions.len().saturating_sub(1))
}

/// Text of all values except the one of dimension number `axis`, as in `tp 2, weights fp8`.
pub(crate) fn beside(dimensions: &[Dimension], values: &[Value], axis: usize) -> String {
    let others = dimensions.iter().zip(values).enumerate().filter(|(index, _)| *index != axis);
    others.map(|(_, (d, value))| format!("{} {}", d.short(), word(value))).collect::<Vec<_>>().join(", ")
}

/// A key with the first words of its meaning, which name its unit: `rate: requests per second`. `own` has the meanings
/// of the keys that only the verb has.
pub(crate) fn titled(path: &str, own: &[(&str, &str)]) -> String {
    let short = path.rsplit('.').next().unwrap_or(path);
    let of_verb = own.iter().find(|(key, _)| *key == path).map(|(_, about)| *about);
    let about = of_verb.or_else(|| keys::at(path).map(|key| key.about));
    let words = about.and_then(|about| about.split([',', ';', '[', ':']).next()).map(str::trim);
    match words {
        Some(words) if words == short => short.to_owned(),
        Some(words) => format!("{short}: {words}"),
        None => path.to_owned(),
    }
}

/// A value as text, without the quotes of TOML.
pub(crate) fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value as a number, if it is one.
pub(crate) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

/// True if `error` says that a degree of parallelism is impossible, in a sweep of one.
pub(crate) fn is_illegal(dimensions: &[Dimension], error: &anyhow::Error) -> bool {
    let varied = dimensions.iter().any(|d| d.path.starts_with("parallelism."));
    let parallel = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<Error>().is_some_and(|error| match error {
            Error::Field { place, .. } => place == "parallelism",
            _ => false,
        })
    };
    varied && error.chain().any(parallel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_verbs_own_or_a_specs() {
        let read = |text: &str| Dimension::read(text, &["batch"], &[]);
        let batch = read("batch=1..4").unwrap();
        assert_eq!((batch.path.as_str(), batch.values.len()), ("batch", 4));
        assert_eq!(read("weights=fp8,bf16").unwrap().path, "precision.weights");
        assert_eq!(read("engine.watermark=0.1").unwrap().short(), "watermark");
        for wrong in ["batch", "depth=1..2", "batch=0..4", "batch=x", "=1", "weights="] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let given = [Setting::new("precision.weights", "fp8")];
        let refused = Dimension::read("weights=bf16", &[], &[&given]).unwrap_err().to_string();
        assert!(refused.contains("weights together with --weights"), "{refused}");
    }

    #[test]
    fn the_last_dimension_is_the_fastest_and_the_last_of_numbers_the_axis() {
        let dimension =
            |path: &str, values: &[Value]| Dimension { path: path.to_owned(), values: values.to_vec() };
        let two = [
            dimension("tp", &[1.into(), 2.into()]),
            dimension("precision.weights", &["fp8".into(), "bf16".into()]),
        ];
        let all: Vec<String> =
            product(&two).iter().map(|v| v.iter().map(word).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(all, ["1 fp8", "1 bf16", "2 fp8", "2 bf16"]);
        assert_eq!((axis(&two), beside(&two, &[1.into(), "fp8".into()], 0)), (0, "weights fp8".to_owned()));
        assert!(check(&two).is_ok() && check(&[two[0].clone(), two[0].clone()]).is_err());
        let many = dimension("rate", &vec![1.into(); 400]);
        assert!(
            check(&[many.clone(), dimension("tp", &many.values)])
                .unwrap_err()
                .to_string()
                .contains("160000 runs")
        );
    }
}
