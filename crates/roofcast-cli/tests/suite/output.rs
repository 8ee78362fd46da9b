//! Output of the verbs: figures checked by hand, documented keys, tables as people see them.

use crate::schemas::assert_conforms;
use crate::support::{json, roofcast, root};

fn near(found: &serde_json::Value, expected: f64, share: f64) {
    let found = found.as_f64().unwrap();
    assert!((found / expected - 1.0).abs() <= share, "{found} is not within {share} of {expected}");
}

/// By hand: 7.505e9 weights without the embedding · 2 B = 15.01 GB at 3.35 TB/s = 4.48 ms, and per sequence 2048 ·
/// 131,072 B = 268 MB = 0.0801 ms of KV: 4.56, 7.04 and 14.74 ms at batch 1, 32 and 128.
#[test]
fn llama_8b_on_an_h100() {
    let base = "limits --model meta-llama/Llama-3.1-8B-Instruct --hardware h100-sxm --count 1 --tp 1 --weights bf16 --kv 16 --context 2048";
    for (batch, ms) in [(1, 4.56), (32, 7.045), (128, 14.74)] {
        let (answer, _) = json(&format!("{base} --batch {batch}"));
        near(&answer["decode"]["limit_ms"], ms, 0.001);
        assert_eq!(answer["decode"]["bound"], "memory");
    }
    // By hand: 2 · 6.979e9 · 2048 FLOPs in matrices + 4 · 32 · 4096 · 2048 · 2049/2 in attention = 29.69 TFLOP at 989.4
    // TFLOP/s = 30.0 ms, and lm_head's 1.05 GB for one row: 0.31 ms.
    let (answer, _) = json(&format!("{base} --prefill 2048"));
    near(&answer["prefill"]["limit_ms"], 30.32, 0.001);
    assert_eq!(answer["prefill"]["bound"], "compute");
}

/// By hand: 68.45e9 weights in 8 bits + lm_head's 1.05e9 in 16 = 70.55 GB, KV 64 · 4096 · 163,840 B = 42.95 GB, over 4
/// · 3.35 TB/s = 8.47 ms; links: 160 all-reduces of 64 · 8192 · 2 B, each times 3/2 at 450 GB/s = 0.559 ms.
#[test]
fn llama_70b_on_four_h100() {
    let (answer, _) = json(
        "limits --model meta-llama/Llama-3.1-70B-Instruct --hardware h100-sxm --count 4 --tp 4 --weights fp8 --kv 8 --batch 64 --context 4096",
    );
    near(&answer["decode"]["limit_ms"], 8.470, 0.001);
    near(&answer["decode"]["terms"]["communication_ms"], 0.5592, 0.001);
    near(&answer["decode"]["limit_with_communication_ms"], 9.029, 0.001);
}

/// Eight KV heads on 16 accelerators. On TPUs KV is divided evenly: (68.45e9 + 2 · 1.05e9 B of weights + 32 · 8192 ·
/// 163,840 B of KV) / (16 · 819 GB/s) = 8.66 ms. On GPUs the heads are replicated, so KV traffic is twice as large.
#[test]
fn kv_heads_beyond_their_number() {
    let base =
        "limits --model meta-llama/Meta-Llama-3-70B --count 16 --tp 16 --kv 8 --batch 32 --context 8192";
    let (tpu, _) = json(&format!("{base} --hardware tpu-v5e --weights int8"));
    near(
        &tpu["decode"]["limit_ms"],
        (68.452e9 + 2.0 * 1.0507e9 + 32.0 * 8192.0 * 163_840.0) / (16.0 * 819e9) * 1e3,
        0.002,
    );
    let (gpu, _) = json(&format!("{base} --hardware h100-sxm --weights w8"));
    near(&gpu["decode"]["terms"]["kv_ms"], 32.0 * 8192.0 * 163_840.0 / (8.0 * 3.35e12) * 1e3, 0.001);
}

#[test]
fn mfu_scales_compute_alone() {
    let base = "limits --model llama-3.1-8b --hardware h100-sxm --context 2048";
    let (full, _) = json(base);
    let (part, _) = json(&format!("{base} --mfu 0.4"));
    assert_eq!(full["decode"]["limit_ms"], part["decode"]["limit_ms"]);
    near(
        &part["prefill"]["terms"]["flops_ms"],
        full["prefill"]["terms"]["flops_ms"].as_f64().unwrap() / 0.4,
        1e-6,
    );
    // The bottleneck of an operator is named even if the operator is slowed down.
    let qkv =
        part["prefill"]["operators"].as_array().unwrap().iter().find(|o| o["name"] == "qkv_proj").unwrap();
    assert_eq!(qkv["bound"], "compute");
}

#[test]
fn capacity_without_reserves_by_hand() {
    // (16e9 · 16 − 72.66e9) / (8192 · 163,840 B) = 136.6: 136 sequences; weights: 68.45e9 + 2 · 2.1e9 B.
    let (answer, code) = json(
        "capacity --model meta-llama/Meta-Llama-3-70B --hardware tpu-v5e --count 16 --weights int8 --kv 8 --context 8192 --batch 32 --ideal",
    );
    assert_eq!(
        (code, answer["max_batch"].as_u64(), answer["min_accelerators"].as_u64()),
        (0, Some(136), Some(8))
    );
}

/// Rows of a step sum to the step, at the limit and as forecast, in CSV and in JSON: operators, and the times beside them.
#[test]
fn rows_of_a_step_sum_to_it() {
    let machines = [
        "--model openai/gpt-oss-120b --hardware b200 --count 8 --batch 512",
        "--model deepseek-ai/DeepSeek-V3 --hardware h200-sxm --count 8 --batch 64 --engine sglang",
        "--model llama-3.1-8b --hardware h100-sxm --batch 1 --enforce-eager",
    ];
    for machine in machines {
        let question = format!("limits {machine} --context 2048");
        let (answer, _) = json(&question);
        let csv = roofcast(&format!("{question} --csv")).out;
        let mut rows = csv::Reader::from_reader(csv.as_bytes());
        let names = rows.headers().unwrap().clone();
        let column = |name: &str| names.iter().position(|column| column == name).unwrap();
        let records: Vec<_> = rows.records().map(Result::unwrap).collect();
        for phase in ["decode", "prefill"] {
            let cost = &answer[phase];
            for (name, whole) in [("limit_ms", "limit_with_communication_ms"), ("forecast_ms", "forecast_ms")]
            {
                let of_phase = records.iter().filter(|record| &record[0] == phase);
                let sum: f64 = of_phase.map(|record| record[column(name)].parse::<f64>().unwrap()).sum();
                near(&cost[whole], sum, 1e-6);
            }
            let operators = cost["operators"].as_array().unwrap().iter();
            let operators: f64 = operators.map(|operator| operator["forecast_ms"].as_f64().unwrap()).sum();
            let beside = cost["beside"].as_object().unwrap().values();
            near(&cost["forecast_ms"], operators + beside.map(|ms| ms.as_f64().unwrap()).sum::<f64>(), 1e-6);
            let rate = answer[format!("{phase}_forecast_tokens_per_s")].as_f64().unwrap();
            let tokens = if phase == "decode" { answer["batch"].as_f64() } else { answer["prompt"].as_f64() };
            near(&cost["forecast_ms"], tokens.unwrap() * 1e3 / rate, 1e-6);
        }
    }
}

/// One process of vLLM's server streams 512 tokens a step in 80 µs each: 40.96 ms, which the device does not need. Two, three, …
/// processes divide that, until the device determines the step.
#[test]
fn a_server_s_messages_are_named_with_the_flag_that_divides_them() {
    let question = "limits --model openai/gpt-oss-120b --hardware b200 --count 8 --batch 512 --context 2048";
    let (answer, _) = json(question);
    let decode = &answer["decode"];
    near(&decode["forecast_ms"], 512.0 * 0.080, 1e-6);
    assert_eq!(decode["forecast_bound"], "server");
    let flag = decode["lifted_by"].as_str().unwrap();
    assert!(flag.starts_with("--api-server-count "), "{flag}");
    let text = roofcast(question).out;
    assert!(text.contains("server-bound") && text.contains(flag), "{text}");
    let (lifted, _) = json(&format!("{question} {flag}"));
    assert_ne!(lifted["decode"]["forecast_bound"], "server", "{lifted}");
    assert_eq!(lifted["decode"]["lifted_by"], serde_json::Value::Null);
    let run = "simulate --model openai/gpt-oss-120b --hardware b200 --count 4 --concurrency 512 --requests 600 \
               --input-len 256 --output-len 256";
    let (slow, _) = json(run);
    assert_eq!(slow["bound"], "server");
    let seconds = |answer: &serde_json::Value, name: &str| answer["time"][name].as_f64().unwrap();
    let of_server = |answer: &serde_json::Value| {
        let parts = ["memory_s", "compute_s", "communication_s", "host_s", "server_s", "swap_s"];
        seconds(answer, "server_s") / parts.map(|name| seconds(answer, name)).iter().sum::<f64>()
    };
    assert!(of_server(&slow) > 0.5 && seconds(&slow, "overlapped_s") < seconds(&slow, "server_s"));
    // Two processes divide the messages of each step by two; of the mean step the device then takes longer.
    assert_eq!(slow["lifted_by"], "--api-server-count 2");
    let (fast, _) = json(&format!("{run} --api-server-count 2"));
    assert!(seconds(&fast, "server_s") <= 0.5 * seconds(&slow, "server_s"), "{}", fast["time"]);
}

#[test]
fn sweeps_print_a_row_a_point_and_nothing_else_in_a_pipe() {
    let run = roofcast("limits --model llama-3.1-8b --hardware h100-sxm --sweep batch=1..1000 --csv");
    assert_eq!((run.out.lines().count(), run.err.as_str()), (1001, ""));
    let (answer, _) = json("limits --model llama-3.1-8b --hardware h100-sxm --sweep tp=1,2,3,8");
    let points = answer["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|p| p["values"][0].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 8]);
}

/// A row for every combination of the values, the last key varying fastest; a key of the spec makes a deployment of its
/// own.
#[test]
fn limits_are_swept_over_several_keys() {
    let base = "limits --model llama-3.1-8b --hardware h100-sxm";
    let (answer, code) = json(&format!("{base} --sweep weights=bf16,fp8 --sweep batch=1,8 --context 2048"));
    assert_eq!((code, &answer["sweep"]), (0, &serde_json::json!(["precision.weights", "batch"])));
    let points = answer["points"].as_array().unwrap();
    let values: Vec<_> = points.iter().map(|p| p["values"].clone()).collect();
    assert_eq!(
        serde_json::json!(values),
        serde_json::json!([["bf16", 1], ["bf16", 8], ["fp8", 1], ["fp8", 8]])
    );
    for (point, flags) in points.iter().zip(["--weights bf16", "", "", "--weights fp8 --batch 8"]) {
        if !flags.is_empty() {
            let (one, _) = json(&format!("{base} --context 2048 {flags}"));
            assert_eq!(point["limit_ms"], one["decode"]["limit_ms"], "{flags}");
            assert_eq!(point["forecast_ms"], one["decode"]["forecast_ms"], "{flags}");
        }
    }
    // Both values of tp have rows, and each position follows a prompt.
    let run =
        roofcast(&format!("{base} --sweep tp=1,2 --sweep prefill=512,1024 --sweep position=1..3 --csv"));
    let rows: Vec<&str> = run.out.lines().collect();
    assert!(rows[0].starts_with("tp,prefill,position,limit_ms"), "{}", rows[0]);
    assert_eq!((rows.len(), rows[1].split(',').take(3).collect::<Vec<_>>()), (13, vec!["1", "512", "1"]));
    let run = roofcast("limits --model llama-3.1-8b --sweep hardware=h100-sxm,h200-sxm");
    assert!(run.code == 0 && run.out.contains("h200-sxm"), "{}{}", run.out, run.err);
}

/// A run whose requests are all refused has no latencies, and its exit code reports it.
#[test]
fn a_run_without_an_answer_has_no_latencies() {
    let long = "simulate --requests 5 --input-len 200000 --output-len 10 --rate 1";
    let (answer, code) = json(long);
    assert_eq!((code, &answer["refused"], &answer["completed"]), (4, &5.into(), &0.into()));
    for key in ["mean_ttft_ms", "p99_tpot_ms", "median_e2el_ms", "p99_itl_ms"] {
        assert!(answer[key].is_null(), "{key}: {}", answer[key]);
    }
    let csv = roofcast(&format!("{long} --csv"));
    assert_eq!((csv.code, csv.out.lines().nth(1)), (4, Some("ttft,,,,,,,false")));
    let swept = roofcast(&format!("{long} --sweep seed=1,2 --csv"));
    let [header, row] =
        [0, 1].map(|line| swept.out.lines().nth(line).unwrap().split(',').collect::<Vec<_>>());
    let at = |name: &str| row[header.iter().position(|column| *column == name).unwrap()];
    assert_eq!((swept.code, at("refused"), at("p99_ttft_ms"), at("mean_tpot_ms")), (4, "5", "", ""));
}

#[test]
fn the_default_plan_prints_limits_capacity_and_a_ranked_table() {
    let run = roofcast("plan --all");
    assert_eq!(run.code, 0, "{}", run.err);
    let parts = ["decode step", "prefill", "capacity", "Pareto", "/M output tokens", "vllm serve"];
    for part in
        parts.into_iter().chain(["data behind the forecasts", "kernels of vllm", "not searched, though"])
    {
        assert!(run.out.contains(part), "{part} is not in {}", run.out);
    }
    assert_eq!(run.err, "", "progress in a pipe");
}

#[test]
fn no_chosen_plan_beats_its_limit_or_breaks_its_slo() {
    let (answer, code) = json("plan examples/plan-70b.toml");
    assert_eq!(code, 0);
    let pareto = answer["pareto"].as_array().unwrap();
    assert!(!pareto.is_empty() && answer["considered"].as_u64().unwrap() >= pareto.len() as u64);
    let of = |choice: &serde_json::Value, key: &str| choice[key].as_f64().unwrap();
    for choice in pareto {
        assert!(of(choice, "tpot_ms") <= 50.0 && of(choice, "ttft_p99_ms") <= 2000.0);
        assert!(of(choice, "tpot_ms") >= of(&choice["limit"], "tpot_ms"));
        // The example requires a probability of 0.5; cheaper choices are less likely to meet the SLO.
        let likely = of(choice, "chance") >= 0.5;
        assert!(!likely || of(&answer["best"], "cost_per_hour") <= of(choice, "cost_per_hour"));
    }
}

#[test]
fn a_plan_without_an_answer_ends_with_four() {
    let spec = "[model]\nname = \"llama-3.1-70b\"\n[slo]\ntpot_p99_ms = 0.1\n[workload]\ninput_len = 100\noutput_len = 100\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n[search]\naccelerators = [\"h100-sxm\"]\n";
    let (_folder, path) = crate::support::file("spec.toml", spec.as_bytes());
    let (answer, code) = json(&format!("plan {path}"));
    assert_eq!((code, answer["best"].is_null()), (4, true));
    assert!(!answer["left_out"].as_array().unwrap().is_empty());
}

#[test]
fn documents_conform_to_their_schemas() {
    let questions = [
        "limits --model llama-3.1-8b --hardware h100-sxm --tp 2 --count 2",
        "limits --model qwen3-30b-a3b --hardware h100-sxm",
        "limits --model llama-3.1-8b --hardware h100-sxm --sweep batch=1,2 --output-len 10",
        "limits --model llama-3.1-8b --hardware h100-sxm --sweep batch=1,2 --compare attention",
        "limits --model llama-3.1-8b --hardware h100-sxm --compare layouts",
        "limits --model llama-3.1-8b --hardware h100-sxm --intensity 4096x4096",
        "capacity --model llama-3.1-8b --hardware tpu-v5e --count 4 --users 10 --explain",
        "plan --hardware h100-sxm --why tp=1",
        "simulate --requests 100",
        "simulate --requests 100 --sweep seed=1,2",
        "simulate examples/fleet-pools.toml --requests 100",
        "simulate examples/kv-layouts.toml --requests 10 --sweep engine.kv_layout=paged,vattention",
        "simulate examples/fleet-autoscale.toml --requests 100",
        "catalog --search 8b",
        "catalog Qwen/Qwen3-32B-FP8",
        "catalog h100-sxm",
        "catalog llama-3.1-8b",
        "catalog sharegpt",
        "conformance fuzz/corpus/trace/tiny",
        "hardware measure --quick --threads 1",
        "validate examples/measured.csv",
        "calibrate examples/measured.csv",
        "plan --curve --hardware h100-sxm --max-accelerators 1 --requests 100",
        "capacity --model llama-3.1-8b --hardware h100-sxm --sweep context=1024,2048",
        "simulate --requests 100 --find rate=1..2 --ttft-p99 2000",
        "keys slo",
        "seeds",
    ];
    for question in questions {
        assert_conforms(question, &json(question).0);
    }
}

#[test]
fn tables_as_people_see_them() {
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("limits", roofcast("limits --model llama-3.1-8b --hardware h100-sxm --batch 32 --context 2048").out);
        insta::assert_snapshot!("capacity", roofcast("capacity --model deepseek-ai/DeepSeek-V3 --hardware h200-sxm --count 8 --oversubscription 2 --users 1000").out);
        insta::assert_snapshot!("does-not-fit", roofcast("capacity --model llama-3.1-70b --hardware rtx-4090").out);
        insta::assert_snapshot!("curves", roofcast("plan --curve --hardware h100-sxm,l40s --max-accelerators 2").out);
        insta::assert_snapshot!("intensity", roofcast("limits --model llama-3.1-8b --hardware a100-sxm-80gb --intensity 4096x4096").out);
    });
}

/// The CSV has a row for each point of the JSON, with its figures and the ends of its bands.
#[test]
fn points_of_curves_are_equal_in_json_and_csv() {
    let arguments = "plan --curve --hardware h100-sxm --max-accelerators 2 --requests 200";
    let (answer, code) = json(arguments);
    assert_eq!((code, &answer["schema"]), (0, &"roofcast/curves/1".into()));
    let run = roofcast(&format!("{arguments} --csv"));
    let mut rows = csv::Reader::from_reader(run.out.as_bytes());
    let header = rows.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    let curves = answer["curves"].as_array().unwrap();
    let points =
        curves.iter().flat_map(|curve| curve["points"].as_array().unwrap().iter().map(move |p| (curve, p)));
    let points: Vec<_> = points.collect();
    assert_eq!((curves.len(), rows.len()), (2, points.len()));
    for (row, (curve, point)) in rows.iter().zip(&points) {
        let cell = |name: &str| &row[header.iter().position(|column| column == name).unwrap()];
        assert_eq!(cell("curve"), curve["name"].as_str().unwrap());
        for key in
            ["users", "tp", "interactivity_tok_s", "output_tok_s_per_accelerator", "cost_per_million_tokens"]
        {
            assert_eq!(cell(key).parse::<f64>().unwrap(), point[key].as_f64().unwrap(), "{key}");
        }
        let slow = point["bands"]["tpot_ms"]["range"][1].as_f64().unwrap();
        assert_eq!(cell("interactivity_tok_s_low").parse::<f64>().unwrap(), 1e3 / slow);
        assert_eq!(cell("best") == "true", *point == &curve["best"]);
    }
}

/// The rows of `--explain` add up to the totals, also for tied weights and for experts.
#[test]
fn explained_tensors_add_up() {
    for model in ["llama-3.1-8b", "google/gemma-2-9b", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b"] {
        let (answer, _) = json(&format!("capacity --model {model} --hardware b200-sxm --count 8 --explain"));
        let sum = |key: &str| {
            answer["tensors"].as_array().unwrap().iter().map(|r| r[key].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(Some(sum("parameters")), answer["parameters"]["total"].as_u64(), "{model}");
        assert_eq!(Some(sum("bytes")), answer["weight_bytes"].as_u64(), "{model}");
    }
}

#[test]
fn completions_are_printed() {
    // Scripts for other shells complete only flags.
    for shell in ["bash", "zsh", "fish"] {
        let script = roofcast(&format!("completions {shell}")).out;
        for offered in [
            "Qwen/Qwen3-32B",
            "h100-sxm",
            "q4_k_m",
            "nvfp4",
            "azure-conv-2023",
            "tensorrt-llm-max-utilization",
        ] {
            assert!(script.contains(offered), "{shell}: {offered}");
        }
    }
    assert!(roofcast("completions bash").out.contains("complete -F _roofcast"));
}

#[test]
fn a_users_catalog_adds_an_accelerator() {
    let mine = "[[accelerator]]\nid = \"mine\"\nname = \"Mine\"\nvendor = \"nvidia\"\narchitecture = \"x\"\nmemory_bytes = 20000000000\nusable_bytes = 20000000000\nbandwidth_bytes_per_s = 1e12\nnode_size = 1\n[accelerator.peak_flops]\nbf16 = 1e14\n";
    let (_folder, path) = crate::support::file("mine.toml", mine.as_bytes());
    let (answer, code) =
        json(&format!("limits --model llama-3.1-8b --hardware mine --catalog {path} --context 1"));
    assert_eq!(code, 0);
    // 15.01 GB at 1 TB/s take 15.01 ms.
    near(&answer["decode"]["limit_ms"], 15.01, 0.001);
}

/// One request of 6 prompt tokens on 5 usable blocks of 4 tokens takes two blocks and leaves 3; its second token is
/// sampled a step later.
#[test]
fn conformance_agrees_or_shows_the_first_differing_step() {
    let path = root().join("fuzz/corpus/trace/tiny");
    let run = roofcast(&format!("conformance {}", path.display()));
    assert_eq!((run.code, run.out.as_str()), (0, "agrees   tiny (2 steps, vLLM 0.32.0)\n"), "{}", run.err);
    let text = std::fs::read_to_string(&path).unwrap();
    let wrong = text.replacen("\"free_blocks_end\": 5", "\"free_blocks_end\": 4", 1);
    assert_ne!(text, wrong);
    let (_folder, file) = crate::support::file("wrong.json", wrong.as_bytes());
    let run = roofcast(&format!("conformance {file}"));
    assert_eq!(run.code, 1);
    assert!(
        run.out.contains("at step 1 in free_blocks_end")
            && run.out.contains("recorded {")
            && run.out.contains("replayed {"),
        "{}",
        run.out
    );
    let (answer, code) = json(&format!("conformance {file}"));
    assert_eq!((code, answer["traces"][0]["difference"]["step"].as_u64()), (1, Some(1)));
}

/// `16` means whichever 16-bit dtype model and accelerator have; `bf16` means bf16, or an error.
#[test]
fn sixteen_bits_are_sixteen_bits_on_any_chip() {
    for weights in ["16", "w16"] {
        let (answer, code) =
            json(&format!("limits --model llama-3.1-8b --hardware v100-32gb --weights {weights}"));
        assert_eq!((code, answer["activations"].as_str()), (0, Some("fp16")), "{weights}");
    }
}

/// A maximum length below the model's bounds the longest context, and the lengths that a plan may serve.
#[test]
fn max_model_len_bounds_what_is_served() {
    let spec = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\nmax_model_len = 1000\n[workload]\ninput_len = 900\noutput_len = 200\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n";
    let (_folder, path) = crate::support::file("spec.toml", spec.as_bytes());
    let (answer, _) = json(&format!("capacity {path}"));
    assert_eq!(answer["longest_context"].as_u64(), Some(1000));
    // Every request is longer: no deployment could serve one.
    let plan = crate::support::roofcast(&format!("plan {path}"));
    assert!(plan.code == 2 && plan.err.contains("engine.max_model_len"), "{}", plan.err);
}

/// The recorded run of two requests is slower than an H100: its replay is compared metric by metric.
#[test]
fn a_recorded_run_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("h100-sxm_test");
    std::fs::create_dir(&run).unwrap();
    let meta = r#"{"model": "meta-llama/Llama-3.1-8B", "vllm_version": "0.19.0", "engine_kwargs": {"max_num_seqs": 8}, "kv_cache": {"num_gpu_blocks": 1000, "block_size": 16}}"#;
    std::fs::write(run.join("meta.json"), meta).unwrap();
    let line = |queued: f64| {
        let (first, last) = (queued + 2.0, queued + 5.0);
        format!(
            "{{\"input_toks\": 100, \"output_toks\": 4, \"queued_ts\": {queued}, \"first_token_ts\": {first}, \"last_token_ts\": {last}}}\n"
        )
    };
    std::fs::write(run.join("requests.jsonl"), line(10.0) + &line(11.0)).unwrap();
    let (answer, code) = json(&format!("validate {}", run.display()));
    assert_eq!(code, 0);
    let metrics = &answer["runs"][0]["metrics"];
    // First token after 2 s, (5 − 2)/(4 − 1) = 1 s a token, end-to-end 5 s.
    for (metric, ms) in [("ttft_ms", 2000.0), ("tpot_ms", 1000.0), ("e2e_ms", 5000.0)] {
        near(&metrics[metric]["mean_measured"], ms, 1e-9);
        assert!(metrics[metric]["mean_error"].as_f64().unwrap() < -0.9, "{metric}");
    }
    std::fs::write(run.join("requests.jsonl"), line(10.0).replace("100", "0")).unwrap();
    let refused = roofcast(&format!("validate {}", run.display()));
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("requests.jsonl:1"), "{}", refused.err);
}
