//! A request's body as a question: a spec by the keys of spec files, and the verbs' flags.
//!
//! Knows: bounds on questions. The spec reaches the catalog and models dropped on the page, no file of this machine.

use super::work::MOST_REQUESTS;
use anyhow::{Context, Result};
use roofcast::Error;
use roofcast::workload::Workload;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

/// The place of a request in errors.
pub(super) const PLACE: &str = "the request";
/// Most sequences, and most tokens of one.
const MOST: u64 = 1 << 30;
/// Most accelerators that a plan may consider.
const MOST_ACCELERATORS: u64 = 1024;

/// Question for the machine's limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsAsked {
    pub(super) spec: Table,
    pub(super) batch: Option<u64>,
    pub(super) context: Option<u64>,
    pub(super) prefill: Option<u64>,
}

/// A run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulateAsked {
    pub(super) spec: Table,
}

/// A plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanAsked {
    pub(super) spec: Table,
    pub(super) why: Option<String>,
}

/// A client's results, and the deployment that they were measured on.
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

/// A table of measured points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccuracyAsked {
    pub(super) name: String,
    pub(super) text: String,
}

/// The body as JSON.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).context(PLACE)
}

/// A count from 1 to 2^30.
pub(super) fn positive(field: &str, value: u64) -> Result<u64> {
    match value {
        1..=MOST => Ok(value),
        _ => Err(Error::field(PLACE, field, value, "a whole number from 1 to 2^30").into()),
    }
}

/// Refuses traffic with more requests than a browser may have simulated.
pub(super) fn bounded(workload: Option<&Workload>) -> Result<()> {
    let Some(workload) = workload else { return Ok(()) };
    let asked = workload.total();
    if asked > MOST_REQUESTS {
        let accepted = format!("at most {MOST_REQUESTS} for one request; the command line has no such bound");
        return Err(Error::field(PLACE, "workload.requests", asked, accepted).into());
    }
    Ok(())
}

/// Refuses an unbounded search.
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
