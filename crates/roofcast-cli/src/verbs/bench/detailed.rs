//! Lists with one value per request, as `vllm bench serve --save-detailed` writes them.

use roofcast::record::Record;
use serde::Serialize;

/// Lists with one value per request, in order of the schedule; times in seconds.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Detailed {
    /// Prompt tokens of each request.
    input_lens: Vec<u64>,
    /// Output tokens of each request.
    output_lens: Vec<u64>,
    /// Time to the first token of each request in seconds.
    ttfts: Vec<f64>,
    /// Gaps between chunks of each request in seconds.
    itls: Vec<Vec<f64>>,
    /// End-to-end latency of each request in seconds.
    latencies: Vec<f64>,
    /// Start times in seconds since the start of the run.
    start_times: Vec<f64>,
    /// Error messages; empty for requests without an error.
    errors: Vec<String>,
}

impl Detailed {
    pub(super) fn of(records: &[Record]) -> Detailed {
        let each = |value: fn(&Record) -> f64| records.iter().map(value).collect();
        Detailed {
            input_lens: records.iter().map(|r| r.input_len).collect(),
            output_lens: records.iter().map(|r| r.output_len).collect(),
            ttfts: each(|r| r.ttft().map_or(0.0, |t| t.seconds())),
            itls: records.iter().map(|r| r.itl.iter().map(|t| t.seconds()).collect()).collect(),
            latencies: each(|r| r.e2el().seconds()),
            start_times: each(|r| r.sent.seconds()),
            errors: records.iter().map(|r| r.error.clone().unwrap_or_default()).collect(),
        }
    }
}
