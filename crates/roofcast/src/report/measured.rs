//! The picture of measured points: each measured time over batch, prompt or context, with its forecast and its limit.
//!
//! Knows: the quantity over which points form curves, and the properties that distinguish curves. Knows nothing about
//! how points were forecast.

use super::chart::{Axis, Chart, INK, LegendSample, Marker, Stroke, Unit, page};
use roofcast_plan::measurement::{Lengths, Measurement, Metrics};
use roofcast_plan::validate::RowForecast;
use std::collections::{BTreeMap, BTreeSet};

/// Most curves in a chart; if there are more, an evenly spread selection is shown.
const MOST: usize = 6;
/// Fewest points that form a curve.
const LEAST: usize = 3;

/// Quantity on the x axis: its name, and the function that returns its value in a row.
type Across = (&'static str, fn(&Measurement) -> Option<f64>);
const ACROSS: [Across; 3] = [
    ("batch", |row| row.concurrency.map(|n| n as f64)),
    ("prompt tokens", |row| row.input.map(Lengths::mean)),
    ("context tokens", |row| row.context.map(|n| n as f64)),
];

/// Names of the times in [`Metrics`]; only times have a limit.
const TIMES: [&str; 3] = ["TTFT", "TPOT", "E2EL"];

/// Properties that all points of a curve have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Shared {
    names: [String; 6],
    counts: [u64; 6],
}

const COUNTS: [&str; 6] = ["batch", "prompt", "context", "output", "tp", "pp"];

impl Shared {
    /// The common properties of `row` for curves over the quantity number `across`.
    fn of(row: &Measurement, across: usize) -> Shared {
        let tokens = |lengths: Option<Lengths>| lengths.map_or(0, |l| l.mean() as u64);
        // Omit the settings in brackets: they are long, and the words before the brackets identify the version.
        let version = row.version.split('(').next().unwrap_or_default().trim();
        let model = row.model.rsplit('/').next().unwrap_or_default();
        // The time of a step depends on the tokens of context, regardless of how many belong to the prompt.
        let (input, output) = if row.context.is_some() { (None, None) } else { (row.input, row.output) };
        let mut counts = [
            row.concurrency.unwrap_or(0),
            tokens(input),
            row.context.unwrap_or(0),
            tokens(output),
            row.parallelism.tp.unwrap_or(1),
            row.parallelism.pp.unwrap_or(1),
        ];
        counts[across] = 0;
        let kind = row.kind.name();
        let names = [model, &row.hardware, &row.engine, version, &row.weights, kind].map(str::to_owned);
        Shared { names, counts }
    }
}

type Curves<'a, 'b> = BTreeMap<Shared, Vec<(f64, &'b RowForecast<'a>)>>;

/// A chart for each measured time; `None` if fewer than three points form a curve.
pub fn svg(points: &[RowForecast]) -> Option<String> {
    let charts: Vec<Chart> = (0..TIMES.len()).filter_map(|metric| chart(points, metric)).collect();
    (!charts.is_empty()).then(|| page(&charts))
}

/// The chart over the quantity whose curves cover the most points; among equal ones, over the quantity with the fewest
/// curves.
fn chart(points: &[RowForecast], metric: usize) -> Option<Chart> {
    let joined = |across: usize| {
        let curves = curves(points, metric, across);
        let joined: usize = curves.values().map(Vec::len).sum();
        (across, curves, joined)
    };
    let (across, curves, _) = (0..ACROSS.len())
        .map(joined)
        .filter(|(_, curves, _)| !curves.is_empty())
        .min_by_key(|(_, curves, joined)| (std::cmp::Reverse(*joined), curves.len()))?;
    let shown = spread(curves.into_iter().collect());
    let all = || shown.iter().flat_map(|(_, curve)| curve);
    let times =
        |p: &RowForecast| [p.row.measured, forecast(p), p.limit].map(|f| f.all()[metric].unwrap_or(0.0));
    let x = Axis::around(ACROSS[across].0, Unit::Plain, all().map(|(x, _)| *x));
    let drawn = all().flat_map(|(_, p)| times(p)).filter(|ms| *ms > 0.0);
    let y = Axis::around(TIMES[metric], Unit::Milliseconds, drawn);
    let varied = Varied::of(shown.iter().map(|(shared, _)| shared));
    let mut chart = Chart::new(&varied.title(&shown.first()?.0), "", x, y);
    for (series, (shared, curve)) in shown.iter().enumerate() {
        draw(&mut chart, curve, metric, series);
        if shown.len() > 1 {
            chart.key(LegendSample::Point(Marker::filled(series)), &varied.label(shared));
        }
    }
    chart.key(LegendSample::Point(Marker::filled(0).ink()), "measured");
    chart.key(LegendSample::Line(INK, Stroke::Solid), "forecast");
    chart.key(LegendSample::Line(INK, Stroke::Dotted), "limit");
    Some(chart)
}

/// The curves over `across` that have enough points with the measured time.
fn curves<'a, 'b>(points: &'b [RowForecast<'a>], metric: usize, across: usize) -> Curves<'a, 'b> {
    let mut curves = Curves::new();
    for point in points.iter().filter(|p| p.row.measured.all()[metric].is_some()) {
        if let Some(x) = ACROSS[across].1(point.row) {
            curves.entry(Shared::of(point.row, across)).or_default().push((x, point));
        }
    }
    curves.retain(|_, curve| {
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve.iter().map(|(x, _)| x.to_bits()).collect::<BTreeSet<_>>().len() >= LEAST
    });
    curves
}

/// At most [`MOST`] items of `all`, including the first and the last.
fn spread<T>(all: Vec<T>) -> Vec<T> {
    let last = all.len().saturating_sub(1);
    let chosen: BTreeSet<usize> = (0..MOST).map(|i| i * last / (MOST - 1)).collect();
    let few = all.len() <= MOST;
    all.into_iter().enumerate().filter(|(i, _)| few || chosen.contains(i)).map(|(_, curve)| curve).collect()
}

fn forecast(point: &RowForecast) -> Metrics {
    point.forecast.clone().unwrap_or_default()
}

/// The values of a curve in order of `x`; values at one x are averaged, so that the line is a function of x.
fn line(values: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut places: Vec<(f64, f64, f64)> = Vec::new();
    for (x, value) in values {
        match places.last_mut().filter(|(last, ..)| *last == x) {
            Some((_, sum, count)) => (*sum, *count) = (*sum + value, *count + 1.0),
            None => places.push((x, value, 1.0)),
        }
    }
    places.into_iter().map(|(x, sum, count)| (x, sum / count)).collect()
}

/// Draws one curve; points without a forecast are hollow.
fn draw(chart: &mut Chart, curve: &[(f64, &RowForecast)], metric: usize, series: usize) {
    let line = |of: &dyn Fn(&RowForecast) -> Metrics| {
        line(curve.iter().filter_map(|(x, p)| Some((*x, of(p).all()[metric]?))))
    };
    chart.line(line(&|p| p.limit), series, Stroke::Dotted);
    chart.line(line(&forecast), series, Stroke::Solid);
    for (x, point) in curve {
        if let Some(ms) = point.row.measured.all()[metric] {
            let tip = format!("{}: {ms} ms", point.row.id);
            let marker = if point.forecast.is_ok() { Marker::filled(series) } else { Marker::hollow(series) };
            chart.point((*x, ms), marker, &tip);
        }
    }
}

/// Flags of the properties that differ between curves: differing properties label the curves, common ones are in the
/// title.
struct Varied {
    names: [bool; 6],
    counts: [bool; 6],
}

impl Varied {
    fn of<'a>(all: impl Iterator<Item = &'a Shared> + Clone) -> Varied {
        let differs =
            |value: &dyn Fn(&Shared) -> String| all.clone().map(value).collect::<BTreeSet<_>>().len() > 1;
        Varied {
            names: std::array::from_fn(|i| differs(&|s| s.names[i].clone())),
            counts: std::array::from_fn(|i| differs(&|s| s.counts[i].to_string())),
        }
    }

    fn parts(&self, shared: &Shared, varied: bool) -> Vec<String> {
        let names = shared.names.iter().zip(self.names).filter(|(name, v)| *v == varied && !name.is_empty());
        let counts = shared.counts.iter().zip(COUNTS).zip(self.counts);
        // Counts that are 1 or absent in every curve are not printed.
        let counts = counts.filter(|((n, _), v)| *v == varied && (varied || **n > 1));
        names
            .map(|(name, _)| name.clone())
            .chain(counts.map(|((n, what), _)| format!("{what} {n}")))
            .collect()
    }

    fn label(&self, shared: &Shared) -> String {
        self.parts(shared, true).join(", ")
    }

    /// Text of the properties that all curves have in common, without the kind of measurement.
    fn title(&self, shared: &Shared) -> String {
        let kind = shared.names.last();
        let parts = self.parts(shared, false);
        parts.into_iter().filter(|part| Some(part) != kind).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_cost::coefficients::Evidence;
    use roofcast_plan::measurement::read;

    fn point(row: &Measurement, forecast: Result<f64, String>) -> RowForecast<'_> {
        let times = |ms: f64| Metrics { tpot_ms: Some(ms), ..Metrics::default() };
        RowForecast {
            row,
            limit: times(1.0),
            forecast: forecast.map(times),
            parts: None,
            evidence: Evidence::Nothing,
            band: None,
        }
    }

    #[test]
    fn curves_run_over_what_joins_most_points() {
        let header = "kind,model,hardware,weights,context_len,concurrency,tpot_ms\n";
        let row = |weights: &str, context: u64, batch: u64| {
            format!("decode_step,a/m,h100-sxm,{weights},{context},{batch},{}\n", 2 * batch)
        };
        // Two curves over three batches each; over context there would be at most two points, which form no curve.
        let rows = [
            ("fp8", 64, 1),
            ("fp8", 64, 2),
            ("fp8", 64, 4),
            ("w4", 64, 1),
            ("w4", 64, 2),
            ("w4", 64, 4),
            ("w4", 128, 4),
        ];
        let text: String = rows.iter().map(|(w, c, b)| row(w, *c, *b)).collect();
        let rows = read("f", &format!("{header}{text}")).unwrap();
        let mut points: Vec<RowForecast> = rows.iter().map(|row| point(row, Ok(3.0))).collect();
        points[2].forecast = Err("too long".into());
        let svg = svg(&points).unwrap();
        // Six points; a forecast and a limit for each curve, the limits dotted; one point has no forecast.
        assert_eq!((svg.matches("<title>").count(), svg.matches("<polyline").count()), (6, 4));
        let dotted = svg.lines().filter(|l| l.starts_with("<polyline") && l.contains("dasharray")).count();
        let hollow = svg.lines().filter(|l| l.contains("<title>") && l.contains("class='p ")).count();
        assert_eq!((dotted, hollow), (2, 1));
        for text in [">batch<", ">fp8<", ">w4<", ">m, h100-sxm, vllm, context 64<", ">TPOT<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(super::svg(&points[..2]).is_none());
    }

    #[test]
    fn a_line_has_one_value_at_each_place() {
        let values = [(1.0, 2.0), (1.0, 4.0), (2.0, 5.0), (4.0, 1.0), (4.0, 2.0), (4.0, 3.0)];
        assert_eq!(line(values.into_iter()), [(1.0, 3.0), (2.0, 5.0), (4.0, 2.0)]);
    }

    #[test]
    fn of_many_curves_some_are_shown() {
        // 0·10/5, 1·10/5, … 5·10/5.
        assert_eq!(spread((0..11).collect::<Vec<_>>()), [0, 2, 4, 6, 8, 10]);
        assert_eq!(spread(vec![7, 8]), [7, 8]);
    }
}
