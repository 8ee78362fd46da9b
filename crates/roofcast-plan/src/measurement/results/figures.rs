//! Figures of clients' documents by vLLM's keys, to compare with another run.
//!
//! Knows: where each client writes a figure, and which figures have vLLM's definition. Percentiles by rank and percentiles
//! that weigh requests by their tokens are left out. Knows nothing about loads: a document whose load is not forecast
//! has figures too.

use super::document::Document;
use serde_json::Value;
use std::collections::BTreeMap;

/// vLLM's keys of the figures that are compared.
pub const KEYS: [&str; 12] = [
    "request_throughput",
    "output_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "mean_itl_ms",
    "mean_e2el_ms",
    "median_e2el_ms",
    "p99_e2el_ms",
];

/// Figures by vLLM's keys.
pub type Figures = BTreeMap<String, f64>;

/// vLLM's key of a figure, its path in a document, and the factor to vLLM's unit.
type Source = (&'static str, &'static str, f64);

fn figures(document: &Document, sources: &[Source]) -> Figures {
    let value = |(key, path, factor): &Source| {
        let value = document.at(path)?.as_f64().filter(|value| value.is_finite())?;
        Some(((*key).to_owned(), value * factor))
    };
    sources.iter().filter_map(value).collect()
}

/// vLLM's own keys, which `roofcast bench` writes too.
pub(super) fn vllm(document: &Document) -> Vec<Figures> {
    vec![figures(document, &KEYS.map(|key| (key, key, 1.0)))]
}

/// SGLang's keys are vLLM's, except for the end-to-end latency.
pub(super) fn sglang(document: &Document) -> Vec<Figures> {
    const E2E: [Source; 3] = [
        ("mean_e2el_ms", "mean_e2e_latency_ms", 1.0),
        ("median_e2el_ms", "median_e2e_latency_ms", 1.0),
        ("p99_e2el_ms", "p99_e2e_latency_ms", 1.0),
    ];
    let mut all = figures(document, &KEYS.map(|key| (key, key, 1.0)));
    all.extend(figures(document, &E2E));
    vec![all]
}

/// aiperf and genai-perf: percentiles of numpy; the inter-token latency is vLLM's TPOT.
pub(super) fn aiperf(document: &Document) -> Vec<Figures> {
    const LATENCIES: [(&str, &str); 3] =
        [("time_to_first_token", "ttft"), ("inter_token_latency", "tpot"), ("request_latency", "e2el")];
    const RATES: [Source; 2] = [
        ("request_throughput", "request_throughput/avg", 1.0),
        ("output_throughput", "output_token_throughput/avg", 1.0),
    ];
    let mut all = figures(document, &RATES);
    for (theirs, metric) in LATENCIES {
        let Ok(factor) = document.milliseconds_per_unit(theirs) else { continue };
        for (statistic, figure) in [("avg", "mean"), ("p50", "median"), ("p99", "p99")] {
            let value = document.at(&format!("{theirs}/{statistic}")).and_then(Value::as_f64);
            all.extend(value.map(|value| (format!("{figure}_{metric}_ms"), value * factor)));
        }
    }
    vec![all]
}

/// guidellm: its inter-token latency is a mean over tokens, which is vLLM's mean ITL; percentiles are by rank.
pub(super) fn guidellm(document: &Document) -> Vec<Figures> {
    const SOURCES: [Source; 5] = [
        ("request_throughput", "metrics/requests_per_second/successful/mean", 1.0),
        ("output_throughput", "metrics/output_tokens_per_second/successful/mean", 1.0),
        ("mean_ttft_ms", "metrics/time_to_first_token_ms/successful/mean", 1.0),
        ("mean_itl_ms", "metrics/inter_token_latency_ms/successful/mean", 1.0),
        ("mean_e2el_ms", "metrics/request_latency/successful/mean", 1e3),
    ];
    let runs = document.at("benchmarks").and_then(Value::as_array).into_iter().flatten();
    let objects = runs.filter_map(Value::as_object);
    objects.map(|keys| figures(&Document { place: document.place, keys }, &SOURCES)).collect()
}

/// inference-perf: seconds, percentiles of numpy; no ITL, because a chunk of several tokens gives gaps of 0.
pub(super) fn inference_perf(document: &Document) -> Vec<Figures> {
    const SOURCES: [Source; 11] = [
        ("request_throughput", "successes/throughput/requests_per_sec", 1.0),
        ("output_throughput", "successes/throughput/output_tokens_per_sec", 1.0),
        ("mean_ttft_ms", "successes/latency/time_to_first_token/mean", 1e3),
        ("median_ttft_ms", "successes/latency/time_to_first_token/median", 1e3),
        ("p99_ttft_ms", "successes/latency/time_to_first_token/p99", 1e3),
        ("mean_tpot_ms", "successes/latency/time_per_output_token/mean", 1e3),
        ("median_tpot_ms", "successes/latency/time_per_output_token/median", 1e3),
        ("p99_tpot_ms", "successes/latency/time_per_output_token/p99", 1e3),
        ("mean_e2el_ms", "successes/latency/request_latency/mean", 1e3),
        ("median_e2el_ms", "successes/latency/request_latency/median", 1e3),
        ("p99_e2el_ms", "successes/latency/request_latency/p99", 1e3),
    ];
    vec![figures(document, &SOURCES)]
}

/// evalscope's summary, which has means alone; versions up to 1.0 have other names.
pub(super) fn evalscope(document: &Document) -> Vec<Figures> {
    const NAMES: [Source; 10] = [
        ("request_throughput", "Req Throughput (req/s)", 1.0),
        ("output_throughput", "Output Throughput (tok/s)", 1.0),
        ("mean_ttft_ms", "Avg TTFT (ms)", 1.0),
        ("mean_tpot_ms", "Avg TPOT (ms)", 1.0),
        ("mean_e2el_ms", "Avg Latency (s)", 1e3),
        ("request_throughput", "Request throughput (req/s)", 1.0),
        ("output_throughput", "Output token throughput (tok/s)", 1.0),
        ("mean_ttft_ms", "Average time to first token (s)", 1e3),
        ("mean_tpot_ms", "Average time per output token (s)", 1e3),
        ("mean_e2el_ms", "Average latency (s)", 1e3),
    ];
    let whole = !super::evalscope::streamed(document);
    // Names of keys have slashes, so that they are no paths.
    let value = |(key, name, factor): Source| {
        if whole && (key.contains("ttft") || key.contains("tpot")) {
            return None;
        }
        let value = document.keys.get(name)?.as_f64().filter(|value| *value >= 0.0)?;
        Some((key.to_owned(), value * factor))
    };
    vec![NAMES.into_iter().filter_map(value).collect()]
}

/// trtllm-bench: percentiles are by rank.
pub(super) fn trtllm(document: &Document) -> Vec<Figures> {
    const SOURCES: [Source; 5] = [
        ("request_throughput", "performance/request_throughput_req_s", 1.0),
        ("output_throughput", "performance/system_output_throughput_tok_s", 1.0),
        ("mean_ttft_ms", "streaming_metrics/avg_ttft_ms", 1.0),
        ("mean_tpot_ms", "streaming_metrics/avg_tpot_ms", 1.0),
        ("mean_e2el_ms", "performance/avg_request_latency_ms", 1.0),
    ];
    vec![figures(document, &SOURCES)]
}

/// InferenceX: vLLM's keys in seconds, without the unit in the name; throughput is per accelerator and left out.
pub(super) fn inferencex(document: &Document) -> Vec<Figures> {
    const SOURCES: [Source; 10] = [
        ("mean_ttft_ms", "mean_ttft", 1e3),
        ("median_ttft_ms", "median_ttft", 1e3),
        ("p99_ttft_ms", "p99_ttft", 1e3),
        ("mean_tpot_ms", "mean_tpot", 1e3),
        ("median_tpot_ms", "median_tpot", 1e3),
        ("p99_tpot_ms", "p99_tpot", 1e3),
        ("mean_itl_ms", "mean_itl", 1e3),
        ("mean_e2el_ms", "mean_e2el", 1e3),
        ("median_e2el_ms", "median_e2el", 1e3),
        ("p99_e2el_ms", "p99_e2el", 1e3),
    ];
    vec![figures(document, &SOURCES)]
}

/// A client whose documents have times of batches instead of requests.
pub(super) fn none(_: &Document) -> Vec<Figures> {
    Vec::new()
}
