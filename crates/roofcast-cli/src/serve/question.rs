//! A request's body as a question: a spec with the keys of spec files, and the verbs' flags.
//!
//! Knows: bounds on questions, and that a number may be text in the notation of the flags. A spec may refer to the
//! catalog and to models dropped on the page, but not to files of this machine.

use crate::args::{flags, values};
use anyhow::{Context, Result};
use roofcast::Error;
use roofcast::spec::keys::{self, KEYS, ValueType};
use roofcast::workload::Workload;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use toml::{Table, Value};

/// Name of the request in errors.
pub(super) const PLACE: &str = "the request";
/// Most requests that a simulation may have.
pub(super) const MOST_REQUESTS: u64 = 200_000;
/// Most accelerators that a plan may consider.
const MOST_ACCELERATORS: u64 = 1024;

/// A number, or text in the notation of the flags, as in `8k`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    /// A number of JSON.
    Plain(serde_json::Number),
    /// Text, as it was typed.
    Text(String),
}

/// Question about the machine's limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsAsked {
    pub(super) spec: Table,
    pub(super) batch: Option<Number>,
    pub(super) context: Option<Number>,
    pub(super) prefill: Option<Number>,
}

/// Question about memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityAsked {
    pub(super) spec: Table,
    pub(super) context: Option<Number>,
    pub(super) batch: Option<Number>,
    pub(super) users: Option<Number>,
    /// Users that are served over users that fit at full context.
    pub(super) oversubscription: Option<Number>,
}

/// Question for a sweep of one key over steps, with the constant quantities of the step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsSweepAsked {
    pub(super) spec: Table,
    /// The key and its values, as in `batch=1..512:x2`.
    pub(super) sweep: String,
    pub(super) batch: Option<Number>,
    pub(super) context: Option<Number>,
    pub(super) prefill: Option<Number>,
}

/// Question for a sweep of one key of a simulation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulateSweepAsked {
    pub(super) spec: Table,
    /// The key and its values, as in `workload.arrivals.rate=1..32:x2`.
    pub(super) sweep: String,
}

/// Question for a simulation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulateAsked {
    pub(super) spec: Table,
}

/// Question for a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanAsked {
    pub(super) spec: Table,
    pub(super) why: Option<String>,
}

/// Question about a benchmark client's results, with the deployment on which they were measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasureAsked {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) model: String,
    pub(super) hardware: String,
    pub(super) tp: Option<Number>,
    pub(super) count: Option<Number>,
    pub(super) engine: Option<String>,
    pub(super) engine_version: Option<String>,
    pub(super) weights: Option<String>,
    pub(super) kv: Option<String>,
}

/// Question about a table of measured points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccuracyAsked {
    pub(super) name: String,
    pub(super) text: String,
}

/// Parses the body as JSON.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).context(PLACE)
}

/// A refusal as JSON: the message, and the field that it is about, if there is one. Fields of the request stand in the
/// place of flags.
pub(super) fn refusal(error: &anyhow::Error) -> serde_json::Value {
    match error.downcast_ref::<Error>() {
        Some(Error::Field { place, field, found, accepted }) => {
            let key = path_of(field.trim_start_matches("--"));
            let place = if place == "arguments" { PLACE } else { place };
            let error = Error::field(place, key, found, without_flags(accepted)).to_string();
            json!({ "error": error, "field": key })
        }
        _ => json!({ "error": without_flags(&format!("{error:#}")) }),
    }
}

/// The path of the key that has this flag; another name is its own path.
fn path_of(flag: &str) -> &str {
    KEYS.iter().find(|key| key.flag == Some(flag)).map_or(flag, |key| key.path)
}

/// Replaces the flags in a message by the paths of their keys.
fn without_flags(text: &str) -> String {
    let mut parts = text.split("--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |before, part| {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(part.len());
        let (flag, rest) = part.split_at(end);
        let is_flag = before.is_empty() || before.ends_with(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        if is_flag && path_of(flag) != flag { before + path_of(flag) + rest } else { before + "--" + part }
    })
}

/// Reads a count as its flag does; `field` is the name in errors.
pub(super) fn count(field: &str, given: Option<&Number>) -> Result<Option<u64>> {
    number(field, given, values::positive())
}

/// Reads a factor as its flag does, in percent.
pub(super) fn percent(field: &str, given: Option<&Number>) -> Result<Option<u64>> {
    Ok(number(field, given, values::factor)?.map(|factor| (factor * 100.0).round() as u64))
}

fn number<T>(
    field: &str,
    given: Option<&Number>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>> {
    let Some(given) = given else { return Ok(None) };
    let parsed = match given {
        Number::Plain(number) => {
            let text = number.to_string();
            parse(&text).map_err(|why| refused(field, &text, &why))
        }
        Number::Text(text) => parse(text).map_err(|why| refused(field, &format!("{text:?}"), &why)),
    };
    Ok(Some(parsed?))
}

fn refused(field: &str, found: &str, why: &str) -> Error {
    Error::field(PLACE, field, found, why.trim_start_matches("accepted: "))
}

/// Replaces every text of a key that holds numbers, switches or lists by the value that the key's flag would read.
pub(super) fn texts(spec: &mut Table) -> Result<()> {
    within(spec, "")
}

/// [`texts`] for the table at dotted path `above`.
fn within(table: &mut Table, above: &str) -> Result<()> {
    for (name, value) in table.iter_mut() {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let key = keys::at(&path);
        let text = match (&*value, key.map(|key| key.kind)) {
            (Value::String(text), Some(kind)) if kind != ValueType::Word => Some(text.clone()),
            (Value::Table(numbers), Some(ValueType::Toml)) => by_name(numbers),
            _ => None,
        };
        match (text, key, &mut *value) {
            (Some(text), Some(key), value) => {
                *value =
                    flags::value(key, &text).map_err(|why| refused(key.path, &format!("{text:?}"), &why))?;
            }
            (_, _, Value::Table(inner)) => within(inner, &path)?,
            _ => {}
        }
    }
    Ok(())
}

/// A table of texts in the notation of flags, as in `h100-sxm=2.1,l4=0.6`; `None` for other tables.
fn by_name(numbers: &Table) -> Option<String> {
    let pair = |(name, value): (&String, &Value)| Some(format!("{name}={}", value.as_str()?));
    numbers.iter().map(pair).collect::<Option<Vec<_>>>().map(|pairs| pairs.join(","))
}

/// Refuses a workload with more requests than a browser may have simulated.
pub(super) fn bounded(workload: Option<&Workload>) -> Result<()> {
    requests(workload.map_or(0, Workload::total))
}

/// Refuses more requests than a browser may have simulated.
pub(super) fn requests(asked: u64) -> Result<()> {
    if asked > MOST_REQUESTS {
        let accepted = format!("at most {MOST_REQUESTS} for one request; the command line has no such bound");
        return Err(Error::field(PLACE, "workload.requests", asked, accepted).into());
    }
    Ok(())
}

/// Refuses a search without bounds, or with too many accelerators.
pub(super) fn searched(spec: &roofcast::Spec) -> Result<()> {
    let limit = spec.search.as_ref().and_then(|search| search.max_accelerators);
    match limit.filter(|limit| *limit > MOST_ACCELERATORS) {
        Some(limit) => {
            let accepted = format!("at most {MOST_ACCELERATORS}");
            Err(Error::field(PLACE, "search.max_accelerators", limit, accepted).into())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_fields_of_the_request() {
        let refused_as = |field: &str| refusal(&Error::field("arguments", field, "0", "1 to 8").into());
        for (flag, key) in [("--sweep", "sweep"), ("--weights", "precision.weights"), ("why", "why")] {
            let error = format!("the request: `{key}` is 0; accepted: 1 to 8");
            assert_eq!(refused_as(flag), json!({ "error": error, "field": key }));
        }
        let other = Error::field("s.toml", "model.name", "missing", "one, or --input-len and --own");
        let error = "s.toml: `model.name` is missing; accepted: one, or workload.input_len and --own";
        assert_eq!(refusal(&other.into()), json!({ "error": error, "field": "model.name" }));
    }

    #[test]
    fn texts_are_read_as_flags_are() {
        let spec = |text: &str| -> Result<Table> {
            let mut table: Table = text.parse().unwrap();
            texts(&mut table).map(|()| table)
        };
        let read = spec(
            "model.name = \"8k\"\n[workload]\ninput_len = \"8k\"\narrivals = { kind = \"poisson\", rate = \"1e1\" }\n\
             [slo]\nttft_p99_ms = \"2s\"\n[search]\naccelerators = \"l4,h100-sxm\"\nprices = { l4 = \"$0.5\" }\n\
             [engine]\nenable_chunked_prefill = \"true\"\nvllm = { kv_offloading_size = \"32\" }\n",
        );
        let plain = "model.name = \"8k\"\n[workload]\ninput_len = 8000\narrivals = { kind = \"poisson\", rate = 10.0 }\n\
             [slo]\nttft_p99_ms = 2000.0\n[search]\naccelerators = [\"l4\", \"h100-sxm\"]\nprices = { l4 = 0.5 }\n\
             [engine]\nenable_chunked_prefill = true\nvllm = { kv_offloading_size = 32.0 }\n";
        assert_eq!(read.unwrap(), plain.parse::<Table>().unwrap());
        for (wrong, field, accepted) in [
            ("workload.input_len = \"4O\"", "workload.input_len", "a whole number, as 4096 or 8k"),
            (
                "slo.ttft_p99_ms = \"soon\"",
                "slo.ttft_p99_ms",
                "milliseconds, or a time as 50ms or 2s, or none",
            ),
            (
                "search.prices = { l4 = \"dear\" }",
                "search.prices",
                "names with numbers, as in h100-sxm=2.1,mi355x=4",
            ),
        ] {
            let error = refusal(&spec(wrong).unwrap_err());
            assert_eq!(error["field"], field);
            assert!(
                error["error"].as_str().unwrap().ends_with(&format!("; accepted: {accepted}")),
                "{error}"
            );
        }
    }

    #[test]
    fn counts_are_read_as_flags_are() {
        let count_of = |json: &str| count("batch", Some(&serde_json::from_str(json).unwrap()));
        assert_eq!((count_of("8").unwrap(), count_of("\"8k\"").unwrap()), (Some(8), Some(8000)));
        assert_eq!(percent("oversubscription", Some(&Number::Text("1.5".into()))).unwrap(), Some(150));
        let accepted = "a whole number from 1 to 2^30, as 4096 or 8k";
        for (wrong, found) in [("0", "0"), ("-1", "-1"), ("1.5", "1.5"), ("\"4O\"", "\"4O\"")] {
            let error = format!("the request: `batch` is {found}; accepted: {accepted}");
            assert_eq!(count_of(wrong).unwrap_err().to_string(), error);
        }
    }
}
