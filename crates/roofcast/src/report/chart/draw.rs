//! A chart as SVG: margins, legend, grid, and all items at their pixel positions.
//!
//! Knows: pixels and colours. A picture for an unknown place is 720 pixels wide, so that its text is still readable at
//! 600; it follows the light or dark colour scheme of its viewer. Knows nothing about what the values mean.

use super::label::{Anchor, Placed, Rect, Wanted, place};
use super::text::{BOLD, SIZE, escape, lines, width};
use super::{Chart, INK, Item, LegendSample, MUTED, Marker, SERIES, Stroke, colour};
use std::collections::BTreeSet;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const RIGHT: f64 = 22.0;
const TITLE: f64 = 15.5;
const ROW: f64 = 19.0;
/// Width in pixels of a legend symbol, and of the gap between two entries.
const KEY: f64 = 26.0;

/// Colours on light and on dark pages, of equal contrast. The first seven follow Okabe and Ito, so that colour-blind
/// readers can distinguish them.
const COLOURS: [[&str; 2]; SERIES + 3] = [
    ["#0069a8", "#5cb3f2"],
    ["#c84f00", "#ff9255"],
    ["#007a5a", "#3ecf9e"],
    ["#a8467f", "#eb9cca"],
    ["#946200", "#efb73a"],
    ["#2b7fb0", "#9ad5f7"],
    ["#6a51a3", "#b7a5ee"],
    ["#5f5f5f", "#bdbdbd"],
    ["#1c1f23", "#eceef0"],
    ["#6b7178", "#a0a7ae"],
    ["#b3261e", "#ff8a80"],
];

fn style() -> String {
    let rules = |mode: usize| -> String {
        let page = [["#ffffff", "#15181c"], ["#e3e6e9", "#30353b"], ["#f1f3f5", "#21252a"]];
        let [paper, grid, minor] = page.map(|pair| pair[mode]);
        let mut css = format!(
            ".p{{fill:{paper}}}.g{{stroke:{grid}}}.m{{stroke:{minor}}}.h{{stroke:{paper};stroke-width:3.5;stroke-linejoin:round;paint-order:stroke}}"
        );
        for (index, pair) in COLOURS.iter().enumerate() {
            let hue = pair[mode];
            css += &format!(".l{index}{{stroke:{hue}}}.f{index}{{fill:{hue}}}");
        }
        css
    };
    format!("<style>{}@media (prefers-color-scheme:dark){{{}}}</style>", rules(0), rules(1))
}

/// An SVG document of charts, one below the other, that includes its own colours.
pub(in crate::report) fn page(charts: &[Chart]) -> String {
    let style = format!("{}\n<rect class='p' width='100%' height='100%'/>\n", style());
    document(charts, WIDTH, &style)
}

/// An SVG document of charts, `width` pixels wide, for a page that defines colours for the classes of [`style`].
pub(in crate::report) fn figure(charts: &[Chart], width: f64) -> String {
    document(charts, width, "")
}

fn document(charts: &[Chart], width: f64, style: &str) -> String {
    let mut body = String::new();
    let mut down = 0.0;
    // Charts below each other share their left edge.
    let left =
        charts.iter().map(|chart| widest(&chart.y.ticks(chart.height, |_| 22.0))).fold(20.0, f64::max) + 24.0;
    for chart in charts {
        let drawing = Drawing::of(chart, left, width);
        let _ = write!(body, "<g transform='translate(0 {down})'>\n{}</g>\n", drawing.body);
        down += drawing.height;
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {down}' width='{width}' height='{down}' \
         font-family='Helvetica, Arial, sans-serif' font-size='{SIZE}' fill='none'>\n{style}{body}</svg>\n"
    )
}

fn widest(ticks: &[(f64, String)]) -> f64 {
    ticks.iter().map(|(_, text)| width(text, SIZE)).fold(0.0, f64::max)
}

/// A chart while it is written as SVG.
struct Drawing<'a> {
    chart: &'a Chart,
    width: f64,
    left: f64,
    top: f64,
    across: f64,
    body: String,
    height: f64,
}

impl<'a> Drawing<'a> {
    fn of(chart: &'a Chart, left: f64, width: f64) -> Drawing<'a> {
        let side = chart.y.ticks(chart.height, |_| 22.0);
        let across = width - left - RIGHT;
        let body = String::new();
        let mut drawing = Drawing { chart, width, left, top: 0.0, across, body, height: 0.0 };
        drawing.head();
        drawing.frame(&side);
        drawing.contents();
        drawing.height = drawing.top + chart.height + 52.0;
        drawing
    }

    fn add(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.body.write_fmt(arguments);
    }

    fn text(&mut self, (x, y): (f64, f64), attributes: &str, text: &str) {
        self.add(format_args!("<text x='{x:.1}' y='{y:.1}' {attributes}>{}</text>\n", escape(text)));
    }

    /// Draws title, note, legend and the title of the y axis; sets the top of the plot.
    fn head(&mut self) {
        let chart = self.chart;
        let mut y = if chart.title.is_empty() { 0.0 } else { 12.0 };
        for line in lines(&chart.title, TITLE * BOLD, self.width - 24.0) {
            y += 18.0;
            self.text((20.0, y), &format!("class='f{INK}' font-size='{TITLE}' font-weight='600'"), &line);
        }
        for line in lines(&chart.note, SIZE, self.width - 40.0) {
            y += 16.5;
            self.text((20.0, y), &format!("class='f{MUTED}'"), &line);
        }
        if !chart.legend.is_empty() {
            y += ROW + 4.0;
            y = self.legend(y);
        }
        y += 22.0;
        self.text((20.0, y), &format!("class='f{MUTED}'"), &chart.y.title);
        self.top = y + 13.0;
    }

    /// Draws the rows of the legend; returns the baseline of the last row.
    fn legend(&mut self, mut y: f64) -> f64 {
        let mut x = 20.0;
        for (key, text) in &self.chart.legend {
            let mark = if matches!(key, LegendSample::Point(_)) { 10.0 } else { KEY };
            let taken = mark + 7.0 + width(text, SIZE) + 18.0;
            if x > 20.0 && x + taken > self.width {
                (x, y) = (20.0, y + ROW);
            }
            self.key(*key, (x, y - 4.0));
            self.text((x + mark + 7.0, y), &format!("class='f{INK}'"), text);
            x += taken;
        }
        y
    }

    fn key(&mut self, key: LegendSample, (x, y): (f64, f64)) {
        match key {
            LegendSample::Line(hue, stroke) => {
                let dash = dash(stroke);
                let right = x + KEY;
                self.add(format_args!(
                    "<path d='M{x} {y}H{right}' class='l{hue}' stroke-width='2.2'{dash}/>\n"
                ));
            }
            LegendSample::Band(hue) => {
                let top = y - 6.0;
                self.add(format_args!(
                    "<rect x='{x}' y='{top}' width='{KEY}' height='12' class='f{hue}' fill-opacity='.2'/>\n"
                ));
            }
            LegendSample::Point(marker) => self.marker((x + 5.0, y), marker, ""),
        }
    }

    fn x(&self, value: f64) -> f64 {
        self.chart.x.place(value) * self.across
    }

    fn y(&self, value: f64) -> f64 {
        self.chart.height * (1.0 - self.chart.y.place(value))
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x(x), self.y(y))
    }

    /// Draws grid, ticks and axis titles.
    fn frame(&mut self, side: &[(f64, String)]) {
        let left = self.left;
        let top = self.top;
        let across = self.across;
        let chart = self.chart;
        let bottom = top + chart.height;
        let right = left + across;
        for value in chart.x.minor() {
            let x = left + self.x(value);
            self.add(format_args!("<path d='M{x:.1} {top}V{bottom}' class='m'/>\n"));
        }
        for value in chart.y.minor() {
            let y = top + self.y(value);
            self.add(format_args!("<path d='M{left} {y:.1}H{right}' class='m'/>\n"));
        }
        let middle = format!("class='f{MUTED}' text-anchor='middle'");
        let end = format!("class='f{MUTED}' text-anchor='end'");
        for (value, text) in chart.x.ticks(across, |text| width(text, SIZE) + 14.0) {
            let x = left + self.x(value);
            self.add(format_args!("<path d='M{x:.1} {top}V{bottom}' class='g'/>\n"));
            // Keep a text at the end of the axis within the picture.
            let half = width(&text, SIZE) / 2.0;
            self.text((x.min(self.width - half - 2.0), bottom + 17.0), &middle, &text);
        }
        for (value, text) in side {
            let y = top + self.y(*value);
            self.add(format_args!("<path d='M{left} {y:.1}H{right}' class='g'/>\n"));
            self.text((left - 7.0, y + 4.3), &end, text);
        }
        self.add(format_args!("<path d='M{left} {bottom}H{right}' class='l{MUTED}'/>\n"));
        self.text((left + across / 2.0, bottom + 37.0), &middle, &chart.x.title);
    }

    /// Draws lines and bands, clipped at the axes, and then points and labels, which may extend beyond the axes.
    fn contents(&mut self) {
        let left = self.left;
        let top = self.top;
        let across = self.across;
        let height = self.chart.height;
        self.add(format_args!(
            "<svg x='{left:.1}' y='{top:.1}' width='{across:.1}' height='{height}' overflow='hidden'>\n"
        ));
        let items = &self.chart.items;
        for item in items {
            self.shade(item);
        }
        for item in items {
            self.stroke(item);
        }
        self.add(format_args!("</svg>\n<g transform='translate({left:.1} {top:.1})'>\n"));
        for item in items {
            if let Item::Point { at, marker, tooltip } = item {
                self.marker(self.at(*at), *marker, tooltip);
            }
        }
        for label in self.labels() {
            self.label(&label);
        }
        self.add(format_args!("</g>\n"));
    }

    /// Draws shaded areas and bands, which are behind lines.
    fn shade(&mut self, item: &Item) {
        match item {
            Item::Level { y, colour, shaded: true, .. } => {
                let height = self.y(*y).max(0.0);
                self.add(format_args!(
                    "<rect width='100%' height='{height:.1}' class='f{colour}' fill-opacity='.08'/>\n"
                ));
            }
            Item::Area { edge, colour } => {
                let path = self.path(edge.iter().copied());
                self.add(format_args!("<polygon points='{path}' class='f{colour}' fill-opacity='.2'/>\n"));
            }
            _ => {}
        }
    }

    fn stroke(&mut self, item: &Item) {
        match item {
            Item::Line { points, colour, stroke } => {
                let path = self.path(points.iter().copied());
                let dash = dash(*stroke);
                self.add(format_args!(
                    "<polyline points='{path}' class='l{colour}' stroke-width='2.2' stroke-linejoin='round'{dash}/>\n"
                ));
            }
            Item::Cloud { points, series } => {
                let dots: BTreeSet<(i64, i64)> =
                    points.iter().map(|at| self.at(*at)).map(|(x, y)| (tenths(x), tenths(y))).collect();
                let dots: String = dots
                    .into_iter()
                    .map(|(x, y)| format!("M{:.1} {:.1}h0", x as f64 / 10.0, y as f64 / 10.0))
                    .collect();
                let hue = colour(*series);
                self.add(format_args!(
                    "<path d='{dots}' class='l{hue}' stroke-width='4.6' stroke-linecap='round' stroke-opacity='.5'/>\n"
                ));
            }
            Item::Join { from, to, colour } => {
                let path = self.path([*from, *to].into_iter());
                self.add(format_args!(
                    "<polyline points='{path}' class='l{colour}' stroke-width='1.2' stroke-opacity='.6'/>\n"
                ));
            }
            Item::Level { y, colour, .. } => {
                let y = self.y(*y);
                let right = self.across;
                self.add(format_args!(
                    "<path d='M0 {y:.1}H{right:.1}' class='l{colour}' stroke-width='1.4' stroke-dasharray='5 3'/>\n"
                ));
            }
            Item::Upright { x, colour, .. } => {
                let x = self.x(*x);
                let down = self.chart.height;
                self.add(format_args!(
                    "<path d='M{x:.1} 0V{down}' class='l{colour}' stroke-width='1.4' stroke-dasharray='5 3'/>\n"
                ));
            }
            _ => {}
        }
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let points = points.map(|at| self.at(at)).map(|(x, y)| format!("{x:.1},{y:.1}"));
        points.collect::<Vec<_>>().join(" ")
    }

    fn marker(&mut self, (x, y): (f64, f64), marker: Marker, tooltip: &str) {
        let hue = marker.colour;
        let r = 4.6;
        let class = if marker.hollow { format!("p l{hue}") } else { format!("f{hue}") };
        let stroke = if marker.hollow { " stroke-width='1.8'" } else { "" };
        let end = if tooltip.is_empty() {
            "/>".to_owned()
        } else {
            format!("><title>{}</title></path>", escape(tooltip))
        };
        let shape = match marker.shape {
            0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0", x - r, d = 2.0 * r),
            1 => format!("M{:.1} {:.1}h{d}v{d}h-{d}z", x - r, y - r, d = 2.0 * r),
            2 => format!(
                "M{:.1} {y:.1}l{e:.1} {e:.1} {e:.1} -{e:.1} -{e:.1} -{e:.1}z",
                x - 1.3 * r,
                e = 1.3 * r
            ),
            _ => format!("M{:.1} {:.1}h{:.1}l-{:.1} -{:.1}z", x - 1.2 * r, y + r, 2.4 * r, 1.2 * r, 2.2 * r),
        };
        self.add(format_args!("<path class='{class}'{stroke} d='{shape}'{end}\n"));
    }

    fn label(&mut self, label: &Placed) {
        let Placed { rect, colour, .. } = label;
        if let Some([from, to]) = label.leader {
            self.add(format_args!(
                "<path d='M{:.1} {:.1}L{:.1} {:.1}' class='l{colour}' stroke-opacity='.7'/>\n",
                from.0, from.1, to.0, to.1
            ));
        }
        let (x, anchor) = match label.anchor {
            Anchor::Left => (rect.x, "start"),
            Anchor::Middle => (rect.x + rect.w / 2.0, "middle"),
            Anchor::Right => (rect.x + rect.w, "end"),
        };
        let attributes = format!("class='f{colour} h' text-anchor='{anchor}'");
        self.text((x, rect.y + rect.h - 3.0), &attributes, &label.text);
    }

    /// All labels in their places; labels of bounds and levels are placed first.
    fn labels(&self) -> Vec<Placed> {
        let mut wanted = Vec::new();
        let mut points = Vec::new();
        let mut marks = Vec::new();
        let mut strokes = Vec::new();
        let height = self.chart.height;
        for item in &self.chart.items {
            match item {
                Item::Level { y, text, colour, .. } => {
                    let y = self.y(*y);
                    strokes.extend(beads(&[(0.0, y), (self.across, y)]));
                    wanted.push(Wanted::level(y, (0.0, self.across), text, *colour));
                }
                Item::Upright { x, text, colour, .. } => {
                    let x = self.x(*x);
                    strokes.extend(beads(&[(x, 0.0), (x, height)]));
                    wanted.push(Wanted::upright(x, height, text, *colour));
                }
                Item::Line { points, .. } => {
                    strokes.extend(beads(&points.iter().map(|at| self.at(*at)).collect::<Vec<_>>()));
                }
                Item::Join { from, to, .. } => strokes.extend(beads(&[self.at(*from), self.at(*to)])),
                Item::Along { from, to, y, text } => {
                    wanted.push(Wanted::level(self.y(*y), (self.x(*from), self.x(*to)), text, INK));
                }
                Item::Point { at, .. } => marks.push(Rect::around(self.at(*at), 5.5)),
                Item::Label { at, text, colour } => {
                    points.push(Wanted::point(self.at(*at), text, *colour));
                }
                Item::Area { .. } | Item::Cloud { .. } => {}
            }
        }
        wanted.extend(points);
        place(wanted.into_iter().filter(Wanted::has_text).collect(), &marks, &strokes, self.across, height)
    }
}

/// Small rectangles along a line, for keeping labels off the line.
fn beads(points: &[(f64, f64)]) -> Vec<Rect> {
    let along = |pair: &[(f64, f64)]| {
        let (x, y) = pair[0];
        let dx = pair[1].0 - pair[0].0;
        let dy = pair[1].1 - pair[0].1;
        let count = (dx.hypot(dy) / 5.0).ceil().clamp(1.0, 400.0);
        (0..count as usize).map(move |i| {
            let share = i as f64 / count;
            Rect::around((x + share * dx, y + share * dy), 2.5)
        })
    };
    points.windows(2).flat_map(along).collect()
}

fn dash(stroke: Stroke) -> &'static str {
    match stroke {
        Stroke::Solid => "",
        Stroke::Dashed => " stroke-dasharray='7 4'",
        Stroke::Dotted => " stroke-dasharray='2 3'",
    }
}

/// Coordinate in steps of two tenths of a pixel; two points coincide if their steps are equal.
fn tenths(pixels: f64) -> i64 {
    (pixels * 5.0).round() as i64 * 2
}
