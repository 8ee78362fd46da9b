//! The linearized problem of a fit: residuals that depend on the logarithms of numbers, each with a prior and bounds.
//!
//! Knows: Σ w ρ((r + Σ s d)/σ) + Σ ((x + d − x₀)/u)² over the steps d of logarithms x, with residual r, slope s,
//! weight w, prior x₀ of width u and Cauchy's loss ρ, minimized by coordinate descent under bounds on x + d.
//! Coordinate descent converges fast because there are few numbers and each has a prior term. Knows nothing about the
//! meaning of the numbers.

use roofcast_cost::coefficients::Constant;

/// Standard deviation of a log error that remains in a perfect fit: noise of repeated runs, and effects that no
/// fitted number describes.
const NOISE: f64 = 0.15;
/// Log error beyond which rows lose weight (Cauchy's loss): larger errors come from kernel times, which no fitted
/// number can correct.
const FAR: f64 = 0.2;
/// Distance of a number's bounds from its prior, in standard deviations of the prior's logarithm.
const WIDTHS: f64 = 4.0;
const SWEEPS: usize = 200;
/// Smallest number in microseconds whose logarithm is taken; smaller ones are raised to it.
const LEAST: f64 = 1e-3;

struct Term {
    value: f64,
    weight: f64,
    slopes: Vec<(usize, f64)>,
}

/// Residuals with their slopes, and numbers with their priors and bounds.
pub(super) struct Problem {
    numbers: Vec<Constant>,
    residuals: Vec<Term>,
}

impl Problem {
    pub(super) fn new(numbers: Vec<Constant>) -> Problem {
        Problem { numbers, residuals: Vec::new() }
    }

    /// Adds a residual with its weight and its slope by each number.
    pub(super) fn add(&mut self, value: f64, weight: f64, slopes: Vec<(usize, f64)>) {
        self.residuals.push(Term { value, weight, slopes });
    }

    /// Returns the numbers at the minimum of the problem over the residuals for which `counts` is true.
    pub(super) fn solve(&self, counts: &dyn Fn(usize) -> bool) -> Vec<f64> {
        let log = |us: f64| us.max(LEAST).ln();
        let counted: Vec<&Term> =
            self.residuals.iter().enumerate().filter(|(i, _)| counts(*i)).map(|(_, t)| t).collect();
        let mut of_number: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.numbers.len()];
        for (index, term) in counted.iter().enumerate() {
            term.slopes.iter().for_each(|(number, slope)| of_number[*number].push((index, *slope)));
        }
        let mut errors: Vec<f64> = counted.iter().map(|t| t.value).collect();
        let mut logs: Vec<f64> = self.numbers.iter().map(|c| log(c.us)).collect();
        for _ in 0..SWEEPS {
            for (number, c) in self.numbers.iter().enumerate() {
                let width = ((log(c.most) - log(c.least)) / WIDTHS).max(1e-9);
                let mut curvature = 1.0 / (width * width);
                let mut gradient = (logs[number] - log(c.prior)) * curvature;
                for (index, slope) in &of_number[number] {
                    let error = errors[*index];
                    let trust = 1.0 / (1.0 + (error / FAR) * (error / FAR));
                    let weight = counted[*index].weight * trust / (NOISE * NOISE);
                    curvature += weight * slope * slope;
                    gradient += weight * slope * error;
                }
                let next = (logs[number] - gradient / curvature).clamp(log(c.least), log(c.most));
                let moved = next - logs[number];
                of_number[number].iter().for_each(|(index, slope)| errors[*index] += slope * moved);
                logs[number] = next;
            }
        }
        logs.into_iter().map(f64::exp).zip(&self.numbers).map(|(us, c)| us.clamp(c.least, c.most)).collect()
    }

    /// Linear extrapolation of the residual at `index` to the numbers `values`.
    pub(super) fn moved(&self, index: usize, values: &[f64]) -> f64 {
        let term = &self.residuals[index];
        let moves = term.slopes.iter().map(|(number, slope)| {
            slope * (values[*number].max(LEAST) / self.numbers[*number].us.max(LEAST)).ln()
        });
        term.value + moves.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(us: f64) -> Constant {
        Constant { us, prior: 2.0, least: 1.0, most: 4.0 }
    }

    /// One residual of ln 1.1 = 0.0953 with slope 1 and weight 1 pulls with 1/0.15² = 44.44 per unit,
    /// 0.0953 · 44.44 = 4.236 in all; the prior pulls back with 1/(ln 4/4)² = 8.326 per unit. The minimum is a step
    /// of −4.236/(44.44 + 8.326) = −0.0803.
    #[test]
    fn a_number_moves_between_its_row_and_its_prior() {
        let mut problem = Problem::new(vec![number(2.0)]);
        problem.add(1.1_f64.ln(), 1.0, vec![(0, 1.0)]);
        let solution = problem.solve(&|_| true)[0];
        assert!((solution / (2.0 * (-0.080_28_f64).exp()) - 1.0).abs() < 1e-3, "{solution}");
        let left = problem.moved(0, &[solution]);
        assert!((left - (0.095_31 - 0.080_28)).abs() < 1e-3, "{left}");
    }

    #[test]
    fn no_number_leaves_its_bounds_and_without_rows_it_is_its_prior() {
        let mut problem = Problem::new(vec![number(3.0), number(3.0)]);
        for _ in 0..1000 {
            problem.add(-2.0, 1.0, vec![(0, 0.5)]);
        }
        let solution = problem.solve(&|_| true);
        assert_eq!(solution[0], 4.0);
        assert!((solution[1] - 2.0).abs() < 1e-9);
        assert!((problem.solve(&|_| false)[0] - 2.0).abs() < 1e-9);
    }
}
