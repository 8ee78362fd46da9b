//! The picture of errors: what was measured against its forecast, a colour for each accelerator.
//!
//! Knows: the diagonal on which both are equal. Knows nothing about how points were forecast.

use super::chart::{Axis, Chart, INK, Key, MUTED, Marker, SERIES, Stroke, Unit, page};
use crate::measurement::Figures;
use crate::validate::Point;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What each of [`Figures`] is called.
const NAMES: [&str; 5] = ["TTFT", "TPOT", "E2EL", "output tokens/s", "tokens/s"];
/// Up to so many points each has a tooltip.
const FEW: usize = 300;

/// A chart for each figure that was measured and forecast; none where no row has both.
pub fn svg(points: &[Point]) -> Option<String> {
    let charts: Vec<Chart> = (0..Figures::NAMES.len()).filter_map(|figure| chart(points, figure)).collect();
    (!charts.is_empty()).then(|| page(&charts))
}

/// One row's place: forecast, measured.
struct Dot<'a> {
    at: (f64, f64),
    row: &'a str,
}

fn chart(points: &[Point], figure: usize) -> Option<Chart> {
    let mut chips: BTreeMap<&str, Vec<Dot>> = BTreeMap::new();
    for point in points {
        let forecast = point.forecast.as_ref().ok().and_then(|f| f.all()[figure]);
        let both = forecast.zip(point.row.measured.all()[figure]).filter(|(f, m)| *f > 0.0 && *m > 0.0);
        if let Some(at) = both {
            chips.entry(&point.row.hardware).or_default().push(Dot { at, row: &point.row.id });
        }
    }
    let mut chips: Vec<(&str, Vec<Dot>)> = chips.into_iter().collect();
    chips.sort_by_key(|(name, dots)| (Reverse(dots.len()), *name));
    let all = || chips.iter().flat_map(|(_, dots)| dots.iter().map(|dot| dot.at));
    if chips.is_empty() {
        return None;
    }
    let unit = if figure < 3 { Unit::Milliseconds } else { Unit::Plain };
    let ends = || all().flat_map(|(f, m)| [f, m]);
    let axis = |what: &str| Axis::log(&format!("{what} {}", NAMES[figure]), unit, ends());
    let (x, y) = (axis("forecast"), axis("measured"));
    let (from, to) = (x.least(), x.most());
    let mut chart = Chart::new(&format!("{}: measured against forecast", NAMES[figure]), &note(all()), x, y);
    chart.band(vec![(from, from / 1.25, from * 1.25), (to, to / 1.25, to * 1.25)], MUTED);
    chart.line(vec![(from, from), (to, to)], INK, Stroke::Solid);
    chart.key(Key::Line(INK, Stroke::Solid), "equal");
    chart.key(Key::Band(MUTED), "within a factor of 1.25");
    let few = all().count() <= FEW;
    // Accelerators beyond the colours are of one colour.
    for (series, (name, dots)) in chips.iter().enumerate() {
        let own = series + 1 < SERIES || chips.len() <= SERIES;
        let series = if own { series } else { SERIES - 1 };
        draw(&mut chart, dots, series, few);
        if own {
            chart.key(Key::Point(Marker::filled(series)), &format!("{name} ({})", dots.len()));
        }
    }
    if chips.len() > SERIES {
        let rest: usize = chips[SERIES - 1..].iter().map(|(_, dots)| dots.len()).sum();
        let text = format!("{} others ({rest})", chips.len() + 1 - SERIES);
        chart.key(Key::Point(Marker::filled(SERIES - 1)), &text);
    }
    Some(chart)
}

fn draw(chart: &mut Chart, dots: &[Dot], series: usize, few: bool) {
    if !few {
        chart.cloud(dots.iter().map(|dot| dot.at).collect(), series);
        return;
    }
    for dot in dots {
        let text = format!("{}: measured {:.2}, forecast {:.2}", dot.row, dot.at.1, dot.at.0);
        chart.point(dot.at, Marker::filled(series), &text);
    }
}

/// How many points there are and how far off they are.
fn note(all: impl Iterator<Item = (f64, f64)>) -> String {
    let mut errors: Vec<f64> = all.map(|(forecast, measured)| (forecast / measured - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| 100.0 * errors.get((errors.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    format!("{} rows; median error {:.0} %, nine of ten within {:.0} %", errors.len(), at(0.5), at(0.9))
}

#[cfg(test)]
mod tests {
    use super::note;

    /// Errors of 0, 10, 25 and 100 %: the third and the fourth of four stand at the half and at nine tenths.
    #[test]
    fn errors_by_hand() {
        let points = [(1.0, 1.0), (1.1, 1.0), (0.75, 1.0), (2.0, 1.0)];
        assert_eq!(note(points.into_iter()), "4 rows; median error 25 %, nine of ten within 100 %");
    }
}
