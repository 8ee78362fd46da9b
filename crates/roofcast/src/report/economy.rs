//! The picture of cost against latency over the batch: a curve a context, which ends where memory ends.
//!
//! Knows: the curves' points. Knows nothing about how steps are priced.

use super::chart::{Axis, Chart, LegendSample, MUTED, Marker, Stroke, Unit, colour, figure};
use roofcast_ask::deployment::Deployment;
use roofcast_cost::limits::{CostCurve, CostPoint};

/// The chart of `curves`, `width` pixels wide, for a page that defines the colours.
pub fn drawn(deployment: &Deployment, curves: &[CostCurve], width: f64) -> String {
    figure(&[chart(deployment, curves)], width)
}

/// Cost of a million output tokens over the time of a token, at each batch of `curves`.
pub(super) fn chart(deployment: &Deployment, curves: &[CostCurve]) -> Chart {
    let priced = deployment.accelerator.price.is_some();
    let cost = if priced {
        "dollars per million output tokens"
    } else {
        "accelerator hours per million output tokens"
    };
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = Axis::around(
        "time per output token",
        Unit::Milliseconds,
        points().flat_map(|p| [p.forecast.ms(), p.limit.ms()]),
    );
    let y = Axis::around(cost, Unit::Plain, points().flat_map(|p| [p.cost, p.limit_cost]));
    let title = format!("{}: cost against latency over the batch", deployment.model.name);
    let note =
        "Decode steps of batch 1, 2, 4 and so on, to the largest that memory holds; prompts come on top";
    let mut chart = Chart::new(&title, note, x, y);
    for (series, curve) in curves.iter().enumerate() {
        let line = |at: fn(&CostPoint) -> (f64, f64)| curve.points.iter().map(at).collect();
        chart.line(line(|p| (p.limit.ms(), p.limit_cost)), colour(series), Stroke::Dotted);
        chart.line(line(|p| (p.forecast.ms(), p.cost)), colour(series), Stroke::Solid);
        for p in &curve.points {
            let sign = if priced { "$" } else { "" };
            let tip = format!(
                "{} tokens, batch {}: {:.1} ms, {sign}{:.3} per million",
                curve.context,
                p.batch,
                p.forecast.ms(),
                p.cost
            );
            chart.point((p.forecast.ms(), p.cost), Marker::filled(series), &tip);
        }
        if let Some(last) = curve.points.last() {
            let text = format!("memory ends at {}", last.batch);
            chart.label((last.forecast.ms(), last.cost), &text, colour(series));
        }
        let name = format!("{} tokens", curve.context);
        chart.key(LegendSample::Line(colour(series), Stroke::Solid), &name);
    }
    chart.key(LegendSample::Line(MUTED, Stroke::Dotted), "at the limit");
    chart
}
