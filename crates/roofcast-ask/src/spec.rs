//! The spec: the user's TOML or flags, parsed but not resolved.
//!
//! Knows: names and types of keys; unknown keys are refused. Knows nothing about their meaning, which
//! [`crate::deployment`] and `plan` resolve.

mod autoscale;
mod experts;
mod failures;
mod fleet;
mod kernels;
pub mod keys;
mod misread;
pub mod number;
mod own;
pub mod quoted;
mod rate_limit;
mod release;
mod requested;
mod scheduling;
mod search;
pub mod sections;
pub mod settings;
mod speculative;
pub(crate) mod written;

pub use autoscale::{
    AutoscaleRule, AutoscaleSpec, DynamoSpec, DynamoTarget, HpaSpec, KedaSpec, LoadPredictor, PolicyKind,
    RayServeSpec, ScalingPolicy, ScalingRules, ScalingRulesSpec, SelectPolicy,
};
pub use experts::{All2AllBackend, ExpertsSpec};
pub use failures::{FailureEvent, FailuresSpec, SlowSpec};
pub use fleet::{FleetSpec, LinkKind, MOST_WEIGHT, PoolSpec, Routing, RoutingSpec, ScheduleSpec};
pub use kernels::{AttentionBackend, Frontend, KvLayout};
pub use own::{LlamaCppSpec, SglangSpec, TensorrtLlmSpec, VllmSpec};
pub use rate_limit::{Buckets, RateLimitSpec};
pub use release::{EngineKind, Release};
pub use scheduling::{
    CostKind, EncoderTpMode, EvictionPolicy, KvOffloadingBackend, MambaStrategy, PreemptionMode, QueuePolicy,
    ReservationKind, RetractionPolicy, SchedulePolicy, SchedulerKind, StateDtype, WritePolicy,
};
pub use search::{ApiPrices, Objective, SearchSpec};
pub use speculative::{DraftMethod, SpeculativeSpec};

use crate::workload::Workload;
pub(crate) use crate::workload::prediction::Prediction;
use keys::{SpecKey, about};
use misread::misread;
use roofcast_facts::error::{Error, Result, told};
use roofcast_facts::precision::Dtype;
pub use roofcast_facts::slo::{Metric, Percentile, Slo, SloBound, key as slo_key};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toml::de::DeTable;

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
    #[doc = about!("model.name")]
    pub name: Option<String>,
    #[doc = about!("model.path")]
    pub path: Option<PathBuf>,
}

/// `[hardware]`: the accelerators.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardwareSpec {
    #[doc = about!("hardware.accelerator")]
    pub accelerator: Option<String>,
    #[doc = about!("hardware.count")]
    pub count: Option<u64>,
    #[doc = about!("hardware.power_limit_w")]
    pub(crate) power_limit_w: Option<f64>,
    #[doc = about!("hardware.host_bandwidth_gb_s")]
    pub(crate) host_bandwidth_gb_s: Option<f64>,
    #[doc = about!("hardware.memory_used_gib")]
    pub(crate) memory_used_gib: Option<f64>,
    #[doc = about!("hardware.grid_g_per_kwh")]
    pub grid_g_per_kwh: Option<f64>,
    #[doc = about!("hardware.usd_per_kwh")]
    pub usd_per_kwh: Option<f64>,
    #[doc = about!("hardware.pue")]
    pub pue: Option<f64>,
    #[doc = about!("hardware.ideal")]
    pub(crate) ideal: bool,
    #[doc = about!("hardware.convention")]
    pub convention: Convention,
}

/// `[precision]`: number formats.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrecisionSpec {
    #[doc = about!("precision.weights")]
    pub weights: Option<String>,
    #[doc = about!("precision.online")]
    pub online: bool,
    #[doc = about!("precision.activations")]
    pub activations: Option<Dtype>,
    #[doc = about!("precision.kv")]
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
    #[doc = about!("parallelism.tp")]
    pub tp: Option<u64>,
    #[doc = about!("parallelism.pp")]
    pub pp: Option<u64>,
    #[doc = about!("parallelism.ep")]
    pub ep: Option<u64>,
    #[doc = about!("parallelism.attention_dp")]
    pub attention_dp: Option<u64>,
    #[doc = about!("parallelism.replicas")]
    pub replicas: Option<u64>,
}

/// `[engine]`: settings by vLLM's names; vLLM's defaults apply to absent keys. Keys that only one engine has are in the
/// section of that engine.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    #[doc = about!("engine.name")]
    pub name: Option<String>,
    #[doc = about!("engine.version")]
    pub version: Option<String>,
    #[doc = about!("engine.served")]
    pub served: Option<bool>,
    #[doc = about!("engine.scheduler")]
    pub scheduler: Option<SchedulerKind>,
    #[doc = about!("engine.cost")]
    pub cost: CostKind,
    #[doc = about!("engine.max_num_seqs")]
    #[serde(alias = "max_running_requests")]
    pub max_num_seqs: Option<u64>,
    #[doc = about!("engine.max_num_batched_tokens")]
    pub max_num_batched_tokens: Option<u64>,
    #[doc = about!("engine.block_size")]
    #[serde(alias = "page_size")]
    pub block_size: Option<u64>,
    #[doc = about!("engine.num_gpu_blocks")]
    pub num_gpu_blocks: Option<u64>,
    #[doc = about!("engine.gpu_memory_utilization")]
    pub gpu_memory_utilization: Option<f64>,
    #[doc = about!("engine.kv_cache_memory_bytes")]
    pub kv_cache_memory_bytes: Option<u64>,
    #[doc = about!("engine.max_model_len")]
    pub max_model_len: Option<u64>,
    #[doc = about!("engine.enable_chunked_prefill")]
    pub enable_chunked_prefill: Option<bool>,
    #[doc = about!("engine.enable_prefix_caching")]
    pub enable_prefix_caching: Option<bool>,
    #[doc = about!("engine.policy")]
    pub policy: QueuePolicy,
    /// Accuracy of the output lengths by which `policy = "sjf"` sorts.
    #[serde(skip_serializing)]
    pub length_prediction: Prediction,
    #[doc = about!("engine.scheduler_reserve_full_isl")]
    pub scheduler_reserve_full_isl: Option<bool>,
    #[doc = about!("engine.watermark")]
    pub watermark: Option<f64>,
    #[doc = about!("engine.mamba_ssm_dtype")]
    pub mamba_ssm_dtype: Option<StateDtype>,
    #[doc = about!("engine.decode_context_parallel_size")]
    pub decode_context_parallel_size: Option<u64>,
    #[doc = about!("engine.language_model_only")]
    pub language_model_only: Option<bool>,
    #[doc = about!("engine.enforce_eager")]
    pub enforce_eager: Option<bool>,
    #[doc = about!("engine.max_cudagraph_capture_size")]
    pub max_cudagraph_capture_size: Option<u64>,
    #[doc = about!("engine.stream_interval")]
    pub stream_interval: Option<u64>,
    #[doc = about!("engine.attention_backend")]
    pub attention_backend: Option<AttentionBackend>,
    #[doc = about!("engine.quantization_kernel")]
    pub quantization_kernel: Option<String>,
    #[doc = about!("engine.fuse_layers")]
    pub fuse_layers: Option<bool>,
    #[doc = about!("engine.frontend")]
    pub frontend: Frontend,
    #[doc = about!("engine.cpu_offload_gb")]
    pub cpu_offload_gb: Option<f64>,
    #[doc = about!("engine.reservation")]
    pub reservation: ReservationKind,
    #[doc = about!("engine.kv_layout")]
    pub kv_layout: Option<KvLayout>,
    /// Speculative decoding: drafts that the model verifies; off if absent.
    pub speculative: Option<SpeculativeSpec>,
    /// Experts of a layer on several ranks.
    pub experts: ExpertsSpec,
    /// Keys that only vLLM has.
    pub vllm: VllmSpec,
    /// Keys that only SGLang has.
    pub sglang: SglangSpec,
    /// Keys that only TensorRT-LLM has.
    #[serde(rename = "tensorrt-llm")]
    pub tensorrt_llm: TensorrtLlmSpec,
    /// Keys that only llama.cpp has.
    #[serde(rename = "llama-cpp")]
    pub llama_cpp: LlamaCppSpec,
    /// Keys that stand in `[engine]` although another engine than the spec's has them.
    #[serde(skip)]
    pub foreign: Vec<&'static SpecKey>,
}

impl HardwareSpec {
    /// Refuses factors of emissions that no site has. A grid of lignite alone emits about 1100 g/kWh.
    fn check(&self, place: &str) -> Result<()> {
        let sane = |value: Option<f64>, low: f64, high: f64| value.is_none_or(|v| (low..=high).contains(&v));
        let refused = |field: &str, found: Option<f64>, accepted: &str| {
            let field = format!("hardware.{field}");
            Err(Error::field(place, field, found.unwrap_or_default(), accepted))
        };
        match (self.grid_g_per_kwh, self.pue) {
            _ if self.usd_per_kwh.is_some_and(|usd| !(usd > 0.0 && usd <= 100.0)) => {
                refused("usd_per_kwh", self.usd_per_kwh, "above 0, at most 100 dollars per kWh")
            }
            (grid, _) if !sane(grid, 0.0, 5000.0) => {
                refused("grid_g_per_kwh", grid, "0 to 5000 grams of CO2 equivalent per kWh")
            }
            (_, pue) if !sane(pue, 1.0, 10.0) => {
                refused("pue", pue, "1 to 10: energy of the site over energy of its machines")
            }
            (None, Some(_)) => refused(
                "pue",
                self.pue,
                "it together with hardware.grid_g_per_kwh, whose emissions it multiplies",
            ),
            _ => Ok(()),
        }
    }
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

    /// True if the section of `engine` counts: of the engine that is named, and of the engine whose scheduler runs.
    fn counts(&self, engine: EngineKind) -> bool {
        engine == self.kind() || EngineKind::with(self.scheduler()) == Some(engine)
    }

    /// The spec without the sections of engines that do not count.
    pub fn own(&self) -> EngineSpec {
        let mut sectionless = self.clone();
        if !self.counts(EngineKind::Vllm) {
            sectionless.vllm = VllmSpec::default();
        }
        if !self.counts(EngineKind::Sglang) {
            sectionless.sglang = SglangSpec::default();
        }
        if !self.counts(EngineKind::TensorrtLlm) {
            sectionless.tensorrt_llm = TensorrtLlmSpec::default();
        }
        if !self.counts(EngineKind::LlamaCpp) {
            sectionless.llama_cpp = LlamaCppSpec::default();
        }
        sectionless
    }

    /// The spec with every weight on the accelerator.
    pub(crate) fn on_accelerator(&self) -> EngineSpec {
        let mut spec = self.clone();
        spec.cpu_offload_gb = None;
        let keys = &mut spec.llama_cpp;
        keys.n_gpu_layers = None;
        keys.n_cpu_moe = None;
        keys.override_tensor = None;
        keys.no_kv_offload = None;
        spec
    }

    /// A key that is set although the scheduler does not have it; `None` without one.
    pub(crate) fn misplaced(&self) -> Option<&'static SpecKey> {
        let sectioned = self.own();
        let in_engine = (self.reservation != ReservationKind::default()).then_some("reservation");
        let sections = [
            sectioned.vllm.set(),
            sectioned.sglang.set(),
            sectioned.tensorrt_llm.set(),
            sectioned.llama_cpp.set(),
        ];
        let set = sections.into_iter().flatten();
        let offloads = self.cpu_offload_gb.map(|_| "cpu_offload_gb");
        let set = set.chain(in_engine).chain(offloads).filter_map(|name| keys::at(&format!("engine.{name}")));
        // llama.cpp's slots and cells count whatever policy fills them.
        let sized =
            |key: &SpecKey| self.kind() == EngineKind::LlamaCpp && key.owner() == Some(EngineKind::LlamaCpp);
        let lacks = |key: &&SpecKey| {
            !key.schedulers.is_empty() && !key.schedulers.contains(&self.scheduler()) && !sized(key)
        };
        self.foreign.iter().copied().chain(set).find(lacks)
    }
}

impl Spec {
    /// Parses TOML, in which numbers may be quoted as [`quoted`] describes; `place` names the file in errors.
    pub fn parse(place: &str, text: &str) -> Result<Spec> {
        let text = &*quoted::unquoted(text);
        let mut table = DeTable::parse(text).map_err(|e| Error::toml(place, text, "", &e))?;
        let moved = sections::nest(place, table.get_mut())?;
        let spec = serde_path_to_error::deserialize(toml::Deserializer::from(table)).map_err(|e| {
            let path = sections::as_written(e.path().to_string(), &moved);
            let error = e.into_inner();
            let misread = text.parse().ok().and_then(|whole| misread(&whole, &path, error.message()));
            match (misread, Error::toml(place, text, &path, &error)) {
                (Some((key, value)), Error::Parse { place, .. }) => {
                    Error::Parse { place, message: told(&key, error.message(), Some(&value)) }
                }
                (_, whole) => whole,
            }
        });
        Spec::checked(spec?, place, moved)
    }

    /// Parses a TOML table; `place` names it in errors.
    pub fn of_table(place: &str, mut table: toml::Table) -> Result<Spec> {
        let whole = table.clone();
        let moved = sections::nest(place, &mut table)?;
        let spec = serde_path_to_error::deserialize(table).map_err(|e| {
            let path = e.path().to_string();
            let message = e.inner().message();
            let path = sections::as_written(path, &moved);
            // For an untagged type, the parser's message does not include the value that was found.
            let given = settings::get(&whole, &path).filter(|_| message.starts_with("a "));
            let value = given.map(ToString::to_string);
            let mut message = match misread(&whole, &path, message) {
                Some((key, value)) => told(&key, message, Some(&value)),
                None => told(&path, message, value.as_deref()),
            };
            let absent = message.strip_prefix('`').and_then(|rest| rest.strip_suffix("` is missing"));
            if let Some(flag) = absent.and_then(keys::at).and_then(|key| key.flag) {
                message.push_str(&format!("; accepted: --{flag}"));
            }
            Error::Parse { place: place.to_owned(), message }
        });
        Spec::checked(spec?, place, moved)
    }

    /// A parsed spec with checks of single keys; `moved` are the keys of one engine that stood in `[engine]`.
    fn checked(mut self, place: &str, moved: Vec<&'static SpecKey>) -> Result<Spec> {
        let foreign = |key: &&SpecKey| key.owner().is_some_and(|owner| !self.engine.counts(owner));
        self.engine.foreign = moved.into_iter().filter(foreign).collect();
        // Without drafts there is no speculative decoding, as in a sweep from 0.
        self.engine.speculative = self.engine.speculative.filter(|s| s.num_speculative_tokens > 0);
        self.check(place)?;
        Ok(self)
    }

    fn check(&self, place: &str) -> Result<()> {
        if self.model.name.is_some() && self.model.path.is_some() {
            return Err(Error::field(place, "model", "both `name` and `path`", "one of the two"));
        }
        self.hardware.check(place)?;
        self.slo.check(place, "slo")?;
        if let Some(workload) = &self.workload {
            workload.check(place)?;
        }
        Ok(())
    }
}
