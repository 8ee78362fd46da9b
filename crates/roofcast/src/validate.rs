//! How far forecasts are from what was measured.
//!
//! Knows: errors of forecasts over rows, by kind, engine, accelerator and group, and which rows are left out and why.
//! Errors are shares: |forecast/measured − 1|; a bias is the median of the signed ones.

pub mod point;
pub mod ranking;
mod resolver;
pub mod run;

pub use resolver::Resolver;

use crate::calibration::{Calibration, Place};
use crate::catalog::Catalog;
use crate::coefficients::{Band, Evidence};
use crate::error::Result;
use crate::forecaster::Forecaster;
use crate::measurement::{Kind, Measurement, Metrics};
use crate::summary::Statistics;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// One row with its forecast, or why it has none.
#[derive(Debug, Clone)]
pub struct Point<'a> {
    /// The row.
    pub row: &'a Measurement,
    /// What the limits allow, links included as in every view; nothing where the row was left out before.
    pub limit: Metrics,
    /// The forecast, or why the row was left out.
    pub forecast: Result<Metrics, String>,
    /// How much of the deployment has been measured.
    pub evidence: Evidence,
    /// The bands of the forecast.
    pub band: Option<Band>,
}

/// Errors of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Rows.
    pub n: u64,
    /// Median of the absolute errors.
    pub median_ape: f64,
    /// Their 90th percentile.
    pub p90_ape: f64,
    /// Median of the signed errors: above 0 the forecast is too high.
    pub bias: f64,
    /// Share of the rows within the forecast's band, 10th to 90th percentile.
    pub in_band: f64,
}

/// Rows and errors of a part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Rows of the part.
    pub rows: u64,
    /// Rows with a forecast.
    pub predicted: u64,
    /// Errors by metric.
    pub metrics: BTreeMap<&'static str, Errors>,
}

/// Rows left out for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    /// Why.
    pub reason: String,
    /// How many.
    pub rows: u64,
}

/// A group and its errors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Source, model, accelerator, engine and weights.
    pub group: String,
    /// Rows and errors.
    #[serde(flatten)]
    pub part: Part,
}

/// Errors over all rows and over each part of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Rows, forecast rows and errors over all kinds.
    #[serde(flatten)]
    pub whole: Part,
    /// Rows left out.
    pub skipped: Vec<Skipped>,
    /// By kind.
    pub kinds: BTreeMap<&'static str, Part>,
    /// By engine.
    pub engines: BTreeMap<String, Part>,
    /// By accelerator.
    pub hardware: BTreeMap<String, Part>,
    /// By group, the worst first.
    pub groups: Vec<Group>,
    /// Rows of pools that look as if they ran with speculation, which they do not say: their steps are faster than their
    /// limit, or than the forecast by 1.7 times or more. The former have no forecast, the latter count like all others.
    pub drafts: Vec<String>,
}

/// Times of a measured step that a forecast takes at least where drafts are suspected.
const DRAFTS: f64 = 1.7;

/// Why a row faster than its limit has no forecast.
const FASTER: &str = "measured faster than its limit";

/// Forecasts every row, with `calibration` where it is given in place of the embedded one.
pub fn points<'a>(rows: &'a [Measurement], catalog: &Catalog, calibration: &Calibration) -> Vec<Point<'a>> {
    let resolver = || Resolver::new(catalog);
    rows.par_iter().map_init(resolver, |resolver, row| point(row, resolver, calibration)).collect()
}

fn point<'a>(row: &'a Measurement, resolver: &mut Resolver, calibration: &Calibration) -> Point<'a> {
    let left_out = |reason: String, limit| Point {
        row,
        limit,
        forecast: Err(reason),
        evidence: Evidence::Nothing,
        band: None,
    };
    let deployment = match resolver.deployment(row) {
        Ok(deployment) => deployment,
        Err(error) => return left_out(error.to_string(), Metrics::default()),
    };
    let point::Limits { whole: limit, least } = point::limits(row, &deployment);
    let faster = [(row.measured.ttft_ms, least.ttft_ms), (row.measured.tpot_ms, least.tpot_ms)]
        .into_iter()
        .chain([(row.measured.e2e_ms, least.e2e_ms)])
        .any(|(measured, limit)| measured.zip(limit).is_some_and(|(m, l)| m < l));
    if faster {
        return left_out(FASTER.into(), limit);
    }
    if row.measured.all().iter().all(Option::is_none) {
        return left_out("nothing was measured".into(), limit);
    }
    let evidence = calibration.evidence(&Place::of(&deployment));
    let band = calibration.band(evidence).copied();
    match point::forecast(row, &Forecaster::new(deployment, calibration)) {
        Ok(forecast) => Point { row, limit, forecast: Ok(forecast), evidence, band },
        Err(error) => left_out(error.to_string(), limit),
    }
}

/// The errors of `points`.
pub fn report(points: &[Point]) -> Report {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for point in points {
        if let Err(reason) = &point.forecast {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let mut skipped: Vec<Skipped> =
        reasons.into_iter().map(|(reason, rows)| Skipped { reason: reason.to_owned(), rows }).collect();
    skipped.sort_by_key(|s| std::cmp::Reverse(s.rows));
    let mut groups: Vec<Group> =
        parts(points, |p| p.row.group()).into_iter().map(|(group, part)| Group { group, part }).collect();
    groups.sort_by(|a, b| worst(&b.part).total_cmp(&worst(&a.part)));
    Report {
        whole: part(points.iter()),
        skipped,
        kinds: parts(points, |p| p.row.kind.name()),
        engines: parts(points, |p| p.row.engine.clone()),
        hardware: parts(points, |p| p.row.hardware.clone()),
        groups,
        drafts: points.iter().filter(|p| drafts(p)).map(|p| p.row.id.clone()).collect(),
    }
}

/// Whether a row of pools looks like speculation.
fn drafts(point: &Point) -> bool {
    const TPOT: usize = 1;
    let faster = point.forecast.as_ref().is_err_and(|reason| reason == FASTER);
    point.row.pools.is_some() && (faster || point.ratio(TPOT).is_some_and(|ratio| ratio >= DRAFTS))
}

/// The largest median error of a part.
fn worst(part: &Part) -> f64 {
    part.metrics.values().map(|e| e.median_ape).fold(0.0, f64::max)
}

fn parts<'a, K: Ord>(points: &'a [Point<'a>], key: impl Fn(&Point<'a>) -> K) -> BTreeMap<K, Part> {
    let mut sorted: BTreeMap<K, Vec<&Point>> = BTreeMap::new();
    for point in points {
        sorted.entry(key(point)).or_default().push(point);
    }
    sorted.into_iter().map(|(key, points)| (key, part(points.into_iter()))).collect()
}

fn part<'a>(points: impl Iterator<Item = &'a Point<'a>> + Clone) -> Part {
    let metrics = Metrics::NAMES.into_iter().enumerate().filter_map(|(index, name)| {
        let ratios: Vec<(f64, bool)> = points.clone().filter_map(|p| ratio(p, index)).collect();
        Some((name, errors(&ratios)?))
    });
    Part {
        rows: points.clone().count() as u64,
        predicted: points.clone().filter(|p| p.forecast.is_ok()).count() as u64,
        metrics: metrics.collect(),
    }
}

impl Point<'_> {
    /// Forecast over measured of the metric at `index`.
    pub fn ratio(&self, index: usize) -> Option<f64> {
        let measured = self.row.measured.all()[index].filter(|m| *m > 0.0)?;
        Some(self.forecast.as_ref().ok()?.all()[index]? / measured)
    }

    /// The band of the metric at `index`: 10th and 90th percentile of measured over forecast.
    pub fn band(&self, index: usize) -> Option<[f64; 2]> {
        let f = self.band?.factors(self.row.kind == Kind::OpenLoop);
        Some([f.ttft, f.tpot, f.e2e, f.throughput, f.throughput][index])
    }
}

/// Forecast over measured of the metric at `index`, and whether the measured one lies in the band.
fn ratio(point: &Point, index: usize) -> Option<(f64, bool)> {
    let ratio = point.ratio(index)?;
    let inside = point.band(index).is_some_and(|[low, high]| (low..=high).contains(&ratio.recip()));
    Some((ratio, inside))
}

fn errors(ratios: &[(f64, bool)]) -> Option<Errors> {
    if ratios.is_empty() {
        return None;
    }
    let mut signed: Vec<f64> = ratios.iter().map(|(r, _)| r - 1.0).collect();
    let mut absolute: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
    let absolute = Statistics::of(&mut absolute);
    Some(Errors {
        n: ratios.len() as u64,
        median_ape: absolute.median,
        p90_ape: absolute.p90,
        bias: Statistics::of(&mut signed).median,
        in_band: ratios.iter().filter(|(_, inside)| *inside).count() as f64 / ratios.len() as f64,
    })
}
