//! The catalog in real processes: names and formats, filters, the common form of models and accelerators, an entry of
//! one's own.

use crate::support::{json, roofcast, root, run, shared};
use std::path::Path;
use std::process::Command;

fn first_lines(question: &str) -> String {
    let run = roofcast(question);
    assert_eq!(run.code, 0, "{question}: {}", run.err);
    run.out.lines().take(3).collect::<Vec<_>>().join("\n")
}

/// For 32.76e9 weights, the format is the 8 bits in blocks of the id, llama.cpp's mixture, or the 16 bits of
/// `--weights`.
#[test]
fn a_format_in_the_id_is_taken_and_said() {
    let base = "capacity --hardware h200-sxm --model";
    let out = first_lines(&format!("{base} Qwen/Qwen3-32B-FP8"));
    assert!(out.contains("fp8-block weights, bf16 KV"), "{out}");
    assert!(out.contains("assumed: Qwen/Qwen3-32B-FP8: Qwen/Qwen3-32B with weights fp8-block"), "{out}");
    let out = first_lines(&format!("{base} amd/Llama-3.1-70B-Instruct-FP8-KV"));
    assert!(out.contains("fp8 weights, fp8 KV"), "{out}");
    let out = first_lines(&format!("{base} qwen3:32b"));
    assert!(out.contains("q4_k_m weights"), "{out}");
    let bytes = |question: &str| json(question).0["weight_bytes"].as_u64().unwrap();
    let named = bytes(&format!("{base} x/Qwen3-32B-quantized.w4a16"));
    assert_eq!(named, bytes(&format!("{base} Qwen/Qwen3-32B --weights w4a16")));
    // A requested format overrides the id's, and the output mentions it.
    let out = first_lines(&format!("{base} Qwen/Qwen3-32B-FP8 --weights w4"));
    assert!(out.contains("w4 weights") && out.contains("weights w4 as asked, not fp8-block"), "{out}");
    let plain = bytes(&format!("{base} Qwen/Qwen3-32B"));
    assert_eq!(bytes(&format!("{base} Qwen/Qwen3-32B-FP8 --weights bf16")), plain);
}

/// An A100 cannot compute in fp8: a checkpoint with fp8 in its id is weight-only there, as one whose config says fp8.
#[test]
fn a_chip_without_the_format_stores_it_alone() {
    let run =
        roofcast("limits --hardware a100-sxm-80gb --model RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic");
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("a100-sxm-80gb has no fp8 rate"), "{}", run.out);
}

#[test]
fn specs_and_every_verb_read_names_alike() {
    let spec = "[model]\nname = \"unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit\"\n[hardware]\naccelerator = \"H100 SXM\"\n[workload]\nrequests = 20\ninput_len = 100\noutput_len = 10\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n";
    let (_folder, path) = crate::support::file("spec.toml", spec.as_bytes());
    for question in [format!("simulate {path}"), format!("limits {path}"), format!("capacity {path}")] {
        let (answer, code) = json(&question);
        assert_eq!((code, answer["weights"].as_str()), (0, Some("bnb-4bit")), "{question}");
        assert_eq!(answer["hardware"], "h100-sxm", "{question}");
    }
}

#[test]
fn wrong_names_end_with_two_and_suggestions() {
    for (question, parts) in [
        ("capacity --hardware h100-sxm --model lama-3.1-8b", ["did you mean", "meta-llama/Llama-3.1-8B"]),
        ("capacity --hardware mi30x --model llama-3.1-8b", ["did you mean", "mi300x"]),
        ("capacity --hardware h100-sxm --model mistral-7b", ["it may mean", "mistralai/Mistral-7B-v0.3"]),
        ("catalog lama-3.1-8b", ["did you mean", "meta-llama/Llama-3.1-8B"]),
        ("catalog mi30x", ["did you mean", "mi300x"]),
        ("capacity --hardware h100-sxm --model x/Nope-7B-AWQ", ["no model named", "x/Nope-7B-AWQ"]),
        ("catalog wxyzwxyz", ["no model named", "lists every model"]),
    ] {
        let run = roofcast(question);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{question}");
        assert!(parts.iter().all(|part| run.err.contains(part)), "{question}: {}", run.err);
        let listed = run
            .err
            .split("did you mean ")
            .nth(1)
            .map_or(0, |s| s.split('?').next().unwrap().split(", ").count());
        assert!(listed <= 3, "{}", run.err);
    }
}

#[test]
fn filters_pass_what_they_say() {
    let ids = |filters: &str, kind: &str| {
        let (answer, code) = json(&format!("catalog {filters}"));
        assert_eq!(code, 0, "{filters}");
        let ids = |list: &serde_json::Value| {
            list.as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        ids(&answer[kind])
    };
    let chips = ids("--vendor nvidia --memory 80 --format fp8 --price 3", "accelerators");
    assert!(chips.contains(&"h100-pcie".to_owned()) && !chips.contains(&"h100-sxm".to_owned()), "{chips:?}");
    assert!(!chips.contains(&"a100-sxm-80gb".to_owned()), "{chips:?}");
    assert!(ids("--price 3", "models").is_empty());
    let models = ids("--family qwen3 --memory ..24", "models");
    // 8.19e9 weights of 16 bits are 15.3 GiB; 14.8e9 are 27.5 GiB.
    assert!(models.contains(&"Qwen/Qwen3-8B".to_owned()) && !models.contains(&"Qwen/Qwen3-14B".to_owned()));
    assert!(ids("--search h100sxm", "accelerators").contains(&"h100-sxm".to_owned()));
    // The 3 in the search for qwen3 does not match the 32 of the alias qwen-32b.
    let found = run(["catalog", "--search", "qwen3 32b"]).out;
    assert!(
        found.lines().nth(1).unwrap().starts_with("Qwen/Qwen3-32B ") && !found.contains("Qwen2.5"),
        "{found}"
    );
    assert!(ids("--format mxfp4", "models").contains(&"openai/gpt-oss-20b".to_owned()));
    assert!(roofcast("catalog --search nothing-like-this").out.contains("nothing in the catalog passes"));
    for wrong in ["--memory x", "--price 3..1", "--format fp9", "h100-sxm --search x", "h100-sxm --csv"] {
        assert_eq!(roofcast(&format!("catalog {wrong}")).code, 2, "{wrong}");
    }
    let rows = roofcast("catalog --csv").out;
    let columns = |line: &str| line.split(',').count();
    assert!(rows.lines().all(|line| columns(line) == 8), "{rows}");
}

/// Models and accelerators are shown in one form: a title, names and values, the sources; only addresses are wider than
/// 100 columns.
#[test]
fn models_and_accelerators_are_shown_alike() {
    for name in ["llama-3.1-8b", "h100-sxm", "deepseek-ai/DeepSeek-V3", "tpu-v5e"] {
        let out = roofcast(&format!("catalog {name}")).out;
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[0].ends_with("(model)") || lines[0].ends_with("(accelerator)"), "{out}");
        assert!(lines.contains(&"sources") && out.contains("https://"), "{out}");
        let wide = lines.iter().find(|l| l.chars().count() > 100 && !l.contains("://"));
        assert_eq!(wide, None);
    }
    // KV bytes of a token: 2 · 32 layers · 8 heads · 128 · 2 bytes.
    assert!(roofcast("catalog llama-3.1-8b").out.contains("131,072 B per token"));
}

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
"num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "rms_norm_eps": 1e-05,
"max_position_embeddings": 8192, "bos_token_id": null, "torch_dtype": "bfloat16"}"#;

/// Runs a command of the documentation in `folder`; returns exit code, standard output and standard error.
fn in_folder(folder: &Path, command: &str) -> (i32, String, String) {
    let words = command.strip_prefix("roofcast ").unwrap().split_whitespace();
    let run = Command::new(env!("CARGO_BIN_EXE_roofcast")).args(words).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (run.status.code().unwrap(), text(run.stdout), text(run.stderr))
}

/// The commands of docs/models.md run as they are written there.
#[test]
fn adding_ones_own_is_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("my-model")).unwrap();
    std::fs::write(folder.path().join("my-model/config.json"), CONFIG).unwrap();
    let docs = std::fs::read_to_string(root().join("docs/models.md")).unwrap();
    let section = docs.split("## Adding one's own").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let mut last = String::new();
    for command in block.lines() {
        let (code, out, err) = in_folder(folder.path(), command);
        assert_eq!(code, 0, "{command}: {err}");
        last = out;
    }
    // 2 · 32,000 · 1024 + 16 · (2 · 1024² + 2 · 1024 · 256 + 3 · 1024 · 4096 + 2 · 1024) + 1024 = 308,839,424.
    assert!(last.starts_with("my-org/my-model on 1 × h100-sxm") && last.contains("309M total"), "{last}");
    let text = std::fs::read_to_string(folder.path().join("mine.toml")).unwrap();
    assert!(text.contains("num_key_value_heads") && !text.contains("rms_norm_eps"), "{text}");
    // Adding an id again is refused and the file stays unchanged; another id is appended.
    let again = "roofcast catalog add my-model --id my-org/my-model --output mine.toml";
    let (code, _, err) = in_folder(folder.path(), again);
    assert!(code == 2 && err.contains("mine.toml") && err.contains("my-org/my-model"), "{err}");
    assert_eq!(std::fs::read_to_string(folder.path().join("mine.toml")).unwrap(), text);
    let (code, _, err) = in_folder(folder.path(), "roofcast catalog add my-model --output mine.toml");
    assert_eq!(code, 0, "{err}");
    let (code, out, _) = in_folder(folder.path(), "roofcast catalog my-model --catalog mine.toml");
    assert!(code == 0 && out.starts_with("my-model (model)"), "{out}");
}

#[test]
fn what_cannot_be_added_is_refused_by_key() {
    let (_folder, path) =
        crate::support::file("config.json", br#"{"model_type": "llama", "hidden_size": 0}"#);
    let run = roofcast(&format!("catalog add {path}"));
    assert!(run.code == 2 && run.err.contains("config.json: `"), "{}", run.err);
    assert_eq!(roofcast("catalog add nowhere/config.json").code, 2);
}

/// A catalog entry made from a real config gives the model that the config gives.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn entries_of_real_configs_are_the_same_models() {
    let configs = shared("configs");
    for name in ["Qwen--Qwen3-32B", "Qwen--Qwen3-235B-A22B-FP8", "MiniMaxAI--MiniMax-M3"] {
        let config = configs.join(name).join("config.json").display().to_string();
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine.toml").display().to_string();
        assert_eq!(roofcast(&format!("catalog add {config} --id a/b --output {mine}")).code, 0, "{name}");
        let rest = "--hardware b200-sxm --count 8";
        let (ours, _) = json(&format!("capacity --catalog {mine} --model a/b {rest}"));
        let (whole, _) = json(&format!("capacity --model {config} {rest}"));
        for key in ["parameters", "weight_bytes", "kv_bytes_per_token", "weights", "kv", "assumptions"] {
            assert_eq!(ours[key], whole[key], "{name}: {key}");
        }
    }
}
