//! Results of llama.cpp's `llama-bench` (JSON, JSON lines, CSV) and `llama-batched-bench` (JSON lines).
//!
//! Knows: the fields of `tools/llama-bench/llama-bench.cpp` and `tools/batched-bench/batched-bench.cpp` (b11434). A test
//! with prompts alone times one prompt, one with answers alone times steps from an empty context, or from `n_depth`
//! tokens. Both programs call the library in process, without a server.

use super::super::benchmark::ClientLoad;
use super::super::{Lengths, MeasurementKind, Metrics};
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use roofcast_facts::table;
use serde_json::{Map, Value};

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.contains_key("n_prompt") && keys.contains_key("n_gen") && keys.contains_key("avg_ns")
}

pub(super) fn is_batched(keys: &Map<String, Value>) -> bool {
    ["pp", "tg", "pl", "t_pp", "t_tg"].iter().all(|key| keys.contains_key(*key))
}

/// True if the first line of `text` is the header of llama-bench's CSV.
pub(super) fn is_table(text: &str) -> bool {
    let header = text.lines().next().unwrap_or_default();
    !header.trim_start().starts_with(['{', '[']) && header.contains("n_prompt") && header.contains("avg_ns")
}

/// Reads the lines of a CSV, each with its place.
pub(super) fn table(place: &str, text: &str) -> Result<Vec<(String, Result<ClientRun>)>> {
    let mut reader = table::reader(text);
    let broken = |e: csv::Error| table::broken(place, text, &e);
    let header = reader.headers().map_err(broken)?.clone();
    let line = |record: csv::Result<csv::StringRecord>| {
        let record = record.map_err(broken)?;
        let place = format!("{place}:{}", table::line(text, record.position()));
        let cell = |(key, text): (&str, &str)| {
            let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
            (key.to_owned(), number.map_or_else(|| Value::from(text), Value::from))
        };
        let keys: Map<String, Value> = header.iter().zip(record.iter()).map(cell).collect();
        let run = run(&Document { place: &place, keys: &keys });
        Ok((place, run))
    };
    reader.records().map(line).collect()
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
    let ms = document.needed("avg_ns")? / 1e6;
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
    for (key, accepted) in [
        ("n_gpu_layers", "all layers: layers on the host are not forecast"),
        ("n_cpu_moe", "0: experts on the host are not forecast"),
        ("no_kv_offload", "0: KV cache on the host is not forecast"),
    ] {
        let value = document.at(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
        let host = ["0", "false"].contains(&value.as_deref().unwrap_or("absent"));
        let refused =
            if key == "n_gpu_layers" { host && !on_cpu(document) } else { value.is_some() && !host };
        if refused {
            return document.refuse(key, accepted);
        }
    }
    run.set("served", false);
    if let Some(tokens) = document.count("n_ubatch")? {
        run.set("max_num_batched_tokens", tokens);
    }
    run.stated = stated(document)?;
    Ok(run)
}

fn on_cpu(document: &Document) -> bool {
    document.text("backends").is_some_and(|backends| backends == "CPU" || backends == "BLAS")
}

fn stated(document: &Document) -> Result<Stated> {
    let kv = document.text("type_k").filter(|kv| *kv != "f16").map(str::to_lowercase);
    let device = if on_cpu(document) { "cpu_info" } else { "gpu_info" };
    Ok(Stated {
        parameters: document.number("model_n_params")?,
        hardware: document.text(device).map(str::to_owned),
        engine: Some("llama.cpp"),
        version: document.number("build_number")?.map(|build| format!("b{build}")),
        weights: document.text("model_type").and_then(weights),
        kv,
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
        Ok(run)
    };
    vec![batch()]
}
