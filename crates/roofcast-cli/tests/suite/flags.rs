//! Flags, specs and sweeps have equal effects; a dumped spec is read back.

use crate::support::{file, json, roofcast, root, run};

const QWEN: &str = "--model Qwen/Qwen3-32B --hardware h100-sxm --tp 2";

/// Standard output of a run, which must succeed.
fn answer(arguments: &str) -> String {
    let run = roofcast(arguments);
    assert_eq!(run.code, 0, "{arguments}: {}", run.err);
    run.out
}

#[test]
fn flags_say_what_a_spec_says() {
    let text = "[model]\nname = \"Qwen/Qwen3-32B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[parallelism]\ntp = 2\n\
                [engine]\nmax_num_seqs = 64\nenable_prefix_caching = false\nscheduler = \"sarathi\"\n\
                [workload]\nrequests = 50\nseed = 7\ninput_len = 2000\noutput_len = 300\n\
                arrivals = { kind = \"poisson\", rate = 5.0 }\n[slo]\nttft_p99_ms = 900\ntpot_p99_ms = 50\n";
    let (_folder, path) = file("spec.toml", text.as_bytes());
    let flags = format!(
        "simulate {QWEN} --max-num-seqs 64 --no-enable-prefix-caching --scheduler sarathi --requests 50 --seed 7 \
         --input-len 2000 --output-len 300 --rate 5 --ttft-p99 900"
    );
    assert_eq!(json(&flags), json(&format!("simulate {path}")));
    // Flags override a spec, whatever the spec says.
    let over = format!("simulate {path} --users 3 --set engine.max_num_seqs=2 --e2el-p99 9000");
    let own = text
        .replace("kind = \"poisson\", rate = 5.0", "kind = \"closed_loop\", concurrency = 3")
        .replace("max_num_seqs = 64", "max_num_seqs = 2")
        + "e2el_p99_ms = 9000\n";
    let (_folder, other) = file("spec.toml", own.as_bytes());
    assert_eq!(json(&over), json(&format!("simulate {other}")));
}

/// A key of one engine: by its flag, in `[engine]`, in the section of the engine and by `--set`. A dumped spec has the
/// section, and a flag of another engine is refused.
#[test]
fn a_key_of_one_engine_is_set_in_four_ways() {
    let machine = "[model]\nname = \"Qwen/Qwen3-32B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[parallelism]\ntp = 2\n\
                   [workload]\nrequests = 20\ninput_len = 100\noutput_len = 10\n\
                   arrivals = { kind = \"poisson\", rate = 5.0 }\n";
    let spec = |engine: &str| file("spec.toml", format!("{machine}[engine]\n{engine}\n").as_bytes());
    let (_plain, plain) = spec("name = \"vllm\"");
    let (_flat, flat) = spec("name = \"vllm\"\nasync_scheduling = true");
    let (_section, section) =
        spec("name = \"vllm\"\n[engine.vllm]\nasync_scheduling = true\n[engine.sglang]\nhicache_ratio = 4");
    let dumps = [
        format!("{plain} --async-scheduling"),
        format!("{plain} --set engine.vllm.async_scheduling=true"),
        flat,
        format!("{section} --set engine.sglang={{}}"),
    ];
    let dumps = dumps.map(|asked| answer(&format!("simulate {asked} --dump-spec")));
    for dump in &dumps {
        let (_, own) = dump.split_once("\n[engine.vllm]\n").unwrap();
        assert!(own.starts_with("async_scheduling = true"), "{dump}");
        let (_folder, path) = file("spec.toml", dump.as_bytes());
        assert_eq!(json(&format!("simulate {path}")), json(&format!("simulate {section}")));
    }
    let refused = roofcast(&format!("simulate {plain} --hicache-ratio 4"));
    let says = "engine: `hicache_ratio` is set; accepted: the scheduler sglang, or the key omitted";
    assert!(refused.code == 2 && refused.err.contains(says), "{}", refused.err);
}

#[test]
fn a_plan_is_asked_by_flags() {
    let flags = "plan --model llama-3.1-8b --rate 20 --input-len 1000 --output-len 200 --ttft-p99 2000 --tpot-p99 50 \
                 --hardware h200-sxm,h100-sxm --max-accelerators 4 --weights fp8,bf16 --minimise accelerators --requests 15000";
    let text = "[model]\nname = \"llama-3.1-8b\"\n[workload]\ninput_len = 1000\noutput_len = 200\n\
                arrivals = { kind = \"poisson\", rate = 20 }\n[slo]\nttft_p99_ms = 2000\ntpot_p99_ms = 50\n[search]\n\
                accelerators = [\"h200-sxm\", \"h100-sxm\"]\nmax_accelerators = 4\nweights = [\"fp8\", \"bf16\"]\n\
                minimise = \"accelerators\"\nrequests = 15000\n";
    let (_folder, path) = file("spec.toml", text.as_bytes());
    let asked = planned(flags);
    assert_eq!(asked, planned(&format!("plan {path}")));
    let dumped = answer(&format!("{flags} --dump-spec"));
    let (_folder, dump) = file("dump.toml", dumped.as_bytes());
    assert_eq!(asked, planned(&format!("plan {dump}")));
}

/// The answer of a plan without `spec`, whose numbers keep the form in which they were written: 50 in a file, 50.0 by a
/// flag.
fn planned(asked: &str) -> serde_json::Value {
    let (mut answer, code) = json(asked);
    assert_eq!(code, 0, "{asked}");
    assert!(answer.as_object_mut().unwrap().remove("spec").is_some_and(|spec| spec.is_string()), "{asked}");
    answer
}

/// The load for a live server is a spec, too: dumping the dump gives an equal spec.
#[test]
fn the_load_of_a_server_is_dumped() {
    let bench = "bench --url http://127.0.0.1:1";
    for asked in [
        "--model llama-3.1-8b --concurrency 8 --slo-ttft 500",
        "--model llama-3.1-8b --hardware h100-sxm --rate 3 --constant --input-len 100 --requests 7",
        "--model llama-3.1-8b --rate 3 --burstiness 0.5 --output-len 9 --seed 4",
        "examples/serving-users.toml --rate 2",
    ] {
        let first = answer(&format!("{bench} {asked} --dump-spec"));
        let (_folder, path) = file("dump.toml", first.as_bytes());
        assert_eq!(answer(&format!("{bench} {path} --dump-spec")), first, "{asked}");
    }
    let text = answer(&format!("{bench} --model m --concurrency 8 --slo-ttft 500 --dump-spec"));
    for line in ["concurrency = 8 ", "requests = 100 ", "input_len = 512 ", "ttft_p99_ms = 500.0 "] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// Asserts that the answer of `verb asked` equals the answer of its dumped spec with the flags in the dump's first
/// line.
fn dumped(verb: &str, asked: &str) {
    let text = answer(&format!("{verb} {asked} --dump-spec"));
    let (_folder, path) = file("dump.toml", text.as_bytes());
    let first = text.lines().next().unwrap();
    let again = first.strip_prefix("# roofcast ").unwrap_or_else(|| panic!("{first}"));
    assert!(again.starts_with(&format!("{verb} SPEC.toml")), "{first}");
    let (expected, found) = (json(&format!("{verb} {asked}")), json(&again.replace("SPEC.toml", &path)));
    assert_eq!(found, expected, "{verb} {asked}\n{text}");
}

#[test]
fn a_dumped_spec_gives_the_same_answer() {
    for asked in [
        "--model deepseek-ai/DeepSeek-V3 --hardware h200-sxm --count 8 --ep 8 --batch 32 --context 8192",
        "--model llama-3.1-8b --hardware rtx-4090 --weights q4_k_m --ideal --convention seed-003",
        "--model Qwen/Qwen3-32B-FP8 --hardware h100-sxm --sweep batch=1..64:x4",
        "--model llama-3.1-8b --hardware h100-sxm --kv-layout vattention --mfu 0.5",
    ] {
        dumped("limits", asked);
    }
    dumped(
        "capacity",
        "--model llama-3.1-8b --hardware rtx-4090 --users 40 --context 8192 --max-num-seqs 16",
    );
    for asked in [
        "--requests 40",
        "--requests 40 --engine llama.cpp --users 4 --weights q4_k_m --hardware rtx-4090",
        "--requests 40 --engine sglang --sweep seed=1,2",
        "--requests 40 --replicas 2P1D --rate 20",
        "--requests 40 --replicas 3 --router least_loaded --count 6 --tp 2",
        "--workload azure-conv-2023 --requests 40",
        "--turns 3 --users 4 --input-len 100 --output-len 50 --prefix-len 1000 --requests 30",
    ] {
        dumped("simulate", asked);
    }
}

#[test]
fn every_simulated_example_is_dumped_and_read_back() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if text.starts_with("# roofcast simulate") {
            dumped("simulate", &format!("{} --requests 6", path.display()));
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn sweeps_of_several_keys_are_every_combination() {
    let base = format!("simulate {QWEN} --requests 20 --input-len 500 --output-len 50");
    let swept = base.replace(" --tp 2", "") + " --sweep tp=2,4 --sweep rate=1..4:x2";
    let (all, _) = json(&swept);
    assert_eq!(all["sweep"], serde_json::json!(["parallelism.tp", "workload.arrivals.rate"]));
    let points = all["points"].as_array().unwrap();
    let values: Vec<_> = points.iter().map(|p| p["values"].clone()).collect();
    let each = [[2, 1], [2, 2], [2, 4], [4, 1], [4, 2], [4, 4]];
    assert_eq!(values, each.map(|values| serde_json::json!(values)));
    // Each row of the comparison equals the run of its spec by itself.
    let one = base.replace("--tp 2", "--tp 4") + " --rate 2";
    let (one, _) = json(&one);
    assert_eq!(points[4]["mean_e2el_ms"], one["mean_e2el_ms"]);
    let csv = answer(&(swept + " --csv"));
    assert!(csv.starts_with("parallelism.tp,workload.arrivals.rate,completed,"), "{csv}");
    assert_eq!(csv.lines().count(), 7);
}

#[test]
fn two_specs_are_compared_and_drawn() {
    let spec = |scheduler: &str| {
        format!(
            "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\nscheduler = \"{scheduler}\"\n\
             [workload]\nrequests = 20\ninput_len = 300\noutput_len = 40\narrivals = {{ kind = \"poisson\", rate = 1 }}\n"
        )
    };
    let (_a, one) = file("chunked.toml", spec("vllm").as_bytes());
    let (folder, two) = file("orca.toml", spec("orca").as_bytes());
    let svg = folder.path().join("both.svg");
    let (all, _) = json(&format!("simulate {one} {two} --sweep rate=2,8 --svg {}", svg.display()));
    assert_eq!(all["sweep"], serde_json::json!(["spec", "workload.arrivals.rate"]));
    let of = |index: usize| all["points"][index]["values"].clone();
    assert_eq!(
        [of(0), of(1), of(2)],
        [serde_json::json!([one, 2]), serde_json::json!([one, 8]), serde_json::json!([two, 2])]
    );
    assert_eq!(all["points"][2]["settings"]["scheduler"], "orca");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    for name in ["chunked.toml", "orca.toml", "p99"] {
        assert!(drawn.contains(name), "{name}");
    }
    // Without a swept key, two specs are compared, named by their files.
    let table = answer(&format!("simulate {one} {two}"));
    assert!(table.contains("chunked.toml") && table.contains("orca.toml"), "{table}");
}

#[test]
fn flags_that_cannot_be_are_named() {
    for (arguments, says) in [
        ("simulate --scheduler foo", ["--scheduler", "foo", "`sarathi`"]),
        ("simulate --replicas 3x", ["--replicas", "3x", "3P1D"]),
        ("simulate --tp two", ["--tp", "two", "a whole number"]),
        ("simulate --set nope=1", ["--set", "nope=1", "engine.watermark"]),
        ("simulate --set engine.nope=1", ["engine.nope", "unknown field", "`roofcast keys`"]),
        (
            "simulate --set engine.blok_size=1",
            ["engine.blok_size", "unknown field", "did you mean `block_size`?"],
        ),
        ("simulate --workload nope", ["nope", "workload", "roofcast catalog"]),
        ("simulate --sweep tp=1,2 --tp 2", ["--sweep", "--tp", "one of the two"]),
        ("simulate --sweep seed=1,2 --sweep seed=3", ["--sweep", "twice", "each key once"]),
        ("simulate --sweep seed=1..1000 --sweep rate=1..1000", ["--sweep", "1000000 runs", "100000"]),
        ("simulate --rate 2 --users 3", ["--rate", "--concurrency", "cannot be used"]),
        ("plan --tpot-p99 0", ["slo.tpot_p99_ms", "0", "above 0"]),
    ] {
        let run = roofcast(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
        for part in says {
            assert!(run.err.contains(part), "{arguments}: {part:?} is not in {:?}", run.err);
        }
    }
}

#[test]
fn an_engines_command_is_read() {
    let command = "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 64 --no-enable-prefix-caching --port 8000 --dtype half";
    let rest = ["--hardware", "h100-sxm", "--requests", "30", "--rate", "2", "--json"];
    let read = run(["simulate", "--from-command", command].into_iter().chain(rest));
    assert_eq!(read.code, 0, "{}", read.err);
    assert_eq!(
        read.err,
        "roofcast: --from-command: not modelled: --dtype\n\
         roofcast: --from-command: of no effect on a forecast: --port\n"
    );
    let flags = "simulate --model Qwen/Qwen3-32B --tp 2 --max-num-seqs 64 --no-enable-prefix-caching --hardware h100-sxm \
                 --requests 30 --rate 2 --json";
    assert_eq!(read.out, roofcast(flags).out);
    let wrong = run(["limits", "--from-command", "vllm serve m --max-num-seq-s 3", "--hardware", "h100-sxm"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("--max-num-seq-s") && wrong.err.contains("--max-num-seqs"), "{}", wrong.err);
    // A command in a plan's output, read with --from-command, gives the planned deployment.
    let (plan, _) = json("plan --model llama-3.1-70b --hardware h100-sxm --rate 5 --weights fp8");
    let start = plan["launch"][0]["command"].as_str().unwrap();
    let found = run(["limits", "--from-command", start, "--hardware", "h100-sxm", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(found["parallelism"]["tp"], plan["best"]["tp"], "{start}");
    assert_eq!(found["weights"], plan["best"]["weights"], "{start}");
}

#[test]
fn a_starter_runs_and_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.toml").display().to_string();
    let init = format!("init {path}");
    assert_eq!(roofcast(&init).code, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, roofcast("init").out);
    for key in ["# watermark =", "# [fleet.prefill]", "# minimise =", "# tp =", "rate = 10.0"] {
        assert!(text.contains(key), "{key}");
    }
    assert_eq!(json(&format!("simulate {path} --requests 40")), json("simulate --requests 40"));
    let again = roofcast(&init);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("there already"), "{}", again.err);
}

/// A missing model does not hide an unknown accelerator: both are reported.
#[test]
fn all_that_is_wrong_is_said_at_once() {
    let run = roofcast("limits --hardware h1000 --engine nope");
    let lines: Vec<&str> = run.err.lines().collect();
    assert_eq!((run.code, run.out.as_str(), lines.len()), (2, "", 3), "{}", run.err);
    for (line, says) in lines.iter().zip(["`--model` is missing", "h1000", "`engine.name` is \"nope\""]) {
        assert!(line.starts_with("roofcast: ") && line.contains(says), "{says}: {line}");
    }
}

/// `-h` of a verb shows few flags under headings, `--help` shows all; each example of a verb that needs no server runs.
#[test]
fn help_is_short_and_its_examples_run() {
    for verb in ["limits", "capacity", "plan", "simulate", "bench", "emulate"] {
        let flags = |help: &str| {
            let text = answer(&format!("{verb} {help}"));
            (text.lines().filter(|line| line.trim_start().starts_with("--")).count(), text)
        };
        let ((few, short), (all, long)) = (flags("-h"), flags("--help"));
        assert!(few <= 28 && all > few, "{verb}: {few} of {all}");
        for heading in ["Input:", "Model and hardware:", "Engine:", "Examples:", "`roofcast keys"] {
            assert!(short.contains(heading) && long.contains(heading), "{verb}: {heading}");
        }
        let runs = !["bench", "emulate"].contains(&verb);
        for line in short.lines().filter_map(|line| line.strip_prefix("  roofcast ")).filter(|_| runs) {
            let line = line.replace(" spec.toml --launch-dir launch", "");
            let words: Vec<&str> = line
                .split('"')
                .enumerate()
                .flat_map(
                    |(part, text)| {
                        if part % 2 == 1 { vec![text] } else { text.split_whitespace().collect() }
                    },
                )
                .collect();
            let run = run(words.into_iter().chain(["--dump-spec"]));
            assert_eq!(run.code, 0, "{line}: {}", run.err);
        }
    }
    let program = answer("-h");
    let at = |text: &str| program.find(text).unwrap();
    assert!(
        at("  simulate") < at("To maintain its evidence:")
            && at("To maintain its evidence:") < at("  calibrate")
    );
}

#[test]
fn keys_are_found_by_words() {
    let found = answer("keys prefix caching --csv");
    assert!(found.contains("engine.enable_prefix_caching,--enable-prefix-caching,"), "{found}");
    let all = answer("keys --csv");
    assert_eq!(all.lines().count(), 1 + roofcast::spec::keys::KEYS.len());
    let none = roofcast("keys nothing-like-it");
    assert_eq!(
        (none.code, none.out.as_str()),
        (4, "no key has nothing-like-it; `roofcast keys` lists all\n")
    );
}
