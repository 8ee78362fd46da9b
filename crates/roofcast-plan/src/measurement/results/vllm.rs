//! Results of vLLM's client and of `roofcast bench`, which writes the same keys.
//!
//! Knows: the keys of `vllm bench serve --save-result` (vLLM 0.33, `vllm/benchmarks/serve.py`), to which `vllm bench sweep
//! serve` and `--metadata` add flags of server and client. The mean TPOT is over requests; without lists of lengths
//! (`--save-detailed`), only mean lengths are known.

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
const KNOWN: [&str; 49] = [
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
    "latencies",
    "queue_times",
    "server_queue_times",
    "server_ttfts",
    "rps_change_events",
    "run_number",
];

/// Backends of the client, in this and earlier versions, that only one engine answers.
const ENGINES: [(&str, &str); 4] =
    [("tgi", "tgi"), ("tensorrt-llm", "tensorrt-llm"), ("lmdeploy", "lmdeploy"), ("llama.cpp", "llama.cpp")];

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

/// True if `keys` are of `vllm bench throughput` or `vllm bench latency` (0.33, `benchmarks/throughput.py`, `latency.py`).
pub(super) fn is_offline(keys: &Map<String, Value>) -> bool {
    keys.contains_key("elapsed_time") && keys.contains_key("total_num_tokens")
        || keys.contains_key("avg_latency")
}

/// Reads a run without a server: all requests at once, of which the file has the number and all tokens.
pub(super) fn offline(document: &Document) -> Vec<Result<ClientRun>> {
    let throughput = || {
        if document.at("avg_latency").is_some() {
            let accepted =
                "a row of a CSV, of the kind offline_static_batch: the file lacks batch and lengths";
            return document.refuse("avg_latency", accepted);
        }
        let requests = document.needed("num_requests")?;
        let mut run = ClientRun::under(ClientLoad::AtOnce(requests as u64));
        run.kind = MeasurementKind::OfflineMaxThroughput;
        run.concurrency = None;
        run.set("num_prompts", requests as u64);
        run.measured.total_tok_s = Some(document.needed("tokens_per_second")?);
        run.request_tokens = Some(document.needed("total_num_tokens")? / requests.max(1.0));
        run.stated.model = document.text("model_id").map(|name| ("model_id", name.to_owned()));
        run.stated.engine = Some("vllm");
        Ok(run)
    };
    vec![throughput()]
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    let with_flags = || {
        let mut run = run(document)?;
        flags(document, &mut run)?;
        run.notes.extend(document.unread(&KNOWN, is_known_by_form));
        Ok(run)
    };
    vec![with_flags()]
}

fn is_known_by_form(key: &str) -> bool {
    is_statistic(key) || FLAGS.contains(&flag(key).as_str()) || SETTINGS.contains(&flag(key).as_str())
}

/// Flags of server and client that state the deployment or the prompts.
const FLAGS: [&str; 9] = [
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "speculative_config",
    "kv_cache_dtype",
    "quantization",
    "dataset_name",
    "random_prefix_len",
    "prefix_repetition_prefix_len",
];

/// Flags of the server that are settings of a row.
const SETTINGS: [&str; 8] = [
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "async_scheduling",
    "enforce_eager",
    "stream_interval",
];

/// The name of a flag, which sweeps may write with hyphens.
fn flag(key: &str) -> String {
    key.trim_start_matches('-').replace('-', "_")
}

/// Reads the flags that a sweep adds to its results.
fn flags(document: &Document, run: &mut ClientRun) -> Result<()> {
    for (key, value) in document.keys {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let number = text.parse::<f64>().ok();
        let count = || match number {
            Some(n) if n >= 1.0 && n.fract() == 0.0 => Ok(Some(n as u64)),
            _ => document.refuse(key, "a whole number from 1"),
        };
        match flag(key).as_str() {
            "tensor_parallel_size" => run.stated.tp = count()?,
            "pipeline_parallel_size" => run.stated.pp = count()?,
            "data_parallel_size" if number.is_some_and(|n| n > 1.0) => {
                return document.refuse(key, "1: data-parallel ranks are rows of a CSV with attention_dp");
            }
            "speculative_config" if !["", "null", "{}"].contains(&text.as_str()) => {
                run.stated.drafts = Some((key.clone(), text));
            }
            "kv_cache_dtype" if text.starts_with("fp8") => run.stated.kv = Some("fp8".to_owned()),
            "quantization" if text == "fp8" => run.stated.weights = Some(text),
            "random_prefix_len" | "prefix_repetition_prefix_len" if number.is_some_and(|n| n > 0.0) => {
                return document.refuse(key, "0: how many prompts share the prefix is not in the file");
            }
            "dataset_name" if text == "prefix_repetition" => {
                return document
                    .refuse(key, "a dataset without shared prefixes, whose lengths the file lacks");
            }
            setting if SETTINGS.contains(&setting) => {
                let switch = |text: &str| match text {
                    "true" => "on".to_owned(),
                    "false" => "off".to_owned(),
                    text => text.to_owned(),
                };
                run.set(setting, switch(&text.to_lowercase()));
            }
            _ => {}
        }
    }
    Ok(())
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
    let backend = document.text("backend").unwrap_or_default();
    Stated {
        engine: ENGINES.iter().find(|(name, _)| *name == backend).map(|(_, engine)| *engine),
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
