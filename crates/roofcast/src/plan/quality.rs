//! What formats cost in the quality of answers, as far as somebody measured it.
//!
//! Knows: one line a format, with its source, from `catalog/quality.toml`. Nothing is computed from it: a plan says it beside its rows.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

const FILE: &str = include_str!("../../catalog/quality.toml");
const PLACE: &str = "catalog/quality.toml";

/// What a format costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// As in `fp8`.
    pub format: String,
    /// Of `weights` or of the `kv` cache.
    pub of: String,
    /// What was found.
    pub note: String,
    /// Who found it.
    pub source: String,
    /// Where it says so.
    pub url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    quality: Vec<Quality>,
}

/// The notes on these formats of weights and KV caches, in the file's order; a format without one is left out.
pub(super) fn notes(weights: &[String], kv: &[String]) -> Result<Vec<Quality>> {
    let file: File = toml::from_str(FILE).map_err(|e| Error::toml(PLACE, FILE, "", &e))?;
    let named = |q: &Quality| if q.of == "kv" { kv.contains(&q.format) } else { weights.contains(&q.format) };
    Ok(file.quality.into_iter().filter(named).collect())
}
