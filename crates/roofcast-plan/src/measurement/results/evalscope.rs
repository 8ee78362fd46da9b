//! Results of evalscope's `perf`: the summary of one run.
//!
//! Knows: the keys of `benchmark_summary.json` (evalscope 1.14, `perf/utils/perf_constants.py`). The mean TPOT is over
//! requests with more than one token; a rate of −1 is none.

use super::super::Metrics;
use super::super::benchmark::ClientLoad;
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

/// Tokens a chunk above which drafts are likely; rounding and last chunks explain less.
const DRAFTED: f64 = 1.1;

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.contains_key("Success Requests") && keys.contains_key("Avg Latency (s)")
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

fn run(document: &Document) -> Result<ClientRun> {
    let completed = document.needed("Success Requests")?;
    let failed = document.number("Failed Requests")?.unwrap_or(0.0);
    let above = |key: &str| document.keys.get(key).and_then(Value::as_f64).filter(|n| *n > 0.0);
    let load = match (above("Request Rate (req/s)"), above("Concurrency")) {
        (Some(rate), _) => ClientLoad::Rate(rate, None),
        (None, Some(users)) => ClientLoad::Users(users as u64),
        (None, None) => ClientLoad::AtOnce(completed as u64),
    };
    for (key, least) in [("Avg Turns/Request", 1.0), ("KV Cache Hit Rate (%)", 0.0)] {
        if above(key).is_some_and(|n| n > least) {
            return document.refuse(
                key,
                "a run without conversations and cached tokens: which are shared is not in the file",
            );
        }
    }
    let mut run = ClientRun::under(load);
    let total = |key: &str| Ok(document.number(key)?.unwrap_or(0.0) * completed);
    let totals: [Result<f64>; 2] = [total("Avg Input Tokens"), total("Avg Output Tokens")];
    let [input, output] = totals;
    run.totals(document.place, [completed, failed], [(input?, &[]), (output?, &[])])?;
    run.set("num_prompts", completed as u64);
    run.measured = Metrics {
        ttft_ms: above("Avg TTFT (ms)"),
        tpot_ms: above("Avg TPOT (ms)"),
        e2e_ms: above("Avg Latency (s)").map(|seconds| seconds * 1e3),
        ..Metrics::default()
    };
    let key = "Avg Decoded Tok/Iter";
    let drafts =
        above(key).filter(|tokens| *tokens > DRAFTED).map(|tokens| (key.to_owned(), tokens.to_string()));
    run.stated = Stated { drafts, ..Stated::default() };
    Ok(run)
}
