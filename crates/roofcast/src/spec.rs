//! The spec: the user's TOML or flags, parsed but not validated.
//!
//! Knows: names and shapes of keys; unknown keys are refused. Their meaning is resolved in [`crate::deployment`] and
//! [`crate::plan`].

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

/// A whole spec file. Every section may be left out; verbs say what they miss.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The model.
    pub model: ModelSpec,
    /// On what.
    pub hardware: HardwareSpec,
    /// In which formats.
    pub precision: PrecisionSpec,
    /// Parallelism of the model.
    pub parallelism: ParallelismSpec,
    /// The engine's settings, by vLLM's names.
    pub engine: EngineSpec,
    /// The traffic.
    pub workload: Option<Workload>,
    /// Replicas and the choice among them.
    pub fleet: FleetSpec,
    /// Latency bounds of the traffic.
    pub slo: Slo,
    /// Over what a plan searches.
    pub search: Option<SearchSpec>,
}

/// `[model]`: a catalog name or a file.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSpec {
    /// Catalog id, or a path as on the command line.
    pub name: Option<String>,
    /// A `config.json`, or the folder that holds one.
    pub path: Option<PathBuf>,
}

/// `[hardware]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardwareSpec {
    /// Catalog id.
    pub accelerator: Option<String>,
    /// Accelerators in all.
    pub count: Option<u64>,
    /// Watts that each accelerator may draw, as `nvidia-smi -pl` sets it. Counts for energy; rates stay the datasheet's.
    pub power_limit_w: Option<f64>,
    /// GiB of each accelerator's memory that other processes hold when the engine starts, as `nvidia-smi` prints them; none where absent.
    pub memory_used_gib: Option<f64>,
    /// Nominal memory, perfect sharing, nothing reserved.
    pub ideal: bool,
    /// By whose rules bytes and rates are counted.
    pub convention: Convention,
}

/// `[precision]`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrecisionSpec {
    /// Weight format; the checkpoint's own where absent.
    pub weights: Option<String>,
    /// Dtype that computes on quantized weights, for formats that are weight-only by themselves.
    pub activations: Option<Dtype>,
    /// KV-cache format; `auto` is the checkpoint's, else the activations'.
    pub kv: Option<String>,
}

/// Rules by which bytes and rates are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    /// Exact bytes, decimal bandwidth.
    #[default]
    Default,
    /// Nominal bits on every weight with lm_head, no input embedding, no norms, GiB/s.
    #[serde(rename = "seed-003")]
    Seed003,
}

/// `[parallelism]`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelismSpec {
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Pipeline stages.
    pub pp: Option<u64>,
    /// Expert-parallel ranks.
    pub ep: Option<u64>,
    /// Data parallelism of attention.
    pub attention_dp: Option<u64>,
    /// Whole copies.
    pub replicas: Option<u64>,
}

/// `[engine]`: vLLM's names and, where absent, vLLM's defaults.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// The engine whose calibration counts, as in `vllm`, `sglang`, `tensorrt-llm` or `llama.cpp`; vllm where absent.
    pub name: Option<String>,
    /// The engine's version, as in `0.11.2`.
    pub version: Option<String>,
    /// True if requests come through the engine's API server, false if a program calls the engine in process; true
    /// where absent.
    pub served: Option<bool>,
    /// The scheduling policy; by `name` where absent, and `vllm` for an engine without a policy of its own.
    pub scheduler: Option<SchedulerKind>,
    /// Price of a step: limit or forecast.
    pub cost: CostKind,
    /// Sequences that run at once.
    #[serde(alias = "max_running_requests")]
    pub max_num_seqs: Option<u64>,
    /// A second bound on them, vLLM's.
    pub max_num_active_seqs: Option<u64>,
    /// Requests at a replica, waiting or running, beyond which vLLM's server turns new ones away; no bound where absent.
    pub max_num_queued_reqs: Option<u64>,
    /// Prompt tokens of requests without their first token, from which on it does; no bound where absent.
    pub max_num_queued_tokens: Option<u64>,
    /// While requests decode, vLLM's data-parallel engines prefill in every n-th step; in every step where absent.
    pub prefill_schedule_interval: Option<u64>,
    /// Tokens that one step computes at most.
    pub max_num_batched_tokens: Option<u64>,
    /// Tokens of a KV block.
    #[serde(alias = "page_size")]
    pub block_size: Option<u64>,
    /// KV blocks; what the memory leaves where absent.
    pub num_gpu_blocks: Option<u64>,
    /// Share of the device memory that the engine may take.
    pub gpu_memory_utilization: Option<f64>,
    /// Bytes of KV cache on each accelerator, whatever the utilization would leave; vLLM's `--kv-cache-memory-bytes`.
    pub kv_cache_memory_bytes: Option<u64>,
    /// Longest sequence that is served.
    pub max_model_len: Option<u64>,
    /// Split a prompt over several steps (chunked prefill).
    pub enable_chunked_prefill: Option<bool>,
    /// Find cached blocks by their content (prefix caching).
    pub enable_prefix_caching: Option<bool>,
    /// Most tokens of one prompt in a step while others wait; 0 is no bound.
    pub long_prefill_token_threshold: Option<u64>,
    /// The order of the queue.
    pub policy: QueuePolicy,
    /// SGLang's order of the queue under `policy = "fcfs"`.
    pub schedule_policy: SchedulePolicy,
    /// SGLang's tokens of a step with prompts, beyond which one is chunked; up to 0 prompts are whole.
    pub chunked_prefill_size: Option<i64>,
    /// Tokens of the prompts of a step of SGLang's; the first may have more where prompts are whole.
    pub max_prefill_tokens: Option<u64>,
    /// SGLang's running requests decode in the batches that prefill (mixed chunk); false where absent.
    pub enable_mixed_chunk: Option<bool>,
    /// Factor on SGLang's initial estimate of new tokens; larger admits fewer requests; 1 where absent.
    pub schedule_conservativeness: Option<f64>,
    /// Requests of a step with prompts; no bound where absent.
    pub prefill_max_requests: Option<u64>,
    /// SGLang keeps no prefix for other requests (radix cache off); false where absent.
    pub disable_radix_cache: Option<bool>,
    /// Recurrent states that SGLang's pool holds; what the memory leaves where absent.
    pub max_mamba_cache_size: Option<u64>,
    /// Bytes of SGLang's pool of recurrent states over the bytes of its KV pool; 0.9 where absent.
    pub mamba_full_memory_ratio: Option<f64>,
    /// Strategy by which SGLang's radix cache keeps recurrent states.
    pub mamba_radix_cache_strategy: Option<MambaStrategy>,
    /// SGLang also keeps KV in the host's memory (HiCache); false where absent.
    pub enable_hierarchical_cache: Option<bool>,
    /// Host tokens per device token; 2 where absent.
    pub hicache_ratio: Option<f64>,
    /// GB of the host pool of each rank, in place of the ratio; 0 is none.
    pub hicache_size: Option<f64>,
    /// When KV is copied to the host; with its first insert where absent.
    pub hicache_write_policy: Option<WritePolicy>,
    /// GiB of host memory in which vLLM keeps KV, too, over all ranks of an engine; 0 or absent is none.
    pub kv_offloading_size: Option<f64>,
    /// vLLM's connector that keeps it; its own where absent.
    pub kv_offloading_backend: Option<KvOffloadingBackend>,
    /// Order in which KV leaves the host, the connector's `eviction_policy`; least recently used where absent.
    pub kv_offloading_eviction_policy: Option<EvictionPolicy>,
    /// Offers from which on KV is stored, the connector's `store_threshold`; below 2 all is.
    pub kv_offloading_store_threshold: Option<u32>,
    /// KV of prompts alone is stored, the connector's `offload_prompt_only`; true where absent.
    pub kv_offloading_prompt_only: Option<bool>,
    /// SGLang schedules a step only after the results of the previous one; false where absent.
    pub disable_overlap_schedule: Option<bool>,
    /// Order in which SGLang retracts requests; fewest tokens first where absent.
    pub retraction_policy: Option<RetractionPolicy>,
    /// SGLang's queue is in order of priority; by `policy` where absent.
    pub enable_priority_scheduling: Option<bool>,
    /// Smaller values have higher priority; by `policy` where absent.
    pub schedule_low_priority_values_first: Option<bool>,
    /// A higher priority preempts no running request; false where absent.
    pub disable_priority_preemption: Option<bool>,
    /// Difference in priority above which a request preempts another; 10 where absent.
    pub priority_scheduling_preemption_threshold: Option<i64>,
    /// Accuracy of the output lengths that `policy = "sjf"` orders by.
    pub length_prediction: Prediction,
    /// Admission needs room for the whole known sequence, not for its first chunk.
    pub scheduler_reserve_full_isl: Option<bool>,
    /// Fraction of the blocks kept free when a request is admitted while others run.
    pub watermark: Option<f64>,
    /// Two batches in flight, vLLM's `AsyncScheduler`.
    pub async_scheduling: Option<bool>,
    /// Steps of decodes after which SGLang looks for new requests; each where absent.
    pub scheduler_recv_interval: Option<u64>,
    /// Steps that TensorRT-LLM holds prompts back at most, until they fill a share of the budget; 0 where absent.
    pub batch_wait_timeout_iters: Option<u64>,
    /// That share of `max_num_batched_tokens`, 0 to 1.
    pub batch_wait_max_tokens_ratio: Option<f64>,
    /// TensorRT-LLM schedules a step only after the previous one, without overlap; false where absent.
    pub disable_overlap_scheduler: Option<bool>,
    /// TensorRT-LLM holds prompts until every data-parallel rank has one; false where absent.
    pub attention_dp_enable_balance: Option<bool>,
    /// For how many steps at most; 50 where absent.
    pub attention_dp_time_out_iters: Option<u64>,
    /// The dtype of recurrent states; the model's where absent.
    pub mamba_ssm_dtype: Option<StateDtype>,
    /// Load no towers for images and sound, as vLLM's `--language-model-only`; false where absent.
    pub language_model_only: Option<bool>,
    /// The host launches every kernel of a step, as vLLM did before 0.2.6, without a captured graph; false where
    /// absent.
    pub enforce_eager: Option<bool>,
    /// Tokens of the largest step with prompts that a captured graph holds, 0 for none; the engine's default where absent.
    pub max_cudagraph_capture_size: Option<u64>,
    /// Attention kernel of decodes; where absent the calibration's engines' own, which split the context.
    pub attention_backend: Option<AttentionBackend>,
    /// The kernel of quantized weights, as in `marlin`; what the engine's version uses where absent.
    pub quantization_kernel: Option<String>,
    /// Projections of one input are one GEMM, and norms and rotations few launches; the engine's own where absent.
    pub fuse_layers: Option<bool>,
    /// The server between the engine and its clients.
    pub frontend: Frontend,
    /// Handling of a preempted request's cache: recompute or swap.
    pub preemption_mode: PreemptionMode,
    /// GiB of host memory per accelerator for swapped caches.
    pub swap_space: Option<f64>,
    /// Tokens that `static` and `orca` reserve for a request.
    pub reservation: ReservationKind,
    /// Layout of a request's KV cache in memory; the scheduler's where absent, without the bytes of block tables.
    pub kv_layout: Option<KvLayout>,
    /// Drafts that the model verifies (speculative decoding); off where absent.
    pub speculative: Option<SpeculativeSpec>,
}

impl EngineSpec {
    /// The engine whose calibration counts.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(EngineKind::Vllm.name())
    }

    /// Engine and version.
    pub(crate) fn release(&self) -> Release {
        Release::new(self.name(), self.version.as_deref())
    }

    /// Engine.
    pub fn kind(&self) -> EngineKind {
        EngineKind::of(self.name())
    }

    /// The scheduling policy: the one that is named, else the engine's own.
    pub fn scheduler(&self) -> SchedulerKind {
        self.scheduler.or_else(|| self.kind().scheduler()).unwrap_or_default()
    }
}

impl Spec {
    /// Parses TOML, in which numbers may be quoted as [`quoted`] has them; `place` names the file in errors.
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

    /// Reads a parsed table; `place` names it in errors.
    pub fn of_table(place: &str, table: toml::Table) -> Result<Spec> {
        let whole = table.clone();
        let spec: Spec = serde_path_to_error::deserialize(table).map_err(|e| {
            let (path, message) = (e.path().to_string(), e.inner().message());
            // For an untagged type, the error message does not include the value that was found.
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
