//! Measured results as a picture: the latencies of one run, or a sweep with limit and forecast.

use super::Point;
use super::beside::{Forecast, Limit};
use super::setup::Setup;
use roofcast::record::Record;
use roofcast::report::run;
use roofcast::report::sweep::{self, Look, Panel, Quantity, SweepCurve, SweepPicture, Values};
use roofcast::spec::Metric;
use roofcast::summary::RunSummary;

/// Picture of the latencies of one run.
pub(super) fn of_run(setup: &Setup, point: &Point, records: &[Record]) -> String {
    let forecast = point.beside.forecast.as_ref().map(|f| [Some(f.median_ttft_ms), f.median_tpot_ms]);
    run::measured(&title(setup), records, &setup.judge.slo, forecast)
}

/// Picture of runs that differ in `key`.
pub(super) fn of_sweep(setup: &Setup, key: &str, points: &[(f64, &Point)]) -> String {
    let slo = &setup.judge.slo;
    let bound = |metric: Metric| slo.of(metric).next();
    let ttft =
        latency(points, |s| [s.ttft.median, s.ttft.p99], |f| Some(f.median_ttft_ms), |l| Some(l.ttft_ms));
    let tpot = latency(points, |s| [s.tpot.median, s.tpot.p99], |f| f.median_tpot_ms, |l| l.tpot_ms);
    let summaries = points.iter().map(|(_, p)| &p.report.summary);
    let measured = summaries.map(|s| (s.completed > 0).then(|| s.output_throughput()));
    let forecast = points.iter().map(|(_, p)| p.beside.forecast.as_ref().map(|f| f.output_throughput));
    let rates = vec![
        SweepCurve::new("measured", 0, Look::Points, measured),
        SweepCurve::new("forecast", 2, Look::Dashed, forecast),
    ];
    let panel =
        |title: &str, quantity, curves, most| Panel { title: title.to_owned(), quantity, curves, most };
    sweep::svg(&SweepPicture {
        title: title(setup),
        note: setup.url.clone(),
        key: key.to_owned(),
        values: Values::Numbers(points.iter().map(|(value, _)| *value).collect()),
        panels: vec![
            panel("time to first token", Quantity::Time, ttft, bound(Metric::Ttft)),
            panel("time per output token", Quantity::Time, tpot, bound(Metric::Tpot)),
            panel("output tokens a second", Quantity::Count, rates, None),
        ],
    })
}

fn title(setup: &Setup) -> String {
    let machine = setup.deployment.as_ref().map(|d| format!(" on {}", d.accelerator.name));
    format!("{}{}, measured", setup.served(), machine.unwrap_or_default())
}

/// Curves of one latency: measured median and 99th percentile, forecast median, and limit.
fn latency(
    points: &[(f64, &Point)],
    measured: fn(&RunSummary) -> [f64; 2],
    forecast: fn(&Forecast) -> Option<f64>,
    limit: fn(&Limit) -> Option<f64>,
) -> Vec<SweepCurve> {
    // Zero means not measured: without streaming there is no TTFT.
    let known = |ms: f64| (ms > 0.0).then_some(ms);
    let at = |index: usize| points.iter().map(move |(_, p)| known(measured(&p.report.summary)[index]));
    let forecasts = points.iter().map(|(_, p)| p.beside.forecast.as_ref().and_then(forecast));
    let limits = points.iter().map(|(_, p)| p.beside.limit.as_ref().and_then(limit));
    vec![
        SweepCurve::new("p50", 0, Look::Points, at(0)),
        SweepCurve::new("p99", 1, Look::Points, at(1)),
        SweepCurve::new("forecast of the p50", 2, Look::Dashed, forecasts),
        SweepCurve::new("limit", 7, Look::Limit, limits),
    ]
}
