//! Results of llama.cpp's `llama-bench` (all its forms) and `llama-batched-bench` (JSON lines).
//!
//! Knows: the fields of `tools/llama-bench/llama-bench.cpp` and `tools/batched-bench/batched-bench.cpp` (b11434). A test
//! with prompts alone times one prompt, one with answers alone times steps from an empty context, or from `n_depth`
//! tokens. Both programs call the library in process, without a server. Several cards are the stages of a pipeline
//! (`split_mode` layer, and row, which is forecast alike) or share each layer (tensor).
//! Knows nothing about syntax outside JSON.

mod forms;

use super::super::benchmark::ClientLoad;
use super::super::{Lengths, MeasurementKind, Metrics};
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
pub(super) use forms::is_table;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

/// Largest accepted rate in tokens per second: a token a nanosecond, the resolution of the program's times.
const MOST_TOKENS_S: f64 = 1e9;

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.contains_key("n_prompt") && keys.contains_key("n_gen") && keys.contains_key("avg_ns")
}

pub(super) fn is_batched(keys: &Map<String, Value>) -> bool {
    ["pp", "tg", "pl", "t_pp", "t_tg"].iter().all(|key| keys.contains_key(*key))
}

/// Reads the tests of a form outside JSON, each with its place.
pub(super) fn table(place: &str, text: &str) -> Result<Vec<(String, Result<ClientRun>)>> {
    let tests = forms::tests(place, text)?;
    let test = |(place, keys): (String, Map<String, Value>)| {
        let run = run(&Document { place: &place, keys: &keys });
        (place, run)
    };
    Ok(tests.into_iter().map(test).collect())
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

fn fixed(tokens: u64) -> Option<Lengths> {
    (tokens > 0).then_some(Lengths { min: tokens, max: tokens })
}

fn run(document: &Document) -> Result<ClientRun> {
    let count = |key: &str| -> Result<u64> { Ok(document.count(key)?.unwrap_or(0)) };
    let prompt = count("n_prompt")?;
    let answer = count("n_gen")?;
    let depth = count("n_depth")?;
    let ns = document.needed("avg_ns")?;
    if ((prompt + answer) as f64) * 1e9 > MOST_TOKENS_S * ns {
        return document.refuse("avg_ns", "at least 1 ns a token");
    }
    let ms = ns / 1e6;
    let mut run = ClientRun::under(ClientLoad::Users(1));
    run.input = fixed(prompt);
    run.output = fixed(answer);
    match (prompt, answer) {
        (0, 0) => return document.refuse("n_prompt", "a test with a prompt, an answer, or both"),
        (_, 0) => {
            run.kind = MeasurementKind::Prefill;
            run.measured.ttft_ms = Some(ms);
        }
        (0, _) => {
            run.kind = MeasurementKind::DecodeStep;
            run.context = Some(depth + answer / 2);
            run.measured.tpot_ms = Some(ms / answer as f64);
        }
        _ => {
            run.kind = MeasurementKind::OfflineStaticBatch;
            run.measured.e2e_ms = Some(ms);
        }
    }
    if depth > 0 && prompt > 0 {
        return document
            .refuse("n_depth", "0 with a prompt: prompts after a context are no kind of measurement");
    }
    refuse_host(document)?;
    let names: Vec<&str> =
        document.text("gpu_info").map(|names| names.split(", ").collect()).unwrap_or_default();
    if names.iter().any(|name| *name != names[0]) && cards(document) > 1 {
        return document.refuse("gpu_info", "cards of one kind");
    }
    run.set("served", false);
    if let Some(tokens) = document.count("n_ubatch")? {
        run.set("max_num_batched_tokens", tokens);
    }
    run.stated = stated(document)?;
    Ok(run)
}

/// Refuses tests in which the host has a part of the model or of its work.
fn refuse_host(document: &Document) -> Result<()> {
    let text = |key: &str| document.at(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    for (key, free, accepted) in [
        ("n_cpu_moe", ["0", "0.0", ""], "0: experts on the host are not forecast"),
        ("no_kv_offload", ["0", "0.0", "false"], "0: KV cache on the host is not forecast"),
        ("tensor_buft_overrides", ["none", "", ""], "none: tensors in other memory are not forecast"),
        ("embeddings", ["0", "0.0", "false"], "0: embeddings are no tokens"),
    ] {
        if text(key).is_some_and(|value| !free.contains(&value.as_str())) {
            return document.refuse(key, accepted);
        }
    }
    if document.text("backends").is_some_and(|backends| backends.contains("RPC")) {
        return document.refuse("backends", "devices of one host");
    }
    Ok(())
}

/// Number of cards that the test used: those of `devices`, else all of `gpu_info` with a share of `tensor_split`.
fn cards(document: &Document) -> u64 {
    let all = document.text("gpu_info").map_or(1, |names| names.split(", ").count());
    let named = document.text("devices").filter(|devices| *devices != "auto");
    let shares = document.text("tensor_split").map_or(0, |shares| {
        shares.split('/').filter(|share| share.parse::<f64>().is_ok_and(|share| share > 0.0)).count()
    });
    match (document.text("split_mode"), named) {
        (Some("none"), _) => 1,
        (_, Some(devices)) => devices.split('/').count() as u64,
        _ if shares > 0 => shares as u64,
        _ => all as u64,
    }
}

fn on_cpu(document: &Document) -> bool {
    document.text("backends").is_some_and(|backends| backends == "CPU" || backends == "BLAS")
}

/// Number of layers on the card; `None` for −1, which are all.
fn device_layers(document: &Document) -> Option<u64> {
    document.at("n_gpu_layers").and_then(Value::as_f64).filter(|n| *n >= 0.0).map(|n| n as u64)
}

fn stated(document: &Document) -> Result<Stated> {
    let kv = document.text("type_k").map(str::to_lowercase);
    if document.text("type_v").map(str::to_lowercase) != kv && document.at("type_v").is_some() {
        return document.refuse("type_v", "the format of type_k: one format of the KV cache is forecast");
    }
    let cpu = on_cpu(document);
    let names = document.text(if cpu { "cpu_info" } else { "gpu_info" });
    let cards = if cpu { 1 } else { cards(document) };
    let rows = document.text("split_mode") == Some("tensor");
    Ok(Stated {
        parameters: document.number("model_n_params")?,
        // The first card; another kind beside it is refused.
        hardware: names.map(|names| names.split(", ").next().unwrap_or(names).to_owned()),
        engine: Some("llama.cpp"),
        version: document.number("build_number")?.map(|build| format!("b{build}")),
        weights: document.text("model_type").and_then(weights),
        kv: kv.filter(|kv| kv != "f16"),
        tp: (cards > 1 && rows).then_some(cards),
        pp: (cards > 1 && !rows).then_some(cards),
        device_layers: device_layers(document).filter(|_| !cpu),
        ..Stated::default()
    })
}

/// The weight format at the end of a model's type, as in `llama 8B Q4_K - Medium` or `qwen3 32B IQ4_XS - 4.25 bpw`.
fn weights(kind: &str) -> Option<String> {
    let kind = kind.trim_end_matches(" (guessed)");
    let (format, size) = kind.split_once(" - ").map_or((kind, ""), |(format, size)| (format, size));
    let format = format.trim_end_matches(" MoE").rsplit(' ').next()?.to_lowercase();
    let size = match size {
        "Small" => "_s",
        "Medium" => "_m",
        "Large" => "_l",
        _ => "",
    };
    match format.as_str() {
        "f16" => Some("fp16".to_owned()),
        "f32" => Some("fp32".to_owned()),
        "q2_k" => Some(format),
        _ => Some(format + size),
    }
}

/// Reads a batch of prompts and answers that run together.
pub(super) fn batched(document: &Document) -> Vec<Result<ClientRun>> {
    let batch = || -> Result<ClientRun> {
        let [prompt, answer, sequences] = ["pp", "tg", "pl"].map(|key| document.needed(key));
        let prompt = prompt? as u64;
        let answer = answer? as u64;
        let sequences = sequences? as u64;
        if document.at("is_pp_shared").is_some_and(|shared| shared.as_f64() != Some(0.0)) && sequences > 1 {
            return document.refuse("is_pp_shared", "0: one prompt for all sequences is not forecast");
        }
        let mut run = ClientRun::under(ClientLoad::Users(sequences));
        run.kind = MeasurementKind::StaticBatchPhases;
        run.input = fixed(prompt);
        run.output = fixed(answer);
        run.measured = Metrics {
            ttft_ms: Some(document.needed("t_pp")? * 1e3),
            tpot_ms: (answer > 0).then_some(document.needed("t_tg")? * 1e3 / answer.max(1) as f64),
            ..Metrics::default()
        };
        run.set("served", false);
        run.stated.engine = Some("llama.cpp");
        // Without any layer on a card the run may be one of a processor.
        run.stated.device_layers = device_layers(document).filter(|layers| *layers > 0);
        Ok(run)
    };
    vec![batch()]
}
