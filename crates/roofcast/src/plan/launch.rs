//! How to start what was planned.
//!
//! Knows: by which flags engines take a replica's parallelism, formats and settings, and when there is no command: where
//! weights are in a format that only a quantized checkpoint brings, or no engine runs on the chip. Knows nothing about
//! whether the deployment is any good.

use crate::deployment::Deployment;
use serde::Serialize;

/// What a replica does in its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Prompts and decodes.
    Replica,
    /// Prompts for others.
    Prefill,
    /// Decodes for others.
    Decode,
}

/// How to start one replica with one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// Which replicas.
    pub role: Role,
    /// How many of them.
    pub replicas: u64,
    /// As in `vllm`.
    pub engine: &'static str,
    /// The command; none where there is none that starts this deployment.
    pub command: Option<String>,
    /// What a reader should know: why there is no command, or what the command takes for granted.
    pub note: Option<String>,
}

/// vLLM's connector for caches that travel between replicas (`docs/features/nixl_connector_usage.md`).
const NIXL: &str = r#"--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'"#;

/// Commands for one replica of `deployment`, of which `replicas` are in `role`; that of its own engine first.
pub fn launches(deployment: &Deployment, role: Role, replicas: u64) -> Vec<Launch> {
    let all = [vllm(deployment), sglang(deployment), tensorrt_llm(deployment)];
    let mut launches: Vec<Launch> = all
        .into_iter()
        .map(|(engine, command)| match command.and_then(|command| apart(engine, command, role)) {
            Ok(command) => Launch { role, replicas, engine, command: Some(command), note: None },
            Err(note) => Launch { role, replicas, engine, command: None, note: Some(note) },
        })
        .collect();
    launches.sort_by_key(|launch| launch.engine != deployment.options.engine.name());
    launches
}

/// `command` with what sends caches to others or takes them.
fn apart(engine: &str, command: String, role: Role) -> Result<String, String> {
    match (engine, role) {
        (_, Role::Replica) => Ok(command),
        ("vllm", _) => Ok(format!("{command} {NIXL}")),
        ("sglang", Role::Prefill) => Ok(format!("{command} --disaggregation-mode prefill")),
        ("sglang", Role::Decode) => Ok(format!("{command} --disaggregation-mode decode")),
        _ => Err("none: it takes its role from a file, not from flags".into()),
    }
}

type Command = (&'static str, Result<String, String>);

/// How weights get into their format.
enum Weights {
    /// The checkpoint has it.
    Own,
    /// The engine converts an unquantized checkpoint.
    Converted,
}

/// Whether the checkpoint brings the format, or the engine makes 8-bit floats of it.
fn weights(d: &Deployment) -> Result<Weights, String> {
    match d.weights.as_str() {
        "bf16" | "fp16" if d.model.quantization.is_none() => Ok(Weights::Own),
        "fp8" if d.model.quantization.is_none() => Ok(Weights::Converted),
        _ if d.options.precision.weights.is_none() => Ok(Weights::Own),
        format => Err(format!(
            "none: {format} weights need a checkpoint in that format; name it as the model, without `weights`"
        )),
    }
}

fn on(d: &Deployment, engine: &str, vendors: &[&str]) -> Result<(), String> {
    let chip = &d.accelerator;
    if vendors.contains(&chip.vendor.as_str()) {
        return Ok(());
    }
    Err(format!("none: {engine} does not run on {}", chip.id))
}

fn dtype(d: &Deployment) -> &'static str {
    if d.weights == "fp16" { "float16" } else { "bfloat16" }
}

fn vllm(d: &Deployment) -> Command {
    let command = || -> Result<String, String> {
        on(d, "vLLM", &["nvidia", "amd", "intel", "google", "aws"])?;
        let p = d.parallelism;
        let mut words = vec![format!("vllm serve {}", d.model.name)];
        if d.accelerator.vendor == "google" && d.options.precision.weights.is_some() && d.weights != "bf16" {
            return Err(format!(
                "none: vLLM on TPU takes {} weights from a checkpoint in that format; name it as the model",
                d.weights
            ));
        }
        match weights(d)? {
            Weights::Converted => words.push("--quantization fp8".into()),
            Weights::Own if d.model.quantization.is_none() => words.push(format!("--dtype {}", dtype(d))),
            Weights::Own => {}
        }
        words.push(format!("--tensor-parallel-size {}", p.tp));
        if p.pp > 1 {
            words.push(format!("--pipeline-parallel-size {}", p.pp));
        }
        if p.attention_dp > 1 {
            words.push(format!("--data-parallel-size {}", p.attention_dp));
        }
        match p.ep {
            1 if p.attention_dp > 1 || !d.model.is_moe() => {}
            1 => {}
            ep if ep == p.stage_ranks() => words.push("--enable-expert-parallel".into()),
            ep => {
                return Err(format!(
                    "none: vLLM spreads experts over all {} ranks or slices all, not over {ep}",
                    p.stage_ranks()
                ));
            }
        }
        words.extend(kv_flag(d)?.map(|kv| format!("--kv-cache-dtype {kv}")));
        words.push(format!("--gpu-memory-utilization {}", d.engine.gpu_memory_utilization));
        words.push(format!("--max-num-seqs {}", d.engine.max_num_seqs));
        words.push(format!("--max-num-batched-tokens {}", d.engine.max_num_batched_tokens));
        words.extend(d.options.engine.max_model_len.map(|n| format!("--max-model-len {n}")));
        Ok(words.join(" "))
    };
    ("vllm", command())
}

/// The cache's format as vLLM and SGLang name it; none where it is the engine's own choice.
fn kv_flag(d: &Deployment) -> Result<Option<&'static str>, String> {
    match d.kv.name {
        "fp8" if d.options.precision.kv.as_deref() == Some("fp8") => Ok(Some("fp8_e4m3")),
        "int8" | "int4" | "q8_0" | "q4_0" => Err(format!("none: it keeps no {} KV cache", d.kv.name)),
        _ => Ok(None),
    }
}

fn sglang(d: &Deployment) -> Command {
    let command = || -> Result<String, String> {
        on(d, "SGLang", &["nvidia", "amd"])?;
        let p = d.parallelism;
        let mut words = vec![format!("python -m sglang.launch_server --model-path {}", d.model.name)];
        match weights(d)? {
            Weights::Converted => words.push("--quantization fp8".into()),
            Weights::Own if d.model.quantization.is_none() => words.push(format!("--dtype {}", dtype(d))),
            Weights::Own => {}
        }
        // With data-parallel attention SGLang's tp counts all ranks.
        words.push(format!("--tp-size {}", p.stage_ranks()));
        if p.pp > 1 {
            words.push(format!("--pp-size {}", p.pp));
        }
        if p.attention_dp > 1 {
            words.push(format!("--dp-size {} --enable-dp-attention", p.attention_dp));
        }
        if p.ep > 1 {
            words.push(format!("--ep-size {}", p.ep));
        }
        words.extend(kv_flag(d)?.map(|kv| format!("--kv-cache-dtype {kv}")));
        words.push(format!("--mem-fraction-static {}", d.engine.gpu_memory_utilization));
        words.push(format!("--max-running-requests {}", d.engine.max_num_seqs));
        words.push(format!("--chunked-prefill-size {}", d.engine.max_num_batched_tokens));
        words.extend(d.options.engine.max_model_len.map(|n| format!("--context-length {n}")));
        Ok(words.join(" "))
    };
    ("sglang", command())
}

fn tensorrt_llm(d: &Deployment) -> Command {
    let command = || -> Result<String, String> {
        on(d, "TensorRT-LLM", &["nvidia"])?;
        let p = d.parallelism;
        if matches!(weights(d)?, Weights::Converted) {
            return Err(
                "none: TensorRT-LLM takes fp8 weights from a checkpoint in that format; name it as the model"
                    .into(),
            );
        }
        if p.attention_dp > 1 && p.tp > 1 {
            return Err("none: its data-parallel attention is over all ranks, with tp 1".into());
        }
        let mut words = vec![format!("trtllm-serve {} --backend pytorch", d.model.name)];
        words.push(format!("--tp_size {}", p.stage_ranks()));
        if p.pp > 1 {
            words.push(format!("--pp_size {}", p.pp));
        }
        if p.ep > 1 {
            words.push(format!("--ep_size {}", p.ep));
        }
        words.push(format!("--kv_cache_free_gpu_memory_fraction {}", d.engine.gpu_memory_utilization));
        words.push(format!("--max_batch_size {}", d.engine.max_num_seqs));
        words.push(format!("--max_num_tokens {}", d.engine.max_num_batched_tokens));
        Ok(words.join(" "))
    };
    ("tensorrt-llm", command())
}
