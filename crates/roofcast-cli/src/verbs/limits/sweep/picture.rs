//! A sweep as a picture: times above, what they give below; settings that are compared as a curve each.

use super::super::super::About;
use super::point::{Asked, Point};
use crate::show::number::grouped;
use roofcast::report::sweep::{Curve, Look, Panel, Quantity, Sweep, Values};

/// The picture of `points`; `measured` are times at some values.
pub(super) fn drawn(asked: &Asked, points: &[Point], measured: &[(u64, f64)]) -> Sweep {
    let question = asked.question;
    let (batch, context) = (grouped(question.batch), grouped(question.context));
    let (what, held) = match asked.key {
        "prefill" => ("time of a prefill", "One prompt".to_owned()),
        "batch" => ("time of a decode step", format!("Decode steps, {context} tokens of context each")),
        "context" => ("time of a decode step", format!("Decode steps of batch {batch}")),
        "position" => {
            let prompt = grouped(question.prefill);
            (
                "time of a decode step",
                format!("Decode steps of batch {batch} behind prompts of {prompt} tokens"),
            )
        }
        _ => (
            "time of a decode step",
            format!("Decode steps of batch {batch}, {context} tokens of context each"),
        ),
    };
    let panel =
        |title: &str, quantity, curves| Panel { title: title.to_owned(), quantity, curves, most: None };
    let mut panels = vec![panel(what, Quantity::Time, times(asked, points, measured))];
    if asked.compared.is_empty() {
        panels.push(panel("tokens a second", Quantity::Count, rates(points)));
    }
    Sweep {
        title: About::of(&asked.forecaster.deployment).name(),
        note: held,
        key: asked.key.to_owned(),
        values: Values::Numbers(points.iter().map(|p| p.value as f64).collect()),
        panels,
    }
}

fn curve(points: &[Point], name: &str, series: usize, look: Look, of: fn(&Point) -> f64) -> Curve {
    Curve::new(name, series, look, points.iter().map(|p| Some(of(p))))
}

fn times(asked: &Asked, points: &[Point], measured: &[(u64, f64)]) -> Vec<Curve> {
    let limit = curve(points, "limit", 7, Look::Limit, |p| p.limit_with_communication_ms);
    let one = |(index, (name, _)): (usize, &(String, _))| {
        let at = |p: &Point| p.compared.iter().find(|c| c.name == *name).map(|c| c.forecast_ms);
        Curve::new(name, index, Look::Points, points.iter().map(at))
    };
    let mut all: Vec<Curve> = asked.compared.iter().enumerate().map(one).collect();
    if all.is_empty() {
        let mut forecast = curve(points, "forecast", 0, Look::Points, |p| p.forecast_ms);
        forecast.ranges = points.iter().map(|p| Some(p.forecast_band_ms)).collect();
        all.push(forecast);
    }
    if !measured.is_empty() {
        let at = |p: &Point| measured.iter().find(|(value, _)| *value == p.value).map(|(_, ms)| *ms);
        all.push(Curve::new("measured", 2, Look::Dashed, points.iter().map(at)));
    }
    all.push(limit);
    all
}

fn rates(points: &[Point]) -> Vec<Curve> {
    vec![
        curve(points, "forecast", 0, Look::Points, |p| {
            p.tokens_per_s * p.limit_with_communication_ms / p.forecast_ms
        }),
        curve(points, "limit", 7, Look::Limit, |p| p.tokens_per_s),
    ]
}
