//! The server's own metrics: `/metrics`, read every second during a run.
//!
//! Knows: Prometheus' text format, for gauges and counters of serving engines, whose names have a colon (`vllm:`,
//! `llamacpp:`, `sglang:`). Values of one name with different labels are summed. Knows nothing about the meaning of
//! names.

use super::client::Client;
use super::counters::{self, Drafts, LABELLED, Transfers};
use super::servers::Servers;
use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Most bytes that are read of one scrape; vLLM's has 54 kB.
const MOST_BYTES: usize = 4 << 20;

/// Most names that are kept.
const MOST_NAMES: usize = 1000;

pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Timeout of one scrape.
const PATIENCE: Duration = Duration::from_secs(5);

/// Metrics that a server reported during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct ServerMetrics {
    /// Number of successful scrapes.
    pub(crate) samples: u64,
    /// Gauges by name.
    pub(crate) gauges: BTreeMap<String, Level>,
    /// Growth of each counter over the run, by name; null for a counter that fell, as one of a restarted server.
    pub(crate) counters: BTreeMap<String, Option<f64>>,
    /// Drafts of speculative decoding, by the counters; null without any.
    pub(crate) drafts: Option<Drafts>,
    /// KV cache that came from elsewhere, by the counters; null without any.
    pub(crate) transfers: Option<Transfers>,
}

/// Names of the counters of prompt tokens and of cached prompt tokens: vLLM's, SGLang's.
const CACHES: [(&str, &str); 2] = [
    ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    ("sglang:prompt_tokens_total", "sglang:cached_tokens_total"),
];

impl ServerMetrics {
    /// Fraction of prompt tokens that the server took from its prefix cache; `None` if no counter shows it.
    pub(super) fn cached_share(&self) -> Option<f64> {
        let counters = self.grown()?;
        let grown = |name| counters.get(name).copied();
        let (all, had) =
            CACHES.iter().find_map(|(all, had)| Some((grown(*all).filter(|n| *n > 0.0)?, grown(*had)?)))?;
        Some(had / all)
    }

    /// Number of counters that fell during the run.
    pub(super) fn fallen(&self) -> usize {
        self.counters.values().filter(|grown| grown.is_none()).count()
    }

    /// Growth of all counters; `None` if one fell, because shares of two counters that began anew are of no run.
    fn grown(&self) -> Option<BTreeMap<String, f64>> {
        self.counters.iter().map(|(name, grown)| Some((name.clone(), (*grown)?))).collect()
    }
}

/// Mean and maximum of a gauge over a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Level {
    /// Mean of the samples.
    pub(crate) mean: f64,
    /// Largest sample.
    pub(crate) max: f64,
}

/// Samples so far.
#[derive(Debug, Default)]
struct Samples {
    metrics: ServerMetrics,
    /// First and last value of each counter.
    ends: BTreeMap<String, [f64; 2]>,
}

/// A scraping in progress.
pub(super) struct Scrape {
    samples: Arc<Mutex<Samples>>,
    servers: Arc<Servers>,
    task: JoinHandle<()>,
}

impl Scrape {
    pub(super) async fn start(servers: Arc<Servers>) -> Scrape {
        let samples = Arc::new(Mutex::new(Samples::default()));
        once(&servers, &samples).await;
        let scraped = Arc::clone(&servers);
        let collected = Arc::clone(&samples);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                once(&scraped, &collected).await;
            }
        });
        Scrape { samples, servers, task }
    }

    /// Scrapes a last time and returns the metrics.
    pub(super) async fn stop(self) -> ServerMetrics {
        self.task.abort();
        once(&self.servers, &self.samples).await;
        let metrics =
            std::mem::take(&mut self.samples.lock().unwrap_or_else(PoisonError::into_inner).metrics);
        let counters = metrics.grown().unwrap_or_default();
        let drafts = Drafts::of(&counters);
        let transfers = Transfers::of(&counters);
        ServerMetrics { drafts, transfers, ..metrics }
    }
}

/// Scrapes every server; values of one name are summed.
async fn once(servers: &Servers, samples: &Mutex<Samples>) {
    let mut all = String::new();
    for client in servers.all() {
        if let Ok(Some(text)) = tokio::time::timeout(PATIENCE, told(client)).await {
            all.push_str(&String::from_utf8_lossy(&text));
            all.push('\n');
        }
    }
    if !all.is_empty() {
        samples.lock().unwrap_or_else(PoisonError::into_inner).add(&all);
    }
}

/// The body of a server's `/metrics`; `None` if it cannot be read.
pub(super) async fn told(client: &Client) -> Option<Vec<u8>> {
    let (parts, mut incoming) = client.send(Method::GET, "/metrics", Bytes::new()).await.ok()?;
    parts.status.is_success().then_some(())?;
    Some(incoming.head(MOST_BYTES).await)
}

impl Samples {
    fn add(&mut self, text: &str) {
        let mut gauges: BTreeMap<&str, f64> = BTreeMap::new();
        let mut counters: BTreeMap<Cow<str>, f64> = BTreeMap::new();
        let mut kind = ("", "");
        for line in text.lines() {
            if let Some(typed) = line.strip_prefix("# TYPE ") {
                kind = typed.split_once(' ').unwrap_or_default();
            } else if let Some((name, value)) = sample(line) {
                match kind.1.trim() {
                    "gauge" if name == kind.0 && !name.ends_with("_created") => {
                        *gauges.entry(name).or_default() += value;
                    }
                    "counter" if name == kind.0 => {
                        *counters.entry(name.into()).or_default() += value;
                        if let Some(labelled) = of_label(name, line) {
                            *counters.entry(labelled.into()).or_default() += value;
                        }
                    }
                    "histogram" if counters::keeps_sums(kind.0) && is_total(name, kind.0) => {
                        *counters.entry(name.into()).or_default() += value;
                    }
                    _ => {}
                }
            }
        }
        self.metrics.samples += 1;
        let n = self.metrics.samples as f64;
        for (name, value) in gauges.into_iter().take(MOST_NAMES) {
            let level = self.metrics.gauges.entry(name.to_owned()).or_default();
            level.mean += (value - level.mean) / n;
            level.max = level.max.max(value);
        }
        for (name, value) in counters.into_iter().take(MOST_NAMES) {
            let name = name.into_owned();
            let [first, last] = self.ends.entry(name.clone()).or_insert([value; 2]);
            let fell = value < *last;
            *last = value;
            let growth = self.metrics.counters.entry(name).or_insert(Some(0.0));
            *growth = growth.filter(|_| !fell).map(|_| value - *first);
        }
    }
}

/// True if a sample is the sum or the number of the values of a histogram.
fn is_total(sample: &str, histogram: &str) -> bool {
    matches!(sample.strip_prefix(histogram), Some("_sum" | "_count"))
}

/// Name of a counter for the value of its label, if values of this counter are kept.
fn of_label(name: &str, line: &str) -> Option<String> {
    let (_, label) = LABELLED.iter().find(|(labelled, _)| *labelled == name)?;
    let (_, rest) = line.split_once(&format!("{label}=\""))?;
    Some(counters::labelled(name, label, rest.split_once('"')?.0))
}

/// Name and value in a line of metrics, if the name is one of a serving engine's.
fn sample(line: &str) -> Option<(&str, f64)> {
    named(line).filter(|(name, _)| name.contains(':'))
}

/// Name and value in a line of metrics.
pub(super) fn named(line: &str) -> Option<(&str, f64)> {
    let end = line.find(['{', ' '])?;
    let name = line.get(..end).filter(|name| !name.starts_with('#'))?;
    let (_, value) = line.rsplit_once(' ')?;
    Some((name, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 1.0\n\
        # TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\"} 69.0\n\
        # TYPE vllm:prompt_tokens_created gauge\nvllm:prompt_tokens_created{engine=\"0\"} 1.7e+09\n\
        # TYPE python_info gauge\npython_info{a=\"b\"} 1.0\n";

    #[test]
    fn gauges_are_levels_and_counters_grow() {
        let mut samples = Samples::default();
        samples.add(TEXT);
        samples.add(&TEXT.replace(" 69.0", " 100").replace(" 3.0", " 5.0"));
        let metrics = samples.metrics;
        // Sums over two label sets: 3 + 1, then 5 + 1 for the gauge; 69, then 100 for the counter.
        assert_eq!(
            metrics.gauges,
            [("vllm:num_requests_running".to_owned(), Level { mean: 5.0, max: 6.0 })].into()
        );
        assert_eq!(metrics.counters, [("vllm:prompt_tokens_total".to_owned(), Some(31.0))].into());
    }

    /// A counter that falls from 100 to 5 began anew: it has no growth, also where it rises above its first value later.
    #[test]
    fn a_counter_that_fell_has_no_growth() {
        let mut samples = Samples::default();
        for value in ["69.0", "100", "5", "200"] {
            samples.add(&TEXT.replace("69.0", value));
        }
        let metrics = samples.metrics;
        assert_eq!((metrics.counters["vllm:prompt_tokens_total"], metrics.fallen()), (None, 1));
        let [queries, hits] = [CACHES[0].0, CACHES[0].1];
        let counters = [(queries.to_owned(), Some(200.0)), (hits.to_owned(), None)].into();
        assert_eq!(ServerMetrics { counters, ..metrics }.cached_share(), None);
    }

    /// Values of a position and of a source are kept beside their sum, and the sum and number of a histogram of transfers.
    #[test]
    fn counters_of_positions_and_transfers_are_kept() {
        let text = "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter\n\
            vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 3.0\n\
            vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"} 1.0\n\
            # TYPE vllm:nixl_xfer_time_seconds histogram\nvllm:nixl_xfer_time_seconds_bucket{le=\"+Inf\"} 4.0\n\
            vllm:nixl_xfer_time_seconds_count{} 4.0\nvllm:nixl_xfer_time_seconds_sum{} 2.0\n";
        let mut samples = Samples::default();
        samples.add(
            &text
                .replace(" 3.0", " 0.0")
                .replace(" 1.0", " 0.0")
                .replace(" 4.0", " 0.0")
                .replace(" 2.0", " 0.0"),
        );
        samples.add(text);
        let grown: Vec<(&str, f64)> =
            samples.metrics.counters.iter().map(|(name, grown)| (name.as_str(), grown.unwrap())).collect();
        let by_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
        let expected = [
            ("vllm:nixl_xfer_time_seconds_count".to_owned(), 4.0),
            ("vllm:nixl_xfer_time_seconds_sum".to_owned(), 2.0),
            (by_position.to_owned(), 4.0),
            (format!("{by_position}{{position=\"0\"}}"), 3.0),
            (format!("{by_position}{{position=\"1\"}}"), 1.0),
        ];
        assert_eq!(grown, expected.each_ref().map(|(name, grown)| (name.as_str(), *grown)));
    }

    #[test]
    fn hits_of_a_prefix_cache_are_a_share() {
        let counters = |names: [&str; 2], grown: [f64; 2]| ServerMetrics {
            counters: names.into_iter().map(str::to_owned).zip(grown.map(Some)).collect(),
            ..ServerMetrics::default()
        };
        let [vllm, sglang] = CACHES.map(|(all, had)| [all, had]);
        assert_eq!(counters(vllm, [200.0, 82.0]).cached_share(), Some(0.41));
        assert_eq!(counters(sglang, [200.0, 50.0]).cached_share(), Some(0.25));
        assert_eq!(counters(vllm, [0.0, 0.0]).cached_share(), None);
    }

    #[test]
    fn anything_else_is_left_alone() {
        let mut samples = Samples::default();
        samples.add("# TYPE\n# TYPE a:b gauge\na:b\na:b x\na:b{ 1\n\u{0}{} 3\n<html> 404");
        assert_eq!(samples.metrics.gauges.keys().collect::<Vec<_>>(), ["a:b"]);
    }

    #[test]
    fn recorded_metrics_of_both_engines() {
        for (file, gauge, counter) in [
            ("vllm-metrics", "vllm:num_requests_running", "vllm:generation_tokens_total"),
            ("llama-metrics", "llamacpp:requests_processing", "llamacpp:tokens_predicted_total"),
        ] {
            let text = crate::bench::testing::capture(file);
            let mut samples = Samples::default();
            samples.add(&text);
            let metrics = samples.metrics;
            assert!(
                metrics.gauges.contains_key(gauge) && metrics.counters.contains_key(counter),
                "{metrics:?}"
            );
        }
    }
}
