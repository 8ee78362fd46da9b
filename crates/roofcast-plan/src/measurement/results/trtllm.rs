//! Results of TensorRT-LLM's `trtllm-bench throughput` and `latency`, written by `--report_json`.
//!
//! Knows: the keys of `tensorrt_llm/bench/dataclasses/reporting.py` (1.2). The engine runs in the client's process,
//! without a server. The report states no limit on requests in flight, only their mean; its `issue_rate` is no load but
//! the mean gap between the client's own submissions, times 10^9 (`statistics.py`).

use super::super::Metrics;
use super::super::benchmark::ClientLoad;
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

/// Fraction of all requests below which their mean number in flight shows a limit: if all are queued at once and none
/// is limited, each waits and runs for half of the run or longer.
const LIMITED: f64 = 0.45;

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    keys.contains_key("world_info") && keys.contains_key("performance")
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

fn run(document: &Document) -> Result<ClientRun> {
    let sent = document.needed("request_info/num_requests")?;
    let flying = document.needed("request_info/avg_num_concurrent_requests")?;
    let limited = flying < LIMITED * sent;
    let load = if limited {
        ClientLoad::Users(flying.round().max(1.0) as u64)
    } else {
        ClientLoad::AtOnce(sent as u64)
    };
    let mut run = ClientRun::under(load);
    if limited {
        run.notes.push(format!("{flying:.1} requests in flight on average are taken as the client's limit"));
    }
    let total = |key: &str| Ok(document.number(&format!("request_info/{key}"))?.unwrap_or(0.0) * sent);
    let totals: [Result<f64>; 2] = [total("avg_input_length"), total("avg_output_length")];
    let [input, output] = totals;
    run.totals(document.place, [sent, 0.0], [(input?, &[]), (output?, &[])])?;
    run.measured = Metrics {
        ttft_ms: document.number("streaming_metrics/avg_ttft_ms")?,
        tpot_ms: document.number("streaming_metrics/avg_tpot_ms")?,
        e2e_ms: document.number("performance/avg_request_latency_ms")?,
        ..Metrics::default()
    };
    run.set("served", false);
    run.set("num_prompts", sent as u64);
    for (key, setting) in [("max_batch_size", "max_batch_size"), ("max_num_tokens", "max_num_tokens")] {
        if let Some(value) = document.count(&format!("world_info/{key}"))? {
            run.set(setting, value);
        }
    }
    let format = |key: &str| {
        let named = document.text(&format!("engine/{key}")).map(str::to_lowercase);
        named.filter(|format| !["none", "auto", "no_quant"].contains(&format.as_str()))
    };
    let drafts = document.at("decoding_stats").map(|stats| ("decoding_stats".to_owned(), stats.to_string()));
    run.stated = Stated {
        hardware: document.text("machine/name").map(str::to_owned),
        model: document.text("engine/model").map(|name| ("engine.model", name.to_owned())),
        engine: Some("tensorrt-llm"),
        version: document.text("engine/version").map(str::to_owned),
        weights: format("quantization"),
        kv: format("kv_cache_dtype"),
        tp: document.degree("world_info/tp_size")?,
        pp: document.degree("world_info/pp_size")?,
        ep: document.count("world_info/ep_size")?.filter(|ep| *ep > 1),
        drafts,
        ..Stated::default()
    };
    Ok(run)
}
