//! What `/metrics` says of one engine: vLLM's names, types, labels and buckets.
//!
//! Knows: what each of the engine's events adds to which metric. Times are seconds on the wall clock. Source of names, labels
//! and bounds: the `/metrics` of vLLM 0.32 and `vllm/v1/metrics/loggers.py` of its wheel.

mod exposition;
mod histogram;

use exposition::{Exposition, quoted};
use histogram::Histogram;
use roofcast::engine::online::Levels;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds to the first token.
const TTFT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Seconds between tokens.
const ITL: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds of a whole request and its phases.
const PHASES: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// Seconds that a step ends late by.
const LAG: [f64; 10] = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 0.1, 1.0, 10.0];

/// A step that ends so much later than forecast is late.
pub(super) const LATE: Duration = Duration::from_millis(10);

/// What never changes.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    pub(crate) model: String,
    pub(crate) engine: usize,
    pub(crate) max_model_len: u64,
    pub(crate) num_gpu_blocks: u64,
    pub(crate) block_size: u64,
    pub(crate) cache_dtype: String,
    pub(crate) enable_prefix_caching: bool,
    pub(crate) gpu_memory_utilization: f64,
}

/// What metrics say of a request beside its times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Tokens that the client allowed.
    pub(crate) max_tokens: u64,
    /// Whether it ends by itself, not by that bound.
    pub(crate) stops: bool,
    /// Choices asked for, where this is the last of them.
    pub(crate) choices: Option<u64>,
}

/// A request that has all its tokens, in seconds and counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) e2e: f64,
    pub(crate) queue: f64,
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
    pub(crate) inference: f64,
    pub(crate) prompt_tokens: u64,
    pub(crate) computed_prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) preemptions: u64,
}

/// One engine's metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    fixed: Fixed,
    created: f64,
    levels: Levels,
    counts: Counts,
    ttft: Histogram,
    itl: Histogram,
    tpot: Histogram,
    /// End to end, queue, inference, prefill, decode.
    phases: [Histogram; 5],
    /// Prompt, generated, the most generated of a request's choices, allowed, computed of the prompt.
    tokens: [Histogram; 5],
    iteration: Histogram,
    choices: Histogram,
    preempted: Histogram,
    lag: Histogram,
    latest_lag: Duration,
    late: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    queried: u64,
    hit: u64,
    preemptions: u64,
    prompt: u64,
    prompt_cached: u64,
    generated: u64,
    stopped: u64,
    full_length: u64,
    aborted: u64,
    /// By requests, by tokens.
    rejected: [u64; 2],
}

impl Metrics {
    pub(crate) fn new(fixed: Fixed) -> Metrics {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let phase = Histogram::new(&PHASES);
        let tokens = Histogram::one_two_five(fixed.max_model_len);
        let iteration: Vec<f64> =
            [1.0].into_iter().chain((3..15).map(|power| f64::from(1 << power))).collect();
        Metrics {
            created: since.as_secs_f64(),
            fixed,
            levels: Levels::default(),
            counts: Counts::default(),
            ttft: Histogram::new(&TTFT),
            itl: Histogram::new(&ITL),
            tpot: Histogram::new(&ITL),
            phases: [(); 5].map(|()| phase.clone()),
            tokens: [(); 5].map(|()| tokens.clone()),
            iteration: Histogram::new(&iteration),
            choices: Histogram::new(&[1.0, 2.0, 5.0, 10.0, 20.0]),
            preempted: Histogram::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
            lag: Histogram::new(&LAG),
            latest_lag: Duration::ZERO,
            late: 0,
        }
    }

    pub(crate) fn levels(&mut self, levels: Levels) {
        self.levels = levels;
    }

    pub(crate) fn stepped(&mut self, tokens: u64, lag: Duration) {
        self.iteration.add(tokens as f64);
        self.lag.add(lag.as_secs_f64());
        self.latest_lag = lag;
        self.late += u64::from(lag > LATE);
    }

    pub(crate) fn admitted(&mut self, prompt: u64, cached: u64, resumed: bool) {
        // What a request finds again after its preemption counts for neither.
        if self.fixed.enable_prefix_caching && !resumed {
            self.counts.queried += prompt;
            self.counts.hit += cached;
        }
    }

    pub(crate) fn preempted(&mut self) {
        self.counts.preemptions += 1;
    }

    pub(crate) fn first_token(&mut self, prompt: u64, cached: u64, ttft: f64) {
        self.counts.prompt += prompt;
        self.counts.prompt_cached += cached;
        self.ttft.add(ttft);
    }

    pub(crate) fn next_token(&mut self, itl: f64) {
        self.itl.add(itl);
    }

    pub(crate) fn generated(&mut self, tokens: u64) {
        self.counts.generated += tokens;
    }

    pub(crate) fn aborted(&mut self) {
        self.counts.aborted += 1;
    }

    /// A request was refused: there were too many, or too many tokens of them.
    pub(crate) fn rejected(&mut self, reason: usize) {
        self.counts.rejected[reason] += 1;
    }

    pub(crate) fn finished(&mut self, ended: &Ended, facts: Facts) {
        *(if facts.stops { &mut self.counts.stopped } else { &mut self.counts.full_length }) += 1;
        let phases = [ended.e2e, ended.queue, ended.inference, ended.prefill, ended.decode];
        self.phases.iter_mut().zip(phases).for_each(|(histogram, seconds)| histogram.add(seconds));
        let [prompt, generated, most, allowed, computed] = &mut self.tokens;
        prompt.add(ended.prompt_tokens as f64);
        generated.add(ended.generation_tokens as f64);
        allowed.add(facts.max_tokens as f64);
        computed.add(ended.computed_prompt_tokens as f64);
        if let Some(choices) = facts.choices {
            most.add(ended.generation_tokens as f64);
            self.choices.add(choices as f64);
        }
        if ended.generation_tokens > 1 {
            self.tpot.add(ended.decode / (ended.generation_tokens - 1) as f64);
        }
        self.preempted.add(ended.preemptions as f64);
    }

    /// Steps that ended late, and all.
    pub(crate) fn late(&self) -> (u64, u64) {
        (self.late, self.lag.count())
    }

    /// All of it as text.
    pub(crate) fn text(&self) -> String {
        let mut text = Exposition::new(self.labels(), self.created);
        self.show_nothing(&mut text);
        self.show_levels(&mut text);
        self.show_counts(&mut text);
        self.show_histograms(&mut text);
        self.show_cache(&mut text);
        let help = "Seconds by which steps ended later than forecast: what the emulator itself adds.";
        text.histogram(("roofcast:schedule_lag_seconds", help), &self.lag);
        let help = "Seconds by which the last step ended late.";
        text.gauge(("roofcast:latest_schedule_lag_seconds", help), self.latest_lag.as_secs_f64());
        text.text()
    }

    /// The labels of all samples of this engine.
    fn labels(&self) -> String {
        format!("engine=\"{}\",model_name={}", self.fixed.engine, quoted(&self.fixed.model))
    }

    /// What vLLM has and this has nothing to say of: estimates of what a GPU did, images, caches elsewhere.
    fn show_nothing(&self, text: &mut Exposition) {
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

    /// The share of the KV blocks in use, and the requests that wait.
    pub(crate) fn load(&self) -> (f64, f64) {
        let usage = self.levels.blocks as f64 / (self.fixed.num_gpu_blocks - 1).max(1) as f64;
        (usage, self.levels.waiting as f64)
    }

    fn show_levels(&self, text: &mut Exposition) {
        let Levels { running, waiting, .. } = self.levels;
        text.gauge(("vllm:num_requests_running", "Requests in the running batch."), running as f64);
        text.gauge(("vllm:num_requests_waiting", "Requests that wait to be scheduled."), waiting as f64);
        let reasons = [("capacity", waiting), ("deferred", 0)];
        let reasons = reasons.map(|(reason, count)| (label("reason", reason), count as f64));
        let help =
            "Waiting requests by reason: capacity of the batch, or deferred until something else is done.";
        text.gauges(("vllm:num_requests_waiting_by_reason", help), &reasons);
        let states = [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)];
        let states = states.map(|(state, value)| (label("sleep_state", state), value));
        text.gauges(("vllm:engine_sleep_state", "1 for the state that the engine is in."), &states);
        text.gauge(("vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1."), self.load().0);
    }

    fn show_counts(&self, text: &mut Exposition) {
        let c = &self.counts;
        let queried = "Tokens looked up in the prefix cache.";
        text.counter(("vllm:prefix_cache_queries", queried), c.queried);
        text.counter(("vllm:prefix_cache_hits", "Tokens found in the prefix cache."), c.hit);
        let queried = "Tokens looked up in caches of other instances.";
        text.counter(("vllm:external_prefix_cache_queries", queried), 0);
        text.counter(("vllm:external_prefix_cache_hits", "Tokens found in caches of other instances."), 0);
        text.counter(("vllm:num_preemptions", "Preemptions."), c.preemptions);
        text.counter(("vllm:prompt_tokens", "Prompt tokens processed."), c.prompt);
        let sources = [
            ("local_compute", c.prompt - c.prompt_cached),
            ("local_cache_hit", c.prompt_cached),
            ("external_kv_transfer", 0),
        ];
        let sources = sources.map(|(source, count)| (label("source", source), count));
        text.counters(("vllm:prompt_tokens_by_source", "Prompt tokens by where they came from."), &sources);
        text.counter(("vllm:prompt_tokens_cached", "Prompt tokens found in a cache."), c.prompt_cached);
        let tiers = ["device", "host", "p2p", "disk", "external_unspecified"];
        let cached = |tier: &str| if tier == "device" { c.prompt_cached } else { 0 };
        let tiers = tiers.map(|tier| (label("source", tier), cached(tier)));
        let help = "Prompt tokens found in a cache, by where that is.";
        text.counters(("vllm:prompt_tokens_cached_by_source", help), &tiers);
        text.counter(("vllm:generation_tokens", "Tokens generated."), c.generated);
        let reasons = [
            ("stop", c.stopped),
            ("length", c.full_length),
            ("abort", c.aborted),
            ("error", 0),
            ("repetition", 0),
        ];
        let reasons = reasons.map(|(reason, count)| (label("finished_reason", reason), count));
        text.counters(("vllm:request_success", "Requests that ended, by reason."), &reasons);
        let [requests, tokens] = c.rejected;
        let reasons = [("max_num_queued_reqs", requests), ("max_num_queued_tokens", tokens)];
        let reasons = reasons.map(|(reason, count)| (label("reason", reason), count));
        // The server refuses, not an engine of it.
        text.relabel(format!("model_name={}", quoted(&self.fixed.model)));
        text.counters(("vllm:admission_rejections", "Requests refused at a full queue."), &reasons);
        text.relabel(self.labels());
    }

    fn show_histograms(&self, text: &mut Exposition) {
        let [prompt, generated, most, allowed, computed] = &self.tokens;
        let [e2e, queue, inference, prefill, decode] = &self.phases;
        let all = [
            ("vllm:request_prompt_tokens", "Prompt tokens of a request.", prompt),
            ("vllm:request_generation_tokens", "Tokens generated for a request.", generated),
            ("vllm:iteration_tokens_total", "Tokens computed in a step.", &self.iteration),
            (
                "vllm:request_max_num_generation_tokens",
                "The longest of a request's choices, in tokens.",
                most,
            ),
            ("vllm:request_params_n", "Choices that a request asked for.", &self.choices),
            ("vllm:request_params_max_tokens", "Tokens that a request allowed.", allowed),
            ("vllm:time_to_first_token_seconds", "Seconds to the first token.", &self.ttft),
            ("vllm:inter_token_latency_seconds", "Seconds between tokens.", &self.itl),
            (
                "vllm:request_time_per_output_token_seconds",
                "Seconds per token after a request's first.",
                &self.tpot,
            ),
            ("vllm:e2e_request_latency_seconds", "Seconds from arrival to last token.", e2e),
            ("vllm:request_queue_time_seconds", "Seconds in the queue.", queue),
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

    fn show_cache(&self, text: &mut Exposition) {
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

fn label(name: &str, value: &str) -> String {
    format!("{name}={}", quoted(value))
}
