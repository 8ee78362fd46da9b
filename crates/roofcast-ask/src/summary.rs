//! Aggregates of a run's requests, with the names of vLLM's benchmark client.
//!
//! Knows: quantiles as numpy computes them, throughput and goodput. Source: `vllm/benchmarks/serve.py`,
//! `calculate_metrics`; percentiles are interpolated linearly, std is the population's standard deviation. Knows
//! nothing about where the records came from.

#[cfg(feature = "schema")]
mod schema;

use crate::spec::{Metric, Percentile, Slo, SloBound};
use roofcast_facts::record::{Outcome, Record};
use roofcast_facts::units::Picoseconds;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Mean, spread and quantiles of one metric, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Statistics {
    /// Number of values; if it is 0, the other fields are 0 without meaning.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// 50th percentile.
    pub median: f64,
    /// Standard deviation of the population.
    pub std: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

impl Statistics {
    /// Exact statistics of `values`, which are reordered; all fields are 0 if there are no values.
    pub fn of(values: &mut [f64]) -> Statistics {
        let moments = Statistics::moments(values);
        moments.with_quantiles(values.len(), |rank| {
            let (_, low, above) = values.select_nth_unstable_by(rank, f64::total_cmp);
            [*low, above.iter().copied().min_by(f64::total_cmp).unwrap_or(*low)]
        })
    }

    /// Exact statistics of `values`, which are in ascending order; all fields are 0 if there are no values.
    pub fn of_ascending(values: &[f64]) -> Statistics {
        let next = |rank: usize| values.get(rank + 1).unwrap_or(&values[rank]);
        Statistics::moments(values).with_quantiles(values.len(), |rank| [values[rank], *next(rank)])
    }

    /// Count, mean and deviation of `values`.
    fn moments(values: &[f64]) -> Statistics {
        if values.is_empty() {
            return Statistics::default();
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        Statistics { count: values.len() as u64, mean, std, ..Statistics::default() }
    }

    /// The statistics with quantiles of `count` values, by linear interpolation between the two nearest values; `at` returns the
    /// value of a rank in ascending order, and the next one.
    fn with_quantiles(self, count: usize, mut at: impl FnMut(usize) -> [f64; 2]) -> Statistics {
        if count == 0 {
            return self;
        }
        let [median, p90, p95, p99, p999] = Percentile::ALL.map(|percentile| {
            let rank = percentile.share() * (count - 1) as f64;
            let [low, next] = at(rank as usize);
            low + (next - low) * rank.fract()
        });
        Statistics { median, p90, p95, p99, p999, ..self }
    }

    /// Value of a percentile in milliseconds.
    pub fn percentile(&self, percentile: Percentile) -> f64 {
        match percentile {
            Percentile::P50 => self.median,
            Percentile::P90 => self.p90,
            Percentile::P95 => self.p95,
            Percentile::P99 => self.p99,
            Percentile::P999 => self.p999,
        }
    }

    /// One figure of the statistics; `None` if there are no values.
    pub fn figure(&self, of: fn(&Statistics) -> f64) -> Option<f64> {
        (self.count > 0).then(|| of(self))
    }
}

/// Aggregates of a run, with vLLM's names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunSummary {
    /// Number of requests that got all their tokens.
    pub completed: u64,
    /// Number of requests that did not complete.
    pub failed: u64,
    /// Seconds from the first send to the last token.
    pub duration: f64,
    /// Prompt tokens of completed requests.
    pub total_input_tokens: u64,
    /// Output tokens of completed requests.
    pub total_output_tokens: u64,
    /// Number of requests that met every SLO bound; `None` if no SLO is set.
    pub good: Option<u64>,
    /// Time to first token.
    pub ttft: Statistics,
    /// Time per output token after the first.
    pub tpot: Statistics,
    /// Gaps between streamed chunks.
    pub itl: Statistics,
    /// End-to-end latency.
    pub e2el: Statistics,
}

impl RunSummary {
    /// The summary of `records`. Goodput counts requests that meet the bounds of `slo`, each bound applied to the
    /// single request.
    pub fn of(records: &[Record], slo: &Slo) -> RunSummary {
        let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
        let ms = |times: Vec<Option<Picoseconds>>| -> Vec<f64> {
            times.into_iter().flatten().map(Picoseconds::ms).collect()
        };
        let start = records.iter().map(|r| r.sent).min().unwrap_or_default();
        let end = done().map(|r| r.finished).max().unwrap_or(start);
        RunSummary {
            completed: done().count() as u64,
            failed: records.len() as u64 - done().count() as u64,
            duration: end.seconds() - start.seconds(),
            total_input_tokens: done().map(|r| r.input_len).sum(),
            total_output_tokens: done().map(|r| r.output_len).sum(),
            good: slo.is_bounded().then(|| done().filter(|r| meets(r, slo)).count() as u64),
            ttft: Statistics::of(&mut ms(done().map(Record::ttft).collect())),
            tpot: Statistics::of(&mut ms(done().map(Record::tpot).collect())),
            itl: Statistics::of(&mut done().flat_map(|r| r.itl.iter().map(|t| t.ms())).collect::<Vec<f64>>()),
            e2el: Statistics::of(&mut ms(done().map(|r| Some(r.e2el())).collect())),
        }
    }

    /// Statistics of the latency `metric`.
    pub fn latency(&self, metric: Metric) -> &Statistics {
        match metric {
            Metric::Ttft => &self.ttft,
            Metric::Tpot => &self.tpot,
            Metric::E2el => &self.e2el,
            Metric::Itl => &self.itl,
        }
    }

    /// Value in milliseconds of the metric and percentile that `bound` limits.
    pub fn bounded(&self, bound: &SloBound) -> f64 {
        self.latency(bound.metric).percentile(bound.percentile)
    }

    /// `count` divided by the duration of the run in seconds.
    fn rate(&self, count: u64) -> f64 {
        if self.duration > 0.0 { count as f64 / self.duration } else { 0.0 }
    }

    /// Completed requests per second.
    pub fn request_throughput(&self) -> f64 {
        self.rate(self.completed)
    }

    /// Requests per second that met every SLO bound; `None` if no SLO is set.
    pub fn request_goodput(&self) -> Option<f64> {
        self.good.map(|n| self.rate(n))
    }

    /// Output tokens per second.
    pub fn output_throughput(&self) -> f64 {
        self.rate(self.total_output_tokens)
    }

    /// Prompt and output tokens per second.
    pub fn total_token_throughput(&self) -> f64 {
        self.rate(self.total_input_tokens + self.total_output_tokens)
    }

    /// All metrics, with their names.
    pub fn metrics(&self) -> [(&'static str, &Statistics); 4] {
        [("ttft", &self.ttft), ("tpot", &self.tpot), ("itl", &self.itl), ("e2el", &self.e2el)]
    }
}

/// True if the request of `record` meets every bound of `slo`.
pub(crate) fn meets(record: &Record, slo: &Slo) -> bool {
    let time = |metric| match metric {
        Metric::Ttft => record.ttft(),
        Metric::Tpot => record.tpot(),
        Metric::E2el => Some(record.e2el()),
        Metric::Itl => None,
    };
    Metric::ALL.into_iter().all(|metric| match (slo.of_a_request(metric), time(metric)) {
        (Some(most), Some(t)) => t.ms() <= most,
        _ => true,
    })
}

impl Serialize for RunSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("duration", &self.duration)?;
        map.serialize_entry("completed", &self.completed)?;
        map.serialize_entry("failed", &self.failed)?;
        map.serialize_entry("total_input_tokens", &self.total_input_tokens)?;
        map.serialize_entry("total_output_tokens", &self.total_output_tokens)?;
        map.serialize_entry("request_throughput", &self.request_throughput())?;
        map.serialize_entry("request_goodput", &self.request_goodput())?;
        map.serialize_entry("output_throughput", &self.output_throughput())?;
        map.serialize_entry("total_token_throughput", &self.total_token_throughput())?;
        for (metric, statistics) in self.metrics() {
            for (figure, of) in FIGURES {
                map.serialize_entry(&format!("{figure}_{metric}_ms"), &statistics.figure(of))?;
            }
        }
        map.end()
    }
}

/// A figure of a sample's statistics: the function that returns it.
pub(crate) type Figure = fn(&Statistics) -> f64;

/// Figures by name: the ones that vLLM's client writes, and the 99.9th percentile.
pub const FIGURES: [(&str, Figure); 8] = [
    ("mean", |s| s.mean),
    ("median", |s| s.median),
    ("std", |s| s.std),
    ("p50", |s| s.median),
    ("p90", |s| s.p90),
    ("p95", |s| s.p95),
    ("p99", |s| s.p99),
    ("p999", |s| s.p999),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_as_numpys_do() {
        // Values 1, 2, 3, 4: median 2.5; 90th percentile at index 0.9·3 = 2.7, so 3 + 0.7 = 3.7; std sqrt(1.25).
        let s = Statistics::of(&mut [4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.mean, s.median), (2.5, 2.5));
        assert!((s.p90 - 3.7).abs() < 1e-12 && (s.std - 1.25_f64.sqrt()).abs() < 1e-12);
        // Values 0 to 1000: the 99.9th percentile is at index 0.999·1000.
        let all = Statistics::of(&mut (0..=1000).map(f64::from).collect::<Vec<_>>());
        assert!((all.p999 - 999.0).abs() < 1e-9 && (all.p99 - 990.0).abs() < 1e-9, "{all:?}");
        assert_eq!(Statistics::of(&mut []), Statistics::default());
        assert_eq!(Statistics::of(&mut [7.0]).p99, 7.0);
    }

    #[test]
    fn what_was_not_measured_is_no_zero() {
        let none = serde_json::to_value(RunSummary::default()).unwrap();
        for metric in ["ttft", "tpot", "itl", "e2el"] {
            for figure in ["mean", "median", "std", "p50", "p90", "p95", "p99"] {
                assert!(none[format!("{figure}_{metric}_ms")].is_null(), "{figure} {metric}: {none}");
            }
        }
        let ttft = Statistics::of(&mut [0.0]);
        let instant =
            serde_json::to_value(RunSummary { completed: 1, ttft, ..RunSummary::default() }).unwrap();
        assert_eq!(
            (&instant["p99_ttft_ms"], &instant["mean_tpot_ms"]),
            (&0.0.into(), &serde_json::Value::Null)
        );
    }
}
