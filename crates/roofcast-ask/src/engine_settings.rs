//! Settings of an engine, resolved from `[engine]`: the release, sizes of a step, and the keys of its scheduler.
//!
//! Knows: the defaults of absent keys. Defaults that depend on the memory are provided by [`crate::deployment`]. Code that uses a deployment reads these settings, never the spec.

mod graphs;
mod llama_cpp;
mod lora;
mod own;
mod profile;
mod tier;

pub(crate) use graphs::GraphBound;
use graphs::Graphs;
pub use llama_cpp::{CELLS, MICRO_BATCH, Slots};
pub use lora::LoraSettings;
pub use own::{MAX_PREFILL_TOKENS, Own, SglangSettings, StatePool, VllmSettings};
pub use profile::Profile;
pub use profile::{Balance, Order, PrefixCaching, Reservation};
pub use tier::{HiCacheSettings, HostTierSettings, OffloadSettings, STORAGE_GB_S, StorageSettings};

use crate::spec::{
    AttentionBackend, CostKind, DraftMethod, EncoderTpMode, EngineKind, EngineSpec, Frontend, KvLayout,
    Prediction, QueuePolicy, Release, SchedulePolicy, SchedulerKind, SpeculativeSpec,
};
pub use roofcast_facts::error::{Error, Result};
use serde::Serialize;

/// Default GiB of host memory per accelerator for swapped KV caches in vLLM v0.
const SWAP_SPACE: f64 = 4.0;
/// The version from which vLLM schedules a step while the previous one runs (AsyncScheduler).
const ASYNC_SINCE: &str = "0.14.0";
/// A version of vLLM that schedules a step after the previous one.
const IN_TURN: &str = "0.13.0";

/// Settings of an engine with defaults filled in. Answers show the sizes of a step, the memory fraction and the
/// layout.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineSettings {
    /// Sequences that run at one time; in vLLM on each data-parallel rank, see [`crate::Deployment::seats`].
    pub max_num_seqs: u64,
    /// Most tokens that one step computes.
    pub max_num_batched_tokens: u64,
    /// Tokens of a KV block.
    pub block_size: u64,
    /// Tokens of the largest step with prompts that a captured CUDA graph covers; 0 if only decodes are captured.
    pub max_cudagraph_capture_size: u64,
    /// Tokens of the largest step of decodes alone that a captured CUDA graph covers.
    #[serde(skip)]
    pub captured_decodes: u64,
    /// Fraction of the device memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// Layout of the KV cache, if reads of block tables are to be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_layout: Option<KvLayout>,
    /// Engine and version.
    #[serde(skip)]
    pub release: Release,
    /// True if requests pass through the engine's server; false for a program that calls the engine directly.
    #[serde(skip)]
    pub served: bool,
    /// Tokens of a request from one of its messages to the next.
    #[serde(skip)]
    pub stream_interval: u64,
    /// Type of server between the engine and its clients.
    #[serde(skip)]
    pub frontend: Frontend,
    /// Scheduling policy.
    #[serde(skip)]
    pub scheduler: SchedulerKind,
    /// Cost model of a step.
    #[serde(skip)]
    pub cost: CostKind,
    /// Order of the queue of waiting requests.
    #[serde(skip)]
    pub policy: QueuePolicy,
    /// Accuracy of predicted output lengths under `policy = "sjf"`.
    #[serde(skip)]
    pub length_prediction: Prediction,
    /// Longest sequence in tokens that is served; the model's bound if absent.
    #[serde(skip)]
    pub max_model_len: Option<u64>,
    /// Number of KV blocks, which overrides the number that fits in memory.
    #[serde(skip)]
    pub num_gpu_blocks: Option<u64>,
    /// Bytes of KV cache on each accelerator, which overrides the bytes that the memory fraction gives.
    #[serde(skip)]
    pub kv_cache_memory_bytes: Option<u64>,
    /// Chunked prefill as requested; the scheduler's default if absent.
    #[serde(skip)]
    pub enable_chunked_prefill: Option<bool>,
    /// Prefix caching as requested; if absent, on or off by the workload.
    #[serde(skip)]
    pub enable_prefix_caching: Option<bool>,
    /// True if admission requires free blocks for the whole prompt, not only for its first chunk.
    #[serde(skip)]
    pub scheduler_reserve_full_isl: bool,
    /// Fraction of all blocks that must stay free when a request is admitted while others run.
    #[serde(skip)]
    pub watermark: f64,
    /// GiB of host memory per accelerator for swapped KV caches.
    #[serde(skip)]
    pub swap_space: f64,
    /// True if the encoders of images and sound are not loaded.
    #[serde(skip)]
    pub language_model_only: bool,
    /// True if the host launches every kernel of a step separately, false if it launches captured graphs.
    #[serde(skip)]
    pub enforce_eager: bool,
    /// Attention backend of decodes; the engine's default if absent.
    #[serde(skip)]
    pub attention_backend: Option<AttentionBackend>,
    /// Name of the kernel for quantized weights; the release's default if absent.
    #[serde(skip)]
    pub quantization_kernel: Option<String>,
    /// True to compute the projections of one input as one GEMM, false to compute them separately; the engine's
    /// default if absent.
    #[serde(skip)]
    pub fuse_layers: Option<bool>,
    /// Speculative decoding: drafts that the model verifies.
    #[serde(skip)]
    pub speculative: Option<SpeculativeSpec>,
    /// Host memory as a tier of the KV cache, if enabled.
    #[serde(skip)]
    pub host_tier: Option<HostTierSettings>,
    /// What tensor-parallel ranks divide of an encoder.
    #[serde(skip)]
    pub mm_encoder_tp_mode: EncoderTpMode,
    /// LoRA adapters; `None` if none are served.
    #[serde(skip)]
    pub lora: Option<LoraSettings>,
    /// Slots of llama.cpp's server; other engines do not read them.
    #[serde(skip)]
    pub slots: Slots,
    /// SGLang's pool of recurrent states.
    #[serde(skip)]
    pub states: StatePool,
    /// Sizes that the spec sets. Schedulers' own defaults do not replace them, and commands repeat them.
    #[serde(skip)]
    pub requested: Requested,
    #[serde(skip)]
    own: Own,
}

/// Sizes that a spec sets; `None` for a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requested {
    /// Sequences that run at one time.
    pub max_num_seqs: Option<u64>,
    /// Most tokens of a step.
    pub max_num_batched_tokens: Option<u64>,
    /// Tokens of a KV block.
    pub block_size: Option<u64>,
    /// Tokens of the largest captured step with prompts.
    pub max_cudagraph_capture_size: Option<u64>,
}

/// Defaults of an engine's sizes on a chip, for a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) max_num_seqs: u64,
    pub(crate) max_num_batched_tokens: u64,
    pub(crate) gpu_memory_utilization: f64,
    /// vLLM's bound on the tokens of a captured step.
    pub(crate) captured_tokens: GraphBound,
}

impl EngineSettings {
    /// Resolves the settings of `spec`; absent sizes come from `defaults`.
    pub(crate) fn resolve(spec: &EngineSpec, defaults: Defaults) -> Result<EngineSettings> {
        let spec = &spec.own();
        let count = |field: &str, value: Option<u64>, default: u64, most: u64| match value {
            Some(v) if v == 0 || v > most => Err(Error::field("engine", field, v, format!("1 to {most}"))),
            other => Ok(other.unwrap_or(default)),
        };
        if spec.kind() == EngineKind::LlamaCpp {
            Slots::check(spec)?;
        }
        let utilization = spec.gpu_memory_utilization.unwrap_or(defaults.gpu_memory_utilization);
        if !(utilization > 0.0 && utilization <= 1.0) {
            return Err(Error::field("engine", "gpu_memory_utilization", utilization, "above 0, at most 1"));
        }
        count("max_model_len", spec.max_model_len, 1, 1 << 30)?;
        let max_num_seqs = count("max_num_seqs", spec.max_num_seqs, defaults.max_num_seqs, 1 << 20)?;
        // SGLang's chunk is its budget of a step under another name; -1 leaves the default.
        let chunk = spec.sglang.chunked_prefill_size.and_then(|n| n.try_into().ok()).filter(|n| *n > 0);
        let tokens = spec.max_num_batched_tokens.or(chunk);
        let max_num_batched_tokens =
            count("max_num_batched_tokens", tokens, defaults.max_num_batched_tokens, 1 << 24)?;
        let profile = Profile::of(spec.scheduler());
        check(spec, &profile)?;
        let block_size = count("block_size", spec.block_size, profile.block_size, 1 << 16)?;
        let release = spec.release();
        let graphs = Graphs::of(spec, defaults.captured_tokens, [max_num_seqs, max_num_batched_tokens]);
        Ok(EngineSettings {
            max_num_seqs,
            max_num_batched_tokens,
            block_size,
            max_cudagraph_capture_size: graphs.prompts,
            captured_decodes: graphs.decodes,
            gpu_memory_utilization: utilization,
            kv_layout: spec.kv_layout,
            release,
            served: spec.served.unwrap_or(true),
            stream_interval: count("stream_interval", spec.stream_interval, 1, 1 << 20)?,
            frontend: spec.frontend,
            scheduler: spec.scheduler(),
            cost: spec.cost,
            policy: spec.policy,
            length_prediction: spec.length_prediction,
            max_model_len: spec.max_model_len,
            num_gpu_blocks: spec.num_gpu_blocks,
            kv_cache_memory_bytes: spec.kv_cache_memory_bytes,
            enable_chunked_prefill: spec.enable_chunked_prefill,
            enable_prefix_caching: spec.enable_prefix_caching,
            scheduler_reserve_full_isl: spec
                .scheduler_reserve_full_isl
                .unwrap_or(profile.scheduler_reserve_full_isl),
            watermark: spec.watermark.unwrap_or(profile.watermark),
            swap_space: spec.vllm.swap_space.unwrap_or(SWAP_SPACE),
            language_model_only: spec.language_model_only.unwrap_or(false),
            enforce_eager: spec.enforce_eager.unwrap_or(false),
            attention_backend: spec.attention_backend,
            quantization_kernel: spec.quantization_kernel.clone(),
            fuse_layers: spec.fuse_layers,
            speculative: spec.drafted()?.cloned(),
            host_tier: HostTierSettings::of(spec),
            mm_encoder_tp_mode: spec.vllm.mm_encoder_tp_mode.unwrap_or_default(),
            lora: LoraSettings::of(spec)?,
            slots: Slots::of(spec),
            states: StatePool::of(spec),
            requested: Requested {
                max_num_seqs: spec.max_num_seqs,
                max_num_batched_tokens: spec.max_num_batched_tokens,
                block_size: spec.block_size,
                max_cudagraph_capture_size: spec.max_cudagraph_capture_size,
            },
            own: Own::resolve(spec, max_num_batched_tokens, block_size)?,
        })
    }

    /// Settings that belong to the scheduler alone.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// Settings of vLLM's scheduler, if the engine uses it.
    pub fn vllm(&self) -> Option<&VllmSettings> {
        match &self.own {
            Own::Vllm(settings) => Some(settings),
            _ => None,
        }
    }

    /// Settings of SGLang's scheduler, if the engine uses it.
    pub fn sglang(&self) -> Option<&SglangSettings> {
        match &self.own {
            Own::Sglang(settings) => Some(settings),
            _ => None,
        }
    }

    /// Settings of vLLM's host tier, if enabled.
    pub fn offload(&self) -> Option<&OffloadSettings> {
        match &self.host_tier {
            Some(HostTierSettings::Offloading(settings)) => Some(settings),
            _ => None,
        }
    }

    /// Settings of SGLang's host tier, if enabled.
    pub fn hicache(&self) -> Option<&HiCacheSettings> {
        match &self.host_tier {
            Some(HostTierSettings::HiCache(settings)) => Some(settings),
            _ => None,
        }
    }

    /// Longest sequence in tokens that the spec sets: by its own key, or by the context of llama.cpp's slots.
    pub fn longest(&self) -> Option<u64> {
        let slot = self.slots.n_ctx.filter(|_| self.kind() == EngineKind::LlamaCpp);
        let slot = slot.map(|n_ctx| self.slots.slot_context(n_ctx));
        [self.max_model_len, slot].into_iter().flatten().min()
    }

    /// Kind of the engine.
    pub fn kind(&self) -> EngineKind {
        self.release.kind
    }

    /// Name of the engine as specs write it.
    pub fn name(&self) -> &str {
        &self.release.name
    }

    /// True if the engine's version is `first` or later.
    pub fn is_since(&self, first: &str) -> bool {
        self.release.is_since(first)
    }

    /// True if a Python program serves the requests, which costs host time per token.
    pub fn has_python_server(&self) -> bool {
        self.served && self.frontend != Frontend::Dynamo && self.kind() != EngineKind::LlamaCpp
    }

    /// True if waiting requests are considered in the order of their arrival.
    pub fn is_in_order(&self) -> bool {
        let by_prefix = self.sglang().is_some_and(|own| own.schedule_policy != SchedulePolicy::Fcfs);
        self.policy == QueuePolicy::Fcfs && !by_prefix
    }

    /// True if a step is scheduled while the previous one runs. By default vLLM does so from [`ASYNC_SINCE`] on, and with
    /// drafts from the version of their method on.
    pub fn overlaps(&self) -> bool {
        match &self.own {
            Own::Vllm(own) => own.async_scheduling.unwrap_or_else(|| {
                let drafts = self.speculative.as_ref().is_none_or(|drafts| {
                    let unnamed = !drafts.is_regular() && drafts.method != Some(DraftMethod::Ngram);
                    let first = DraftMethod::decided_ahead(drafts.method).map(|[_, unasked]| unasked);
                    unnamed || first.is_some_and(|first| self.is_since(first))
                });
                self.is_since(ASYNC_SINCE) && drafts
            }),
            Own::TensorrtLlm(own) => own.overlaps,
            _ => false,
        }
    }

    /// True if vLLM's scheduler counts the tokens of a step in flight: with drafts of a named drafter, or if asked to.
    /// Drafts at a stated cost have no drafter, and are decided after the step before them.
    pub fn decides_ahead(&self) -> bool {
        let switched_on = self.vllm().is_some_and(|own| own.async_scheduling == Some(true));
        self.overlaps() && self.speculative.as_ref().is_none_or(|drafts| switched_on || drafts.is_regular())
    }

    /// Release whose loop the host runs: vLLM's that schedules a step while the previous one runs, or that does not, whatever
    /// its version does unasked.
    pub fn host_release(&self) -> Release {
        let usual = self.is_since(ASYNC_SINCE);
        let version = match self.overlaps() {
            _ if self.kind() != EngineKind::Vllm || self.vllm().is_none() => None,
            _ if !self.is_since(graphs::PIECES_SINCE) => None,
            true if !usual => Some(ASYNC_SINCE),
            false if usual => Some(IN_TURN),
            _ => None,
        };
        let served = self.release.clone();
        Release { version: version.map(str::to_owned).or(served.version.clone()), ..served }
    }

    /// Drafts and, for each draft of a step, the probability that it and all earlier ones are accepted; validated together
    /// with the scheduler.
    pub fn drafts(&self) -> Result<Option<(&SpeculativeSpec, Vec<f64>)>> {
        let Some(spec) = &self.speculative else { return Ok(None) };
        let Some(vllm) = self.vllm() else {
            let without = match self.kind() {
                EngineKind::LlamaCpp => " (llama-server without -md, -hfd and --spec-type)",
                EngineKind::Sglang => " (SGLang without --speculative-algorithm)",
                _ => "",
            };
            let accepted = format!(
                "0{without}, or the scheduler vllm: steps with drafts of other schedulers are not simulated; capacity and \
                 limits count the memory of the model's own layers, or of a drafter whose config draft_model names"
            );
            let drafts =
                format!("{} with the scheduler {}", spec.num_speculative_tokens, self.scheduler.name());
            let field = "engine.speculative.num_speculative_tokens";
            return Err(Error::field("spec", field, drafts, accepted));
        };
        let reached = spec.accepted()?;
        let first =
            DraftMethod::decided_ahead(spec.method).filter(|_| spec.share().is_ok_and(|share| share >= 1.0));
        if vllm.async_scheduling == Some(true) && !first.is_some_and(|[asked, _]| self.is_since(asked)) {
            let accepted = match first {
                Some([asked, _]) => format!("false with these drafts, or vLLM from {asked} on"),
                None => {
                    "false with drafts that not every step has: the host needs the tokens first".to_owned()
                }
            };
            return Err(Error::field("engine", "async_scheduling", "true", accepted));
        }
        Ok(Some((spec, reached)))
    }
}

/// Refuses values that the scheduler cannot have, whatever the model, the chip and the load.
fn check(spec: &EngineSpec, profile: &Profile) -> Result<()> {
    let refused =
        |field: &str, found: String, accepted: String| Err(Error::field("engine", field, found, accepted));
    if let Some(share) = spec.watermark.filter(|share| !(0.0..1.0).contains(share)) {
        return refused("watermark", share.to_string(), "0 to below 1".to_owned());
    }
    if let Some(gib) = spec.vllm.swap_space.filter(|gib| !(0.0..=1e6).contains(gib)) {
        return refused("swap_space", gib.to_string(), "0 to 10^6 GiB".to_owned());
    }
    let null_blocks = profile.null_blocks;
    if let Some(blocks) = spec.num_gpu_blocks.filter(|n| *n <= null_blocks || *n >= u64::from(u32::MAX)) {
        let accepted = "2 to 2^32 blocks; vLLM keeps one of them for itself".to_owned();
        return refused("num_gpu_blocks", blocks.to_string(), accepted);
    }
    if let (Some(fixed), Some(size)) =
        (profile.only_block_size, spec.block_size.filter(|s| profile.only_block_size != Some(*s)))
    {
        let accepted = format!("{fixed}: {} keeps its cache by the token", spec.scheduler().name());
        return refused("block_size", size.to_string(), accepted);
    }
    Ok(())
}
