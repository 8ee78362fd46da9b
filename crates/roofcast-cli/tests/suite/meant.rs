//! Inputs as people have them: addresses from a browser, numbers with suffixes, files of other programs.

use crate::support::{file, json, roofcast, run};
use serde_json::Value;
use std::fs;

const MACHINE: &str = "--hardware h100-sxm";

/// The capacity answer for the model that `model` names.
fn capacity(model: &str) -> Value {
    let (answer, code) = json(&format!("capacity --model {model} {MACHINE}"));
    assert_eq!(code, 0, "{model}");
    answer
}

#[test]
fn the_address_of_a_model_is_its_name() {
    let by_name = capacity("Qwen/Qwen3-8B");
    for address in [
        "https://huggingface.co/Qwen/Qwen3-8B",
        "https://huggingface.co/Qwen/Qwen3-8B/tree/main",
        "https://hf.co/Qwen/Qwen3-8B",
        "huggingface.co/Qwen/Qwen3-8B",
        "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json",
    ] {
        assert_eq!(capacity(address), by_name, "{address}");
    }
    let run = roofcast(&format!("capacity --model https://example.com/Qwen/Qwen3-8B {MACHINE}"));
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("the address \"https://example.com/Qwen/Qwen3-8B\""), "{}", run.err);
}

#[test]
fn a_plan_launches_the_model_of_an_address_by_its_name() {
    let plan = "plan --model https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct --hardware h100-sxm \
                --max-accelerators 1 --rate 1 --set search.requests=100";
    let (answer, code) = json(plan);
    assert_eq!(code, 0, "{answer}");
    let launch = answer["launch"].as_array().unwrap();
    let command = launch.iter().find(|l| l["engine"] == "vllm").unwrap()["command"].as_str().unwrap();
    assert!(command.starts_with("vllm serve meta-llama/Llama-3.1-8B-Instruct"), "{command}");
}

/// Numbers may be quoted in a spec; an error after a quoted number still names the file's line.
#[test]
fn a_spec_has_numbers_as_flags_do() {
    let text = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[workload]\ninput_len = \"8k\"\n\
                output_len = 10\narrivals = { kind = \"poisson\", rate = \"1e1\" }\n[slo]\nttft_p99_ms = \"2s\"\n";
    let (_kept, spec) = file("quoted.toml", text.as_bytes());
    let run = roofcast(&format!("simulate {spec} --dump-spec"));
    assert_eq!(run.code, 0, "{}", run.err);
    let table: toml::Table = run.out.parse().unwrap();
    assert_eq!(table["workload"]["input_len"].as_integer(), Some(8000));
    assert_eq!(table["workload"]["arrivals"]["rate"].as_float(), Some(10.0));
    assert_eq!(table["slo"]["ttft_p99_ms"].as_float(), Some(2000.0));
    let (_kept, wrong) = file("quoted-wrong.toml", format!("{text}tpot_p99_ms = \"soon\"\n").as_bytes());
    let run = roofcast(&format!("simulate {wrong}"));
    assert!(run.err.contains(":11:15: `slo.tpot_p99_ms` is \"soon\"; accepted: a number"), "{}", run.err);
}

/// As in vLLM, 8k is 8,000 and 8K is 8,192.
#[test]
fn numbers_have_suffixes_exponents_and_underscores() {
    let context = |text: &str| {
        let (answer, _) = json(&format!("limits --model llama-3.1-8b {MACHINE} --context {text}"));
        answer["context"].as_u64().unwrap()
    };
    for (text, tokens) in [("8k", 8000), ("8K", 8192), ("1e4", 10_000), ("1_000", 1000), ("1000.0", 1000)] {
        assert_eq!(context(text), tokens, "{text}");
    }
    let dump = |flags: &str| {
        let run = roofcast(&format!("simulate --dump-spec {flags}"));
        assert_eq!(run.code, 0, "{}", run.err);
        run.out.parse::<toml::Table>().unwrap()
    };
    let spec = dump("--ttft-p99 2s --tpot-p99 50ms --max-model-len 8k --requests 1e3");
    assert_eq!(spec["slo"]["ttft_p99_ms"].as_float(), Some(2000.0));
    assert_eq!(spec["slo"]["tpot_p99_ms"].as_float(), Some(50.0));
    assert_eq!(spec["engine"]["max_model_len"].as_integer(), Some(8000));
    assert_eq!(spec["workload"]["requests"].as_integer(), Some(1000));
    let set = dump("--set slo.e2el_p90_ms=1.5s --set engine.max_num_batched_tokens=8K");
    assert_eq!(set["slo"]["e2el_p90_ms"].as_float(), Some(1500.0));
    assert_eq!(set["engine"]["max_num_batched_tokens"].as_integer(), Some(8192));
}

/// Flags of engines, clients and planners are aliases where they mean the same, and name a flag where they do not.
#[test]
fn flags_of_other_programs_are_known() {
    let ours = "--tp 2 --kv fp8 --rate 3 --requests 50 --input-len 300 --output-len 40 --count 2";
    let theirs = "--tensor-parallel-size 2 --kv-cache-dtype fp8 --request-rate 3 --num-prompts 50 --isl 300 --osl 40 --gpus 2";
    let spec = |flags: &str| {
        roofcast(&format!("simulate --model llama-3.1-8b --hardware h100-sxm {flags} --dump-spec"))
    };
    let (ours, theirs) = (spec(ours), spec(theirs));
    assert!(ours.code == 0 && theirs.out == ours.out, "{} {}", ours.err, theirs.err);
    for (command, flag, instead) in [
        ("simulate --draft llama-3.2-1b", "--draft", "--draft-model"),
        ("plan --max-price 5", "--max-price", "--minimise"),
        ("plan --ttft 300", "--ttft", "--ttft-p99"),
        ("simulate --batch=8", "--batch", "--max-num-seqs"),
        ("limits --users 8", "--users", "--batch"),
        ("plan --data-parallel-size 2", "--data-parallel-size", "--replicas"),
    ] {
        let refused = roofcast(command);
        assert!(refused.code == 2 && refused.err.lines().count() == 1, "{}", refused.err);
        let told = format!("roofcast: arguments: `{flag}` is not a flag here; accepted: ");
        assert!(refused.err.starts_with(&told) && refused.err.contains(instead), "{}", refused.err);
    }
    let generic = roofcast("plan --hardware gpu");
    assert!(generic.code == 2 && generic.err.contains("a name such as h100-sxm"), "{}", generic.err);
    let chips = roofcast("limits --model llama-3.1-8b --hardware h100-sxm --compare h100,mi300x");
    assert!(chips.code == 2 && chips.err.contains("--sweep hardware="), "{}", chips.err);
}

#[test]
fn a_files_first_mark_is_no_text_of_it() {
    let config = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \
                  \"intermediate_size\": 128, \"vocab_size\": 100}";
    let (_plain, plain) = file("config.json", config.as_bytes());
    let (_marked, marked) = file("config.json", format!("\u{feff}{config}").as_bytes());
    assert_eq!(capacity(&marked)["parameters"], capacity(&plain)["parameters"]);
    let (_wide, wide) = file("config.json", b"\xff\xfe{\0}\0");
    let refused = roofcast(&format!("capacity --model {wide} {MACHINE}"));
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("`the file` is UTF-16; accepted: text in UTF-8"), "{}", refused.err);
}

#[test]
fn spreadsheets_separate_cells_by_semicolons() {
    let commas = "kind,model,hardware,tpot_ms,context_len\ndecode_step,llama-3.1-8b,h100-sxm,9.5,1000\n";
    let other = commas.replace(',', ";").replace("9.5", "9,5");
    let read = |text: &str| {
        let (_folder, path) = file("m.csv", text.as_bytes());
        let (answer, code) = json(&format!("validate {path}"));
        assert_eq!(code, 0, "{answer}");
        answer["metrics"].clone()
    };
    assert_eq!(read(&other), read(commas));
}

/// The wrong cell is in line 6 of the file, after two comments, the header, an empty line and a row.
#[test]
fn rows_are_told_by_the_files_lines() {
    let text = "# a note\n# another\nkind,model,hardware,tpot_ms\n\ndecode_step,llama-3.1-8b,h100-sxm,9\n\
                decode_step,llama-3.1-8b,h100-sxm,fast\n";
    let (_folder, path) = file("m.csv", text.as_bytes());
    let refused = roofcast(&format!("validate {path}"));
    assert!(refused.err.contains(&format!("{path}:6: `tpot_ms` is fast")), "{}", refused.err);
    let (_folder, path) =
        file("m.csv", format!("{text}decode_step,llama-3.1-8b\n").replace("fast", "9").as_bytes());
    let refused = roofcast(&format!("validate {path}"));
    assert!(refused.err.contains(&format!("{path}:7: 2 fields; accepted: 4")), "{}", refused.err);
}

#[test]
fn an_adapter_is_not_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("adapter_config.json");
    fs::write(&config, "{\"base_model_name_or_path\": \"org/base\", \"r\": 16}").unwrap();
    for path in [folder.path(), &config] {
        let path = path.to_str().unwrap();
        let refused = run(["capacity", "--model", path, "--hardware", "h100-sxm"]);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""));
        for part in [path, "a LoRA adapter", "--model org/base"] {
            assert!(refused.err.contains(part), "{part} is not in {}", refused.err);
        }
    }
}

/// Every verb reports how it interpreted a name, and so does a sweep over accelerators.
#[test]
fn what_was_assumed_is_said() {
    let model = "--model dolphin-2.9-llama3-8b --hardware h100-sxm";
    let said = "assumed: dolphin-2.9-llama3-8b: the shape of meta-llama/Meta-Llama-3-8B\n";
    for asked in [
        format!("limits {model}"),
        format!("capacity {model}"),
        format!("simulate {model} --requests 20"),
        format!("simulate {model} --requests 20 --sweep tp=1,2"),
        format!("limits {model} --sweep parallelism.pp=1,2"),
        format!("plan {model} --max-accelerators 1 --rate 1 --set search.requests=100"),
        format!("plan {model} --max-accelerators 1 --rate 1 --set search.requests=100 --ttft-p99 0.1ms"),
    ] {
        let run = roofcast(&asked);
        assert!(run.out.contains(said), "{asked}: {}{}", run.out, run.err);
    }
}

/// A version may follow an engine's name, as in a requirement or an image's name; a range is not a version.
#[test]
fn an_engine_has_its_version_behind_its_name() {
    let question = format!("simulate --model llama-3.1-8b {MACHINE} --rate 1 --requests 10 --dump-spec");
    for engine in [
        "--engine vllm==0.11.2",
        "--engine vLLM:0.11.2",
        "--engine vllm@0.11.2",
        "--engine vllm --version 0.11.2",
        "--engine vllm==0.9 --engine-version 0.11.2",
        "--engine v-llm:0.11.2",
    ] {
        let run = roofcast(&format!("{question} {engine}"));
        assert_eq!(run.code, 0, "{engine}: {}", run.err);
        let table: toml::Table = run.out.parse().unwrap();
        let said =
            ["name", "version"].map(|key| table["engine"][key].as_str().unwrap_or_default().to_owned());
        assert_eq!(said, ["vllm", "0.11.2"], "{engine}");
    }
    for (range, says) in [
        ("--engine vllm>=0.10", "a version behind the name as in vllm==0.11.2"),
        ("--engine-version >=0.10", "one version as 0.11.2, no range"),
    ] {
        let run = roofcast(&format!("{question} {range}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{range}");
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// Several names between commas are not one name, although the first could be a model's followed by a word.
#[test]
fn several_names_are_a_sweep() {
    for (question, says) in [
        ("--model llama-3.1-8b,qwen3-8b --hardware h100-sxm", "--sweep model=llama-3.1-8b,qwen3-8b"),
        ("--model llama-3.1-8b --hardware h100-sxm,h200-sxm", "--sweep hardware=h100-sxm,h200-sxm"),
    ] {
        let run = roofcast(&format!("limits {question}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{question}");
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// An unknown workload that is a prefix of catalog names is answered with these names, and a path to another kind of
/// file with the accepted trace formats.
#[test]
fn traffic_that_is_not_there_says_what_is_near() {
    for (name, says) in [
        ("azure", "did you mean azure-code-2023, azure-conv-2023?"),
        ("code", "azure-code-2023"),
        ("mooncak", "mooncake-conversation"),
        ("/tmp", "a trace whose name ends in .csv, .json, .jsonl or .gz"),
        ("traffic.toml", "a trace whose name ends in"),
    ] {
        let run = roofcast(&format!("simulate --model llama-3.1-8b {MACHINE} --workload {name}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{name}");
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// An error about a field names its section once, and distinguishes a section from a list of sections.
#[test]
fn a_section_is_named_once() {
    let head = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n";
    for (section, says) in [
        (
            "[workload]\ninput_len = 5\n",
            ":5:1: `workload.arrivals` is missing; accepted: arrivals with a kind",
        ),
        (
            "[[workload]]\nrequests = 5\n",
            ":5:1: `workload` is a list of sections; accepted: one, headed [workload]",
        ),
        ("[workload]\npriorities = \"high\"\n", "`workload.priorities` is \"high\"; accepted: a list"),
        ("[fleet]\nprefill = 5\n", "`fleet.prefill` is 5; accepted: a section with keys of its own"),
    ] {
        let (_kept, spec) = file("sections.toml", format!("{head}{section}").as_bytes());
        let run = roofcast(&format!("simulate {spec}"));
        assert_eq!(run.code, 2);
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// Config values of unknown form are refused or noted as assumed, never ignored.
#[test]
fn configs_in_another_form() {
    let config = |more: &str| {
        format!(
            "{{\"model_type\": \"llama\", \"hidden_size\": 512, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \
             \"intermediate_size\": 1024, \"vocab_size\": 1000, \"max_position_embeddings\": 2048{more}}}"
        )
    };
    let asked = |more: &str| {
        let (_kept, path) = file("config.json", config(more).as_bytes());
        roofcast(&format!("capacity --model {path} {MACHINE}"))
    };
    let run = asked(", \"quantization_config\": \"fp8\"");
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("`quantization_config` is \"fp8\"; accepted: an object with quant_method"),
        "{}",
        run.err
    );
    let run = asked(", \"torch_dtype\": \"float8\"");
    assert!(run.out.contains("assumed: dtype float8 is no number format that is known"), "{}", run.out);
    for known in [
        "",
        ", \"torch_dtype\": \"torch.bfloat16\"",
        ", \"dtype\": \"auto\"",
        ", \"quantization_config\": null",
    ] {
        let run = asked(known);
        assert!(run.code == 0 && !run.out.contains("assumed"), "{known}: {}", run.out);
    }
}

/// Long numbers are shown in powers of ten, JSON types in words, and the error for an unknown flag says where to look.
#[test]
fn errors_are_of_a_readers_size() {
    let (_kept, late) = file("late.csv", b"arrival_s,input_len,output_len\n1e300,10,5\n");
    let (_kept, quoted) =
        file("quoted.jsonl", b"{\"timestamp\": 0, \"input_length\": \"10\", \"output_length\": 5}\n");
    for (question, says) in [
        (format!("simulate --workload {late}"), "`arrival_s` is 1e300 s; accepted: 0 to 10000000 s"),
        (format!("simulate --workload {quoted}"), "\"10\"; accepted: a whole number from 0"),
        ("plan --rate 1 --ttft-p99 1e300".into(), "is 1e300; accepted: milliseconds above 0, up to 10^12"),
        (
            "capacity model/config.json".into(),
            "a spec, which ends in .toml; a model is --model, a trace --workload",
        ),
        (
            "plan --rate 1 --surcharge 5".into(),
            "`roofcast keys surcharge` searches every key of a spec and its flag",
        ),
    ] {
        let run = roofcast(&question);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{question}");
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// A clone without Git LFS has pointer files, and a saved page is HTML; errors name both. The config of a checkpoint is
/// in its folder.
#[test]
fn what_stands_in_a_files_place_is_named() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    let page = b"\n<!DOCTYPE html>\n<html></html>\n";
    let tensors = b"\x02\x00\x00\x00\x00\x00\x00\x00{}";
    for (name, bytes, says) in [
        (
            "config.json",
            pointer.as_slice(),
            "config.json: `the file` is a pointer of Git LFS; accepted: the file itself",
        ),
        ("model.gguf", pointer.as_slice(), "model.gguf: `the file` is a pointer of Git LFS"),
        ("config.json", page.as_slice(), "config.json: `the file` is a web page"),
        ("one.safetensors", tensors.as_slice(), "one.safetensors: `config.json` is missing in its folder"),
    ] {
        let (_kept, path) = file(name, bytes);
        let run = roofcast(&format!("capacity --model {path} {MACHINE}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{name}");
        assert!(run.err.contains(says), "{}", run.err);
    }
}
