//! Earlier results to compare with: vLLM's, aiperf's and roofcast's own JSON.
//!
//! Knows: the keys of the metrics in each format. aiperf's inter-token latency equals vLLM's TPOT.

use crate::input;
use anyhow::Result;
use roofcast::Error;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The metrics of another run, by vLLM's keys.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Baseline {
    /// Name of the file.
    file: String,
    /// Program that wrote the results: `vllm`, `aiperf` or `roofcast`.
    pub(super) source: &'static str,
    /// Metrics by vLLM's keys.
    pub(super) metrics: BTreeMap<String, f64>,
}

/// vLLM's keys of the figures that are compared with earlier results, and that get confidence intervals over several
/// runs.
pub(super) const KEYS: [&str; 12] = [
    "request_throughput",
    "output_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "mean_itl_ms",
    "mean_e2el_ms",
    "median_e2el_ms",
    "p99_e2el_ms",
];

/// Names of latencies in aiperf's export, each with vLLM's.
const LATENCIES: [(&str, &str); 3] =
    [("time_to_first_token", "ttft"), ("inter_token_latency", "tpot"), ("request_latency", "e2el")];
const RATES: [(&str, &str); 2] =
    [("request_throughput", "request_throughput"), ("output_token_throughput", "output_throughput")];

impl Baseline {
    pub(super) fn read(path: &Path) -> Result<Baseline> {
        let file = path.display().to_string();
        let parsed: Result<Value, _> = serde_json::from_str(&input::text(path)?);
        let value = parsed.map_err(|e| Error::Parse { place: file.clone(), message: e.to_string() })?;
        let (source, metrics) = match value.get("schema").and_then(Value::as_str) {
            Some(schema) if schema.starts_with("roofcast/bench/") => ("roofcast", flat(&value)),
            _ if value.get("mean_ttft_ms").is_some() => ("vllm", flat(&value)),
            _ => ("aiperf", nested(&value)),
        };
        if metrics.is_empty() {
            let accepted = "the JSON of `vllm bench serve --save-result`, aiperf's profile export, or `roofcast bench --json`";
            return Err(Error::field(file, "metrics", "none", accepted).into());
        }
        Ok(Baseline { file, source, metrics })
    }
}

fn flat(value: &Value) -> BTreeMap<String, f64> {
    KEYS.iter().filter_map(|key| Some((key.to_string(), value.get(key)?.as_f64()?))).collect()
}

fn nested(value: &Value) -> BTreeMap<String, f64> {
    let statistic_of = |metric: &str, statistic: &str| value.get(metric)?.get(statistic)?.as_f64();
    let mut figures = BTreeMap::new();
    for (theirs, ours) in LATENCIES {
        for (statistic, prefix) in [("avg", "mean"), ("p50", "median"), ("p99", "p99")] {
            if let Some(v) = statistic_of(theirs, statistic) {
                figures.insert(format!("{prefix}_{ours}_ms"), v);
            }
        }
    }
    for (theirs, ours) in RATES {
        if let Some(v) = statistic_of(theirs, "avg") {
            figures.insert(ours.to_owned(), v);
        }
    }
    figures
}
