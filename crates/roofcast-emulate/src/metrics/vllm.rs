//! vLLM's metrics.
//!
//! Source of names, labels and bounds: the `/metrics` of vLLM 0.32 and `vllm/v1/metrics/loggers.py` of the wheels of 0.32 and 0.33,
//! in which it is equal.

use super::exposition::{Exposition, quoted};
use super::{Metrics, label};
use roofcast::engine::online::Levels;
use std::time::{SystemTime, UNIX_EPOCH};

/// Histogram bounds of TTFT, in seconds.
pub(super) const TTFT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Histogram bounds of inter-token latency, in seconds.
pub(super) const ITL: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Histogram bounds of the times of a whole request and its phases, in seconds.
pub(super) const PHASES: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

impl Metrics {
    /// Writes all metrics of one engine, by vLLM's names.
    pub(super) fn show_vllm(&self, text: &mut Exposition<'_>) {
        text.next(self.vllm_labels(), self.created);
        self.show_nothing(text);
        self.show_levels(text);
        self.show_counts(text);
        self.show_histograms(text);
        self.show_cache(text);
        self.show_drafts(text);
        self.show_host(text);
        self.show_lag(text);
    }

    /// Writes the counters of drafts, which vLLM has only where they are configured (`v1/spec_decode/metrics.py`).
    fn show_drafts(&self, text: &mut Exposition<'_>) {
        let each = self.fixed.num_speculative_tokens;
        if each == 0 {
            return;
        }
        let drafts: u64 = self.accepted.iter().sum();
        // Draft number n is accepted in all steps that accept more than n drafts.
        let by_position = (0..each as usize).map(|place| self.accepted.iter().skip(place + 1).sum::<u64>());
        let by_position: Vec<u64> = by_position.collect();
        text.counter(("vllm:spec_decode_num_drafts", "Steps of sequences with drafts."), drafts);
        text.counter(("vllm:spec_decode_num_draft_tokens", "Drafted tokens."), drafts * each);
        text.counter(("vllm:spec_decode_num_accepted_tokens", "Accepted drafts."), by_position.iter().sum());
        let places = by_position.iter().enumerate();
        let places: Vec<_> =
            places.map(|(place, count)| (label("position", &place.to_string()), *count)).collect();
        text.counters(
            ("vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted drafts by position."),
            &places,
        );
    }

    /// Writes the server's metrics, once for all engines.
    pub(super) fn show_vllm_server(&self, text: &mut Exposition<'_>) {
        let [requests, tokens] = self.counts.rejected;
        let reasons = [("max_num_queued_reqs", requests), ("max_num_queued_tokens", tokens)];
        let reasons = reasons.map(|(reason, count)| (label("reason", reason), count));
        text.next(format!("model_name={}", quoted(&self.fixed.model)), self.created);
        text.counters(("vllm:admission_rejections", "Requests refused at a full queue."), &reasons);
        text.relabel(String::new());
        self.show_adapters(text);
    }

    /// The labels of all samples of this engine.
    fn vllm_labels(&self) -> String {
        format!("engine=\"{}\",model_name={}", self.fixed.engine, quoted(&self.fixed.model))
    }

    /// Writes vLLM's metrics for which the emulator has no value: estimates of GPU work, images, remote caches.
    fn show_nothing(&self, text: &mut Exposition<'_>) {
        let none = "Always 0 here.";
        for name in [
            "vllm:estimated_flops_per_gpu",
            "vllm:estimated_read_bytes_per_gpu",
            "vllm:estimated_write_bytes_per_gpu",
            "vllm:mm_cache_queries",
            "vllm:mm_cache_hits",
        ] {
            text.counter((name, none), 0);
        }
    }

    fn show_levels(&self, text: &mut Exposition<'_>) {
        let Levels { running, waiting, .. } = self.levels;
        text.gauge(("vllm:num_requests_running", "Requests in the running batch."), running as f64);
        text.gauge(("vllm:num_requests_waiting", "Requests that wait to be scheduled."), waiting as f64);
        let reasons = [("capacity", waiting - self.deferred), ("deferred", self.deferred)];
        let reasons = reasons.map(|(reason, count)| (label("reason", reason), count as f64));
        let help =
            "Waiting requests by reason: capacity of the batch, or deferred until something else is done.";
        text.gauges(("vllm:num_requests_waiting_by_reason", help), &reasons);
        let states = [
            ("awake", self.asleep.is_none()),
            ("weights_offloaded", self.asleep == Some(1)),
            ("discard_all", self.asleep == Some(2)),
        ];
        let states = states.map(|(state, holds)| (label("sleep_state", state), f64::from(u8::from(holds))));
        text.gauges(("vllm:engine_sleep_state", "1 for the state that the engine is in."), &states);
        text.gauge(("vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1."), self.load().0);
    }

    /// Writes the adapters whose requests wait and run, as labels; the value is the time. Routers read it for adapter
    /// affinity.
    fn show_adapters(&self, text: &mut Exposition<'_>) {
        let Some(most) = self.fixed.max_loras else { return };
        let [waiting, running] = &self.adapters;
        let labels = [
            label("max_lora", &most.to_string()),
            label("running_lora_adapters", running),
            label("waiting_lora_adapters", waiting),
        ];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        text.gauges(
            ("vllm:lora_requests_info", "LoRA adapters whose requests wait and run."),
            &[(labels.join(","), now)],
        );
    }

    fn show_counts(&self, text: &mut Exposition<'_>) {
        let c = &self.counts;
        let all = self.all();
        let [looked_up, found] = c.external;
        let queried = "Tokens looked up in the prefix cache.";
        text.counter(("vllm:prefix_cache_queries", queried), c.queried);
        text.counter(("vllm:prefix_cache_hits", "Tokens found in the prefix cache."), c.hit);
        let queried = "Tokens looked up in caches of other instances.";
        text.counter(("vllm:external_prefix_cache_queries", queried), looked_up);
        let help = "Tokens found in caches of other instances.";
        text.counter(("vllm:external_prefix_cache_hits", help), found);
        text.counter(("vllm:num_preemptions", "Preemptions."), c.preemptions);
        text.counter(("vllm:prompt_tokens", "Prompt tokens processed."), all.prompt);
        let sources = [
            ("local_compute", all.prompt - c.prompt_cached),
            ("local_cache_hit", c.prompt_cached - c.prompt_external),
            ("external_kv_transfer", c.prompt_external),
        ];
        let sources = sources.map(|(source, count)| (label("source", source), count));
        text.counters(("vllm:prompt_tokens_by_source", "Prompt tokens by source."), &sources);
        text.counter(("vllm:prompt_tokens_cached", "Prompt tokens found in a cache."), c.prompt_cached);
        let tiers = ["device", "host", "p2p", "disk", "external_unspecified"];
        // `CPUOffloadingManager.get_load_source` of 0.33: a host tier's tokens are of the host.
        let outside = if self.fixed.host.is_some() { "host" } else { "external_unspecified" };
        let cached = |tier: &str| match tier {
            "device" => c.prompt_cached - c.prompt_external,
            tier if tier == outside => c.prompt_external,
            _ => 0,
        };
        let tiers = tiers.map(|tier| (label("source", tier), cached(tier)));
        let help = "Prompt tokens found in a cache, by where that is.";
        text.counters(("vllm:prompt_tokens_cached_by_source", help), &tiers);
        text.counter(("vllm:generation_tokens", "Tokens generated."), all.generated);
        let reasons = [
            ("stop", c.stopped),
            ("length", c.full_length),
            ("abort", c.aborted),
            ("error", 0),
            ("repetition", 0),
        ];
        let reasons = reasons.map(|(reason, count)| (label("finished_reason", reason), count));
        text.counters(("vllm:request_success", "Requests that ended, by reason."), &reasons);
    }

    fn show_histograms(&self, text: &mut Exposition<'_>) {
        let [prompt, generated, most, allowed, computed] = &self.tokens;
        let [inference, prefill, decode] = &self.phases;
        let served = self.all();
        let all = [
            ("vllm:request_prompt_tokens", "Prompt tokens of a request.", prompt),
            ("vllm:request_generation_tokens", "Tokens generated for a request.", generated),
            ("vllm:iteration_tokens_total", "Tokens computed in a step.", &self.iteration),
            (
                "vllm:request_max_num_generation_tokens",
                "The longest of a request's choices, in tokens.",
                most,
            ),
            ("vllm:request_params_n", "Choices requested.", &self.choices),
            ("vllm:request_params_max_tokens", "Tokens that a request allowed.", allowed),
            ("vllm:time_to_first_token_seconds", "Seconds to the first token.", &served.ttft),
            ("vllm:inter_token_latency_seconds", "Seconds between tokens.", &self.itl),
            (
                "vllm:request_time_per_output_token_seconds",
                "Seconds per token after a request's first.",
                &served.tpot,
            ),
            ("vllm:e2e_request_latency_seconds", "Seconds from arrival to last token.", &served.e2e),
            ("vllm:request_queue_time_seconds", "Seconds in the queue.", &self.queue),
            ("vllm:request_inference_time_seconds", "Seconds from admission to last token.", inference),
            ("vllm:request_prefill_time_seconds", "Seconds from admission to first token.", prefill),
            ("vllm:request_decode_time_seconds", "Seconds from first to last token.", decode),
            ("vllm:request_num_preemptions", "Preemptions of a request.", &self.preempted),
            (
                "vllm:request_prefill_kv_computed_tokens",
                "Prompt tokens computed, not found in a cache.",
                computed,
            ),
        ];
        all.into_iter().for_each(|(name, help, histogram)| text.histogram((name, help), histogram));
    }

    fn show_cache(&self, text: &mut Exposition<'_>) {
        let f = &self.fixed;
        let python = |value: bool| (if value { "True" } else { "False" }).to_owned();
        let labels = [
            ("block_size", f.block_size.to_string()),
            ("cache_dtype", f.cache_dtype.clone()),
            ("enable_prefix_caching", python(f.enable_prefix_caching)),
            ("gpu_memory_utilization", f.gpu_memory_utilization.to_string()),
            ("kv_cache_size_tokens", (f.num_gpu_blocks * f.block_size).to_string()),
            ("num_gpu_blocks", f.num_gpu_blocks.to_string()),
            ("prefix_caching_hash_algo", "sha256_cbor".to_owned()),
        ];
        let labels: Vec<_> = labels.iter().map(|(name, value)| label(name, value)).collect();
        text.gauges(("vllm:cache_config_info", "The KV cache's settings."), &[(labels.join(","), 1.0)]);
    }
}
