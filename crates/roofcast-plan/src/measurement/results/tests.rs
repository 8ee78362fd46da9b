//! Each client's document, with the arithmetic of what it states.

mod options;

use super::*;
use crate::measurement::{Lengths, MeasurementKind, TpotMean};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::EngineKind;

fn subject() -> Subject {
    Subject {
        model: "llama-3.1-8b".into(),
        hardware: "h100-sxm".into(),
        parallelism: RequestedParallelism { tp: Some(2), ..RequestedParallelism::default() },
        engine: "vllm".into(),
        version: "0.19.0".into(),
        weights: "fp8".into(),
        ..Subject::default()
    }
}

/// A caller that knows model and accelerator alone.
fn plain() -> Subject {
    Subject { model: "llama-3.1-8b".into(), hardware: "h100-sxm".into(), ..Subject::default() }
}

/// The only run of a document.
fn one(place: &str, text: &str, subject: &Subject) -> Result<Measurement> {
    read(place, text, subject, Catalog::embedded()?)?.remove(0).row
}

const RESULT: &str = r#"{"completed": 3, "failed": 0, "num_prompts": 3, "request_rate": "inf", "max_concurrency": 2,
    "total_input_tokens": 900, "total_output_tokens": 30, "input_lens": [100, 200, 600], "output_lens": [10, 10, 10],
    "mean_ttft_ms": 20.5, "mean_tpot_ms": 4.0, "mean_e2el_ms": 56.5}"#;

#[test]
fn a_result_is_a_closed_loop_of_its_users() {
    let row = one("c2.json", RESULT, &subject()).unwrap();
    assert_eq!((row.kind, row.concurrency, row.request_rate), (MeasurementKind::ClosedLoop, Some(2), None));
    // The mean is 900/3 = 300; 300 − 100 = 200 is less than 600 − 300, so the range is 100 to 500.
    assert_eq!(row.input, Some(Lengths { min: 100, max: 500 }));
    assert_eq!(row.output, Some(Lengths { min: 10, max: 10 }));
    let [ttft, tpot, e2e, output, total] = row.measured.all();
    assert_eq!((ttft, tpot, e2e, output, total), (Some(20.5), Some(4.0), Some(56.5), None, None));
    assert_eq!((row.options(None).parallelism.tp, row.median), (Some(2), false));
}

#[test]
fn a_rate_is_an_open_loop_and_neither_is_a_burst() {
    let load = |from: &str, to: &str| one("x", &RESULT.replace(from, to), &subject()).unwrap();
    let capped = load(r#""inf""#, "2.5");
    assert_eq!(
        (capped.kind, capped.concurrency, capped.request_rate),
        (MeasurementKind::OpenLoop, Some(2), Some(2.5))
    );
    let open = load(r#""inf", "max_concurrency": 2"#, r#"2.5, "max_concurrency": null"#);
    assert_eq!(
        (open.kind, open.concurrency, open.request_rate),
        (MeasurementKind::OpenLoop, None, Some(2.5))
    );
    let burst = load(r#""max_concurrency": 2,"#, "");
    assert_eq!((burst.kind, burst.concurrency), (MeasurementKind::BurstAllAtOnce, Some(3)));
    // Without lists of lengths, only the means are known: 900/3 and 30/3.
    let bare = load(r#""input_lens": [100, 200, 600], "output_lens": [10, 10, 10],"#, "");
    assert_eq!(bare.input, Some(Lengths { min: 300, max: 300 }));
}

#[test]
fn wrong_results_name_file_and_field() {
    for (from, to, says) in [
        (r#""completed": 3"#, r#""completed": 0"#, "completed"),
        (r#""completed": 3"#, r#""completed": "3""#, "completed"),
        (r#""failed": 0"#, r#""failed": 1"#, "1 %"),
        (r#""max_concurrency": 2"#, r#""max_concurrency": 100001"#, "100000"),
        (r#""max_concurrency": 2"#, r#""max_concurrency": 0.5"#, "max_concurrency"),
        ("900", "90000003", "10000000"),
        ("900", "null", "total_input_tokens"),
        ("[10, 10, 10]", "[10, -1]", "output_lens"),
        (r#""inf""#, r#""fast""#, "request_rate"),
        (r#"{"completed""#, r#"{"valid": false, "completed""#, "valid"),
        (r#""mean_ttft_ms": 20.5, "mean_tpot_ms": 4.0, "mean_e2el_ms": 56.5"#, r#""a": 1"#, "mean_ttft_ms"),
        (r#"{"completed""#, r#"{"completed"#, "line 1"),
    ] {
        let error = one("r.json", &RESULT.replacen(from, to, 1), &subject()).unwrap_err().to_string();
        assert!(error.contains("r.json") && error.contains(says), "{to}: {error}");
    }
    assert!(one("r.json", "[]", &subject()).unwrap_err().to_string().contains("r.json"));
}

/// Asserts client, TTFT, TPOT and E2EL of the only run of `text`.
fn times(text: &str, client: &str, expected: [Option<f64>; 3]) -> Measurement {
    let mut points = read("r", text, &plain(), Catalog::embedded().unwrap()).unwrap();
    assert_eq!((points.len(), points[0].client), (1, client));
    let row = points.remove(0).row.unwrap();
    let close = |(found, expected): (Option<f64>, Option<f64>)| match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
        (found, expected) => found == expected,
    };
    let times = [row.measured.ttft_ms, row.measured.tpot_ms, row.measured.e2e_ms];
    assert!(times.into_iter().zip(expected).all(close), "{client}: {times:?}");
    row
}

fn fixed(tokens: u64) -> Option<Lengths> {
    Some(Lengths { min: tokens, max: tokens })
}

/// Asserts that the only run of `text` is refused with all these words.
fn refused(text: &str, words: &[&str]) {
    let error = one("r", text, &plain()).unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn keys_that_change_the_load_are_used_or_refused() {
    let with = |more: &str| RESULT.replacen('{', &format!("{{{more}, "), 1);
    for (more, word) in [
        (r#""ramp_up_strategy": "linear""#, "ramp_up_strategy"),
        (r#""use_beam_search": true"#, "use_beam_search"),
        (r#""best_of": 4"#, "best_of"),
        (r#""spec_decode_acceptance_length": 2.4"#, "spec_decode_acceptance_length"),
        (r#""model_id": "Qwen/Qwen3-32B""#, "model_id"),
    ] {
        refused(&with(more), &[word]);
    }
    let drafting = Subject { drafts: true, ..plain() };
    assert!(one("r", &with(r#""spec_decode_acceptance_length": 2.4"#), &drafting).is_ok());
    let same = one("r", &with(r#""model_id": "meta-llama/Llama-3.1-8B-Instruct""#), &plain()).unwrap();
    assert!(same.notes.is_empty());
    let foreign =
        one("r", &with(r#""model_id": "mine", "gpu_count": 4, "p99.9_ttft_ms": 3"#), &plain()).unwrap();
    assert!(foreign.notes.iter().any(|note| note.contains("mine")), "{:?}", foreign.notes);
    assert!(foreign.notes.iter().any(|note| note.ends_with(": gpu_count")), "{:?}", foreign.notes);
    let fp8 = one("r", &with(r#""model_id": "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8""#), &plain()).unwrap();
    assert_eq!(fp8.weights, "fp8");
    // Gaps are bursty only with a rate.
    let bursty = with(r#""burstiness": 0.5"#).replace(r#""inf", "max_concurrency": 2"#, "4.0");
    let row = one("r", &bursty, &plain()).unwrap();
    assert_eq!(row.settings.pattern, crate::measurement::settings::Pattern::Gamma(0.5));
}

#[test]
fn results_of_bench_carry_their_load() {
    let carried = |arrivals: &str| {
        let load = format!(
            r#""workload": {{"requests": 3, "seed": 0, "arrivals": {arrivals}, "input_len": 300, "output_len": 10, "prefix": null}}"#
        );
        RESULT.replacen('{', &format!(r#"{{"schema": "roofcast/bench/2", {load}, "#), 1)
    };
    let turns = r#"{"kind": "sessions", "concurrency": 2, "turns": 6, "rate": null, "think_s": null}"#;
    let row = one("r", &carried(turns), &plain()).unwrap();
    assert!(row.workload.is_some() && row.may_hit() && row.kind == MeasurementKind::ClosedLoop);
    let poisson = carried(r#"{"kind": "poisson", "rate": 2.0}"#);
    assert!(!one("r", &poisson, &plain()).unwrap().may_hit());
    refused(&carried(r#"{"kind": "sometimes"}"#), &["workload", "sometimes"]);
    // Without its load, a result of an earlier version says what it forecast itself.
    let old = RESULT.replacen(
        '{',
        r#"{"schema": "roofcast/bench/2", "forecast": {"mean_ttft_ms": 237.33, "mean_tpot_ms": 14.528}, "#,
        1,
    );
    refused(&old, &["workload", "237.3", "14.53"]);
}

/// 40 requests of 200 and 50 tokens.
const SGLANG: &str = r#"{"backend": "sglang-oai-chat", "dataset_name": "random", "request_rate": Infinity, "max_concurrency": 4, "sharegpt_output_len": null,
    "random_input_len": 200, "random_output_len": 50, "random_range_ratio": 1.0, "completed": 40, "total_input_tokens": 8000,
    "total_output_tokens": 2000, "mean_e2e_latency_ms": 361.0, "mean_ttft_ms": 18.0, "mean_tpot_ms": 7.0, "accept_length": null, "std_itl_ms": NaN}"#;

#[test]
fn sglang_writes_lines_and_numbers_outside_json() {
    let row = times(SGLANG, "SGLang", [Some(18.0), Some(7.0), Some(361.0)]);
    assert_eq!(
        (row.engine.as_str(), row.concurrency, row.input, row.output),
        ("sglang", Some(4), fixed(200), fixed(50))
    );
    let line = SGLANG.replace('\n', "");
    let both = read("r", &format!("{line}\n\n{line}\n"), &plain(), Catalog::embedded().unwrap()).unwrap();
    assert_eq!(both.iter().filter(|point| point.row.is_ok()).count(), 2);
    // Half of 200 · (1 − 0.5) = 50 on either side of the mean.
    let half = SGLANG.replace(r#""random_range_ratio": 1.0"#, r#""random_range_ratio": 0.5"#);
    assert_eq!(one("r", &half, &plain()).unwrap().input, Some(Lengths { min: 150, max: 250 }));
    refused(
        &SGLANG.replace(r#""accept_length": null"#, r#""accept_length": 2.7"#),
        &["accept_length", "2.7"],
    );
    refused(&SGLANG.replace(r#""random""#, r#""generated-shared-prefix""#), &["dataset_name"]);
    let error = one("r", SGLANG, &subject()).unwrap_err().to_string();
    assert!(error.contains("engine") && error.contains("sglang"), "{error}");
}

#[test]
fn aiperf_and_genai_perf() {
    // Schema 1.0: 4 requests of 100 and 8 tokens, users under `loadgen`.
    let old = r#"{"request_count": {"unit": "requests", "avg": 4},
        "time_to_first_token": {"unit": "ms", "avg": 20, "p50": 19, "p99": 40},
        "inter_token_latency": {"unit": "ms", "avg": 5}, "input_sequence_length": {"avg": 100},
        "output_sequence_length": {"avg": 8}, "input_config": {"loadgen": {"concurrency": 2}}}"#;
    let row = times(old, "aiperf", [Some(20.0), Some(5.0), None]);
    let seconds = old.replacen(r#""unit": "ms", "avg": 20"#, r#""unit": "s", "avg": 0.02"#, 1);
    times(&seconds, "aiperf", [Some(20.0), Some(5.0), None]);
    refused(&old.replacen(r#""ms""#, r#""fortnight""#, 1), &["time_to_first_token/unit", "fortnight", "ms"]);
    refused(&old.replacen(r#""ms""#, "7", 1), &["time_to_first_token/unit", "7"]);
    assert_eq!((row.concurrency, row.input, row.output), (Some(2), fixed(100), fixed(8)));
    // Schema 1.5: totals are separate; there are two phases, of which the first warms up; the users bound a rate.
    let new = r#"{"schema_version": "1.5", "request_count": {"avg": 400}, "error_request_count": {"avg": 1},
        "request_latency": {"unit": "sec", "avg": 1.5}, "total_isl": {"avg": 41000}, "total_osl": {"avg": 3300},
        "input_config": {"phases": [{"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 1},
        {"name": "load", "kind": "profiling", "type": "gamma", "smoothness": 2.0, "rate": 2.5, "concurrency": 64}]}}"#;
    let row = times(new, "aiperf", [None, None, Some(1500.0)]);
    assert_eq!(
        (row.kind, row.request_rate, row.concurrency),
        (MeasurementKind::OpenLoop, Some(2.5), Some(64))
    );
    assert_eq!(row.settings.pattern, crate::measurement::settings::Pattern::Gamma(2.0));
    refused(&new.replace(r#""rate": 2.5"#, r#""rate": 2.5, "rate_ramp": {"duration": 5}"#), &["rate_ramp"]);
    refused(&new.replace(r#""phases""#, r#""datasets": [{"turns": {"mean": 3}}], "phases""#), &["turn"]);
    let genai = old.replace(
        r#"{"loadgen": {"concurrency": 2}}"#,
        r#"{"model_names": ["llama-3.1-8b"], "perf_analyzer": {"stimulus": {"concurrency": 3}}, "input": {"prefix_prompt": {"num": 1, "length": 100}}}"#,
    );
    refused(&genai, &["prefix"]);
    let genai = genai.replace(r#""num": 1"#, r#""num": 0"#);
    assert_eq!(times(&genai, "genai-perf", [Some(20.0), Some(5.0), None]).concurrency, Some(3));
}

#[test]
fn guidellm_weighs_its_tpot_by_tokens() {
    let metrics = r#""time_to_first_token_ms": {"successful": {"mean": 30}}, "time_per_output_token_ms": {"successful": {"mean": 9}},
        "inter_token_latency_ms": {"successful": {"mean": 7}}, "request_latency": {"successful": {"mean": 1.5, "count": 200}},
        "prompt_token_count": {"successful": {"mean": 50}}, "output_token_count": {"successful": {"mean": 20}}"#;
    let counts = r#"{"successful": 200, "incomplete": 2, "errored": 1, "total": 203}"#;
    let strategy = r#"{"strategy": {"type_": "concurrent", "streams": 3}}"#;
    let report = |run: String| format!(r#"{{"benchmarks": [{{{run}}}]}}"#);
    for run in [
        format!(r#""config": {strategy}, "metrics": {{"request_totals": {counts}, {metrics}}}"#),
        format!(
            r#""scheduler": {strategy}, "scheduler_stats": {{"requests_made": {counts}}}, "metrics": {{{metrics}}}"#
        ),
        format!(
            r#""args": {strategy}, "run_stats": {{"requests_made": {counts}}}, "metrics": {{{metrics}}}"#
        ),
    ] {
        let row = times(&report(run), "guidellm", [Some(30.0), Some(7.0), Some(1500.0)]);
        assert_eq!((row.concurrency, row.input, row.output), (Some(3), fixed(50), fixed(20)));
        assert!(row.tpot_mean == TpotMean::Tokens && row.notes[0].contains("weighs"));
    }
    let rated =
        |strategy: &str| report(format!(r#""config": {{"strategy": {strategy}}}, "metrics": {{{metrics}}}"#));
    let row = times(
        &rated(r#"{"type_": "constant", "rate": 4.0}"#),
        "guidellm",
        [Some(30.0), Some(7.0), Some(1500.0)],
    );
    assert_eq!(
        (row.request_rate, row.settings.pattern),
        (Some(4.0), crate::measurement::settings::Pattern::Constant)
    );
    refused(&rated(r#"{"type_": "trace"}"#), &["type_", "trace"]);
    refused(&rated(r#"{"type_": "concurrent", "streams": 3, "rampup_duration": 5.0}"#), &["rampup_duration"]);
    let turns = format!(
        r#""config": {{"strategy": {{"type_": "synchronous"}}, "requests": {{"data": ["prompt_tokens=50,turns=4"]}}}}, "metrics": {{{metrics}}}"#
    );
    refused(&report(turns), &["turn"]);
}

#[test]
fn inference_perf_and_evalscope_report_seconds() {
    let stage = r#"{"load_summary": {"count": 100, "requested_rate": 8.0, "achieved_rate": 7.9}, "successes": {"count": 100,
        "latency": {"request_latency": {"mean": 0.361}, "time_to_first_token": {"mean": 0.018}, "time_per_output_token": {"mean": 0.007},
        "inter_token_latency": {"mean": 0.002, "median": 0.0}}, "prompt_len": {"mean": 200.0}, "output_len": {"mean": 50.0}}, "failures": {"count": 0}}"#;
    let row = times(stage, "inference-perf", [Some(18.0), Some(7.0), Some(361.0)]);
    assert_eq!((row.request_rate, row.input, row.output), (Some(8.0), fixed(200), fixed(50)));
    refused(&stage.replace(r#""requested_rate": 8.0, "#, ""), &["requested_rate", "stage_N"]);
    let summary = r#"{"Test Duration (s)": 3.61, "Concurrency": 4, "Request Rate (req/s)": -1.0, "Total Requests": 40, "Success Requests": 40,
        "Failed Requests": 0, "Avg Latency (s)": 0.361, "Avg Input Tokens": 200.0, "Avg Output Tokens": 50.0, "Avg TTFT (ms)": 18.0,
        "Avg TPOT (ms)": 7.0, "Avg ITL (ms)": 7.0}"#;
    let row = times(summary, "evalscope", [Some(18.0), Some(7.0), Some(361.0)]);
    assert_eq!((row.kind, row.concurrency), (MeasurementKind::ClosedLoop, Some(4)));
    refused(&summary.replacen('{', r#"{"Avg Turns/Request": 4.0, "#, 1), &["Avg Turns/Request"]);
    for (key, time) in [("Avg TTFT (ms)", "18.0"), ("Avg TPOT (ms)", "7.0"), ("Avg Latency (s)", "0.361")] {
        refused(&summary.replace(&format!("{key}\": {time}"), &format!("{key}\": -{time}")), &[key, time]);
    }
}

#[test]
fn trtllm_and_inferencex_state_their_deployment() {
    let report = r#"{"engine": {"model": "meta-llama/Llama-3.1-8B-Instruct", "version": "1.2", "kv_cache_dtype": "FP8", "quantization": "FP8"},
        "world_info": {"tp_size": 1, "pp_size": 1, "ep_size": 1, "max_batch_size": 64, "max_num_tokens": 2048, "issue_rate": "∞"},
        "request_info": {"num_requests": 40, "avg_num_concurrent_requests": 4.0, "avg_input_length": 200.0, "avg_output_length": 50.0},
        "performance": {"avg_request_latency_ms": 361.0}, "streaming_metrics": {"avg_ttft_ms": 18.0, "avg_tpot_ms": 7.0}}"#;
    let row = times(report, "trtllm-bench", [Some(18.0), Some(7.0), Some(361.0)]);
    assert_eq!((row.engine.as_str(), row.weights.as_str(), row.kv.as_str()), ("tensorrt-llm", "fp8", "fp8"));
    assert_eq!((row.kind, row.concurrency), (MeasurementKind::ClosedLoop, Some(4)));
    for key in ["tp_size", "pp_size"] {
        refused(&report.replace(&format!("{key}\": 1"), &format!("{key}\": 0")), &[key, "is 0"]);
    }
    // 39 of 40 in flight on average: all are queued at once.
    let burst = one("r", &report.replace("requests\": 4.0", "requests\": 39.0"), &plain()).unwrap();
    assert_eq!((burst.kind, burst.concurrency), (MeasurementKind::BurstAllAtOnce, Some(40)));
    let point = r#"{"hw": "h100", "tp": 2, "ep": 1, "dp_attention": "false", "conc": 64, "model": "meta-llama/Llama-3.1-8B-Instruct",
        "framework": "vllm", "precision": "fp8", "spec_decoding": "none", "isl": 1024, "osl": 1024, "tput_per_gpu": 900.0,
        "mean_ttft": 0.05, "mean_tpot": 0.012, "mean_intvty": 83.3, "mean_e2el": 12.4}"#;
    let row = times(point, "InferenceX", [Some(50.0), Some(12.0), Some(12_400.0)]);
    assert_eq!(
        (row.parallelism.tp, row.weights.as_str(), row.input),
        (Some(2), "fp8", Some(Lengths { min: 819, max: 1024 }))
    );
    refused(&point.replace(r#""h100""#, r#""b200""#), &["hardware", "b200"]);
    refused(&point.replace(r#""none""#, r#""mtp""#), &["spec_decoding", "mtp"]);
    refused(&point.replace(r#""isl": 1024, "#, ""), &["--input-len"]);
    let tp1 = Subject {
        parallelism: RequestedParallelism { tp: Some(1), ..RequestedParallelism::default() },
        ..plain()
    };
    assert!(one("r", point, &tp1).unwrap_err().to_string().contains("`tp` is 2"));
}

/// A prompt of 512 tokens in 51.2 ms; 128 steps in 853.333 ms, 6.667 ms each, from a context of 0 to 128 tokens.
#[test]
fn llama_bench_in_three_forms() {
    let test = |prompt: u64, answer: u64, ns: u64| {
        format!(r#"{{"build_number": 11434, "gpu_info": "NVIDIA H100 80GB HBM3", "backends": "CUDA", "model_type": "llama 8B Q4_K - Medium",
            "model_n_params": 8030261312, "n_ubatch": 512, "type_k": "f16", "n_gpu_layers": 99, "n_prompt": {prompt}, "n_gen": {answer}, "n_depth": 0, "avg_ns": {ns}}}"#)
            .replace('\n', "")
    };
    let [prompt, answer] = [test(512, 0, 51_200_000), test(0, 128, 853_333_333)];
    let header = "build_number,gpu_info,backends,model_type,model_n_params,n_ubatch,type_k,n_gpu_layers,n_prompt,n_gen,n_depth,avg_ns";
    let cells = "11434,NVIDIA H100 80GB HBM3,CUDA,llama 8B Q4_K - Medium,8030261312,512,f16,99";
    let table = format!("{header}\n{cells},512,0,0,51200000\n{cells},0,128,0,853333333\n");
    for text in [format!("[{prompt}, {answer}]"), format!("{prompt}\n{answer}\n"), table] {
        assert!(recognizes(&text));
        let subject = Subject { hardware: String::new(), ..plain() };
        let points = read("r", &text, &subject, Catalog::embedded().unwrap()).unwrap();
        let rows: Vec<Measurement> = points.into_iter().map(|point| point.row.unwrap()).collect();
        assert_eq!(
            rows.iter().map(|row| row.kind).collect::<Vec<_>>(),
            [MeasurementKind::Prefill, MeasurementKind::DecodeStep]
        );
        assert_eq!((rows[0].measured.ttft_ms, rows[0].input), (Some(51.2), fixed(512)));
        assert!((rows[1].measured.tpot_ms.unwrap() - 6.667).abs() < 0.001 && rows[1].context == Some(64));
        assert!(rows.iter().all(|row| EngineKind::of(&row.engine) == EngineKind::LlamaCpp
            && row.weights == "q4_k_m"
            && row.hardware == "h100-sxm"));
    }
    refused(&prompt.replace("8030261312", "32762123264"), &["model_n_params"]);
    refused(&prompt.replace(r#""n_depth": 0"#, r#""n_depth": 4096"#), &["n_depth"]);
    let batch = r#"{"n_kv_max": 4096, "is_pp_shared": 0, "pp": 128, "tg": 64, "pl": 8, "n_kv": 1536, "t_pp": 0.08, "t_tg": 0.64, "t": 0.72}"#;
    let row = times(batch, "llama-batched-bench", [Some(80.0), Some(10.0), None]);
    assert_eq!((row.kind, row.concurrency), (MeasurementKind::StaticBatchPhases, Some(8)));
    refused(&batch.replace(r#""is_pp_shared": 0"#, r#""is_pp_shared": 1"#), &["is_pp_shared"]);
    refused(&batch.replacen('{', r#"{"n_gpu_layers": 20, "#, 1), &["n_gpu_layers", "20"]);
}

/// 250 tokens/s over 5 samples/s are 50 tokens each.
#[test]
fn mlperfs_summary_lacks_prompt_lengths() {
    let text = "================\nMLPerf Results Summary\n================\nSUT name : PySUT\nScenario : Server\nMode     : PerformanceOnly\n\
        Completed samples per second    : 5.00\nResult is : VALID\n  Performance constraints satisfied : Yes\n\
        Scheduled samples per second : 5.10\nMean latency (ns)               : 361000000\n\
        Completed tokens per second                 : 250.00\nMean First Token latency (ns)               : 18000000\n\
        Mean Time to Output Token (ns)               : 7000000\n";
    assert!(recognizes(text));
    refused(text, &["--input-len"]);
    let subject = Subject { input_len: fixed(200), ..plain() };
    let row = one("r", text, &subject).unwrap();
    assert_eq!((row.kind, row.request_rate, row.output), (MeasurementKind::OpenLoop, Some(5.1), fixed(50)));
    assert_eq!(
        (row.measured.ttft_ms, row.measured.tpot_ms, row.measured.e2e_ms),
        (Some(18.0), Some(7.0), Some(361.0))
    );
    refused(&text.replace("VALID", "INVALID"), &["Result is", "INVALID"]);
}

#[test]
fn what_no_client_wrote_is_refused() {
    for wrong in ["{}", "[]", "3", r#"{"benchmarks": []}"#, "[1]", r#"{"a": 1}"#] {
        let error = read("w.json", wrong, &plain(), Catalog::embedded().unwrap()).unwrap_err().to_string();
        assert!(error.contains("w.json") && error.contains("guidellm"), "{wrong}: {error}");
        assert!(!recognizes(wrong), "{wrong}");
    }
}
