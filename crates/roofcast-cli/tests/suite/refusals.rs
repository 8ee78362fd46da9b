//! Impossible input, over all verbs: exit code 2, a message on stderr as in the snapshots, nothing on stdout, no file
//! left.

use std::process::Command;

/// A valid spec, of which the tests replace a part by an invalid one.
const SPEC: &str = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[workload]\nrequests = 20\n\
                    input_len = 100\noutput_len = 10\narrivals = { kind = \"poisson\", rate = 1.0 }\n";

const LIMITS: &str = "limits --model llama-3.1-8b --hardware h100-sxm";
const CAPACITY: &str = "capacity --model llama-3.1-8b --hardware h100-sxm";
const BENCH: &str = "bench --url http://127.0.0.1:1 --model m";

/// Verbs, each with invalid arguments that are appended one at a time.
const FLAGS: &[(&str, &[&str])] = &[
    (
        LIMITS,
        &[
            "--batch -1",
            "--batch 0",
            "--batch 1.5",
            "--batch nan",
            "--batch 99999999999999999999",
            "--batch",
            "--context -5",
            "--context 4096q",
            "--prefill -2",
            "--mfu -0.5",
            "--mfu nan",
            "--mfu 1.01",
            "--mbu=",
            "--sweep batch=9..1",
            "--sweep batch=1..1000000000",
            "--sweep batch=",
            "--sweep batch=1..8:x1",
            "--sweep batch=1..8:0",
            "--sweep batch=-1",
            "--sweep batch=1..",
            "--sweep =1",
            "--sweep rate=x",
            "--sweep depth=1",
            "--sweep batch=1 --sweep batch=2",
            "--sweep batch=1..400 --sweep context=1..400",
            "--sweep prefill=512 --sweep batch=1,2",
            "--sweep position=1,2 --sweep context=512",
            "--sweep weights=fp8,w5",
            "--sweep weights=fp8 --weights bf16",
            "--sweep position=1 --context 512",
            "--sweep batch=1,2 --sweep tp=1,2 --measured m.csv --svg x.svg",
            "--sweep batch=1,,2",
            "--sweep batch=0..4",
            "--sweep tp=3",
            "--sweep batch=1..4 --batch 3",
            "--intensity 0x0",
            "--intensity 4096",
            "--svg /",
            "--svg no/such/folder/x.svg",
            "--tp 0",
            "--tp -1",
            "--tp 3",
            "--count 0",
            "--count 7 --tp 2",
            "--pp 33",
            "--ep 3",
            "--weights=",
            "--weights w5",
            "--weights nvfp4 --activations fp4",
            "--activations int9",
            "--kv fp9",
            "--convention nope",
            "--gpu-memory-utilization -0.1",
            "--gpu-memory-utilization nan",
            "--max-num-seqs 0",
            "--block-size -16",
            "--catalog nope.toml",
            "--json --csv",
            "--frob",
            "one.toml two.toml",
        ],
    ),
    (
        CAPACITY,
        &[
            "--context -1",
            "--batch 0",
            "--oversubscription 0",
            "--oversubscription -1",
            "--oversubscription nan",
            "--users 0",
            "--users 1.5",
        ],
    ),
    (
        "simulate",
        &[
            "--requests 0",
            "--requests -1",
            "--requests 1e-6",
            "--seed -1",
            "--cost nope",
            "--records r.txt",
            "--series /",
            "--trace-limit 5",
            "--trace t.json --trace-limit 0",
            "--sweep rate",
            "--sweep rate=",
            "--sweep rate=9..1",
            "--sweep rate=0",
            "--sweep rate=-1",
            "--sweep rate=nan",
            "--sweep rate=1..100000000",
            "--sweep nope=1",
            "--sweep a.b=1",
            "--sweep scheduler=x",
            "--sweep rate=1,x",
            "--sweep tp=3",
            "--sweep rate=1 --records r.csv",
            "--sweep seed=1..3 --seed 4",
            "--sweep tp=1 --sweep tp=2",
            "--rate -1",
            "--rate 1e400",
            "--tp -2",
            "--input-len 0",
            "--output-len 1.5",
            "--workload nope",
            "--workload=",
            "--scheduler sglangg",
            "--engine vlm",
            "--input-len -4",
            "--set workload.arrivals=3",
            "--svg x.png",
            "--replicas 3P",
            "--set a",
            "--set engine.nope=1",
            "--from-command x",
            "--concurrency 4 --rate 2",
            "nope.toml",
        ],
    ),
    ("plan", &["--hardware nope", "--hardware=", "--model=", "--cost x", "--svg /", "nope.toml"]),
    (
        BENCH,
        &[
            "--concurrency 0",
            "--concurrency -1",
            "--rate 0",
            "--rate -2",
            "--rate nan",
            "--requests -1",
            "--input-len -5",
            "--concurrency 2 --rate 3",
            "--sweep concurrency=9..1",
            "--sweep nope=1",
            "--sweep rate=1,-2",
            "--find-rate 9..1",
            "--find-rate 1..2",
            "--slo-ttft -1",
            "--timeout 0",
            "--baseline nope.json",
            "--measurements /",
            "--header nonsense",
            "--burstiness 0.5",
            "--constant",
            "--constant --burstiness 0.5 --rate 1",
            "--rate 1e400",
            "--workload nope",
            "--output-len 0",
            "--requests 0",
            "--seed -1",
            "--find-rate 1",
        ],
    ),
    (
        "",
        &[
            "limits",
            "limits --model llama-3.1-8b",
            "limits --model= --hardware h100-sxm",
            "limits --model . --hardware h100-sxm",
            "limits --model lama-3.1-8b --hardware h100-sxm",
            "limits --model ./nope --hardware h100-sxm",
            "limits --model x.gguf --hardware h100-sxm",
            "limits --model x.safetensors --hardware h100-sxm",
            "limits --model llama-3.1-8b --hardware h100-foo",
            "bench --url= --model m",
            "bench --url http://127.0.0.1:99999 --model m",
            "bench --url ftp://x --model m",
            "seeds 002",
            "seeds -1",
            "catalog nope",
            "catalog h100-sxm --csv",
            "catalog --memory 5..1",
            "catalog add nope.json --source x",
            "conformance nope.json",
            "hardware measure --threads -1",
            "hardware measure --output x.txt",
            "completions nope",
            "validate nope.csv",
            "calibrate nope.csv",
            "calibrate --kernels nope",
            "calibrate m.csv --source x",
            "validate m.csv --model llama-3.1-8b",
            "simulate a.toml b.toml --records r.csv",
            "plan --rate -1",
            "plan --ttft-p99 0",
            "plan --max-accelerators 0",
            "init /",
            "man nope",
            "capacity --model gpt2 --hardware h100-sxm --weights nope",
            "limits --model llama-3.1-8b --hardware h100sxm9",
            "catalog --format nope",
            "frob",
        ],
    ),
];

/// Replacements for a part of the spec, each with the verb that reads the result.
const SPECS: &[(&str, &str, &str)] = &[
    ("simulate", "input_len = 100", "input_len = 0"),
    ("simulate", "input_len = 100", "input_len = -3"),
    ("simulate", "input_len = 100", "input_len = nan"),
    ("simulate", "input_len = 100", "input_len = \"x\""),
    ("simulate", "input_len = 100", "input_len = { kind = \"uniform\", min = 9, max = 3 }"),
    ("simulate", "input_len = 100", "input_len = { kind = \"lognormal\", mu = 5.0, sigma = -1.0 }"),
    ("simulate", "input_len = 100", "input_len = { kind = \"zipf\" }"),
    ("simulate", "requests = 20", "requests = 0"),
    ("simulate", "requests = 20", "requests = -1"),
    ("simulate", "requests = 20", "requests = 1e3"),
    ("simulate", "requests = 20", "requests = 99999999999999"),
    ("simulate", "requests = 20", "frob = 1"),
    ("simulate", "requests = 20", "preset = \"nope\""),
    ("simulate", "rate = 1.0", "rate = 0"),
    ("simulate", "rate = 1.0", "rate = nan"),
    ("simulate", "rate = 1.0", "rate = \"fast\""),
    ("plan", "rate = 1.0", "rate = 1e300"),
    ("simulate", ", rate = 1.0", ""),
    ("simulate", "poisson", "posson"),
    ("simulate", "kind = \"poisson\", rate = 1.0", "kind = \"closed_loop\", concurrency = 0"),
    ("simulate", "kind = \"poisson\", rate = 1.0", "kind = \"trace\", path = \"\""),
    ("simulate", "kind = \"poisson\", rate = 1.0", "kind = \"trace\", path = \"nope.csv\""),
    ("simulate", "name = \"llama-3.1-8b\"", "name = \"\""),
    ("simulate", "name = \"llama-3.1-8b\"", "path = \"\""),
    ("simulate", "name = \"llama-3.1-8b\"", "path = \"nope\""),
    ("simulate", "h100-sxm", ""),
    ("limits", "h100-sxm", "h100-foo"),
    ("simulate", "[workload]", "[engine]\nmax_num_seqs = 0\n[workload]"),
    ("simulate", "[workload]", "[engine]\nscheduler = \"vlm\"\n[workload]"),
    ("simulate", "[workload]", "[engine]\nnum_gpu_blocks = 1\n[workload]"),
    ("simulate", "[workload]", "[engine]\nkv_storage_size = 8\n[workload]"),
    ("simulate", "[workload]", "[engine]\nkv_offloading_size = 8\nkv_storage_read_gb_s = 8\n[workload]"),
    (
        "simulate",
        "[workload]",
        "[engine]\nkv_offloading_size = 8\nkv_storage_size = 8\nkv_storage_read_gb_s = 0\n[workload]",
    ),
    (
        "simulate",
        "[workload]",
        "[engine]\nkv_offloading_size = 8\nkv_storage_size = 8\nkv_offloading_store_threshold = 2\n[workload]",
    ),
    ("limits", "[workload]", "[parallelism]\ntp = 3\n[workload]"),
    ("simulate", "[workload]", "[precision]\nweights = \"w5\"\n[workload]"),
    ("simulate", "[workload]", "[slo]\nttft_p99_ms = -1.0\n[workload]"),
    ("plan", "[workload]", "[search]\nmax_accelerators = 0\n[workload]"),
    ("plan", "[workload]", "[search]\nmaximum = 1\n[workload]"),
];

/// Arguments, the name of the file that they read, and its contents.
const FILES: &[(&str, &str, &str)] = &[
    ("limits s.toml", "s.toml", ""),
    ("plan s.toml", "s.toml", ""),
    ("simulate s.toml", "s.toml", ""),
    ("simulate s.toml", "s.toml", "= 1"),
    ("limits s.toml", "s.toml", "[model]\nname = 3\n"),
    ("limits --model m.gguf --hardware h100-sxm", "m.gguf", ""),
    ("limits --model m.gguf --hardware h100-sxm", "m.gguf", "GGUFxxxx"),
    ("limits --model m.safetensors --hardware h100-sxm", "m.safetensors", "xxxxxxxx"),
    ("limits --model config.json --hardware h100-sxm", "config.json", ""),
    ("limits --model config.json --hardware h100-sxm", "config.json", "{}"),
    ("limits --model llama-3.1-8b --hardware hw.toml", "hw.toml", ""),
    ("limits --model llama-3.1-8b --hardware hw.toml", "hw.toml", "[[accelerator]]\nid = \"x\"\n"),
    ("conformance t.json", "t.json", ""),
    ("conformance t.json", "t.json", "{}"),
    ("validate m.csv", "m.csv", ""),
    ("validate m.csv", "m.csv", "kind,model,hardware,tpot_ms,context_len\n"),
    (
        "validate m.csv",
        "m.csv",
        "kind,model,hardware,tpot_ms,context_len\ndecode_step,llama-3.1-8b,h100-sxm,nan,100\n",
    ),
    ("validate m.json", "m.json", "{}"),
    ("validate m.json --model llama-3.1-8b --hardware h100-sxm", "m.json", "{}"),
    ("calibrate --kernels k.parquet", "k.parquet", "x"),
];

#[test]
fn flags_that_cannot_be() {
    for (verb, cases) in FLAGS {
        let told: Vec<String> = cases.iter().map(|flags| refused(&format!("{verb} {flags}"), &[])).collect();
        let name = verb.split(' ').next().filter(|name| !name.is_empty()).unwrap_or("names");
        snapshot(&format!("refused-{name}"), &told);
    }
}

#[test]
fn specs_that_cannot_be() {
    let told = SPECS.iter().map(|(verb, from, to)| {
        assert!(SPEC.contains(from), "{from}");
        let found = refused(&format!("{verb} s.toml"), &[("s.toml", &SPEC.replacen(from, to, 1))]);
        format!("# {}\n{found}", if to.is_empty() { "without the key" } else { to }.replace('\n', " "))
    });
    snapshot("refused-specs", &told.collect::<Vec<_>>());
}

#[test]
fn files_that_cannot_be() {
    let told = FILES.iter().map(|(arguments, name, text)| {
        format!("# {name}: {text:?}\n{}", refused(arguments, &[(name, text)]))
    });
    snapshot("refused-files", &told.collect::<Vec<_>>());
}

/// Runs in a temporary folder with `files`; returns the command and its message on stderr.
fn refused(arguments: &str, files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_roofcast"));
    let run = command.args(arguments.split_whitespace()).current_dir(folder.path()).output().unwrap();
    let told = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(2), "{arguments}: {told}");
    assert!(run.stdout.is_empty(), "{arguments}: {}", String::from_utf8_lossy(&run.stdout));
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, files.len(), "{arguments} leaves files behind");
    for (debug, why) in
        [("Some(", "an Option"), ("Tokens(", "a Length"), ("Drawn(", "a Length"), ("u64", "a type")]
    {
        assert!(!told.contains(debug), "{arguments} shows {why} of Rust: {told}");
    }
    format!("$ roofcast {}\n{told}", arguments.trim())
}

fn snapshot(name: &str, told: &[String]) {
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, told.join("\n"));
    });
}
