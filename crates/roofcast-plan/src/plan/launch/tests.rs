//! A command is read back as the deployment that it was written from, for every key of every engine.

use super::*;
use roofcast_ask::command;
use roofcast_ask::deployment::DeploymentOptions;
use roofcast_ask::engine_settings::{EngineSettings, Slots};
use roofcast_ask::spec::Spec;
use roofcast_ask::spec::keys::KEYS;
use roofcast_ask::spec::settings::lay;
use roofcast_facts::catalog::Catalog;
use std::collections::BTreeSet;
use std::sync::Arc;
use toml::Table;

const ENGINES: [EngineKind; 4] =
    [EngineKind::Vllm, EngineKind::Sglang, EngineKind::TensorrtLlm, EngineKind::LlamaCpp];
const DENSE: &str = "meta-llama/Llama-3.1-8B-Instruct";
const EXPERTS: &str = "deepseek-ai/DeepSeek-V3";
const VISION: &str = "Qwen/Qwen3-VL-4B-Instruct";
const HYBRID: &str = "Qwen/Qwen3-Next-80B-A3B-Instruct";
const RANKS: &str = "parallelism.tp = 1\nparallelism.attention_dp = 8\nparallelism.ep = 8\n";

/// A value of every key that differs from the defaults, with the model and the further keys that it needs.
const SAMPLES: &[(&str, &str, &str, &str)] = &[
    ("max_num_seqs", "40", DENSE, ""),
    ("max_num_batched_tokens", "4096", DENSE, ""),
    ("max_num_batched_tokens", "32768", DENSE, ""),
    ("block_size", "32", DENSE, ""),
    ("num_gpu_blocks", "3000", DENSE, ""),
    ("gpu_memory_utilization", "0.8", DENSE, ""),
    ("max_model_len", "8192", DENSE, ""),
    ("enable_chunked_prefill", "true", DENSE, ""),
    ("enable_chunked_prefill", "false", DENSE, ""),
    ("enable_prefix_caching", "true", DENSE, ""),
    ("enable_prefix_caching", "false", DENSE, ""),
    ("policy", "\"priority\"", DENSE, ""),
    ("scheduler_reserve_full_isl", "true", DENSE, ""),
    ("scheduler_reserve_full_isl", "false", DENSE, ""),
    ("watermark", "0.05", DENSE, ""),
    ("mamba_ssm_dtype", "\"bfloat16\"", HYBRID, ""),
    ("decode_context_parallel_size", "2", EXPERTS, "parallelism.tp = 8\n"),
    ("language_model_only", "true", DENSE, ""),
    ("kv_cache_memory_bytes", "8000000000", DENSE, ""),
    ("enforce_eager", "true", DENSE, ""),
    ("stream_interval", "20", DENSE, ""),
    ("max_cudagraph_capture_size", "256", DENSE, ""),
    ("max_cudagraph_capture_size", "0", DENSE, ""),
    ("speculative.num_speculative_tokens", "3", DENSE, "engine.speculative.method = \"ngram\"\n"),
    ("speculative.method", "\"ngram\"", DENSE, "engine.speculative.num_speculative_tokens = 2\n"),
    (
        "speculative.draft_model",
        "\"meta-llama/Llama-3.2-1B\"",
        DENSE,
        "engine.speculative.num_speculative_tokens = 2\n",
    ),
    ("speculative.draft_cost", "0.1", DENSE, "engine.speculative.num_speculative_tokens = 2\n"),
    ("experts.all2all_backend", "\"deepep_high_throughput\"", EXPERTS, RANKS),
    ("experts.all2all_backend", "\"deepep_low_latency\"", EXPERTS, RANKS),
    ("experts.enable_dbo", "true", EXPERTS, "engine.experts.all2all_backend = \"deepep_low_latency\"\n@"),
    (
        "experts.dbo_decode_token_threshold",
        "64",
        EXPERTS,
        "engine.experts.all2all_backend = \"deepep_low_latency\"\nengine.experts.enable_dbo = true\n@",
    ),
    (
        "experts.dbo_prefill_token_threshold",
        "1024",
        EXPERTS,
        "engine.experts.all2all_backend = \"deepep_low_latency\"\nengine.experts.enable_dbo = true\n@",
    ),
    ("experts.enable_eplb", "true", EXPERTS, RANKS),
    ("experts.num_redundant_experts", "32", EXPERTS, "engine.experts.enable_eplb = true\n@"),
    ("experts.eplb_step_interval", "500", EXPERTS, "engine.experts.enable_eplb = true\n@"),
    ("vllm.max_num_active_seqs", "20", DENSE, ""),
    ("vllm.max_num_queued_reqs", "20", DENSE, ""),
    ("vllm.max_num_queued_tokens", "20000", DENSE, ""),
    ("vllm.prefill_schedule_interval", "4", DENSE, ""),
    ("vllm.long_prefill_token_threshold", "2048", DENSE, ""),
    ("vllm.async_scheduling", "true", DENSE, ""),
    ("vllm.api_server_count", "4", DENSE, ""),
    ("vllm.async_scheduling", "false", DENSE, ""),
    ("vllm.kv_offloading_size", "32.5", DENSE, ""),
    ("vllm.kv_offloading_backend", "\"native\"", DENSE, "engine.vllm.kv_offloading_size = 32.0\n"),
    ("vllm.kv_offloading_eviction_policy", "\"arc\"", DENSE, "engine.vllm.kv_offloading_size = 32.0\n"),
    ("vllm.kv_offloading_store_threshold", "3", DENSE, "engine.vllm.kv_offloading_size = 32.0\n"),
    ("vllm.kv_offloading_prompt_only", "false", DENSE, "engine.vllm.kv_offloading_size = 32.0\n"),
    ("vllm.kv_storage_size", "500.0", DENSE, "engine.vllm.kv_offloading_size = 32.0\n"),
    (
        "vllm.kv_storage_read_gb_s",
        "5.0",
        DENSE,
        "engine.vllm.kv_storage_size = 500.0\nengine.vllm.kv_offloading_size = 32.0\n",
    ),
    (
        "vllm.kv_storage_write_gb_s",
        "5.0",
        DENSE,
        "engine.vllm.kv_storage_size = 500.0\nengine.vllm.kv_offloading_size = 32.0\n",
    ),
    (
        "vllm.kv_storage_latency_ms",
        "5.0",
        DENSE,
        "engine.vllm.kv_storage_size = 500.0\nengine.vllm.kv_offloading_size = 32.0\n",
    ),
    ("vllm.enable_lora", "true", DENSE, ""),
    ("vllm.max_loras", "4", DENSE, "engine.vllm.enable_lora = true\n"),
    ("vllm.max_lora_rank", "32", DENSE, "engine.vllm.enable_lora = true\n"),
    ("vllm.max_cpu_loras", "8", DENSE, "engine.vllm.enable_lora = true\n"),
    ("vllm.fully_sharded_loras", "true", DENSE, "engine.vllm.enable_lora = true\n"),
    ("vllm.mm_encoder_tp_mode", "\"data\"", DENSE, ""),
    ("vllm.mm_processor_kwargs", "'{\"max_pixels\": 1003520}'", VISION, ""),
    ("sglang.schedule_policy", "\"lpm\"", DENSE, ""),
    ("sglang.chunked_prefill_size", "4096", DENSE, ""),
    ("sglang.chunked_prefill_size", "-1", DENSE, ""),
    ("sglang.max_prefill_tokens", "8192", DENSE, ""),
    ("sglang.enable_mixed_chunk", "true", DENSE, ""),
    ("sglang.schedule_conservativeness", "0.3", DENSE, ""),
    ("sglang.prefill_max_requests", "8", DENSE, ""),
    ("sglang.disable_radix_cache", "true", DENSE, ""),
    ("sglang.max_mamba_cache_size", "100", HYBRID, ""),
    ("sglang.mamba_full_memory_ratio", "0.5", HYBRID, ""),
    ("sglang.mamba_radix_cache_strategy", "\"extra_buffer\"", HYBRID, ""),
    ("sglang.enable_hierarchical_cache", "true", DENSE, ""),
    ("sglang.hicache_ratio", "3.0", DENSE, "engine.sglang.enable_hierarchical_cache = true\n"),
    ("sglang.hicache_size", "64.0", DENSE, "engine.sglang.enable_hierarchical_cache = true\n"),
    (
        "sglang.hicache_write_policy",
        "\"write_back\"",
        DENSE,
        "engine.sglang.enable_hierarchical_cache = true\n",
    ),
    ("sglang.disable_overlap_schedule", "true", DENSE, ""),
    ("sglang.retraction_policy", "\"priority\"", DENSE, ""),
    ("sglang.enable_priority_scheduling", "true", DENSE, ""),
    ("sglang.schedule_low_priority_values_first", "true", DENSE, ""),
    ("sglang.disable_priority_preemption", "true", DENSE, ""),
    ("sglang.priority_scheduling_preemption_threshold", "3", DENSE, ""),
    ("sglang.scheduler_recv_interval", "5", DENSE, ""),
    ("llama-cpp.n_ctx", "32768", DENSE, ""),
    ("llama-cpp.kv_unified", "true", DENSE, ""),
    ("llama-cpp.n_ubatch", "256", DENSE, ""),
    ("llama-cpp.swa_full", "true", DENSE, ""),
    ("llama-cpp.n_gpu_layers", "20", DENSE, ""),
    ("llama-cpp.n_cpu_moe", "12", DENSE, ""),
    ("llama-cpp.override_tensor", "\"ffn_down=CPU,1.attn=CUDA0\"", DENSE, ""),
    ("llama-cpp.no_kv_offload", "true", DENSE, ""),
    ("llama-cpp.cache_reuse", "256", DENSE, ""),
    ("llama-cpp.cache_ram", "4096", DENSE, ""),
    ("llama-cpp.ctx_checkpoints", "8", DENSE, ""),
    ("llama-cpp.slot_prompt_similarity", "0.5", DENSE, ""),
    ("cpu_offload_gb", "10.0", DENSE, ""),
    ("tensorrt-llm.batch_wait_timeout_iters", "5", DENSE, ""),
    ("tensorrt-llm.batch_wait_max_tokens_ratio", "0.5", DENSE, ""),
    ("tensorrt-llm.disable_overlap_scheduler", "true", DENSE, ""),
    ("tensorrt-llm.attention_dp_enable_balance", "true", DENSE, ""),
    ("tensorrt-llm.attention_dp_time_out_iters", "9", DENSE, ""),
];

fn resolved(model: &str, spec: &Spec) -> Result<Deployment, String> {
    let chip = Arc::new(Catalog::embedded().unwrap().accelerator("h200-sxm").unwrap().clone());
    let named = |name: &str| Arc::new(Catalog::embedded().unwrap().named(name).unwrap().model().unwrap());
    let draft = spec.engine.speculative.as_ref().and_then(|s| s.draft_model.as_deref()).map(named);
    let options = DeploymentOptions { draft, ..DeploymentOptions::of(spec) };
    Deployment::resolve(named(model), chip, &options).map_err(|error| error.to_string())
}

/// Settings of an engine without the record of the keys that were set: commands also set keys with their defaults.
fn settings(d: &Deployment) -> EngineSettings {
    let mut settings = d.engine.clone();
    settings.requested = Default::default();
    // Commands bound requests to what the cache holds; slots are llama.cpp's.
    settings.max_model_len = None;
    settings.slots.n_ctx = None;
    if d.engine.kind() != EngineKind::LlamaCpp {
        settings.slots = Slots::default();
    }
    // Other engines than vLLM have these keys under names of their own, which are compared too, or as a default.
    if d.engine.kind() != EngineKind::Vllm {
        settings.enable_chunked_prefill = None;
        settings.enable_prefix_caching =
            settings.enable_prefix_caching.filter(|on| !on && d.engine.sglang().is_none());
    }
    settings
}

/// Text of a spec of `engine` with a sample's key and the keys that it needs.
fn sample(engine: EngineKind, key: &str, value: &str, needs: &str) -> String {
    let needs = needs.replace('@', RANKS);
    // The slots of llama.cpp are resolved with its context.
    let slots = engine == EngineKind::LlamaCpp && key != "max_num_seqs";
    let slots = if slots { "engine.max_num_seqs = 8\n" } else { "" };
    format!("engine.name = \"{}\"\nengine.{key} = {value}\n{needs}{slots}", engine.name())
}

/// The first difference between `planned` and the deployment that `command` describes.
fn difference(model: &str, planned: &Deployment, command: &str) -> Option<String> {
    let table = lay(Table::new(), &command::read(command).unwrap().settings).unwrap();
    let read = match resolved(model, &Spec::of_table("read", table).unwrap()) {
        Ok(read) => read,
        Err(error) => return Some(error),
    };
    if planned.engine.max_model_len.is_some() && read.longest() != planned.longest() {
        return Some("another max_model_len".to_owned());
    }
    let cells = planned.engine.slots.n_ctx;
    if cells.is_some() && read.engine.slots.n_ctx != cells {
        return Some("another n_ctx".to_owned());
    }
    let parts = |d: &Deployment| {
        let ranks = (d.parallelism, d.experts, d.sequence_ranks);
        let on_host: Vec<_> =
            d.stages.iter().map(|stage| (stage.host_bytes, stage.blocks[0].0.cache_on_host)).collect();
        format!("{:?} {ranks:?} {} {} {on_host:?}", settings(d), d.kv.name, d.weights)
    };
    let is = parts(&read);
    let was = parts(planned);
    let same = is.bytes().zip(was.bytes()).take_while(|(a, b)| a == b).count();
    let part = |text: &str| text.chars().skip(same.saturating_sub(30)).take(60).collect::<String>();
    (is != was).then(|| format!("read {}, planned {}", part(&is), part(&was)))
}

#[test]
fn commands_are_read_back_as_they_were_planned() {
    let (mut refused, mut differ): (Vec<String>, Vec<String>) = Default::default();
    let mut tried = BTreeSet::new();
    for (engine, (key, value, model, needs)) in
        ENGINES.iter().flat_map(|engine| SAMPLES.iter().map(|sample| (*engine, *sample)))
    {
        let path = format!("engine.{key}");
        if KEYS.iter().any(|k| k.path == path && k.owner().is_some_and(|owner| owner != engine)) {
            continue;
        }
        let spec = Spec::parse("planned", &sample(engine, key, value, needs)).unwrap();
        // What the engine or the model refuses is never planned.
        let Ok(planned) = resolved(model, &spec) else { continue };
        tried.insert((key, value));
        let case = format!("{} {key} = {value}", engine.name());
        let launch = launches(&planned, model, ReplicaRole::Replica, 1).remove(0);
        assert_eq!(launch.engine, engine.name());
        match &launch.command {
            Some(text) => {
                differ.extend(difference(model, &planned, text).map(|how| format!("{case}: {text}: {how}")))
            }
            None => refused.push(format!("{case}: {}", launch.note.unwrap())),
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(tried.len(), SAMPLES.len());
    let cases_of = |engine: &str| -> Vec<&str> {
        refused
            .iter()
            .filter_map(|case| case.strip_prefix(engine)?.strip_prefix(' '))
            .map(|case| case.split(' ').next().unwrap())
            .collect()
    };
    let storage =
        ["size", "read_gb_s", "write_gb_s", "latency_ms"].map(|key| format!("vllm.kv_storage_{key}"));
    assert_eq!(cases_of("vllm"), [&["speculative.draft_cost".to_owned()], &storage[..]].concat());
    let unlike = [
        "scheduler_reserve_full_isl",
        "scheduler_reserve_full_isl",
        "watermark",
        "kv_cache_memory_bytes",
        "max_cudagraph_capture_size",
        "max_cudagraph_capture_size",
        "speculative.num_speculative_tokens",
        "speculative.method",
        "speculative.draft_model",
        "speculative.draft_cost",
        "experts.dbo_decode_token_threshold",
        "experts.dbo_prefill_token_threshold",
    ];
    assert_eq!(cases_of("sglang"), unlike);
    for case in &refused {
        assert!(
            ["cannot be set: ", "YAML", "no pools", "not by blocks"]
                .iter()
                .any(|reason| case.contains(reason)),
            "{case}"
        );
    }
}

/// Every key of `[engine]` has a sample, or is no setting of a server.
#[test]
fn every_key_of_an_engine_is_tried() {
    let tried = |path: &str| SAMPLES.iter().any(|(key, ..)| path == format!("engine.{key}"));
    let gone = ["engine.vllm.preemption_mode", "engine.vllm.swap_space"];
    for key in KEYS.iter().filter(|key| key.section() == "engine") {
        let no_setting = command::is_assumed(key.path) || key.path.starts_with("engine.length_prediction");
        assert!(tried(key.path) || no_setting || gone.contains(&key.path), "{}", key.path);
    }
}
