//! Every key of a spec: its path, its flag, the schedulers that have it, and its description.
//!
//! Knows: name, type and one line of description for each key, from which flags, `--help`, sweeps and the comments of a
//! written spec are generated; and the schedulers of a key that not all schedulers have, from which refusals follow.
//! Knows nothing about how keys depend on each other.

mod declared;
mod headings;

use super::{EngineKind, SchedulerKind};
use declared::{key, llama_cpp, offloads, rare, reserving, sglang, tensorrt_llm, toml, vllm, vllm_v0};
pub(crate) use headings::about_section;

/// Types of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A word.
    Word,
    /// A whole number.
    Whole,
    /// A number.
    Real,
    /// `true` or `false`.
    Switch,
    /// Words, separated by commas.
    Words,
    /// Whole numbers, separated by commas.
    Wholes,
    /// A table or a list of numbers, which only TOML can express.
    Toml,
}

/// One key of a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecKey {
    /// Dotted path, as in `engine.max_num_seqs` or, for a key that one engine has, `engine.sglang.hicache_ratio`.
    pub path: &'static str,
    /// Name of the flag without dashes; `None` if only `--set` sets the key.
    pub flag: Option<&'static str>,
    /// Type of the value.
    pub kind: ValueType,
    /// Description of the key, with unit and default.
    pub about: &'static str,
    /// True if the short help omits the key.
    pub rare: bool,
    /// Schedulers that have the key; empty if all schedulers accept it.
    pub(crate) schedulers: &'static [SchedulerKind],
}

impl SpecKey {
    /// The top-level section of the key: `engine` for `engine.speculative.draft_model`.
    pub fn section(&self) -> &'static str {
        self.path.split('.').next().unwrap_or_default()
    }

    /// The key's name within its section: `hicache_ratio` for `engine.sglang.hicache_ratio`.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// The only engine that has the key, in whose section of `[engine]` it stands; `None` for other keys.
    pub fn owner(&self) -> Option<EngineKind> {
        let (section, _) = self.path.strip_prefix("engine.")?.split_once('.')?;
        Some(EngineKind::of_section(section)).filter(|kind| *kind != EngineKind::Other)
    }

    /// The path at which flags set the key. A key that one engine has is set in `[engine]`, so that it is refused
    /// under other engines.
    pub fn flat(&self) -> String {
        self.owner().map_or_else(|| self.path.to_owned(), |_| format!("engine.{}", self.name()))
    }

    /// True if `path` is the key's path, or the path at which flags set it.
    fn is_at(&self, path: &str) -> bool {
        let flat = || path.strip_prefix("engine.") == Some(self.name()) && self.owner().is_some();
        self.path == path || flat()
    }
}

/// The key at a dotted path; a key that one engine has is also found at its path in `[engine]`.
pub fn at(path: &str) -> Option<&'static SpecKey> {
    KEYS.iter().find(|key| key.is_at(path))
}

/// The key with this path or flag. Dashes and underscores are equivalent, and `users` is the concurrency.
pub(crate) fn find(name: &str) -> Option<&'static SpecKey> {
    let flag = if name == "users" { "concurrency".to_owned() } else { name.replace('_', "-") };
    let named = |key: &&SpecKey| key.flag == Some(flag.as_str()) && key.section() != "search";
    at(name).or_else(|| KEYS.iter().find(named))
}

use ValueType::{Real, Switch, Toml, Whole, Wholes, Word, Words};

/// Declares [`KEYS`], and the macro `about!`, which expands to the description of a key: the fields of a spec's sections
/// take their doc comments from it.
macro_rules! keys {
    ($($function:ident($path:tt, $($flag:literal,)? $kind:ident, $about:tt),)*) => {
        /// All keys, in the order in which a spec is written and settings are applied.
        pub const KEYS: &[SpecKey] = &[$($function($path, $($flag,)? $kind, $about)),*];

        macro_rules! about {
            $(($path) => { $about };)*
        }

        pub(super) use about;
    };
}

keys! {
    key("model.name", "model", Word, "catalog id, or a path to a config.json, its folder, a .gguf or .safetensors"),
    toml("model.path", Word, "a config.json or its folder, from this file's folder; instead of name"),
    key("hardware.accelerator", "hardware", Word, "accelerator, as in h100-sxm, or a TOML file with one"),
    key("hardware.count", "count", Whole, "number of accelerators in total"),
    rare("hardware.power_limit_w", "power-limit", Real, "power limit of each accelerator in watts, as nvidia-smi -pl sets it [default: its board power]"),
    rare("hardware.host_bandwidth_gb_s", "host-bandwidth", Real, "GB/s of the host's memory, from which its processor reads weights that lie there [default: the catalog's, else 83.2, two channels of DDR5-5200]"),
    rare("hardware.memory_used_gib", "memory-used", Real, "GiB of each accelerator's memory that other processes hold when the engine starts [default: 0]"),
    rare("hardware.grid_g_per_kwh", "grid-g-per-kwh", Real, "grams of CO2 equivalent that the grid emits per kWh; results then have emissions beside dollars"),
    rare("hardware.usd_per_kwh", "usd-per-kwh", Real, "dollars per kWh: the accelerators are owned, and a run costs the electricity that they draw in place of a rent"),
    rare("hardware.pue", "pue", Real, "power usage effectiveness of the site, by which emissions are multiplied: energy of the site over energy of its machines [default: 1]"),
    key("hardware.ideal", "ideal", Switch, "nominal memory, perfect sharding and no reserved memory [default: false]"),
    rare("hardware.convention", "convention", Word, "count as default does, or as the text seed-003: nominal bits on every weight with lm_head, no input embedding, no norms, GiB/s"),
    key("precision.weights", "weights", Word, "weight format: bf16, fp16, fp8, nvfp4, w8, w4, gptq-int4, q4_k_m, … [default: the checkpoint's]"),
    toml("precision.online", Switch, "whether the engine quantizes weights of 16 bits itself as it loads them, as vLLM's --quantization fp8 does [default: false]"),
    rare("precision.activations", "activations", Word, "dtype of the arithmetic on quantized weights, for formats that are otherwise weight-only, as in int8"),
    key("precision.kv", "kv", Word, "KV-cache format: auto, 16, 8, fp8, int8, q8_0, … [default: auto]"),
    key("parallelism.tp", "tp", Whole, "tensor-parallel degree [default: the widest that the count and the heads allow]"),
    key("parallelism.pp", "pp", Whole, "number of pipeline stages [default: 1]"),
    key("parallelism.ep", "ep", Whole, "number of expert-parallel ranks [default: 1]"),
    key("parallelism.attention_dp", "attention-dp", Whole, "number of data-parallel ranks of attention [default: 1]"),
    key("parallelism.replicas", "replicas", Word, "whole copies; as a flag also 3P1D: three that compute prompts, one that decodes [default: as many as the count holds]"),
    key("engine.name", "engine", Word, "engine whose calibration counts: vllm, sglang, tensorrt-llm, llama.cpp; it brings its scheduler, as a flag in place of the file's [default: vllm]"),
    rare("engine.version", "engine-version", Word, "version of the engine, as in 0.11.2 [default: the newest that is calibrated]"),
    rare("engine.served", "served", Switch, "whether requests come through the engine's API server, not from a program that calls the engine in process [default: true]"),
    key("engine.scheduler", "scheduler", Word, "scheduling policy: vllm, vllm-v0, sglang, tensorrt-llm, llama.cpp, lightllm, sarathi, splitfuse, orca, static, … [default: the engine's, else vllm]"),
    key("engine.cost", "cost", Word, "price of a step: limit or forecast [default: forecast]"),
    key("engine.max_num_seqs", "max-num-seqs", Whole, "sequences that run at once [default: vLLM's for the chip]"),
    key("engine.max_num_batched_tokens", "max-num-batched-tokens", Whole, "token budget of a step [default: vLLM's for the chip]"),
    key("engine.block_size", "block-size", Whole, "tokens of a KV block [default: the scheduler's]"),
    rare("engine.num_gpu_blocks", "num-gpu-blocks", Whole, "KV blocks [default: as many as fit]"),
    key("engine.gpu_memory_utilization", "gpu-memory-utilization", Real, "fraction of device memory for the engine; for tensorrt-llm, fraction of the memory left by weights and activations [default: the engine's, as 0.92 in vLLM 0.33]"),
    key("engine.max_model_len", "max-model-len", Whole, "longest sequence that is served, in tokens [default: the model's]"),
    rare("engine.enable_chunked_prefill", "enable-chunked-prefill", Switch, "whether a prompt may be split over several steps (chunked prefill) [default: the scheduler's]"),
    key("engine.enable_prefix_caching", "enable-prefix-caching", Switch, "whether cached blocks are found by their content (prefix caching) [default: where prompts have tokens in common]"),
    rare("engine.policy", "policy", Word, "order of the queue: fcfs, priority, sjf [default: fcfs]"),
    toml("engine.length_prediction.kind", Word, "perfect, noisy (sigma) or proxy (accuracy) [default: perfect]"),
    toml("engine.length_prediction.sigma", Real, "the guess is the length times exp(sigma z), z normal"),
    toml("engine.length_prediction.accuracy", Real, "probability of the right power of two"),
    rare("engine.scheduler_reserve_full_isl", "scheduler-reserve-full-isl", Switch, "whether admission needs room for the whole known sequence [default: the scheduler's]"),
    rare("engine.watermark", "watermark", Real, "fraction of blocks kept free when admitting while others run [default: the scheduler's]"),
    rare("engine.mamba_ssm_dtype", "mamba-ssm-dtype", Word, "dtype of recurrent states: float32, bfloat16, float16 [default: the model's]"),
    rare("engine.decode_context_parallel_size", "decode-context-parallel-size", Whole, "tensor-parallel ranks that share the cached tokens of a sequence, in place of copies of KV heads or latents [default: 1]"),
    rare("engine.language_model_only", "language-model-only", Switch, "whether no encoders for images and sound are loaded [default: false]"),
    rare("engine.kv_cache_memory_bytes", "kv-cache-memory-bytes", Whole, "bytes of KV cache on each accelerator, in place of the bytes that gpu_memory_utilization leaves"),
    rare("engine.enforce_eager", "enforce-eager", Switch, "whether the host launches every kernel of a step without a CUDA graph [default: false]"),
    rare("engine.max_cudagraph_capture_size", "max-cudagraph-capture-size", Whole, "tokens of the largest step that a CUDA graph of vLLM captures; 0 for none with prompts, which is what other engines have [default: vLLM's, twice the tokens of max_num_seqs decodes up to 512, 1024 on data-centre Blackwell from 0.28 on]"),
    rare("engine.stream_interval", "stream-interval", Whole, "tokens of a request from one of its messages to the next; the first is sent at once. A server process spends its time by messages, which bounds small models [default: 1]"),
    rare("engine.attention_backend", "attention-backend", Word, "attention kernel of decodes: naive, flash-attention, flash-decoding [default: the kernels of the calibrated engines]"),
    rare("engine.quantization_kernel", "quantization-kernel", Word, "kernel of quantized weights, such as marlin, awq, exllama-v2 [default: the engine version's choice]"),
    rare("engine.fuse_layers", "fuse-layers", Switch, "whether projections with one input are one GEMM, and norms and rotations few launches [default: the engine's own choice]"),
    rare("engine.frontend", "frontend", Word, "HTTP server between the engine and its clients: asyncio, dynamo, gevent [default: asyncio]"),
    reserving("engine.reservation", "reservation", Word, "what static and orca reserve for a request: max, pow2, oracle [default: max]"),
    rare("engine.kv_layout", "kv-layout", Word, "layout of a request's KV cache in memory: paged, flashinfer, vattention, contiguous [default: the scheduler's, with the bytes of block tables not counted]"),
    rare("engine.speculative.num_speculative_tokens", "num-speculative-tokens", Whole, "tokens drafted after each step of a sequence; 0 for none"),
    rare("engine.speculative.method", "spec-method", Word, "method of drafting: ngram, whose drafts are copied from earlier text, at no cost, and accepted all together or not at all; mtp, by the checkpoint's own layers; eagle, eagle3, dflash, by a draft_model that reads the model's hidden states [default: that of a draft_model, or of a draft_cost]"),
    rare("engine.speculative.draft_share", "draft-share", Real, "share, 0 to 1, of a sequence's steps that have drafts: drafts / (generated - accepted tokens) of the server's counters [default: 1; ngram has none]"),
    rare("engine.speculative.acceptance_rate", "acceptance-rate", Real, "probability, 0 to 1, that a draft is accepted if all earlier drafts of the step are; of ngram, accepted / drafted tokens"),
    rare("engine.speculative.acceptance_length", "acceptance-length", Real, "in place of acceptance_rate: mean tokens of a step with drafts of a sequence, the model's own included, 1 to num_speculative_tokens + 1, as vLLM's Mean acceptance length"),
    rare("engine.speculative.acceptance", "acceptance", Word, "in place of acceptance_rate: published figures of the model's drafts, by published or the name of a data set, as in SPEED-Bench coding"),
    toml("engine.speculative.acceptance_by_position", Toml, "in place of acceptance_rate: for each draft of a step, the probability, 0 to 1, that it is accepted if all earlier ones are, as in [0.8, 0.6]"),
    toml("engine.speculative.accepted_per_position", Toml, "in place of acceptance_rate: for each draft of a step, the fraction of steps with drafts in which it and all earlier ones are accepted, as vLLM's Per-position acceptance rate"),
    rare("engine.speculative.draft_model", "draft-model", Word, "catalog id or path of the model that drafts; or draft_cost"),
    rare("engine.speculative.draft_cost", "draft-cost", Real, "time to draft one token, as a fraction of the model's step time"),
    rare("engine.experts.all2all_backend", "all2all-backend", Word, "exchange of tokens between ranks with different experts: allgather_reducescatter, deepep_high_throughput, deepep_low_latency, deepep_auto [default: each token once to each rank of its experts, at a fraction of the links' rate]"),
    rare("engine.experts.enable_dbo", "enable-dbo", Switch, "whether a step is two microbatches, of which one computes while the other exchanges tokens (dual-batch overlap) [default: false]"),
    rare("engine.experts.dbo_decode_token_threshold", "dbo-decode-token-threshold", Whole, "tokens of a rank from which a step of decodes is split [default: 32]"),
    rare("engine.experts.dbo_prefill_token_threshold", "dbo-prefill-token-threshold", Whole, "tokens of a rank from which a step with prompts is split [default: 512]"),
    rare("engine.experts.expert_imbalance", "expert-imbalance", Real, "(max − mean)/mean of the tokens that ranks compute for their experts, without balancing [default: 0 of experts behind DeepEP, else the skew of the kernel times]"),
    rare("engine.experts.enable_eplb", "enable-eplb", Switch, "whether experts are placed on ranks by their load (expert-parallel load balancing) [default: false]"),
    rare("engine.experts.num_redundant_experts", "num-redundant-experts", Whole, "second copies of the most loaded experts of a layer, over all ranks, with enable_eplb [default: 0]"),
    rare("engine.experts.eplb_step_interval", "eplb-step-interval", Whole, "steps from one placement of experts to the next [default: 3000; of sglang 1000]"),
    vllm("engine.vllm.max_num_active_seqs", "max-num-active-seqs", Whole, "vLLM's second bound on the sequences that run at one time"),
    vllm("engine.vllm.max_num_queued_reqs", "max-num-queued-reqs", Whole, "requests of a replica, waiting or running, beyond which its server refuses new ones"),
    vllm("engine.vllm.max_num_queued_tokens", "max-num-queued-tokens", Whole, "prompt tokens without a first token from which a replica's server refuses requests"),
    vllm("engine.vllm.prefill_schedule_interval", "prefill-schedule-interval", Whole, "steps from one prefill to the next while requests decode; before vLLM 0.33 only in data-parallel engines"),
    vllm("engine.vllm.long_prefill_token_threshold", "long-prefill-token-threshold", Whole, "most tokens of one prompt in a step while others wait; 0 is no bound"),
    vllm("engine.vllm.async_scheduling", "async-scheduling", Switch, "whether two batches are in flight, vLLM's AsyncScheduler [default: from 0.14 on new requests wait as with it]"),
    vllm("engine.vllm.api_server_count", "api-server-count", Whole, "processes of vLLM's HTTP server, each of which reads its requests one after the other [default: one, from 0.15 on one for each data-parallel rank]"),
    vllm("engine.vllm.kv_offloading_size", "kv-offloading-size", Real, "GiB of host memory, over all ranks of an engine, in which vLLM also keeps KV cache [default: 0]"),
    vllm("engine.vllm.kv_offloading_backend", "kv-offloading-backend", Word, "vLLM's connector that keeps KV in host memory: native [default: native]"),
    vllm("engine.vllm.kv_offloading_eviction_policy", "kv-offloading-eviction-policy", Word, "order in which KV is evicted from the host, the connector's eviction_policy: lru, arc [default: lru]"),
    vllm("engine.vllm.kv_offloading_store_threshold", "kv-offloading-store-threshold", Whole, "number of times that KV must be offered before it is stored, the connector's store_threshold; below 2 it is stored at once [default: 0]"),
    vllm("engine.vllm.kv_offloading_prompt_only", "kv-offloading-prompt-only", Switch, "whether only the KV of prompts is stored, the connector's offload_prompt_only [default: true]"),
    vllm("engine.vllm.kv_storage_size", "kv-storage-size", Real, "GiB of a disk or file server below vLLM's host tier, over all ranks of an engine [default: 0]"),
    vllm("engine.vllm.kv_storage_read_gb_s", "kv-storage-read", Real, "GB/s at which an engine reads KV from it [default: 10]"),
    vllm("engine.vllm.kv_storage_write_gb_s", "kv-storage-write", Real, "GB/s at which an engine writes KV to it [default: 10]"),
    vllm("engine.vllm.kv_storage_latency_ms", "kv-storage-latency", Real, "milliseconds from the start of a copy to its first byte [default: 0.1]"),
    vllm("engine.vllm.enable_lora", "enable-lora", Switch, "whether vLLM serves LoRA adapters, which workload.adapters, classes or a trace name [default: false]"),
    vllm("engine.vllm.max_loras", "max-loras", Whole, "LoRA adapters whose requests run at once, each with a buffer on the device [default: 1]"),
    vllm("engine.vllm.max_lora_rank", "max-lora-rank", Whole, "rank with which LoRA adapters are computed, whatever their own: 1, 8, 16, 32, 64, 128, 256, 320 or 512 [default: 16]"),
    vllm("engine.vllm.max_cpu_loras", "max-cpu-loras", Whole, "LoRA adapters that the host keeps, from max_loras up; others are read from storage [default: max_loras]"),
    vllm("engine.vllm.fully_sharded_loras", "fully-sharded-loras", Switch, "whether tensor-parallel ranks divide both matrices of a LoRA adapter [default: false]"),
    vllm("engine.vllm.mm_encoder_tp_mode", "mm-encoder-tp-mode", Word, "what tensor-parallel ranks divide of an encoder: weights, or data, whole images [default: weights]"),
    offloads("engine.cpu_offload_gb", "cpu-offload-gb", Real, "GiB of each rank's weights in host memory, which vLLM reads over the host's link in every step, and SGLang copies [default: 0]"),
    vllm("engine.vllm.mm_processor_kwargs", "mm-processor-kwargs", Word, "bounds on images that the model's processor takes, as a JSON object: {\"max_pixels\": 1003520}"),
    vllm_v0("engine.vllm.preemption_mode", "preemption-mode", Word, "handling of a preempted request's KV cache: recompute, swap [default: recompute]"),
    vllm_v0("engine.vllm.swap_space", "swap-space", Real, "GiB of host memory per accelerator for swapped caches [default: 4]"),
    sglang("engine.sglang.schedule_policy", "schedule-policy", Word, "SGLang's order under policy fcfs: fcfs, lpm [default: fcfs]"),
    sglang("engine.sglang.chunked_prefill_size", "chunked-prefill-size", Whole, "SGLang's token budget of a step with prompts, beyond which a prompt is chunked; -1 keeps prompts whole"),
    sglang("engine.sglang.max_prefill_tokens", "max-prefill-tokens", Whole, "SGLang's most prompt tokens of a step; the first prompt may exceed this if prompts are whole"),
    sglang("engine.sglang.enable_mixed_chunk", "enable-mixed-chunk", Switch, "whether SGLang mixes decodes into prefill batches [default: false]"),
    sglang("engine.sglang.schedule_conservativeness", "schedule-conservativeness", Real, "factor on SGLang's initial estimate of new tokens; larger values admit fewer requests [default: 1]"),
    sglang("engine.sglang.prefill_max_requests", "prefill-max-requests", Whole, "most requests in a step with prompts, SGLang's [default: no bound]"),
    sglang("engine.sglang.disable_radix_cache", "disable-radix-cache", Switch, "whether SGLang keeps no prefix for other requests [default: false]"),
    sglang("engine.sglang.max_mamba_cache_size", "max-mamba-cache-size", Whole, "number of recurrent states in SGLang's pool [default: as many as fit in memory]"),
    sglang("engine.sglang.mamba_full_memory_ratio", "mamba-full-memory-ratio", Real, "bytes of SGLang's pool of recurrent states over the bytes of its KV pool [default: 0.9]"),
    sglang("engine.sglang.mamba_radix_cache_strategy", "mamba-radix-cache-strategy", Word, "strategy by which SGLang's radix cache keeps recurrent states: no_buffer, extra_buffer, extra_buffer_lazy [default: auto]"),
    sglang("engine.sglang.enable_hierarchical_cache", "enable-hierarchical-cache", Switch, "whether SGLang also keeps KV cache in host memory (HiCache) [default: false]"),
    sglang("engine.sglang.hicache_ratio", "hicache-ratio", Real, "tokens of HiCache's host pool over tokens of the device pool [default: 2]"),
    sglang("engine.sglang.hicache_size", "hicache-size", Real, "GB of HiCache's host pool of each rank, in place of hicache_ratio"),
    sglang("engine.sglang.hicache_write_policy", "hicache-write-policy", Word, "event at which HiCache copies KV to the host: write_through, write_through_selective, write_back [default: write_through]"),
    sglang("engine.sglang.disable_overlap_schedule", "disable-overlap-schedule", Switch, "whether SGLang schedules a step only after the results of the previous one [default: false]"),
    sglang("engine.sglang.retraction_policy", "retraction-policy", Word, "order in which SGLang retracts requests: length, priority [default: length]"),
    sglang("engine.sglang.enable_priority_scheduling", "enable-priority-scheduling", Switch, "whether SGLang's queue is in order of priority"),
    sglang("engine.sglang.schedule_low_priority_values_first", "schedule-low-priority-values-first", Switch, "whether smaller values have higher priority, SGLang's"),
    sglang("engine.sglang.disable_priority_preemption", "disable-priority-preemption", Switch, "whether a higher priority never preempts a running request, SGLang's [default: false]"),
    sglang("engine.sglang.priority_scheduling_preemption_threshold", "priority-scheduling-preemption-threshold", Whole, "difference in priority above which a request preempts another one, SGLang's [default: 10]"),
    sglang("engine.sglang.scheduler_recv_interval", "scheduler-recv-interval", Whole, "number of decode steps from one poll of SGLang for new requests to the next [default: 1]"),
    tensorrt_llm("engine.tensorrt-llm.batch_wait_timeout_iters", "batch-wait-timeout-iters", Whole, "most steps that TensorRT-LLM holds prompts until they fill a fraction of the token budget [default: 0]"),
    tensorrt_llm("engine.tensorrt-llm.batch_wait_max_tokens_ratio", "batch-wait-max-tokens-ratio", Real, "fraction of max_num_batched_tokens that ends TensorRT-LLM's hold of prompts, 0 to 1"),
    tensorrt_llm("engine.tensorrt-llm.disable_overlap_scheduler", "disable-overlap-scheduler", Switch, "whether TensorRT-LLM schedules a step only after the previous one, without overlap [default: false]"),
    tensorrt_llm("engine.tensorrt-llm.attention_dp_enable_balance", "attention-dp-enable-balance", Switch, "whether TensorRT-LLM holds prompts until every data-parallel rank has one [default: false]"),
    tensorrt_llm("engine.tensorrt-llm.attention_dp_time_out_iters", "attention-dp-time-out-iters", Whole, "most steps that attention_dp_enable_balance holds prompts [default: 50]"),
    llama_cpp("engine.llama-cpp.n_ctx", "ctx-size", Whole, "cells of llama.cpp's KV cache, which slots share or divide: -c [default: the model's context, or less if the memory is too small]"),
    llama_cpp("engine.llama-cpp.kv_unified", "kv-unified", Switch, "whether llama.cpp's slots share one cache, instead of equal parts: -kvu [default: true unless max_num_seqs is set]"),
    llama_cpp("engine.llama-cpp.n_ubatch", "ubatch-size", Whole, "llama.cpp's prompt tokens of a micro-batch: -ub [default: 512]"),
    llama_cpp("engine.llama-cpp.swa_full", "swa-full", Switch, "whether llama.cpp's layers with a sliding window keep the whole context: --swa-full [default: false]"),
    llama_cpp("engine.llama-cpp.n_gpu_layers", "n-gpu-layers", Whole, "llama.cpp's layers on the accelerator, the last ones, lm_head counted as one: -ngl [default: all]"),
    llama_cpp("engine.llama-cpp.n_cpu_moe", "n-cpu-moe", Whole, "llama.cpp's layers, the first ones, whose routed experts lie in host memory: --n-cpu-moe; 999 for all, --cpu-moe [default: 0]"),
    llama_cpp("engine.llama-cpp.override_tensor", "override-tensor", Word, "places of llama.cpp's tensors by their names, as in exps=CPU: patterns, separated by commas: -ot"),
    llama_cpp("engine.llama-cpp.no_kv_offload", "no-kv-offload", Switch, "whether llama.cpp keeps the whole KV cache in host memory: -nkvo [default: false]"),
    llama_cpp("engine.llama-cpp.cache_reuse", "cache-reuse", Whole, "least tokens of a piece of a kept prompt that llama.cpp reuses at another position: --cache-reuse; 0 for none [default: 0]"),
    llama_cpp("engine.llama-cpp.cache_ram", "cache-ram", Whole, "MiB of prompts that llama.cpp keeps in host memory; 0 for none, -1 for no bound [default: 8192]"),
    llama_cpp("engine.llama-cpp.ctx_checkpoints", "ctx-checkpoints", Whole, "most checkpoints of a slot of llama.cpp, to which a model with windows or recurrent states goes back [default: 32]"),
    llama_cpp("engine.llama-cpp.slot_prompt_similarity", "slot-prompt-similarity", Real, "share of a prompt, 0 to 1, from which on a request gets the slot of llama.cpp that has that part; 0 for the slot that is free longest [default: 0.1]"),
    key("workload.preset", "workload", Word, "published traffic, as in azure-conv-2023 or sharegpt; as a flag also a trace file"),
    key("workload.requests", "requests", Whole, "requests of a run [default: 1000 in a file, 10000 in the load of simulate, all of a trace; of bench 10 a user, at least 100]"),
    key("workload.seed", "seed", Whole, "seed of every draw [default: 0]"),
    toml("workload.rate", Real, "requests per second, in place of the preset's"),
    toml("workload.arrivals.kind", Word, "poisson, constant, gamma, profile, ramp, series, burst, offline, closed_loop, paced_users, sessions or trace"),
    key("workload.arrivals.rate", "rate", Real, "requests per second, of sessions new ones; over a trace its recorded times scaled to it"),
    key("workload.arrivals.concurrency", "concurrency", Whole, "users, each with one request in flight; of sessions how many go on at once; over a trace who send its requests in their order"),
    rare("workload.arrivals.burstiness", "burstiness", Real, "shape of gamma gaps: below 1 burstier than Poisson"),
    toml("workload.arrivals.counts", Toml, "numbers of requests in equal intervals, one after another, as in [12, 40, 7]: Poisson within each"),
    toml("workload.arrivals.from", Real, "requests per second at the start of a ramp"),
    toml("workload.arrivals.to", Real, "requests per second at its end"),
    toml("workload.arrivals.over_s", Real, "seconds of the change"),
    toml("workload.arrivals.points", Toml, "seconds and requests per second at the points of a series, as in [[0, 5], [60, 20]]; the rate changes linearly between them and stays after the last"),
    toml("workload.arrivals.size", Whole, "requests of a burst"),
    toml("workload.arrivals.every_s", Real, "seconds from burst to burst, or from one request of a paced user to the next"),
    rare("workload.arrivals.turns", "turns", Whole, "turns of a conversation: each prompt is all that was said, and input_len new tokens"),
    rare("workload.arrivals.think_s", "think-s", Real, "mean seconds between an answer and the user's next request [default: 0]"),
    rare("workload.arrivals.ramp_s", "ramp-s", Real, "seconds over which users begin, one after another; requests sent until then are not judged [default: 0, all at once; of plan and --find the time of a request at its slowest within the SLO]"),
    rare("workload.arrivals.turn_round_s", "turn-round-s", Real, "seconds from a request's last step until the same user's next request is at the server, thinking aside [default: 0.001]"),
    toml("workload.arrivals.path", Word, "recorded traffic"),
    toml("workload.arrivals.format", Word, "its format [default: seen from its first line]"),
    toml("workload.arrivals.spread", Switch, "whether requests of a trace with one recorded time are spread evenly until the next tick of its clock [default: false]"),
    toml("workload.arrivals.inter_turn_delay_cap_s", Real, "longest wait of a recorded session between an answer and the next turn, seconds [default: as recorded]"),
    toml("workload.arrivals.system_idle_gap_cap_s", Real, "longest time without a request in flight in recorded sessions, seconds; AgentX has 10 [default: as recorded]"),
    toml("workload.arrivals.trajectory_start_min_ratio", Real, "share of its waits that a recorded session in progress has behind it at the least when the run begins; ramp_s is the warm-up [default: 0]"),
    toml("workload.arrivals.trajectory_start_max_ratio", Real, "share of its waits that it has behind it at most [default: 1]"),
    toml("workload.arrivals.recycle", Switch, "whether recorded sessions in progress begin anew when all have begun; requests then bounds the run [default: false]"),
    toml("workload.arrivals.scale", Real, "factor on its times; below 1 is faster"),
    key("workload.input_len", "input-len", Whole, "prompt tokens; 8k is 8,000 and 8K is 8,192"),
    key("workload.output_len", "output-len", Whole, "tokens of an answer"),
    rare("workload.prefix.length", "prefix-len", Whole, "length of a prefix that prompts have in common in tokens, in addition to input_len"),
    rare("workload.prefix.count", "prefix-count", Whole, "number of different prefixes [default: 1]"),
    rare("workload.prefix.share", "prefix-share", Real, "fraction of the requests, or of the sessions if there are any, that have a prefix [default: 1]"),
    toml("workload.prefix.skew", Real, "Zipf's exponent: the k-th prefix is drawn with weight 1/k^skew [default: 0]"),
    toml("workload.priorities", Toml, "weight of each priority from 0, the most urgent"),
    rare("workload.adapters.count", "adapters", Whole, "number of LoRA adapters that requests name"),
    rare("workload.adapters.share", "adapter-share", Real, "fraction of the requests, or of the sessions if there are any, that name an adapter [default: 1]"),
    rare("workload.adapters.skew", "adapter-skew", Real, "Zipf's exponent: the k-th adapter is drawn with weight 1/k^skew [default: 0]"),
    rare("workload.images.count", "images", Whole, "number of images of a request, at the beginning of its prompt [default: 1]"),
    rare("workload.images.width", "image-width", Whole, "width of an image in pixels, with height"),
    rare("workload.images.height", "image-height", Whole, "height of an image in pixels"),
    rare("workload.images.frames", "video-frames", Whole, "number of frames of a video in place of an image, as sampled: 2 a second in Qwen's processors, 32 a video in vLLM by default"),
    rare("workload.images.tokens", "image-tokens", Whole, "tokens of an image, in place of width and height"),
    toml("workload.classes", Toml, "classes of requests, each a table with name, share, priority, input_len, output_len, adapter and slo"),
    rare("workload.max_concurrency", "max-concurrency", Whole, "requests that the client has in flight at most, whatever the rate"),
    toml("workload.max_tokens", Whole, "bound on generated tokens that clients set"),
    rare("fleet.router", "router", Word, "router policy that chooses a replica for each request: round_robin, least_loaded, power_of_two, prefix_aware, session_sticky, dynamo_kv, llm_d, cache_aware, kvaware, vllm_cache_aware, kv_aware, lmetric [default: round_robin]"),
    toml("fleet.routing.overlap_score_credit", Real, "dynamo_kv: blocks credited for a cached block [default: 1]"),
    toml("fleet.routing.host_cache_hit_weight", Real, "dynamo_kv: blocks credited for a block in vLLM's host tier [default: 0.75]"),
    toml("fleet.routing.host_prefix_cache_weight", Real, "llm_d: weight of the share of a prompt that is cached on any tier [default: 0]"),
    toml("fleet.routing.prefill_load_scale", Real, "dynamo_kv: weight of the blocks still to prefill [default: 1]"),
    toml("fleet.routing.decode_active_request_weight", Real, "dynamo_kv: weight of one request in flight, in blocks [default: 0]"),
    toml("fleet.routing.router_temperature", Real, "dynamo_kv, kv_aware: temperature of the choice; 0 chooses the least cost, above 0 it is drawn by softmax [default: 0]"),
    toml("fleet.routing.lora_affinity_weight", Real, "llm_d: weight of a replica's affinity to the request's LoRA adapter [default: 0]"),
    toml("fleet.routing.prefix_cache_weight", Real, "llm_d: weight of the cached share of a prompt [default: 3]"),
    toml("fleet.routing.queue_weight", Real, "llm_d: weight of the shorter queue [default: 2]"),
    toml("fleet.routing.kv_cache_utilization_weight", Real, "llm_d: weight of the free share of the KV cache [default: 2]"),
    toml("fleet.routing.cache_threshold", Real, "cache_aware, vllm_cache_aware: share of a prompt that must match [default: 0.3]"),
    toml("fleet.routing.balance_abs_threshold", Real, "cache_aware, vllm_cache_aware: largest difference in requests between the most and the least loaded replica for balanced loads [default: 64]"),
    toml("fleet.routing.balance_rel_threshold", Real, "cache_aware, vllm_cache_aware: largest ratio of the most to the least loaded replica for balanced loads [default: 1.5]"),
    toml("fleet.routing.kv_aware_threshold", Real, "kvaware: most uncached prompt tokens with which the choice is by cache [default: 2000]"),
    toml("fleet.routing.kv_penalty_host", Real, "kv_aware: tokens credited for a token in vLLM's host tier [default: 0.8]"),
    toml("fleet.routing.event_delay_s", Real, "dynamo_kv, llm_d, kvaware, kv_aware, lmetric: seconds from the end of a step until the router knows which blocks it stored or removed [default: 0]"),
    rare("fleet.link", "transfer-link", Word, "link of KV transfers from prefill to decode: nvlink, network, pcie [default: network with --replicas 3P1D]"),
    toml("fleet.max_local_prefill_length", Whole, "longest prompt in tokens that a decode replica computes itself, Dynamo's and TensorRT-LLM's key of conditional disaggregation [default: 0]"),
    toml("fleet.non_cached_tokens", Whole, "shortest prompt in tokens that goes to the prefill pool, llm-d's nonCachedTokens; 0 for none"),
    toml("fleet.prefill.accelerator", Word, "catalog id of the pool's accelerator [default: hardware.accelerator]"),
    toml("fleet.prefill.replicas", Whole, "number of replicas in the pool"),
    toml("fleet.prefill.router", Word, "router policy within the pool [default: fleet.router]"),
    toml("fleet.prefill.tp", Whole, "tensor-parallel degree"),
    toml("fleet.prefill.pp", Whole, "number of pipeline stages"),
    toml("fleet.prefill.ep", Whole, "number of expert-parallel ranks"),
    toml("fleet.prefill.attention_dp", Whole, "number of data-parallel ranks of attention"),
    toml("fleet.prefill.max_num_seqs", Whole, "sequences that run at once"),
    toml("fleet.prefill.max_num_batched_tokens", Whole, "token budget of a step"),
    toml("fleet.prefill.num_gpu_blocks", Whole, "KV blocks"),
    toml("fleet.decode.accelerator", Word, "catalog id of the pool's accelerator [default: hardware.accelerator]"),
    toml("fleet.decode.replicas", Whole, "number of replicas in the pool"),
    toml("fleet.decode.router", Word, "router policy within the pool [default: fleet.router]"),
    toml("fleet.decode.tp", Whole, "tensor-parallel degree"),
    toml("fleet.decode.pp", Whole, "number of pipeline stages"),
    toml("fleet.decode.ep", Whole, "number of expert-parallel ranks"),
    toml("fleet.decode.attention_dp", Whole, "number of data-parallel ranks of attention"),
    toml("fleet.decode.max_num_seqs", Whole, "sequences that run at once"),
    toml("fleet.decode.max_num_batched_tokens", Whole, "token budget of a step"),
    toml("fleet.decode.num_gpu_blocks", Whole, "KV blocks"),
    toml("fleet.beside_weight", Real, "weight of a replica of fleet.beside in the router, relative to an own replica [default: 1]"),
    toml("fleet.beside.accelerator", Word, "catalog id of the pool's accelerator"),
    toml("fleet.beside.replicas", Whole, "number of replicas in the pool"),
    toml("fleet.beside.tp", Whole, "tensor-parallel degree"),
    toml("fleet.beside.pp", Whole, "number of pipeline stages"),
    toml("fleet.beside.ep", Whole, "number of expert-parallel ranks"),
    toml("fleet.beside.attention_dp", Whole, "number of data-parallel ranks of attention"),
    toml("fleet.beside.max_num_seqs", Whole, "sequences that run at once"),
    toml("fleet.beside.max_num_batched_tokens", Whole, "token budget of a step"),
    toml("fleet.beside.num_gpu_blocks", Whole, "KV blocks"),
    toml("fleet.autoscale.rule", Word, "rule that starts and stops replicas: immediate (an arrival starts what it needs), or an autoscaler's: hpa, keda, ray-serve, dynamo [default: immediate]"),
    toml("fleet.autoscale.target_in_flight", Whole, "requests in flight per replica, waiting or running, that autoscaling aims at: averageValue of hpa, threshold of keda, target_ongoing_requests of ray-serve"),
    toml("fleet.autoscale.min_replicas", Whole, "fewest replicas, which are always up; 0 only with keda and ray-serve [default: 1]"),
    toml("fleet.autoscale.max_replicas", Whole, "most replicas that are up at one time"),
    toml("fleet.autoscale.startup_s", Real, "seconds from the start of a replica until it accepts requests"),
    toml("fleet.autoscale.idle_s", Real, "immediate: seconds without a request after which a replica stops"),
    toml("fleet.autoscale.hpa.sync_period_s", Real, "seconds between two decisions, --horizontal-pod-autoscaler-sync-period [default: 15]"),
    toml("fleet.autoscale.hpa.tolerance", Real, "deviation of the metric from its target that changes nothing [default: 0.1]"),
    toml("fleet.autoscale.hpa.scale_up.stabilization_window_seconds", Real, "seconds whose lowest recommendation applies to starts [default: 0]"),
    toml("fleet.autoscale.hpa.scale_up.select_policy", Word, "choice among the policies: Max, Min or Disabled [default: Max]"),
    toml("fleet.autoscale.hpa.scale_up.policies", Toml, "bounds on starts within a period [default: 4 Pods and 100 Percent in 15 s]"),
    toml("fleet.autoscale.hpa.scale_down.stabilization_window_seconds", Real, "seconds whose highest recommendation applies to stops [default: 300]"),
    toml("fleet.autoscale.hpa.scale_down.select_policy", Word, "choice among the policies: Max, Min or Disabled [default: Max]"),
    toml("fleet.autoscale.hpa.scale_down.policies", Toml, "bounds on stops within a period, as in [{ type = \"Percent\", value = 10, period_seconds = 60 }] [default: 100 Percent in 15 s]"),
    toml("fleet.autoscale.keda.polling_interval", Real, "seconds between two looks at the trigger, for the way from and to zero [default: 30]"),
    toml("fleet.autoscale.keda.cooldown_period", Real, "seconds since the trigger was last active after which the last replica stops [default: 300]"),
    toml("fleet.autoscale.keda.activation_threshold", Real, "requests in flight above which the trigger is active [default: 0]"),
    toml("fleet.autoscale.ray-serve.look_back_period_s", Real, "seconds over which requests in flight are averaged [default: 30]"),
    toml("fleet.autoscale.ray-serve.metrics_interval_s", Real, "seconds between two reports to the controller [default: 10]"),
    toml("fleet.autoscale.ray-serve.upscale_delay_s", Real, "seconds in which every decision must ask for more replicas before they start [default: 30]"),
    toml("fleet.autoscale.ray-serve.downscale_delay_s", Real, "seconds in which every decision must ask for fewer replicas before they stop [default: 600]"),
    toml("fleet.autoscale.ray-serve.downscale_to_zero_delay_s", Real, "seconds for the last replica [default: downscale_delay_s]"),
    toml("fleet.autoscale.ray-serve.upscaling_factor", Real, "factor on the number of replicas that are missing [default: 1]"),
    toml("fleet.autoscale.ray-serve.downscaling_factor", Real, "factor on the number of replicas that are too many [default: 1]"),
    toml("fleet.autoscale.dynamo.optimization_target", Word, "aim of the planner: throughput, latency, load or sla [default: throughput]"),
    toml("fleet.autoscale.dynamo.load_adjustment_interval_seconds", Real, "throughput, latency, load: seconds between two decisions [default: 5]"),
    toml("fleet.autoscale.dynamo.decode_scale_up_kv_rate", Real, "load: per cent of a KV cache at which a replica is added"),
    toml("fleet.autoscale.dynamo.decode_scale_down_kv_rate", Real, "load: per cent of every KV cache at which a replica is removed"),
    toml("fleet.autoscale.dynamo.throughput_adjustment_interval_seconds", Real, "sla: seconds between two decisions [default: 180]"),
    toml("fleet.autoscale.dynamo.max_throughput_scaling_replicas", Whole, "sla: most replicas of one change [default: 8]"),
    toml("fleet.autoscale.dynamo.engine_rps", Real, "sla: requests a second that a replica sustains within the SLO"),
    toml("fleet.autoscale.dynamo.load_predictor", Word, "sla: predictor of the next interval's requests: constant or kalman; arima and prophet are refused"),
    toml("fleet.autoscale.dynamo.kalman_q_level", Real, "kalman: variance of the level's steps [default: 1]"),
    toml("fleet.autoscale.dynamo.kalman_q_trend", Real, "kalman: variance of the trend's steps [default: 0.1]"),
    toml("fleet.autoscale.dynamo.kalman_r", Real, "kalman: variance of an observation [default: 10]"),
    toml("fleet.autoscale.dynamo.kalman_min_points", Whole, "kalman: intervals before which the last one is the prediction [default: 5]"),
    toml("fleet.schedule.interval_s", Real, "length of an interval in seconds"),
    toml("fleet.schedule.startup_s", Real, "seconds from the start of a replica until it accepts requests; the replica starts this much before it is wanted [default: 0]"),
    toml("fleet.schedule.replicas", Wholes, "number of replicas that accept requests in each interval; the last number applies after the last interval"),
    toml("fleet.failures.mtbf_s", Real, "mean seconds between a replica's start and its failure, exponential (mean time between failures); or events"),
    toml("fleet.failures.restart_s", Real, "seconds from a failure until the replica accepts requests, with an empty cache"),
    toml("fleet.failures.retry", Switch, "whether requests of a failed replica are sent again, from the beginning; otherwise they fail [default: true]"),
    toml("fleet.failures.events", Toml, "planned failures in place of mtbf_s, as in [{ replica = 0, at_s = 60 }]"),
    toml("fleet.slow.replicas", Whole, "number of replicas, the first ones, that are slower than the others"),
    toml("fleet.slow.factor", Real, "factor on the times of their steps, as in 1.3"),
    toml("fleet.rate_limit.requests_per_s", Real, "requests a second that fill a gateway's token bucket, which refuses (HTTP 429) when it is empty"),
    toml("fleet.rate_limit.request_burst", Real, "most requests that the bucket holds [default: one second's]"),
    toml("fleet.rate_limit.tokens_per_s", Real, "tokens a second that fill another bucket; a request takes its prompt and its bound on output"),
    toml("fleet.rate_limit.token_burst", Real, "most tokens that the bucket holds [default: one second's]"),
    toml("fleet.rate_limit.classes", Toml, "buckets of classes by name, in addition, as in { batch = { tokens_per_s = 2000 } }"),
    key("slo.ttft_p99_ms", "ttft-p99", Real, "time to first token, 99th percentile, ms"),
    rare("slo.ttft_p999_ms", "ttft-p999", Real, "time to first token, 99.9th percentile, ms"),
    rare("slo.ttft_p95_ms", "ttft-p95", Real, "time to first token, 95th percentile, ms"),
    rare("slo.ttft_p90_ms", "ttft-p90", Real, "time to first token, 90th percentile, ms"),
    rare("slo.ttft_p50_ms", "ttft-p50", Real, "time to first token, median, ms"),
    key("slo.tpot_p99_ms", "tpot-p99", Real, "time per output token, 99th percentile, ms"),
    rare("slo.tpot_p999_ms", "tpot-p999", Real, "time per output token, 99.9th percentile, ms"),
    rare("slo.tpot_p95_ms", "tpot-p95", Real, "time per output token, 95th percentile, ms"),
    rare("slo.tpot_p90_ms", "tpot-p90", Real, "time per output token, 90th percentile, ms"),
    rare("slo.tpot_p50_ms", "tpot-p50", Real, "time per output token, median, ms"),
    key("slo.tokens_per_s_user", "tokens-per-s-user", Real, "tokens per second that 99 of 100 users get at least: 1000 over TPOT p99 in ms"),
    key("slo.itl_p99_ms", "itl-p99", Real, "gap between tokens of an answer, 99th percentile, ms"),
    rare("slo.itl_p999_ms", "itl-p999", Real, "gap between tokens of an answer, 99.9th percentile, ms"),
    rare("slo.itl_p95_ms", "itl-p95", Real, "gap between tokens of an answer, 95th percentile, ms"),
    rare("slo.itl_p90_ms", "itl-p90", Real, "gap between tokens of an answer, 90th percentile, ms"),
    rare("slo.itl_p50_ms", "itl-p50", Real, "gap between tokens of an answer, median, ms"),
    key("slo.e2el_p99_ms", "e2el-p99", Real, "end-to-end latency, 99th percentile, ms"),
    rare("slo.e2el_p999_ms", "e2el-p999", Real, "end-to-end latency, 99.9th percentile, ms"),
    rare("slo.e2el_p95_ms", "e2el-p95", Real, "end-to-end latency, 95th percentile, ms"),
    rare("slo.e2el_p90_ms", "e2el-p90", Real, "end-to-end latency, 90th percentile, ms"),
    rare("slo.e2el_p50_ms", "e2el-p50", Real, "end-to-end latency, median, ms"),
    key("slo.goodput", "goodput", Real, "share of the requests that must keep every bound, of a plan [default: each bound at the 99th percentile]"),
    key("search.accelerators", "hardware", Words, "accelerators, as in h200-sxm,h100-sxm, or TOML files with one each"),
    key("search.max_accelerators", "max-accelerators", Whole, "most accelerators in total [default: 16]"),
    key("search.weights", "weights", Words, "weight formats, as in fp8,bf16 [default: the checkpoint's]"),
    key("search.kv", "kv", Words, "KV-cache formats [default: auto]"),
    key("search.tp", "tp", Wholes, "tensor-parallel degrees [default: every valid degree]"),
    toml("search.pp", Wholes, "numbers of pipeline stages [default: 1 and every number of whole nodes]"),
    toml("search.attention_dp", Wholes, "degrees of data-parallel attention [default: every one for models with experts, else 1]"),
    toml("search.ep", Wholes, "expert-parallel degrees [default: all ranks of a replica, and 1]"),
    toml("search.max_num_batched_tokens", Wholes, "token budgets of a step [default: the engine's, 2048 and 16384]"),
    toml("search.max_num_seqs", Wholes, "bounds on the sequences that run at once [default: the engine's]"),
    toml("search.engines", Words, "engines that are compared: vllm, sglang, tensorrt-llm [default: that of engine.name]"),
    toml("search.routers", Words, "routers to search [default: fleet.router, and prefix_aware for prompts that share prefixes]"),
    toml("search.enable_chunked_prefill", Toml, "with and without: [true, false] [default: as the engine has it]"),
    toml("search.enable_prefix_caching", Toml, "with and without: [true, false] [default: as the engine has it]"),
    toml("search.kv_offloading_size", Wholes, "GiB of vLLM's host tier, 0 for none, as in [0, 256] [default: as the engine has it]"),
    toml("search.host_memory_price", Real, "dollars per hour for one GiB of host memory, for the host tiers of a deployment [default: 0]"),
    toml("search.speculative", Toml, "with and without the drafts of [engine.speculative]: [true, false] [default: with them]"),
    key("search.disaggregated", "disaggregated", Switch, "also search disaggregated fleets"),
    toml("search.mixed", Switch, "also search fleets with replicas on two kinds of accelerator"),
    toml("search.link", Word, "link of KV transfers: nvlink, network or pcie [default: the fastest link between the accelerators]"),
    key("search.min_accelerators", "min-accelerators", Whole, "fewest accelerators in total [default: 1]"),
    key("search.requests", "requests", Whole, "requests of a simulation that proves a deployment [default: 10000, or those of the workload where they are more]"),
    key("search.interval_s", "over-time", Real, "seconds of an interval: also say how many replicas of the best an ideal autoscaler runs in each"),
    rare("search.startup_s", "startup", Real, "seconds from the start of a replica until it takes requests, over time [default: as capacity says]"),
    key("search.confidence", "confidence", Real, "lowest chance with which the best plan meets the SLO, given the bands of forecasts; 0 accepts what meets it as forecast [default: 0.8]"),
    key("search.minimise", "minimise", Word, "objective to minimise: cost_per_hour, cost_per_million_tokens, accelerators or energy [default: cost_per_hour]"),
    rare("search.prices", "price", Toml, "dollars per accelerator per hour, by catalog id, as in { h100-sxm = 2.1 } [default: the catalog's]"),
    rare("search.against_api", "against-api", Toml, "prices of an API in dollars per million tokens, prompts and outputs, which the best is compared with: 0.28,0.42, or with cached prompts 0.28,0.42,0.028"),
    rare("search.usd_per_kwh", "usd-per-kwh", Real, "dollars per kWh: accelerators are owned and cost the electricity of their board power, unless search.prices has a price"),
    toml("search.power_w", Toml, "watts of an accelerator with its part of a server, by catalog id, as in { h100-sxm = 1200 } [default: its board power]"),
}

#[cfg(test)]
mod tests;
