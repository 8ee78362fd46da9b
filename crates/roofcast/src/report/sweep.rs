//! The picture of a sweep: quantities over the values of the swept key, one chart for each quantity.
//!
//! Knows: how curves of limits, forecasts and measurements differ in style. Knows nothing about which key was swept.

use super::chart::{Axis, Chart, LegendSample, Marker, Stroke, Unit, page};
use crate::spec::SloBound;

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
    /// Name in the legend.
    pub(crate) name: String,
    /// One value for each value of the key.
    pub(crate) values: Vec<Option<f64>>,
    /// Style of the curve.
    pub(crate) look: Look,
    /// Curves of one series share a colour.
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

/// An SVG document with a chart for each panel that has a curve.
pub fn svg(sweep: &SweepPicture) -> String {
    let drawn = |p: &&Panel| p.curves.iter().any(|c| c.values.iter().any(Option::is_some));
    let panels: Vec<&Panel> = sweep.panels.iter().filter(drawn).collect();
    let one = panels.len() < 2;
    let chart = |(index, panel): (usize, &&Panel)| {
        let (title, note) = if index == 0 { (sweep.title.as_str(), sweep.note.as_str()) } else { ("", "") };
        let drawn = chart(sweep, panel, title, note);
        if one { drawn } else { drawn.low() }
    };
    page(&panels.iter().enumerate().map(chart).collect::<Vec<_>>())
}

fn chart(sweep: &SweepPicture, panel: &Panel, title: &str, note: &str) -> Chart {
    let (x, at): (Axis, Vec<f64>) = match &sweep.values {
        Values::Numbers(all) => (Axis::around(&sweep.key, Unit::Plain, all.iter().copied()), all.clone()),
        Values::Names(all) => {
            (Axis::names(&sweep.key, all.clone()), (0..all.len()).map(|i| i as f64).collect())
        }
    };
    let shown = || panel.curves.iter().flat_map(|c| c.values.iter().copied().flatten());
    let ranges = panel.curves.iter().flat_map(|c| c.ranges.iter().flatten().flatten().copied());
    let unit = if panel.quantity == Quantity::Time { Unit::Milliseconds } else { Unit::Plain };
    let most = panel.most.map(|bound| bound.ms);
    let y = Axis::around(&panel.title, unit, shown().chain(ranges).chain(most));
    let mut chart = Chart::new(title, note, x, y);
    if let Some(bound) = panel.most {
        chart.bound(bound.ms, &format!("SLO: {} {} ms", bound.name(), bound.ms));
    }
    let joined = matches!(sweep.values, Values::Numbers(_));
    for curve in &panel.curves {
        draw(&mut chart, curve, &at, joined);
    }
    chart
}

/// Draws one curve. Values over names are not joined by a line, because there is nothing between two names.
fn draw(chart: &mut Chart, curve: &SweepCurve, at: &[f64], joined: bool) {
    let series = curve.series;
    let mut ranges: Vec<(f64, f64, f64)> =
        at.iter().zip(&curve.ranges).filter_map(|(x, r)| r.map(|[low, high]| (*x, low, high))).collect();
    let mut points: Vec<(f64, f64)> =
        at.iter().zip(&curve.values).filter_map(|(x, v)| v.map(|v| (*x, v))).collect();
    if points.is_empty() {
        return;
    }
    let stroke = match curve.look {
        Look::Points => Stroke::Solid,
        Look::Dashed => Stroke::Dashed,
        Look::Limit => Stroke::Dotted,
    };
    if joined {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.line(points.clone(), series, stroke);
        chart.key(LegendSample::Line(series, stroke), &curve.name);
    }
    let marker = if curve.look == Look::Points { Marker::filled(series) } else { Marker::hollow(series) };
    if !joined {
        chart.key(LegendSample::Point(marker), &curve.name);
    }
    if !ranges.is_empty() {
        chart.key(LegendSample::Band(series), "80 % interval");
        if joined {
            chart.band(&ranges, series);
        } else {
            ranges.iter().for_each(|(x, low, high)| chart.join((*x, *low), (*x, *high), series));
        }
    }
    // Markers that touch each other add nothing to the line; a limit is a line without markers.
    if !joined || (points.len() <= MOST_POINTS && curve.look != Look::Limit) {
        points.iter().for_each(|at| chart.point(*at, marker, &format!("{}: {}", curve.name, at.1)));
    }
}

/// Most points of a curve that get markers.
const MOST_POINTS: usize = 40;
