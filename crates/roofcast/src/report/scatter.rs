//! The picture of errors: measurements against forecasts, with a colour for each accelerator.
//!
//! Knows: the diagonal on which measurement equals forecast. Knows nothing about how points were forecast.

use super::chart::{Axis, Chart, INK, LegendSample, MUTED, Marker, SERIES, Stroke, Unit, page};
use roofcast_plan::measurement::Metrics;
use roofcast_plan::validate::RowForecast;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Titles of the [`Metrics`], in the order of the struct's array.
const NAMES: [&str; 5] = ["TTFT", "TPOT", "E2EL", "output tokens/s", "tokens/s"];
/// Most points that have tooltips.
const FEW: usize = 300;

/// A chart for each metric that was measured and forecast; `None` if no row has both.
pub fn svg(points: &[RowForecast]) -> Option<String> {
    let all: Vec<Vec<Dot>> = (0..Metrics::NAMES.len()).map(|metric| dots(points, metric)).collect();
    // The accelerators with the most points get separate colours, which are consistent across charts.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for dot in all.iter().flatten() {
        *counts.entry(dot.chip).or_default() += 1;
    }
    let mut chips: Vec<&str> = counts.keys().copied().collect();
    chips.sort_by_key(|chip| (Reverse(counts[chip]), *chip));
    let drawn = all.iter().enumerate().filter(|(_, dots)| !dots.is_empty());
    let charts: Vec<Chart> = drawn.map(|(metric, dots)| chart(metric, dots, &chips)).collect();
    (!charts.is_empty()).then(|| page(&charts))
}

/// Position of one row: forecast and measured value.
struct Dot<'a> {
    at: (f64, f64),
    row: &'a str,
    chip: &'a str,
}

/// The rows with a forecast and a measurement of metric number `metric`.
fn dots<'a>(points: &'a [RowForecast<'a>], metric: usize) -> Vec<Dot<'a>> {
    let dot = |point: &'a RowForecast<'a>| {
        let forecast = point.forecast.as_ref().ok().and_then(|f| f.all()[metric]);
        let both = forecast.zip(point.row.measured.all()[metric]).filter(|(f, m)| *f > 0.0 && *m > 0.0);
        both.map(|at| Dot { at, row: &point.row.id, chip: &point.row.hardware })
    };
    points.iter().filter_map(dot).collect()
}

/// The chart of one metric. `chips` are in the order of their colours; chips beyond the last colour share it.
fn chart(metric: usize, dots: &[Dot], chips: &[&str]) -> Chart {
    let all = || dots.iter().map(|dot| dot.at);
    let unit = if metric < 3 { Unit::Milliseconds } else { Unit::Plain };
    let axis =
        |what: &str| Axis::log(&format!("{what} {}", NAMES[metric]), unit, all().flat_map(|(f, m)| [f, m]));
    let x = axis("forecast");
    let y = axis("measured");
    let from = x.least();
    let to = x.most();
    let mut chart = Chart::new(&format!("{}: measured against forecast", NAMES[metric]), &note(all()), x, y);
    chart.band(&[(from, from / 1.25, from * 1.25), (to, to / 1.25, to * 1.25)], MUTED);
    chart.line(vec![(from, from), (to, to)], INK, Stroke::Solid);
    chart.key(LegendSample::Line(INK, Stroke::Solid), "equal");
    chart.key(LegendSample::Band(MUTED), "within a factor of 1.25");
    let series_count = if chips.len() > SERIES { SERIES - 1 } else { chips.len() };
    let (named, others) = chips.split_at(series_count);
    for (series, chip) in named.iter().enumerate() {
        group(&mut chart, dots, &[chip], series, chip);
    }
    group(&mut chart, dots, others, SERIES - 1, "others");
    chart
}

/// Draws the points of `chips` in the colour of `series`, if there are any.
fn group(chart: &mut Chart, dots: &[Dot], chips: &[&str], series: usize, name: &str) {
    let mine: Vec<&Dot> = dots.iter().filter(|dot| chips.contains(&dot.chip)).collect();
    if mine.is_empty() {
        return;
    }
    chart.key(LegendSample::Point(Marker::filled(series)), &format!("{name} ({})", mine.len()));
    if dots.len() > FEW {
        chart.cloud(mine.iter().map(|dot| dot.at).collect(), series);
        return;
    }
    for dot in mine {
        let text = format!("{}: measured {:.2}, forecast {:.2}", dot.row, dot.at.1, dot.at.0);
        chart.point(dot.at, Marker::filled(series), &text);
    }
}

/// Text with the number of points, the median error, and the error that 90 % of the points do not exceed.
fn note(all: impl Iterator<Item = (f64, f64)>) -> String {
    let mut errors: Vec<f64> = all.map(|(forecast, measured)| (forecast / measured - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| 100.0 * errors.get((errors.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    format!("{} rows; median error {:.0} %, nine of ten within {:.0} %", errors.len(), at(0.5), at(0.9))
}

#[cfg(test)]
mod tests {
    use super::note;

    /// Errors of 0, 10, 25 and 100 %: position one half is the third of four, position nine tenths is the fourth.
    #[test]
    fn errors_by_hand() {
        let points = [(1.0, 1.0), (1.1, 1.0), (0.75, 1.0), (2.0, 1.0)];
        assert_eq!(note(points.into_iter()), "4 rows; median error 25 %, nine of ten within 100 %");
    }
}
