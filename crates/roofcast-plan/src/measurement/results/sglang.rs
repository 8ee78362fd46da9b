//! Results of SGLang's client, one object a line.
//!
//! Knows: the keys that `sglang.bench_serving --output-file` appends (SGLang 0.5.23, `benchmark/serving.py`), among them
//! the server's own arguments. The mean TPOT is over requests, as vLLM's. With `random`, lengths are uniform from
//! `random_range_ratio` times the stated length to that length.

use super::super::benchmark::ClientLoad;
use super::super::{Lengths, Metrics};
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

const KNOWN: [&str; 48] = [
    "tag",
    "backend",
    "dataset_name",
    "request_rate",
    "max_concurrency",
    "sharegpt_output_len",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
    "duration",
    "completed",
    "total_input_tokens",
    "total_input_text_tokens",
    "total_input_vision_tokens",
    "total_output_tokens",
    "total_output_tokens_retokenized",
    "request_throughput",
    "input_throughput",
    "output_throughput",
    "total_throughput",
    "concurrency",
    "accept_length",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    "server_info",
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "generated_texts",
    "errors",
    "output_throughput_retokenized",
    "total_throughput_retokenized",
    "failed",
    "model",
    "model_id",
    "burstiness",
    "num_prompts",
    "random_image_num",
    "date",
    "label",
    "goodput_slos_ms",
    "request_goodput",
    "slo_attainment",
    "slo_attainment_by_metric",
    "cache_report",
    "cached_tokens",
    "cached_tokens_details",
];

/// Backends of the client that say which engine answered.
const ENGINES: [(&str, &str); 5] = [
    ("sglang", "sglang"),
    ("vllm", "vllm"),
    ("lmdeploy", "lmdeploy"),
    ("trt", "tensorrt-llm"),
    ("tensorrt", "tensorrt-llm"),
];

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    let own_keys = ["total_output_tokens_retokenized", "mean_e2e_latency_ms", "sharegpt_output_len"];
    keys.contains_key("total_input_tokens") && own_keys.iter().any(|key| keys.contains_key(*key))
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

fn run(document: &Document) -> Result<ClientRun> {
    let completed = document.needed("completed")?;
    let users = document.count("max_concurrency")?;
    let rate = match document.at("request_rate") {
        Some(Value::String(text)) if text == "inf" => None,
        Some(Value::String(_)) => {
            return document.refuse("/request_rate", "a number: the times of a trace are not in the file");
        }
        _ => document.number("request_rate")?.filter(|rate| *rate > 0.0),
    };
    let load = match (users, rate) {
        (Some(users), None) => ClientLoad::Users(users),
        (cap, Some(rate)) => ClientLoad::Rate(rate, cap),
        (None, None) => ClientLoad::AtOnce(document.count("num_prompts")?.unwrap_or(completed as u64)),
    };
    let mut run = ClientRun::under(load);
    let inputs = document.list("input_lens")?;
    let outputs = document.list("output_lens")?;
    let totals = [document.needed("total_input_tokens")?, document.needed("total_output_tokens")?];
    let failed = document.number("failed")?.unwrap_or(0.0);
    run.totals(document.place, [completed, failed], [(totals[0], &inputs), (totals[1], &outputs)])?;
    lengths(document, &mut run)?;
    run.set("num_prompts", completed as u64);
    run.measured = Metrics {
        ttft_ms: document.number("mean_ttft_ms")?,
        tpot_ms: document.number("mean_tpot_ms")?,
        e2e_ms: document.number("mean_e2e_latency_ms")?.or(document.number("mean_e2el_ms")?),
        ..Metrics::default()
    };
    run.stated = stated(document)?;
    run.notes.extend(document.unread(&KNOWN, super::vllm::is_statistic));
    Ok(run)
}

/// Reads the dataset: the spread of lengths, or the refusal of prompts that share what the file does not say.
fn lengths(document: &Document, run: &mut ClientRun) -> Result<()> {
    if document.number("cache_report/total_cached_tokens")?.is_some_and(|tokens| tokens > 0.0) {
        let accepted = "0: which prompts share tokens is not in the file";
        return document.refuse("/cache_report/total_cached_tokens", accepted);
    }
    if document.number("total_input_vision_tokens")?.is_some_and(|tokens| tokens > 0.0) {
        return document.refuse("/total_input_vision_tokens", "0: images are not forecast here");
    }
    match document.text("dataset_name").unwrap_or("random") {
        "random" | "random-ids" => {
            let ratio = document.number("random_range_ratio")?.unwrap_or(1.0).min(1.0);
            let spread = |lengths: Option<Lengths>, whole: Option<u64>| {
                let around = lengths.filter(|lengths| lengths.min == lengths.max)?;
                let reach = (whole? as f64 * (1.0 - ratio) / 2.0) as u64;
                Some(Lengths { min: around.min.saturating_sub(reach).max(1), max: around.max + reach })
            };
            run.input = spread(run.input, document.count("random_input_len")?).or(run.input);
            run.output = spread(run.output, document.count("random_output_len")?).or(run.output);
        }
        "sharegpt" => run.set("dataset", "sharegpt"),
        "generated-shared-prefix" | "mooncake" | "agentic-trace" => {
            return document
                .refuse("/dataset_name", "a dataset without shared prefixes, whose lengths the file lacks");
        }
        "image" | "mmmu" => return document.refuse("/dataset_name", "text: images are not forecast here"),
        other => run.notes.push(format!("lengths of dataset {other} are taken as their means")),
    }
    Ok(())
}

fn stated(document: &Document) -> Result<Stated> {
    let backend = document.text("backend").unwrap_or_default();
    let engine = ENGINES.iter().find(|(prefix, _)| backend.starts_with(prefix)).map(|(_, engine)| *engine);
    for (key, accepted) in [
        ("dp_size", "1: data-parallel ranks are rows of a CSV with attention_dp or replicas"),
        ("nnodes", "1: servers of several nodes are rows of a CSV"),
    ] {
        if document.count(&format!("server_info/{key}"))?.is_some_and(|n| n > 1) {
            return document.refuse(&format!("server_info/{key}"), accepted);
        }
    }
    let pool = document.text("server_info/disaggregation_mode").filter(|mode| *mode != "null");
    if pool.is_some() {
        let accepted = "null: pools are rows of a CSV with prefill_workers and decode_workers";
        return document.refuse("server_info/disaggregation_mode", accepted);
    }
    let accepted = document.number("accept_length")?.filter(|tokens| *tokens > 1.0);
    let accepted = accepted.map(|tokens| ("accept_length".to_owned(), tokens.to_string()));
    let key = "server_info.speculative_algorithm";
    let algorithm = document.text("server_info/speculative_algorithm");
    let drafts = accepted.or(algorithm.map(|name| (key.to_owned(), name.to_owned())));
    let named = [("model_id", "model_id"), ("model", "model"), ("server_info/model_path", "model_path")];
    let model = named.into_iter().find_map(|(path, key)| Some((key, document.text(path)?.to_owned())));
    // Formats of 4 and 8 bits have several layouts of one name; only fp8 is one.
    let weights = document.text("server_info/quantization").filter(|format| *format == "fp8");
    let kv = document.text("server_info/kv_cache_dtype").filter(|format| format.starts_with("fp8"));
    Ok(Stated {
        model,
        engine,
        version: document.text("server_info/version").map(str::to_owned),
        weights: weights.map(str::to_owned),
        kv: kv.map(|_| "fp8".to_owned()),
        tp: document.degree("server_info/tp_size")?,
        pp: document.degree("server_info/pp_size")?,
        ep: document.count("server_info/ep_size")?.filter(|ep| *ep > 1),
        drafts,
        ..Stated::default()
    })
}
