//! Service-level objective (SLO): latency bounds that a deployment must meet, of all requests or of a class.
//!
//! Knows: the latencies and percentiles that can have bounds, by the keys `ttft_p99_ms`, `tpot_p90_ms` and so on,
//! `tokens_per_s_user` as another unit of `tpot_p99_ms`, and the number of requests that may exceed a bound. Knows
//! nothing about how a latency is measured.

use crate::error::{Error, Result, shown};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Largest accepted bound on a latency in milliseconds: 31 years.
const LOOSEST_MS: f64 = 1e12;

/// A latency metric: of a request, or of the gaps between its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// End-to-end latency.
    E2el,
    /// Gap between consecutive tokens of a request. Percentiles are over all gaps of all requests.
    Itl,
}

crate::named! { Metric {
    Ttft: "TTFT",
    Tpot: "TPOT",
    E2el: "E2EL",
    Itl: "ITL",
} }

impl Metric {
    /// Metrics with one value per request; a goodput can include each of them.
    pub const OF_A_REQUEST: [Metric; 3] = [Metric::Ttft, Metric::Tpot, Metric::E2el];
}

/// A percentile of a latency that can have a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Percentile {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
}

crate::named! { Percentile {
    P50: "p50",
    P90: "p90",
    P95: "p95",
    P99: "p99",
    P999: "p99.9",
} }

impl Percentile {
    /// The fraction of requests that the percentile covers.
    pub fn share(self) -> f64 {
        match self {
            Percentile::P50 => 0.5,
            Percentile::P90 => 0.9,
            Percentile::P95 => 0.95,
            Percentile::P99 => 0.99,
            Percentile::P999 => 0.999,
        }
    }
}

/// One bound of `[slo]`: the maximum of a percentile of a latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SloBound {
    /// The bounded latency.
    pub metric: Metric,
    /// The bounded percentile.
    pub percentile: Percentile,
    /// Maximum in milliseconds.
    pub ms: f64,
}

impl SloBound {
    /// Name of the bound, as in `TTFT p99`.
    pub fn name(&self) -> String {
        format!("{} {}", self.metric.name(), self.percentile.name())
    }
}

/// `[slo]`: the bounds that every plan must meet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slo {
    /// Bounds in milliseconds, by metric and percentile.
    ms: [[Option<f64>; 5]; 4],
    /// Fraction of requests that must meet every bound; if `None`, each bound applies to its own percentile.
    pub goodput: Option<f64>,
}

impl Slo {
    /// All bounds, in order of metric, then of percentile.
    pub fn bounds(&self) -> impl Iterator<Item = SloBound> + use<> {
        let ms = self.ms;
        let all = Metric::ALL.into_iter().flat_map(|m| Percentile::ALL.map(|p| (m, p)));
        all.filter_map(move |(metric, percentile)| {
            ms[metric as usize][percentile as usize].map(|ms| SloBound { metric, percentile, ms })
        })
    }

    /// The bounds of one metric, in order of descending percentile.
    pub fn of(&self, metric: Metric) -> impl Iterator<Item = SloBound> + use<> {
        let ms = self.ms[metric as usize];
        let all = Percentile::ALL.into_iter().rev();
        all.filter_map(move |p| ms[p as usize].map(|ms| SloBound { metric, percentile: p, ms }))
    }

    /// Maximum latency of a good request in milliseconds: the bound of the highest percentile that has one.
    pub fn of_a_request(&self, metric: Metric) -> Option<f64> {
        self.of(metric).next().map(|bound| bound.ms)
    }

    /// The lowest bound of a metric in milliseconds, which the mean should not exceed by much.
    pub fn lowest(&self, metric: Metric) -> Option<f64> {
        self.of(metric).map(|bound| bound.ms).min_by(f64::total_cmp)
    }

    /// True if there is at least one bound.
    pub fn is_bounded(&self) -> bool {
        self.bounds().next().is_some()
    }

    /// The bound of a metric and percentile in milliseconds; `None` if it has no bound.
    pub fn get(&self, metric: Metric, percentile: Percentile) -> Option<f64> {
        self.ms[metric as usize][percentile as usize]
    }

    /// Returns the SLO with this bound set, or removed if `ms` is `None`.
    pub fn with(mut self, metric: Metric, percentile: Percentile, ms: Option<f64>) -> Slo {
        self.ms[metric as usize][percentile as usize] = ms;
        self
    }

    /// The fraction of requests that must meet `bound`.
    pub fn kept(&self, bound: &SloBound) -> f64 {
        self.goodput.unwrap_or(bound.percentile.share())
    }

    /// Number of requests, of `requests` in total, that must meet every bound; `None` without a goodput.
    pub fn needed(&self, requests: u64) -> Option<u64> {
        self.goodput.map(|share| (share * requests as f64).ceil() as u64)
    }

    /// Checks the bounds; `section` is the dotted path of their table in errors.
    ///
    /// # Errors
    /// A bound is not a valid time, or bounds contradict each other.
    pub fn check(&self, place: &str, section: &str) -> Result<()> {
        for bound in self.bounds() {
            if !(bound.ms > 0.0 && bound.ms <= LOOSEST_MS) {
                let field = key(bound.metric, bound.percentile);
                let accepted = "milliseconds above 0, up to 10^12";
                return Err(Error::field(place, format!("{section}.{field}"), shown(bound.ms), accepted));
            }
        }
        for metric in Metric::ALL {
            let all: Vec<SloBound> = self.of(metric).collect();
            if let Some((high, low)) = all.iter().zip(all.iter().skip(1)).find(|(high, low)| low.ms > high.ms)
            {
                let accepted = format!("at most {} of {}", high.ms, key(metric, high.percentile));
                let field = format!("{section}.{}", key(metric, low.percentile));
                return Err(Error::field(place, field, low.ms, accepted));
            }
            if self.goodput.is_some() && all.len() > 1 {
                let bound_count = format!("{} bounds of {}", all.len(), metric.name());
                return Err(Error::field(
                    place,
                    format!("{section}.goodput"),
                    bound_count,
                    "one bound per metric with a goodput",
                ));
            }
        }
        let Some(share) = self.goodput else { return Ok(()) };
        if let Some(gaps) = self.of(Metric::Itl).next() {
            let accepted = "it without bounds on ITL, which a request has many of";
            return Err(Error::field(
                place,
                format!("{section}.goodput"),
                format!("together with {}", gaps.name()),
                accepted,
            ));
        }
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::field(place, format!("{section}.goodput"), share, "above 0, at most 1"));
        }
        if !self.is_bounded() {
            return Err(Error::field(
                place,
                format!("{section}.goodput"),
                share,
                "together with a bound such as ttft_p99_ms",
            ));
        }
        Ok(())
    }
}

/// The key of a bound in `[slo]`.
pub fn key(metric: Metric, percentile: Percentile) -> &'static str {
    KEYS[metric as usize * Percentile::ALL.len() + percentile as usize]
}

/// Key of the TPOT bound in tokens per second of one user: 1000 / bound in milliseconds.
const TOKENS_PER_S_USER: &str = "tokens_per_s_user";

/// Keys of `[slo]`: first the bounds in order of metric and percentile, then the goodput.
const KEYS: [&str; 22] = [
    "ttft_p50_ms",
    "ttft_p90_ms",
    "ttft_p95_ms",
    "ttft_p99_ms",
    "ttft_p999_ms",
    "tpot_p50_ms",
    "tpot_p90_ms",
    "tpot_p95_ms",
    "tpot_p99_ms",
    "tpot_p999_ms",
    "e2el_p50_ms",
    "e2el_p90_ms",
    "e2el_p95_ms",
    "e2el_p99_ms",
    "e2el_p999_ms",
    "itl_p50_ms",
    "itl_p90_ms",
    "itl_p95_ms",
    "itl_p99_ms",
    "itl_p999_ms",
    "goodput",
    TOKENS_PER_S_USER,
];

impl<'de> Deserialize<'de> for Slo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Slo, D::Error> {
        deserializer.deserialize_map(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Slo;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a table of bounds, as { ttft_p99_ms = 2000 }")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Slo, A::Error> {
        let mut slo = Slo::default();
        let mut rate: Option<f64> = None;
        while let Some(key) = map.next_key::<String>()? {
            let index = KEYS.iter().position(|known| *known == key);
            let index = index.ok_or_else(|| de::Error::unknown_field(&key, &KEYS))?;
            let value = map.next_value()?;
            let count = Percentile::ALL.len();
            match slo.ms.get_mut(index / count) {
                Some(metric) => metric[index % count] = Some(value),
                None if key == TOKENS_PER_S_USER => rate = Some(value),
                None => slo.goodput = Some(value),
            }
        }
        let Some(rate) = rate else { return Ok(slo) };
        if !(rate.is_finite() && rate > 0.0) {
            let accepted = "tokens per second above 0";
            return Err(de::Error::custom(format!(
                "`slo.{TOKENS_PER_S_USER}` is {rate}; accepted: {accepted}"
            )));
        }
        if slo.get(Metric::Tpot, Percentile::P99).is_some() {
            let accepted = "either it or tpot_p99_ms: both bound one quantity";
            return Err(de::Error::custom(format!(
                "`slo.{TOKENS_PER_S_USER}` is {rate}; accepted: {accepted}"
            )));
        }
        Ok(slo.with(Metric::Tpot, Percentile::P99, Some(1e3 / rate)))
    }
}

/// Writes the 99th percentiles of request latencies always, and other bounds if they are set.
impl Serialize for Slo {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Slo", KEYS.len())?;
        for (metric, percentile) in Metric::ALL.into_iter().flat_map(|m| Percentile::ALL.map(|p| (m, p))) {
            let ms = self.get(metric, percentile);
            if ms.is_some() || percentile == Percentile::P99 && metric != Metric::Itl {
                map.serialize_field(key(metric, percentile), &ms)?;
            }
        }
        map.serialize_field("goodput", &self.goodput)?;
        map.end()
    }
}
