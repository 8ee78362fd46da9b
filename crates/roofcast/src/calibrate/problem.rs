//! Residuals around a point, and the levels that each depends on.
//!
//! Knows: what a direction of the parameters changes of a residual. Knows nothing about how the least is found.

/// Metrics of a level.
pub const COEFFICIENTS: usize = crate::coefficients::Coefficient::ALL.len();
/// Metrics a residual depends on: those of what is quantized, then those of what is not.
pub const BOTH: usize = 2 * COEFFICIENTS;

/// One log error of a row's forecast.
#[derive(Debug, Clone)]
pub struct Residual {
    /// Index of its group, which can be left out.
    pub group: usize,
    /// Index of its levels.
    pub set: usize,
    /// ln(forecast/measured).
    pub value: f64,
    /// Its derivative by the logarithm of each coefficient.
    pub slope: [f64; BOTH],
    /// What it is worth: 1/sigma² of its noise, times its row's weight.
    pub weight: f64,
    /// Sigma of its noise: beyond it errors count by their size, not its square.
    pub sigma: f64,
}

/// A linear problem: residuals around a point, and the levels of each row.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// The residuals at the point.
    pub residuals: &'a [Residual],
    /// Sets of levels; the coefficients of a residual are a product of those of its set.
    pub sets: &'a [Vec<usize>],
    /// Which levels hold for what is not quantized, too.
    pub unquantized: &'a [bool],
    /// What each parameter's square costs.
    pub ridge: &'a [f64],
    /// What each parameter is at least.
    pub least: &'a [f64],
    /// The point.
    pub at: &'a [f64],
}

impl Problem<'_> {
    /// What a direction changes of each set's coefficients.
    pub(super) fn gather(&self, direction: &[f64]) -> Vec<[f64; BOTH]> {
        let sum = |set: &Vec<usize>| {
            let mut sum = [0.0; BOTH];
            for level in set {
                let moved = &direction[level * COEFFICIENTS..][..COEFFICIENTS];
                sum[..COEFFICIENTS].iter_mut().zip(moved).for_each(|(s, d)| *s += d);
                if self.unquantized[*level] {
                    sum[COEFFICIENTS..].iter_mut().zip(moved).for_each(|(s, d)| *s += d);
                }
            }
            sum
        };
        self.sets.iter().map(sum).collect()
    }
}

/// Eight sums at a time, in the same order on every machine.
#[inline(always)]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; LANES];
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    rest + sums.iter().sum::<f64>()
}
