//! A client's results in the keys of vLLM's benchmark client.
//!
//! Knows: which keys `vllm bench serve --save-result`, `roofcast bench --json`, aiperf's profile export and guidellm's report
//! have for the same. Sources: vLLM `benchmarks/serve.py`; aiperf `profile_export_aiperf.json`; guidellm `benchmarks.json`,
//! whose request latency is in seconds.

use anyhow::Result;
use roofcast::Error;
use serde_json::{Map, Value, json};

/// Results, whose they are, and where a file has several, of which run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Results {
    pub(super) source: &'static str,
    pub(super) document: Value,
}

/// The results in the text of the file `name`.
pub(super) fn read(name: &str, text: &str) -> Result<Vec<Results>> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| Error::Parse { place: name.to_owned(), message: e.to_string() })?;
    let schema = value["schema"].as_str().unwrap_or_default();
    let found = if schema.starts_with("roofcast/bench/") {
        vec![Results { source: "roofcast bench", document: value }]
    } else if value.get("total_input_tokens").is_some() {
        vec![Results { source: "vLLM", document: value }]
    } else if value.get("time_to_first_token").is_some() || value.get("request_latency").is_some() {
        vec![Results { source: "aiperf", document: aiperf(&value) }]
    } else {
        let runs = value["benchmarks"].as_array().map(Vec::as_slice).unwrap_or_default();
        runs.iter().map(|run| Results { source: "guidellm", document: guidellm(run) }).collect()
    };
    if found.is_empty() {
        let accepted = "the JSON of `vllm bench serve --save-result`, `roofcast bench --json`, aiperf's profile export or guidellm's report";
        return Err(Error::field(name, "results", "none", accepted).into());
    }
    Ok(found)
}

/// Statistics that are compared, by vLLM's prefix and by the names of others.
const STATISTICS: [(&str, &[&str]); 3] =
    [("mean", &["avg", "mean"]), ("median", &["p50", "median"]), ("p99", &["p99"])];

/// Adds the statistics of a metric, in milliseconds.
fn add(into: &mut Map<String, Value>, ours: &str, theirs: &Value, to_ms: f64) {
    for (prefix, names) in STATISTICS {
        let own = names.iter().find_map(|name| theirs.get(name).and_then(Value::as_f64));
        let nested = || theirs["percentiles"][prefix].as_f64();
        if let Some(value) = own.or_else(nested) {
            into.insert(format!("{prefix}_{ours}_ms"), json!(value * to_ms));
        }
    }
}

/// aiperf's export: each metric is an object with `avg`, `p50` and so on; times are milliseconds.
fn aiperf(value: &Value) -> Value {
    let mean = |metric: &str| value[metric]["avg"].as_f64();
    let mut all = Map::new();
    for (theirs, ours) in
        [("time_to_first_token", "ttft"), ("inter_token_latency", "tpot"), ("request_latency", "e2el")]
    {
        add(&mut all, ours, &value[theirs], 1.0);
    }
    let completed = mean("request_count").unwrap_or(0.0);
    let load = &value["input_config"]["loadgen"];
    let tokens = |metric: &str| mean(metric).unwrap_or(0.0) * completed;
    let rest = json!({
        "completed": completed,
        "failed": mean("error_request_count").unwrap_or(0.0),
        "total_input_tokens": tokens("input_sequence_length"),
        "total_output_tokens": tokens("output_sequence_length"),
        "max_concurrency": load["concurrency"],
        "request_rate": load["request_rate"],
        "request_throughput": mean("request_throughput"),
        "output_throughput": mean("output_token_throughput"),
    });
    together(all, rest)
}

/// One of guidellm's benchmarks: each metric has statistics of its `successful` requests.
fn guidellm(run: &Value) -> Value {
    let of = |metric: &str| &run["metrics"][metric]["successful"];
    let mut all = Map::new();
    add(&mut all, "ttft", of("time_to_first_token_ms"), 1.0);
    add(&mut all, "tpot", of("inter_token_latency_ms"), 1.0);
    add(&mut all, "e2el", of("request_latency"), 1e3);
    let totals =
        [&run["run_stats"]["requests_made"], &run["request_totals"], &run["metrics"]["request_totals"]]
            .into_iter()
            .find(|totals| totals.is_object())
            .unwrap_or(&Value::Null);
    let completed = totals["successful"].as_f64().or_else(|| of("request_latency")["count"].as_f64());
    let completed = completed.unwrap_or(0.0);
    let tokens = |metric: &str| of(metric)["mean"].as_f64().unwrap_or(0.0) * completed;
    let strategy = [&run["args"]["strategy"], &run["config"]["strategy"], &run["scheduler"]["strategy"]]
        .into_iter()
        .find(|strategy| strategy.is_object())
        .unwrap_or(&Value::Null);
    let streams = match strategy["type_"].as_str() {
        Some("synchronous") => json!(1),
        _ => strategy["streams"].clone(),
    };
    let rest = json!({
        "completed": completed,
        "failed": totals["errored"].as_f64().unwrap_or(0.0),
        "total_input_tokens": tokens("prompt_token_count"),
        "total_output_tokens": tokens("output_token_count"),
        "max_concurrency": streams,
        "request_rate": strategy["rate"],
        "request_throughput": of("requests_per_second")["mean"],
        "output_throughput": of("output_tokens_per_second")["mean"],
    });
    together(all, rest)
}

fn together(mut all: Map<String, Value>, rest: Value) -> Value {
    if let Value::Object(rest) = rest {
        all.extend(rest.into_iter().filter(|(_, value)| !value.is_null()));
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aiperf_and_guidellm_come_to_vllms_keys() {
        let aiperf = r#"{"request_count": {"avg": 4}, "time_to_first_token": {"unit": "ms", "avg": 20, "p50": 19, "p99": 40},
            "inter_token_latency": {"avg": 5}, "input_sequence_length": {"avg": 100}, "output_sequence_length": {"avg": 8},
            "input_config": {"loadgen": {"concurrency": 2}}}"#;
        let [found] = read("a.json", aiperf).unwrap().try_into().unwrap();
        assert_eq!(found.source, "aiperf");
        // 4 requests of 100 and 8 tokens.
        for (key, value) in [
            ("completed", 4.0),
            ("mean_ttft_ms", 20.0),
            ("median_ttft_ms", 19.0),
            ("p99_ttft_ms", 40.0),
            ("mean_tpot_ms", 5.0),
            ("total_input_tokens", 400.0),
            ("total_output_tokens", 32.0),
            ("max_concurrency", 2.0),
        ] {
            assert_eq!(found.document[key].as_f64(), Some(value), "{key}");
        }
        let guidellm = r#"{"benchmarks": [{"args": {"strategy": {"type_": "concurrent", "streams": 3}},
            "run_stats": {"requests_made": {"successful": 10, "errored": 1}},
            "metrics": {"time_to_first_token_ms": {"successful": {"mean": 30, "median": 28, "percentiles": {"p99": 60}}},
            "request_latency": {"successful": {"mean": 1.5}}, "prompt_token_count": {"successful": {"mean": 50}},
            "output_token_count": {"successful": {"mean": 20}}}}]}"#;
        let [found] = read("g.json", guidellm).unwrap().try_into().unwrap();
        for (key, value) in [
            ("completed", 10.0),
            ("failed", 1.0),
            ("mean_ttft_ms", 30.0),
            ("p99_ttft_ms", 60.0),
            ("mean_e2el_ms", 1500.0),
            ("total_input_tokens", 500.0),
            ("max_concurrency", 3.0),
        ] {
            assert_eq!(found.document[key].as_f64(), Some(value), "{key}");
        }
        for wrong in ["{}", "[]", "3", r#"{"benchmarks": []}"#] {
            assert!(read("w.json", wrong).unwrap_err().to_string().contains("guidellm"), "{wrong}");
        }
    }
}
