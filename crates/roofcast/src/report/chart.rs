//! A log-log or linear chart as SVG: axes, ticks, lines, points and labels.
//!
//! Knows: coordinates and text. Knows nothing about what is drawn.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 54.0;
const BOTTOM: f64 = 62.0;

/// Colours that differ in lightness too (Okabe and Ito).
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];

/// One axis.
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) log: bool,
}

impl Axis {
    /// An axis around `values`, with room at both ends; whole decades if logarithmic.
    pub(super) fn around(title: &str, values: impl Iterator<Item = f64>, log: bool) -> Axis {
        let (mut from, mut to) = ends(values, log);
        if log {
            (from, to) = (10_f64.powf(from.log10().floor()), 10_f64.powf((to * 1.001).log10().ceil()));
        } else {
            (from, to) = (0.0, if to > 0.0 { to * 1.08 } else { 1.0 });
        }
        Axis { title: title.to_owned(), from, to, log }
    }

    /// A logarithmic axis close around `values`, from and to a 1, 2 or 5, with the share `room` free at its upper end.
    pub(super) fn close(title: &str, values: impl Iterator<Item = f64>, room: f64) -> Axis {
        let (least, most) = ends(values, true);
        let steps = |value: f64| [1.0, 2.0, 5.0, 10.0].map(|s| s * 10_f64.powf(value.log10().floor()));
        let from = steps(least).into_iter().rfind(|s| *s <= least).unwrap_or(least);
        let to = steps(most).into_iter().find(|s| *s >= most).unwrap_or(most).max(from * 2.0);
        let to = from * (to / from).powf(1.0 / (1.0 - room));
        Axis { title: title.to_owned(), from, to, log: true }
    }

    /// A linear axis from zero to `to`.
    pub(super) fn exactly(title: &str, to: f64) -> Axis {
        Axis { title: title.to_owned(), from: 0.0, to: if to > 0.0 { to } else { 1.0 }, log: false }
    }

    /// Where `value` stands, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        if self.log {
            (value.max(self.from).log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            // Ends are powers of ten but for rounding, or lie between two.
            let decades =
                ((self.from.log10() + 1e-9).floor() as i32)..=((self.to.log10() - 1e-9).ceil() as i32);
            // Few decades have room for ticks between.
            let within: &[f64] = if self.to / self.from < 1001.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let ticks = decades.flat_map(|d| within.iter().map(move |w| w * 10_f64.powi(d)));
            return ticks.filter(|t| (self.from * 0.999..=self.to * 1.001).contains(t)).collect();
        }
        let raw = (self.to - self.from) / 6.0;
        let decade = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|s| s * decade).find(|s| *s >= raw).unwrap_or(raw);
        (0..=8).map(|i| f64::from(i) * step).take_while(|t| *t <= self.to).collect()
    }
}

/// The least and the most of `values`; 1 and 10 where there are none.
fn ends(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|v| v.is_finite() && (!log || *v > 0.0)) {
        from = from.min(value);
        to = to.max(value);
    }
    if from > to { (1.0, 10.0) } else { (from, to) }
}

/// A chart being drawn.
pub(super) struct Chart {
    x: Axis,
    y: Axis,
    body: String,
}

impl Chart {
    pub(super) fn new(title: &str, x: Axis, y: Axis) -> Chart {
        let mut chart = Chart { x, y, body: String::new() };
        chart.frame(title);
        chart
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let width = WIDTH - LEFT - RIGHT;
        let height = HEIGHT - TOP - BOTTOM;
        (LEFT + self.x.place(x) * width, HEIGHT - BOTTOM - self.y.place(y) * height)
    }

    fn add(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.body.write_fmt(arguments);
    }

    fn frame(&mut self, title: &str) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        self.add(format_args!(
            "<text x='{LEFT}' y='30' font-size='17' font-weight='600'>{}</text>\n",
            escape(title)
        ));
        for tick in self.x.ticks() {
            let (x, _) = self.at(tick, self.y.from);
            self.add(format_args!(
                "<line x1='{x:.1}' y1='{TOP}' x2='{x:.1}' y2='{bottom}' stroke='#e4e4e4'/>\n"
            ));
            self.add(format_args!(
                "<text x='{x:.1}' y='{:.1}' text-anchor='middle'>{}</text>\n",
                bottom + 18.0,
                short(tick)
            ));
        }
        for tick in self.y.ticks() {
            let (_, y) = self.at(self.x.from, tick);
            self.add(format_args!(
                "<line x1='{LEFT}' y1='{y:.1}' x2='{right}' y2='{y:.1}' stroke='#e4e4e4'/>\n"
            ));
            self.add(format_args!(
                "<text x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>\n",
                LEFT - 8.0,
                y + 4.0,
                short(tick)
            ));
        }
        self.add(format_args!("<path d='M{LEFT} {TOP}V{bottom}H{right}' fill='none' stroke='#555'/>\n"));
        let (middle, low) = ((LEFT + right) / 2.0, HEIGHT - 18.0);
        let (x, y) = (escape(&self.x.title), escape(&self.y.title));
        self.add(format_args!("<text x='{middle}' y='{low}' text-anchor='middle'>{x}</text>\n"));
        let centre = (TOP + bottom) / 2.0;
        self.add(format_args!(
            "<text transform='translate(20 {centre}) rotate(-90)' text-anchor='middle'>{y}</text>\n"
        ));
    }

    /// A line through `points`.
    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: &str, dashed: bool) {
        let path: Vec<String> =
            points.iter().map(|(x, y)| self.at(*x, *y)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if dashed { " stroke-dasharray='6 4'" } else { "" };
        self.add(format_args!(
            "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'{dash}/>\n",
            path.join(" ")
        ));
    }

    /// A point with a tooltip.
    pub(super) fn point(&mut self, x: f64, y: f64, colour: &str, filled: bool, tooltip: &str) {
        let (x, y) = self.at(x, y);
        let fill = if filled { colour } else { "#fff" };
        let tip = escape(tooltip);
        self.add(format_args!("<circle cx='{x:.1}' cy='{y:.1}' r='5' fill='{fill}' stroke='{colour}' stroke-width='2'><title>{tip}</title></circle>\n"));
    }

    /// Text beside a point, moved by (dx, dy) pixels.
    pub(super) fn label(&mut self, x: f64, y: f64, offset: (f64, f64), text: &str, colour: &str) {
        let (x, y) = self.at(x, y);
        let (x, y) = (x + offset.0, y + offset.1);
        let anchor = if x > WIDTH * 0.8 { "end" } else { "start" };
        let x = if anchor == "end" { x - 2.0 * offset.0 } else { x };
        self.add(format_args!(
            "<text x='{x:.1}' y='{y:.1}' fill='{colour}' text-anchor='{anchor}'>{}</text>\n",
            escape(text)
        ));
    }

    /// A legend in the upper right corner.
    pub(super) fn legend(&mut self, entries: &[(&str, &str, bool)]) {
        self.legend_at(WIDTH - RIGHT - 190.0, entries);
    }

    /// The share of the height that a legend of `entries` lines takes.
    pub(super) fn legend_share(entries: usize) -> f64 {
        (16.0 + 19.0 * entries as f64) / (HEIGHT - TOP - BOTTOM)
    }

    /// A legend in the upper left corner, for curves that rise.
    pub(super) fn legend_left(&mut self, entries: &[(&str, &str, bool)]) {
        self.legend_at(LEFT + 16.0, entries);
    }

    fn legend_at(&mut self, x: f64, entries: &[(&str, &str, bool)]) {
        for (i, (text, colour, filled)) in entries.iter().enumerate() {
            let y = TOP + 16.0 + 19.0 * i as f64;
            let fill = if *filled { colour } else { &"#fff" };
            self.add(format_args!(
                "<circle cx='{x}' cy='{:.1}' r='5' fill='{fill}' stroke='{colour}' stroke-width='2'/>\n",
                y - 4.0
            ));
            self.add(format_args!("<text x='{}' y='{y}'>{}</text>\n", x + 12.0, escape(text)));
        }
    }

    /// What the colours of lines mean, in a row beside the title, from the right.
    pub(super) fn key(&mut self, entries: &[(&str, &str)]) {
        let mut right = WIDTH - RIGHT;
        for (text, colour) in entries.iter().rev() {
            // Letters of this size take about seven pixels.
            let left = right - 7.0 * text.chars().count() as f64;
            let (from, to) = (left - 28.0, left - 6.0);
            self.add(format_args!(
                "<line x1='{from:.1}' y1='26' x2='{to:.1}' y2='26' stroke='{colour}' stroke-width='3'/>\n"
            ));
            self.add(format_args!("<text x='{left:.1}' y='30'>{}</text>\n", escape(text)));
            right = from - 18.0;
        }
    }

    /// The whole document.
    pub(super) fn finish(self) -> String {
        page(vec![self])
    }
}

/// A document of charts, one below the other.
pub(super) fn page(charts: Vec<Chart>) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut body = String::new();
    for (index, chart) in charts.into_iter().enumerate() {
        if index == 0 {
            body += &chart.body;
        } else {
            let down = HEIGHT * index as f64;
            body += &format!("<g transform='translate(0 {down})'>\n{}</g>\n", chart.body);
        }
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' \
         font-family='system-ui, sans-serif' font-size='12.5' fill='#222'>\n<rect width='100%' height='100%' fill='#fff'/>\n{body}</svg>\n"
    )
}

/// A tick as text: 0.1, 20, 3k, 5M.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e12 => (value / 1e12, "T"),
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.4}");
    format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}
