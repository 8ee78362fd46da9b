//! A request's body as a question: a spec with the keys of spec files, and the verbs' flags.
//!
//! Knows: bounds on questions. A spec may refer to the catalog and to models dropped on the page, but not to files of
//! this machine.

use anyhow::{Context, Result};
use roofcast::Error;
use roofcast::spec::keys::KEYS;
use roofcast::workload::Workload;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

/// Name of the request in errors.
pub(super) const PLACE: &str = "the request";
/// Most requests that a simulation may have.
pub(super) const MOST_REQUESTS: u64 = 200_000;
/// Most sequences of a question, and most tokens of a sequence.
const MOST: u64 = 1 << 30;
/// Most accelerators that a plan may consider.
const MOST_ACCELERATORS: u64 = 1024;

/// Question about the machine's limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsAsked {
    pub(super) spec: Table,
    pub(super) batch: Option<u64>,
    pub(super) context: Option<u64>,
    pub(super) prefill: Option<u64>,
}

/// Question about memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacityAsked {
    pub(super) spec: Table,
    pub(super) context: Option<u64>,
    pub(super) batch: Option<u64>,
    pub(super) users: Option<u64>,
    /// Users that are served over users that fit at full context, in percent.
    pub(super) oversubscription_percent: Option<u64>,
}

/// Question for a sweep of one key over steps, with the constant quantities of the step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsSweepAsked {
    pub(super) spec: Table,
    /// The key and its values, as in `batch=1..512:x2`.
    pub(super) sweep: String,
    pub(super) batch: Option<u64>,
    pub(super) context: Option<u64>,
    pub(super) prefill: Option<u64>,
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
    pub(super) tp: Option<u64>,
    pub(super) count: Option<u64>,
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

/// The message of an error in the words of the page, which has fields of a request in the place of flags.
pub(super) fn told(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Error>() {
        Some(Error::Field { place, field, found, accepted }) if place == "arguments" => {
            let name = field.trim_start_matches("--");
            let key = KEYS.iter().find(|key| key.flag == Some(name)).map_or(name, |key| key.path);
            Error::field(PLACE, key, found, accepted).to_string()
        }
        _ => format!("{error:#}"),
    }
}

/// Checks a count, which must be from 1 to 2^30.
pub(super) fn positive(field: &str, value: u64) -> Result<u64> {
    match value {
        1..=MOST => Ok(value),
        _ => Err(Error::field(PLACE, field, value, "a whole number from 1 to 2^30").into()),
    }
}

/// Checks counts that may be absent.
pub(super) fn counts(counts: &[(&str, Option<u64>)]) -> Result<()> {
    counts.iter().try_for_each(|(field, count)| match count {
        Some(count) => positive(field, *count).map(drop),
        None => Ok(()),
    })
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
        let told_of = |field: &str| told(&Error::field("arguments", field, "0", "1 to 8").into());
        assert_eq!(told_of("--sweep"), "the request: `sweep` is 0; accepted: 1 to 8");
        assert_eq!(told_of("--weights"), "the request: `precision.weights` is 0; accepted: 1 to 8");
        assert_eq!(told_of("why"), "the request: `why` is 0; accepted: 1 to 8");
        let other = Error::field("s.toml", "model.name", "missing", "one");
        assert_eq!(told(&other.into()), "s.toml: `model.name` is missing; accepted: one");
    }
}
