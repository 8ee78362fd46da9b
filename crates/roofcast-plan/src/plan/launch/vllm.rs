//! The command of vLLM.
//!
//! Sources: `catalog/engines/vllm.toml` (0.32); `vllm/config/compilation.py`, `vllm/config/speculative.py` and
//! `vllm/v1/kv_offload` of vLLM 0.32.

use super::{ReplicaRole, Words, formats, on};
use crate::plan::exchange;
use roofcast_ask::command::{CommandLine, whole};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::OffloadSettings;
use roofcast_ask::spec::{DraftMethod, EngineKind, EvictionPolicy};
use roofcast_cost::memory::Memory;
use serde_json::json;

/// Words of vLLM's command.
pub(in crate::plan) fn vllm(d: &Deployment, model: &str, role: ReplicaRole) -> Words {
    on(d, "vLLM", EngineKind::Vllm)?;
    let p = d.parallelism;
    let mut line = CommandLine::of(EngineKind::Vllm, &["vllm", "serve", model])?;
    formats(&mut line, d, Some("nvfp4"))?;
    line.set("parallelism.tp", whole(p.tp))?;
    line.beyond("parallelism.pp", p.pp, 1)?;
    line.beyond("engine.decode_context_parallel_size", d.sequence_ranks, 1)?;
    line.beyond("data_parallel", p.attention_dp, 1)?;
    match p.ep {
        1 => {}
        ep if ep == p.stage_ranks() => line.set("expert_parallel", true)?,
        ep => {
            return Err(format!(
                "vLLM spreads experts over all {} ranks or none, not over {ep}",
                p.stage_ranks()
            ));
        }
    }
    // A utilization of 1 stands for llama.cpp, which uses all of the memory; vLLM cannot.
    if d.engine.gpu_memory_utilization < 1.0 {
        line.set("engine.gpu_memory_utilization", d.engine.gpu_memory_utilization)?;
    }
    // vLLM applies both bounds to each data-parallel rank.
    line.set("engine.max_num_seqs", whole(d.seats().div_ceil(p.attention_dp)))?;
    line.set("engine.max_num_batched_tokens", whole(d.engine.max_num_batched_tokens))?;
    if let Some(n) = d.engine.max_model_len.or_else(|| longest_that_starts(d)) {
        line.set("engine.max_model_len", whole(n))?;
    }
    exchange::vllm(&mut line, d)?;
    connector(&mut line, d.engine.offload(), role)?;
    drafts(&mut line, d)?;
    // The key's 0 disables graphs of steps with prompts, the flag's 0 all graphs.
    if d.engine.requested.max_cudagraph_capture_size == Some(0) {
        line.set("cudagraph_mode", "FULL_DECODE_ONLY")?;
        line.covers(&["engine.max_cudagraph_capture_size"]);
    }
    line.rest(d.requested_engine())?;
    Ok(line.words())
}

/// The longest request with which vLLM starts; `None` if it starts with the model's own maximum length.
fn longest_that_starts(d: &Deployment) -> Option<u64> {
    let longest = d.longest()?;
    Memory::of(d).start(longest).refusal.map(|refusal| refusal.longest).filter(|tokens| *tokens > 0)
}

/// Sets the connector of KV caches: between the pools of a fleet, or to the host with settings that have no flags.
fn connector(
    line: &mut CommandLine,
    tier: Option<&OffloadSettings>,
    role: ReplicaRole,
) -> Result<(), String> {
    let needs_connector = |tier: &&OffloadSettings| {
        let stored_late = tier.store_threshold > 0;
        tier.eviction_policy != EvictionPolicy::default() || stored_late || !tier.offload_prompt_only
    };
    let settings = [
        "engine.kv_offloading_size",
        "engine.kv_offloading_backend",
        "engine.kv_offloading_eviction_policy",
        "engine.kv_offloading_store_threshold",
        "engine.kv_offloading_prompt_only",
    ];
    match (role.hands_over(), tier) {
        (true, Some(_)) => {
            Err("pools that hand over KV caches and keep them on the host need two connectors".into())
        }
        (true, None) => line.set("kv_transfer", r#"{"kv_connector":"NixlConnector","kv_role":"kv_both"}"#),
        (false, Some(tier)) if needs_connector(&tier) => {
            let policy = match tier.eviction_policy {
                EvictionPolicy::Lru => "lru",
                EvictionPolicy::Arc => "arc",
            };
            let config = json!({
                "kv_connector": "OffloadingConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {
                    "cpu_bytes_to_use": (tier.gib * f64::from(1 << 30)).round() as u64,
                    "eviction_policy": policy,
                    "store_threshold": tier.store_threshold,
                    "offload_prompt_only": tier.offload_prompt_only,
                },
            });
            line.set("kv_transfer", config.to_string())?;
            line.covers(&settings);
            Ok(())
        }
        (false, Some(_)) => {
            line.covers(&settings[2..]);
            Ok(())
        }
        (false, None) => {
            line.covers(&settings);
            Ok(())
        }
    }
}

/// Sets the drafts: of a model, or of n-grams in earlier text.
fn drafts(line: &mut CommandLine, d: &Deployment) -> Result<(), String> {
    let Some(spec) = &d.requested_engine().speculative else { return Ok(()) };
    let tokens = spec.num_speculative_tokens;
    let config = match (&spec.draft_model, spec.method, spec.draft_cost) {
        (Some(model), None, _) => json!({"model": model, "num_speculative_tokens": tokens}),
        (Some(model), Some(method), _) => {
            json!({"method": method, "model": model, "num_speculative_tokens": tokens})
        }
        (None, Some(DraftMethod::Mtp), None) => json!({"method": "mtp", "num_speculative_tokens": tokens}),
        (None, Some(DraftMethod::Ngram), None) => {
            json!({"method": "ngram", "num_speculative_tokens": tokens})
        }
        _ => {
            return Err("engine.speculative.draft_cost cannot be set: it names no method of drafting, as draft_model and \
                        method do"
                .into());
        }
    };
    line.set("speculative_config", config.to_string())?;
    let keys = ["num_speculative_tokens", "draft_model", "method"];
    line.covers(&keys.map(|key| format!("engine.speculative.{key}")).each_ref().map(String::as_str));
    Ok(())
}
