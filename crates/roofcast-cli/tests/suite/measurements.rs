//! `roofcast validate` and `calibrate` accept whole runs: vLLM's result documents and records.

use super::support::{file, json, roofcast, shared};

const SUBJECT: &str = "--model llama-3.1-8b --hardware h100-sxm --weights fp8 --engine-version 0.19.0";

const SPEC: &str = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[precision]\nweights = \"fp8\"\n\
    [engine]\nversion = \"0.19.0\"\n[workload]\nrequests = 40\n\
    arrivals = { kind = \"closed_loop\", concurrency = 4 }\ninput_len = 512\noutput_len = 64\n";

#[test]
fn records_of_a_simulation_are_a_closed_loop() {
    let (folder, spec) = file("run.toml", SPEC.as_bytes());
    let records = folder.path().join("run.jsonl").display().to_string();
    assert_eq!(roofcast(&format!("simulate {spec} --cost forecast --records {records}")).code, 0);
    let (answer, code) = json(&format!("validate {records} {SUBJECT} --concurrency 4"));
    assert_eq!((code, answer["rows"].as_u64(), answer["predicted"].as_u64()), (0, Some(1), Some(1)));
    let metrics = answer["kinds"]["closed_loop"]["metrics"].as_object().unwrap();
    assert_eq!(metrics.keys().collect::<Vec<_>>(), ["e2e_ms", "tpot_ms", "ttft_ms"]);
    // The measured run equals a simulation: 40 requests in waves of ten, each sent a fixed time after the previous
    // answer, so errors are zero.
    for metric in ["e2e_ms", "tpot_ms", "ttft_ms"] {
        assert!(metrics[metric]["median_ape"].as_f64().unwrap() < 1e-6, "{metric}: {answer}");
    }
}

#[test]
fn results_of_vllms_client_are_points_beside_rows() {
    let result = r#"{"completed": 8, "failed": 0, "request_rate": "inf", "max_concurrency": 4, "total_input_tokens": 4096,
        "total_output_tokens": 512, "mean_ttft_ms": 60.0, "mean_tpot_ms": 9.0, "mean_e2el_ms": 630.0}"#;
    let (_folder, path) = file("c4.json", result.as_bytes());
    let (_rows, rows) = file(
        "rows.csv",
        b"kind,model,hardware,weights,context_len,concurrency,tpot_ms\ndecode_step,llama-3.1-8b,h100-sxm,fp8,512,1,6.5\n",
    );
    let (answer, code) = json(&format!("validate {path} {rows} {SUBJECT}"));
    assert_eq!((code, answer["rows"].as_u64()), (0, Some(2)));
    assert_eq!(answer["kinds"]["closed_loop"]["rows"], 1);
    let (answer, code) = json(&format!("calibrate {path} {rows} {SUBJECT}"));
    assert_eq!((code, answer["rows"].as_u64()), (0, Some(2)));
    assert_eq!(answer["left_out"]["source"]["tpot_ms"]["n"], 2);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn the_samples_of_vllms_client_are_read() {
    let path = shared("validation/vllm_bench_json/c4.json");
    let (answer, code) = json(&format!("validate {} {SUBJECT}", path.display()));
    assert_eq!((code, answer["kinds"]["closed_loop"]["rows"].as_u64()), (0, Some(1)));
}

/// One row of an engine that is not forecast beside one that is.
#[test]
fn a_row_of_an_unknown_engine_is_left_out() {
    let rows = "kind,model,hardware,engine,context_len,concurrency,tpot_ms\ndecode_step,llama-3.1-8b,h100-sxm,vllm,512,1,6.5\n\
                decode_step,llama-3.1-8b,h100-sxm,mlx-vlm,512,1,6.5\n";
    let (_rows, path) = file("rows.csv", rows.as_bytes());
    let (answer, code) = json(&format!("validate {path}"));
    assert_eq!((code, answer["rows"].as_u64(), answer["predicted"].as_u64()), (0, Some(2), Some(1)));
    assert!(answer.to_string().contains("mlx-vlm"), "{answer}");
}

/// Results of several clients, each with a member of its kind.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn results_of_other_clients_are_read() {
    let folder = shared("captures/bench-cases-2/results");
    let subject = "--model llama-3.1-8b --hardware h100-sxm";
    for (name, rows) in [
        ("sglang.jsonl", 2),
        ("sglang_one.json", 1),
        ("trtllm_bench.json", 1),
        ("llama_bench.json", 2),
        ("llama_bench.jsonl", 2),
        ("llama_bench.csv", 1),
        ("vllm033.json", 1),
        ("vllm_rate8.json", 1),
    ] {
        let (answer, code) = json(&format!("validate {}/{name} {subject}", folder.display()));
        assert_eq!((code, answer["predicted"].as_u64()), (0, Some(rows)), "{name}: {answer}");
    }
    for (name, says) in [
        ("vllm_ramp.json", ["ramp_up_strategy", "linear"]),
        ("vllm_othermodel.json", ["model_id", "Qwen3-32B"]),
        ("roofcast_turns6.json", ["workload", "TTFT 237.3 ms, TPOT 14.53 ms"]),
    ] {
        let run = roofcast(&format!("validate {}/{name} {subject}", folder.display()));
        assert!(run.code == 2 && says.iter().all(|word| run.err.contains(word)), "{name}: {}", run.err);
    }
}

/// A run with steps of 0.7 ms, which read 16 GB of weights in no less than 4.5 ms, had another load or deployment; one
/// with 60 ms is explained by nothing in the file.
#[test]
fn no_factor_far_from_one_is_without_a_sentence() {
    let result = |tpot: f64| {
        format!(
            r#"{{"completed": 40, "failed": 0, "request_rate": "inf", "max_concurrency": 4, "total_input_tokens": 8000,
            "total_output_tokens": 2000, "mean_ttft_ms": 30.0, "mean_tpot_ms": {tpot}}}"#
        )
    };
    let plan = |tpot: f64| {
        let (folder, path) = file("r.json", result(tpot).as_bytes());
        let command = "vllm serve llama-3.1-8b";
        let run = super::support::run([
            "plan",
            "--from-command",
            command,
            "--set",
            "hardware.accelerator=h100-sxm",
            "--measured",
            &path,
        ]);
        drop(folder);
        run
    };
    let fast = plan(0.7);
    assert!(fast.code == 2 && fast.err.contains("0.7"), "{}", fast.err);
    let slow = plan(60.0);
    assert!(slow.code == 0 && slow.out.contains("times as slow"), "{} {}", slow.out, slow.err);
    let usual = plan(8.0);
    assert!(usual.code == 0 && !usual.out.contains("as slow"), "{} {}", usual.out, usual.err);
}

#[test]
fn what_a_run_does_not_say_must_be_said() {
    let (_folder, path) = file("r.json", b"{\"completed\": 1}");
    let result = br#"{"completed": 1, "total_input_tokens": 9, "total_output_tokens": 9, "mean_ttft_ms": 9, "max_concurrency": 1}"#;
    let (_whole, whole) = file("r.json", result);
    let (_lines, lines) = file("r.jsonl", b"{\"id\": 0}\n");
    for (arguments, says) in [
        (format!("validate {whole} --hardware h100-sxm"), ["r.json", "--model"]),
        (format!("calibrate {whole} --model llama-3.1-8b"), ["r.json", "--hardware"]),
        (format!("validate {path} --model llama-3.1-8b --hardware abacus"), ["abacus", "catalog"]),
        (format!("validate {path} {SUBJECT}"), ["r.json", "total_input_tokens"]),
        (format!("validate {lines} {SUBJECT}"), ["r.jsonl", "--concurrency"]),
        (format!("validate {lines} {SUBJECT} --rate 1"), ["r.jsonl:1", "outcome"]),
        (format!("validate {lines} {SUBJECT} --rate 1 --concurrency 1"), ["r.jsonl:1", "outcome"]),
    ] {
        let run = roofcast(&arguments);
        assert_eq!(run.code, 2, "{arguments}: {}", run.err);
        assert!(says.iter().all(|s| run.err.contains(s)), "{arguments}: {}", run.err);
    }
}

#[test]
fn measured_points_are_drawn_beside_forecast_and_limit() {
    let mut text = "source,kind,model,hardware,weights,context_len,concurrency,tpot_ms\n".to_owned();
    for (source, batch) in [("left", 1), ("left", 2), ("left", 4), ("right", 1)] {
        text += &format!("{source},decode_step,llama-3.1-8b,h100-sxm,fp8,512,{batch},8\n");
    }
    let (folder, rows) = file("rows.csv", text.as_bytes());
    let out = folder.path().join("out.svg");
    let path = out.display();
    let run = super::support::run([
        "validate",
        &rows,
        "--group",
        "LEFT decode_step",
        "--curves",
        &path.to_string(),
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.starts_with("forecast: 3 of 3 rows"), "{}", run.out);
    let svg = std::fs::read_to_string(&out).unwrap();
    assert_eq!((svg.matches("<title>").count(), svg.matches("<polyline").count()), (3, 2));
    for (arguments, says) in [("--group right", ["--curves", "three"]), ("--group up", ["--group", "up"])] {
        let run = roofcast(&format!("validate {rows} --curves {path} {arguments}"));
        assert_eq!(run.code, 2, "{arguments}");
        assert!(says.iter().all(|s| run.err.contains(s)), "{}", run.err);
    }
}

/// FNV-1a of `llama-3.1-8b | h100-sxm | vllm | bf16` is 92 modulo 1,000, below 250: this deployment's rows may be read.
/// With fp8 the hash is 711, so its rows judge.
#[test]
fn a_side_of_the_rows_is_shown() {
    let text = "source,kind,model,hardware,weights,context_len,concurrency,tpot_ms\n\
        a,decode_step,llama-3.1-8b,h100-sxm,bf16,512,1,8\nb,decode_step,llama-3.1-8b,h100-sxm,bf16,512,2,8\n\
        a,decode_step,llama-3.1-8b,h100-sxm,fp8,512,1,8\n";
    let (folder, rows) = file("rows.csv", text.as_bytes());
    let first = |side: &str| {
        let run = roofcast(&format!("validate {rows} --split {side}"));
        assert_eq!(run.code, 0, "{}", run.err);
        run.out.lines().next().unwrap().to_owned()
    };
    let files = "the files have 2 rows to look at, 1 that judge)";
    assert_eq!(first("look"), format!("forecast: 2 of 2 rows (look; {files}"));
    assert_eq!(first("judge"), format!("forecast: 1 of 1 rows (judge; {files}"));
    assert_eq!(first("all"), format!("forecast: 3 of 3 rows (all; {files}"));
    let (look, _) = json(&format!("validate {rows} --split look"));
    assert_eq!(look["split"], serde_json::json!({"shown": "look", "look": 2, "judge": 1}));
    // Rows of two sources in one group: the group counts once.
    assert_eq!(look["sources"].as_object().unwrap().len(), 2);
    assert_eq!(look["kinds"]["decode_step"]["metrics"]["tpot_ms"]["groups"], 1);
    assert_eq!(look["groups"][0]["group"], "llama-3.1-8b | h100-sxm | vllm | bf16");
    let (judge, _) = json(&format!("validate {rows} --split judge"));
    assert_eq!(judge["kinds"]["decode_step"]["metrics"]["tpot_ms"]["n"], 1);
    assert_eq!(judge["groups"], serde_json::json!([]));
    let out = folder.path().join("out").display().to_string();
    for flag in ["--per-row", "--svg", "--curves", "--html"] {
        let run = roofcast(&format!("validate {rows} --split judge {flag} {out}"));
        assert_eq!(run.code, 2, "{flag}: {}", run.out);
        assert!(run.err.contains(flag) && run.err.contains("--split look"), "{}", run.err);
        assert!(!std::path::Path::new(&out).exists(), "{flag}");
    }
    let run = roofcast(&format!("validate {rows} --split judge --group fp8"));
    assert!(run.code == 2 && run.err.contains("--group"), "{}", run.err);
    let (_one, one) = file("one.csv", text.lines().take(2).collect::<Vec<_>>().join("\n").as_bytes());
    let run = roofcast(&format!("validate {one} --split judge"));
    assert!(
        run.code == 2 && run.err.contains("--split") && run.err.contains("1 rows to look at"),
        "{}",
        run.err
    );
}

/// One wrong value refuses its row: the other rows are forecast, and the exit code reports the error. An engine that is
/// not forecast is no error.
#[test]
fn wrong_rows_are_refused_and_others_go_on() {
    let text = "kind,model,hardware,engine,context_len,concurrency,tpot_ms\n\
        decode_step,llama-3.1-8b,h100-sxm,vllm,512,1,8\ndecode_step,llama-3.1-8b,h100-sxm,vllm,many,1,8\n\
        decode_step,llama-3.1-8b,h100-sxm,vlm,512,1,8\ndecode_step,absent.json,h100-sxm,vllm,512,1,8\n\
        decode_step,llama-3.1-8b,h100-sxm,vllm,512,2,8\n";
    let (_folder, rows) = file("rows.csv", text.as_bytes());
    let run = roofcast(&format!("validate {rows}"));
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.out.starts_with("forecast: 2 of 3 rows"), "{}", run.out);
    let told: Vec<&str> = run.err.lines().collect();
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, says) in told.iter().zip([[":3", "many"], ["absent.json", "absent.json"]]) {
        assert!(says.iter().all(|s| line.contains(s)), "{line}");
    }
    let (answer, code) = json(&format!("validate {rows}"));
    assert_eq!((code, answer["predicted"].as_u64()), (2, Some(2)));
    assert_eq!(answer["refused"].as_array().unwrap().len(), 2);
}

/// A row of the residuals has the parts of its forecast: a step has the fractions of four bottlenecks, a run also has
/// idle time, and a skipped row has none.
#[test]
fn rows_say_what_their_forecasts_are_made_of() {
    let text = "id,source,kind,model,hardware,weights,input_len,output_len,context_len,concurrency,tpot_ms\n\
        a,here,decode_step,llama-3.1-8b,h100-sxm,bf16,,,512,8,50\nb,here,closed_loop,llama-3.1-8b,h100-sxm,bf16,512,64,,8,50\n\
        c,here,decode_step,llama-3.1-8b,h100-sxm,bf16,,,512,8,0.1\n";
    let (folder, rows) = file("rows.csv", text.as_bytes());
    let out = folder.path().join("out.csv");
    let run = roofcast(&format!("validate {rows} --split look --per-row {}", out.display()));
    assert_eq!(run.code, 0, "{}", run.err);
    let mut reader = csv::Reader::from_path(out).unwrap();
    let rows: Vec<std::collections::BTreeMap<String, String>> =
        reader.deserialize().map(Result::unwrap).collect();
    let share = |row: usize| {
        let of = |part: &str| rows[row][&format!("{part}_share")].parse::<f64>().unwrap();
        ["memory", "compute", "communication", "host"].map(of).iter().sum::<f64>()
    };
    let figure = |row: usize, column: &str| rows[row][column].parse::<f64>().unwrap();
    assert_eq!((figure(0, "steps"), figure(0, "running"), &*rows[0]["side"]), (1.0, 8.0, "look"));
    assert!((share(0) - 1.0).abs() < 0.01 && (0.5..1.0).contains(&share(1)), "{} {}", share(0), share(1));
    // 80 requests of 64 tokens with 8 at a time need 640 decode steps, and some steps for prompts.
    assert!(figure(1, "steps") >= 630.0 && figure(1, "running") <= 8.0, "{:?}", rows[1]);
    assert!(figure(0, "server_ms") == 0.0 && figure(1, "server_ms") > 0.0, "{:?}", rows[1]);
    assert!(rows[2]["left_out"].contains("limit") && rows[2]["steps"].is_empty());
}
