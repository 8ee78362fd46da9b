//! Wrong input: one clear line with the place, the field, the value found and the accepted values; exit code 2.

use crate::support::{file, roofcast, run};

/// Asserts exit code 2, one line on stderr with every part of `says`, and empty stdout.
fn refused(arguments: &str, says: &[&str]) {
    let run = roofcast(arguments);
    assert_eq!(run.code, 2, "{arguments}: {}", run.err);
    assert!(run.out.is_empty(), "{arguments}: {}", run.out);
    for part in says {
        assert!(run.err.contains(part), "{arguments}: {part:?} is not in {:?}", run.err);
    }
    assert_eq!(run.err.trim_end().lines().count(), 1, "{arguments}: {}", run.err);
}

#[test]
fn routers_that_weigh_caches_are_simulated_not_emulated() {
    let emulated =
        "emulate --model llama-3.1-8b --hardware h100-sxm --replicas 2 --count 2 --port 0 --router";
    for router in ["dynamo_kv", "llm_d", "cache_aware", "kvaware", "vllm_cache_aware", "kv_aware", "lmetric"]
    {
        refused(
            &format!("{emulated} {router}"),
            &["fleet.router", router, "least_loaded", "--kv-events-config"],
        );
    }
    let simulated = "simulate --model llama-3.1-8b --hardware h100-sxm --requests 10 --router llm_d";
    refused(
        &format!("{simulated} --set fleet.routing.queue_weight=-1"),
        &["fleet.routing.queue_weight", "0 to 1000"],
    );
}

#[test]
fn names_that_are_not_there() {
    refused("capacity --model nope --hardware h100-sxm", &["nope", "roofcast catalog"]);
    refused("capacity --model llama-3.1-8b --hardware h100-foo", &["h100-foo", "h100-sxm"]);
    refused("limits --hardware h100-sxm", &["--model", "missing"]);
    refused("limits --model gone/config.json --hardware h100-sxm", &["gone/config.json", "No such file"]);
}

#[test]
fn flags_that_cannot_be() {
    let base = "limits --model llama-3.1-8b --hardware";
    refused(&format!("{base} h100-sxm --tp 3"), &["`tp` is 3", "32 query heads"]);
    refused(&format!("{base} h100-sxm --count 6 --tp 4"), &["`count` is 6"]);
    refused(&format!("{base} a100-sxm-80gb --weights fp8"), &["a100-sxm-80gb", "fp8", "bf16", "w8"]);
    refused(&format!("{base} v100-32gb --weights bf16"), &["v100-32gb", "bf16", "fp16"]);
    refused(&format!("{base} h100-sxm --weights w5"), &["w5", "gptq-int4"]);
    refused(&format!("{base} h100-sxm --kv 5"), &["`kv` is \"5\"", "q8_0"]);
    refused(&format!("{base} h100-sxm --sweep depth=1"), &["--sweep", "batch"]);
    refused(&format!("{base} h100-sxm --gpu-memory-utilization 1.5"), &["gpu_memory_utilization", "1.5"]);
    refused(&format!("{base} h100-sxm --ep 2 --count 2"), &["`ep` is 2", "no experts"]);
}

/// Phi-4 has 40 query heads and 10 KV heads (its config.json: num_attention_heads, num_key_value_heads). 4 divides 40,
/// but it neither divides 10 nor is a multiple of 10; over 20 ranks each KV head is replicated twice.
#[test]
fn ranks_divide_query_heads_and_divide_or_repeat_kv_heads() {
    let base = "limits --model phi-4 --hardware h100-sxm --tp";
    let kv = "a divisor or a multiple of the 10 KV heads of microsoft/phi-4";
    refused(&format!("{base} 4 --count 4"), &["`tp` is 4", kv]);
    refused(&format!("{base} 3"), &["`tp` is 3", "a divisor of the 40 query heads"]);
    assert_eq!(roofcast(&format!("{base} 20")).code, 0);
}

#[test]
fn commands_that_start_nothing() {
    let refused = |command: &str, says: &[&str]| {
        let run = run(["simulate", "--from-command", command, "--hardware", "h100-sxm", "--requests", "2"]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{command}: {}", run.err);
        says.iter().for_each(|part| assert!(run.err.contains(part), "{command}: {}", run.err));
    };
    refused("vllm serve", &["--from-command", "no model"]);
    refused("python -m sglang.launch_server --tp 2", &["--from-command", "no model"]);
    // Qwen3-32B's max_position_embeddings is 40,960.
    let qwen = "vllm serve Qwen/Qwen3-32B --max-model-len";
    refused(&format!("{qwen} 1000000"), &["`--max-model-len` is 1000000", "at most the 40960 tokens"]);
    let other = "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --context-length 40961";
    refused(other, &["`--context-length` is 40961", "at most the 40960 tokens"]);
    // Values with which the engine starts are accepted.
    let accepted = |arguments: &[&str]| {
        let rest = ["--hardware", "h200-sxm", "--requests", "2"];
        let run = run(["simulate"].into_iter().chain(arguments.iter().copied()).chain(rest));
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.err);
    };
    accepted(&["--from-command", &format!("{qwen} 40960")]);
    accepted(&["--from-command", &format!("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 {qwen} 50000")]);
    accepted(&["--from-command", "vllm serve", "--model", "llama-3.1-8b"]);
}

/// Each error is on its own line, no matter if clap or the spec refuses the value.
#[test]
fn all_values_that_cannot_be_are_told_at_once() {
    let told = |arguments: &str| {
        let run = roofcast(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}");
        run.err.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let of_flags = told("simulate --rate abc --input-len=foo --tp x --requests 10");
    assert_eq!(of_flags.len(), 3, "{of_flags:?}");
    for (line, flag) in
        of_flags.iter().zip(["`--rate` is \"abc\"", "`--input-len` is \"foo\"", "`--tp` is \"x\""])
    {
        assert!(line.contains(flag), "{of_flags:?}");
    }
    // An alias of a flag, and a refused value that another flag may have.
    let alias = told("simulate --users 1.5 --input-len 8 --tp 1.5");
    assert_eq!(alias.len(), 2, "{alias:?}");
    let of_keys = told("simulate --scheduler foo --router bar --set engine.blok_size=1 --requests 10");
    assert_eq!(of_keys.len(), 3, "{of_keys:?}");
    let all = of_keys.join("\n");
    for part in ["`--scheduler` is \"foo\"", "`--router` is \"bar\"", "did you mean `block_size`"] {
        assert!(all.contains(part), "{all}");
    }
}

#[test]
fn settings_that_lack_another() {
    refused("simulate --think-s 3", &["`--think-s`", "--turns", "--concurrency"]);
    refused("simulate --prefix-share 0.5", &["`--prefix-share`", "--prefix-len"]);
    refused("plan --disaggregated=maybe", &["`--disaggregated` is \"maybe\"; accepted: true or false"]);
    refused("simulate --replicas 1000000", &["`--replicas` is \"1000000\"", "1 to 65536"]);
    refused("simulate --rate 1e-300", &["`workload.arrivals.rate` is 1e-300;"]);
}

#[test]
fn files_that_are_empty() {
    let (_folder, path) = file("empty.json", b" \n");
    refused(&format!("catalog add {path}"), &[&path, "empty", "config.json"]);
    refused(&format!("limits --model {path} --hardware h100-sxm"), &[&path, "empty", "config.json"]);
    let ask = ["plan", "--from-command", "vllm serve llama-3.1-8b", "--measured", &path];
    let measured = run(ask.into_iter().chain(["--set", "hardware.accelerator=h100-sxm"]));
    assert_eq!(measured.code, 2);
    assert!(measured.err.contains(&path) && measured.err.contains("is empty"), "{}", measured.err);
}

#[test]
fn fleets_and_drafts_that_cannot_be() {
    let base = std::fs::read_to_string(crate::support::root().join("examples/speculative.toml")).unwrap();
    let small = "meta-llama/Llama-3.2-1B-Instruct";
    for (from, to, says) in [
        (small, "nope/nope", ["nope/nope", "roofcast catalog"]),
        ("acceptance_rate = 0.7", "acceptance_rate = 7", ["`acceptance_rate` is 7", "0 to 1"]),
        ("num_speculative_tokens = 4", "num_speculative_tokens = -1", [":11:", "num_speculative_tokens"]),
        ("count = 4", "count = 4\n[fleet]\nrouter = \"x\"", ["fleet.router", "least_loaded"]),
        (
            "count = 4",
            "count = 4\n[fleet.autoscale]\ntarget_in_flight = 1\nmax_replicas = 2\nstartup_s = 1\nidle_s = 1",
            ["`count` is 4", "fleet.autoscale has max_replicas"],
        ),
    ] {
        let (_folder, path) = file("spec.toml", base.replacen(from, to, 1).as_bytes());
        refused(&format!("simulate {path}"), &says);
    }
    let (_folder, path) =
        file("spec.toml", base.replace("closed_loop", "poisson").replace("concurrency", "rate").as_bytes());
    refused(&format!("plan {path}"), &["engine.speculative.draft_model", "draft_cost"]);
}

#[test]
fn configs_that_cannot_be() {
    let cases: [(&[u8], &[&str]); 9] = [
        (b"{\"hidden_size\": -3, \"num_hidden_layers\": 2}", &["`hidden_size` is -3"]),
        (b"{\"hidden_size\": 8, \"num_hidden_layers\": 10000}", &["`num_hidden_layers` is 10000"]),
        (b"{\"hidden_size\": 1e99, \"num_hidden_layers\": 2}", &["`hidden_size` is 1e"]),
        (b"{\"hidden_size\": \"wide\", \"num_hidden_layers\": 2}", &["`hidden_size` is \"wide\""]),
        (
            b"{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"vocab_size\": 9}",
            &["num_attention_heads"],
        ),
        (b"{\"num_hidden_layers\": 2", &["line 1"]),
        (b"[1, 2]", &["not a JSON object"]),
        (b"\xff\xfe", &["UTF-8"]),
        (b"", &["empty", "config.json"]),
    ];
    for (text, says) in cases {
        let (_folder, path) = file("config.json", text);
        refused(&format!("capacity --model {path} --hardware h100-sxm"), says);
    }
    let deep = "[".repeat(300_000);
    let (_folder, path) = file("config.json", deep.as_bytes());
    refused(&format!("capacity --model {path} --hardware h100-sxm"), &["recursion"]);
}

#[test]
fn a_file_of_two_gigabytes_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
    refused(&format!("capacity --model {} --hardware h100-sxm", path.display()), &["larger than 64 MiB"]);
}

#[test]
fn specs_that_cannot_be() {
    let good = "[model]\nname = \"llama-3.1-8b\"\n[workload]\ninput_len = 10\noutput_len = 10\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n";
    let cases = [
        (good.replace("[model]", "[modell]"), vec![":1:2", "modell", "`model`"]),
        (good.replace("rate = 1.0", "rate = nan"), vec!["workload.arrivals.rate", "NaN"]),
        (good.replace("rate = 1.0", "rate = -1.0"), vec!["workload.arrivals.rate", "-1"]),
        (good.replace("poisson", "posson"), vec!["posson", "`poisson`"]),
        (good.replace("1.0", "\"x\""), vec![":8:1: `workload.arrivals.rate` is \"x\"; accepted: a number"]),
        (good.replace("1.0", "[1]"), vec!["`workload.arrivals.rate` is [1]; accepted: a number"]),
        (
            good.replace("[workload.arrivals]\nkind = ", "arrivals.kind = ")
                .replace("rate = 1.0", "arrivals.rate = true"),
            vec!["`workload.arrivals.rate` is true; accepted: a number"],
        ),
        (good.replace("input_len = 10", "input_len = 0"), vec!["workload.input_len"]),
        (good.replace("[workload]", "[slo]\ntpot_p99_ms = 0.0\n[workload]"), vec!["slo.tpot_p99_ms"]),
        (format!("{good}[search]\naccelerators = [\"h100-foo\"]\n"), vec!["h100-foo"]),
        (format!("{good}[search]\nminimise = \"fun\"\n"), vec!["search.minimise", "cost_per_hour"]),
        (format!("{good}[search]\nweights = [\"w5\"]\n"), vec!["w5"]),
        ("[model]\nname = \"llama-3.1-8b\"\n".into(), vec!["workload", "missing"]),
        ("= 1".into(), vec![":1:1"]),
    ];
    for (text, says) in cases {
        let (_folder, path) = file("spec.toml", text.as_bytes());
        refused(&format!("plan {path}"), &says);
    }
    refused("simulate --set workload.arrivals.rate=fast", &["`--rate` is \"fast\"; accepted: a number"]);
}

#[test]
fn traces_count_from_the_specs_folder_and_are_checked() {
    let text = "[model]\nname = \"llama-3.1-8b\"\n[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\n[search]\naccelerators = [\"h100-sxm\"]\nmax_accelerators = 1\n";
    let (folder, path) = file("spec.toml", text.as_bytes());
    refused(&format!("plan {path}"), &["t.csv"]);
    let trace = |text: &str| std::fs::write(folder.path().join("t.csv"), text).unwrap();
    trace("arrival_s,input_len,output_len\n0,100,10\n1,100,ten\n");
    refused(&format!("plan {path}"), &["t.csv:3:7", "output_len", "\"ten\"", "a whole number"]);
    trace("arrival_s,input_len,output_len\n0,100,10\n");
    refused(&format!("plan {path}"), &["workload.arrivals", "all at one time", "closed_loop"]);
    trace("arrival_s,input_len,output_len\n0,100,10\n2,300,30\n");
    let run = roofcast(&format!("plan {path}"));
    // One gap of 2 s is a rate of 0.5; the mean lengths are 200 and 20.
    assert!(run.code == 0 && run.out.contains("0.5"), "{}{}", run.out, run.err);
    let words = run.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("200 prompt (p50 100, p99 300) and 20 output (p50 10, p99 30) tokens on average"),
        "{}",
        run.out
    );
}

#[test]
fn a_users_catalog_is_checked_too() {
    let (_folder, path) = file("mine.toml", b"[[accelerator]]\nid = \"x\"\n");
    refused(&format!("catalog --catalog {path}"), &["mine.toml:1", "missing field"]);
}

#[test]
fn nothing_is_half_written() {
    let run =
        run(["limits", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--svg", "no/such/folder/r.svg"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("no/such/folder/r.svg"), "{}", run.err);
}

#[test]
fn a_model_that_does_not_fit_is_an_answer() {
    let (answer, code) = crate::support::json("capacity --model llama-3.1-405b --hardware rtx-4090");
    assert_eq!(code, 4);
    assert_eq!((answer["fits"].as_bool(), answer["kv_tokens"].as_u64()), (Some(false), Some(0)));
    assert!(answer["short_by_bytes"].as_u64().unwrap() > 700_000_000_000);
    let text = roofcast("capacity --model llama-3.1-405b --hardware rtx-4090").out;
    assert!(text.contains("does not fit") && text.contains("hold the weights"), "{text}");
}

#[test]
fn measurements_that_cannot_be() {
    let good = "kind,model,hardware,tpot_ms,context_len\ndecode_step,llama-3.1-8b,h100-sxm,9,100\n";
    for (from, to, says) in [
        ("decode_step", "decode", [":2", "decode_step"]),
        ("h100-sxm,9", "h100-sxm,-9", [":2", "tpot_ms"]),
        ("kind,", "sort,", [":2: `kind` is", "closed_loop"]),
    ] {
        let (_folder, path) = file("m.csv", good.replacen(from, to, 1).as_bytes());
        refused(&format!("validate {path}"), &says);
        refused(&format!("calibrate {path}"), &says);
    }
    let (_folder, path) = file("mine.toml", b"source = \"x\"\nband = []\nlevel = []\n");
    refused(&format!("validate examples/measured.csv --calibration {path}"), &["mine.toml", "level"]);
}

/// A refused key, further keys of `[engine]`, and the parts of the error message.
const CACHES: &[(&str, &str, &[&str])] = &[
    ("engine.kv_layout=contiguous", "", &["kv_layout", "contiguous", "llama.cpp, orca, static"]),
    ("engine.kv_layout=vattention", "scheduler = \"orca\"", &["kv_layout", "vattention", "vllm-v0"]),
    (
        "engine.kv_layout=vattention",
        "speculative = { num_speculative_tokens = 3, acceptance_rate = 0.5, draft_cost = 0.1 }",
        &["kv_layout", "vattention with drafts", "pages of two models"],
    ),
    ("engine.kv_layout=vattention", "block_size = 16", &["block_size", "16", "pages of 2 MiB"]),
    (
        "engine.kv_layout=vattention",
        "enable_prefix_caching = true",
        &["enable_prefix_caching", "shares no pages"],
    ),
    ("engine.scheduler_recv_interval=10", "", &["scheduler_recv_interval", "sglang"]),
    (
        "engine.scheduler_recv_interval=10",
        "scheduler = \"sglang\"\npolicy = \"sjf\"",
        &["scheduler_recv_interval", "fcfs"],
    ),
    (
        "engine.batch_wait_timeout_iters=20",
        "scheduler = \"sglang\"",
        &["batch_wait_timeout_iters", "tensorrt-llm"],
    ),
    (
        "engine.batch_wait_max_tokens_ratio=2.0",
        "scheduler = \"tensorrt-llm\"",
        &["batch_wait_max_tokens_ratio", "2", "0 to 1"],
    ),
    ("engine.disable_overlap_scheduler=true", "", &["disable_overlap_scheduler", "tensorrt-llm"]),
    ("engine.attention_dp_enable_balance=true", "", &["attention_dp_enable_balance", "tensorrt-llm"]),
    ("engine.kv_layout=paged", "scheduler = \"llama.cpp\"", &["kv_layout", "paged", "vllm-v0, sglang"]),
    ("engine.kv_layout=segmented", "", &["kv_layout", "segmented", "`flashinfer`"]),
    ("engine.schedule_policy=lpm", "", &["schedule_policy", "lpm", "sglang"]),
    (
        "engine.chunked_prefill_size=100",
        "scheduler = \"sglang\"\npage_size = 16",
        &["chunked_prefill_size", "100", "multiple of page_size (16)"],
    ),
    ("engine.enable_mixed_chunk=true", "", &["enable_mixed_chunk", "sglang"]),
    (
        "engine.disable_radix_cache=true",
        "scheduler = \"sglang\"\nenable_prefix_caching = true",
        &["enable_prefix_caching", "disable_radix_cache"],
    ),
    (
        "engine.schedule_conservativeness=-1.0",
        "scheduler = \"sglang\"",
        &["schedule_conservativeness", "-1", "0 to 1000"],
    ),
    ("engine.max_num_active_seqs=0", "", &["max_num_active_seqs", "from 1"]),
    ("engine.prefill_schedule_interval=0", "", &["prefill_schedule_interval", "from 1"]),
    ("engine.api_server_count=0", "", &["api_server_count", "0", "1 to 1024"]),
    ("engine.api_server_count=4294967295", "", &["api_server_count", "4294967295", "1 to 1024"]),
    (
        "engine.prefill_schedule_interval=4",
        "version = \"0.32.0\"",
        &["prefill_schedule_interval", "4", "attention_dp above 1"],
    ),
    ("engine.max_num_queued_reqs=9", "scheduler = \"orca\"", &["max_num_queued_reqs", "vllm"]),
    ("workload.max_tokens=0", "", &["workload.max_tokens", "1 to 100000000"]),
    ("engine.reservation=pow2", "", &["reservation", "orca or static"]),
    ("engine.preemption_mode=swap", "", &["preemption_mode", "swap", "vllm-v0"]),
    (
        "engine.enable_prefix_caching=true",
        "scheduler = \"lightllm\"",
        &["enable_prefix_caching", "vllm, sglang or llama.cpp"],
    ),
    (
        "model.name=google/gemma-3-27b-it",
        "kv_layout = \"vattention\"",
        &["kv_layout", "vattention for", "same keys"],
    ),
    ("hardware.accelerator=tpu-v5p", "kv_layout = \"vattention\"", &["kv_layout", "on tpu-v5p", "CUDA"]),
];

#[test]
fn caches_that_a_scheduler_does_not_have() {
    for (sweep, engine, says) in CACHES {
        let text = format!(
            "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\n{engine}\n[workload]\n\
             requests = 3\ninput_len = 10\noutput_len = 10\narrivals = {{ kind = \"constant\", rate = 1.0 }}\n"
        );
        let (_folder, path) = file("spec.toml", text.as_bytes());
        refused(&format!("simulate {path} --sweep {sweep}"), says);
    }
}
