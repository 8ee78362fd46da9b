//! Results of inference-perf: the lifecycle metrics of one stage.
//!
//! Knows: the keys of `stage_N_lifecycle_metrics.json` (inference-perf 0.7, `inference_perf/reportgen/base.py`); times
//! are in seconds. Gaps between arrivals are exponential for every load type, "constant" included. The mean TPOT is over
//! requests; ITL is not read, because a chunk of several tokens gives gaps of 0.

use super::super::Metrics;
use super::super::benchmark::ClientLoad;
use super::client_run::{ClientRun, TokenCount};
use super::document::Document;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.get("successes").is_some_and(|successes| successes.get("latency").is_some())
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

fn run(document: &Document) -> Result<ClientRun> {
    let completed = document.needed("successes/count")?;
    let failed = document.number("failures/count")?.unwrap_or(0.0);
    let users =
        document.count("load_summary/concurrency")?.or(document.count("load_summary/concurrency_level")?);
    let load = match (users, document.number("load_summary/requested_rate")?.filter(|rate| *rate > 0.0)) {
        (Some(users), _) => ClientLoad::Users(users),
        (None, Some(rate)) => ClientLoad::Rate(rate, None),
        (None, None) => {
            let accepted = "the file of one stage, stage_N_lifecycle_metrics.json: a summary mixes rates";
            return document.refuse("/load_summary/requested_rate", accepted);
        }
    };
    if document.number("successes/prompt_tokens/cached")?.is_some_and(|tokens| tokens > 0.0) {
        return document
            .refuse("/successes/prompt_tokens/cached", "0: which prompts share tokens is not in the file");
    }
    let mut run = ClientRun::under(load);
    // Versions before 0.6 name the lengths prompt_len and output_len.
    let lengths = |newer: &str, older: &str| {
        let path = if document.at(&format!("successes/{newer}/mean")).is_some() { newer } else { older };
        TokenCount::read(document, &format!("successes/{path}"), ["mean", "std"])
    };
    let counts = [lengths("prompt_tokens", "prompt_len")?, lengths("output_tokens", "output_len")?];
    run.spread(document.place, [completed, failed], counts)?;
    run.set("num_prompts", completed as u64);
    let ms = |metric: &str| -> Result<Option<f64>> {
        Ok(document.number(&format!("successes/latency/{metric}/mean"))?.map(|seconds| seconds * 1e3))
    };
    run.measured = Metrics {
        ttft_ms: ms("time_to_first_token")?,
        tpot_ms: ms("time_per_output_token")?,
        e2e_ms: ms("request_latency")?,
        ..Metrics::default()
    };
    if run.request_rate.is_some() {
        run.notes.push("arrivals are exponential, as inference-perf draws them for every load type".into());
    }
    Ok(run)
}
