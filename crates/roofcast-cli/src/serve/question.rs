//! A request's body as a question: a spec with the keys of spec files, and the verbs' flags.
//!
//! Knows: bounds on questions. A spec may refer to the catalog and to models dropped on the page, but not to files of
//! this machine.

use super::work::MOST_REQUESTS;
use anyhow::{Context, Result};
use roofcast::Error;
use roofcast::workload::Workload;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

/// Name of the request in errors.
pub(super) const PLACE: &str = "the request";
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

/// Checks a count, which must be from 1 to 2^30.
pub(super) fn positive(field: &str, value: u64) -> Result<u64> {
    match value {
        1..=MOST => Ok(value),
        _ => Err(Error::field(PLACE, field, value, "a whole number from 1 to 2^30").into()),
    }
}

/// Refuses a workload with more requests than a browser may have simulated.
pub(super) fn bounded(workload: Option<&Workload>) -> Result<()> {
    let Some(workload) = workload else { return Ok(()) };
    let asked = workload.total();
    if asked > MOST_REQUESTS {
        let accepted = format!("at most {MOST_REQUESTS} for one request; the command line has no such bound");
        return Err(Error::field(PLACE, "workload.requests", asked, accepted).into());
    }
    Ok(())
}

/// Refuses a search without bounds, or with too many accelerators.
pub(super) fn searched(spec: &roofcast::Spec) -> Result<()> {
    let most = spec.search.as_ref().and_then(|search| search.max_accelerators);
    match most.filter(|most| *most > MOST_ACCELERATORS) {
        Some(most) => {
            let accepted = format!("at most {MOST_ACCELERATORS}");
            Err(Error::field(PLACE, "search.max_accelerators", most, accepted).into())
        }
        None => Ok(()),
    }
}
