//! The spec: the user's TOML or flags, parsed but not resolved.
//!
//! Knows: names and types of keys; unknown keys are refused. Knows nothing about their meaning, which
//! [`crate::deployment`] and [`crate::plan`] resolve.

mod fleet;
mod kernels;
pub mod keys;
pub mod number;
pub mod quoted;
mod release;
mod scheduling;
mod search;
pub mod settings;
mod slo;
mod speculative;
pub(crate) mod written;

pub use fleet::{
    AutoscaleSpec, FleetSpec, LinkKind, MOST_WEIGHT, PoolSpec, Routing, RoutingSpec, ScheduleSpec,
};
pub use kernels::{AttentionBackend, Frontend, KvLayout};
pub use release::{EngineKind, Release};
pub use scheduling::{
    CostKind, EvictionPolicy, KvOffloadingBackend, MambaStrategy, PreemptionMode, QueuePolicy,
    ReservationKind, RetractionPolicy, SchedulePolicy, SchedulerKind, StateDtype, WritePolicy,
};
pub use search::{Objective, SearchSpec};
pub use slo::{Metric, Percentile, Slo, SloBound, key as slo_key};
pub use speculative::SpeculativeSpec;

use crate::error::{Error, Result, told};
use crate::precision::Dtype;
use crate::workload::Workload;
pub(crate) use crate::workload::prediction::Prediction;
use serde::Deserialize;
use std::path::PathBuf;

/// A whole spec file. Every section is optional; a verb reports the sections that it needs and that are missing.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The served model.
    pub model: ModelSpec,
    /// The accelerators that serve the model.
    pub hardware: HardwareSpec,
    /// Number formats of weights, activations and KV cache.
    pub precision: PrecisionSpec,
    /// Parallelism of the model.
    pub parallelism: ParallelismSpec,
    /// The engine's settings, by vLLM's names.
    pub engine: EngineSpec,
    /// The traffic.
    pub workload: Option<Workload>,
    /// Replicas, and the router in front of them.
    pub fleet: FleetSpec,
    /// Latency bounds of the traffic.
    pub slo: Slo,
    /// The choices that a plan searches; `None` without `[search]`.
    pub search: Option<SearchSpec>,
}

/// `[model]`: a catalog entry or a file.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSpec {
    /// Catalog id of the model, or a path as on the command line.
    pub name: Option<String>,
    /// Path of a `config.json`, or of the folder that contains one.
    pub path: Option<PathBuf>,
}

/// `[hardware]`: the accelerators.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardwareSpec {
    /// Catalog id of the accelerator.
    pub accelerator: Option<String>,
    /// Number of accelerators in total.
    pub(crate) count: Option<u64>,
    /// Power limit of each accelerator in watts, as `nvidia-smi -pl` sets it. It changes energy only; rates are the
    /// datasheet's.
    pub(crate) power_limit_w: Option<f64>,
    /// GiB of each accelerator's memory that other processes use when the engine starts, as `nvidia-smi` prints it; 0
    /// if absent.
    pub(crate) memory_used_gib: Option<f64>,
    /// True for nominal memory, perfect sharding and no reserved memory.
    pub(crate) ideal: bool,
    /// Rules by which bytes and rates are counted.
    pub convention: Convention,
}

/// `[precision]`: number formats.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrecisionSpec {
    /// Format of the weights; the checkpoint's own if absent.
    pub weights: Option<String>,
    /// Dtype of the arithmetic on quantized weights, for formats that are otherwise weight-only.
    pub activations: Option<Dtype>,
    /// Format of the KV cache; `auto` is the checkpoint's format, else the format of activations.
    pub kv: Option<String>,
}

/// Rules by which bytes and rates are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    /// Exact bytes, and bandwidth in decimal GB/s.
    #[default]
    Default,
    /// Rules of seed 003: nominal bits for every weight including lm_head, without input embedding and norms; bandwidth
    /// in GiB/s.
    #[serde(rename = "seed-003")]
    Seed003,
}

/// `[parallelism]`: ranks of the model.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelismSpec {
    /// Tensor-parallel degree.
    pub(crate) tp: Option<u64>,
    /// Number of pipeline stages.
    pub(crate) pp: Option<u64>,
    /// Number of expert-parallel ranks.
    pub(crate) ep: Option<u64>,
    /// Number of data-parallel ranks of attention.
    pub(crate) attention_dp: Option<u64>,
    /// Number of replicas, each a whole copy of the model.
    pub replicas: Option<u64>,
}

/// `[engine]`: settings by vLLM's names; vLLM's defaults apply to absent keys.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// Engine whose calibration applies, as in `vllm`, `sglang`, `tensorrt-llm` or `llama.cpp`; `vllm` if absent.
    pub name: Option<String>,
    /// Version of the engine, as in `0.11.2`; the newest if absent.
    pub version: Option<String>,
    /// True if requests come through the engine's API server, false if a program calls the engine in process; true if
    /// absent.
    pub served: Option<bool>,
    /// Scheduling policy; if absent the one of engine `name`, or `vllm` for an engine without its own policy.
    pub scheduler: Option<SchedulerKind>,
    /// Price of a step: the limit or the forecast.
    pub cost: CostKind,
    /// Most sequences that run at one time.
    #[serde(alias = "max_running_requests")]
    pub max_num_seqs: Option<u64>,
    /// vLLM's second bound on the sequences that run at one time.
    pub max_num_active_seqs: Option<u64>,
    /// Most requests at a replica, waiting or running, before vLLM's server rejects new ones; unlimited if absent.
    pub max_num_queued_reqs: Option<u64>,
    /// Most prompt tokens of the requests without an output token before vLLM's server rejects new ones; unlimited if
    /// absent.
    pub max_num_queued_tokens: Option<u64>,
    /// Interval in steps at which vLLM's data-parallel engines prefill while requests decode; 1 if absent.
    pub prefill_schedule_interval: Option<u64>,
    /// Most tokens that one step computes (token budget).
    pub max_num_batched_tokens: Option<u64>,
    /// Tokens per KV block.
    #[serde(alias = "page_size")]
    pub block_size: Option<u64>,
    /// Number of KV blocks; as many as fit in memory if absent.
    pub num_gpu_blocks: Option<u64>,
    /// Fraction of the device memory that the engine may use.
    pub gpu_memory_utilization: Option<f64>,
    /// Bytes of KV cache on each accelerator, in place of the bytes that the utilization leaves; vLLM's
    /// `--kv-cache-memory-bytes`.
    pub kv_cache_memory_bytes: Option<u64>,
    /// Longest sequence in tokens that the engine serves.
    pub max_model_len: Option<u64>,
    /// True to split a prompt over several steps (chunked prefill).
    pub enable_chunked_prefill: Option<bool>,
    /// True to find cached blocks by their content (prefix caching).
    pub enable_prefix_caching: Option<bool>,
    /// Most tokens of one prompt in a step while other requests wait; 0 for no bound.
    pub long_prefill_token_threshold: Option<u64>,
    /// Order of the queue.
    pub policy: QueuePolicy,
    /// SGLang's order of the queue with `policy = "fcfs"`.
    pub schedule_policy: SchedulePolicy,
    /// SGLang's token budget of a step with prompts, beyond which a prompt is chunked; 0 or less keeps prompts whole.
    pub chunked_prefill_size: Option<i64>,
    /// SGLang's most prompt tokens of a step; the first prompt may exceed this if prompts are whole.
    pub max_prefill_tokens: Option<u64>,
    /// True if SGLang's running requests decode in the batches that compute prompts (mixed chunk); false if absent.
    pub enable_mixed_chunk: Option<bool>,
    /// Factor on SGLang's initial estimate of new tokens; larger values admit fewer requests; 1 if absent.
    pub schedule_conservativeness: Option<f64>,
    /// Most requests in a step with prompts; unlimited if absent.
    pub prefill_max_requests: Option<u64>,
    /// True if SGLang keeps no prefix for other requests (radix cache disabled); false if absent.
    pub disable_radix_cache: Option<bool>,
    /// Number of recurrent states in SGLang's pool; as many as fit in memory if absent.
    pub max_mamba_cache_size: Option<u64>,
    /// Bytes of SGLang's pool of recurrent states over the bytes of its KV pool; 0.9 if absent.
    pub mamba_full_memory_ratio: Option<f64>,
    /// Strategy by which SGLang's radix cache keeps recurrent states.
    pub mamba_radix_cache_strategy: Option<MambaStrategy>,
    /// True if SGLang also keeps KV cache in host memory (HiCache); false if absent.
    pub enable_hierarchical_cache: Option<bool>,
    /// Tokens of the host pool over tokens of the device pool; 2 if absent.
    pub hicache_ratio: Option<f64>,
    /// GB of the host pool of each rank, in place of `hicache_ratio`; 0 to use the ratio.
    pub hicache_size: Option<f64>,
    /// Event at which KV is copied to the host; the first insert if absent.
    pub hicache_write_policy: Option<WritePolicy>,
    /// GiB of host memory, over all ranks of an engine, in which vLLM also keeps KV cache; 0 or absent for none.
    pub kv_offloading_size: Option<f64>,
    /// vLLM's connector that keeps KV in host memory; vLLM's own if absent.
    pub kv_offloading_backend: Option<KvOffloadingBackend>,
    /// Order in which KV is evicted from the host, the connector's `eviction_policy`; least recently used first if
    /// absent.
    pub kv_offloading_eviction_policy: Option<EvictionPolicy>,
    /// Number of times that KV must be offered before it is stored, the connector's `store_threshold`; below 2 it is
    /// stored at once.
    pub kv_offloading_store_threshold: Option<u32>,
    /// True to store only the KV of prompts, the connector's `offload_prompt_only`; true if absent.
    pub kv_offloading_prompt_only: Option<bool>,
    /// GiB of storage below vLLM's host tier, over all ranks of an engine; 0 or absent for none.
    pub kv_storage_size: Option<f64>,
    /// GB/s at which an engine reads from that storage; 10 if absent.
    pub kv_storage_read_gb_s: Option<f64>,
    /// GB/s at which an engine writes to that storage; 10 if absent.
    pub kv_storage_write_gb_s: Option<f64>,
    /// Milliseconds from the start of a copy from or to that storage to its first byte; 0.1 if absent.
    pub kv_storage_latency_ms: Option<f64>,
    /// True if SGLang schedules a step only after the results of the previous one; false if absent.
    pub disable_overlap_schedule: Option<bool>,
    /// Order in which SGLang retracts requests; fewest generated tokens first if absent.
    pub retraction_policy: Option<RetractionPolicy>,
    /// True if SGLang's queue is in order of priority; `policy` decides if absent.
    pub enable_priority_scheduling: Option<bool>,
    /// True if smaller values have higher priority; `policy` decides if absent.
    pub schedule_low_priority_values_first: Option<bool>,
    /// True if a higher priority never preempts a running request; false if absent.
    pub disable_priority_preemption: Option<bool>,
    /// Difference in priority above which a request preempts another one; 10 if absent.
    pub priority_scheduling_preemption_threshold: Option<i64>,
    /// Accuracy of the output lengths by which `policy = "sjf"` sorts.
    pub length_prediction: Prediction,
    /// True if admission needs memory for the whole known sequence instead of its first chunk.
    pub scheduler_reserve_full_isl: Option<bool>,
    /// Fraction of the blocks that stays free when a request is admitted while others run.
    pub watermark: Option<f64>,
    /// True for two batches in flight, vLLM's `AsyncScheduler`.
    pub async_scheduling: Option<bool>,
    /// Number of decode steps from one poll of SGLang for new requests to the next; 1 if absent.
    pub scheduler_recv_interval: Option<u64>,
    /// Most steps that TensorRT-LLM holds prompts until they fill a fraction of the budget; 0 if absent.
    pub batch_wait_timeout_iters: Option<u64>,
    /// Fraction of `max_num_batched_tokens` that ends the hold of prompts, 0 to 1.
    pub batch_wait_max_tokens_ratio: Option<f64>,
    /// True if TensorRT-LLM schedules a step only after the previous one, without overlap; false if absent.
    pub disable_overlap_scheduler: Option<bool>,
    /// True if TensorRT-LLM holds prompts until every data-parallel rank has one; false if absent.
    pub attention_dp_enable_balance: Option<bool>,
    /// Most steps that `attention_dp_enable_balance` holds prompts; 50 if absent.
    pub attention_dp_time_out_iters: Option<u64>,
    /// Dtype of recurrent states; the model's if absent.
    pub mamba_ssm_dtype: Option<StateDtype>,
    /// True to load no encoders for images and sound, as vLLM's `--language-model-only`; false if absent.
    pub language_model_only: Option<bool>,
    /// True if the host launches every kernel of a step without a CUDA graph, as vLLM did before 0.2.6; false if
    /// absent.
    pub enforce_eager: Option<bool>,
    /// Tokens of the largest step with prompts that a CUDA graph captures, 0 for none; the engine's default if absent.
    pub max_cudagraph_capture_size: Option<u64>,
    /// Attention kernel of decodes; if absent, the kernels of the calibrated engines, which split the context.
    pub attention_backend: Option<AttentionBackend>,
    /// Kernel for quantized weights, as in `marlin`; the one that the engine's version uses if absent.
    pub quantization_kernel: Option<String>,
    /// True if projections with one input are one GEMM, and norms and rotations few launches; the engine's own choice
    /// if absent.
    pub fuse_layers: Option<bool>,
    /// HTTP server between the engine and its clients.
    pub frontend: Frontend,
    /// Handling of a preempted request's KV cache: recompute or swap.
    pub preemption_mode: PreemptionMode,
    /// GiB of host memory per accelerator for swapped KV cache.
    pub swap_space: Option<f64>,
    /// Number of tokens that the schedulers `static` and `orca` reserve for a request.
    pub reservation: ReservationKind,
    /// Layout of a request's KV cache in memory; the scheduler's if absent, with the bytes of block tables not counted.
    pub kv_layout: Option<KvLayout>,
    /// Speculative decoding: drafts that the model verifies; off if absent.
    pub speculative: Option<SpeculativeSpec>,
}

impl EngineSpec {
    /// Name of the engine whose calibration applies.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(EngineKind::Vllm.name())
    }

    /// The engine and its version.
    pub(crate) fn release(&self) -> Release {
        Release::new(self.name(), self.version.as_deref())
    }

    /// The engine, without its version.
    pub fn kind(&self) -> EngineKind {
        EngineKind::of(self.name())
    }

    /// The scheduling policy: the one that the spec names, else the engine's own.
    pub fn scheduler(&self) -> SchedulerKind {
        self.scheduler.or_else(|| self.kind().scheduler()).unwrap_or_default()
    }
}

impl Spec {
    /// Parses TOML, in which numbers may be quoted as [`quoted`] describes; `place` names the file in errors.
    pub fn parse(place: &str, text: &str) -> Result<Spec> {
        let text = &*quoted::unquoted(text);
        let parsed = toml::Deserializer::parse(text).map_err(|e| Error::toml(place, text, "", &e))?;
        let spec: Spec = serde_path_to_error::deserialize(parsed).map_err(|e| {
            let path = e.path().to_string();
            Error::toml(place, text, &path, &e.into_inner())
        })?;
        spec.check(place)?;
        Ok(spec)
    }

    /// Parses a TOML table; `place` names it in errors.
    pub fn of_table(place: &str, table: toml::Table) -> Result<Spec> {
        let whole = table.clone();
        let spec: Spec = serde_path_to_error::deserialize(table).map_err(|e| {
            let (path, message) = (e.path().to_string(), e.inner().message());
            // For an untagged type, the parser's message does not include the value that was found.
            let found = settings::get(&whole, &path).filter(|_| message.starts_with("a "));
            let found = found.map(ToString::to_string);
            Error::Parse { place: place.to_owned(), message: told(&path, message, found.as_deref()) }
        })?;
        spec.check(place)?;
        Ok(spec)
    }

    fn check(&self, place: &str) -> Result<()> {
        if self.model.name.is_some() && self.model.path.is_some() {
            return Err(Error::field(place, "model", "both `name` and `path`", "one of the two"));
        }
        self.slo.check(place)?;
        if let Some(workload) = &self.workload {
            workload.check(place)?;
        }
        Ok(())
    }
}
