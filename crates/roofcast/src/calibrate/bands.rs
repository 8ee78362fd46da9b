//! Bands from the errors of rows left out.
//!
//! Knows: 10th and 90th percentile of measured over forecast, each depth of evidence by the protocol that leaves no more.
//! Knows nothing about how levels are fitted.

use super::{LeaveOut, rounded};
use crate::coefficients::{Band, Evidence, Factors};
use crate::measurement::Kind;
use crate::validate::Point;
use std::collections::BTreeMap;

/// The table that a depth of evidence is judged by, and by how much bands are widened where that was not made; assumed.
const DEPTHS: [(Evidence, LeaveOut, f64); 4] = [
    (Evidence::Engine, LeaveOut::Group, 1.0),
    (Evidence::Accelerator, LeaveOut::EngineAccelerator, 1.3),
    (Evidence::Architecture, LeaveOut::Accelerator, 1.6),
    (Evidence::Nothing, LeaveOut::AcceleratorFormat, 2.0),
];

/// Rows of open loops that it takes to judge them apart.
const LEAST_ROWS: usize = 30;

/// 10th and 90th percentile of measured over forecast, by the evidence. Less evidence never gives a narrower band.
pub(super) fn bands(tables: &BTreeMap<LeaveOut, Vec<Point>>) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for (evidence, protocol, wider) in DEPTHS {
        let of = |open_loop: bool| {
            let narrower = bands.last().map(|b| b.factors(open_loop));
            factors(tables, protocol, wider, open_loop, narrower)
        };
        let (Factors { ttft, tpot, e2e, throughput }, open) = (of(false), of(true));
        let judged = |points: &Vec<Point>| points.iter().filter(|p| is_open(p)).count() >= LEAST_ROWS;
        let open_loop = tables.values().next().is_some_and(judged).then_some(open);
        bands.push(Band { evidence, ttft, tpot, e2e, throughput, open_loop });
    }
    bands
}

fn is_open(point: &Point) -> bool {
    point.row.kind == Kind::OpenLoop
}

/// The factors that a table tells of all its rows, or of its open loops; none narrower than those of more evidence.
fn factors(
    tables: &BTreeMap<LeaveOut, Vec<Point>>,
    protocol: LeaveOut,
    wider: f64,
    open_loop: bool,
    narrower: Option<Factors>,
) -> Factors {
    let first = tables.values().next().map_or(&[][..], Vec::as_slice);
    let quantiles = |points: &[Point], metrics: &[usize]| {
        quantiles(points.iter().filter(|p| !open_loop || is_open(p)), metrics)
    };
    let band = |metrics: &[usize], of: &dyn Fn(Factors) -> [f64; 2]| -> [f64; 2] {
        let own = tables.get(&protocol).and_then(|points| quantiles(points, metrics));
        let all = || quantiles(first, metrics).unwrap_or([-0.3, 0.3]).map(|log| log * wider);
        let [low, high] = own.unwrap_or_else(all).map(|log| rounded(log.exp()));
        narrower.map(of).map_or([low, high], |n| [low.min(n[0]), high.max(n[1])])
    };
    Factors {
        ttft: band(&[0], &|f| f.ttft),
        tpot: band(&[1], &|f| f.tpot),
        e2e: band(&[2], &|f| f.e2e),
        throughput: band(&[3, 4], &|f| f.throughput),
    }
}

/// 10th and 90th percentile of the logarithm of measured over forecast.
fn quantiles<'a>(points: impl Iterator<Item = &'a Point<'a>>, metrics: &[usize]) -> Option<[f64; 2]> {
    let ratios = points.flat_map(|p| metrics.iter().filter_map(|m| p.ratio(*m)));
    let mut logs: Vec<f64> = ratios.map(|ratio| -ratio.ln()).collect();
    if logs.is_empty() {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let at = |q: f64| logs[((logs.len() - 1) as f64 * q) as usize];
    Some([at(0.1), at(0.9)])
}
