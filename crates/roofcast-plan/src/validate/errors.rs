//! Errors of forecasts against measurements.
//!
//! Knows: errors of forecasts over rows, by kind, source, engine, accelerator and group, and the number of omitted rows
//! by reason. Errors are fractions: |forecast/measured − 1|; a bias is the median of the signed errors. Knows nothing
//! about how a row is forecast.

use super::RowForecast;
use crate::measurement::Metrics;
use roofcast_ask::summary::Statistics;
use roofcast_cost::coefficients::{Z90, at_deviate};
use serde::Serialize;
use std::collections::BTreeMap;

/// The 80th percentile of a standard normal.
const Z80: f64 = 0.841_621_233_572_9;

/// Errors of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Errors {
    /// Number of rows.
    pub n: u64,
    /// Median of the absolute errors.
    pub median_ape: f64,
    /// 90th percentile of the absolute errors.
    pub p90_ape: f64,
    /// Median of the signed errors: positive if the forecast is too high.
    pub bias: f64,
    /// Fraction of the rows whose measured value is within the forecast's band, 10th to 90th percentile.
    pub in_band: f64,
    /// Fraction of the rows that keep the bound which their forecast's band gives a chance of 80 %: the 80th percentile
    /// of a time, the 20th of a throughput.
    pub kept_at_80: f64,
    /// Fraction of the rows that keep the bound which their forecast's band gives a chance of 90 %.
    pub kept_at_90: f64,
    /// Number of groups among these rows.
    pub groups: u64,
    /// Median over groups of each group's median absolute error; a group counts once, regardless of its number of rows.
    pub group_median_ape: f64,
    /// 90th percentile over groups of each group's median absolute error.
    pub group_p90_ape: f64,
}

/// Numbers of rows, and errors, of a set of rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorStatistics {
    /// Number of rows in the set.
    pub rows: u64,
    /// Number of rows that have a forecast.
    pub predicted: u64,
    /// Errors by metric.
    pub metrics: BTreeMap<&'static str, Errors>,
}

/// Rows that were omitted for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Reason why the rows were omitted.
    pub reason: String,
    /// Number of rows.
    pub rows: u64,
}

/// A group of rows and its errors.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupErrors {
    /// Model, accelerator, engine and weights.
    pub group: String,
    /// Rows and errors.
    #[serde(flatten)]
    pub part: ErrorStatistics,
}

/// Errors over all rows, and over each subset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorReport {
    /// Numbers of rows and errors over all kinds of measurement.
    #[serde(flatten)]
    pub whole: ErrorStatistics,
    /// Rows that were omitted, by reason.
    pub skipped: Vec<Skipped>,
    /// Errors by kind of measurement.
    pub kinds: BTreeMap<&'static str, ErrorStatistics>,
    /// Errors by source.
    pub sources: BTreeMap<String, ErrorStatistics>,
    /// Errors by engine.
    pub engines: BTreeMap<String, ErrorStatistics>,
    /// Errors by accelerator.
    pub hardware: BTreeMap<String, ErrorStatistics>,
    /// Errors by group, the worst first.
    pub groups: Vec<GroupErrors>,
    /// Rows of disaggregated pools that probably ran with speculative decoding, which rows do not declare: their steps
    /// are faster than the limit, or than the forecast by a factor of at least 1.7. Rows faster than the limit have no
    /// forecast; the others count like all rows.
    pub drafts: Vec<String>,
}

impl ErrorReport {
    /// Returns the report by kind and source only, without single deployments or rows, as required for rows on the
    /// judging side.
    pub fn sealed(self) -> ErrorReport {
        ErrorReport {
            engines: BTreeMap::new(),
            hardware: BTreeMap::new(),
            groups: Vec::new(),
            drafts: Vec::new(),
            ..self
        }
    }
}

/// The errors of `points`.
pub fn report(points: &[RowForecast]) -> ErrorReport {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for point in points {
        if let Err(reason) = &point.forecast {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let mut skipped: Vec<Skipped> =
        reasons.into_iter().map(|(reason, rows)| Skipped { reason: reason.to_owned(), rows }).collect();
    skipped.sort_by_key(|s| std::cmp::Reverse(s.rows));
    let mut groups: Vec<GroupErrors> = parts(points, |p| p.row.group())
        .into_iter()
        .map(|(group, part)| GroupErrors { group, part })
        .collect();
    groups.sort_by(|a, b| worst(&b.part).total_cmp(&worst(&a.part)));
    ErrorReport {
        whole: part(points.iter()),
        skipped,
        kinds: parts(points, |p| p.row.kind.name()),
        sources: parts(points, |p| p.row.source.clone()),
        engines: parts(points, |p| p.row.engine.clone()),
        hardware: parts(points, |p| p.row.hardware.clone()),
        groups,
        drafts: points.iter().filter(|p| p.is_drafted()).map(|p| p.row.id.clone()).collect(),
    }
}

/// The largest median error over the metrics of a part.
fn worst(part: &ErrorStatistics) -> f64 {
    part.metrics.values().map(|e| e.median_ape).fold(0.0, f64::max)
}

fn parts<'a, K: Ord>(
    points: &'a [RowForecast<'a>],
    key: impl Fn(&RowForecast<'a>) -> K,
) -> BTreeMap<K, ErrorStatistics> {
    let mut sorted: BTreeMap<K, Vec<&RowForecast>> = BTreeMap::new();
    for point in points {
        sorted.entry(key(point)).or_default().push(point);
    }
    sorted.into_iter().map(|(key, points)| (key, part(points.into_iter()))).collect()
}

fn part<'a>(points: impl Iterator<Item = &'a RowForecast<'a>> + Clone) -> ErrorStatistics {
    let mut groups: BTreeMap<String, Vec<&RowForecast>> = BTreeMap::new();
    for point in points.clone() {
        groups.entry(point.row.group()).or_default().push(point);
    }
    let metrics = Metrics::NAMES.into_iter().enumerate().filter_map(|(index, name)| {
        let of_group = |points: &Vec<&RowForecast>| points.iter().filter_map(|p| p.compared(index)).collect();
        let groups: Vec<Vec<Compared>> = groups.values().map(of_group).collect();
        Some((name, errors(&groups)?))
    });
    ErrorStatistics {
        rows: points.clone().count() as u64,
        predicted: points.filter(|p| p.forecast.is_ok()).count() as u64,
        metrics: metrics.collect(),
    }
}

/// One metric of a row, compared with its forecast.
#[derive(Debug, Clone, Copy)]
struct Compared {
    /// Forecast over measured value, less 1.
    error: f64,
    /// True if the measured value is within the forecast's band.
    in_band: bool,
    /// True if the measured value keeps the bounds that have a chance of 80 and of 90 % by the band.
    kept: [bool; 2],
}

impl RowForecast<'_> {
    /// Metric number `index` of a row, compared with its forecast; `None` if either is missing.
    fn compared(&self, index: usize) -> Option<Compared> {
        let ratio = self.ratio(index)?;
        let measured = ratio.recip();
        let in_band = self.band(index).is_some_and(|[low, high]| (low..=high).contains(&measured));
        // Times have an upper bound, throughputs a lower one.
        let keeps = |width: f64, z: f64| match Metrics::NAMES[index].ends_with("_ms") {
            true => measured <= at_deviate(width, z),
            false => measured >= at_deviate(width, -z),
        };
        let within_band = [Z80, Z90].map(|z| self.width(index).is_some_and(|width| keeps(width, z)));
        Some(Compared { error: ratio - 1.0, in_band, kept: within_band })
    }
}

/// Errors over the rows of `groups`; `None` if no row has the metric.
fn errors(groups: &[Vec<Compared>]) -> Option<Errors> {
    let groups = || groups.iter().filter(|rows| !rows.is_empty());
    let rows = || groups().flatten();
    let absolute = |rows: &Vec<Compared>| rows.iter().map(|c| c.error.abs()).collect::<Vec<f64>>();
    let n = rows().count();
    if n == 0 {
        return None;
    }
    let over_rows = Statistics::of(&mut rows().map(|c| c.error.abs()).collect::<Vec<f64>>());
    let median = |rows| Statistics::of(&mut absolute(rows)).median;
    let fraction = |holds: &dyn Fn(&Compared) -> bool| rows().filter(|c| holds(c)).count() as f64 / n as f64;
    let over_groups = Statistics::of(&mut groups().map(median).collect::<Vec<f64>>());
    Some(Errors {
        n: n as u64,
        median_ape: over_rows.median,
        p90_ape: over_rows.p90,
        bias: Statistics::of(&mut rows().map(|c| c.error).collect::<Vec<f64>>()).median,
        in_band: fraction(&|c| c.in_band),
        kept_at_80: fraction(&|c| c.kept[0]),
        kept_at_90: fraction(&|c| c.kept[1]),
        groups: over_groups.count,
        group_median_ape: over_groups.median,
        group_p90_ape: over_groups.p90,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(error: f64, in_band: bool) -> Compared {
        Compared { error, in_band, kept: [in_band, error < 0.5] }
    }

    /// Absolute errors 0.1, 0.2, 0.3 and 0.8: the median is (0.2 + 0.3)/2, the 90th percentile 0.3 + 0.7 · 0.5. Signed
    /// errors −0.3, 0.1, 0.2 and 0.8: the median is (0.1 + 0.2)/2. The groups' medians are 0.2 and 0.8: their median is
    /// 0.5, their 90th percentile 0.2 + 0.9 · 0.6. A group without the metric does not count.
    #[test]
    fn errors_by_rows_and_by_groups() {
        let large = vec![row(0.1, true), row(0.2, true), row(-0.3, false)];
        let summary = errors(&[large, Vec::new(), vec![row(0.8, true)]]).unwrap();
        let expected = Errors {
            n: 4,
            median_ape: 0.25,
            p90_ape: 0.65,
            bias: 0.15,
            in_band: 0.75,
            kept_at_80: 0.75,
            kept_at_90: 0.75,
            groups: 2,
            group_median_ape: 0.5,
            group_p90_ape: 0.74,
        };
        let figures = |e: &Errors| {
            let chances = [e.in_band, e.kept_at_80, e.kept_at_90];
            [[e.median_ape, e.p90_ape, e.bias], chances, [e.group_median_ape, e.group_p90_ape, 0.0]].concat()
        };
        assert_eq!((summary.n, summary.groups), (expected.n, expected.groups));
        for (summary, expected) in figures(&summary).into_iter().zip(figures(&expected)) {
            assert!((summary - expected).abs() < 1e-12, "{summary} for {expected}");
        }
        assert!(errors(&[Vec::new()]).is_none());
    }
}
