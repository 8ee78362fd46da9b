//! The command of SGLang.
//!
//! Sources: `catalog/engines/sglang.toml` (0.5.23); `server_args.py` of SGLang 0.5.23.

use super::{ReplicaRole, Words, formats, on, share};
use crate::plan::exchange;
use roofcast_ask::command::{CommandLine, whole};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::MAX_PREFILL_TOKENS;
use roofcast_ask::spec::{EngineKind, QueuePolicy};
use roofcast_cost::memory;

/// Words of SGLang's command.
pub(super) fn sglang(d: &Deployment, model: &str, role: ReplicaRole) -> Words {
    on(d, "SGLang", EngineKind::Sglang)?;
    let p = d.parallelism;
    let words = ["python", "-m", "sglang.launch_server", "--model-path", model];
    let mut line = CommandLine::of(EngineKind::Sglang, &words)?;
    formats(&mut line, d, None)?;
    // With data-parallel attention SGLang's tp is the number of all ranks.
    line.set("tensor_parallel", whole(p.stage_ranks()))?;
    line.beyond("parallelism.pp", p.pp, 1)?;
    line.beyond("engine.decode_context_parallel_size", d.sequence_ranks, 1)?;
    if p.attention_dp > 1 {
        line.set("data_parallel", whole(p.attention_dp))?;
        line.set("dp_attention", true)?;
    }
    line.beyond("parallelism.ep", p.ep, 1)?;
    exchange::sglang(&mut line, d)?;
    // SGLang's fraction covers only weights and KV cache; vLLM's also covers activations.
    let is_sglang = d.engine.kind() == EngineKind::Sglang;
    let both = |rank: &memory::Rank| (rank.weight_bytes.as_f64() + rank.kv_bytes.as_f64(), 0.0);
    let fraction = if is_sglang { d.engine.gpu_memory_utilization } else { share(d, both) };
    line.set("engine.gpu_memory_utilization", fraction)?;
    line.set("engine.max_num_seqs", whole(d.seats()))?;
    prompts(&mut line, d)?;
    if let Some(n) = d.engine.max_model_len {
        line.set("engine.max_model_len", whole(n))?;
    }
    if d.engine.enable_prefix_caching == Some(false) {
        line.set("engine.disable_radix_cache", true)?;
    }
    // A policy of priorities ranks smaller values first.
    if d.engine.policy == QueuePolicy::Priority {
        line.set("engine.enable_priority_scheduling", true)?;
        let first = d.engine.sglang().is_none_or(|is_sglang| is_sglang.schedule_low_priority_values_first);
        line.set("engine.schedule_low_priority_values_first", first)?;
    }
    if let Some(blocks) = d.engine.num_gpu_blocks {
        line.set("pool_tokens", whole(blocks * d.engine.requested.block_size.unwrap_or(1)))?;
    }
    line.covers(&["engine.policy", "engine.enable_prefix_caching", "engine.num_gpu_blocks"]);
    line.rest(d.requested_engine())?;
    match role {
        ReplicaRole::Replica | ReplicaRole::Beside => {}
        ReplicaRole::Prefill => line.word("--disaggregation-mode", "prefill"),
        ReplicaRole::Decode => line.word("--disaggregation-mode", "decode"),
    }
    Ok(line.words())
}

/// Sets the budgets of a step with prompts. SGLang divides its chunk among ranks; another engine's budget is a rank's.
fn prompts(line: &mut CommandLine, d: &Deployment) -> Result<(), String> {
    let split = d.engine.max_num_batched_tokens * d.parallelism.attention_dp;
    let other = Some(split).filter(|_| d.engine.enable_chunked_prefill != Some(false));
    let chunk = d.engine.sglang().map_or(other, |own| own.chunked_prefill_size);
    if chunk.is_none() && d.engine.requested.max_num_batched_tokens.is_some() {
        return Err("engine.max_num_batched_tokens cannot be set: SGLang bounds steps of whole prompts by max_prefill_tokens".into());
    }
    line.set("engine.chunked_prefill_size", chunk.map_or_else(|| (-1).into(), whole))?;
    if let Some(own) = d.engine.sglang() {
        line.beyond("engine.max_prefill_tokens", own.max_prefill_tokens, MAX_PREFILL_TOKENS)?;
    }
    line.covers(&["engine.max_num_batched_tokens", "engine.enable_chunked_prefill"]);
    Ok(())
}
