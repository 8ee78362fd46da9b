//! llama.cpp's metrics.
//!
//! Source: the `/metrics` of llama.cpp b11434, which its server has with `--metrics`.

use super::Metrics;
use super::exposition::Exposition;

/// Totals from which llama.cpp's gauges of speed count.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Computed tokens of prompts, and generated tokens.
    tokens: [u64; 2],
    /// Seconds of prompts, and of answers.
    seconds: [f64; 2],
}

impl Totals {
    pub(super) fn plus(&self, other: &Totals) -> Totals {
        Totals {
            tokens: [0, 1].map(|index| self.tokens[index] + other.tokens[index]),
            seconds: [0, 1].map(|index| self.seconds[index] + other.seconds[index]),
        }
    }
}

impl Metrics {
    /// The metrics for a scrape, after which the gauges that count from the last scrape begin again.
    pub(crate) fn scraped(&mut self) -> Metrics {
        let shown = self.clone();
        self.scraped = self.totals();
        shown
    }

    fn totals(&self) -> Totals {
        let all = self.all();
        let [_, prefill, decode] = &self.phases;
        Totals {
            tokens: [all.prompt.saturating_sub(self.counts.prompt_cached), all.generated],
            seconds: [prefill.sum(), decode.sum()],
        }
    }

    /// Writes all metrics of llama.cpp's server.
    pub(super) fn show_llama_cpp(&self, text: &mut Exposition<'_>) {
        let all = self.all();
        let [_, prefill, decode] = &self.phases;
        let computed = all.prompt - self.counts.prompt_cached;
        // A scrape empties the server's buckets, so that both rates count from the last one.
        let now = self.totals();
        let last = &self.scraped;
        let rate = |index: usize| {
            let tokens = now.tokens[index] - last.tokens[index];
            let seconds = now.seconds[index] - last.seconds[index];
            if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
        };
        let steps = self.lag.count();
        let totals = [
            (
                "llamacpp:prompt_tokens_total",
                "Number of prompt tokens processed, excluding cached tokens",
                computed as f64,
            ),
            (
                "llamacpp:prompt_tokens_cached_total",
                "Number of prompt tokens reused from the cache",
                self.counts.prompt_cached as f64,
            ),
            ("llamacpp:prompt_seconds_total", "Total time spent processing prompts", prefill.sum()),
            (
                "llamacpp:tokens_predicted_total",
                "Number of generation tokens processed",
                all.generated as f64,
            ),
            ("llamacpp:tokens_predicted_seconds_total", "Total time spent generating tokens", decode.sum()),
            ("llamacpp:n_decode_total", "Total number of decode calls", steps as f64),
            (
                "llamacpp:n_tokens_max",
                "Largest observed sequence length (prompt + generation)",
                self.counts.longest as f64,
            ),
            ("llamacpp:spec_decode_num_draft_tokens_total", "Draft tokens: not counted here", 0.0),
            (
                "llamacpp:spec_decode_num_accepted_tokens_total",
                "Draft tokens accepted: not counted here",
                0.0,
            ),
            ("llamacpp:spec_decode_num_drafts_total", "Drafts: not counted here", 0.0),
        ];
        text.next(String::new(), self.created);
        totals.into_iter().for_each(|(name, help, value)| text.total((name, help), value));
        let busy = self.counts.running_steps as f64 / steps.max(1) as f64;
        let gauges = [
            ("llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s", rate(0)),
            ("llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s", rate(1)),
            ("llamacpp:requests_processing", "Number of requests processing", self.levels.running as f64),
            ("llamacpp:requests_deferred", "Number of requests deferred", self.levels.waiting as f64),
            ("llamacpp:n_busy_slots_per_decode", "Average number of busy slots per decode call", busy),
        ];
        gauges.into_iter().for_each(|(name, help, value)| text.gauge((name, help), value));
        self.show_lag(text);
    }
}
