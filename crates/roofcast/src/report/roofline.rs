//! The roofline picture: operators of a decode step and of a prefill under the roof of their machine.

use super::chart::{Axis, COLOURS, Chart};
use crate::cost::Operator;
use crate::deployment::Deployment;
use crate::limits::Limits;

/// FLOP/s against FLOPs per byte, both logarithmic; hollow points are decode, full ones prefill.
pub fn svg(deployment: &Deployment, limits: &Limits) -> String {
    let bandwidth = deployment.bandwidth().0;
    let points = |operators: &[Operator]| -> Vec<(f64, f64, String)> {
        operators
            .iter()
            .filter(|o| o.intensity > 0.0 && o.flops.0 > 0)
            .map(|o| (o.intensity, rate(o), o.name.name().to_owned()))
            .collect()
    };
    let decode = points(&limits.decode.operators);
    let prefill = points(&limits.prefill.operators);
    let all = || decode.iter().chain(&prefill);
    let ridges = limits.ridge.iter().map(|r| r.flops_per_byte);
    let x = Axis::around("FLOPs per byte", all().map(|p| p.0).chain(ridges), true);
    let peaks = || deployment.accelerator.peak_flops.iter();
    let y = Axis::around("FLOP/s", all().map(|p| p.1).chain(peaks().map(|(_, r)| r.0)), true);
    let (left, right) = (x.from, x.to);
    let low = y.from;
    let mut chart =
        Chart::new(&format!("{} on {}: roofline", deployment.model.name, deployment.accelerator.name), x, y);
    let used =
        |dtype| limits.decode.operators.iter().chain(&limits.prefill.operators).any(|o| o.dtype == dtype);
    for (index, (dtype, peak)) in peaks().filter(|(d, _)| used(**d)).enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let ridge = peak.0 / bandwidth;
        let start = left.max(low / bandwidth);
        chart.line(&[(start, start * bandwidth), (ridge, peak.0), (right, peak.0)], colour, false);
        chart.label(right, peak.0, (8.0, -8.0), &format!("{dtype} {:.0} TFLOP/s", peak.0 / 1e12), colour);
    }
    draw(&mut chart, &decode, false);
    draw(&mut chart, &prefill, true);
    chart.legend(&[("decode", COLOURS[1], false), ("prefill", COLOURS[2], true)]);
    chart.finish()
}

/// What an operator reaches at its limit.
fn rate(operator: &Operator) -> f64 {
    operator.flops.as_f64() / operator.limit.seconds().max(1e-15)
}

/// Points at the same place share one label.
fn draw(chart: &mut Chart, points: &[(f64, f64, String)], filled: bool) {
    let colour = COLOURS[if filled { 2 } else { 1 }];
    let mut sorted: Vec<&(f64, f64, String)> = points.iter().collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut labels: Vec<(f64, f64, Vec<&str>)> = Vec::new();
    for (x, y, name) in sorted {
        chart.point(*x, *y, colour, filled, name);
        match labels.last_mut() {
            Some((lx, _, names)) if x / *lx < 1.6 => names.push(name),
            _ => labels.push((*x, *y, vec![name])),
        }
    }
    // Labels stand below their points, each a line lower than the one before.
    for (line, (x, y, names)) in labels.iter().enumerate() {
        let text = if names.len() > 2 {
            format!("{} and {} more", names[0], names.len() - 1)
        } else {
            names.join(", ")
        };
        chart.label(*x, *y, (10.0, 18.0 + 15.0 * (line % 3) as f64), &text, colour);
    }
}
