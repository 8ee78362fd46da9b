//! Measured times on a table's grid, made monotonic.
//!
//! Knows: linear interpolation in logarithms between measured sizes, isotonic regression, and the line over context
//! of a decode. Knows nothing about the kernels.

use super::limit::within;
use super::reading::MeasuredTime;

/// Contexts in tokens at which decodes of more sequences must not be faster.
pub(super) const CONTEXTS: [f64; 2] = [1024.0, 8192.0];
/// Shortest context in tokens that enters the fit of a line; the time of shorter ones is dominated by the launch and
/// the first tile of keys.
const LEAST_CONTEXT: f64 = 128.0;
/// Smallest start or slope in seconds that is written, because 0 in the file means not measured.
const LEAST: f64 = 1e-12;

/// Times at the sizes of `grid` within the measured range, made isotonic and raised to at least `least` of the size;
/// `points` are in ascending order of size.
pub(super) fn on_grid(points: &[MeasuredTime], grid: &[u32], least: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
    let at = |size: u32| {
        let above = points.partition_point(|p| p.size < size);
        let next = points.get(above)?;
        if next.size == size {
            return Some(libm::log(next.seconds));
        }
        let before = points.get(above.checked_sub(1)?)?;
        let logs = [before.size, size, next.size].map(|s| libm::log(f64::from(s)));
        let [start, end] = [before, next].map(|p| libm::log(p.seconds));
        Some(start + (end - start) * (logs[1] - logs[0]) / (logs[2] - logs[0]))
    };
    let limit_at = |size: u32| libm::log(least(f64::from(size)));
    let measured: Vec<Option<f64>> = grid.iter().map(|size| Some(at(*size)?.max(limit_at(*size)))).collect();
    let rising = isotonic(&measured.iter().flatten().copied().collect::<Vec<_>>());
    let mut rising = rising.into_iter();
    measured.into_iter().map(|log| log.and_then(|_| rising.next()).map(libm::exp)).collect()
}

/// Nearest non-decreasing values, by pooling adjacent violators (Barlow and others, 1972).
pub(super) fn isotonic(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values {
        let mut pool = (*value, 1);
        while let Some(last) = pools.last().filter(|last| last.0 > pool.0) {
            let count = last.1 + pool.1;
            pool = ((last.0 * last.1 as f64 + pool.0 * pool.1 as f64) / count as f64, count);
            pools.pop();
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

/// Lines of a shape: a start and a slope at each number of sequences of a grid, and the lines' errors against the
/// measurements.
pub(super) struct GridLines {
    pub(super) columns: Vec<Option<f64>>,
    /// Absolute relative errors of the lines at the measured points.
    pub(super) errors: Vec<f64>,
}

/// Measured points with one number of sequences.
struct Batch {
    column: usize,
    sequences: f64,
    /// Tokens of context, over all sequences, and seconds.
    points: Vec<(f64, f64)>,
}

/// Lines over the tokens of context of all sequences with the least squared relative error, one for each number of
/// sequences of `grid`. Neither starts, nor times at [`CONTEXTS`], decrease with the number of sequences.
pub(super) fn lines(points: &[MeasuredTime], window: f64, grid: &[u32]) -> GridLines {
    // With a window of 128 keys, the time is constant from context 128 on.
    let shortest_context = if window > 0.0 { LEAST_CONTEXT.min(window / 8.0) } else { LEAST_CONTEXT };
    let batch = |(column, size): (usize, &u32)| {
        let counted = points.iter().filter(|p| p.size == *size && f64::from(p.context) >= shortest_context);
        let sequences = f64::from(*size);
        let points = counted.map(|p| (sequences * within(f64::from(p.context), window), p.seconds));
        let points: Vec<_> = points.collect();
        (points.len() >= 3).then_some(Batch { column, sequences, points })
    };
    let batches: Vec<Batch> = grid.iter().enumerate().filter_map(batch).collect();
    let starts = isotonic(&batches.iter().map(|batch| line(&batch.points)[0]).collect::<Vec<_>>());
    let mut lines = GridLines { columns: vec![None; 2 * grid.len()], errors: Vec::new() };
    let mut before = [0.0; 2];
    for (batch, start) in batches.iter().zip(starts) {
        let tokens = CONTEXTS.map(|context| batch.sequences * within(context, window));
        let slopes_from_start = tokens.iter().zip(before).map(|(tokens, before)| (before - start) / tokens);
        let slope = slopes_from_start.fold(slope(&batch.points, start), f64::max);
        before = tokens.map(|tokens| start + slope * tokens);
        let error = |(tokens, seconds): &(f64, f64)| ((start + slope * tokens) / seconds - 1.0).abs();
        lines.errors.extend(batch.points.iter().map(error));
        lines.columns[2 * batch.column] = Some(start.max(LEAST));
        lines.columns[2 * batch.column + 1] = Some(slope.max(LEAST));
    }
    lines
}

/// Start and slope, neither below 0, of the line that minimizes the sum of (line/seconds − 1)².
fn line(points: &[(f64, f64)]) -> [f64; 2] {
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, t)| of(*x, *t)).sum::<f64>();
    // Normal equations of least squares in 1/t and x/t.
    let [aa, ax, xx] = [sum(&|_, t| 1.0 / (t * t)), sum(&|x, t| x / (t * t)), sum(&|x, t| x * x / (t * t))];
    let [a, x] = [sum(&|_, t| 1.0 / t), sum(&|x, t| x / t)];
    let determinant = aa * xx - ax * ax;
    let flat = determinant <= 1e-12 * aa * xx;
    let start = if flat { 0.0 } else { (a * xx - x * ax) / determinant };
    let slope = if flat { x / xx } else { (x * aa - a * ax) / determinant };
    if slope < 0.0 {
        [a / aa, 0.0]
    } else if start < 0.0 {
        [0.0, x / xx]
    } else {
        [start, slope]
    }
}

/// Slope, not below 0, of the line with the given `start` that minimizes the sum of (line/seconds − 1)².
fn slope(points: &[(f64, f64)], start: f64) -> f64 {
    let over = points.iter().map(|(x, t)| x * (t - start) / (t * t)).sum::<f64>();
    let under = points.iter().map(|(x, t)| x * x / (t * t)).sum::<f64>();
    (over / under).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times: &[(u32, u32, f64)]) -> Vec<MeasuredTime> {
        times
            .iter()
            .map(|(size, context, seconds)| MeasuredTime {
                size: *size,
                context: *context,
                seconds: *seconds,
            })
            .collect()
    }

    /// 1 and 3 in falling order are pooled to 2 and 2; 5, 4 and 3 to their mean, 4.
    #[test]
    fn falling_values_are_pooled() {
        assert_eq!(isotonic(&[3.0, 1.0, 5.0, 4.0, 3.0, 9.0]), [2.0, 2.0, 4.0, 4.0, 4.0, 9.0]);
    }

    /// Between 10 µs at size 4 and 40 µs at 16, the time doubles from 4 to 8, in logarithms. Sizes 2 and 32 are
    /// outside the measured range. At 64 and 256 the times fall and become their geometric mean, 60 of 90 and 40.
    /// Times below a bound of 25 µs are raised to it.
    #[test]
    fn sizes_between_are_interpolated_and_times_do_not_fall() {
        let measured = points(&[(4, 0, 10e-6), (16, 0, 40e-6), (64, 0, 90e-6), (256, 0, 40e-6)]);
        let on = on_grid(&measured, &[2, 4, 8, 16, 64, 256, 1024], |_| 0.0);
        assert_eq!((on[0], on[6]), (None, None));
        for (seconds, by_hand) in on.into_iter().flatten().zip([10e-6, 20e-6, 40e-6, 60e-6, 60e-6]) {
            assert!((seconds / by_hand - 1.0).abs() < 1e-12, "{seconds}");
        }
        let above = on_grid(&measured, &[4, 8, 16], |size| if size == 8.0 { 25e-6 } else { 0.0 });
        assert!((above[1].unwrap() / 25e-6 - 1.0).abs() < 1e-12, "{above:?}");
    }

    /// Times made from lines: one sequence with 10 µs and 5 ns per token; four sequences with 12 µs and 4 ns per
    /// token of all.
    #[test]
    fn lines_that_made_the_times_are_found() {
        let time = |size: u32, context: u32, start: f64, slope: f64| {
            (size, context, start + slope * f64::from(size * context))
        };
        let mut times: Vec<_> = [128, 512, 2048].map(|c| time(1, c, 10e-6, 5e-9)).to_vec();
        times.extend([128, 512, 2048].map(|c| time(4, c, 12e-6, 4e-9)));
        // Contexts below the shortest are excluded from the fit.
        times.push((1, 64, 1.0));
        let fitted = lines(&points(&times), 0.0, &[1, 4, 16]);
        let by_hand = [10e-6, 5e-9, 12e-6, 4e-9];
        for (fitted, by_hand) in fitted.columns.iter().flatten().zip(by_hand) {
            assert!((fitted / by_hand - 1.0).abs() < 1e-6, "{fitted} {by_hand}");
        }
        assert_eq!(fitted.columns[4..], [None, None]);
    }

    /// Four sequences that are as fast as one at any context: the slope per token of all sequences is raised so that
    /// times at contexts of 1,024 and of 8,192 tokens do not decrease: (10 + 5.12)/4096 µs minus the start.
    #[test]
    fn more_sequences_are_not_faster() {
        let mut times: Vec<_> = [128, 512, 2048].map(|c| (1, c, 10e-6 + 5e-9 * f64::from(c))).to_vec();
        times.extend([128, 512, 2048].map(|c| (4, c, 8e-6 + 1e-9 * f64::from(c))));
        let fitted = lines(&points(&times), 0.0, &[1, 4]);
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| fitted.columns[i].unwrap());
        assert!(c >= a, "{a} {c}");
        for context in CONTEXTS {
            assert!(c + d * 4.0 * context >= (a + b * context) * (1.0 - 1e-12));
        }
    }
}
