//! Results of guidellm: a report with one benchmark for each strategy.
//!
//! Knows: the keys of 0.2 to 0.8 (`benchmark/schemas/metrics.py`, `schemas/base/statistics.py`,
//! `scheduler/strategies.py`). `inter_token_latency_ms` leaves out the first token, as vLLM's TPOT does
//! (`time_per_output_token_ms` includes it), and weighs a request by its tokens after the first: its mean is over tokens.

use super::super::benchmark::ClientLoad;
use super::super::{Metrics, TpotMean};
use super::client_run::{ClientRun, TokenCount};
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

/// Paths of the request counts, the measured requests first: from version 0.4 on, 0.3, 0.2.
const COUNTS: [&str; 6] = [
    "metrics/request_totals",
    "request_totals",
    "scheduler_metrics/requests_made",
    "scheduler_stats/requests_made",
    "run_stats/requests_made",
    "requests_made",
];

/// Paths of the load strategy: from version 0.4 on, 0.3, 0.2.
const STRATEGIES: [&str; 3] = ["config/strategy", "scheduler/strategy", "args/strategy"];

/// Kinds of data with turns or shared blocks (0.8, `schemas/data/deserializers`).
const TRACES: [&str; 4] = ["mooncake", "weka", "otel", "opentelemetry"];

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.get("benchmarks").and_then(Value::as_array).is_some_and(|runs| !runs.is_empty())
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    let runs = document.at("benchmarks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let shared = document.at("args").or(document.at("metadata"));
    let measured_run = |value: &Value| match value {
        Value::Object(keys) => run(&Document { place: document.place, keys }, shared),
        _ => document.refuse("/benchmarks", "a list of objects"),
    };
    runs.iter().map(measured_run).collect()
}

fn run(document: &Document, shared: Option<&Value>) -> Result<ClientRun> {
    let mean = |metric: &str| document.number(&format!("metrics/{metric}/successful/mean"));
    let counts = COUNTS.iter().find(|path| document.at(path).is_some_and(Value::is_object));
    let count = |key: &str| match counts {
        Some(path) => document.number(&format!("{path}/{key}")),
        None => Ok(None),
    };
    let served = document.number("metrics/request_latency/successful/count")?;
    let completed = count("successful")?.or(served).unwrap_or(0.0);
    let mut run = under(document, completed)?;
    let [input, output] = ["prompt_token_count", "output_token_count"].map(|metric| {
        TokenCount::read(document, &format!("metrics/{metric}/successful"), ["mean", "std_dev"])
    });
    let failed = count("errored")?.unwrap_or(0.0);
    run.spread(document.place, [completed, failed], [input?, output?])?;
    run.measured = Metrics {
        ttft_ms: mean("time_to_first_token_ms")?,
        tpot_ms: mean("inter_token_latency_ms")?,
        e2e_ms: mean("request_latency")?.map(|seconds| seconds * 1e3),
        ..Metrics::default()
    };
    run.tpot_mean = TpotMean::Tokens;
    run.notes.push("guidellm's mean inter_token_latency_ms weighs requests by their tokens: the forecast is the mean over tokens too".into());
    let data = [document.at("config/requests"), document.at("request_loader"), shared];
    if data.into_iter().flatten().any(shares_prompts) || document.at("metrics/turns").is_some() {
        let accepted = "1 turn and no prefixes: cached tokens are not in the file";
        return document.refuse("/config/requests/data", accepted);
    }
    for (media, unit) in [("image", "images"), ("video", "frames"), ("audio", "samples")] {
        let path = format!("metrics/{media}/{unit}/input/successful/mean");
        if document.number(&path)?.is_some_and(|mean| mean > 0.0) {
            return document.refuse(&path, "0: only text is forecast here");
        }
    }
    let models = ["config/backend/model", "worker/backend_model", "config/backend/args/model"];
    let model =
        models.iter().find_map(|path| document.text(path)).map(|name| ("backend.model", name.to_owned()));
    run.stated = Stated { model, ..Stated::default() };
    Ok(run)
}

/// The run under its strategy.
fn under(document: &Document, completed: f64) -> Result<ClientRun> {
    let strategy = STRATEGIES.iter().find(|path| document.at(path).is_some_and(Value::is_object));
    let Some(path) = strategy else { return document.refuse("/config/strategy", "a strategy") };
    let at = |key: &str| format!("{path}/{key}");
    if document.number(&at("rampup_duration"))?.is_some_and(|seconds| seconds > 0.0) {
        return document
            .refuse(&at("rampup_duration"), "0: requests of a ramp are judged too, which is not forecast");
    }
    let cap = document.count(&at("max_concurrency"))?;
    let rated = |arrivals: Option<&str>| -> Result<ClientRun> {
        let mut run = ClientRun::under(ClientLoad::Rate(document.needed(&at("rate"))?, cap));
        if let Some(arrivals) = arrivals {
            run.set("arrivals", arrivals);
        }
        run.set("num_prompts", completed as u64);
        Ok(run)
    };
    let users = |users: u64| {
        let mut run = ClientRun::under(ClientLoad::Users(users));
        run.set("num_prompts", completed as u64);
        run
    };
    match document.text(&at("type_")).unwrap_or_default() {
        "synchronous" => Ok(users(1)),
        "concurrent" => Ok(users(document.count(&at("streams"))?.unwrap_or(1))),
        "throughput" => Ok(match cap {
            Some(cap) if (cap as f64) < completed => users(cap),
            _ => ClientRun::under(ClientLoad::AtOnce(completed as u64)),
        }),
        "constant" => rated(Some("constant")),
        "poisson" => rated(None),
        _ => document.refuse(&at("type_"), "synchronous, concurrent, throughput, constant or poisson"),
    }
}

/// True if a description of prompts has more than one turn, or prefixes.
fn shares_prompts(data: &Value) -> bool {
    match data {
        Value::Object(keys) => keys.iter().any(|(key, value)| match key.as_str() {
            "turns" => value.as_f64().is_some_and(|turns| turns > 1.0),
            "prefix_tokens" => value.as_f64().is_some_and(|tokens| tokens > 0.0),
            "branches" => value.as_array().is_some_and(|branches| !branches.is_empty()),
            "kind" => value.as_str().is_some_and(|kind| TRACES.contains(&kind)),
            _ => shares_prompts(value),
        }),
        Value::Array(list) => list.iter().any(shares_prompts),
        Value::String(text) => {
            let pair = |pair: &str| {
                let (key, value) = pair.split_once('=')?;
                let bound = match key.trim() {
                    "turns" => 1.0,
                    "prefix_tokens" => 0.0,
                    _ => return None,
                };
                value.trim().parse::<f64>().ok().filter(|n| *n > bound)
            };
            let parsed = text.trim_start().starts_with('{').then(|| serde_json::from_str::<Value>(text).ok());
            text.split(',').any(|part| pair(part).is_some())
                || parsed.flatten().is_some_and(|value| shares_prompts(&value))
        }
        _ => false,
    }
}
