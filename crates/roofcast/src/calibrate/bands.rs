//! Bands from the errors of rows left out.
//!
//! Knows: 10th and 90th percentile of measured over forecast, each depth of evidence by the protocol that leaves no more.
//! Knows nothing about how levels are fitted.

use super::{LeaveOut, rounded};
use crate::coefficients::{Band, Evidence};
use crate::validate::Point;
use std::collections::BTreeMap;

/// The table that a depth of evidence is judged by, and by how much bands are widened where that was not made; assumed.
const DEPTHS: [(Evidence, LeaveOut, f64); 4] = [
    (Evidence::Engine, LeaveOut::Group, 1.0),
    (Evidence::Accelerator, LeaveOut::EngineAccelerator, 1.3),
    (Evidence::Architecture, LeaveOut::Accelerator, 1.6),
    (Evidence::Nothing, LeaveOut::AcceleratorFormat, 2.0),
];

/// 10th and 90th percentile of measured over forecast, by the evidence. Less evidence never gives a narrower band.
pub(super) fn bands(tables: &BTreeMap<LeaveOut, Vec<Point>>) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    let first = tables.values().next().map_or(&[][..], Vec::as_slice);
    for (evidence, protocol, wider) in DEPTHS {
        let narrower = bands.last().copied();
        let band = |metrics: &[usize], of: &dyn Fn(&Band) -> [f64; 2]| -> [f64; 2] {
            let own = tables.get(&protocol).and_then(|points| quantiles(points, metrics));
            let all = || quantiles(first, metrics).unwrap_or([-0.3, 0.3]).map(|log| log * wider);
            let [low, high] = own.unwrap_or_else(all).map(|log| rounded(log.exp()));
            narrower.as_ref().map(of).map_or([low, high], |n| [low.min(n[0]), high.max(n[1])])
        };
        bands.push(Band {
            evidence,
            ttft: band(&[0], &|b| b.ttft),
            tpot: band(&[1], &|b| b.tpot),
            e2e: band(&[2], &|b| b.e2e),
            throughput: band(&[3, 4], &|b| b.throughput),
        });
    }
    bands
}

/// 10th and 90th percentile of the logarithm of measured over forecast.
fn quantiles(points: &[Point], metrics: &[usize]) -> Option<[f64; 2]> {
    let ratios = points.iter().flat_map(|p| metrics.iter().filter_map(|m| p.ratio(*m)));
    let mut logs: Vec<f64> = ratios.map(|ratio| -ratio.ln()).collect();
    if logs.is_empty() {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let at = |q: f64| logs[((logs.len() - 1) as f64 * q) as usize];
    Some([at(0.1), at(0.9)])
}
