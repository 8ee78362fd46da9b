//! A chart: lines, points and labels, placed by values of the axes, and a legend.
//!
//! Knows: lines, bands, points, bounds and labels. Knows nothing about pixels, which [`draw`] computes, or about the
//! meaning of values.

mod axis;
mod draw;
mod label;
mod text;

pub(super) use axis::{Axis, Unit, prefixed, shown};
pub(super) use draw::{figure, page};

/// Number of colours for series; the colours of text, background and bounds follow. Each colour has a variant for light
/// and one for dark pages.
pub(super) const SERIES: usize = 8;
/// Index of the colour of text.
pub(super) const INK: usize = SERIES;
/// Index of the colour of grid lines and axis text.
pub(super) const MUTED: usize = SERIES + 1;
/// Index of the colour of bounds.
pub(super) const BOUND: usize = SERIES + 2;

/// Style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    Solid,
    Dashed,
    Dotted,
}

/// Colour and shape of a point. From the ninth series on colours repeat with another shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marker {
    colour: usize,
    shape: usize,
    hollow: bool,
}

impl Marker {
    pub(super) fn filled(series: usize) -> Marker {
        Marker { colour: colour(series), shape: series / SERIES, hollow: false }
    }

    pub(super) fn hollow(series: usize) -> Marker {
        Marker { hollow: true, ..Marker::filled(series) }
    }

    /// Returns the marker in the colour of text.
    pub(super) fn ink(self) -> Marker {
        Marker { colour: INK, ..self }
    }
}

type At = (f64, f64);

/// Elements of a chart, drawn from back to front.
#[derive(Debug, Clone)]
enum Item {
    Line {
        points: Vec<At>,
        colour: usize,
        stroke: Stroke,
    },
    /// A shaded area enclosed by an edge.
    Area {
        edge: Vec<At>,
        colour: usize,
    },
    /// A thin line that joins two related points.
    Join {
        from: At,
        to: At,
        colour: usize,
    },
    Point {
        at: At,
        marker: Marker,
        tooltip: String,
    },
    /// Many points, without tooltips.
    Cloud {
        points: Vec<At>,
        series: usize,
    },
    /// Text along a horizontal line, from one x to another.
    Along {
        from: f64,
        to: f64,
        y: f64,
        text: String,
    },
    /// A line across the chart at one value, with text; `shaded` if the far side is forbidden.
    Level {
        y: f64,
        text: String,
        colour: usize,
        shaded: bool,
    },
    Upright {
        x: f64,
        text: String,
        colour: usize,
    },
    Label {
        at: At,
        text: String,
        colour: usize,
    },
}

/// Symbol of a legend entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegendSample {
    Line(usize, Stroke),
    Band(usize),
    Point(Marker),
}

/// A chart.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    title: String,
    /// Subtitle of one or two lines.
    note: String,
    x: Axis,
    y: Axis,
    items: Vec<Item>,
    legend: Vec<(LegendSample, String)>,
    /// Height of the y axis in pixels.
    height: f64,
}

/// Heights in pixels of the y axis of a single chart, and of one of several charts below each other.
const TALL: f64 = 310.0;
const LOW: f64 = 165.0;

impl Chart {
    pub(super) fn new(title: &str, note: &str, x: Axis, y: Axis) -> Chart {
        let title = title.to_owned();
        let note = note.to_owned();
        Chart { title, note, x, y, items: Vec::new(), legend: Vec::new(), height: TALL }
    }

    /// Returns the chart with the height of one of several charts that share an x axis.
    pub(super) fn low(mut self) -> Chart {
        self.height = LOW;
        self
    }

    /// Adds a line through `points`.
    pub(super) fn line(&mut self, points: Vec<At>, colour: usize, stroke: Stroke) {
        self.items.push(Item::Line { points, colour, stroke });
    }

    /// Adds a line that keeps its value until the next point.
    pub(super) fn steps(&mut self, points: &[At], colour: usize, stroke: Stroke) {
        let corners = points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
        self.line(corners.chain(points.last().copied()).collect(), colour, stroke);
    }

    /// Adds a shaded range between two values at each x.
    pub(super) fn band(&mut self, points: &[(f64, f64, f64)], colour: usize) {
        let low = points.iter().map(|(x, low, _)| (*x, *low));
        let high = points.iter().rev().map(|(x, _, high)| (*x, *high));
        self.area(low.chain(high).collect(), colour);
    }

    /// Adds a shaded area enclosed by `edge`.
    pub(super) fn area(&mut self, edge: Vec<At>, colour: usize) {
        self.items.push(Item::Area { edge, colour });
    }

    /// Adds a thin line that joins two related points.
    pub(super) fn join(&mut self, from: At, to: At, colour: usize) {
        self.items.push(Item::Join { from, to, colour });
    }

    /// Adds a point with a tooltip.
    pub(super) fn point(&mut self, at: At, marker: Marker, tooltip: &str) {
        self.items.push(Item::Point { at, marker, tooltip: tooltip.to_owned() });
    }

    /// Adds many points, without tooltips.
    pub(super) fn cloud(&mut self, points: Vec<At>, series: usize) {
        self.items.push(Item::Cloud { points, series });
    }

    /// Adds a horizontal line across the chart, with no side forbidden.
    pub(super) fn level(&mut self, y: f64, text: &str, colour: usize) {
        self.items.push(Item::Level { y, text: text.to_owned(), colour, shaded: false });
    }

    /// Adds text along a horizontal line that is drawn already, from one x to another.
    pub(super) fn along(&mut self, (from, to): (f64, f64), y: f64, text: &str) {
        self.items.push(Item::Along { from, to, y, text: text.to_owned() });
    }

    /// Adds a vertical line, with no side forbidden.
    pub(super) fn upright(&mut self, x: f64, text: &str, colour: usize) {
        self.items.push(Item::Upright { x, text: text.to_owned(), colour });
    }

    /// Adds a horizontal bound that must not be exceeded, with the side beyond it shaded.
    pub(super) fn bound(&mut self, y: f64, text: &str) {
        self.items.push(Item::Level { y, text: text.to_owned(), colour: BOUND, shaded: true });
    }

    /// Adds text next to a point; labels added earlier get better positions.
    pub(super) fn label(&mut self, at: At, text: &str, colour: usize) {
        self.items.push(Item::Label { at, text: text.to_owned(), colour });
    }

    /// Adds an entry to the legend.
    pub(super) fn key(&mut self, key: LegendSample, text: &str) {
        self.legend.push((key, text.to_owned()));
    }
}

/// The colour of series number `series`.
pub(super) fn colour(series: usize) -> usize {
    series % SERIES
}
