//! Launch commands start the planned deployment, or give the reason why there is none.

use roofcast::Spec;
use roofcast::catalog::Catalog;
use roofcast::command;
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::plan::{Launch, ReplicaRole, launches};
use std::sync::Arc;

/// Returns a function from an engine's name to the launch command of a replica of `name` on `chip` with the keys of
/// `spec`.
fn started(name: &str, chip: &str, spec: &str, role: ReplicaRole) -> impl Fn(&str) -> Launch + use<> {
    let spec = Spec::parse("launch.toml", spec).unwrap();
    let chip = Arc::new(Catalog::embedded().unwrap().accelerator(chip).unwrap().clone());
    let named = Catalog::embedded().unwrap().named(name).unwrap().model().unwrap();
    let deployment = Deployment::resolve(Arc::new(named), chip, &DeploymentOptions::of(&spec)).unwrap();
    let all = launches(&deployment, name, role, 1);
    move |engine| all.iter().find(|launch| launch.engine == engine).unwrap().clone()
}

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

#[test]
fn commands_start_what_was_planned() {
    let fp8 = "[precision]\nweights = \"fp8\"\nkv = \"fp8\"\n[parallelism]\ntp = 2\npp = 2\n";
    let of = started(LLAMA, "h100-sxm", fp8, ReplicaRole::Replica);
    assert_eq!(
        of("vllm").command.unwrap(),
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --quantization fp8 --kv-cache-dtype fp8_e4m3 \
         --tensor-parallel-size 2 --pipeline-parallel-size 2 --gpu-memory-utilization 0.92 --max-num-seqs 1024 \
         --max-num-batched-tokens 8192"
    );
    assert!(of("sglang").command.unwrap().contains("--tp-size 2 --pp-size 2"));
    // Only these two engines quantize a 16-bit checkpoint to fp8, and llama.cpp serves GGUF files.
    assert!(
        of("tensorrt-llm").note.unwrap().contains("name it as the model")
            && of("llama.cpp").command.is_none()
    );
}

#[test]
fn experts_and_data_parallel_attention_have_their_flags() {
    let spread = "[parallelism]\ntp = 2\nattention_dp = 4\nep = 8\n";
    let of = started("deepseek-ai/DeepSeek-V3", "h200-sxm", spread, ReplicaRole::Decode);
    let vllm = of("vllm").command.unwrap();
    assert!(
        vllm.contains("--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel"),
        "{vllm}"
    );
    // Both settings are per rank (SGLang has the sum of four ranks), and the connector is one word for the shell.
    assert!(vllm.contains("--max-num-seqs 1024 --max-num-batched-tokens 8192"), "{vllm}");
    assert!(vllm.ends_with("'{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}'"), "{vllm}");
    let sglang = of("sglang").command.unwrap();
    assert!(sglang.contains("--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 8"), "{sglang}");
    assert!(sglang.contains("--max-running-requests 4096 --chunked-prefill-size 32768"), "{sglang}");
    assert!(sglang.ends_with("--disaggregation-mode decode"), "{sglang}");
    // SGLang divides a chunk of its own among the ranks, so that it is written as it was given.
    let own = format!("{spread}[engine]\nname = \"sglang\"\nmax_num_batched_tokens = 8192\n");
    let own = started("deepseek-ai/DeepSeek-V3", "h200-sxm", &own, ReplicaRole::Decode)("sglang");
    assert!(own.command.unwrap().contains("--chunked-prefill-size 8192 "));
}

#[test]
fn exchanges_overlap_and_balancing_have_their_flags() {
    let spread = "[parallelism]\ntp = 2\nattention_dp = 4\nep = 8\n[engine]\ndecode_context_parallel_size = 2\n\
                  [engine.experts]\nall2all_backend = \"deepep_auto\"\nenable_dbo = true\nenable_eplb = true\n\
                  num_redundant_experts = 32\n";
    let of = started("deepseek-ai/DeepSeek-V3", "h200-sxm", spread, ReplicaRole::Replica);
    let vllm = of("vllm").command.unwrap();
    assert!(vllm.contains("--decode-context-parallel-size 2"), "{vllm}");
    let exchange = "--all2all-backend deepep_low_latency --enable-dbo --dbo-decode-token-threshold 32 \
                    --dbo-prefill-token-threshold 512 --enable-eplb --eplb-config \
                    '{\"num_redundant_experts\":32,\"step_interval\":3000}'";
    assert!(vllm.contains(exchange), "{vllm}");
    let sglang = of("sglang").command.unwrap();
    let exchange = "--moe-a2a-backend deepep --deepep-mode auto --enable-two-batch-overlap --enable-eplb \
                    --eplb-rebalance-num-iterations 3000 --ep-num-redundant-experts 32";
    assert!(sglang.contains("--dcp-size 2") && sglang.contains(exchange), "{sglang}");
}

/// A published checkpoint in the format is mentioned but not started, because it may belong to another model of this
/// shape.
#[test]
fn a_known_checkpoint_in_the_format_is_named() {
    let asked = "[precision]\nweights = \"nvfp4\"\n[parallelism]\ntp = 8\n";
    for (model, checkpoint) in [
        ("deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-R1-0528-NVFP4-v2"),
        ("moonshotai/Kimi-K2.5", "nvidia/Kimi-K2.5-NVFP4"),
    ] {
        let vllm = started(model, "b200-sxm", asked, ReplicaRole::Replica)("vllm");
        assert!(vllm.command.is_none() && vllm.note.unwrap().contains(checkpoint), "{model}");
    }
    let own = "[precision]\nweights = \"mxfp4\"\n";
    let vllm = started("openai/gpt-oss-120b", "h100-sxm", own, ReplicaRole::Replica)("vllm").command.unwrap();
    assert!(vllm.starts_with("vllm serve openai/gpt-oss-120b"), "{vllm}");
}

/// The base model is never started instead of a checkpoint that the name only describes.
#[test]
fn a_described_checkpoint_is_not_its_base() {
    let command = |name: &str, chip: &str, spec: &str, engine: &str| {
        let launch = started(name, chip, spec, ReplicaRole::Replica)(engine);
        launch.command.or(launch.note).unwrap()
    };
    let vllm = |name: &str| command(name, "h200-sxm", "", "vllm");
    // Of Llama no maker publishes fp8; of Qwen3 a checkpoint in blocks is started by its name.
    let converted = vllm("llama-3.1-8b-fp8");
    assert!(converted.contains(" --quantization fp8 "), "{converted}");
    let published = vllm("qwen3-32b-fp8");
    assert!(published.starts_with("vllm serve Qwen/Qwen3-32B-FP8 "), "{published}");
    assert!(!published.contains("--quantization"), "{published}");
    assert!(!vllm("Qwen/Qwen3-32B-FP8").contains("--quantization"));
    for described in ["qwen3-32b-awq", "llama-3.1-8b-w8a8", "llama-3.1-8b:q4_k_m"] {
        assert!(vllm(described).starts_with("none: "), "{}", vllm(described));
    }
    // A model whose shape equals another model's keeps its own id.
    let of = |name: &str| Catalog::embedded().unwrap().named(name).unwrap().model().unwrap().name;
    assert_eq!(of("deepseek-r1-distill-qwen-32b"), "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B");
    assert_eq!(of("deepseek-r1-fp8"), "deepseek-ai/DeepSeek-R1");
    // Stating the checkpoint's own format changes nothing.
    let own = |name: &str, weights: &str| {
        command(name, "h200-sxm", &format!("[precision]\nweights = \"{weights}\"\n"), "vllm")
    };
    assert!(own("deepseek-ai/DeepSeek-V3", "fp8-block").starts_with("vllm serve deepseek-ai/DeepSeek-V3 "));
    assert!(own("openai/gpt-oss-20b", "mxfp4").starts_with("vllm serve openai/gpt-oss-20b "));
    for (name, engine) in [
        ("mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", "vllm"),
        ("turboderp/Llama-3.1-8B-Instruct-exl2-4bpw", "sglang"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "tensorrt-llm"),
    ] {
        assert!(command(name, "h100-sxm", "", engine).starts_with("none: "), "{name}");
    }
}

/// V100 has no bf16 and no integer tensor cores: vLLM computes in fp16 there, and the other engines do not run.
#[test]
fn commands_are_those_of_the_chip_and_the_schedule() {
    let command = |chip: &str, spec: &str, engine: &str| {
        let launch = started(LLAMA, chip, spec, ReplicaRole::Replica)(engine);
        launch.command.or(launch.note).unwrap()
    };
    assert!(command("v100-32gb", "", "vllm").contains("--dtype float16"));
    for engine in ["sglang", "tensorrt-llm"] {
        assert!(command("v100-32gb", "", engine).contains("does not run on v100"), "{engine}");
    }
    // Prompts are split by default in plans of other engines; TensorRT-LLM splits them only with a flag.
    assert!(command("h100-sxm", "", "tensorrt-llm").ends_with("--enable_chunked_prefill"));
    let own = "[engine]\nname = \"tensorrt-llm\"\n";
    // TensorRT-LLM's fraction is of the free memory, as in the spec of this engine; vLLM's 0.9 of 85.0 GB would leave
    // TensorRT-LLM less.
    assert!(command("h100-sxm", own, "tensorrt-llm").contains("--kv_cache_free_gpu_memory_fraction 0.9 "));
    assert!(!command("h100-sxm", own, "tensorrt-llm").contains("--enable_chunked_prefill"));
    let fp8_cache = format!("[precision]\nkv = \"fp8\"\n{own}");
    assert!(command("h100-sxm", &fp8_cache, "tensorrt-llm").contains("YAML file"));
    // By default there are four slots, each with a quarter of the cache, as in the simulation.
    let gguf = "[engine]\nname = \"llama.cpp\"\n[precision]\nweights = \"q4_k_m\"\n";
    let slots = command("rtx-4090", gguf, "llama.cpp");
    assert!(slots.contains(" -np 4 "), "{slots}");
    for (split, flags) in [("pp = 2", " -ts 1,1"), ("tp = 2", " -sm tensor -ts 1,1")] {
        let two = command("rtx-4090", &format!("[parallelism]\n{split}\n{gguf}"), "llama.cpp");
        assert!(two.contains(flags) && two.contains("-sm") == split.starts_with("tp"), "{two}");
    }
    for (spec, reason) in [
        ("scheduler = \"static\"", "no server schedules as static does"),
        ("policy = \"sjf\"", "no server sorts"),
        ("name = \"transformers\"", "the plan is for transformers"),
    ] {
        assert!(command("h100-sxm", &format!("[engine]\n{spec}\n"), "vllm").contains(reason), "{spec}");
    }
    let ranked = command("h100-sxm", "[engine]\npolicy = \"priority\"\n", "vllm");
    assert!(ranked.contains("--scheduling-policy priority"), "{ranked}");
}

#[test]
fn there_is_no_command_without_its_checkpoint_or_engine() {
    for format in ["w8", "gptq-int4", "awq-int4"] {
        let of = started(
            LLAMA,
            "h100-sxm",
            &format!("[precision]\nweights = \"{format}\"\n"),
            ReplicaRole::Replica,
        );
        let launch = of("vllm");
        assert!(launch.command.is_none() && launch.note.unwrap().contains(format));
    }
    let of = started(
        LLAMA,
        "tpu-v5e",
        "[precision]\nweights = \"int8\"\n[parallelism]\ntp = 4\n",
        ReplicaRole::Replica,
    );
    assert!(of("vllm").command.is_none() && of("sglang").note.unwrap().contains("does not run on tpu-v5e"));
    let of = started(LLAMA, "tpu-v5e", "[parallelism]\ntp = 4\n", ReplicaRole::Replica);
    assert!(of("vllm").command.unwrap().contains("--tensor-parallel-size 4"));
}

/// vLLM's and SGLang's parsers, whose flags are in `catalog/engines`, accept every flag of the commands.
#[test]
fn commands_are_read_back() {
    let spread = "[parallelism]\ntp = 2\nattention_dp = 4\nep = 8\n[engine]\nmax_num_queued_reqs = 100\n\
                  max_num_queued_tokens = 200000\nprefill_schedule_interval = 4\nlong_prefill_token_threshold = 2048\n\
                  enable_chunked_prefill = true\nenable_prefix_caching = false\nmax_num_active_seqs = 64\n";
    let of = started("deepseek-ai/DeepSeek-V3", "h200-sxm", spread, ReplicaRole::Decode);
    let vllm = of("vllm").command.unwrap();
    for flag in [
        "--max-num-queued-reqs 100",
        "--max-num-queued-tokens 200000",
        "--prefill-schedule-interval 4",
        "--long-prefill-token-threshold 2048",
        "--max-num-active-seqs 64",
        "--enable-chunked-prefill",
        "--no-enable-prefix-caching",
    ] {
        assert!(vllm.contains(flag), "{flag}: {vllm}");
    }
    let read = command::read(&vllm).unwrap();
    let key = |path: &str| read.settings.iter().find(|s| s.path == path).map(|s| s.value.clone());
    assert_eq!(key("engine.max_num_queued_reqs"), Some(100.into()));
    assert_eq!(key("engine.prefill_schedule_interval"), Some(4.into()));
    let plain = "[precision]\nweights = \"fp8\"\nkv = \"fp8\"\n[engine]\nenable_chunked_prefill = false\nenable_prefix_caching = \
                 false\n";
    let fp8 = started(LLAMA, "h100-sxm", plain, ReplicaRole::Replica);
    for engine in ["vllm", "sglang"] {
        for launch in [of(engine), fp8(engine)] {
            command::read(&launch.command.unwrap()).unwrap();
        }
    }
    assert!(fp8("sglang").command.unwrap().contains("--chunked-prefill-size -1 --disable-radix-cache"));
}

/// Sixteen ranks take two nodes of eight: each engine has its own way to find the other node.
#[test]
fn a_replica_over_two_nodes_is_started_on_both() {
    let on = |spec: &str, engine: &str| {
        let launch = started("deepseek-ai/DeepSeek-V3", "h100-sxm", spec, ReplicaRole::Replica)(engine);
        assert_eq!(launch.nodes, 2);
        (launch.command.or(launch.note).unwrap(), launch.on_others.unwrap_or_default())
    };
    let stages = "[parallelism]\ntp = 8\npp = 2\n";
    let (first, other) = on(stages, "vllm");
    assert!(first.ends_with(" --nnodes 2 --node-rank 0 --master-addr LEADER"), "{first}");
    assert!(other.ends_with(" --nnodes 2 --node-rank RANK --master-addr LEADER --headless"), "{other}");
    let (first, other) = on(stages, "sglang");
    assert!(first.ends_with(" --nnodes 2 --node-rank 0 --dist-init-addr LEADER:20000"), "{first}");
    assert!(other.ends_with(" --nnodes 2 --node-rank RANK --dist-init-addr LEADER:20000"), "{other}");
    let (whole, none) = on(stages, "tensorrt-llm");
    let srun = "srun -N 2 --ntasks 16 --ntasks-per-node 8 --mpi=pmix trtllm-llmapi-launch trtllm-serve ";
    assert!(whole.starts_with(srun) && none.is_empty(), "{whole}{none}");
    // Sixteen data-parallel ranks, eight on each node: the second node's first rank is number eight.
    let (first, other) = on("[parallelism]\ntp = 1\nattention_dp = 16\nep = 16\n", "vllm");
    let local = " --data-parallel-size-local 8 --data-parallel-address LEADER --data-parallel-rpc-port 13345";
    assert!(first.ends_with(local) && first.contains(" --data-parallel-size 16 "), "{first}");
    assert!(other.ends_with(&format!("{local} --data-parallel-start-rank 8*RANK --headless")), "{other}");
    // A replica that fits on a node is started only there.
    let one = started(LLAMA, "h100-sxm", "[parallelism]\ntp = 8\n", ReplicaRole::Replica)("vllm");
    assert_eq!((one.nodes, one.on_others), (1, None));
}
