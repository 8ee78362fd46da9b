//! Detection of GEMM tables whose times include host overhead.
//!
//! Knows: times with host overhead do not rise with rows, are at least twice the times of another engine or version
//! at equal shapes, and exceed any chain of launches. Knows nothing about other tables, because experts and attention
//! have equally long chains of launches.

use super::limit::Limit;
use super::reading::MeasuredTime;
use std::collections::BTreeMap;

/// Numbers of rows at which times are compared.
const ROWS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Seconds that the limit of a shape must not exceed at any of [`ROWS`], so that nearly all of a longer time is
/// overhead.
const LITTLE: f64 = 5e-6;
/// Most seconds that activation quantization and a GEMM can take in addition to their work: three launches take 15
/// µs.
const CHAIN: f64 = 30e-6;
/// Least ratio of times with host overhead to the fastest of the other families.
const SLOWER: f64 = 2.0;
/// Largest ratio of the time of 16 to 64 rows to the time of 1 to 4 rows with host overhead, which does not rise with
/// rows, and falls as caches warm.
const RISING: f64 = 2.0;

/// Shapes that one version of an engine measured.
pub(super) type Family<'a> = BTreeMap<&'a [u32], &'a [MeasuredTime]>;

/// Flags the families of one chip and format whose times include host overhead.
pub(super) fn host_bound(families: &[Family<'_>], limit: &Limit) -> Vec<bool> {
    let little: Vec<Vec<f64>> = families.iter().map(|family| medians(family, limit)).collect();
    let floor = |times: &[f64]| times.first().map(|_| median(times.to_vec()));
    let floors: Vec<Option<f64>> = little.iter().map(|times| floor(times)).collect();
    let suspect = |at: usize| {
        let (times, Some(own)) = (&little[at], floors[at]) else { return false };
        let others =
            floors.iter().enumerate().filter(|(other, _)| *other != at).filter_map(|(_, floor)| *floor);
        let slower = others.reduce(f64::min).is_none_or(|least| own >= SLOWER * least);
        let rising = median(times[4..].to_vec()) / median(times[..3].to_vec());
        own >= CHAIN && slower && rising <= RISING
    };
    (0..families.len()).map(suspect).collect()
}

/// Median time of small shapes at each of [`ROWS`]; empty if there are no small shapes.
fn medians(family: &Family<'_>, limit: &Limit) -> Vec<f64> {
    let largest_rows = f64::from(ROWS[ROWS.len() - 1]);
    let small = family.iter().filter(|(shape, _)| limit.seconds(shape, largest_rows, 0.0) < LITTLE);
    let times = |points: &&[MeasuredTime]| {
        let at = |rows: u32| points.iter().find(|p| p.size == rows).map(|p| p.seconds);
        ROWS.iter().map(|rows| at(*rows)).collect::<Option<Vec<f64>>>()
    };
    let shapes: Vec<Vec<f64>> = small.filter_map(|(_, points)| times(points)).collect();
    if shapes.is_empty() {
        return Vec::new();
    }
    (0..ROWS.len()).map(|at| median(shapes.iter().map(|times| times[at]).collect())).collect()
}

/// Median of `values`, which must not be empty.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
