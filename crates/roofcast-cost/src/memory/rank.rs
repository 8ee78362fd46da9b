//! Division of one rank's memory among weights, cache and what runs beside them.

use roofcast_facts::units::Bytes;
use serde::Serialize;

/// Division of one rank's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rank {
    /// Bytes that the engine may use.
    pub budget_bytes: Bytes,
    /// Bytes of the rank's weights.
    pub weight_bytes: Bytes,
    /// Bytes of the buffers of LoRA adapters; `None` if none are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_bytes: Option<Bytes>,
    /// Bytes of activations at their peak.
    pub activation_bytes: Bytes,
    /// Bytes of runtime and communication buffers.
    pub runtime_bytes: Bytes,
    /// Bytes of recurrent states in memory of their own: SGLang's pool, and llama.cpp's slots; 0 for other engines,
    /// which page states with the KV cache.
    pub state_bytes: Bytes,
    /// Bytes of the rank's weights and cache in the host's memory; `None` if all are on the accelerator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<Bytes>,
    /// Bytes that no other process occupies when the engine starts.
    pub free_bytes: Bytes,
    /// Bytes that remain for KV.
    pub kv_bytes: Bytes,
    /// Bytes that are missing if weights and reserves alone do not fit, or if the engine requests more than is free.
    pub(crate) short_by_bytes: Bytes,
}

impl Rank {
    /// Bytes in addition to weights and KV: adapters, activations and runtime.
    pub(crate) fn beside_weights(&self) -> Bytes {
        self.adapter_bytes.unwrap_or_default() + self.activation_bytes + self.runtime_bytes
    }

    /// Bytes that the engine requests beyond the free memory.
    pub(crate) fn beyond_free(&self) -> Bytes {
        self.budget_bytes.saturating_sub(self.free_bytes)
    }
}
