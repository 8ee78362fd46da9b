//! Values of `[engine]` that choose how requests are scheduled and how a step is priced.
//!
//! Knows their spelling. [`crate::engine_settings`] defines the schedulers that accept each.

use serde::Deserialize;

/// Scheduling policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// A batch at a time, to its longest output (FasterTransformer).
    Static,
    /// Iteration-level scheduling, with space reserved up front.
    Orca,
    /// vLLM v0: prompts first.
    VllmV0,
    /// vLLM v1: continuous batching with a token budget.
    #[default]
    Vllm,
    /// Chunked prefill within a small budget.
    Sarathi,
    /// Steps of constant size.
    Splitfuse,
    /// Cache by the token, admission by the future peak of the cache.
    Lightllm,
    /// Prompts first in chunks, admission by an estimate.
    Sglang,
    /// Slots with an equal part of the context each.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// In-flight batching, no request evicted.
    TensorrtLlm,
    /// In-flight batching, with the last request paused when blocks run out.
    TensorrtLlmMaxUtilization,
}

impl SchedulerKind {
    /// All scheduling policies.
    pub const ALL: [SchedulerKind; 11] = [
        SchedulerKind::Vllm,
        SchedulerKind::VllmV0,
        SchedulerKind::Sglang,
        SchedulerKind::TensorrtLlm,
        SchedulerKind::TensorrtLlmMaxUtilization,
        SchedulerKind::LlamaCpp,
        SchedulerKind::Lightllm,
        SchedulerKind::Sarathi,
        SchedulerKind::Splitfuse,
        SchedulerKind::Orca,
        SchedulerKind::Static,
    ];

    /// Name of the value in a spec.
    pub fn name(self) -> &'static str {
        match self {
            SchedulerKind::Vllm => "vllm",
            SchedulerKind::VllmV0 => "vllm-v0",
            SchedulerKind::Sglang => "sglang",
            SchedulerKind::TensorrtLlm => "tensorrt-llm",
            SchedulerKind::TensorrtLlmMaxUtilization => "tensorrt-llm-max-utilization",
            SchedulerKind::LlamaCpp => "llama.cpp",
            SchedulerKind::Lightllm => "lightllm",
            SchedulerKind::Sarathi => "sarathi",
            SchedulerKind::Splitfuse => "splitfuse",
            SchedulerKind::Orca => "orca",
            SchedulerKind::Static => "static",
        }
    }
}

/// Orders of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Smaller priority first.
    Priority,
    /// Shortest output first, as far as the length is known.
    Sjf,
}

/// Orders of retraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetractionPolicy {
    /// Requests with the fewest generated tokens first.
    #[default]
    Length,
    /// Requests of the lowest priority first, among equal ones the fewest generated tokens.
    Priority,
}

/// Ways in which SGLang's radix cache keeps recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MambaStrategy {
    /// The version's default for the model.
    #[default]
    Auto,
    /// A step waits for the results of the previous one.
    NoBuffer,
    /// Two additional states per request, so that schedules overlap.
    ExtraBuffer,
    /// One additional state, the other one allocated only when it is needed.
    ExtraBufferLazy,
}

/// Dtypes of recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateDtype {
    /// The model's dtype.
    #[default]
    Auto,
    /// 32 bits.
    Float32,
    /// 16 bits.
    Bfloat16,
    /// 16 bits.
    Float16,
}

impl StateDtype {
    /// Bytes of an element; `None` for the model's dtype.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            StateDtype::Auto => None,
            StateDtype::Float32 => Some(4),
            StateDtype::Bfloat16 | StateDtype::Float16 => Some(2),
        }
    }

    /// Name of the value in a spec.
    pub(crate) fn name(self) -> &'static str {
        match self {
            StateDtype::Auto => "auto",
            StateDtype::Float32 => "float32",
            StateDtype::Bfloat16 => "bfloat16",
            StateDtype::Float16 => "float16",
        }
    }
}

/// Policies by which SGLang's HiCache copies KV to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WritePolicy {
    /// At its first insert into the radix tree.
    #[default]
    WriteThrough,
    /// At its second insert.
    WriteThroughSelective,
    /// When it leaves the device.
    WriteBack,
}

/// vLLM's connectors that keep KV in the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvOffloadingBackend {
    /// Its offloading connector.
    #[default]
    Native,
    /// LMCache's.
    Lmcache,
}

/// Order in which chunks leave the host, vLLM's `eviction_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionPolicy {
    /// The least recently used first.
    #[default]
    Lru,
    /// By recency or frequency, whichever misses less.
    Arc,
}

/// SGLang's orders of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Longest prefix in the cache first.
    Lpm,
}

/// Handling of a preempted request's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptionMode {
    /// Dropped and computed again.
    #[default]
    Recompute,
    /// Moved to the host's memory and back.
    Swap,
}

/// Space reserved for a request at its admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// The longest sequence that is served.
    #[default]
    Max,
    /// Prompt, and output rounded up to a power of two.
    Pow2,
    /// Prompt and output, as if its length were known.
    Oracle,
}

/// Cost models of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostKind {
    /// The limits of the hardware.
    Limit,
    /// The expected time, by the calibration.
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
