//! The roofline picture: operators of a decode step and of a prefill under the roofline of their machine.
//!
//! Knows: the rate of each operator at its limit and in the forecast. Knows nothing about links and the host.

use super::chart::{Axis, Chart, INK, LegendSample, Marker, Stroke, Unit, page, prefixed};
use super::economy;
use roofcast_ask::deployment::Deployment;
use roofcast_cost::cost::{Cost, OperatorCost};
use roofcast_cost::limits::{CostCurve, Limits, LimitsQuestion};
use roofcast_facts::units::Picoseconds;

const DECODE: usize = 0;
const PREFILL: usize = 1;

/// Most operators at one place that are named; of further ones only the number is printed.
const NAMED: usize = 2;

/// An operator under the roofline.
struct Spot {
    name: String,
    intensity: f64,
    limit: f64,
    forecast: f64,
}

/// FLOP/s of one accelerator against FLOPs per byte, both on logarithmic scales. Hollow points are operators at their
/// limit, each joined to its forecast.
///
/// Below, the cost of tokens against their latency by `curves`, if there are any.
pub fn svg(
    deployment: &Deployment,
    question: &LimitsQuestion,
    limits: &Limits,
    curves: &[CostCurve],
) -> String {
    let decode = spots(&limits.decode);
    let prefill = spots(&limits.prefill);
    let all = || decode.iter().chain(&prefill);
    let used =
        |dtype| limits.decode.operators.iter().chain(&limits.prefill.operators).any(|o| o.dtype == dtype);
    let roofs = || deployment.accelerator.peak_flops.iter().filter(|(dtype, _)| used(**dtype));
    let bandwidth = deployment.bandwidth().0;
    let ridges = roofs().map(|(_, peak)| peak.0 / bandwidth);
    let x =
        Axis::log("FLOPs per byte of weights and KV", Unit::Plain, all().map(|s| s.intensity).chain(ridges));
    let rates = all().flat_map(|s| [s.limit, s.forecast]).chain(roofs().map(|(_, peak)| peak.0 * 1.6));
    let y = Axis::log("FLOP/s of one accelerator", Unit::Plain, rates);
    let left = x.least();
    let right = x.most();
    let title = format!("{} on {}", deployment.model.name, deployment.accelerator.name);
    let sequences = if question.batch == 1 { "1 sequence" } else { &format!("{} sequences", question.batch) };
    let note = format!(
        "Decode of {} of {} tokens, prefill of {} tokens; {} weights, tp {}",
        sequences, question.context, question.prefill, deployment.weights, deployment.parallelism.tp
    );
    let mut chart = Chart::new(&title, &note, x, y);
    let highest = roofs().map(|(_, peak)| peak.0).fold(0.0, f64::max);
    chart.line(vec![(left, left * bandwidth), (highest / bandwidth, highest)], INK, Stroke::Solid);
    for (dtype, peak) in roofs() {
        chart.line(vec![(peak.0 / bandwidth, peak.0), (right, peak.0)], INK, Stroke::Solid);
        let text = format!("{dtype} {}", prefixed(peak.0, " ", "FLOP/s"));
        chart.along((peak.0 / bandwidth, right), peak.0, &text);
    }
    // Put the label at the middle of the slope.
    let middle = (left * highest / bandwidth).sqrt();
    chart.label((middle, middle * bandwidth), &prefixed(bandwidth, " ", "B/s"), INK);
    chart.key(LegendSample::Line(INK, Stroke::Solid), "roof");
    for (name, spots, series) in [("decode", &decode, DECODE), ("prefill", &prefill, PREFILL)] {
        draw(&mut chart, spots, series);
        chart.key(LegendSample::Point(Marker::hollow(series)), &format!("{name} at its limit"));
        chart.key(LegendSample::Point(Marker::filled(series)), &format!("{name} as forecast"));
    }
    match curves {
        [] => page(&[chart]),
        _ => page(&[chart, economy::chart(deployment, curves)]),
    }
}

/// The operators that have FLOPs.
fn spots(cost: &Cost) -> Vec<Spot> {
    let computing = cost.operators.iter().filter(|o| o.intensity > 0.0 && o.flops.0 > 0);
    let spot = |o: &OperatorCost| {
        let rate = |time: Picoseconds| o.flops.as_f64() / time.seconds().max(1e-15);
        let (limit, forecast) = (rate(o.limit), rate(o.forecast.max(o.limit)));
        Spot { name: o.name.name().to_owned(), intensity: o.intensity, limit, forecast }
    };
    computing.map(spot).collect()
}

/// Draws the points; points at nearly one place share a label.
fn draw(chart: &mut Chart, spots: &[Spot], series: usize) {
    let mut labels: Vec<(&Spot, Vec<&str>)> = Vec::new();
    for spot in spots {
        let [limit, forecast] = [spot.limit, spot.forecast].map(|rate| (spot.intensity, rate));
        chart.join(limit, forecast, series);
        let share = 100.0 * spot.forecast / spot.limit;
        let rate = |rate: f64| prefixed(rate, " ", "FLOP/s");
        chart.point(
            limit,
            Marker::hollow(series),
            &format!("{}: {} at its limit", spot.name, rate(spot.limit)),
        );
        let tip = format!("{}: {}, {share:.0} % of its limit, as forecast", spot.name, rate(spot.forecast));
        chart.point(forecast, Marker::filled(series), &tip);
        let near = |a: f64, b: f64| (a / b).ln().abs() < 0.2;
        let same = |(s, _): &&mut (&Spot, Vec<&str>)| {
            near(s.intensity, spot.intensity) && near(s.limit, spot.limit) && near(s.forecast, spot.forecast)
        };
        match labels.iter_mut().find(same) {
            Some((_, names)) => names.push(&spot.name),
            None => labels.push((spot, vec![&spot.name])),
        }
    }
    for (spot, names) in labels {
        let more = names.len().saturating_sub(NAMED);
        let mut text = names[..names.len() - more].join(", ");
        if more > 0 {
            text += &format!(" and {more} more");
        }
        chart.label((spot.intensity, spot.forecast), &text, series);
    }
}
