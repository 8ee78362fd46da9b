//! `roofcast bench --runs N`: repeats one load, and summarizes the runs.
//!
//! Knows: the 95 % confidence interval of a figure's mean over the runs, by Student's t. Runs differ by more than
//! requests within a run do, so a single run does not show the spread of its figures.

use super::setup::Setup;
use super::{Files, Point, Subject, measurements, table};
use crate::args::BenchArgs;
use crate::show::number::significant;
use crate::{exit, show};
use anyhow::Result;
use roofcast::measurement::results::KEYS;
use serde::Serialize;
use std::process::ExitCode;

/// Two-sided 95 % quantiles of Student's t with 1 to 30 degrees of freedom. Beyond 30 the normal distribution's 1.96 is
/// used.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Mean and confidence interval of one figure over runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Interval {
    /// Mean over the valid runs.
    mean: f64,
    /// Lower end of the 95 % interval.
    low: f64,
    /// Upper end of the 95 % interval.
    high: f64,
}

/// Repeated runs with confidence intervals.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchRuns"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    /// The runs, in order.
    runs: &'a [Point],
    /// Confidence interval of each figure.
    intervals: Vec<Named>,
}

/// Confidence interval of one figure.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchInterval"))]
struct Named {
    /// vLLM's key of the figure.
    figure: &'static str,
    #[serde(flatten)]
    interval: Interval,
}

pub(super) fn run(args: &BenchArgs, setup: &mut Setup, count: u64, files: &Files) -> Result<ExitCode> {
    let workload = setup.workload.clone();
    let mut points = Vec::new();
    for _ in 0..count {
        let (point, _) = setup.measure(&workload)?;
        let stopped = point.report.interrupted;
        points.push(point);
        if stopped {
            break;
        }
    }
    if let Some(rows) = &files.rows {
        measurements::write(rows, setup, &points.iter().collect::<Vec<_>>())?;
    }
    let valid = points.iter().all(|point| point.report.valid);
    let intervals = KEYS.iter().filter_map(|figure| {
        let interval = interval(&values(&points, figure))?;
        Some(Named { figure, interval })
    });
    let intervals: Vec<_> = intervals.collect();
    if args.output.json {
        let answer = Answer { subject: setup.subject(), runs: &points, intervals };
        show::json("roofcast/bench-runs/1", &answer)?;
    } else {
        let rows: Vec<_> = (1..).map(f64::from).zip(&points).collect();
        table::show(args, &setup.subject(), "run", &rows)?;
        if !args.output.csv {
            show::text(&said(&intervals))?;
        }
    }
    Ok(if valid { ExitCode::SUCCESS } else { exit::invalid() })
}

/// The values of a figure in the valid runs that report it.
fn values(points: &[Point], figure: &str) -> Vec<f64> {
    let valid = points.iter().filter(|point| point.report.valid);
    let value = |point: &Point| serde_json::to_value(&point.report).ok()?.get(figure)?.as_f64();
    valid.filter_map(value).collect()
}

/// Mean and confidence interval; `None` for fewer than two values.
fn interval(values: &[f64]) -> Option<Interval> {
    let n = values.len();
    let t = T95.get(n.checked_sub(2)?).copied().unwrap_or(1.96);
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let half = t * (squares / (n - 1) as f64 / n as f64).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half })
}

/// The intervals as a table for people.
fn said(intervals: &[Named]) -> String {
    if intervals.is_empty() {
        return "Fewer than two valid runs: no intervals.\n".to_owned();
    }
    let rows: Vec<Vec<String>> = intervals
        .iter()
        .map(|Named { figure, interval: i }| {
            let half = if i.mean > 0.0 { (i.high - i.mean) / i.mean * 100.0 } else { 0.0 };
            let figures = [i.mean, i.low, i.high].map(significant);
            [(*figure).to_owned()].into_iter().chain(figures).chain([format!("{half:.1} %")]).collect()
        })
        .collect();
    show::table::table(&["over runs", "mean", "95 % from", "to", "±"], &rows, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values 10, 12 and 14: mean 12, standard deviation 2, half width 4.303 · 2/√3 = 4.969.
    #[test]
    fn an_interval_by_hand() {
        let span = interval(&[10.0, 12.0, 14.0]).unwrap();
        assert!((span.mean - 12.0).abs() < 1e-12 && (span.high - 16.969).abs() < 1e-3, "{span:?}");
        assert!((span.low - 7.031).abs() < 1e-3, "{span:?}");
        assert_eq!((interval(&[1.0]), interval(&[])), (None, None));
        assert_eq!(interval(&[3.0; 40]), Some(Interval { mean: 3.0, low: 3.0, high: 3.0 }));
    }
}
