//! Sampling errors of a run: how far its means and its 99th percentiles may be from the ones of a long run of equal load.
//!
//! Knows: batch means. Requests in order of arrival are divided into [`BATCHES`] batches; the scatter of the batches' means
//! gives the error of the whole mean also where requests that follow one another share a queue (Schmeiser, "Batch size
//! effects in the analysis of simulation output", 1982: 10 to 30 batches). Means of neighbouring batches that are still
//! correlated widen it by (1 + r) / (1 - r), as of a first-order autoregression. Batches that rise, fall or begin otherwise than they
//! go on beyond chance are no scatter ([`BatchMeans::settled`]). Knows nothing about errors of step times.

use crate::summary::Statistics;
use serde::Serialize;

/// Number of batches of a run.
const BATCHES: usize = 10;
/// 90th percentile of Student's t with 9 degrees of freedom: 8 of 10 means are within it on either side.
const T_90: f64 = 1.383;
/// 90th percentile of the normal distribution.
const Z_90: f64 = 1.2816;
/// Fewest values of a batch that counts.
const FEWEST: u64 = 4;
/// Largest correlation of neighbouring batches that counts; beyond it a run is shorter than what it shows.
const MOST_CORRELATED: f64 = 0.9;
/// Relative error of a mean below which a change over the run does not matter.
const MATERIAL: f64 = 0.01;
/// 99.5th percentile of the normal distribution: a trend of either sign that 1 of 100 settled runs shows.
const Z_995: f64 = 2.5758;
/// 99.9th percentile of Student's t with 8 degrees of freedom, as two parts of ten batches have: five divisions of a settled run,
/// each with either sign, show a larger difference in 1 of 100.
const T_999: f64 = 4.501;
/// Largest share by which a run's 99th percentile may be off before more requests are asked for.
const TAIL: f64 = 0.1;

/// Sums of one metric by batch, in any integer unit.
#[derive(Debug, Clone, Default)]
pub struct BatchMeans {
    /// Requests of a batch; 0 if nothing is counted.
    size: u64,
    sums: [(u64, u128); BATCHES],
}

/// Error of the mean of one metric, and the interval of its 99th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SamplingError {
    /// Share of the mean within which the means of 8 of 10 such runs are.
    pub mean: f64,
    /// Ends of the interval in which the 99th percentile of 8 of 10 such runs is, in milliseconds.
    pub p99_ms: [f64; 2],
    /// True if the upper end is the largest value of the run, which others may exceed.
    pub p99_open: bool,
    /// Number of requests of a run whose 99th percentile is within a tenth; `None` if this one's is.
    pub requests_for_p99: Option<u64>,
}

/// Sampling errors of the metrics of a request; `None` of a metric with fewer than about 40 values, and of one that has not settled.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SamplingErrors {
    /// Error of the time to first token.
    pub ttft: Option<SamplingError>,
    /// Error of the time per output token.
    pub tpot: Option<SamplingError>,
    /// Error of the end-to-end latency.
    pub e2el: Option<SamplingError>,
    /// Metrics (`ttft`, `tpot`, `e2el`) that change over the run by more than chance: all under overload and where an autoscaler
    /// started replicas, else those whose batches have a trend or begin otherwise than they go on.
    pub unsettled: Vec<&'static str>,
}

impl SamplingError {
    /// The interval of the 99th percentile in words, with numbers as `shown` writes them: `128 to 160 ms`, or `128 ms or more`.
    pub fn tail(&self, shown: impl Fn(f64) -> String) -> String {
        let [low, high] = self.p99_ms;
        match self.p99_open {
            true => format!("{} ms or more", shown(low)),
            false => format!("{} to {} ms", shown(low), shown(high)),
        }
    }
}

impl BatchMeans {
    /// Empty batches of a run of `requests` requests.
    pub fn of(requests: u64) -> BatchMeans {
        BatchMeans { size: requests.div_ceil(BATCHES as u64), ..BatchMeans::default() }
    }

    /// Adds the value of the request with the number `number`, in order of arrival.
    #[inline(always)]
    pub fn add(&mut self, number: u64, value: u64) {
        let index = number.checked_div(self.size).map_or(BATCHES, |index| index as usize);
        if let Some((count, sum)) = self.sums.get_mut(index) {
            *count += 1;
            *sum += u128::from(value);
        }
    }

    /// Means of the batches that have at least half of the largest one's values.
    fn means(&self) -> Vec<f64> {
        let largest = self.sums.iter().map(|(count, _)| *count).max().unwrap_or(0);
        let whole = self.sums.iter().filter(|(count, _)| 2 * count >= largest && *count >= FEWEST);
        whole.map(|(count, sum)| *sum as f64 / *count as f64).collect()
    }

    /// True if the batches have no trend and begin as they go on, as far as chance tells; else the differences are no scatter,
    /// and give no number of requests.
    pub fn settled(&self) -> bool {
        let means = self.means();
        let matters = self.relative().is_some_and(|relative| relative >= MATERIAL);
        !matters || !(has_trend(&means) || begins_otherwise(&means))
    }

    /// Correlation of the means of neighbouring batches, 0 if it is negative: near 1 where the metric rises or falls over the run.
    pub fn correlation(&self) -> f64 {
        let means = self.means();
        let mean = means.iter().sum::<f64>() / means.len().max(1) as f64;
        let off: Vec<f64> = means.iter().map(|value| value - mean).collect();
        let squares: f64 = off.iter().map(|value| value * value).sum();
        let neighbours: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
        if squares > 0.0 { (neighbours / squares).clamp(0.0, MOST_CORRELATED) } else { 0.0 }
    }

    /// Standard error of the mean over the mean; `None` with too few values.
    fn relative(&self) -> Option<f64> {
        let means = self.means();
        if 2 * means.len() < BATCHES {
            return None;
        }
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
        let correlation = self.correlation();
        let variance = squares / (count - 1.0) / count * (1.0 + correlation) / (1.0 - correlation);
        (mean > 0.0).then(|| variance.sqrt() / mean)
    }

    /// The error of a metric with `statistics`, whose quantiles `quantile` returns; `None` with too few values.
    pub fn error(&self, statistics: &Statistics, quantile: impl Fn(f64) -> f64) -> Option<SamplingError> {
        let relative = self.relative()?;
        let count = statistics.count as f64;
        // Values of one queue count as fewer independent ones, as many as have this error of their mean.
        let alone = statistics.std / statistics.mean / count.sqrt();
        let independent = if relative > alone { count * (alone / relative).powi(2) } else { count };
        let about = Z_90 * (0.99 * 0.01 / independent.max(1.0)).sqrt();
        let p99_ms = [0.99 - about, 0.99 + about].map(|share| quantile(share.clamp(0.0, 1.0)));
        let [low, high] = p99_ms;
        let off = (high / statistics.p99 - 1.0).max(1.0 - low / statistics.p99);
        let more = (count * (off / TAIL).powi(2)).ceil();
        // An interval that ends at the largest value does not show how much larger others may be.
        let open = 0.99 + about >= 1.0;
        let least = (count * about.powi(2) / 0.01_f64.powi(2)).ceil();
        let enough = if open { more.max(least) } else { more };
        Some(SamplingError {
            mean: T_90 * relative,
            p99_ms,
            p99_open: open,
            requests_for_p99: (off > TAIL || open && off > 0.0).then_some(enough as u64),
        })
    }
}

/// True if `means` rise or fall beyond chance (Mann, "Nonparametric tests against trend", 1945): the number of rising pairs less
/// the number of falling pairs has the variance n (n - 1) (2 n + 5) / 18 without a trend.
fn has_trend(means: &[f64]) -> bool {
    let pairs =
        means.iter().enumerate().flat_map(|(at, early)| means[at + 1..].iter().map(move |late| late - early));
    let rising: f64 = pairs.filter(|change| *change != 0.0).map(f64::signum).sum();
    let count = means.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    rising.abs() - 1.0 > Z_995 * deviation
}

/// True if a first part of up to half of `means` differs from the rest beyond chance (Student's t of two samples).
fn begins_otherwise(means: &[f64]) -> bool {
    let moments = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        (mean, part.iter().map(|value| (value - mean).powi(2)).sum::<f64>())
    };
    (1..=means.len() / 2).any(|first| {
        let (start, rest) = means.split_at(first);
        let [(early, scatter), (late, more)] = [start, rest].map(moments);
        let variance = (scatter + more) / (means.len() - 2) as f64;
        let error = (variance * (1.0 / start.len() as f64 + 1.0 / rest.len() as f64)).sqrt();
        (early - late).abs() > T_999 * error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 values in 10 batches of four, whose means are 9 and 11 in turn: their variance is 10 / 9, the error of the mean
    /// √(10 / 9 / 10) = 1 / 3, of a mean of 10 a thirtieth. Neighbours differ, so that nothing is correlated; 1.383 times is 4.61 %.
    #[test]
    fn the_scatter_of_batches_is_the_error() {
        let mut batches = BatchMeans::of(40);
        (0..40).for_each(|number| batches.add(number, if number / 4 % 2 == 0 { 9 } else { 11 }));
        let relative = batches.relative().unwrap();
        assert!((relative - 1.0 / 30.0).abs() < 1e-9, "{relative}");
        let statistics = Statistics { count: 40, mean: 10.0, std: 1.0, p99: 11.0, ..Statistics::default() };
        let error = batches.error(&statistics, |_| 11.0).unwrap();
        assert!((error.mean - 0.0461).abs() < 1e-9, "{error:?}");
        assert_eq!((error.p99_ms, error.p99_open, error.requests_for_p99), ([11.0; 2], true, None));
    }

    /// Five batches of 8 and then five of 12: deviations are ±2, their squares 40, products of neighbours 8 · 4 - 4 = 28, a
    /// correlation of 0.7. The variance of the mean is 40 / 9 / 10 · 1.7 / 0.3 = 2.5185, its root 1.58698, over a mean of 10.
    #[test]
    fn a_slow_change_widens_the_error() {
        let mut batches = BatchMeans::of(200);
        (0..200).for_each(|number| batches.add(number, if number < 100 { 8 } else { 12 }));
        let relative = batches.relative().unwrap();
        assert!((relative - 0.158_698).abs() < 1e-6, "{relative}");
    }

    /// Ten batches of four with the means `means`.
    fn batches(means: [u64; 10]) -> BatchMeans {
        let mut batches = BatchMeans::of(40);
        (0..40).for_each(|number| batches.add(number, means[number as usize / 4]));
        batches
    }

    /// A trend: of 45 pairs 43 rise and 2 fall, 40 / 11.18 > 2.58. A start: 30 against 10.22 with a scatter of 5.56 / 8 = 0.69, a
    /// difference of 19.8 with an error of 0.88. A middle that differs, and batches in turn, are neither; nor is a rise of 0.1 %.
    #[test]
    fn a_trend_and_a_start_are_no_scatter() {
        assert!(!batches([10, 12, 11, 14, 16, 18, 20, 19, 24, 26]).settled());
        assert!(!batches([30, 10, 11, 10, 9, 11, 10, 11, 9, 11]).settled());
        assert!(batches([9, 11, 9, 11, 9, 11, 9, 11, 9, 11]).settled());
        assert!(batches([10, 12, 9, 11, 30, 10, 11, 9, 12, 10]).settled());
        assert!(batches([1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009]).settled());
    }

    /// 100 independent values: 1.2816 · √(0.0099 / 100) = 0.01275, so that the interval is from the 97.7th percentile to the
    /// largest. With values equal to their percentile it begins at 97.725 of 99, and is open above: a half width of one
    /// percentile takes 100 · (0.01275 / 0.01)² = 162.6 requests.
    #[test]
    fn a_short_run_has_no_99th_percentile() {
        let mut batches = BatchMeans::of(100);
        (0..100).for_each(|number| batches.add(number, 50));
        let statistics = Statistics { count: 100, mean: 50.0, std: 28.9, p99: 99.0, ..Statistics::default() };
        let error = batches.error(&statistics, |share| 100.0 * share).unwrap();
        assert!((error.p99_ms[0] - 97.725).abs() < 1e-3 && error.p99_ms[1] == 100.0, "{error:?}");
        assert_eq!(error.requests_for_p99, Some(163));
    }

    #[test]
    fn few_values_have_no_error() {
        let mut batches = BatchMeans::of(20);
        (0..20).for_each(|number| batches.add(number, number));
        assert_eq!(batches.relative(), None);
        assert_eq!(BatchMeans::default().relative(), None);
    }
}
