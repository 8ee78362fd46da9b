//! Results as they are reported: vLLM's keys, records, limits, rows, metrics, earlier results.

use super::{CALM, believed, exact};
use crate::schedule::{self, Schedule};
use crate::scripted::{self, good};
use crate::support::{file, json, roofcast, shared};
use serde_json::Value;
use std::time::Duration;

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn vllms_keys_are_all_there() {
    let path = shared("validation/vllm_bench_json/c4.json");
    let theirs = std::fs::read_to_string(path).unwrap();
    let theirs: Value = serde_json::from_str(&theirs).unwrap();
    let (ours, _) = json(&format!(
        "bench --url {} --model m --requests 2 --output-len 3 --concurrency 1 --detailed {CALM}",
        exact()
    ));
    // Keys that only vLLM's client has: about its label and queue, and the generated texts.
    let theirs_alone = ["label", "rtfx", "queue_times", "generated_texts"];
    let number = |value: &Value| value.is_number();
    for (key, value) in theirs.as_object().unwrap() {
        if !theirs_alone.contains(&key.as_str()) {
            let found = ours.get(key).unwrap_or_else(|| panic!("{key} is missing"));
            let kinds = [Value::is_array, Value::is_string, Value::is_null, number];
            assert!(kinds.iter().all(|is| is(found) == is(value)), "{key} is {found}, theirs {value}");
        }
    }
    // TTFT and gaps of an answer add up to its latency.
    let list = |key: &str| ours[key].as_array().unwrap().clone();
    for i in 0..2 {
        let gaps: f64 = list("itls")[i].as_array().unwrap().iter().map(|g| g.as_f64().unwrap()).sum();
        let whole = list("latencies")[i].as_f64().unwrap();
        assert!((list("ttfts")[i].as_f64().unwrap() + gaps - whole).abs() < 1e-9, "{ours}");
    }
}

#[test]
fn records_are_a_line_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let run = believed(&format!(
        "bench --url {} --model m --concurrency 2 --requests 5 --output-len 3 --warmup 2 --cooldown 1 --records {} {CALM} --json",
        exact(),
        path.display()
    ));
    assert_eq!(run.code, 0, "{}{}", run.err, run.out);
    let text = std::fs::read_to_string(&path).unwrap();
    let records: Vec<_> =
        text.lines().map(|line| roofcast::record::Record::from_line("run.jsonl", line).unwrap()).collect();
    assert_eq!(records.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(records.iter().all(|r| r.output_len == 3 && r.itl.len() == 2 && r.scheduled <= r.sent));
    // Of five requests two are warm-up and one is cool-down.
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((answer["completed"].as_u64(), answer["total_output_tokens"].as_u64()), (Some(2), Some(6)));
}

/// Two users begin 100 ms after each other in a ramp of 200 ms. Requests until then are sent in addition, and only the
/// five requests after it count.
#[test]
fn users_who_begin_one_after_another_are_not_judged_until_all_have_begun() {
    let run = believed(&format!(
        "bench --url {} --model m --concurrency 2 --requests 5 --output-len 3 --ramp-s 0.2 {CALM} --json",
        exact()
    ));
    assert_eq!(run.code, 0, "{}{}", run.err, run.out);
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((answer["completed"].as_u64(), answer["total_output_tokens"].as_u64()), (Some(5), Some(15)));
}

/// Measured times of 30 ms and 4 ms next to an H100's limit for Llama-3.1-8B: (15.01 GB + KV) at 3.35 TB/s take
/// slightly over 4.48 ms for one user. The scripted server's four milliseconds are below that limit, so no real server
/// of this model can be so fast.
#[test]
fn the_limit_and_the_forecast_stand_beside() {
    let (answer, _) = json(&format!(
        "bench --url {} --model meta-llama/Llama-3.1-8B --hardware h100-sxm --requests 4 --input-len 100 --output-len 9 {CALM}",
        exact()
    ));
    let limit = answer["limit"]["tpot_ms"].as_f64().unwrap();
    assert!((4.48..4.6).contains(&limit), "{limit}");
    let share = limit / answer["median_tpot_ms"].as_f64().unwrap();
    assert!((answer["limit"]["tpot_share"].as_f64().unwrap() - share).abs() < 1e-9);
    assert_eq!(
        (&answer["limit"]["bound"], &answer["limit"]["prefill_bound"]),
        (&"memory".into(), &"memory".into())
    );
    let forecast = answer["forecast"]["median_tpot_ms"].as_f64().unwrap();
    assert!(forecast > limit, "{forecast} beats {limit}");
    // The forecast equals the one of `simulate` for this workload.
    let spec = "[model]\nname = \"meta-llama/Llama-3.1-8B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[workload]\nrequests = 4\n\
        input_len = 100\noutput_len = 9\n[workload.arrivals]\nkind = \"closed_loop\"\nconcurrency = 1\n";
    let (_folder, path) = file("spec.toml", spec.as_bytes());
    let (simulated, _) = json(&format!("simulate {path} --cost forecast"));
    for key in ["mean_ttft_ms", "median_tpot_ms", "mean_e2el_ms", "output_throughput"] {
        assert_eq!(answer["forecast"][key], simulated[key], "{key}");
    }
    assert!(!answer["limit"]["advice"].as_str().unwrap().is_empty());
}

#[test]
fn documents_conform_to_their_schemas() {
    let (_folder, path) = file("vllm.json", b"{\"mean_ttft_ms\": 1.0}");
    let run = format!(
        "bench --url {} --model llama-3.1-8b --requests 2 --output-len 3 {CALM} --hardware h100-sxm",
        exact()
    );
    let failing = format!("bench --url {} --model m --requests 2 --assume-tokens {CALM}", scripted::nobody());
    for question in [
        format!("{run} --metrics --detailed --baseline {path}"),
        format!("{run} --sweep output-len=2,3"),
        format!("{run} --find-rate 5..5.1 --slo-e2el 10000"),
        format!("{run} --runs 2"),
        failing,
    ] {
        crate::schemas::assert_conforms(&question, &json(&question).0);
    }
}

#[test]
fn points_are_rows_that_validate_takes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.csv").display().to_string();
    let url = schedule::start(Schedule { ttft: Duration::from_millis(60), itl: Duration::from_millis(20) });
    let (_, code) = json(&format!(
        "bench --url {url} --model llama-3.1-8b --hardware h100-sxm --requests 4 --input-len 100 --output-len 5 --sweep concurrency=1,2 {CALM} --measurements {path}"
    ));
    assert_eq!(code, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    let rows = roofcast::measurement::read("points.csv", &text).unwrap();
    assert_eq!(rows.iter().map(|r| r.concurrency).collect::<Vec<_>>(), [Some(1), Some(2)], "{text}");
    let row = &rows[0];
    assert_eq!((row.kind.name(), row.hardware.as_str(), row.median), ("closed_loop", "h100-sxm", true));
    assert_eq!((row.input.unwrap().max, row.output.unwrap().max), (100, 5));
    assert!(row.measured.ttft_ms.unwrap() >= 59.9 && row.measured.e2e_ms.unwrap() >= 139.9, "{text}");
    let run = roofcast(&format!("validate {path}"));
    assert_eq!(run.code, 0, "{}{}", run.err, run.out);
    // If the hardware is not known, there is no row.
    let run = roofcast(&format!("bench --url {url} --model m --measurements {path}"));
    assert!(run.code == 2 && run.err.contains("--hardware"), "{}", run.err);
}

#[test]
fn metrics_are_read_beside_the_run() {
    let (url, _) = scripted::start(|n, stream| {
        // Request 0 reads /metrics before the run and request 3 after it; 1 and 2 are the measured requests.
        if n == 1 || n == 2 {
            return good(stream);
        }
        let text = format!(
            "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{{a=\"b\"}} {n}\n"
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length";
        stream.write_all(format!("{head}: {}\r\n\r\n{text}", text.len()).as_bytes()).is_ok()
    });
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 2 --assume-tokens --metrics {CALM}"));
    assert_eq!(answer["server"]["samples"], 2);
    assert_eq!(answer["server"]["counters"]["vllm:generation_tokens_total"], 3.0);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn earlier_results_are_read_back() {
    let aiperf = r#"{"request_throughput":{"unit":"requests/sec","avg":2.5},"time_to_first_token":{"unit":"ms","avg":7,"p50":6,"p99":9},
        "inter_token_latency":{"unit":"ms","avg":3,"p50":2.5},"request_latency":{"unit":"ms","avg":70}}"#;
    let (_folder, path) = file("aiperf.json", aiperf.as_bytes());
    let url = exact();
    let ask = |path: &str| {
        json(&format!("bench --url {url} --model m --requests 2 --output-len 2 {CALM} --baseline {path}")).0
    };
    let answer = ask(&path);
    let (baseline, metrics) = (&answer["baselines"][0], &answer["baselines"][0]["metrics"]);
    assert_eq!((&baseline["source"], &metrics["mean_ttft_ms"]), (&"aiperf".into(), &7.0.into()));
    // aiperf's inter-token latency has the formula of TPOT.
    assert_eq!((&metrics["mean_tpot_ms"], &metrics["p99_ttft_ms"]), (&3.0.into(), &9.0.into()));
    // The program's own results are read back.
    let (_folder, path) = file("ours.json", answer.to_string().as_bytes());
    let again = ask(&path);
    assert_eq!(again["baselines"][0]["source"], "roofcast bench");
    assert_eq!(again["baselines"][0]["metrics"]["mean_ttft_ms"], answer["mean_ttft_ms"]);
}

/// A step with drafts gives 1.75 tokens to a sequence, so that the limit of a token's time is the step's divided by 1.75. The step
/// itself verifies two tokens more, whose KV cache and FLOPs are below a thousandth of 16 GB of weights.
#[test]
fn the_limit_of_a_token_is_its_share_of_a_step() {
    let url = exact();
    let limit = |drafts: &str| {
        let question = format!(
            "bench --url {url} --model llama-3.1-8b --hardware h100-sxm --requests 2 --input-len 100 --output-len 5 {CALM} {drafts}"
        );
        json(&question).0["limit"]["tpot_ms"].as_f64().unwrap()
    };
    let ratio = limit("") / limit("--num-speculative-tokens 2 --acceptance-length 1.75 --draft-cost 0.1");
    assert!((1.748..1.75).contains(&ratio), "{ratio}");
}

/// guidellm's mean of gaps weighs requests by their tokens, as vLLM's mean ITL does and its mean TPOT does not; its
/// percentiles are by rank. A TPOT that answers of one token lack is null, in measurement, limit and forecast.
#[test]
fn like_is_compared_with_like() {
    let statistic = r#"{"successful": {"mean": 5.0, "percentiles": {"p99": 9.0}}}"#;
    let guidellm = format!(r#"{{"benchmarks": [{{"metrics": {{"inter_token_latency_ms": {statistic}}}}}]}}"#);
    let (_folder, path) = file("guidellm.json", guidellm.as_bytes());
    let url = exact();
    let question = format!(
        "bench --url {url} --model llama-3.1-8b --hardware h100-sxm --requests 2 {CALM} --baseline {path}"
    );
    let (answer, _) = json(&format!("{question} --output-len 1"));
    assert_eq!(answer["baselines"][0]["metrics"], serde_json::json!({"mean_itl_ms": 5.0}));
    for path in [
        "/mean_tpot_ms",
        "/limit/tpot_ms",
        "/limit/tpot_share",
        "/forecast/mean_tpot_ms",
        "/forecast/tpot_ratio",
        "/forecast/bands/tpot_ms",
    ] {
        assert!(answer.pointer(path).is_some_and(serde_json::Value::is_null), "{path}: {answer}");
    }
    let several = guidellm.replace("[{\"metrics", "[{},{\"metrics");
    let (_folder, path) = file("several.json", several.as_bytes());
    let run = roofcast(&format!(
        "bench --url {url} --model m --requests 2 --output-len 1 {CALM} --baseline {path}"
    ));
    assert!(run.code == 2 && run.err.contains("2 runs"), "{}", run.err);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn results_of_vllms_client_are_baselines() {
    let path = shared("validation/vllm_bench_json/c4.json");
    let path = path.display();
    let command =
        format!("bench --url {} --model m --requests 2 --output-len 2 {CALM} --baseline {path}", exact());
    let (answer, _) = json(&command);
    assert_eq!(answer["baselines"][0]["metrics"]["mean_ttft_ms"], 1205.7304382501002);
}
