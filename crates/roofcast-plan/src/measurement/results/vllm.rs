//! Results of vLLM's client and of `roofcast bench`, which writes the same keys.
//!
//! Knows: the keys of `vllm bench serve --save-result` (vLLM 0.33, `vllm/benchmarks/serve.py`). The mean TPOT is over
//! requests; without lists of lengths (`--save-detailed`), only mean lengths are known.

use super::super::benchmark::ClientLoad;
use super::super::{MeasurementKind, Metrics};
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_ask::workload::{Arrivals, Workload};
use roofcast_facts::error::{Error, Result};
use serde_json::{Map, Value};

/// Keys without effect on load and engine, and those that are read here. Any other key is named in a note, because
/// `--metadata` adds keys of any meaning.
const KNOWN: [&str; 43] = [
    "date",
    "endpoint_type",
    "backend",
    "label",
    "model_id",
    "tokenizer_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "request_goodput:",
    "output_throughput",
    "total_token_throughput",
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "start_times",
    "generated_texts",
    "errors",
    "best_of",
    "use_beam_search",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    "rtfx",
    "ramp_up_strategy",
    "ramp_up_start_rps",
    "ramp_up_end_rps",
    "spec_decode_acceptance_rate",
    "spec_decode_acceptance_length",
    "spec_decode_num_drafts",
    "spec_decode_draft_tokens",
    "spec_decode_accepted_tokens",
    "spec_decode_per_position_acceptance_rates",
    "valid",
    "total_input",
];

/// Statistics, as `mean_ttft_ms` and `p99_itl_ms`.
pub(super) fn is_statistic(key: &str) -> bool {
    let figure = key.split('_').next().unwrap_or_default();
    let percentile =
        figure.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    key.ends_with("_ms") && (percentile || ["mean", "median", "std", "max", "min"].contains(&figure))
}

pub(super) fn is_roofcast(keys: &Map<String, Value>) -> bool {
    keys.get("schema").and_then(Value::as_str).is_some_and(|schema| schema.starts_with("roofcast/bench/"))
}

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    ["total_input_tokens", "completed", "mean_ttft_ms"].iter().any(|key| keys.contains_key(*key))
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document).map(|mut run| {
        run.notes.extend(document.unread(&KNOWN, is_statistic));
        run
    })]
}

/// Reads a result of `roofcast bench`, which carries its load.
pub(super) fn roofcast(document: &Document) -> Vec<Result<ClientRun>> {
    let carried = || {
        let mut run = run(document)?;
        let Some(workload) = document.at("/workload") else { return without_load(document) };
        let parsed = serde_json::from_value::<Workload>(workload.clone())
            .map_err(|e| Error::field(document.place, "workload", workload, e))?;
        // Conversations and traces have neither users nor a rate of their own, and do not arrive at once.
        let at_once = matches!(parsed.arrivals, Arrivals::Offline | Arrivals::Burst { .. });
        if run.kind == MeasurementKind::BurstAllAtOnce && !at_once {
            run.kind = MeasurementKind::OpenLoop;
            run.concurrency = None;
        }
        run.workload = Some(Box::new(parsed));
        Ok(run)
    };
    vec![carried()]
}

/// Refuses a result of an earlier version, which does not say turns, prefixes, bursts and ramps.
fn without_load<T>(document: &Document) -> Result<T> {
    let forecast_of = |key: &str| document.number(&format!("/forecast/{key}")).ok().flatten();
    let forecast = match (forecast_of("mean_ttft_ms"), forecast_of("mean_tpot_ms")) {
        (Some(ttft), Some(tpot)) => {
            format!("; its own forecast of this load: TTFT {ttft:.1} ms, TPOT {tpot:.2} ms")
        }
        _ => String::new(),
    };
    let accepted =
        "a result that carries its load, as `roofcast bench --json` writes it now: turns, prefixes, bursts";
    document.refuse("/workload", &format!("{accepted}{forecast}"))
}

fn run(document: &Document) -> Result<ClientRun> {
    if document.at("/valid") == Some(&Value::Bool(false)) {
        return document.refuse("/valid", "a valid run");
    }
    let completed = document.needed("completed")?;
    let mut run = ClientRun::under(load(document, completed)?);
    let inputs = document.list("input_lens")?;
    let outputs = document.list("output_lens")?;
    let failed = document.number("failed")?.unwrap_or(0.0);
    let totals = [document.needed("total_input_tokens")?, document.needed("total_output_tokens")?];
    run.totals(document.place, [completed, failed], [(totals[0], &inputs), (totals[1], &outputs)])?;
    run.measured = Metrics {
        ttft_ms: document.number("mean_ttft_ms")?,
        tpot_ms: document.number("mean_tpot_ms")?,
        e2e_ms: document.number("mean_e2el_ms")?,
        ..Metrics::default()
    };
    if let Some(burstiness) =
        document.number("burstiness")?.filter(|b| run.request_rate.is_some() && *b != 1.0)
    {
        run.set("arrivals", format_args!("gamma(burstiness={burstiness})"));
    }
    if let Some(sent) = document.count("num_prompts")? {
        run.set("num_prompts", sent);
    }
    run.stated = stated(document);
    Ok(run)
}

/// Statements of the file about the deployment; more than one token a step means drafts.
fn stated(document: &Document) -> Stated {
    let drafts = ["spec_decode_acceptance_length", "spec_decode_acceptance_rate", "spec_decode_num_drafts"];
    let drafted = drafts.into_iter().find_map(|key| {
        let value = document.at(key)?;
        value.as_f64().is_some_and(|n| n > 0.0).then(|| (key.to_owned(), value.to_string()))
    });
    Stated {
        model: document.text("model_id").map(|name| ("model_id", name.to_owned())),
        drafts: drafted,
        ..Stated::default()
    }
}

/// Load of the run: a rate, a number of requests in flight, or a burst.
fn load(document: &Document, completed: f64) -> Result<ClientLoad> {
    if document.text("ramp_up_strategy").is_some() {
        let accepted = "no ramp: a rate that rises from request to request is not forecast";
        return document.refuse("/ramp_up_strategy", accepted);
    }
    if document.at("use_beam_search") == Some(&Value::Bool(true)) {
        return document.refuse("/use_beam_search", "no beam search, which is not forecast");
    }
    if document.number("best_of")?.is_some_and(|n| n > 1.0) {
        return document.refuse("/best_of", "1 answer a request");
    }
    let users = document.count("max_concurrency")?;
    if document.number("max_concurrency")? == Some(0.0) {
        return document.refuse("/max_concurrency", "a whole number from 1, or null");
    }
    let rate = match document.at("request_rate") {
        Some(Value::String(text)) if text == "inf" => None,
        Some(Value::String(_)) => return document.refuse("/request_rate", "a number or \"inf\""),
        _ => document.number("request_rate")?.filter(|rate| *rate > 0.0),
    };
    Ok(match (users, rate) {
        (Some(users), None) => ClientLoad::Users(users),
        (cap, Some(rate)) => ClientLoad::Rate(rate, cap),
        (None, None) => ClientLoad::AtOnce(document.count("num_prompts")?.unwrap_or(completed as u64)),
    })
}
