//! The picture of a layer's arithmetic intensity against batch, with the ridge point of its machine.

use super::chart::{Axis, Chart, INK, LegendSample, Marker, Stroke, Unit, page};
use roofcast_ask::deployment::Deployment;
use roofcast_cost::limits::IntensityPoint;

/// FLOPs per byte of one `rows × columns` layer over batch; above the ridge point the layer is compute-bound.
pub fn svg(deployment: &Deployment, rows: u64, columns: u64, points: &[IntensityPoint]) -> String {
    let chip = &deployment.accelerator;
    let ridge = chip.peak_flops.get(&deployment.base).map(|peak| peak.0 / deployment.bandwidth().0);
    let at: Vec<(f64, f64)> = points.iter().map(|p| (p.batch as f64, p.flops_per_byte)).collect();
    let x = Axis::around("tokens in a step", Unit::Plain, at.iter().map(|p| p.0));
    let y = Axis::around("FLOPs per byte", Unit::Plain, at.iter().map(|p| p.1).chain(ridge));
    let title = format!("Intensity of a layer of {rows} × {columns}, {} weights", deployment.weights);
    let note = format!("Below the ridge of {}: memory-bound; above: compute-bound", chip.name);
    let mut chart = Chart::new(&title, &note, x, y);
    if let Some(ridge) = ridge {
        chart.level(ridge, &format!("ridge in {}: {ridge:.0} FLOP/B", deployment.base), INK);
    }
    chart.key(LegendSample::Line(0, Stroke::Solid), "FLOPs per byte, activations counted");
    for (batch, intensity) in &at {
        chart.point(
            (*batch, *intensity),
            Marker::filled(0),
            &format!("{batch} tokens: {intensity:.1} FLOP/B"),
        );
    }
    chart.line(at, 0, Stroke::Solid);
    page(&[chart])
}
