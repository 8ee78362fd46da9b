//! Commands that start the planned deployment.
//!
//! Knows: flags of engines for parallelism, formats and settings, and cases without a command: the weight format
//! requires a quantized checkpoint, or no engine runs on the chip. Knows nothing about performance, nor about clusters,
//! see [`super::manifest`], nor about names of flags, which the tables of [`roofcast_ask::command`] have. A key that a spec sets
//! is in the command, or there is no command.

mod line;
mod sglang;
#[cfg(test)]
mod tests;
mod vllm;

use super::nodes::{self, Names};
use line::quoted;
use roofcast_ask::command::{CommandLine, chosen, whole};
use roofcast_ask::deployment::{Deployment, support};
use roofcast_ask::engine_settings::MICRO_BATCH;
use roofcast_ask::parallelism::Parallelism;
use roofcast_ask::spec::{AttentionBackend, EngineKind, QueuePolicy, SchedulerKind};
use roofcast_cost::memory::{self, Memory};
use roofcast_facts::model::{Checkpoint, Quantization};
use roofcast_facts::precision::{Dtype, WeightFormat};
use serde::Serialize;
pub(super) use vllm::vllm;

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
    /// Keys of the spec that the forecast assumes and that no command sets, because servers choose them by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<&'static str>,
}

/// Value of `-ngl` for the layers of any model.
const ALL_LAYERS: u64 = 999;

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
            let engine = engine.name();
            let nodes = nodes::count(deployment);
            let assumed = chosen(deployment.requested_engine());
            Launch { role, replicas, engine, nodes, command, on_others, note, assumed }
        })
        .collect();
    launches.sort_by_key(|launch| launch.engine != deployment.engine.kind().name());
    launches
}

/// The words of the command for each engine.
pub(super) fn commands(d: &Deployment, model: &str, role: ReplicaRole) -> [(EngineKind, Words); 4] {
    let model = makers_own(d).unwrap_or(model);
    [
        (EngineKind::Vllm, vllm(d, model, role)),
        (EngineKind::Sglang, sglang::sglang(d, model, role)),
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
    if makers_own(d).is_some() {
        return Ok(Weights::Own);
    }
    let is_asked = d.requested_formats().weights.is_some();
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
        (Checkpoint::Named, _) if !is_asked || d.model.weight_formats() == [format] => Ok(Weights::Own),
        (Checkpoint::Named, _) => Err(unnamed(d, format)),
    }
}

/// Id of the checkpoint in the deployment's format that the maker publishes under the model's own name, as in
/// `Qwen/Qwen3-32B-FP8`; `None` if the model is quantized itself, or none is published.
fn makers_own(d: &Deployment) -> Option<&str> {
    let prefix = format!("{}-", d.model.name).to_lowercase();
    let alike = |(id, quantization): &&(String, Quantization)| {
        quantization.format.name == d.weights && id.to_lowercase().starts_with(&prefix)
    };
    let unquantized = d.model.checkpoint == Checkpoint::Unquantized || d.model.quantization.is_none();
    d.model.published.iter().filter(|_| unquantized).find(alike).map(|(id, _)| id.as_str())
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

/// Vendors of the chips on which the written command starts an engine; other chips have a program or a plugin of their own.
fn written(engine: EngineKind) -> &'static [&'static str] {
    match engine {
        EngineKind::Vllm => &["nvidia", "amd", "intel", "google", "cpu"],
        EngineKind::Sglang => &["nvidia", "amd"],
        _ => &["nvidia"],
    }
}

/// Checks that an engine runs on the chip, reads the weight format, and schedules as planned.
fn on(d: &Deployment, engine: &str, kind: EngineKind) -> Result<(), String> {
    let chip = &d.accelerator;
    if !support::runs_on(kind, chip) {
        return Err(format!("{engine} does not run on {}", chip.id));
    }
    if !written(kind).contains(&chip.vendor.as_str()) {
        return Err(format!("the command of {engine} on {} is not known here", chip.id));
    }
    let format = d.weights.as_str();
    if support::unread(kind, format).is_some() {
        return Err(format!("{engine} does not read {format} weights"));
    }
    let gguf = matches!(format.parse(), Ok(WeightFormat::Gguf(_)));
    if kind != EngineKind::Vllm && gguf {
        return Err(format!("{engine} does not serve GGUF by its id"));
    }
    planned(d, kind)
}

/// Checks that some engine schedules as `d` plans, and `kind` if it is planned.
fn planned(d: &Deployment, kind: EngineKind) -> Result<(), String> {
    if d.engine.kind().scheduler().is_none() {
        return Err(format!("the plan is for {}, which has no server here", d.engine.name()));
    }
    let serves =
        [SchedulerKind::Vllm, SchedulerKind::Sglang, SchedulerKind::TensorrtLlm, SchedulerKind::LlamaCpp];
    if !serves.contains(&d.engine.scheduler) {
        return Err(format!("no server schedules as {} does", d.engine.scheduler.name()));
    }
    if d.engine.kind() == kind && kind.scheduler() != Some(d.engine.scheduler) {
        return Err(format!("{} does not schedule as {} does", kind.name(), d.engine.scheduler.name()));
    }
    if d.engine.policy == QueuePolicy::Sjf {
        return Err("no server sorts its queue by the length of answers".into());
    }
    Ok(())
}

/// Adds the format flags of vLLM and SGLang, which have equal names; with `auto` the engine chooses the cache's format. The
/// engine has caches of 4-bit floats under the name `narrow`.
fn formats(line: &mut CommandLine, d: &Deployment, narrow: Option<&str>) -> Result<(), String> {
    match weights(d)? {
        Weights::Converted if d.accelerator.vendor == "google" => {
            return Err(
                "on TPU fp8 weights come from a checkpoint in that format: name it as the model".into()
            );
        }
        Weights::Converted => line.set("quantization", "fp8")?,
        Weights::Unquantized => {
            let dtype = match d.weights.as_str() {
                "fp16" => "float16",
                "fp32" => "float32",
                _ if !d.accelerator.has(Dtype::Bf16) && d.accelerator.has(Dtype::Fp16) => "float16",
                _ => "bfloat16",
            };
            line.word("--dtype", dtype);
        }
        Weights::Own => {}
    }
    let is_asked = d.requested_formats().kv.as_deref().is_some_and(|kv| kv != "auto");
    match d.kv.name {
        "fp8" if is_asked => line.set("kv_cache", "fp8_e4m3")?,
        kv if is_asked && narrow == Some(kv) => line.set("kv_cache", kv)?,
        kv if is_asked && !["bf16", "fp16", "fp32", "16"].contains(&kv) => {
            return Err(format!("it keeps no {kv} KV cache"));
        }
        _ => {}
    }
    Ok(())
}

/// Smallest fraction, over the ranks, of a part of the memory in the memory that is not taken; rounded down to
/// hundredths.
fn share(d: &Deployment, of: fn(&memory::Rank) -> (f64, f64)) -> f64 {
    let memory = Memory::of(d);
    let shares = memory.ranks().iter().map(|rank| {
        let (part, taken) = of(rank);
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
    if d.requested_formats().kv.as_deref().is_some_and(|kv| kv != "auto") {
        return Err("TensorRT-LLM takes the format of its KV cache from a YAML file, not from flags".into());
    }
    if role.hands_over() || p.attention_dp > 1 {
        return Err(
            "data-parallel attention and its part in a fleet it takes from a YAML file, not from flags"
                .into(),
        );
    }
    let mut line =
        CommandLine::of(EngineKind::TensorrtLlm, &["trtllm-serve", model, "--backend", "pytorch"])?;
    line.set("parallelism.tp", whole(p.stage_ranks()))?;
    line.beyond("parallelism.pp", p.pp, 1)?;
    line.beyond("parallelism.ep", p.ep, 1)?;
    let free = share(d, |rank| {
        let taken = rank.weight_bytes + rank.activation_bytes + rank.runtime_bytes;
        (rank.kv_bytes.as_f64(), taken.as_f64())
    });
    line.set("engine.gpu_memory_utilization", free)?;
    line.set("engine.max_num_seqs", whole(d.engine.max_num_seqs))?;
    line.set("engine.max_num_batched_tokens", whole(d.engine.max_num_batched_tokens))?;
    if d.engine.enable_prefix_caching == Some(false) {
        line.set("no_reuse", true)?;
    }
    line.covers(&["engine.enable_prefix_caching", "engine.enable_chunked_prefill"]);
    line.rest(d.requested_engine())?;
    // TensorRT-LLM, unlike other engines, splits prompts only with a flag.
    let is_own = d.engine.scheduler == SchedulerKind::TensorrtLlm;
    if d.engine.enable_chunked_prefill.unwrap_or(!is_own) {
        line.set("engine.enable_chunked_prefill", true)?;
    }
    Ok(line.words())
}

fn llama_cpp(d: &Deployment, role: ReplicaRole) -> Words {
    if d.engine.kind() != EngineKind::LlamaCpp {
        return Err("it serves GGUF files; plan with engine.name = \"llama.cpp\" and a GGUF format".into());
    }
    planned(d, EngineKind::LlamaCpp)?;
    if !support::runs_on(EngineKind::LlamaCpp, &d.accelerator) {
        return Err(format!("llama.cpp does not run on {}", d.accelerator.id));
    }
    let Parallelism { tp, pp, .. } = d.parallelism;
    if role.hands_over() || d.parallelism.count() > tp.max(pp) {
        return Err(
            "llama.cpp splits by layers or by matrices, and has no pools or data-parallel ranks".into()
        );
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
    let fused = if d.engine.attention_backend == Some(AttentionBackend::Naive) { "off" } else { "on" };
    let layers = d.requested_engine().own().llama_cpp.n_gpu_layers.unwrap_or(ALL_LAYERS).to_string();
    let words = ["llama-server", "-m", "MODEL.gguf", "-ngl", &layers, "-fa", fused, "-cb"];
    let mut line = CommandLine::of(EngineKind::LlamaCpp, &words)?;
    line.set("slots", whole(slots.count))?;
    line.set("context", whole(pool.cells))?;
    if pool.unified {
        line.set("unified", true)?;
    }
    if let Some(tokens) = d.engine.requested.max_num_batched_tokens {
        line.set("engine.max_num_batched_tokens", whole(tokens))?;
    }
    line.beyond("engine.n_ubatch", slots.n_ubatch, MICRO_BATCH)?;
    if slots.swa_full {
        line.set("engine.swa_full", true)?;
    }
    line.covers(&["engine.n_ctx", "engine.kv_unified", "engine.swa_full", "engine.n_gpu_layers"]);
    if let Some(places) = &d.requested_engine().own().llama_cpp.override_tensor {
        line.set("override_tensor", places.as_str())?;
        line.covers(&["engine.override_tensor"]);
    }
    if tp > 1 {
        line.set("split_mode", "tensor")?;
    }
    if tp.max(pp) > 1 {
        line.set("tensor_split", vec!["1"; tp.max(pp) as usize].join(","))?;
    }
    if d.kv.name.starts_with('q') {
        line.set("cache_k", d.kv.name)?;
        line.set("cache_v", d.kv.name)?;
    }
    line.covers(&["engine.max_num_seqs", "engine.max_model_len"]);
    if d.engine.enable_chunked_prefill == Some(true) {
        line.covers(&["engine.enable_chunked_prefill"]);
    }
    line.rest(d.requested_engine())?;
    Ok(line.words())
}
