//! The pictures of a plan's curves: throughput per accelerator against interactivity, and cost against latency.
//!
//! Knows: both charts show the points of a plan's curves, on different axes. Knows nothing about how the points were
//! found.

use super::chart::{self, Axis, Chart, INK, LegendSample, Marker, Stroke, Unit, colour, page};
use roofcast_plan::plan::{Curve, CurvePoint, Curves};

/// The axes of a chart, and the position of a point on them.
struct Axes {
    title: &'static str,
    x: (&'static str, Unit),
    y: (&'static str, Unit),
    at: fn(&Curve, &CurvePoint) -> Option<At>,
    /// True if the best point of every curve has a label; otherwise only the best point of the cheapest curve has one.
    all_named: bool,
    /// The two ends of a point's band: all times slow, and all times fast.
    band: fn(&Curve, &CurvePoint) -> Option<[At; 2]>,
}

type At = (f64, f64);

const THROUGHPUT: Axes = Axes {
    title: "throughput against interactivity",
    x: ("output tokens/s of one user", Unit::Plain),
    y: ("output tokens/s per accelerator", Unit::Plain),
    at: |_, p| Some((p.interactivity_tok_s, p.output_tok_s_per_accelerator)),
    band: |_, p| {
        let [x, y] = [p.interactivity_range()?, p.throughput_range()?];
        Some([(x[0], y[0]), (x[1], y[1])])
    },
    all_named: true,
};

const COST: Axes = Axes {
    title: "cost against latency",
    x: ("time per output token", Unit::Milliseconds),
    y: ("dollars per million output tokens", Unit::Plain),
    at: |_, p| Some((p.tpot_ms, p.cost_per_million_tokens?)),
    band: |curve, p| {
        let rate = p.throughput_range()?;
        let usd = curve.usd_per_hour?;
        let cost = |rate: f64| usd / 3600.0 / rate * 1e6;
        let ms = p.bands.as_ref()?.tpot_ms?.range;
        Some([(ms[1], cost(rate[0])), (ms[0], cost(rate[1]))])
    },
    // A bound on time per token puts the best points of all curves at one place, where labels would overlap.
    all_named: false,
};

/// Most curves whose bands are drawn; more bands would cover each other.
const MOST_BANDS: usize = 3;

/// An SVG document of both charts; the chart of cost is omitted if no accelerator has a price. `question` states the
/// load and the SLO in words.
pub fn svg(model: &str, found: &Curves, question: &str) -> String {
    page(&charts(model, found, question))
}

/// The charts of [`svg`], `width` pixels wide, for a page that defines the colours.
pub fn figure(model: &str, found: &Curves, question: &str, width: f64) -> String {
    chart::figure(&charts(model, found, question), width)
}

fn charts(model: &str, found: &Curves, question: &str) -> Vec<Chart> {
    let priced = found.curves.iter().any(|curve| curve.usd_per_hour.is_some());
    let title = |axes: &Axes| format!("{model}: {}", axes.title);
    let mut throughput = chart(&title(&THROUGHPUT), question, found, &THROUGHPUT);
    legend(&mut throughput, found);
    let cost = priced.then(|| chart(&title(&COST), "", found, &COST));
    [throughput].into_iter().chain(cost).collect()
}

fn chart(title: &str, note: &str, found: &Curves, axes: &Axes) -> Chart {
    let points = || found.curves.iter().flat_map(|curve| curve.points.iter().map(move |p| (curve, p)));
    let banded = has_bands(found);
    let ends = points().filter_map(|(curve, p)| (axes.band)(curve, p)).filter(|_| banded).flatten();
    let at: Vec<At> = points().filter_map(|(curve, p)| (axes.at)(curve, p)).chain(ends).collect();
    let x = Axis::around(axes.x.0, axes.x.1, at.iter().map(|(x, _)| *x));
    let y = Axis::around(axes.y.0, axes.y.1, at.iter().map(|(_, y)| *y));
    let mut chart = Chart::new(title, note, x, y);
    let best = found.cheapest();
    if let Some((curve, point)) = best
        && let Some(at) = (axes.at)(curve, point)
    {
        chart.label(at, &format!("best: {}, {}", curve.name, label(point)), INK);
    }
    for (series, curve) in found.curves.iter().enumerate() {
        draw(&mut chart, axes, (series, curve), banded);
        let other =
            curve.best.as_ref().filter(|_| axes.all_named && best.is_none_or(|(best, _)| best != curve));
        if let Some((at, point)) = other.and_then(|point| Some(((axes.at)(curve, point)?, point))) {
            chart.label(at, &format!("{}, {}", curve.name, label(point)), colour(series));
        }
    }
    chart
}

/// True if forecasts have bands, and at most [`MOST_BANDS`] curves have them.
fn has_bands(found: &Curves) -> bool {
    let banded = found.curves.iter().flat_map(|curve| &curve.points).any(|p| p.bands.is_some());
    banded && found.curves.len() <= MOST_BANDS
}

fn legend(chart: &mut Chart, found: &Curves) {
    for (series, curve) in found.curves.iter().enumerate() {
        chart.key(LegendSample::Line(colour(series), Stroke::Solid), &curve.name);
    }
    let any =
        |met: bool| found.curves.iter().flat_map(|curve| &curve.points).any(|p| p.missed.is_none() == met);
    for (met, marker, text) in
        [(true, Marker::filled(0), "meets the SLO"), (false, Marker::hollow(0), "misses it")]
    {
        if any(met) {
            chart.key(LegendSample::Point(marker.ink()), text);
        }
    }
    if has_bands(found) {
        chart.key(LegendSample::Band(INK), "80 % interval");
    }
}

/// Draws one curve with its points and, if `banded`, its band.
fn draw(chart: &mut Chart, axes: &Axes, (series, curve): (usize, &Curve), banded: bool) {
    let hue = colour(series);
    let at = |p: &CurvePoint| (axes.at)(curve, p);
    let line: Vec<At> = curve.points.iter().filter_map(at).collect();
    if line.is_empty() {
        return;
    }
    if banded {
        let ends: Vec<[At; 2]> = curve.points.iter().filter_map(|p| (axes.band)(curve, p)).collect();
        let slow = ends.iter().map(|ends| ends[0]);
        let fast = ends.iter().rev().map(|ends| ends[1]);
        chart.area(slow.chain(fast).collect(), hue);
    }
    chart.line(line, hue, Stroke::Solid);
    for p in &curve.points {
        let marker = if p.missed.is_none() { Marker::filled(series) } else { Marker::hollow(series) };
        if let Some(at) = at(p) {
            chart.point(at, marker, &told(curve, p));
        }
    }
}

/// Text with the users and the cost of the best point of a curve.
fn label(best: &CurvePoint) -> String {
    let users = if best.users == 1 { "1 user".to_owned() } else { format!("{} users", best.users) };
    best.cost_per_million_tokens.map_or(users.clone(), |usd| format!("{users}: ${usd:.2}/M output tokens"))
}

fn told(curve: &Curve, p: &CurvePoint) -> String {
    let verdict =
        p.missed.as_ref().map_or_else(|| "meets the SLO".to_owned(), |why| format!("misses the SLO: {why}"));
    format!(
        "{}, {} × {}, {} users: {:.1} tokens/s of one user, {:.0} per accelerator, {verdict}",
        curve.name, p.count, p.cut, p.users, p.interactivity_tok_s, p.output_tok_s_per_accelerator
    )
}
