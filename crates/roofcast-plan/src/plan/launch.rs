//! Commands that start the planned deployment.
//!
//! Knows: flags of engines for parallelism, formats and settings, and cases without a command: the weight format
//! requires a quantized checkpoint, or no engine runs on the chip. Knows nothing about performance, nor about clusters,
//! see [`super::manifest`]. Sources of flags: `catalog/engines/vllm.toml` (0.32) and `catalog/engines/sglang.toml`
//! (0.5), TensorRT-LLM `tensorrt_llm/commands/serve.py` (1.2), llama.cpp `common/arg.cpp`.

mod line;

use super::exchange;
use super::nodes::{self, Names};
use line::{CommandLine, quoted};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::{LoraSettings, MICRO_BATCH};
use roofcast_ask::spec::{EngineKind, QueuePolicy, SchedulerKind};
use roofcast_cost::memory;
use roofcast_facts::model::Checkpoint;
use roofcast_facts::precision::Dtype;
use serde::Serialize;

/// Role of a replica in its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReplicaRole {
    /// Computes prompts and decodes.
    Replica,
    /// Computes prompts for decode replicas.
    Prefill,
    /// Decodes requests of prefill replicas.
    Decode,
    /// Computes prompts and decodes, on the fleet's second kind of accelerator.
    Beside,
}

impl ReplicaRole {
    /// True if the replica sends or receives KV caches.
    fn hands_over(self) -> bool {
        matches!(self, ReplicaRole::Prefill | ReplicaRole::Decode)
    }
}

/// The command that starts one replica with one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Launch {
    /// Role of the replicas that the command starts.
    pub role: ReplicaRole,
    /// Number of replicas to start.
    pub replicas: u64,
    /// Name of the engine, as in `vllm`.
    pub engine: &'static str,
    /// Number of nodes per replica.
    pub nodes: u64,
    /// The command, on the first node if there are several; `None` if the engine cannot start this deployment.
    pub command: Option<String>,
    /// The command on each other node: `LEADER` is the first node's address, `RANK` the node's number from 1. `None`
    /// with one node.
    pub on_others: Option<String>,
    /// The reason why there is no command.
    pub note: Option<String>,
}

/// Words of a command, or the reason why there is none.
pub(super) type Words = Result<Vec<String>, String>;

/// Commands that start one of `replicas` replicas in `role` with the checkpoint `model`, for each engine; the
/// deployment's own engine comes first.
pub fn launches(deployment: &Deployment, model: &str, role: ReplicaRole, replicas: u64) -> Vec<Launch> {
    let mut launches: Vec<Launch> = commands(deployment, model, role)
        .into_iter()
        .map(|(engine, words)| {
            let at = Names { leader: "LEADER", rank: "RANK" };
            let (command, on_others, note) =
                match words.and_then(|w| nodes::spread(deployment, engine, w, at)) {
                    Ok((first, others)) => (Some(quoted(&first)), others.as_deref().map(quoted), None),
                    Err(reason) => (None, None, Some(format!("none: {reason}"))),
                };
            let (engine, nodes) = (engine.name(), nodes::count(deployment));
            Launch { role, replicas, engine, nodes, command, on_others, note }
        })
        .collect();
    launches.sort_by_key(|launch| launch.engine != deployment.engine.kind().name());
    launches
}

/// The words of the command for each engine.
pub(super) fn commands(d: &Deployment, model: &str, role: ReplicaRole) -> [(EngineKind, Words); 4] {
    [
        (EngineKind::Vllm, vllm(d, model, role)),
        (EngineKind::Sglang, sglang(d, model, role)),
        (EngineKind::TensorrtLlm, tensorrt_llm(d, model, role)),
        (EngineKind::LlamaCpp, llama_cpp(d, role)),
    ]
}

/// Origin of the weights in their format.
#[derive(PartialEq, Eq)]
enum Weights {
    /// The checkpoint is unquantized, and the engine does not quantize it.
    Unquantized,
    /// The checkpoint is stored in the format.
    Own,
    /// The engine converts an unquantized checkpoint to 8-bit floats.
    Converted,
}

fn weights(d: &Deployment) -> Result<Weights, String> {
    let format = d.weights.as_str();
    let asked = d.requested_formats().weights.is_some();
    match (d.model.checkpoint, format) {
        (Checkpoint::OfItsShape, _) => Err(format!(
            "{} has this model's shape: name the checkpoint by its Hugging Face id",
            d.model.name
        )),
        (Checkpoint::Unquantized, "fp8") => Ok(Weights::Converted),
        (Checkpoint::Unquantized, _) => Err(unnamed(d, format)),
        (Checkpoint::Named, "bf16" | "fp16" | "fp32") if d.model.quantization.is_none() => {
            Ok(Weights::Unquantized)
        }
        (Checkpoint::Named, "fp8") if d.model.quantization.is_none() => Ok(Weights::Converted),
        (Checkpoint::Named, _) if !asked || d.model.weight_formats() == [format] => Ok(Weights::Own),
        (Checkpoint::Named, _) => Err(unnamed(d, format)),
    }
}

/// The error for a format without a checkpoint. A published checkpoint may be a sibling model's, so the error only
/// mentions it.
fn unnamed(d: &Deployment, format: &str) -> String {
    let known = d.model.published.iter().find(|(_, quantization)| quantization.format.name == format);
    let known = known.map_or(String::new(), |(id, _)| format!(" ({id} is one)"));
    format!(
        "{format} weights need a checkpoint in that format{known}: name it as the model, and leave `weights` out"
    )
}

/// Vendors of the chips on which an engine runs.
pub(super) fn vendors(engine: EngineKind) -> &'static [&'static str] {
    match engine {
        EngineKind::Vllm => &["nvidia", "amd", "intel", "google", "cpu"],
        EngineKind::Sglang => &["nvidia", "amd"],
        EngineKind::TensorrtLlm => &["nvidia"],
        _ => &[],
    }
}

/// Checks that an engine runs on the chip, reads the weight format, and schedules as planned. SGLang needs compute
/// capability 7.5 (docs.sglang.io, quick start); TensorRT-LLM needs Ampere (its page "Supported Hardware").
fn on(d: &Deployment, engine: &str, kind: EngineKind) -> Result<(), String> {
    let chip = &d.accelerator;
    let too_old = match kind {
        EngineKind::Sglang => !chip.has(Dtype::Bf16) && !chip.has(Dtype::Int8),
        EngineKind::TensorrtLlm => !chip.has(Dtype::Bf16),
        _ => false,
    };
    if !vendors(kind).contains(&chip.vendor.as_str()) || (chip.vendor == "nvidia" && too_old) {
        return Err(format!("{engine} does not run on {}", chip.id));
    }
    let format = d.weights.as_str();
    if ["mlx-", "exl-"].iter().any(|family| format.starts_with(family)) {
        return Err(format!("{engine} does not read {format} weights"));
    }
    // GGUF formats have names like `q4_k_m` and `iq2_xs`.
    let gguf =
        format.trim_start_matches('i').strip_prefix('q').is_some_and(|f| f.starts_with(char::is_numeric));
    if kind != EngineKind::Vllm && gguf {
        return Err(format!("{engine} does not serve GGUF by its id"));
    }
    planned(d)
}

/// Checks that some engine schedules as `d` plans.
fn planned(d: &Deployment) -> Result<(), String> {
    if d.engine.kind().scheduler().is_none() {
        return Err(format!("the plan is for {}, which has no server here", d.engine.name()));
    }
    let serves =
        [SchedulerKind::Vllm, SchedulerKind::Sglang, SchedulerKind::TensorrtLlm, SchedulerKind::LlamaCpp];
    if !serves.contains(&d.engine.scheduler) {
        return Err(format!("no server schedules as {} does", d.engine.scheduler.name()));
    }
    if d.engine.policy == QueuePolicy::Sjf {
        return Err("no server sorts its queue by the length of answers".into());
    }
    Ok(())
}

/// Adds the format flags of vLLM and SGLang, which have equal names; with `auto` the engine chooses the cache's format.
fn formats(line: &mut CommandLine, d: &Deployment) -> Result<(), String> {
    match weights(d)? {
        Weights::Converted if d.accelerator.vendor == "google" => {
            return Err(
                "on TPU fp8 weights come from a checkpoint in that format: name it as the model".into()
            );
        }
        Weights::Converted => line.set("--quantization", "fp8"),
        Weights::Unquantized => {
            let dtype = match d.weights.as_str() {
                "fp16" => "float16",
                "fp32" => "float32",
                _ if !d.accelerator.has(Dtype::Bf16) && d.accelerator.has(Dtype::Fp16) => "float16",
                _ => "bfloat16",
            };
            line.set("--dtype", dtype);
        }
        Weights::Own => {}
    }
    let asked = d.requested_formats().kv.as_deref().is_some_and(|kv| kv != "auto");
    match d.kv.name {
        "fp8" if asked => line.set("--kv-cache-dtype", "fp8_e4m3"),
        kv if asked && !["bf16", "fp16", "fp32", "16"].contains(&kv) => {
            return Err(format!("it keeps no {kv} KV cache"));
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn vllm(d: &Deployment, model: &str, role: ReplicaRole) -> Words {
    on(d, "vLLM", EngineKind::Vllm)?;
    let p = d.parallelism;
    let mut line = CommandLine::of(&["vllm", "serve", model]);
    formats(&mut line, d)?;
    line.set("--tensor-parallel-size", p.tp);
    line.beyond("--pipeline-parallel-size", p.pp, 1);
    line.beyond("--decode-context-parallel-size", d.sequence_ranks, 1);
    line.beyond("--data-parallel-size", p.attention_dp, 1);
    match p.ep {
        1 => {}
        ep if ep == p.stage_ranks() => line.flag("--enable-expert-parallel"),
        ep => {
            return Err(format!(
                "vLLM spreads experts over all {} ranks or none, not over {ep}",
                p.stage_ranks()
            ));
        }
    }
    // A utilization of 1 stands for llama.cpp, which uses all of the memory; vLLM cannot.
    if d.engine.gpu_memory_utilization < 1.0 {
        line.set("--gpu-memory-utilization", d.engine.gpu_memory_utilization);
    }
    // vLLM applies both bounds to each data-parallel rank.
    line.set("--max-num-seqs", d.seats().div_ceil(p.attention_dp));
    line.set("--max-num-batched-tokens", d.engine.max_num_batched_tokens);
    let asked = &d.engine;
    let own = asked.vllm().copied().unwrap_or_default();
    if let Some(n) = asked.max_model_len.or_else(|| longest_that_starts(d)) {
        line.set("--max-model-len", n);
    }
    for (flag, value) in [
        ("--num-gpu-blocks-override", asked.num_gpu_blocks),
        ("--kv-cache-memory-bytes", asked.kv_cache_memory_bytes),
        ("--max-num-active-seqs", own.max_num_active_seqs),
        ("--max-num-queued-reqs", own.max_num_queued_reqs),
        ("--max-num-queued-tokens", own.max_num_queued_tokens),
        ("--prefill-schedule-interval", own.prefill_schedule_interval),
        ("--long-prefill-token-threshold", own.long_prefill_token_threshold),
        ("--block-size", asked.requested.block_size),
    ] {
        if let Some(value) = value {
            line.set(flag, value);
        }
    }
    for (flag, on) in [
        ("enable-prefix-caching", asked.enable_prefix_caching),
        ("enable-chunked-prefill", asked.enable_chunked_prefill),
        ("async-scheduling", own.async_scheduling),
    ] {
        match on {
            Some(true) => line.flag(&format!("--{flag}")),
            Some(false) => line.flag(&format!("--no-{flag}")),
            None => {}
        }
    }
    adapters(&mut line, asked.lora.as_ref());
    line.0.extend(exchange::vllm(d));
    if let Some(tier) = asked.offload() {
        line.set("--kv-offloading-size", tier.gib);
    }
    if asked.policy == QueuePolicy::Priority {
        line.set("--scheduling-policy", "priority");
    }
    let on = [("--enforce-eager", asked.enforce_eager), ("--language-model-only", asked.language_model_only)];
    on.into_iter().filter(|(_, on)| *on).for_each(|(flag, _)| line.flag(flag));
    // A value of 0 would also disable graphs of decodes.
    if let Some(tokens) = asked.requested.max_cudagraph_capture_size.filter(|tokens| *tokens > 0) {
        line.set("--max-cudagraph-capture-size", tokens);
    }
    if role.hands_over() {
        line.set("--kv-transfer-config", r#"{"kv_connector":"NixlConnector","kv_role":"kv_both"}"#);
    }
    Ok(line.0)
}

/// Adds vLLM's flags for LoRA adapters.
fn adapters(line: &mut CommandLine, settings: Option<&LoraSettings>) {
    let Some(settings) = settings else { return };
    line.flag("--enable-lora");
    line.set("--max-loras", settings.max_loras);
    line.set("--max-lora-rank", settings.max_lora_rank);
    line.beyond("--max-cpu-loras", settings.max_cpu_loras, settings.max_loras);
    if settings.fully_sharded {
        line.flag("--fully-sharded-loras");
    }
}

/// The longest request with which vLLM starts; `None` if it starts with the model's own maximum length.
fn longest_that_starts(d: &Deployment) -> Option<u64> {
    let longest = d.longest()?;
    memory::start(d, longest).refusal.map(|refusal| refusal.longest).filter(|tokens| *tokens > 0)
}

fn sglang(d: &Deployment, model: &str, role: ReplicaRole) -> Words {
    on(d, "SGLang", EngineKind::Sglang)?;
    let p = d.parallelism;
    let mut line = CommandLine::of(&["python", "-m", "sglang.launch_server", "--model-path", model]);
    formats(&mut line, d)?;
    // With data-parallel attention SGLang's tp is the number of all ranks.
    line.set("--tp-size", p.stage_ranks());
    line.beyond("--pp-size", p.pp, 1);
    line.beyond("--dcp-size", d.sequence_ranks, 1);
    if p.attention_dp > 1 {
        line.set("--dp-size", p.attention_dp);
        line.flag("--enable-dp-attention");
    }
    line.beyond("--ep-size", p.ep, 1);
    line.0.extend(exchange::sglang(d));
    // SGLang's fraction covers only weights and KV cache; vLLM's also covers activations.
    let own = d.engine.kind() == EngineKind::Sglang;
    let both = |rank: &memory::Rank| (rank.weight_bytes.as_f64() + rank.kv_bytes.as_f64(), 0.0);
    let fraction = if own { d.engine.gpu_memory_utilization } else { share(d, both) };
    line.set("--mem-fraction-static", fraction);
    line.set("--max-running-requests", d.seats());
    let whole = d.engine.enable_chunked_prefill == Some(false);
    // SGLang divides its chunk among ranks; another engine's budget is a rank's.
    let ranks = if own { 1 } else { p.attention_dp };
    let chunk = (d.engine.max_num_batched_tokens * ranks).to_string();
    line.set("--chunked-prefill-size", if whole { "-1".to_owned() } else { chunk });
    if let Some(n) = d.engine.max_model_len {
        line.set("--context-length", n);
    }
    if d.engine.enable_prefix_caching == Some(false) {
        line.flag("--disable-radix-cache");
    }
    if d.engine.policy == QueuePolicy::Priority {
        line.flag("--enable-priority-scheduling");
    }
    match role {
        ReplicaRole::Replica | ReplicaRole::Beside => {}
        ReplicaRole::Prefill => line.set("--disaggregation-mode", "prefill"),
        ReplicaRole::Decode => line.set("--disaggregation-mode", "decode"),
    }
    Ok(line.0)
}

/// Smallest fraction, over the ranks, of a part of the memory in the memory that is not taken; rounded down to
/// hundredths.
fn share(d: &Deployment, of: fn(&memory::Rank) -> (f64, f64)) -> f64 {
    let shares = memory::ranks(d).into_iter().map(|rank| {
        let (part, taken) = of(&rank);
        part / (d.accelerator.usable_bytes.as_f64() - taken)
    });
    // Bytes are whole numbers, so that 0.9 may become slightly less by rounding.
    (shares.fold(1.0, f64::min) * 100.0 + 1e-6).floor() / 100.0
}

fn tensorrt_llm(d: &Deployment, model: &str, role: ReplicaRole) -> Words {
    on(d, "TensorRT-LLM", EngineKind::TensorrtLlm)?;
    let p = d.parallelism;
    if weights(d)? == Weights::Converted {
        return Err(
            "TensorRT-LLM takes fp8 weights from a checkpoint in that format: name it as the model".into()
        );
    }
    if d.engine.policy == QueuePolicy::Priority {
        return Err("trtllm-serve has no flag for priorities".into());
    }
    if d.requested_formats().kv.as_deref().is_some_and(|kv| kv != "auto") {
        return Err("TensorRT-LLM takes the format of its KV cache from a YAML file, not from flags".into());
    }
    if role.hands_over() || p.attention_dp > 1 {
        return Err(
            "data-parallel attention and its part in a fleet it takes from a YAML file, not from flags"
                .into(),
        );
    }
    let mut line = CommandLine::of(&["trtllm-serve", model, "--backend", "pytorch"]);
    line.set("--tp_size", p.stage_ranks());
    line.beyond("--pp_size", p.pp, 1);
    line.beyond("--ep_size", p.ep, 1);
    line.set(
        "--kv_cache_free_gpu_memory_fraction",
        share(d, |rank| {
            let taken = rank.weight_bytes + rank.activation_bytes + rank.runtime_bytes;
            (rank.kv_bytes.as_f64(), taken.as_f64())
        }),
    );
    line.set("--max_batch_size", d.engine.max_num_seqs);
    line.set("--max_num_tokens", d.engine.max_num_batched_tokens);
    // TensorRT-LLM, unlike other engines, splits prompts only with a flag.
    let own = d.engine.scheduler == SchedulerKind::TensorrtLlm;
    if d.engine.enable_chunked_prefill.unwrap_or(!own) {
        line.flag("--enable_chunked_prefill");
    }
    Ok(line.0)
}

fn llama_cpp(d: &Deployment, role: ReplicaRole) -> Words {
    if d.engine.kind() != EngineKind::LlamaCpp {
        return Err("it serves GGUF files; plan with engine.name = \"llama.cpp\" and a GGUF format".into());
    }
    if role.hands_over() || d.parallelism.count() > d.parallelism.tp {
        return Err("llama.cpp has no pools, stages or data-parallel ranks over processes".into());
    }
    if let Checkpoint::OfItsShape = d.model.checkpoint {
        return Err(format!("{} has this model's shape: name the file that is to be served", d.model.name));
    }
    let caches = ["fp16", "bf16", "16", "q8_0", "q4_0", "q5_0", "q5_1", "q4_1"];
    if !caches.contains(&d.kv.name) {
        return Err(format!("it keeps no {} KV cache", d.kv.name));
    }
    let Some(pool) = memory::pool(d) else {
        return Err("llama.cpp sizes its cache by -c, not by blocks or bytes".into());
    };
    let slots = &d.engine.slots;
    let mut line = CommandLine::of(&["llama-server", "-m", "MODEL.gguf", "-ngl", "999", "-fa", "on", "-cb"]);
    line.set("-np", slots.count);
    line.set("-c", pool.cells);
    if pool.unified {
        line.flag("-kvu");
    }
    if let Some(tokens) = d.engine.requested.max_num_batched_tokens {
        line.set("-b", tokens);
    }
    if slots.n_ubatch != MICRO_BATCH {
        line.set("-ub", slots.n_ubatch);
    }
    if slots.swa_full {
        line.flag("--swa-full");
    }
    if d.parallelism.tp > 1 {
        line.set("-sm", "row");
    }
    if d.kv.name.starts_with('q') {
        line.set("-ctk", d.kv.name);
        line.set("-ctv", d.kv.name);
    }
    Ok(line.0)
}
