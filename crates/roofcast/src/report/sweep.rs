//! The picture of a sweep: quantities over the values of the swept key, one chart for each quantity.
//!
//! Knows: how curves of limits, forecasts and measurements differ in style. Knows nothing about which key was swept.

use super::chart::{self, Axis, Chart, LegendSample, Marker, SERIES, Stroke, Unit, colour, page};
use roofcast_ask::spec::SloBound;

/// Values of the swept key.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Numbers, on a continuous scale.
    Numbers(Vec<f64>),
    /// Names, one position each.
    Names(Vec<String>),
}

/// Unit of a chart's y axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Milliseconds.
    Time,
    /// Any other quantity, whose unit is in the title.
    Count,
}

/// Style of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// A forecast or measurement: points joined by a line.
    Points,
    /// A forecast or measurement at another quantile: dashed.
    Dashed,
    /// A limit: a line without points.
    Limit,
}

/// One curve. A value is `None` if its run gave no value.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepCurve {
    /// Name in the legend; without a name, the curve has no entry there.
    pub(crate) name: String,
    /// One value for each value of the key.
    pub(crate) values: Vec<Option<f64>>,
    /// Style of the curve.
    pub(crate) look: Look,
    /// Curves of one series share a colour and a shape of points.
    pub series: usize,
    /// The range of each value; `None` for a value without a range.
    pub ranges: Vec<Option<[f64; 2]>>,
}

impl SweepCurve {
    /// A curve without ranges.
    pub fn new(
        name: &str,
        series: usize,
        look: Look,
        values: impl Iterator<Item = Option<f64>>,
    ) -> SweepCurve {
        SweepCurve { name: name.to_owned(), values: values.collect(), look, series, ranges: Vec::new() }
    }
}

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Title of the chart's y axis.
    pub title: String,
    /// Unit of the y axis.
    pub quantity: Quantity,
    /// Curves of the chart.
    pub curves: Vec<SweepCurve>,
    /// Bound that must not be exceeded, with its text.
    pub most: Option<SloBound>,
}

/// A sweep and its charts.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPicture {
    /// Title: the model and hardware of the sweep.
    pub title: String,
    /// Subtitle: the settings that are constant.
    pub note: String,
    /// Name of the swept key, the title of the x axis.
    pub key: String,
    /// Values of the key.
    pub values: Values,
    /// The charts.
    pub panels: Vec<Panel>,
}

impl SweepPicture {
    /// True if the values of a curve are joined by a line.
    fn joined(&self) -> bool {
        matches!(&self.values, Values::Numbers(all) if all.len() > 1)
    }
}

/// An SVG document with a chart for each panel that has a curve.
pub fn svg(sweep: &SweepPicture) -> String {
    page(&charts(sweep))
}

/// The charts of [`svg`], `width` pixels wide, for a page that defines the colours.
pub fn figure(sweep: &SweepPicture, width: f64) -> String {
    chart::figure(&charts(sweep), width)
}

fn charts(sweep: &SweepPicture) -> Vec<Chart> {
    let drawn = |p: &&Panel| p.curves.iter().any(|c| c.values.iter().any(Option::is_some));
    let panels: Vec<&Panel> = sweep.panels.iter().filter(drawn).collect();
    let is_alone = panels.len() < 2;
    let chart = |(index, panel): (usize, &&Panel)| {
        let (title, note) = if index == 0 { (sweep.title.as_str(), sweep.note.as_str()) } else { ("", "") };
        let drawn = chart(sweep, panel, title, note);
        if is_alone { drawn } else { drawn.low() }
    };
    panels.iter().enumerate().map(chart).collect()
}

fn chart(sweep: &SweepPicture, panel: &Panel, title: &str, note: &str) -> Chart {
    let (x, at): (Axis, Vec<f64>) = match &sweep.values {
        // A single number is shown as a name, because a scale of one value has no other tick.
        Values::Numbers(all) => match all.as_slice() {
            [one] => (Axis::names(&sweep.key, vec![one.to_string()]), vec![0.0]),
            _ => (Axis::around(&sweep.key, Unit::Plain, all.iter().copied()), all.clone()),
        },
        Values::Names(all) => {
            (Axis::names(&sweep.key, all.clone()), (0..all.len()).map(|i| i as f64).collect())
        }
    };
    let values = || panel.curves.iter().flat_map(|c| c.values.iter().copied().flatten());
    let ranges = panel.curves.iter().flat_map(|c| c.ranges.iter().flatten().flatten().copied());
    let unit = if panel.quantity == Quantity::Time { Unit::Milliseconds } else { Unit::Plain };
    let bound_ms = panel.most.map(|bound| bound.ms);
    let y = Axis::around(&panel.title, unit, values().chain(ranges).chain(bound_ms));
    let mut chart = Chart::new(title, note, x, y);
    if let Some(bound) = panel.most {
        chart.bound(bound.ms, &format!("SLO: {} {} ms", bound.name(), bound.ms));
    }
    for curve in panel.curves.iter().filter(|c| c.values.iter().any(Option::is_some)) {
        draw(&mut chart, curve, &at, sweep.joined());
    }
    legend(&mut chart, panel, sweep.joined());
    chart
}

/// Adds the legend: one entry for each curve with a name, and one for ranges. A panel of one curve needs none, because
/// the title of the axis names it.
fn legend(chart: &mut Chart, panel: &Panel, joined: bool) {
    let ranged = panel.curves.iter().find(|curve| curve.ranges.iter().any(Option::is_some));
    if panel.curves.len() < 2 && ranged.is_none() {
        return;
    }
    // From the ninth series on colours repeat, and the shape of the points tells two curves apart.
    let shapes = panel.curves.iter().any(|curve| curve.series >= SERIES);
    let named = panel.curves.iter().filter(|curve| !curve.name.is_empty());
    for curve in named.filter(|curve| curve.values.iter().any(Option::is_some)) {
        let sample = if joined && !shapes {
            LegendSample::Line(colour(curve.series), stroke(curve.look))
        } else {
            LegendSample::Point(marker(curve))
        };
        chart.key(sample, &curve.name);
    }
    if let Some(curve) = ranged {
        chart.key(LegendSample::Band(colour(curve.series)), "80 % interval");
    }
}

fn stroke(look: Look) -> Stroke {
    match look {
        Look::Points => Stroke::Solid,
        Look::Dashed => Stroke::Dashed,
        Look::Limit => Stroke::Dotted,
    }
}

fn marker(curve: &SweepCurve) -> Marker {
    if curve.look == Look::Points { Marker::filled(curve.series) } else { Marker::hollow(curve.series) }
}

/// Draws one curve. Values over names are not joined by a line, because there is nothing between two names.
fn draw(chart: &mut Chart, curve: &SweepCurve, at: &[f64], joined: bool) {
    let series = colour(curve.series);
    let mut ranges: Vec<(f64, f64, f64)> =
        at.iter().zip(&curve.ranges).filter_map(|(x, r)| r.map(|[low, high]| (*x, low, high))).collect();
    let mut points: Vec<(f64, f64)> =
        at.iter().zip(&curve.values).filter_map(|(x, v)| v.map(|v| (*x, v))).collect();
    if joined {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.line(points.clone(), series, stroke(curve.look));
        chart.band(&ranges, series);
    } else {
        ranges.iter().for_each(|(x, low, high)| chart.join((*x, *low), (*x, *high), series));
    }
    // Markers that touch each other add nothing to the line; a limit is a line without markers.
    if !joined || (points.len() <= MOST_POINTS && curve.look != Look::Limit) {
        points.iter().for_each(|at| chart.point(*at, marker(curve), &format!("{}: {}", curve.name, at.1)));
    }
}

/// Most points of a curve that get markers.
const MOST_POINTS: usize = 40;
