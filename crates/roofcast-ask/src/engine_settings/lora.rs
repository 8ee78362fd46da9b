//! Settings of LoRA adapters, by vLLM's names.
//!
//! Knows: the defaults of the keys, their bounds, and that all require `enable_lora`.
//! Source: `vllm/config/lora.py` (vLLM 0.32).

use crate::spec::EngineSpec;
use roofcast_facts::error::{Error, Result};

/// Most adapters of a step or on the host.
const MOST: u64 = 100_000;
/// Ranks for which vLLM has buffers.
const RANKS: [u64; 9] = [1, 8, 16, 32, 64, 128, 256, 320, 512];
const RANK: u64 = 16;

/// Adapters that an engine holds, and the rank with which it computes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoraSettings {
    /// Most adapters whose requests run at one time; each has a buffer on the device.
    pub max_loras: u64,
    /// Rank of the buffers and kernels, whatever the rank of an adapter.
    pub max_lora_rank: u64,
    /// Most adapters that the host keeps, those on the device included.
    pub max_cpu_loras: u64,
    /// True if both sides of an adapter's matrices are divided over tensor-parallel ranks.
    pub fully_sharded: bool,
}

impl LoraSettings {
    /// Takes the settings from `spec`; `None` without `enable_lora`.
    pub(super) fn of(spec: &EngineSpec) -> Result<Option<LoraSettings>> {
        let vllm = &spec.vllm;
        let keys = [
            ("max_loras", vllm.max_loras.is_some()),
            ("max_lora_rank", vllm.max_lora_rank.is_some()),
            ("max_cpu_loras", vllm.max_cpu_loras.is_some()),
            ("fully_sharded_loras", vllm.fully_sharded_loras.is_some()),
        ];
        if vllm.enable_lora != Some(true) {
            return match keys.into_iter().find(|(_, set)| *set) {
                Some((field, _)) => Err(Error::field("engine", field, "set", "with enable_lora")),
                None => Ok(None),
            };
        }
        let max_loras = vllm.max_loras.unwrap_or(1);
        if !(1..=MOST).contains(&max_loras) {
            return Err(Error::field("engine", "max_loras", max_loras, format!("1 to {MOST} adapters")));
        }
        let max_lora_rank = vllm.max_lora_rank.unwrap_or(RANK);
        if !RANKS.contains(&max_lora_rank) {
            let accepted = RANKS.map(|rank| rank.to_string()).join(", ");
            return Err(Error::field("engine", "max_lora_rank", max_lora_rank, accepted));
        }
        let max_cpu_loras = vllm.max_cpu_loras.unwrap_or(max_loras);
        if !(max_loras..=MOST).contains(&max_cpu_loras) {
            let accepted = format!("max_loras ({max_loras}) to {MOST}");
            return Err(Error::field("engine", "max_cpu_loras", max_cpu_loras, accepted));
        }
        let fully_sharded = vllm.fully_sharded_loras.unwrap_or(false);
        Ok(Some(LoraSettings { max_loras, max_lora_rank, max_cpu_loras, fully_sharded }))
    }
}
