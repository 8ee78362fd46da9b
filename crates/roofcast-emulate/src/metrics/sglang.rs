//! SGLang's metrics.
//!
//! Source of names, labels and bounds: `sglang/srt/observability/metrics_collector.py` of the wheel of SGLang 0.5.23,
//! whose server exposes them with `--enable-metrics`. Only metrics for which the emulated engine has values are
//! included.

use super::exposition::{Exposition, quoted};
use super::{Metrics, label};

/// Histogram bounds of TTFT, in seconds.
pub(super) const TTFT: [f64; 18] =
    [0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0];
/// Histogram bounds of inter-token latency, in seconds.
pub(super) const ITL: [f64; 23] = [
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200,
    0.400, 0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0,
];
/// Histogram bounds of end-to-end latency, in seconds.
pub(super) const E2E: [f64; 22] = [
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
    600.0, 1200.0, 1800.0, 2400.0,
];
/// Histogram bounds of time in the queue, in seconds.
pub(super) const QUEUE: [f64; 40] = [
    0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0,
    50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0,
    1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0,
];
/// Histogram bounds of a prompt's or an answer's tokens.
pub(super) const TOKENS: [f64; 35] = [
    100.0, 300.0, 500.0, 700.0, 1e3, 1.5e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 9e3, 1e4, 1.25e4, 1.5e4,
    1.75e4, 2e4, 2.25e4, 2.5e4, 2.75e4, 3e4, 3.5e4, 4e4, 6e4, 8e4, 1e5, 2e5, 3e5, 4e5, 6e5, 8e5, 1e6, 1.1e6,
];

impl Metrics {
    fn sglang_labels(&self) -> String {
        format!("model_name={},engine_type=\"unified\"", quoted(&self.fixed.model))
    }

    /// Writes the metrics of one engine, by SGLang's names.
    pub(super) fn show_sglang(&self, text: &mut Exposition<'_>) {
        let rank = format!(
            "{},tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\",dp_rank=\"{}\"",
            self.sglang_labels(),
            self.fixed.engine
        );
        text.next(rank, self.created);
        self.show_scheduler(text);
        self.show_lag(text);
    }

    /// Writes the metrics of SGLang's scheduler process.
    fn show_scheduler(&self, text: &mut Exposition<'_>) {
        let (usage, _) = self.load();
        let size = self.fixed.block_size;
        let room = self.fixed.num_gpu_blocks.saturating_sub(1) * size;
        let used = self.levels.blocks * size;
        let waiting = self.levels.waiting - self.deferred;
        let hit = self.counts.hit as f64 / self.counts.queried.max(1) as f64;
        let gauges = [
            ("sglang:num_running_reqs", "The number of running requests.", self.levels.running as f64),
            ("sglang:num_queue_reqs", "The number of requests in the waiting queue.", waiting as f64),
            ("sglang:num_used_tokens", "The number of used tokens.", used as f64),
            ("sglang:token_usage", "The token usage.", usage),
            ("sglang:cache_hit_rate", "The prefix cache hit rate, since the start here.", hit),
            ("sglang:kv_used_tokens", "Token slots in use in the KV cache pool.", used as f64),
            ("sglang:max_total_num_tokens", "Token slots of the KV cache pool.", room as f64),
            ("sglang:page_size", "Tokens of a page of the KV cache.", size as f64),
            ("sglang:num_pages", "Pages of the KV cache.", (room / size.max(1)) as f64),
            ("sglang:context_len", "The longest context.", self.fixed.max_model_len as f64),
            (
                "sglang:num_retracted_reqs",
                "Retracted requests, since the start here.",
                self.counts.preemptions as f64,
            ),
            (
                "sglang:num_decode_transfer_queue_reqs",
                "Requests whose caches are on their way.",
                self.deferred as f64,
            ),
        ];
        gauges.into_iter().for_each(|(name, help, value)| text.gauge((name, help), value));
        text.histogram(("sglang:queue_time_seconds", "Seconds in the queue."), &self.queue);
    }

    /// Writes the metrics of SGLang's server process, once for all engines.
    pub(super) fn show_sglang_server(&self, text: &mut Exposition<'_>) {
        text.next(self.sglang_labels(), self.created);
        let streams = ["false", "true"].map(|streams| label("is_streaming", streams));
        let [whole, streamed] = &self.served;
        let counters = [
            ("sglang:prompt_tokens", "Prefill tokens processed.", [whole.prompt, streamed.prompt]),
            ("sglang:generation_tokens", "Tokens generated.", [whole.generated, streamed.generated]),
            ("sglang:num_requests", "Requests processed.", [whole.finished, streamed.finished]),
        ];
        for (name, help, values) in counters {
            let values: Vec<_> = streams.iter().cloned().zip(values).collect();
            text.counters((name, help), &values);
        }
        let cached = [(label("cache_source", "device"), self.counts.prompt_cached)];
        text.counters(("sglang:cached_tokens", "Cached prompt tokens, by where they were."), &cached);
        text.counter(("sglang:num_aborted_requests", "Requests aborted."), self.counts.aborted);
        let histograms = [
            (
                "sglang:time_to_first_token_seconds",
                "Seconds to the first token.",
                [&whole.ttft, &streamed.ttft],
            ),
            (
                "sglang:request_time_per_output_token_seconds",
                "Seconds per token after a request's first.",
                [&whole.tpot, &streamed.tpot],
            ),
            (
                "sglang:e2e_request_latency_seconds",
                "Seconds from arrival to last token.",
                [&whole.e2e, &streamed.e2e],
            ),
        ];
        for (name, help, values) in histograms {
            let values: Vec<_> = streams.iter().cloned().zip(values).collect();
            text.histograms((name, help), &values);
        }
        text.histogram(("sglang:inter_token_latency_seconds", "Seconds between tokens."), &self.itl);
        let [prompt, generated, _, _, computed] = &self.tokens;
        text.histogram(("sglang:prompt_tokens_histogram", "Tokens of prompts."), prompt);
        text.histogram(
            ("sglang:uncached_prompt_tokens_histogram", "Tokens of prompts that were computed."),
            computed,
        );
        text.histogram(("sglang:generation_tokens_histogram", "Tokens of answers."), generated);
    }
}
