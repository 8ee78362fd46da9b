//! The `settings` column: settings of server and client, as `key=value;key=value`.
//!
//! Knows: the keys that change a forecast, under the names that vLLM, SGLang and their benchmark clients use, and
//! collects the names of all other keys. Knows nothing about deployments.

use roofcast_ask::spec::{EngineKind, EngineSpec};
use roofcast_facts::error::{Error, Result};
use std::collections::BTreeSet;

/// Standard deviation of the logarithm of ShareGPT's lengths, of prompts and of answers. A log-normal distribution
/// with this value has a standard deviation of 1.1 times its mean; the first turns that benchmark clients send
/// (prompts up to 1,024 tokens) have 1.13 times.
const SHAREGPT_SIGMA: f64 = 0.9;
/// Bounds on ShareGPT's lengths in tokens that clients apply: at least 4, and prompts at most 1,024
/// (`is_valid_sequence` of vLLM's benchmarks, 0.11).
pub(crate) const SHAREGPT_TOKENS: [u64; 2] = [4, 1024];

/// Server flags with a value that change a forecast, with underscores in place of dashes.
const VALUES: [&str; 12] = [
    "max_num_seqs",
    "max_running_requests",
    "max_batch_size",
    "max_num_batched_tokens",
    "max_num_tokens",
    "chunked_prefill_size",
    "max_model_len",
    "max_seq_len",
    "max_cudagraph_capture_size",
    "stream_interval",
    "gpu_memory_utilization",
    "mem_fraction_static",
];
/// Server flags without a value, which switch a feature on.
const SWITCHES: [&str; 4] =
    ["enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "enforce_eager"];
/// Datasets of conversations, whose lengths are distributed like ShareGPT's.
const CONVERSATIONS: [&str; 6] = ["sharegpt", "lmsys", "wildchat", "ultrachat", "alpaca", "dolly"];

/// Distribution of the gaps between arrivals of requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Pattern {
    /// Poisson process: arrivals are independent of each other.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
    /// Gaps from a gamma distribution with this shape parameter; values below 1 are burstier than Poisson.
    Gamma(f64),
}

/// Distribution of lengths around a row's means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Spread {
    /// Fixed: every request has exactly the mean.
    #[default]
    Fixed,
    /// Uniform from 1 to twice the mean: `--random-range-ratio 0` of SGLang's and vLLM's clients, and the assumption
    /// for a dataset of which only the means are known.
    Uniform,
    /// Log-normal, like the first turns of ShareGPT's conversations.
    Sharegpt,
}

/// Settings in a cell of the column.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RowSettings {
    /// Number of requests of the run.
    pub(crate) num_prompts: Option<u64>,
    /// Distribution of arrivals.
    pub(crate) pattern: Pattern,
    /// Distribution of lengths, if the row states only their means.
    pub(crate) lengths: Spread,
    /// Most requests that the client had in flight.
    pub(crate) max_concurrency: Option<u64>,
    /// Tokens of a shared prefix, and the number of different prefixes.
    pub(crate) shared_prefix: Option<[u64; 2]>,
    /// True if the server's kernels multiply quantized weights with 16-bit activations.
    pub(crate) weight_only: bool,
    /// Power limit in watts of each accelerator, if it was set.
    pub(crate) power_limit_w: Option<f64>,
    /// Settings of the server.
    engine: EngineSpec,
    /// Keys that do not affect a forecast and are ignored.
    pub(crate) unread: BTreeSet<String>,
}

impl RowSettings {
    /// Reads a cell; `place` names the file and line in errors.
    pub(super) fn read(place: &str, cell: &str) -> Result<RowSettings> {
        let mut settings = RowSettings::default();
        for part in cell.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').map_or((part, ""), |(k, v)| (k.trim(), v.trim()));
            settings.take(&RowSetting { place, key, value })?;
        }
        Ok(settings)
    }

    fn take(&mut self, entry: &RowSetting) -> Result<()> {
        let engine = &mut self.engine;
        match entry.key {
            "num_prompts" | "level_requests" => self.num_prompts = entry.count()?,
            "arrivals" => self.pattern = entry.pattern()?,
            "dataset" | "lengths" => self.lengths = entry.spread().unwrap_or(self.lengths),
            "flags" | "variant" => return self.take_flags(entry),
            "client" => self.max_concurrency = entry.at_most(),
            "note" => self.shared_prefix = entry.shared_prefix(),
            // vLLM's Marlin kernels, for GEMMs and for experts, use 16-bit activations.
            "backends" => self.weight_only = entry.value.contains("marlin"),
            "max_num_seqs" | "max_running_requests" | "max_batch_size" => {
                engine.max_num_seqs = entry.count()?
            }
            "max_num_batched_tokens" | "max_num_tokens" => engine.max_num_batched_tokens = entry.count()?,
            "chunked_prefill_size" => {
                engine.sglang.chunked_prefill_size = entry.count()?.and_then(|n| i64::try_from(n).ok());
            }
            "max_model_len" | "max_seq_len" => engine.max_model_len = entry.count()?,
            "gpu_memory_utilization" | "gpu_mem_util" | "mem_fraction_static" => {
                engine.gpu_memory_utilization = entry.share()?;
            }
            "enable_prefix_caching" | "prefix_caching" => engine.enable_prefix_caching = entry.switch(),
            "chunked_prefill" | "enable_chunked_prefill" => engine.enable_chunked_prefill = entry.switch(),
            "async_scheduling" => engine.vllm.async_scheduling = entry.switch(),
            "max_cudagraph_capture_size" => engine.max_cudagraph_capture_size = entry.count_from(0)?,
            "stream_interval" => engine.stream_interval = entry.count()?,
            "enforce_eager" => engine.enforce_eager = entry.switch(),
            "power_limit_w" => self.power_limit_w = entry.count()?.map(|watts| watts as f64),
            "served" => engine.served = entry.switch(),
            other => {
                self.unread.insert(other.to_owned());
            }
        }
        Ok(())
    }

    /// Reads the flags of a server's command line, as in `--max-num-batched-tokens 4096` or `--max_num_tokens=4096`;
    /// flags that do not affect a forecast, and words in between, are skipped.
    fn take_flags(&mut self, entry: &RowSetting) -> Result<()> {
        let mut words = entry.value.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (key, given) = flag.split_once('=').map_or((flag, None), |(key, value)| (key, Some(value)));
            let key = key.replace('-', "_");
            let (key, value) = if VALUES.contains(&key.as_str()) {
                let next = words.next_if(|next| given.is_none() && !next.starts_with('-'));
                (key.as_str(), given.or(next).unwrap_or_default())
            } else {
                key.strip_prefix("no_").map_or((key.as_str(), given.unwrap_or("on")), |key| (key, "off"))
            };
            if VALUES.contains(&key) || SWITCHES.contains(&key) {
                self.take(&RowSetting { place: entry.place, key, value })?;
            }
        }
        Ok(())
    }

    /// Adds the server's settings to `spec`.
    pub(super) fn fill(&self, spec: &mut EngineSpec) {
        let engine = &self.engine;
        spec.max_num_seqs = engine.max_num_seqs.or(spec.max_num_seqs);
        spec.max_num_batched_tokens = engine.max_num_batched_tokens.or(spec.max_num_batched_tokens);
        spec.gpu_memory_utilization = engine.gpu_memory_utilization.or(spec.gpu_memory_utilization);
        spec.max_cudagraph_capture_size =
            engine.max_cudagraph_capture_size.or(spec.max_cudagraph_capture_size);
        spec.stream_interval = engine.stream_interval.or(spec.stream_interval);
        spec.enforce_eager = engine.enforce_eager.or(spec.enforce_eager);
        spec.served = engine.served.or(spec.served);
        if spec.kind() == EngineKind::Sglang {
            spec.sglang.chunked_prefill_size =
                engine.sglang.chunked_prefill_size.or(spec.sglang.chunked_prefill_size);
        }
        // The keys below exist in vLLM only.
        if spec.kind() == EngineKind::Vllm {
            spec.max_model_len = engine.max_model_len.or(spec.max_model_len);
            spec.enable_chunked_prefill = engine.enable_chunked_prefill.or(spec.enable_chunked_prefill);
            spec.vllm.async_scheduling = engine.vllm.async_scheduling.or(spec.vllm.async_scheduling);
            // Without a common prefix the cache has no hits, so that only "off" has an effect.
            spec.enable_prefix_caching = engine.enable_prefix_caching.filter(|on| !on);
        }
    }

    /// True unless the server's prefix cache was switched off.
    pub(super) fn keeps_prefixes(&self) -> bool {
        self.engine.enable_prefix_caching != Some(false)
    }

    /// Mean and standard deviation of the logarithm of lengths that are distributed like ShareGPT's, with a mean of
    /// `tokens`.
    pub(crate) fn sharegpt_lengths(tokens: f64) -> [f64; 2] {
        [tokens.max(1.0).ln() - SHAREGPT_SIGMA * SHAREGPT_SIGMA / 2.0, SHAREGPT_SIGMA]
    }
}

/// One `key=value` of a cell.
struct RowSetting<'a> {
    place: &'a str,
    key: &'a str,
    value: &'a str,
}

impl RowSetting<'_> {
    fn wrong(&self, accepted: &str) -> Error {
        Error::field(self.place, format!("settings, {}", self.key), self.value, accepted)
    }

    fn is_default(&self) -> bool {
        self.value.is_empty() || self.value.starts_with("default") || self.value == "unset"
    }

    fn count(&self) -> Result<Option<u64>> {
        self.count_from(1)
    }

    fn count_from(&self, least: u64) -> Result<Option<u64>> {
        if self.is_default() {
            return Ok(None);
        }
        let count = self.value.parse().ok().filter(|n| (least..=1_000_000_000).contains(n));
        let accepted = format!("`default`, or a whole number from {least} to 10^9");
        count.map(Some).ok_or_else(|| self.wrong(&accepted))
    }

    fn share(&self) -> Result<Option<f64>> {
        if self.is_default() {
            return Ok(None);
        }
        let share = self.value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        share.map(Some).ok_or_else(|| self.wrong("`default`, or a share above 0, at most 1"))
    }

    /// Reads `on`, `off`, `True` or `False`; any other text, such as `engine default (on)`, means the engine's
    /// default.
    fn switch(&self) -> Option<bool> {
        match self.value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" => Some(true),
            "off" | "false" | "no" => Some(false),
            _ => None,
        }
    }

    /// Reads a shared prefix, as in `128 of ~204 prompt tokens shared, 10 system prompts`.
    fn shared_prefix(&self) -> Option<[u64; 2]> {
        let (tokens, after) = self.value.split_once(" prompt tokens shared, ")?;
        let first = |text: &str| text.split(' ').next()?.parse::<u64>().ok().filter(|n| *n > 0);
        Some([first(tokens)?, first(after)?])
    }

    /// Reads the most requests in flight, as in `44 workers x 10 in flight: at most 440`.
    fn at_most(&self) -> Option<u64> {
        let (_, after) = self.value.split_once("at most ")?;
        let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|most| *most > 0)
    }

    /// Reads a distribution of lengths, as in `sharegpt`, `uniform 1..1000 in, 1..1000 out, means given` or `dataset
    /// means`.
    fn spread(&self) -> Option<Spread> {
        let says = self.value.to_ascii_lowercase();
        if CONVERSATIONS.iter().any(|name| says.contains(name)) {
            Some(Spread::Sharegpt)
        } else {
            (says.contains("uniform") || says.contains("means")).then_some(Spread::Uniform)
        }
    }

    fn pattern(&self) -> Result<Pattern> {
        if let Some(rest) = self.value.strip_prefix("gamma(burstiness=") {
            let shape = rest.trim_end_matches(')').parse().ok();
            let shape = shape.filter(|shape: &f64| *shape > 0.0 && *shape <= 1e3);
            return shape.map(Pattern::Gamma).ok_or_else(|| self.wrong("a burstiness above 0, at most 1000"));
        }
        Ok(if self.value.starts_with("constant") { Pattern::Constant } else { Pattern::Poisson })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_client_and_server() {
        let cell = "arrivals=gamma(burstiness=0.7);num_prompts=250;dataset=random;max_num_seqs=256;\
                    max_num_batched_tokens=default;gpu_memory_utilization=0.9;enable_prefix_caching=False;date=2026-08-13";
        let settings = RowSettings::read("f.csv:2", cell).unwrap();
        assert_eq!((settings.num_prompts, settings.pattern), (Some(250), Pattern::Gamma(0.7)));
        assert!(settings.lengths == Spread::Fixed && settings.unread == BTreeSet::from(["date".to_owned()]));
        let mut spec = EngineSpec { max_num_batched_tokens: Some(512), ..EngineSpec::default() };
        settings.fill(&mut spec);
        assert_eq!((spec.max_num_seqs, spec.max_num_batched_tokens), (Some(256), Some(512)));
        assert_eq!((spec.gpu_memory_utilization, spec.enable_prefix_caching), (Some(0.9), Some(false)));
    }

    #[test]
    fn a_clients_cap_and_a_servers_kernels() {
        let cell = "client=inference-perf, 44 workers x 10 in flight: at most 440;backends=marlin;\
                    note=128 of ~204 prompt tokens shared, 10 system prompts";
        let settings = RowSettings::read("f.csv:2", cell).unwrap();
        assert_eq!((settings.max_concurrency, settings.weight_only), (Some(440), true));
        assert_eq!(settings.shared_prefix, Some([128, 10]));
        let cell = "client=vllm bench serve;backends=cutlass;note=ttft includes client path";
        let settings = RowSettings::read("f.csv:2", cell).unwrap();
        assert_eq!((settings.max_concurrency, settings.weight_only), (None, false));
        assert_eq!(settings.shared_prefix, None);
    }

    /// A program that calls the engine in process has no server in between, for every kind of load.
    #[test]
    fn an_engine_may_run_without_a_server() {
        let served = |cell: &str| {
            let mut spec = EngineSpec { served: Some(true), ..EngineSpec::default() };
            RowSettings::read("f.csv:2", cell).unwrap().fill(&mut spec);
            spec.served
        };
        assert_eq!(
            ["served=false", "served=true", "date=today"].map(served),
            [Some(false), Some(true), Some(true)]
        );
    }

    #[test]
    fn flags_of_a_servers_command_line() {
        let cell = "flags=vllm serve Qwen/Qwen3-235B -tp 4 --max-num-batched-tokens 16384 --enable-expert-parallel \
                    --gpu-memory-utilization=0.85 --no-enable-prefix-caching --enforce-eager org/model";
        let mut spec = EngineSpec::default();
        RowSettings::read("f.csv:2", cell).unwrap().fill(&mut spec);
        assert_eq!((spec.max_num_batched_tokens, spec.gpu_memory_utilization), (Some(16384), Some(0.85)));
        assert_eq!((spec.enable_prefix_caching, spec.enforce_eager), (Some(false), Some(true)));
        let variant = RowSettings::read("f.csv:2", "variant=--max_num_tokens=32768").unwrap();
        assert_eq!(variant.engine.max_num_batched_tokens, Some(32768));
        let wrong =
            RowSettings::read("f.csv:2", "flags=vllm serve m --max-num-seqs many").unwrap_err().to_string();
        assert!(wrong.contains("max_num_seqs") && wrong.contains("many"), "{wrong}");
    }

    #[test]
    fn lengths_spread_as_they_are_said_to() {
        for (cell, spread) in [
            ("dataset=random", Spread::Fixed),
            ("dataset=ShareGPT_V3", Spread::Sharegpt),
            ("lengths=ShareGPT, means given", Spread::Sharegpt),
            (
                "dataset=random;lengths=uniform 1..1000 in, 1..1000 out (range_ratio 0), means given",
                Spread::Uniform,
            ),
            ("lengths=dataset means", Spread::Uniform),
        ] {
            assert_eq!(RowSettings::read("f.csv:2", cell).unwrap().lengths, spread, "{cell}");
        }
    }

    /// ln 200 = 5.298, minus half of 0.9² = 0.81.
    #[test]
    fn lengths_of_conversations_keep_their_mean() {
        let [mu, sigma] = RowSettings::sharegpt_lengths(200.0);
        assert!((mu - 4.893).abs() < 0.001 && sigma == 0.9);
    }

    /// Either no step with prompts runs in a captured graph, or steps of up to 2048 tokens do; set by a key of the
    /// row and by a flag.
    #[test]
    fn what_graphs_hold_is_read() {
        for (cell, tokens) in [
            ("max_cudagraph_capture_size=0", Some(0)),
            ("flags=--max-cudagraph-capture-size 2048", Some(2048)),
            ("max_num_seqs=8", None),
        ] {
            let mut spec = EngineSpec::default();
            RowSettings::read("f.csv:2", cell).unwrap().fill(&mut spec);
            assert_eq!(spec.max_cudagraph_capture_size, tokens, "{cell}");
        }
    }

    #[test]
    fn wrong_settings_name_their_key() {
        for (cell, says) in [
            ("max_num_seqs=many", "max_num_seqs"),
            ("num_prompts=0", "num_prompts"),
            ("max_cudagraph_capture_size=-1", "max_cudagraph_capture_size"),
            ("gpu_memory_utilization=1.5", "gpu_memory_utilization"),
            ("arrivals=gamma(burstiness=x)", "arrivals"),
        ] {
            let error = RowSettings::read("f.csv:2", cell).unwrap_err().to_string();
            assert!(error.contains("f.csv:2") && error.contains(says), "{error}");
        }
    }
}
