//! The worked problems of the texts, each an example, and the files that a plan writes.

use super::support::{file, json, roofcast, run};

/// Number of accelerators of the best deployment, or the exit code if there is none.
fn fewest(arguments: &str) -> Result<u64, i32> {
    let (answer, code) = json(&format!("plan {arguments}"));
    answer["best"]["count"].as_u64().ok_or(code)
}

/// LLaMA-13B has 13,015,864,320 parameters, 26.03 GB in 16 bits; 8 × 32 GiB leave 248.85 GB. A request of 2048 tokens has
/// 4 · 40 · 5120 · 2048 = 1,677,721,600 B of KV: 148.3 fit a node of 8, so 10,000 users take ⌈10,000/148⌉ = 68 nodes, 544 chips.
#[test]
fn ten_thousand_users_on_v100() {
    let of = |users: u64| fewest(&format!("examples/plan-v100-users.toml --concurrency {users}"));
    assert_eq!((of(148), of(149)), (Ok(8), Ok(16)));
    let (answer, _) = json("plan examples/plan-v100-users.toml");
    assert_eq!(answer["best"]["count"], 544);
    // Without a bound nothing can be missed: the run has the requested number of requests, and no probability is
    // stated.
    assert_eq!((answer["requests"].as_u64(), answer["best"]["chance"].is_null()), (Some(10_000), true));
    assert_eq!(
        (answer["best"]["replicas"].as_u64(), answer["best"]["max_batch"].as_u64()),
        (Some(68), Some(148))
    );
}

/// LLaMA-3-70B: 70.55e9 parameters, of which embedding and lm_head, 2.10e9, stay at 16 bits. A request of 8192 tokens
/// has 2 · 80 · 8 · 128 · 8192 values of KV. Chips of 16 GB:
///
/// * bf16: 141.1 GB of weights, 2.684 GB a request: 16 chips leave 114.9 GB, 42 requests; 32 leave 370.9, 138.
/// * int8: 4.2 + 68.45 = 72.66 GB, 1.342 GB: 8 leave 55.3, 41; 16 leave 183.3, 136.
/// * int4: 4.2 + 34.23 = 38.43 GB, 0.671 GB: 4 leave 25.57, 38; 8 leave 89.57, 133.
#[test]
fn slices_of_tpu_v5e_for_a_70b() {
    for (format, least, doubled) in
        [("bf16", (42, 16), (138, 32)), ("int8", (41, 8), (136, 16)), ("int4", (38, 4), (133, 8))]
    {
        let of = |users: u64| {
            fewest(&format!(
                "examples/plan-tpu-slices.toml --weights {format} --kv {format} --concurrency {users}"
            ))
        };
        assert_eq!(of(least.0), Ok(least.1), "{format}");
        assert_eq!(of(least.0 + 1), Ok(doubled.1), "{format}");
        assert_eq!(of(doubled.0), Ok(doubled.1), "{format}");
    }
}

/// The steps of seed 004's question 3, in closed form: 2PB FLOPs, which outweigh the 405 GB of weights from B = 120 on, and
/// B · 8192 · 258,048 B of KV over 64 × 819 GB/s keep 15 ms up to B = 143; with all-reduces of 126 · 2 · 16,384 · 2 · B ·
/// 2 · 63/64 B over 2 × 45 GB/s (8×8 has no ring) up to 32 (`roofcast seeds 004`). 32 chips take 15.5 ms for the weights alone.
#[test]
fn a_405b_within_15_ms() {
    let with = |users: u64| fewest(&format!("examples/plan-405b-15ms.toml --concurrency {users}"));
    assert_eq!((with(32), with(33)), (Ok(64), Err(4)));
    let without =
        |users: u64| fewest(&format!("examples/plan-405b-15ms-without-ici.toml --concurrency {users}"));
    assert_eq!((without(143), without(144)), (Ok(64), Err(4)));
}

/// Qwen1.5-7B by the text's rules: 24 GiB less 7,098,728,448 / 2 B of weights over 524,288 B a token are 42,382 tokens, 41
/// requests of 1024 or 5 of 8192. A pair holds (48 GiB − 3.55 GB) / 524,288 = 91,534, 11 of 8192, four 189,838, 23. So 32 users
/// at 8192 take 7 cards by themselves, 3 pairs, or 2 fours: 6.
#[test]
fn rtx_4090_for_32_users() {
    let short = |users: u64| fewest(&format!("examples/plan-4090-users.toml --concurrency {users}"));
    assert_eq!((short(32), short(41), short(42)), (Ok(1), Ok(1), Ok(2)));
    let (answer, _) = json("plan examples/plan-4090-users-8k.toml");
    let best = &answer["best"];
    assert_eq!(
        (best["count"].as_u64(), best["tp"].as_u64(), best["max_batch"].as_u64()),
        (Some(6), Some(2), Some(11))
    );
    // With one pair lost, two pairs hold 22 of 32 users, and the spec lets no user wait.
    let lost =
        answer["what_if"].as_array().unwrap().iter().find(|w| w["change"] == "a replica is lost").unwrap();
    assert_eq!(lost["meets"], false);
    assert!(lost["because"].as_str().unwrap().contains("of which 11 fit"), "{lost}");
    // Without the spec's convention the answer differs, so the convention has an effect.
    let (plain, _) = json("plan examples/plan-4090-users.toml --set hardware.convention=default");
    assert_eq!(plain["best"]["count"], 2);
}

/// A plan for replicas of one kind, and a plan for prefill and decode pools.
const CHAT: &str = "[model]\nname = \"meta-llama/Llama-3.1-8B-Instruct\"\n[slo]\nttft_p99_ms = 2000\ntpot_p99_ms = 50\n\
                    [workload]\ninput_len = 1000\noutput_len = 200\n[workload.arrivals]\nkind = \"poisson\"\nrate = 10\n\
                    [search]\nrequests = 1000\naccelerators = [\"h100-sxm\"]\nmax_accelerators = 2\n";

#[test]
fn what_starts_and_checks_the_best_is_written() {
    let (folder, spec) = file("chat.toml", CHAT.as_bytes());
    let out = folder.path().join("launch");
    let done = run(["plan", &spec, "--launch-dir", out.to_str().unwrap()]);
    assert_eq!(done.code, 0, "{}", done.err);
    let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert!(text("vllm.sh").contains("vllm serve meta-llama/Llama-3.1-8B-Instruct"));
    assert!(text("vllm.sh").contains("# replica: start 1 of it\n"));
    // Settings are proven for the plan's engine alone.
    for other in ["sglang.sh", "tensorrt-llm.sh", "llama.cpp.sh"] {
        assert!(!out.join(other).exists(), "{other}");
    }
    let sglang = roofcast(&format!("plan {spec} --engine sglang --confidence 0")).out;
    assert!(sglang.contains("sglang.launch_server") && !sglang.contains("vllm serve"), "{sglang}");
    assert!(text("kubernetes.yaml").contains("nvidia.com/gpu: \"1\""));
    assert!(text("llm-d.yaml").contains("modelCommand: vllmServe"));
    assert!(text("dynamo.yaml").contains("kind: DynamoGraphDeployment"));
    // `bench` accepts the command in the file up to its first connection, and `simulate` repeats the run of its spec.
    let line = text("bench.sh");
    let words = line.lines().nth(1).unwrap().replace("best.toml", out.join("best.toml").to_str().unwrap());
    let words = words.replace("http://HOST:8000", "http://127.0.0.1:1");
    let bench = roofcast(&format!("{} --requests 3", words.strip_prefix("roofcast ").unwrap()));
    assert!(bench.code == 2 && bench.err.contains("cannot connect"), "{}{}", bench.out, bench.err);
    let (proof, code) = json(&format!("simulate {}", out.join("best.toml").display()));
    let (plan, _) = json(&format!("plan {spec}"));
    assert_eq!((code, &proof["p99_ttft_ms"]), (0, &plan["best"]["ttft_p99_ms"]));
}

#[test]
fn a_launch_folder_is_checked_before_any_work() {
    let (_folder, path) = file("there.txt", b"x");
    let refused = run(["plan", "--launch-dir", &path]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("--launch-dir") && refused.err.contains("a file"), "{}", refused.err);
    // /proc is a folder in which no process can create files.
    let refused = run(["plan", "--launch-dir", "/proc/x"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{}", refused.err);
    assert!(refused.err.contains("`--launch-dir` is \"/proc/x\""), "{}", refused.err);
}

/// A first plan with 4-bit weights writes a command for llama.cpp; a second with 16 bits does not, so the file is
/// removed. Files that no plan writes stay.
#[test]
fn a_launch_folder_holds_what_this_plan_wrote_alone() {
    let (folder, spec) = file("chat.toml", CHAT.as_bytes());
    let out = folder.path().join("launch");
    let ask = ["plan", &spec, "--launch-dir", out.to_str().unwrap()];
    let first = run(ask.into_iter().chain(["--weights", "q4_k_m", "--engine", "llama.cpp", "--rate", "0.1"]));
    let there = |name: &str| out.join(name).exists();
    assert!(first.code == 0 && there("llama.cpp.sh"), "{}{}", first.out, first.err);
    let write = |name: &str| std::fs::write(out.join(name), "of somebody else").unwrap();
    ["vllm.sh.old", "notes.yaml"].into_iter().for_each(write);
    let done = run(ask);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(!there("llama.cpp.sh") && there("vllm.sh.old") && there("notes.yaml") && there("vllm.sh"));
    let line = "removed from --launch-dir (files of an earlier plan): llama.cpp.sh\n";
    assert!(done.out.contains(line), "{}", done.out);
    assert!(!run(ask).out.contains("removed from"));
}

#[test]
fn an_edited_launch_file_is_not_lost() {
    let (folder, spec) = file("chat.toml", CHAT.as_bytes());
    let out = folder.path().join("launch");
    let ask = ["plan", &spec, "--launch-dir", out.to_str().unwrap()];
    assert_eq!((run(ask).code, run(ask).code), (0, 0));
    std::fs::write(out.join("vllm.sh"), "mine").unwrap();
    let refused = run(ask);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{}", refused.err);
    assert!(
        refused.err.contains("vllm.sh") && refused.err.contains("accepted: another folder"),
        "{}",
        refused.err
    );
    assert_eq!(std::fs::read_to_string(out.join("vllm.sh")).unwrap(), "mine");
}

#[test]
fn names_of_one_chip_are_searched_once() {
    let (_folder, spec) = file("chat.toml", CHAT.as_bytes());
    let ask = |chips: &str| json(&format!("plan {spec} --hardware {chips} --set search.requests=100")).0;
    let (one, both) = (ask("h100-sxm"), ask("h100,h100-sxm"));
    assert!(one["considered"].as_u64() > Some(0));
    assert_eq!(one["considered"], both["considered"]);
}

#[test]
fn engines_and_routers_are_compared_where_the_search_names_them() {
    let more = "engines = [\"vllm\", \"sglang\", \"tensorrt-llm\"]\nrouters = [\"round_robin\", \"least_loaded\"]\n\
                max_num_batched_tokens = [8192]\nenable_chunked_prefill = [true, false]\ntp = [1]\n";
    let (_folder, spec) = file("engines.toml", format!("{CHAT}{more}").as_bytes());
    let (answer, code) = json(&format!("plan {spec} --exhaustive"));
    // Candidates: 1 or 2 replicas, 3 engines, 2 routers, chunked prefill or not.
    assert_eq!((code, answer["considered"].as_u64()), (0, Some(24)));
    let ranked = answer["ranked"].as_array().unwrap();
    for engine in ["vllm", "sglang", "tensorrt-llm"] {
        let row = ranked.iter().find(|row| row["engine"] == engine).unwrap_or_else(|| panic!("{engine}"));
        assert_eq!(row["spec"]["engine"]["name"], engine);
    }
    assert!(ranked.iter().any(|row| row["router"] == "least_loaded"));
    let wrong = roofcast(&format!("plan {spec} --set search.engines=[\"orca\"]"));
    assert!(wrong.code == 2 && wrong.err.contains("search.engines"), "{}", wrong.err);
    let drafts = roofcast(&format!("plan {spec} --set search.speculative=[true]"));
    assert!(drafts.code == 2 && drafts.err.contains("acceptance_rate"), "{}", drafts.err);
}

#[test]
fn a_share_of_the_requests_may_miss_the_bounds() {
    let (_folder, spec) = file("chat.toml", CHAT.replace("rate = 10", "rate = 25").as_bytes());
    let cost = |more: &str| {
        json(&format!("plan {spec} {more}")).0["best"]["cost_per_hour"].as_f64().unwrap_or(f64::INFINITY)
    };
    let [strict, lax] = ["--set slo.goodput=1.0", "--set slo.goodput=0.5"].map(cost);
    assert!(lax <= cost("") && cost("") <= strict, "{lax} {strict}");
    let refused = roofcast(&format!("plan {spec} --set slo.goodput=1.5"));
    assert!(refused.code == 2 && refused.err.contains("slo.goodput"), "{}", refused.err);
}

#[test]
fn a_plan_begins_from_what_runs() {
    // The current deployment, started by this command: its measured run is the simulated one at half the speed.
    let command =
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-batched-tokens 8192 --max-num-seqs 256";
    let (folder, _) = file("x", b"");
    let load = "[workload]\ninput_len = 1000\noutput_len = 100\nrequests = 160\n[workload.arrivals]\n\
                kind = \"closed_loop\"\nconcurrency = 16\n";
    let (_kept, spec) = file("load.toml", load.as_bytes());
    let simulated = run(["simulate", &spec, "--from-command", command, "--hardware", "h100-sxm", "--json"]);
    let base: serde_json::Value = serde_json::from_str(&simulated.out).unwrap();
    let tpot = base["mean_tpot_ms"].as_f64().unwrap() * 2.0;
    let result = format!(
        "{{\"completed\": 160, \"failed\": 0, \"max_concurrency\": 16, \"request_rate\": \"inf\", \"total_input_tokens\": \
         160000, \"total_output_tokens\": 16000, \"mean_ttft_ms\": 300.0, \"mean_tpot_ms\": {tpot}}}"
    );
    let path = folder.path().join("bench.json");
    std::fs::write(&path, result).unwrap();
    let ask =
        ["plan", "--from-command", command, "--measured", path.to_str().unwrap(), "--hardware", "h100-sxm"];
    let more = ["--set", "hardware.accelerator=h100-sxm", "--max-accelerators", "2", "--json"];
    let done = run(ask.into_iter().chain(more));
    assert_eq!(done.code, 0, "{}", done.err);
    let answer: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let current = &answer["current"];
    let ratio =
        current["measured"]["tpot_ms"].as_f64().unwrap() / current["forecast"]["tpot_ms"].as_f64().unwrap();
    // In a closed loop all times are proportional to the step time, so the factor is measured over forecast.
    let slower = current["slower"].as_f64().unwrap();
    assert!((slower / ratio - 1.0).abs() < 0.05, "{slower} {ratio}");
    let now = &current["now"]["e2el_ms"].as_f64().unwrap();
    for change in current["changes"].as_array().unwrap() {
        let gain = now / change["e2el_ms"].as_f64().unwrap() - 1.0;
        assert!((gain - change["gain"].as_f64().unwrap()).abs() < 1e-9, "{change}");
    }
    let missing = run(["plan", "--from-command", command, "--measured", path.to_str().unwrap()]);
    assert!(missing.code == 2 && missing.err.contains("hardware.accelerator"), "{}", missing.err);
    let faster = std::fs::read_to_string(&path).unwrap().replace(&format!("{tpot}"), "0.5");
    std::fs::write(&path, faster).unwrap();
    let refused = run(ask.into_iter().chain(more));
    assert!(refused.code == 2 && refused.err.contains("the limit of this deployment"), "{}", refused.err);
}

#[test]
fn every_row_of_the_csv_says_on_which_front_it_is() {
    let (_folder, spec) = file("chat.toml", CHAT.as_bytes());
    let (answer, _) = json(&format!("plan {spec}"));
    let done = roofcast(&format!("plan {spec} --csv"));
    let mut lines = done.out.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = header.iter().position(|name| *name == "pareto_throughput").unwrap();
    let on = lines.filter(|line| line.split(',').nth(column) == Some("true")).count();
    let front = answer["pareto_throughput"].as_array().unwrap();
    assert_eq!(on, front.len());
    // No point of the front is dominated by another; the first has the highest throughput.
    for pair in front.windows(2) {
        let of = |row: &serde_json::Value, key: &str| row[key].as_f64().unwrap();
        assert!(of(&pair[0], "output_tok_s_per_accelerator") > of(&pair[1], "output_tok_s_per_accelerator"));
        assert!(of(&pair[0], "interactivity_tok_s") < of(&pair[1], "interactivity_tok_s"));
    }
}

#[test]
fn first_choices_are_judged_where_all_were_measured() {
    let header = "id,source,kind,model,hardware,gpus,tp,engine,weights,input_len,output_len,concurrency,ttft_ms,tpot_ms\n";
    let row = |id: &str, gpus: u64, users: u64, ttft: f64, tpot: f64| {
        format!(
            "{id},s,closed_loop,meta-llama/Llama-3.1-8B,h100-sxm,{gpus},{gpus},vllm,bf16,512,64,{users},{ttft},{tpot}\n"
        )
    };
    let rows = [
        row("a", 1, 8, 60.0, 9.0),
        row("b", 1, 32, 120.0, 12.0),
        row("c", 2, 8, 50.0, 6.5),
        row("d", 2, 32, 90.0, 8.5),
    ];
    let (_folder, path) = file("sweep.csv", format!("{header}{}", rows.concat()).as_bytes());
    let (answer, code) = json(&format!("validate {path} --ranking"));
    assert_eq!(code, 0);
    let sweep = &answer["sweeps"][0];
    assert_eq!((sweep["configurations"].as_u64(), sweep["points"].as_u64()), (Some(2), Some(4)));
    // Interactivities are 111.1, 83.3, 153.8 and 117.6; their lower median is 111.1.
    assert!((sweep["interactivity_tok_s"].as_f64().unwrap() - 1000.0 / 9.0).abs() < 1e-9);
    assert!(roofcast(&format!("validate {path} --ranking")).out.contains("of 1 sweeps"));
    crate::schemas::assert_conforms("ranking", &answer);
    // A single configuration is not a sweep.
    let (_folder, path) = file("one.csv", format!("{header}{}{}", rows[0], rows[1]).as_bytes());
    let refused = roofcast(&format!("validate {path} --ranking"));
    assert!(refused.code == 2 && refused.out.is_empty(), "{}", refused.out);
    assert!(
        refused.err.contains("--ranking") && refused.err.contains("two configurations"),
        "{}",
        refused.err
    );
}

/// The cluster manifest that a plan wrote is read back as the planned deployment; a label of its nodes names the
/// accelerator.
#[test]
fn a_plan_begins_from_a_manifest() {
    let chat = CHAT.replace("rate = 10", "rate = 30").replace("max_accelerators = 2", "max_accelerators = 4");
    let (folder, spec) = file("chat.toml", chat.as_bytes());
    let out = folder.path().join("launch");
    let (planned, _) = json(&format!("plan {spec} --launch-dir {}", out.display()));
    let yaml = std::fs::read_to_string(out.join("kubernetes.yaml")).unwrap();
    let labelled = yaml.replace(
        "      containers:\n",
        "      nodeSelector:\n        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3\n      containers:\n",
    );
    let path = folder.path().join("there.yaml");
    std::fs::write(&path, labelled).unwrap();
    let read = roofcast(&format!("simulate --from-manifest {} --requests 20 --dump-spec", path.display()));
    assert_eq!(read.code, 0, "{}", read.err);
    let told: toml::Table = read.out.parse().unwrap();
    let best = &planned["best"];
    for (section, key) in [("parallelism", "tp"), ("parallelism", "replicas"), ("engine", "max_num_seqs")] {
        assert_eq!(told[section][key].as_integer(), best[key].as_i64(), "{key} {}", read.out);
    }
    assert_eq!(told["engine"]["name"].as_str(), best["engine"].as_str());
    let run = roofcast(&format!("simulate --from-manifest {} --requests 20 --json", path.display()));
    assert!(run.code == 0 && run.out.contains("h100"), "{}{}", run.out, run.err);
    let both = roofcast(&format!("simulate --from-manifest {} --from-command vllm", path.display()));
    assert!(both.code == 2 && both.err.contains("--from-command"), "{}", both.err);
    std::fs::write(&path, "kind: Service\n").unwrap();
    let none = roofcast(&format!("plan --from-manifest {}", path.display()));
    assert!(
        none.code == 2 && none.err.contains("there.yaml") && none.err.contains("no engine"),
        "{}",
        none.err
    );
}

/// Manifests are for the planned engine and the chip's vendor, with the image of the version that was forecast, and are read
/// back as the planned deployment.
#[test]
fn manifests_are_read_back() {
    for (engine, chip, image) in [
        ("vllm==0.19.0", "h100-sxm", "vllm/vllm-openai:v0.19.0"),
        ("vllm", "mi300x", "vllm/vllm-openai-rocm:v0.33.0"),
        ("vllm", "tpu-v6e", "vllm/vllm-tpu:v0.33.0"),
        ("sglang", "mi300x", "lmsysorg/sglang:v0.5.23-rocm700-mi30x"),
        ("tensorrt-llm", "h100-sxm", "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc23"),
    ] {
        let (folder, spec) = file("chat.toml", CHAT.replace("h100-sxm", chip).as_bytes());
        let out = folder.path().join("launch");
        let line = format!("plan {spec} --engine {engine} --confidence 0 --launch-dir {}", out.display());
        let (planned, _) = json(&line);
        let text = std::fs::read_to_string(out.join("kubernetes.yaml")).unwrap();
        for part in [image, "startupProbe", "secretKeyRef", "claimName: roofcast-cache"] {
            assert!(text.contains(part), "{engine} on {chip}: {part}");
        }
        let name = engine.split('=').next();
        // llm-d and Dynamo are written for vLLM, Dynamo for NVIDIA alone.
        assert_eq!(out.join("llm-d.yaml").exists(), name == Some("vllm"), "{engine} on {chip}");
        assert_eq!(out.join("dynamo.yaml").exists(), name == Some("vllm") && chip == "h100-sxm");
        for manifest in ["kubernetes.yaml", "llm-d.yaml", "dynamo.yaml"].map(|name| out.join(name)) {
            if !manifest.exists() {
                continue;
            }
            let named =
                if manifest.ends_with("kubernetes.yaml") { "" } else { &format!(" --hardware {chip}") };
            let line =
                format!("simulate --from-manifest {}{named} --requests 20 --dump-spec", manifest.display());
            let read = roofcast(&line);
            assert_eq!(read.code, 0, "{}", read.err);
            let told: toml::Table = read.out.parse().unwrap();
            assert_eq!(told["hardware"]["accelerator"].as_str(), Some(chip));
            assert_eq!(told["engine"]["name"].as_str(), name);
            for (section, key) in
                [("parallelism", "tp"), ("parallelism", "replicas"), ("engine", "max_num_seqs")]
            {
                assert_eq!(told[section][key].as_integer(), planned["best"][key].as_i64(), "{key} {line}");
            }
        }
    }
}

/// An engine without code for a chip, and a format that it lacks there, are refused by every verb with what is accepted.
#[test]
fn engines_chips_and_formats_go_together() {
    let model = "--model Qwen/Qwen3-8B";
    for (line, named, accepted) in [
        ("limits --hardware mi300x --engine tensorrt-llm", "tensorrt-llm", "vllm, sglang, llama.cpp"),
        ("capacity --hardware tpu-v6e --engine llama.cpp", "llama.cpp", "tpu-v6e: vllm"),
        ("simulate --hardware m3-ultra-60core --engine sglang", "sglang", "llama.cpp"),
        ("plan --hardware tpu-v6e --engine llama.cpp", "llama.cpp", "tpu-v6e (vllm)"),
        ("plan --hardware h100-sxm --kv nvfp4", "nvfp4", "fp8"),
        ("limits --hardware h100-sxm --engine sglang --kv nvfp4", "nvfp4", "fp8"),
        ("simulate --hardware h100-sxm --engine llama.cpp --weights fp8", "fp8", "q4_k_m"),
        ("limits --hardware h100-sxm --engine tensorrt-llm --weights q4_k_m", "q4_k_m", "fp8"),
    ] {
        let refused = roofcast(&format!("{line} {model}"));
        assert_eq!(refused.code, 2, "{line}: {}", refused.out);
        assert!(refused.err.contains(named) && refused.err.contains(accepted), "{line}: {}", refused.err);
    }
    for verb in ["simulate --requests 10", "plan"] {
        let refused = roofcast(&format!("{verb} --model Qwen/Qwen3-Embedding-8B --hardware h100-sxm"));
        assert!(refused.code == 2 && refused.err.contains("output_len"), "{verb}: {}", refused.err);
    }
}

/// The answer is one screen of 40 lines: question, best, reasons, evidence, command; `--all` has every section, and both
/// name one deployment.
#[test]
fn a_plan_is_one_screen() {
    let screen = roofcast("plan");
    assert!(screen.code == 0 && screen.out.lines().count() <= 40, "{}", screen.out);
    for part in
        ["load ", "SLO ", "best ", "why ", "not the best", "sure ", "vllm serve", "roofcast bench", "--all"]
    {
        assert!(screen.out.contains(part), "{part} is not in {}", screen.out);
    }
    let best =
        |text: &str| text.lines().find(|line| line.starts_with("best ")).map(|l| l[5..].trim().to_owned());
    let all = roofcast("plan --all").out;
    assert!(all.lines().count() > 60 && all.contains("what if"), "{all}");
    assert_eq!(best(&screen.out), best(&all));
}

/// A request of 1000 and 200 tokens costs (1000 · 0.28 + 200 · 0.42) / 10⁶ = $0.000364 at the API. A machine that costs
/// $p an hour is cheaper from p / 3600 / 0.000364 requests a second on, and costs p / 3600 / 10 for one of 10 a second.
#[test]
fn money_is_compared_with_an_api() {
    let (_folder, spec) = file("chat.toml", CHAT.as_bytes());
    let (answer, _) = json(&format!("plan {spec} --against-api 0.28,0.42"));
    let of = |value: &serde_json::Value| value.as_f64().unwrap();
    let (api, per_hour) = (&answer["against_api"], of(&answer["best"]["cost_per_hour"]));
    let from = per_hour / 3600.0 / 0.000_364;
    assert!((of(&api["from_requests_per_s"]) / from - 1.0).abs() < 1e-9, "{api}");
    assert!((of(&answer["best"]["cost_per_request"]) * 36_000.0 / per_hour - 1.0).abs() < 1e-9);
    assert_eq!(api["beats"], from < 10.0);
    // Named prices are the same prices, and a deployment does not beat one that is free of charge but for a cent.
    let named = json(&format!("plan {spec} --against-api input=0.28,output=0.42")).0;
    assert_eq!(&named["against_api"], api);
    let cheap = roofcast(&format!("plan {spec} --against-api 0.0001,0.0001")).out;
    let cheap = cheap.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(cheap.contains(": no, at 10.00/s"), "{cheap}");
    for wrong in ["0.28", "0.28,x", "0,0", "-1,2", "1,2,3,4"] {
        let refused = roofcast(&format!("plan {spec} --against-api={wrong}"));
        assert!(refused.code == 2 && refused.err.contains("against"), "{wrong}: {}", refused.err);
    }
}

/// An owned accelerator costs its electricity: an RTX 4090's 450 W at $0.30 are $0.135 an hour.
#[test]
fn a_machine_at_home_costs_its_electricity() {
    let home =
        "plan --hardware rtx-4090 --usd-per-kwh 0.3 --rate 1 --input-len 500 --output-len 100 --requests 200";
    let (answer, code) = json(home);
    assert_eq!((code, answer["best"]["count"].as_u64()), (0, Some(1)));
    assert!((answer["best"]["cost_per_hour"].as_f64().unwrap() - 0.135).abs() < 1e-9, "{}", answer["best"]);
    // A run costs what it draws: watts · $0.30 / 1000.
    let run = json("simulate --hardware rtx-4090 --usd-per-kwh 0.3 --rate 1 --requests 50").0;
    let of = |key: &str| run["expense"][key].as_f64().unwrap();
    assert!((of("dollars_per_hour") - of("watts") * 0.3e-3).abs() < 1e-9, "{}", run["expense"]);
    let refused = roofcast("plan --hardware rtx-4090 --usd-per-kwh -1");
    assert!(refused.code == 2 && refused.err.contains("usd_per_kwh"), "{}", refused.err);
}

/// A job of 360,000 requests within 10 h is 10 requests a second without a bound; the default's bounds would need more.
#[test]
fn an_offline_job_has_a_deadline_and_no_slo() {
    let job = "--hardware h100-sxm --requests 1000 --input-len 1000 --output-len 200";
    let (answer, code) = json(&format!("plan --batch 360k --within 10h {job}"));
    assert_eq!((code, answer["best"]["bounds"].as_array().map(Vec::len)), (0, Some(0)));
    let spec: toml::Table = answer["spec"].as_str().unwrap().parse().unwrap();
    assert_eq!(spec["workload"]["arrivals"]["rate"].as_float(), Some(10.0));
    let text = roofcast(&format!("plan --batch 0.36M --within 10h {job}")).out;
    assert!(
        text.contains("360,000 requests within 10.00 h") && text.contains("before the deadline"),
        "{text}"
    );
    for wrong in ["--batch 5", "--within 5h", "--batch 5 --within 1h --rate 3", "--batch x --within 1h"] {
        assert_eq!(roofcast(&format!("plan {wrong}")).code, 2, "{wrong}");
    }
}

/// Requests beyond the model's length are refused before a search, with the key.
#[test]
fn requests_beyond_the_models_length_are_refused_before_the_search() {
    for verb in ["plan", "plan --curve"] {
        let long = roofcast(&format!("{verb} --model llama-3.1-8b --input-len 200000 --output-len 100"));
        assert!(long.code == 2 && long.out.is_empty(), "{}", long.out);
        assert!(long.err.contains("input_len") && long.err.contains("131072"), "{}", long.err);
    }
}

/// Every deployment of a search is the best or counts in one reason for which it is not.
#[test]
fn the_reasons_of_a_plan_sum_to_its_deployments() {
    let search = "--model llama-3.1-8b --hardware h100-sxm --max-accelerators 4 --rate 8 --requests 300";
    let text = roofcast(&format!("plan {search}")).out;
    let why = text.split("\nwhy ").nth(1).and_then(|rest| rest.split("\nmeets").next()).unwrap();
    let (all, reasons) = why.split_once(':').unwrap();
    let numbers =
        |text: &str| -> u64 { text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum() };
    assert_eq!(numbers(reasons) + 1, numbers(all), "{why}");
    assert!(reasons.contains("meet it and rank behind"), "{why}");
}
