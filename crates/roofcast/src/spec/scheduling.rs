//! Values of `[engine]` that choose how requests are scheduled and how a step is priced.
//!
//! Knows their spelling. [`crate::engine::settings`] defines which scheduler accepts which of them.

use serde::Deserialize;

/// Scheduling policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// A batch at a time, to its longest output (FasterTransformer).
    Static,
    /// Iteration-level, space reserved up front.
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
    /// Cache by the token, admission by the peak to come.
    Lightllm,
    /// Prompts first in chunks, admission by an estimate.
    Sglang,
    /// Slots with a share of the context each.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// In-flight batching, no request evicted.
    TensorrtLlm,
    /// In-flight batching, the last paused when blocks run out.
    TensorrtLlmMaxUtilization,
}

impl SchedulerKind {
    /// All.
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
    /// Shortest output first, as far as it is known.
    Sjf,
}

/// Which requests are retracted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetractionPolicy {
    /// Those with the fewest tokens generated.
    #[default]
    Length,
    /// Those of the lowest priority, then those with the fewest.
    Priority,
}

/// How SGLang's radix cache keeps recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MambaStrategy {
    /// As its version does for the model.
    #[default]
    Auto,
    /// A step waits for the results of the one before it.
    NoBuffer,
    /// Two states more a request, so that schedules overlap.
    ExtraBuffer,
    /// One of the two only when it is needed.
    ExtraBufferLazy,
}

/// The dtype of recurrent states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateDtype {
    /// The model's.
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
    /// Bytes of an element, where they are not the model's.
    pub fn bytes(self) -> Option<u64> {
        match self {
            StateDtype::Auto => None,
            StateDtype::Float32 => Some(4),
            StateDtype::Bfloat16 | StateDtype::Float16 => Some(2),
        }
    }

    /// The name of its key's value.
    pub fn name(self) -> &'static str {
        match self {
            StateDtype::Auto => "auto",
            StateDtype::Float32 => "float32",
            StateDtype::Bfloat16 => "bfloat16",
            StateDtype::Float16 => "float16",
        }
    }
}

/// When SGLang's HiCache copies KV to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WritePolicy {
    /// With its first insert into the radix tree.
    #[default]
    WriteThrough,
    /// With its second insert.
    WriteThroughSelective,
    /// When it leaves the device.
    WriteBack,
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
