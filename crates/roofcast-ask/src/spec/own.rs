//! Keys that only one engine has: the sections `[engine.vllm]`, `[engine.sglang]`,
//! `[engine.tensorrt-llm]` and `[engine.llama-cpp]`.
//!
//! Knows: the fields of the sections, and which of them are set. [`super::keys`] knows the schedulers of each key.

use super::keys::about;
use super::{
    EncoderTpMode, EvictionPolicy, KvOffloadingBackend, MambaStrategy, PreemptionMode, RetractionPolicy,
    SchedulePolicy, WritePolicy,
};
use serde::{Deserialize, Serialize};

/// Declares the section of an engine, with the list of its keys that are set.
macro_rules! section {
    ($(#[$of_section:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of_section])*
        #[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl $name {
            /// Names of the keys with another value than the default.
            pub(super) fn set(&self) -> Vec<&'static str> {
                let all = [$((stringify!($field), self.$field != <$type>::default())),*];
                all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
            }
        }
    };
}

section! {
    /// `[engine.vllm]`: keys that only vLLM has.
    VllmSpec {
        #[doc = about!("engine.vllm.max_num_active_seqs")]
        max_num_active_seqs: Option<u64>,
        #[doc = about!("engine.vllm.max_num_queued_reqs")]
        max_num_queued_reqs: Option<u64>,
        #[doc = about!("engine.vllm.max_num_queued_tokens")]
        max_num_queued_tokens: Option<u64>,
        #[doc = about!("engine.vllm.prefill_schedule_interval")]
        prefill_schedule_interval: Option<u64>,
        #[doc = about!("engine.vllm.long_prefill_token_threshold")]
        long_prefill_token_threshold: Option<u64>,
        #[doc = about!("engine.vllm.async_scheduling")]
        async_scheduling: Option<bool>,
        #[doc = about!("engine.vllm.api_server_count")]
        api_server_count: Option<u64>,
        #[doc = about!("engine.vllm.kv_offloading_size")]
        kv_offloading_size: Option<f64>,
        #[doc = about!("engine.vllm.kv_offloading_backend")]
        kv_offloading_backend: Option<KvOffloadingBackend>,
        #[doc = about!("engine.vllm.kv_offloading_eviction_policy")]
        kv_offloading_eviction_policy: Option<EvictionPolicy>,
        #[doc = about!("engine.vllm.kv_offloading_store_threshold")]
        kv_offloading_store_threshold: Option<u32>,
        #[doc = about!("engine.vllm.kv_offloading_prompt_only")]
        kv_offloading_prompt_only: Option<bool>,
        #[doc = about!("engine.vllm.kv_storage_size")]
        kv_storage_size: Option<f64>,
        #[doc = about!("engine.vllm.kv_storage_read_gb_s")]
        kv_storage_read_gb_s: Option<f64>,
        #[doc = about!("engine.vllm.kv_storage_write_gb_s")]
        kv_storage_write_gb_s: Option<f64>,
        #[doc = about!("engine.vllm.kv_storage_latency_ms")]
        kv_storage_latency_ms: Option<f64>,
        #[doc = about!("engine.vllm.enable_lora")]
        enable_lora: Option<bool>,
        #[doc = about!("engine.vllm.max_loras")]
        max_loras: Option<u64>,
        #[doc = about!("engine.vllm.max_lora_rank")]
        max_lora_rank: Option<u64>,
        #[doc = about!("engine.vllm.max_cpu_loras")]
        max_cpu_loras: Option<u64>,
        #[doc = about!("engine.vllm.fully_sharded_loras")]
        fully_sharded_loras: Option<bool>,
        #[doc = about!("engine.vllm.mm_encoder_tp_mode")]
        mm_encoder_tp_mode: Option<EncoderTpMode>,
        #[doc = about!("engine.vllm.mm_processor_kwargs")]
        mm_processor_kwargs: Option<String>,
        #[doc = about!("engine.vllm.preemption_mode")]
        preemption_mode: PreemptionMode,
        #[doc = about!("engine.vllm.swap_space")]
        swap_space: Option<f64>,
    }
}

section! {
    /// `[engine.sglang]`: keys that only SGLang has.
    SglangSpec {
        #[doc = about!("engine.sglang.schedule_policy")]
        schedule_policy: SchedulePolicy,
        #[doc = about!("engine.sglang.chunked_prefill_size")]
        chunked_prefill_size: Option<i64>,
        #[doc = about!("engine.sglang.max_prefill_tokens")]
        max_prefill_tokens: Option<u64>,
        #[doc = about!("engine.sglang.enable_mixed_chunk")]
        enable_mixed_chunk: Option<bool>,
        #[doc = about!("engine.sglang.schedule_conservativeness")]
        schedule_conservativeness: Option<f64>,
        #[doc = about!("engine.sglang.prefill_max_requests")]
        prefill_max_requests: Option<u64>,
        #[doc = about!("engine.sglang.disable_radix_cache")]
        disable_radix_cache: Option<bool>,
        #[doc = about!("engine.sglang.max_mamba_cache_size")]
        max_mamba_cache_size: Option<u64>,
        #[doc = about!("engine.sglang.mamba_full_memory_ratio")]
        mamba_full_memory_ratio: Option<f64>,
        #[doc = about!("engine.sglang.mamba_radix_cache_strategy")]
        mamba_radix_cache_strategy: Option<MambaStrategy>,
        #[doc = about!("engine.sglang.enable_hierarchical_cache")]
        enable_hierarchical_cache: Option<bool>,
        #[doc = about!("engine.sglang.hicache_ratio")]
        hicache_ratio: Option<f64>,
        #[doc = about!("engine.sglang.hicache_size")]
        hicache_size: Option<f64>,
        #[doc = about!("engine.sglang.hicache_write_policy")]
        hicache_write_policy: Option<WritePolicy>,
        #[doc = about!("engine.sglang.disable_overlap_schedule")]
        disable_overlap_schedule: Option<bool>,
        #[doc = about!("engine.sglang.retraction_policy")]
        retraction_policy: Option<RetractionPolicy>,
        #[doc = about!("engine.sglang.enable_priority_scheduling")]
        enable_priority_scheduling: Option<bool>,
        #[doc = about!("engine.sglang.schedule_low_priority_values_first")]
        schedule_low_priority_values_first: Option<bool>,
        #[doc = about!("engine.sglang.disable_priority_preemption")]
        disable_priority_preemption: Option<bool>,
        #[doc = about!("engine.sglang.priority_scheduling_preemption_threshold")]
        priority_scheduling_preemption_threshold: Option<i64>,
        #[doc = about!("engine.sglang.scheduler_recv_interval")]
        scheduler_recv_interval: Option<u64>,
    }
}

section! {
    /// `[engine.tensorrt-llm]`: keys that only TensorRT-LLM has.
    TensorrtLlmSpec {
        #[doc = about!("engine.tensorrt-llm.batch_wait_timeout_iters")]
        batch_wait_timeout_iters: Option<u64>,
        #[doc = about!("engine.tensorrt-llm.batch_wait_max_tokens_ratio")]
        batch_wait_max_tokens_ratio: Option<f64>,
        #[doc = about!("engine.tensorrt-llm.disable_overlap_scheduler")]
        disable_overlap_scheduler: Option<bool>,
        #[doc = about!("engine.tensorrt-llm.attention_dp_enable_balance")]
        attention_dp_enable_balance: Option<bool>,
        #[doc = about!("engine.tensorrt-llm.attention_dp_time_out_iters")]
        attention_dp_time_out_iters: Option<u64>,
    }
}

section! {
    /// `[engine.llama-cpp]`: keys that only llama.cpp has.
    LlamaCppSpec {
        #[doc = about!("engine.llama-cpp.n_ctx")]
        n_ctx: Option<u64>,
        #[doc = about!("engine.llama-cpp.kv_unified")]
        kv_unified: Option<bool>,
        #[doc = about!("engine.llama-cpp.n_ubatch")]
        n_ubatch: Option<u64>,
        #[doc = about!("engine.llama-cpp.swa_full")]
        swa_full: Option<bool>,
        #[doc = about!("engine.llama-cpp.n_gpu_layers")]
        n_gpu_layers: Option<u64>,
        #[doc = about!("engine.llama-cpp.n_cpu_moe")]
        n_cpu_moe: Option<u64>,
        #[doc = about!("engine.llama-cpp.override_tensor")]
        override_tensor: Option<String>,
        #[doc = about!("engine.llama-cpp.no_kv_offload")]
        no_kv_offload: Option<bool>,
        #[doc = about!("engine.llama-cpp.cache_reuse")]
        cache_reuse: Option<u64>,
        #[doc = about!("engine.llama-cpp.cache_ram")]
        cache_ram: Option<i64>,
        #[doc = about!("engine.llama-cpp.ctx_checkpoints")]
        ctx_checkpoints: Option<u64>,
        #[doc = about!("engine.llama-cpp.slot_prompt_similarity")]
        slot_prompt_similarity: Option<f64>,
    }
}
