//! Documents of clients' other versions and options, each with the arithmetic of its load.

use super::*;
use crate::measurement::settings::Pattern;

/// 40 answers of 0.361 s: 18 ms to the first token, 7 ms a token, 200 and 50 tokens.
const EXPECTED: [Option<f64>; 3] = [Some(18.0), Some(7.0), Some(361.0)];

#[test]
fn evalscope_bounds_a_rate_by_its_users_and_wrote_seconds() {
    let summary = r#"{"Concurrency": 4, "Request Rate (req/s)": 5.0, "Success Requests": 40, "Failed Requests": 0, "Stream Requests": 40,
        "Non-Stream Requests": 0, "Req Throughput (req/s)": 4.9, "Avg Latency (s)": 0.361, "Avg Input Tokens": 200.0,
        "Avg Output Tokens": 50.0, "Avg TTFT (ms)": 18.0, "Avg TPOT (ms)": 7.0}"#;
    let row = times(summary, "evalscope", EXPECTED);
    assert_eq!((row.request_rate, row.concurrency), (Some(5.0), Some(4)));
    // With --open-loop, the number of users is −1.
    let open = times(&summary.replace(r#""Concurrency": 4"#, r#""Concurrency": -1"#), "evalscope", EXPECTED);
    assert_eq!((open.request_rate, open.concurrency), (Some(5.0), None));
    let whole = summary.replace(r#""Stream Requests": 40"#, r#""Stream Requests": 0"#);
    times(
        &whole.replace(r#""Non-Stream Requests": 0"#, r#""Non-Stream Requests": 40"#),
        "evalscope",
        [None, None, Some(361.0)],
    );
    assert_eq!(figures("r", summary).unwrap().1["request_throughput"], 4.9);
    let older = r#"{"Time taken for tests (s)": 3.61, "Number of concurrency": 4, "Total requests": 40, "Succeed requests": 40,
        "Failed requests": 0, "Output token throughput (tok/s)": 554.0, "Average latency (s)": 0.361,
        "Average time to first token (s)": 0.018, "Average time per output token (s)": 0.007,
        "Average input tokens per request": 200.0, "Average output tokens per request": 50.0}"#;
    let row = times(older, "evalscope", EXPECTED);
    assert_eq!((row.concurrency, row.input, row.output), (Some(4), fixed(200), fixed(50)));
    assert_eq!(figures("r", older).unwrap().1["mean_ttft_ms"], 18.0);
}

/// aiperf's metrics of 40 requests of 200 ± 10 and 50 tokens.
fn aiperf_run(config: &str) -> String {
    let metrics = r#""request_count": {"avg": 40}, "request_latency": {"unit": "ms", "avg": 361}, "time_to_first_token": {"unit": "ms", "avg": 18},
        "inter_token_latency": {"unit": "ms", "avg": 7}, "input_sequence_length": {"avg": 200, "std": 10, "min": 175, "max": 224},
        "output_sequence_length": {"avg": 50, "std": 0, "min": 50, "max": 50}"#;
    format!(r#"{{{metrics}, "input_config": {{{config}}}}}"#)
}

#[test]
fn aiperf_names_its_arrivals_by_version() {
    let older = |keys: &str| aiperf_run(&format!(r#""loadgen": {{{keys}}}"#));
    // √3 · 10 = 17.3 tokens on either side of 200.
    let row = times(&older(r#""request_rate": 4.0, "request_rate_mode": "constant""#), "aiperf", EXPECTED);
    assert_eq!((row.request_rate, row.settings.pattern), (Some(4.0), Pattern::Constant));
    assert_eq!(row.input, Some(Lengths { min: 183, max: 217 }));
    let gamma = r#""request_rate": 4.0, "arrival_pattern": "gamma", "arrival_smoothness": 0.5"#;
    assert_eq!(times(&older(gamma), "aiperf", EXPECTED).settings.pattern, Pattern::Gamma(0.5));
    for (key, value) in [
        ("request_rate_ramp_duration", "30"),
        ("concurrency_ramp_duration", "30"),
        ("num_users", "5"),
        ("request_cancellation_rate", "10.0"),
    ] {
        refused(&older(&format!(r#""concurrency": 4, "{key}": {value}"#)), &[key, value]);
    }
    // The type without a rate has one user if none is set.
    let phase = r#""phases": [{"name": "profiling", "kind": "profiling", "type": "concurrency"}]"#;
    assert_eq!(times(&aiperf_run(phase), "aiperf", EXPECTED).concurrency, Some(1));
    let adaptive = phase.replace(r#""type""#, r#""adaptive_scale": true, "type""#);
    refused(&aiperf_run(&adaptive), &["adaptive_scale"]);
    let cut = aiperf_run(phase).replacen('{', r#"{"is_complete": false, "#, 1);
    refused(&cut, &["is_complete"]);
}

#[test]
fn prompts_that_share_tokens_or_have_pictures_are_refused() {
    let with = |part: &str| aiperf_run(&format!(r#""loadgen": {{"concurrency": 4}}, {part}"#));
    for (part, word) in [
        (r#""input": {"prompt": {"prefix_prompt": {"shared_system_prompt_length": 100}}}"#, "prefix"),
        (r#""input": {"conversation": {"turn": {"mean": 3}}}"#, "turn"),
        (r#""input": {"image": {"width": {"mean": 512}, "height": {"mean": 512}}}"#, "image"),
        (r#""datasets": [{"type": "synthetic", "audio": {"length": {"mean": 5.0}}}]"#, "audio"),
        (r#""datasets": [{"type": "file", "path": "t.jsonl", "format": "mooncake_trace"}]"#, "trace"),
        (r#""input": {"file": "t.jsonl", "fixed_schedule": true}"#, "fixed_schedule"),
    ] {
        refused(&with(part), &[word]);
    }
    let defaults = r#""input": {"prompt": {"prefix_prompt": {"pool_size": 0, "length": 100}}, "conversation": {"turn": {"mean": 1}}}"#;
    times(&with(defaults), "aiperf", EXPECTED);
    let file = r#""datasets": [{"type": "file", "path": "t.jsonl", "format": "single_turn"}]"#;
    assert!(times(&with(file), "aiperf", EXPECTED).notes[0].contains("file"));
}

/// genai-perf writes all its defaults; without `--request-distribution` gaps are equal.
#[test]
fn genai_perfs_defaults_share_no_prompts() {
    let input = r#""input": {"prefix_prompt": {"num": 0, "length": 100}, "sessions": {"num": 0, "turns": {"mean": 1, "stddev": 0}}, "image": {"width": {"mean": 0}}}"#;
    let with = |stimulus: &str| {
        aiperf_run(&format!(r#""perf_analyzer": {{"stimulus": {stimulus}}}, "model_names": ["m"], {input}"#))
    };
    let row = times(&with(r#"{"request_rate": 4.0}"#), "genai-perf", EXPECTED);
    assert_eq!((row.request_rate, row.settings.pattern), (Some(4.0), Pattern::Constant));
    assert_eq!(times(&with(r#"{"concurrency": 3}"#), "genai-perf", EXPECTED).concurrency, Some(3));
    refused(&with(r#"{"session_concurrency": 3}"#), &["stimulus", "session_concurrency"]);
    let turns = with(r#"{"concurrency": 3}"#).replace(r#""turns": {"mean": 1"#, r#""turns": {"mean": 4"#);
    refused(&turns, &["turn"]);
    let shared = with(r#"{"concurrency": 3}"#).replace(r#""num": 0, "length""#, r#""num": 2, "length""#);
    refused(&shared, &["prefix"]);
}

#[test]
fn servers_of_sglang_state_themselves() {
    let with = |more: &str| SGLANG.replacen('{', &format!("{{{more}, "), 1);
    let server = |keys: &str| with(&format!(r#""server_info": {{{keys}}}"#));
    let row = one("r", &server(r#""model_path": "meta-llama/Llama-3.1-8B-Instruct", "version": "0.5.23", "tp_size": 2, "dp_size": 1, "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3", "disaggregation_mode": "null""#), &plain()).unwrap();
    assert_eq!((row.parallelism.tp, row.weights.as_str(), row.kv.as_str()), (Some(2), "fp8", "fp8"));
    assert_eq!(row.version, "0.5.23");
    refused(&server(r#""dp_size": 4"#), &["dp_size", "4"]);
    refused(&server(r#""speculative_algorithm": "EAGLE""#), &["speculative_algorithm", "EAGLE"]);
    refused(&server(r#""disaggregation_mode": "decode""#), &["disaggregation_mode", "decode"]);
    refused(&with(r#""cache_report": {"total_cached_tokens": 900}"#), &["total_cached_tokens", "900"]);
    refused(&SGLANG.replace("Infinity", r#""trace""#), &["request_rate", "trace"]);
    refused(&SGLANG.replace(r#""random""#, r#""mooncake""#), &["dataset_name", "mooncake"]);
    refused(&SGLANG.replace(r#""random""#, r#""mmmu""#), &["dataset_name", "mmmu"]);
}

#[test]
fn flags_of_a_sweep_are_the_deployments() {
    let sweep = |flags: &str| format!("[{}]", RESULT.replacen('{', &format!("{{{flags}, "), 1));
    let row = one(
        "r",
        &sweep(r#""tensor-parallel-size": 4, "max_num_seqs": 64, "enforce_eager": true, "run_number": 0"#),
        &plain(),
    )
    .unwrap();
    assert_eq!(row.parallelism.tp, Some(4));
    assert!(row.notes.is_empty(), "{:?}", row.notes);
    refused(&sweep(r#""random_prefix_len": 100"#), &["random_prefix_len", "100"]);
    refused(&sweep(r#""data_parallel_size": 2"#), &["data_parallel_size", "2"]);
    refused(&sweep(r#""speculative_config": "{\"method\": \"ngram\"}""#), &["speculative_config"]);
    assert_eq!(one("r", &sweep(r#""backend": "tgi""#), &plain()).unwrap().engine, "tgi");
    let detailed = sweep(r#""latencies": [0.1], "queue_times": [0.0], "server_ttfts": [0.1]"#);
    assert!(one("r", &detailed, &plain()).unwrap().notes.is_empty());
}

/// 250,000 tokens of 1,000 requests are 250 a request: 200 of prompt leave 50.
#[test]
fn a_throughput_run_needs_one_of_its_lengths() {
    let text = r#"{"model_id": "meta-llama/Llama-3.1-8B-Instruct", "elapsed_time": 10.0, "num_requests": 1000, "total_num_tokens": 250000,
        "requests_per_second": 100.0, "tokens_per_second": 25000.0}"#;
    assert!(recognizes(text));
    refused(text, &["--input-len"]);
    let subject = Subject { input_len: fixed(200), ..plain() };
    let row = one("r", text, &subject).unwrap();
    assert_eq!((row.kind, row.output), (MeasurementKind::OfflineMaxThroughput, fixed(50)));
    assert_eq!(row.measured.total_tok_s, Some(25_000.0));
    let both = Subject { output_len: fixed(100), ..subject };
    let error = one("r", text, &both).unwrap_err().to_string();
    assert!(error.contains("200 + 100") && error.contains("250.0"), "{error}");
    refused(
        r#"{"model_id": "m", "avg_latency": 1.0, "latencies": [1.0], "percentiles": {}}"#,
        &["avg_latency"],
    );
}

#[test]
fn trtllms_issue_rate_is_no_load() {
    let report = r#"{"engine": {"model": "meta-llama/Llama-3.1-8B-Instruct", "version": "1.2", "quantization": "FP8"},
        "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1, "clocks.mem": 2.619},
        "world_info": {"tp_size": 1, "pp_size": 1, "ep_size": 1, "issue_rate": 8.25e16},
        "request_info": {"num_requests": 40, "avg_num_concurrent_requests": 4.0, "avg_input_length": 200.0, "avg_output_length": 50.0},
        "performance": {"avg_request_latency_ms": 361.0}, "streaming_metrics": {"avg_ttft_ms": 18.0, "avg_tpot_ms": 7.0}}"#;
    let row = times(report, "trtllm-bench", EXPECTED);
    assert_eq!((row.kind, row.concurrency), (MeasurementKind::ClosedLoop, Some(4)));
    let unnamed = Subject { hardware: String::new(), ..plain() };
    assert_eq!(one("r", report, &unnamed).unwrap().hardware, "h100-sxm");
    let other = Subject { hardware: "h200-sxm".into(), ..plain() };
    assert!(one("r", report, &other).unwrap_err().to_string().contains("h100-sxm"));
}

#[test]
fn guidellms_pictures_and_turns_are_refused() {
    let run = |more: &str| {
        format!(
            r#"{{"benchmarks": [{{"config": {{"strategy": {{"type_": "synchronous"}}, "requests": {{"data": [{{"kind": "synthetic_text", "prefix_buckets": [{{"prefix_count": 1, "prefix_tokens": 0}}]}}]}}}},
            "metrics": {{{more} "time_to_first_token_ms": {{"successful": {{"mean": 18}}}}, "inter_token_latency_ms": {{"successful": {{"mean": 7}}}}, "request_latency": {{"successful": {{"mean": 0.361, "count": 40}}}},
            "prompt_token_count": {{"successful": {{"mean": 200, "std_dev": 10, "min": 190, "max": 215}}}}, "output_token_count": {{"successful": {{"mean": 50}}}}}}}}]}}"#
        )
    };
    // √3 · 10 = 17.3 is more than 200 − 190.
    assert_eq!(times(&run(""), "guidellm", EXPECTED).input, Some(Lengths { min: 190, max: 210 }));
    refused(&run(r#""turns": [{"turn_index": 0}],"#), &["turn"]);
    refused(&run(r#""image": {"images": {"input": {"successful": {"mean": 2.0}}}},"#), &["image"]);
    refused(&run("").replace("synthetic_text", "mooncake"), &["1 turn"]);
}

/// 512 tokens at 10,000 a second take 51.2 ms; 128 at 150 a second 853.3 ms, 6.667 ms each.
#[test]
fn llama_benchs_table_and_sql() {
    let table = "ggml_cuda_init: found 1 CUDA devices\n\
        | model | size | params | backend | ngl | fa | test | t/s |\n| --- | ---: | ---: | --- | --: | -: | ---: | ---: |\n\
        | llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | CUDA | 99 | 1 | pp512 | 10000.00 ± 20.00 |\n\
        | llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | CUDA | 99 | 1 | tg128 @ d4096 | 150.00 ± 0.50 |\n\nbuild: b114340 (11434)\n";
    assert!(recognizes(table));
    let rows = |text: &str, subject: &Subject| -> Vec<Result<Measurement>> {
        let points = read("r", text, subject, Catalog::embedded().unwrap()).unwrap();
        points.into_iter().map(|point| point.row).collect()
    };
    let read_rows: Vec<Measurement> = rows(table, &plain()).into_iter().map(|row| row.unwrap()).collect();
    assert_eq!((read_rows[0].measured.ttft_ms, read_rows[0].version.as_str()), (Some(51.2), "b11434"));
    assert!((read_rows[1].measured.tpot_ms.unwrap() - 6.667).abs() < 0.001);
    assert_eq!((read_rows[1].context, read_rows[1].weights.as_str()), (Some(4160), "q4_k_m"));
    let wrong = read("r", &table.replace("pp512", "px512"), &plain(), Catalog::embedded().unwrap());
    assert!(wrong.unwrap_err().to_string().contains("r:4"));
    let fast = read("r", &table.replace("10000.00", "1e308"), &plain(), Catalog::embedded().unwrap());
    assert!(fast.unwrap_err().to_string().contains("`t/s` is 1e308; accepted: up to 10^9"));
    let sql = "CREATE TABLE IF NOT EXISTS llama_bench (\n  build_number INTEGER\n);\n\n\
        INSERT INTO llama_bench (build_number, gpu_info, backends, model_type, model_n_params, type_k, type_v, n_gpu_layers, split_mode, tensor_split, devices, tensor_buft_overrides, n_prompt, n_gen, n_depth, avg_ns) \
        VALUES ('11434', 'NVIDIA H100 80GB HBM3, NVIDIA H100 80GB HBM3', 'CUDA', 'llama 8B Q4_K - Medium', '8030261312', 'f16', 'f16', '-1', 'layer', '0.00', 'auto', 'none', '512', '0', '0', '51200000');\n";
    let two = rows(sql, &plain()).remove(0).unwrap();
    assert_eq!(
        (two.measured.ttft_ms, two.parallelism.pp, two.hardware.as_str()),
        (Some(51.2), Some(2), "h100-sxm")
    );
    for (from, to, word) in [
        ("'layer'", "'none'", ""),
        ("'0.00'", "'1.00/0.00'", ""),
        ("'auto'", "'CUDA0'", ""),
        ("'-1'", "'20'", "n_gpu_layers"),
        ("'none', '512'", "'ffn=CPU', '512'", "tensor_buft_overrides"),
        ("HBM3, NVIDIA H100 80GB HBM3", "HBM3, NVIDIA GeForce RTX 4090", "gpu_info"),
        ("'f16', 'f16'", "'f16', 'q8_0'", "type_v"),
        ("'51200000'", "'511'", "avg_ns"),
    ] {
        match rows(&sql.replace(from, to), &plain()).remove(0) {
            Ok(row) => assert!(word.is_empty() && row.parallelism.pp.is_none(), "{to}"),
            Err(error) => assert!(!word.is_empty() && error.to_string().contains(word), "{error}"),
        }
    }
}
