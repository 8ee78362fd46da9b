//! Values of `[engine]` that choose how requests are scheduled and how a step is priced.
//!
//! Knows: the names of these values. Knows nothing about which scheduler accepts a value, which
//! [`crate::engine_settings`] defines.

use serde::Deserialize;

/// Scheduling policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// One batch at a time, until its longest output ends (FasterTransformer).
    Static,
    /// Iteration-level scheduling, with memory reserved at admission.
    Orca,
    /// vLLM v0: prompts before decodes.
    VllmV0,
    /// vLLM v1: continuous batching with a token budget.
    #[default]
    Vllm,
    /// Sarathi: chunked prefill within a small token budget.
    Sarathi,
    /// SplitFuse: steps of constant size.
    Splitfuse,
    /// LightLLM: KV cache by the token, admission by the future peak of the cache.
    Lightllm,
    /// SGLang: prompts before decodes, in chunks, with admission by an estimate.
    Sglang,
    /// llama.cpp: slots, each with an equal part of the context.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// TensorRT-LLM: in-flight batching in which no request is evicted.
    TensorrtLlm,
    /// TensorRT-LLM: in-flight batching in which the last request is paused when blocks run out.
    TensorrtLlmMaxUtilization,
}

roofcast_facts::named! { SchedulerKind {
    Vllm: "vllm",
    VllmV0: "vllm-v0",
    Sglang: "sglang",
    TensorrtLlm: "tensorrt-llm",
    TensorrtLlmMaxUtilization: "tensorrt-llm-max-utilization",
    LlamaCpp: "llama.cpp",
    Lightllm: "lightllm",
    Sarathi: "sarathi",
    Splitfuse: "splitfuse",
    Orca: "orca",
    Static: "static",
} }

/// Orders of the queue of waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QueuePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Requests with smaller priority values first.
    Priority,
    /// Requests with the shortest output first, by predicted length.
    Sjf,
}

/// Orders in which requests are retracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetractionPolicy {
    /// Requests with the fewest generated tokens first.
    #[default]
    Length,
    /// Requests with the lowest priority first; among equal ones, the fewest generated tokens first.
    Priority,
}

/// Strategies by which SGLang's radix cache keeps recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MambaStrategy {
    /// The default of the engine's version for the model.
    #[default]
    Auto,
    /// No additional state: a step waits for the results of the previous one.
    NoBuffer,
    /// Two additional states per request, so that a step can be scheduled while the previous one runs.
    ExtraBuffer,
    /// One additional state per request; the second is allocated only when it is needed.
    ExtraBufferLazy,
}

/// Dtypes of recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateDtype {
    /// Dtype of the model.
    #[default]
    Auto,
    /// 32-bit floating point.
    Float32,
    /// 16-bit brain floating point.
    Bfloat16,
    /// 16-bit floating point (IEEE half precision).
    Float16,
}

roofcast_facts::named! { StateDtype {
    Auto: "auto",
    Float32: "float32",
    Bfloat16: "bfloat16",
    Float16: "float16",
} }

impl StateDtype {
    /// Bytes per element; `None` for the model's dtype.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            StateDtype::Auto => None,
            StateDtype::Float32 => Some(4),
            StateDtype::Bfloat16 | StateDtype::Float16 => Some(2),
        }
    }
}

/// Policies that decide when SGLang's HiCache copies KV to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WritePolicy {
    /// KV is copied at its first insert into the radix tree.
    #[default]
    WriteThrough,
    /// KV is copied at its second insert into the radix tree.
    WriteThroughSelective,
    /// KV is copied when it leaves the device.
    WriteBack,
}

/// vLLM's connectors that keep KV cache in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvOffloadingBackend {
    /// vLLM's own offloading connector.
    #[default]
    Native,
    /// The connector of LMCache.
    Lmcache,
}

/// What tensor-parallel ranks divide of an encoder, vLLM's `mm_encoder_tp_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EncoderTpMode {
    /// The weights of every layer.
    #[default]
    Weights,
    /// The images of a step, each whole on one rank.
    Data,
}

/// Orders in which chunks are evicted from the host, vLLM's `eviction_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionPolicy {
    /// The least recently used chunk first.
    #[default]
    Lru,
    /// By recency or frequency, whichever has had fewer misses (adaptive replacement cache).
    Arc,
}

/// SGLang's orders of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Requests with the longest cached prefix first.
    Lpm,
}

/// Handling of a preempted request's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptionMode {
    /// The cache is dropped and recomputed.
    #[default]
    Recompute,
    /// The cache is moved to host memory and back.
    Swap,
}

/// Memory reserved for a request at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// Memory for the longest sequence that the engine serves.
    #[default]
    Max,
    /// Memory for the prompt, and for the output length rounded up to a power of two.
    Pow2,
    /// Memory for prompt and output, as if the output length were known.
    Oracle,
}

/// Models of the cost of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CostKind {
    /// The limit of the hardware.
    Limit,
    /// The forecast: the expected time, with calibration.
    #[default]
    Forecast,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_have_the_names_of_the_spec() {
        for kind in SchedulerKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
