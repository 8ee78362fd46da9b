//! Points of InferenceX (InferenceMAX), as its runs aggregate vLLM's keys.
//!
//! Knows: the keys of `utils/process_result.py` (2026): times in seconds without the suffix `_ms`, interactivity as
//! 1 / TPOT. Prompts and answers are uniform from 0.8 times the stated length to that length.

use super::super::benchmark::ClientLoad;
use super::super::{Lengths, Metrics};
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

/// Frameworks as the benchmark names them.
const FRAMEWORKS: [(&str, &str); 4] =
    [("vllm", "vllm"), ("sglang", "sglang"), ("trt", "tensorrt-llm"), ("atom", "atom")];

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.contains_key("tput_per_gpu") && keys.contains_key("conc")
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

fn run(document: &Document) -> Result<ClientRun> {
    let yes = |key: &str| match document.at(key) {
        Some(Value::Bool(on)) => *on,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    };
    if yes("disagg") || yes("is_multinode") {
        return document.refuse(
            "/disagg",
            "one pool on one node; pools are rows of a CSV with prefill_workers and decode_workers",
        );
    }
    if yes("dp_attention") {
        return document
            .refuse("/dp_attention", "false; data-parallel attention is a row of a CSV with attention_dp");
    }
    let mut run = ClientRun::under(ClientLoad::Users(document.needed("conc")? as u64));
    let drawn = |tokens: Option<u64>| tokens.map(|max| Lengths { min: max, max }.as_in_inferencex());
    run.input = drawn(document.count("isl")?);
    run.output = drawn(document.count("osl")?);
    let ms = |key: &str| -> Result<Option<f64>> { Ok(document.number(key)?.map(|seconds| seconds * 1e3)) };
    run.measured = Metrics {
        ttft_ms: ms("mean_ttft")?,
        tpot_ms: ms("mean_tpot")?,
        e2e_ms: ms("mean_e2el")?,
        ..Metrics::default()
    };
    let framework = document.text("framework").unwrap_or_default().to_lowercase();
    let engine = FRAMEWORKS.iter().find(|(name, _)| framework.contains(name)).map(|(_, engine)| *engine);
    if engine.is_none() && !framework.is_empty() {
        return document.refuse("/framework", "vllm, sglang, trt or atom");
    }
    // The 4-bit floats of a run are NVFP4 or MXFP4, by the maker of the chip.
    let precision = document.text("precision").map(str::to_lowercase);
    let weights = precision.filter(|format| format != "fp4");
    let drafting = ["spec_decoding", "mtp"].into_iter().find_map(|key| Some((key, document.text(key)?)));
    let drafts = drafting.filter(|(_, value)| !["none", "off", "false"].contains(value));
    run.stated = Stated {
        model: document.text("model").map(|name| ("model", name.to_owned())),
        hardware: document.text("hw").map(|hw| hw.split(['-', '_']).next().unwrap_or(hw).to_owned()),
        engine,
        weights,
        tp: document.degree("tp")?,
        ep: document.count("ep")?.filter(|ep| *ep > 1),
        drafts: drafts.map(|(key, value)| (key.to_owned(), value.to_owned())),
        ..Stated::default()
    };
    Ok(run)
}
