//! Bands from the errors of groups left out.
//!
//! Knows: 10th and 90th percentile of measured over forecast, by the evidence. Knows nothing about how
//! levels are fitted.

use super::rounded;
use crate::coefficients::{Band, Evidence};
use crate::validate::Point;
use std::collections::BTreeSet;

/// Groups of a depth of evidence below which its band is taken from all rows.
const ENOUGH: usize = 5;
/// By how much bands are widened where that little is known and too few groups were left out that deep; assumed.
const DEPTHS: [(Evidence, f64); 4] = [
    (Evidence::Engine, 1.0),
    (Evidence::Accelerator, 1.3),
    (Evidence::Architecture, 1.6),
    (Evidence::Nothing, 2.0),
];

/// 10th and 90th percentile of measured over forecast, by the evidence. Who knows less is never given
/// a narrower band.
pub(super) fn bands(points: &[Point]) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for (evidence, wider) in DEPTHS {
        let narrower = bands.last().copied();
        let band = |metrics: &[usize], of: &dyn Fn(&Band) -> [f64; 2]| -> [f64; 2] {
            let own = quantiles(points, Some(evidence), metrics);
            let all = || quantiles(points, None, metrics).unwrap_or([-0.3, 0.3]).map(|log| log * wider);
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

/// 10th and 90th percentile of the logarithm of measured over forecast, where enough groups tell it.
fn quantiles(points: &[Point], evidence: Option<Evidence>, metrics: &[usize]) -> Option<[f64; 2]> {
    let held = || points.iter().filter(|p| evidence.is_none_or(|e| p.evidence == e));
    let ratios = |p: &Point| metrics.iter().filter_map(|m| p.ratio(*m)).collect::<Vec<_>>();
    let groups: BTreeSet<String> = held().filter(|p| !ratios(p).is_empty()).map(|p| p.row.group()).collect();
    let mut logs: Vec<f64> = held().flat_map(ratios).map(|ratio| -ratio.ln()).collect();
    if groups.len() < ENOUGH && evidence.is_some() || logs.is_empty() {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let at = |q: f64| logs[((logs.len() - 1) as f64 * q) as usize];
    Some([at(0.1), at(0.9)])
}
