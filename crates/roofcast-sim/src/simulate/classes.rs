//! Results of a run by class of requests.
//!
//! Knows: counts, latencies and goodput of each class, against the SLO of the class. Knows nothing about how requests were
//! served.

use crate::fleet::results::Results;
use crate::tally::distribution::Distribution;
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::Class;
use roofcast_facts::slo::Slo;
use serde::Serialize;

/// Results of one class of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassResults {
    /// Name of the class.
    pub name: String,
    /// LoRA adapter that the class names; `None` if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Number of requests of the class that arrived.
    pub requests: u64,
    /// Latency bounds of the class.
    pub slo: Slo,
    /// Number of requests that met every bound of the class; `None` if the class has none.
    pub good: Option<u64>,
    /// Latencies and throughput of the class by vLLM's keys, per second of the whole run. Gaps between tokens are not
    /// counted by class.
    #[serde(flatten)]
    pub summary: RunSummary,
}

/// Results of `classes` in a run of `duration` seconds.
pub(super) fn results(classes: &[Class], results: &[Results], duration: f64) -> Vec<ClassResults> {
    let class_results = |(class, results): (&Class, &Results)| {
        let summary = RunSummary { duration, ..results.summary(&Distribution::default()) };
        let requests = results.judged;
        let good = summary.good;
        ClassResults {
            name: class.name.clone(),
            adapter: class.adapter.clone(),
            requests,
            slo: class.slo,
            good,
            summary,
        }
    };
    classes.iter().zip(results).map(class_results).collect()
}
