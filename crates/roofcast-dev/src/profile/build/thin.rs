//! Selection of shapes that predict their neighbours, to make the file small.
//!
//! Knows: a shape's predicted times are the times of the nearest shape, scaled by the ratio of the two limits, each
//! with the kernel's fixed time added. Knows nothing about files.

use super::grid::CONTEXTS;
use super::limit::{Limit, within};
use super::reading::SectionKey;
use roofcast_ask::summary::Statistics;
use roofcast_cost::profile::KernelTable;
use serde::Serialize;
use std::collections::BTreeMap;

/// Shapes of a section with their values on the grid.
pub(super) type Shapes = BTreeMap<Vec<u32>, Vec<Option<f64>>>;

/// Tolerated errors, tried in turn until few enough shapes remain: zero, one percent, and up.
pub(super) const TOLERANCES: [f64; 17] =
    [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 1.0, f64::INFINITY];

/// Accuracy of the predictions for shapes that are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Predictions {
    /// Number of shapes that are left out.
    pub shapes: usize,
    /// Median of the shapes' errors, as a fraction; an error is the root mean square over the shape's sizes.
    pub median_error: f64,
    /// 90th percentile of the shapes' errors, as a fraction.
    pub p90_error: f64,
}

impl Predictions {
    pub(super) fn of(mut errors: Vec<f64>) -> Predictions {
        if errors.is_empty() {
            return Predictions::default();
        }
        let all = Statistics::of(&mut errors);
        Predictions { shapes: errors.len(), median_error: all.median, p90_error: all.p90 }
    }
}

/// Shapes of a section that are kept, and the errors of predictions for the others.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    pub(super) shapes: Vec<bool>,
    pub(super) errors: Vec<f64>,
}

/// Shapes of a section, with their distances from each other.
pub(super) struct Neighbours {
    /// For each shape, the logarithms of its times over their limits at the sizes that are compared.
    shares: Vec<Vec<Option<f64>>>,
    /// For each shape, the other shapes that may predict it, nearest first.
    nearest: Vec<Vec<usize>>,
}

impl Neighbours {
    /// Computes the neighbours among a section's shapes.
    pub(super) fn of(place: &SectionKey, shapes: &Shapes, limit: &Limit) -> Neighbours {
        let table = place.table;
        let shares = shapes.iter().map(|(shape, columns)| shares(table, shape, columns, limit)).collect();
        let keys: Vec<&Vec<u32>> = shapes.keys().collect();
        let nearest = |of: usize| {
            let others = (0..keys.len()).filter(|other| *other != of);
            let apart = others.filter_map(|other| Some((distance(table, keys[of], keys[other])?, other)));
            let mut apart: Vec<(f64, usize)> = apart.collect();
            apart.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            // A shape is kept if all of its nearest dozen have been left out.
            apart.into_iter().take(12).map(|(_, other)| other).collect()
        };
        Neighbours { shares, nearest: (0..keys.len()).map(nearest).collect() }
    }

    /// Leaves out every shape that the nearest kept shape predicts within `tolerance`, beginning with the best
    /// predicted.
    pub(super) fn kept(&self, tolerance: f64) -> Kept {
        let count = self.shares.len();
        let mut thinned = Kept { shapes: vec![true; count], errors: Vec::new() };
        if tolerance <= 0.0 {
            return thinned;
        }
        let first = |of: usize| Some((self.error(of, *self.nearest[of].first()?)?, of));
        let mut order: Vec<(f64, usize)> = (0..count).filter_map(first).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut stands = vec![false; count];
        for (_, of) in order {
            let nearest = self.nearest[of].iter().copied().find(|other| thinned.shapes[*other]);
            let Some(nearest) = nearest.filter(|_| !stands[of]) else { continue };
            if let Some(error) = self.error(of, nearest).filter(|error| *error <= tolerance) {
                thinned.shapes[of] = false;
                stands[nearest] = true;
                thinned.errors.push(error);
            }
        }
        thinned
    }

    /// Root mean square error of predicting shape `of` by shape `by`; `None` if `by` lacks one of its sizes.
    fn error(&self, of: usize, by: usize) -> Option<f64> {
        let mut sum = 0.0;
        let mut count = 0.0;
        for (own, other) in self.shares[of].iter().zip(&self.shares[by]) {
            let Some(own) = own else { continue };
            sum += ((*other)? - own).powi(2);
            count += 1.0;
        }
        (count > 0.0).then(|| (sum / count).sqrt())
    }
}

/// Fixed seconds that a kernel takes in addition to its work: its launches, and quantization or routing if included.
fn beside(table: KernelTable) -> f64 {
    match table {
        KernelTable::Gemm => 3e-6,
        KernelTable::Experts => 8e-6,
        _ => 6e-6,
    }
}

/// Logarithms of a shape's times over their limits; for a decode, at [`CONTEXTS`].
fn shares(table: KernelTable, shape: &[u32], columns: &[Option<f64>], limit: &Limit) -> Vec<Option<f64>> {
    let share = |seconds: f64, size: f64, context: f64| {
        libm::log(seconds / (limit.seconds(shape, size, context) + beside(table)))
    };
    let sizes = table.grid().iter().map(|size| f64::from(*size));
    if !table.has_slopes() {
        return sizes.zip(columns).map(|(size, time)| time.map(|time| share(time, size, 0.0))).collect();
    }
    let window = f64::from(shape.get(3).copied().unwrap_or(0));
    let at = |(size, line): (f64, &[Option<f64>])| {
        CONTEXTS.map(|context| {
            let start = line[0]?;
            let slope = line[1]?;
            Some(share(start + slope * size * within(context, window), size, context))
        })
    };
    sizes.zip(columns.chunks_exact(2)).flat_map(at).collect()
}

/// Distance of two shapes; `None` if one cannot predict the other.
fn distance(table: KernelTable, a: &[u32], b: &[u32]) -> Option<f64> {
    let log = |at: usize| libm::log(f64::from(a[at].max(1)) / f64::from(b[at].max(1)));
    let weights: &[f64] = match table {
        KernelTable::Gemm => &[1.0, 1.0],
        // Another degree of parallelism changes less than another model.
        KernelTable::Experts => &[1.0, 1.0, 1.0, 1.0, 0.7, 0.7],
        // Other head sizes and windows have other kernels.
        KernelTable::Decode | KernelTable::Prefill if a[2..] != b[2..] => return None,
        KernelTable::Decode => &[0.5, 1.0],
        KernelTable::Prefill => &[1.0, 0.5],
        _ => return None,
    };
    Some(weights.iter().enumerate().map(|(at, weight)| (weight * log(at)).powi(2)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shapes 1, 2 and 4 have log efficiencies of 0, 0.02 and 0.5: shapes 1 and 2 predict each other within 0.02, so
    /// that only one of them is kept.
    #[test]
    fn one_of_two_alike_stays() {
        let shares = [0.0, 0.02, 0.5].map(|s| vec![Some(s), None]).to_vec();
        let neighbours = Neighbours { shares, nearest: vec![vec![1, 2], vec![0, 2], vec![1, 0]] };
        assert_eq!(neighbours.kept(0.0).shapes, [true; 3]);
        assert_eq!(neighbours.kept(0.01).shapes, [true; 3]);
        let thinned = neighbours.kept(0.03);
        assert_eq!(thinned.shapes, [false, true, true]);
        assert!((thinned.errors[0] - 0.02).abs() < 1e-12);
    }

    /// A shape that was measured at a size at which its neighbour was not is kept.
    #[test]
    fn sizes_that_only_one_has_are_kept() {
        let shares = vec![vec![Some(0.0), Some(0.0)], vec![Some(0.0), None]];
        let neighbours = Neighbours { shares, nearest: vec![vec![1], vec![0]] };
        assert_eq!(neighbours.kept(0.03).shapes, [true, false]);
    }
}
