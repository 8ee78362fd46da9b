//! A client's results, converted to the keys of vLLM's benchmark client.
//!
//! Knows: the corresponding keys of `vllm bench serve --save-result`, `roofcast bench --json`, aiperf's profile
//! export and guidellm's report, in the versions that differ. Sources: vLLM `vllm/benchmarks/serve.py`; aiperf
//! `docs/reference/json-export-schema.md` (schema 1.0 to 1.5), `common/models/export_models.py` and
//! `config/phases.py`; guidellm `benchmark/schemas/generative/metrics.py` and `schemas/base/statistics.py`, of 0.2
//! `benchmark/benchmark.py`.

use anyhow::Result;
use roofcast::Error;
use serde_json::{Map, Value, json};

/// Results of one run, by vLLM's keys, with the name of the client and the run's place in a file with several.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Results {
    pub(super) source: &'static str,
    pub(super) document: Value,
}

/// Reads the results in `text`, the contents of the file `name`.
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

/// Statistics that are compared: vLLM's prefix of each, and the names in other clients' files.
const STATISTICS: [(&str, &[&str]); 3] =
    [("mean", &["avg", "mean"]), ("median", &["p50", "median"]), ("p99", &["p99"])];

/// Adds the statistics of one metric, in milliseconds, under vLLM's keys.
fn add(into: &mut Map<String, Value>, ours: &str, theirs: &Value, to_ms: f64) {
    for (prefix, names) in STATISTICS {
        let own = names.iter().find_map(|name| theirs.get(name).and_then(Value::as_f64));
        let nested = || theirs["percentiles"][prefix].as_f64();
        if let Some(value) = own.or_else(nested) {
            into.insert(format!("{prefix}_{ours}_ms"), json!(value * to_ms));
        }
    }
}

/// Converts aiperf's export: each metric is an object with a `unit`, `avg` and, if it is a distribution, `p50` and so
/// on.
fn aiperf(value: &Value) -> Value {
    let mean = |metric: &str| value[metric]["avg"].as_f64();
    let mut all = Map::new();
    // aiperf's inter_token_latency is (request_latency − time_to_first_token) / (output_sequence_length − 1), which
    // is vLLM's TPOT.
    for (theirs, ours) in
        [("time_to_first_token", "ttft"), ("inter_token_latency", "tpot"), ("request_latency", "e2el")]
    {
        let to_ms = match value[theirs]["unit"].as_str() {
            Some("sec" | "s") => 1e3,
            Some("us") => 1e-3,
            Some("ns") => 1e-6,
            _ => 1.0,
        };
        add(&mut all, ours, &value[theirs], to_ms);
    }
    let completed = mean("request_count").unwrap_or(0.0);
    let tokens = |total: &str, each: &str| mean(total).unwrap_or(mean(each).unwrap_or(0.0) * completed);
    let (concurrency, rate) = aiperf_load(&value["input_config"]);
    let rest = json!({
        "completed": completed,
        "failed": mean("error_request_count").unwrap_or(0.0),
        "total_input_tokens": tokens("total_isl", "input_sequence_length"),
        "total_output_tokens": tokens("total_osl", "output_sequence_length"),
        "max_concurrency": concurrency,
        "request_rate": rate,
        "request_throughput": mean("request_throughput"),
        "output_throughput": mean("output_token_throughput"),
    });
    together(all, rest)
}

/// Users and rate of the measured phase: from `phases`, else from `loadgen`. If a rate is given, the number of users is
/// only a bound.
fn aiperf_load(config: &Value) -> (Value, Value) {
    let phases = config["phases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let measured = |phase: &&Value| phase["kind"] == "profiling" || phase["name"] == "profiling";
    let (users, rate) = match phases.iter().find(measured).or(phases.last()) {
        Some(phase) => (&phase["concurrency"], &phase["rate"]),
        None => (&config["loadgen"]["concurrency"], &config["loadgen"]["request_rate"]),
    };
    (if rate.is_number() { Value::Null } else { users.clone() }, rate.clone())
}

/// Paths of the request counts in a run of guidellm's report, the measured requests first: from version 0.4 on, 0.3,
/// 0.2.
const COUNTS: [&str; 5] = [
    "/metrics/request_totals",
    "/request_totals",
    "/scheduler_metrics/requests_made",
    "/scheduler_stats/requests_made",
    "/run_stats/requests_made",
];

/// Paths of the load strategy in guidellm's report: from version 0.4 on, 0.3, 0.2.
const STRATEGIES: [&str; 3] = ["/config/strategy", "/scheduler/strategy", "/args/strategy"];

/// Converts one of guidellm's benchmarks: each metric has statistics of its `successful` requests; request latency is
/// in seconds, and `inter_token_latency_ms` leaves out the first token, as vLLM's TPOT does
/// (`time_per_output_token_ms` includes it).
fn guidellm(run: &Value) -> Value {
    let of = |metric: &str| &run["metrics"][metric]["successful"];
    let object = |places: &[&str]| {
        let found = places.iter().filter_map(|place| run.pointer(place)).find(|found| found.is_object());
        found.cloned().unwrap_or(Value::Null)
    };
    let mut all = Map::new();
    add(&mut all, "ttft", of("time_to_first_token_ms"), 1.0);
    add(&mut all, "tpot", of("inter_token_latency_ms"), 1.0);
    add(&mut all, "e2el", of("request_latency"), 1e3);
    let (counts, strategy) = (object(&COUNTS), object(&STRATEGIES));
    let completed = counts["successful"].as_f64().or_else(|| of("request_latency")["count"].as_f64());
    let completed = completed.unwrap_or(0.0);
    let tokens = |metric: &str| of(metric)["mean"].as_f64().unwrap_or(0.0) * completed;
    let streams = match strategy["type_"].as_str() {
        Some("synchronous") => json!(1),
        _ => strategy["streams"].clone(),
    };
    let rest = json!({
        "completed": completed,
        "failed": counts["errored"].as_f64().unwrap_or(0.0),
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

    /// Asserts that `text` has one run of client `source`, with these values under these keys.
    fn holds(text: &str, source: &str, expected: &[(&str, f64)]) {
        let [found] = read("a.json", text).unwrap().try_into().unwrap();
        assert_eq!(found.source, source);
        for (key, value) in expected {
            assert_eq!(found.document[*key].as_f64(), Some(*value), "{key}: {}", found.document);
        }
    }

    #[test]
    fn aiperf_comes_to_vllms_keys() {
        // Schema 1.0: 4 requests of 100 and 8 tokens, users under `loadgen`.
        let old = r#"{"request_count": {"unit": "requests", "avg": 4},
            "time_to_first_token": {"unit": "ms", "avg": 20, "p50": 19, "p99": 40},
            "inter_token_latency": {"unit": "ms", "avg": 5}, "input_sequence_length": {"avg": 100},
            "output_sequence_length": {"avg": 8}, "input_config": {"loadgen": {"concurrency": 2}}}"#;
        let expected = [
            ("completed", 4.0),
            ("mean_ttft_ms", 20.0),
            ("median_ttft_ms", 19.0),
            ("p99_ttft_ms", 40.0),
            ("mean_tpot_ms", 5.0),
            ("total_input_tokens", 400.0),
            ("total_output_tokens", 32.0),
            ("max_concurrency", 2.0),
        ];
        holds(old, "aiperf", &expected);
        // Schema 1.5: totals are separate; there are two phases, of which the first warms up; the users bound a rate.
        let new = r#"{"schema_version": "1.5", "request_count": {"avg": 4}, "error_request_count": {"avg": 1},
            "request_latency": {"unit": "sec", "avg": 1.5}, "total_isl": {"avg": 410}, "total_osl": {"avg": 33},
            "input_config": {"phases": [{"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 1},
            {"name": "load", "kind": "profiling", "type": "poisson", "rate": 2.5, "concurrency": 64}]}}"#;
        let expected = [
            ("failed", 1.0),
            ("mean_e2el_ms", 1500.0),
            ("total_input_tokens", 410.0),
            ("total_output_tokens", 33.0),
            ("request_rate", 2.5),
        ];
        holds(new, "aiperf", &expected);
        assert!(read("a.json", new).unwrap()[0].document.get("max_concurrency").is_none());
    }

    #[test]
    fn guidellm_comes_to_vllms_keys() {
        let metrics = r#""time_to_first_token_ms": {"successful": {"mean": 30, "median": 28, "percentiles": {"p50": 28, "p99": 60}}},
            "time_per_output_token_ms": {"successful": {"mean": 9}}, "inter_token_latency_ms": {"successful": {"mean": 7}},
            "request_latency": {"successful": {"mean": 1.5, "count": 10}}, "prompt_token_count": {"successful": {"mean": 50}},
            "output_token_count": {"successful": {"mean": 20}}"#;
        let counts = r#"{"successful": 10, "incomplete": 2, "errored": 1, "total": 13}"#;
        let expected = [
            ("completed", 10.0),
            ("failed", 1.0),
            ("mean_ttft_ms", 30.0),
            ("median_ttft_ms", 28.0),
            ("p99_ttft_ms", 60.0),
            ("mean_tpot_ms", 7.0),
            ("mean_e2el_ms", 1500.0),
            ("total_input_tokens", 500.0),
            ("total_output_tokens", 200.0),
            ("max_concurrency", 3.0),
        ];
        let strategy = r#"{"strategy": {"type_": "concurrent", "streams": 3}}"#;
        for run in [
            format!(r#"{{"config": {strategy}, "metrics": {{"request_totals": {counts}, {metrics}}}}}"#),
            format!(
                r#"{{"scheduler": {strategy}, "scheduler_stats": {{"requests_made": {counts}}}, "metrics": {{{metrics}}}}}"#
            ),
            format!(
                r#"{{"args": {strategy}, "run_stats": {{"requests_made": {counts}}}, "metrics": {{{metrics}}}}}"#
            ),
        ] {
            holds(&format!(r#"{{"benchmarks": [{run}]}}"#), "guidellm", &expected);
        }
        let strategy = r#"{"type_": "poisson", "rate": 4.0, "max_concurrency": 512}"#;
        let rated = format!(
            r#"{{"benchmarks": [{{"config": {{"strategy": {strategy}}}, "metrics": {{{metrics}}}}}]}}"#
        );
        holds(&rated, "guidellm", &[("request_rate", 4.0), ("completed", 10.0)]);
        assert!(read("g.json", &rated).unwrap()[0].document.get("max_concurrency").is_none());
    }

    #[test]
    fn what_has_no_results_is_refused() {
        for wrong in ["{}", "[]", "3", r#"{"benchmarks": []}"#] {
            assert!(read("w.json", wrong).unwrap_err().to_string().contains("guidellm"), "{wrong}");
        }
    }
}
