//! `capacity --sweep`, the mark of rows that do not fit, and engines' command lines.

use crate::support::{json, roofcast};

#[test]
fn a_sweep_is_its_single_answers() {
    let asked = "capacity --model Qwen/Qwen1.5-7B-Chat --hardware rtx-4090";
    let (sweep, code) =
        json(&format!("{asked} --sweep context=4096,32768 --sweep weights=bf16,gptq-int4 --sweep count=1,2"));
    assert_eq!((code, sweep["schema"].as_str()), (0, Some("roofcast/capacity-sweep/1")));
    let points = sweep["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        let values = point["values"].as_array().unwrap();
        let (context, weights, count) = (&values[0], values[1].as_str().unwrap(), &values[2]);
        let (single, _) = json(&format!("{asked} --context {context} --weights {weights} --count {count}"));
        for key in ["weight_bytes", "kv_tokens", "max_batch", "longest_context", "fits", "ranks"] {
            assert_eq!(point[key], single[key], "{key} of {values:?}");
        }
    }
    let table = roofcast(&format!("{asked} --sweep context=4096,32768 --sweep count=1,2"));
    let rows: Vec<&str> = table.out.lines().filter(|line| line.contains(" GB ")).collect();
    // The 11,648 tokens of a 4090's KV cache hold two sequences of 4096 and none of 32,768.
    assert!(rows.len() == 4 && rows[0].ends_with("yes") && rows[2].ends_with("no"), "{}", table.out);
}

#[test]
fn a_sweep_refuses_what_is_no_question_of_memory() {
    let asked = "capacity --model Qwen/Qwen3-8B --hardware l4";
    for (more, says) in [
        ("--sweep workload.concurrency=4", "without effect on memory"),
        ("--sweep context=4096 --context 5", "one of the two"),
        ("--sweep context", "then = and"),
        ("--sweep context=1,2 --sweep context=3", "each key once"),
    ] {
        let run = roofcast(&format!("{asked} {more}"));
        assert!(run.code == 2 && run.err.contains(says), "{more}: {}", run.err);
    }
    assert_eq!(roofcast(&format!("{asked} --sweep batch=1000")).code, 4);
}

/// The 24,880 tokens of an L4's KV cache hold one sequence of 16,384 and not two.
#[test]
fn steps_that_do_not_fit_are_marked() {
    let asked = "limits --model Qwen/Qwen3-8B --hardware l4 --context 16384 --sweep batch=1,2";
    let (sweep, code) = json(asked);
    let fits: Vec<bool> = sweep["points"].as_array().unwrap().iter().map(|p| p["fits"] == true).collect();
    assert_eq!((code, fits), (0, vec![true, false]));
    let fitting = roofcast("limits --model Qwen/Qwen3-8B --hardware l4 --context 16384 --sweep batch=1");
    assert!(roofcast(asked).out.contains("fits") && !fitting.out.contains("fits"));
}

/// Other processes hold 10 of an L4's 22.03 GiB. vLLM 0.11 asks for 20 GiB in all; SGLang takes its share of the
/// remaining memory.
#[test]
fn other_processes_are_a_flag() {
    let asked = "capacity --model Qwen/Qwen3-0.6B --hardware l4 --memory-used 10 --engine";
    let vllm = roofcast(&format!("{asked} vllm --engine-version 0.11.0"));
    assert!(
        vllm.code == 4 && vllm.out.contains("12.03 GiB of an accelerator's memory are free at start"),
        "{}",
        vllm.out
    );
    assert!(
        vllm.out.contains("free at start\n") && vllm.out.contains("gpu_memory_utilization up to 0.54"),
        "{}",
        vllm.out
    );
    let sglang = roofcast(&format!("{asked} sglang"));
    assert!(sglang.code == 0 && sglang.out.contains("as sglang logs at start-up"), "{}", sglang.out);
    let refused = roofcast(
        "simulate --model Qwen/Qwen3-0.6B --hardware l4 --memory-used 10 --rate 1 --input-len 100 --output-len 10",
    );
    assert!(refused.code == 4 && refused.err.contains("vllm does not start"), "{}", refused.err);
    assert_eq!(roofcast(&format!("{asked} vllm --memory-used 30")).code, 2);
}

#[test]
fn commands_of_four_engines_are_answered() {
    for (command, engine) in [
        ("docker run --gpus all vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B --max-model-len auto", "vllm"),
        (
            "docker run --gpus all lmsysorg/sglang python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B",
            "sglang",
        ),
        ("llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 8192 -np 2", "llama.cpp"),
        ("trtllm-serve Qwen/Qwen3-8B --max_seq_len 8192", "tensorrt-llm"),
    ] {
        let run = crate::support::run(["capacity", "--hardware", "rtx-4090", "--from-command", command]);
        assert!(
            run.code == 0 && run.out.contains(&format!("as {engine} logs at start-up")),
            "{command}: {}",
            run.err
        );
    }
    let refused = [
        "capacity",
        "--hardware",
        "rtx-4090",
        "--from-command",
        "sglang serve --model-path Qwen/Qwen3-8B --offload-group-size 8",
    ];
    let refused = crate::support::run(refused);
    assert!(refused.code == 2 && refused.err.contains("--offload-group-size"), "{}", refused.err);
}

/// Ollama lowers a context above the model's 131,072 tokens, and leaves layers to the processor; llama.cpp without it does
/// not start.
#[test]
fn ollama_starts_where_its_server_alone_does_not() {
    let asked = |model: &str, command: &str| {
        crate::support::run([
            "capacity",
            "--hardware",
            "rtx-4090",
            "--model",
            model,
            "--from-command",
            command,
        ])
    };
    let long = asked("llama3.1:8b", "OLLAMA_CONTEXT_LENGTH=1000000 ollama serve");
    assert!(long.code == 0 && long.out.contains("131,072 tokens"), "{}", long.out);
    assert!(long.err.contains("lowered to the model's 131072 tokens"), "{}", long.err);
    let short = asked("llama3.1:8b", "OLLAMA_CONTEXT_LENGTH=8192 ollama serve");
    assert!(short.out.contains("8,192 tokens") && short.err.is_empty(), "{}", short.err);
    let large = asked("llama3.1:70b", "ollama serve");
    assert!(large.out.contains("puts layers on the processor by itself"), "{}", large.out);
    assert!(!large.out.contains("does not start") && large.out.contains("--n-gpu-layers"), "{}", large.out);
    assert!(asked("llama3.1:70b", "llama-server").out.contains("does not start"));
}

/// SGLang's own numbers are by the model: a tree for Llama, a chain for others; NEXTN needs layers that draft.
#[test]
fn drafts_of_sglang_are_by_the_model() {
    let asked = |model: &str, flags: &str| {
        let command = format!("sglang serve --model-path {model} --speculative-algorithm {flags}");
        crate::support::run(["capacity", "--hardware", "h200", "--from-command", &command])
    };
    let llama = asked("meta-llama/Llama-3.1-8B-Instruct", "EAGLE3 --speculative-draft-model-path a/b");
    assert!(llama.code == 0 && llama.err.contains("7 drafts a step, a tree of top-k 4"), "{}", llama.err);
    assert!(llama.err.contains("the drafter a/b is not in memory"), "{}", llama.err);
    let qwen = asked("Qwen/Qwen3-8B", "EAGLE3 --speculative-draft-model-path a/b");
    assert!(qwen.err.contains("3 drafts a step;"), "{}", qwen.err);
    let none = asked("Qwen/Qwen3-8B", "NEXTN");
    assert!(none.code == 2 && none.err.contains("Qwen3-8B has not"), "{}", none.err);
}

/// 17.11e9 parameters of feed-forward layers at 4.5 bits, 7.25e9 of attention and delta nets at 8, 2.54e9 of embedding and
/// output at 16: 9.62 + 7.25 + 5.08 = 21.95 GB, as the published files have about 22 GB.
#[test]
fn dense_models_are_quantized_as_dense_ones() {
    let asked = crate::support::roofcast("capacity --model qwen3.6-27b --hardware rtx-5090 --weights nvfp4");
    assert!(asked.out.contains("as in nvidia/Qwen3.6-27B-NVFP4"), "{}", asked.out);
    let weights = asked.out.lines().find(|line| line.starts_with("weights")).unwrap();
    assert!(weights.contains("21.9 GB") || weights.contains("22.0 GB"), "{weights}");
}

/// The words behind the weights name what is loaded beside the model's parameters: a tower unless the engine leaves it out,
/// or second copies of MLA's up-projections.
#[test]
fn what_is_loaded_beside_the_parameters_is_named() {
    for (flags, says) in [
        ("--model Qwen/Qwen2.5-VL-7B-Instruct", "as loaded, with its vision tower\n"),
        ("--model deepseek-ai/DeepSeek-V2-Lite", "as loaded, with second copies of up-projections\n"),
    ] {
        let run = roofcast(&format!("capacity {flags} --hardware h100-sxm"));
        assert!(run.out.contains(says), "{}", run.out);
    }
    let text = "capacity --model Qwen/Qwen2.5-VL-7B-Instruct --hardware h100-sxm --set engine.language_model_only=true";
    let run = roofcast(text);
    assert!(run.code == 0 && !run.out.contains("as loaded"), "{}", run.out);
}

/// Llama 3.2 1B has 16 layers with 8 KV heads of 64: 16 × 2 × 8 × 64 × 2 = 32,768 B per token. The model's embedding of
/// 128,256 × 4096 values in Q4_K, 4.5 bits, stays on the host with a drafter as without one.
#[test]
fn a_drafter_of_llama_cpp_is_told() {
    let server = "llama-server -hf unsloth/Llama-3.1-8B-Instruct-GGUF:Q4_K_M -c 8192 -np 1";
    let drafter = "-hfd unsloth/Llama-3.2-1B-Instruct-GGUF:Q8_0";
    let ask = |verb: &str, flags: &str| {
        crate::support::run([verb, "--hardware", "rtx-5090", "--from-command", &format!("{server} {flags}")])
    };
    let run = ask("capacity", drafter);
    let told = run.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("drafter unsloth/Llama-3.2-1B-Instruct-GGUF:Q8_0: 1.31 GB of weights"), "{told}");
    assert!(told.contains("32768 B of KV cache per token, in addition to the model's"), "{told}");
    for flags in [drafter, ""] {
        let run = ask("capacity", flags);
        assert!(run.out.contains("the input embedding, 296 MB, stays on the host"), "{flags}: {}", run.out);
    }
    let refused = ask("simulate", drafter);
    assert!(
        refused.code == 2 && refused.err.contains("without -md, -hfd and --spec-type"),
        "{}",
        refused.err
    );
    let layers = ask("capacity", "--spec-type draft-mtp");
    assert!(layers.code == 2 && layers.err.contains("`--spec-type` is draft-mtp"), "{}", layers.err);
}
