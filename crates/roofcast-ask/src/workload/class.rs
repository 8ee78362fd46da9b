//! Classes of requests: each has a share of the traffic, a priority, lengths and an SLO.
//!
//! Knows: the keys of `[[workload.classes]]` and their bounds. Knows nothing about how requests are drawn, served or judged.

use super::empirical::LengthSide;
use super::length::Length;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::slo::{Metric, Slo};
use serde::Deserialize;

/// Most classes of a workload.
const MOST_CLASSES: usize = 100;

/// One class of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Name of the class in results.
    pub name: String,
    /// Weight of the class among the requests; among the sessions, if there are any.
    pub share: f64,
    /// Priority of the requests; smaller is served first by engines whose queue is in order of priority.
    pub priority: i32,
    /// Number of prompt tokens.
    pub input_len: Length,
    /// Number of generated tokens.
    pub output_len: Length,
    /// LoRA adapter of the requests; if `None`, the workload's adapters are drawn.
    pub adapter: Option<String>,
    /// Latency bounds of the requests.
    pub slo: Slo,
}

/// An item of `[[workload.classes]]` as the spec writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenClass {
    name: String,
    share: f64,
    #[serde(default)]
    priority: i32,
    pub(super) input_len: Option<Length>,
    pub(super) output_len: Option<Length>,
    adapter: Option<String>,
    #[serde(default)]
    slo: Slo,
}

impl WrittenClass {
    /// The class, with the workload's lengths in place of absent ones.
    pub(super) fn with(self, input_len: &Length, output_len: &Length) -> Class {
        let WrittenClass { name, share, priority, adapter, slo, .. } = self;
        let input_len = self.input_len.unwrap_or_else(|| input_len.clone());
        let output_len = self.output_len.unwrap_or_else(|| output_len.clone());
        Class { name, share, priority, input_len, output_len, adapter, slo }
    }
}

/// Refuses classes without a name, with equal names, or with values outside their bounds.
pub(super) fn check(classes: &[Class], place: &str) -> Result<()> {
    if classes.len() > MOST_CLASSES {
        let accepted = format!("at most {MOST_CLASSES}");
        return Err(Error::field(place, "workload.classes", format!("{} classes", classes.len()), accepted));
    }
    for (number, class) in classes.iter().enumerate() {
        let field = |key: &str| format!("workload.classes.{number}.{key}");
        let known = classes[..number].iter().any(|other| other.name == class.name);
        if known || class.name.trim().is_empty() {
            let accepted = "a name that no other class has, as interactive";
            return Err(Error::field(place, field("name"), format!("{:?}", class.name), accepted));
        }
        if !(class.share > 0.0 && class.share <= 1e9) {
            return Err(Error::field(place, field("share"), class.share, "a weight above 0"));
        }
        if class.adapter.as_ref().is_some_and(|adapter| adapter.trim().is_empty()) {
            return Err(Error::field(place, field("adapter"), "empty", "a name, as sql"));
        }
        class.input_len.check(place, &field("input_len"), LengthSide::Input)?;
        class.output_len.check(place, &field("output_len"), LengthSide::Output)?;
        class.slo.check(place, &field("slo"))?;
        if let Some(gaps) = class.slo.of(Metric::Itl).next() {
            let accepted = "bounds on TTFT, TPOT and E2EL: gaps between tokens are counted over all requests";
            return Err(Error::field(place, field("slo"), format!("a bound on {}", gaps.name()), accepted));
        }
    }
    Ok(())
}
