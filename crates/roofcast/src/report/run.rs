//! The picture of a simulated run: latencies as cumulative shares, the queue and the KV cache over time.

use super::chart::{Axis, COLOURS, Chart, page};
use crate::fleet::results::Sample;
use crate::simulate::Simulation;
use crate::timeline::series::Point;

/// Shares that a curve is drawn through.
const SHARES: usize = 400;

/// Latencies above; queue and cache of all replicas together below, where levels over time were kept.
pub fn svg(simulation: &Simulation) -> String {
    let mut charts = vec![latencies(simulation)];
    if let Some(end) = simulation.series.iter().flatten().map(|p| p.end_ms).max_by(f64::total_cmp) {
        charts.extend([queue(simulation, end / 1e3), cache(simulation, end / 1e3)]);
    }
    page(charts)
}

/// A latency's share of requests.
struct Curve {
    name: String,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

/// The share of requests within each latency.
fn latencies(simulation: &Simulation) -> Chart {
    let curve = |((name, sample), colour): (&(&str, Sample), _)| Curve {
        name: name.to_uppercase(),
        colour,
        points: sample.shares(SHARES),
    };
    let curves = simulation.latencies.iter().zip(COLOURS).map(curve);
    let curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
    let times =
        || curves.iter().flat_map(|curve| curve.points.iter().map(|(ms, _)| *ms)).filter(|ms| *ms > 0.0);
    let (least, most) = times().fold((f64::INFINITY, 0.0_f64), |(a, b), ms| (a.min(ms), b.max(ms)));
    let x = Axis::around("ms", times(), most > 10.0 * least);
    let mut chart =
        Chart::new("Share of requests within a latency", x, Axis::exactly("share of requests", 1.0));
    curves.iter().for_each(|curve| chart.line(&curve.points, curve.colour, false));
    chart.key(&curves.iter().map(|curve| (curve.name.as_str(), curve.colour)).collect::<Vec<_>>());
    chart
}

/// Running and waiting requests of all replicas together.
fn queue(simulation: &Simulation, end: f64) -> Chart {
    let sum = |of: fn(&Point) -> f64| over_time(simulation, |points| points.iter().map(of).sum());
    let (running, waiting) = (sum(|p| p.running), sum(|p| p.waiting));
    let most = running.iter().chain(&waiting).map(|(_, n)| *n);
    let y = Axis::around("requests", most, false);
    let mut chart = Chart::new("Requests over time", Axis::exactly("seconds", end), y);
    chart.line(&waiting, COLOURS[1], false);
    chart.line(&running, COLOURS[0], false);
    chart.key(&[("running", COLOURS[0]), ("waiting", COLOURS[1])]);
    chart
}

/// KV blocks held, in the mean of the replicas and of the fullest.
fn cache(simulation: &Simulation, end: f64) -> Chart {
    let share = |blocks: f64| 100.0 * blocks / simulation.kv_cache.blocks as f64;
    let replicas = simulation.series.len();
    let mean =
        over_time(simulation, |points| share(points.iter().map(|p| p.blocks).sum::<f64>() / replicas as f64));
    let mut chart = Chart::new(
        "KV blocks held over time",
        Axis::exactly("seconds", end),
        Axis::exactly("% of the blocks", 100.0),
    );
    if replicas > 1 {
        let fullest =
            over_time(simulation, |points| share(points.iter().map(|p| p.blocks).fold(0.0, f64::max)));
        chart.line(&fullest, COLOURS[4], false);
        chart.key(&[("mean of the replicas", COLOURS[2]), ("the fullest", COLOURS[4])]);
    }
    chart.line(&mean, COLOURS[2], false);
    chart
}

/// A figure of all replicas at the middle of each interval, in seconds.
fn over_time(simulation: &Simulation, of: impl Fn(&[Point]) -> f64) -> Vec<(f64, f64)> {
    let count = simulation.series.first().map_or(0, Vec::len);
    (0..count)
        .map(|index| {
            let points: Vec<Point> = simulation.series.iter().map(|replica| replica[index]).collect();
            ((points[0].start_ms + points[0].end_ms) / 2e3, of(&points))
        })
        .collect()
}
