//! Robust ridge least squares on log errors: Gauss–Newton outside, reweighted normal equations inside.
//!
//! Knows: residuals with their derivatives by coefficient, and which levels each residual's coefficients are a product of. A
//! parameter is the logarithm of one level's factor; its prior is 1. Knows nothing about what the coefficients mean.

use super::normal::{Normal, Solved};
use super::problem::dot;
pub use super::problem::{BOTH, COEFFICIENTS, Problem, Residual};
use std::collections::BTreeSet;

/// Reweightings of one solution.
const REWEIGHTINGS: usize = 3;

impl Problem<'_> {
    /// The residuals at `x`, linearised.
    fn values(&self, x: &[f64]) -> Vec<f64> {
        let moved: Vec<f64> = x.iter().zip(self.at).map(|(x, at)| x - at).collect();
        let sets = self.gather(&moved);
        self.residuals.iter().map(|r| r.value + dot(&r.slope, &sets[r.set])).collect()
    }

    /// Each residual's weight where the residuals are `values`.
    fn weights(&self, values: &[f64]) -> Vec<f64> {
        let weight = |(r, value): (&Residual, &f64)| r.weight * damping(*value, r.sigma);
        self.residuals.iter().zip(values).map(weight).collect()
    }

    /// The parameters of least cost, from `start`.
    pub fn solve(&self, start: &[f64]) -> Vec<f64> {
        let mut x = start.to_vec();
        for _ in 0..REWEIGHTINGS {
            x = self.normal(&x).solve();
        }
        x
    }

    /// The normal equations where residuals weigh what they do at `x`.
    pub(super) fn normal(&self, x: &[f64]) -> Normal<'_> {
        Normal::new(*self, &self.weights(&self.values(x)))
    }

    /// The parameters of least cost with what `solved` weighs at `x`, but for the residuals of these groups.
    pub(super) fn solve_without(&self, solved: &Solved, x: &[f64], groups: &BTreeSet<usize>) -> Vec<f64> {
        let weights = self.weights(&self.values(x));
        let all = self.residuals.iter().zip(weights);
        let out: Vec<_> = all.filter(|(r, weight)| *weight > 0.0 && groups.contains(&r.group)).collect();
        solved.without(&out)
    }

    /// What the cost is at `x`, where the residuals are these.
    pub fn cost(&self, x: &[f64]) -> f64 {
        let ridge: f64 = self.ridge.iter().zip(x).map(|(r, x)| r * x * x).sum();
        let pseudo = |r: &Residual| {
            let share = r.value / r.sigma;
            2.0 * r.weight * r.sigma * r.sigma * ((1.0 + share * share).sqrt() - 1.0)
        };
        ridge + self.residuals.iter().map(pseudo).sum::<f64>()
    }
}

/// Pseudo-Huber's weight: 1 for small errors, sigma/|error| for large ones.
fn damping(value: f64, sigma: f64) -> f64 {
    let share = value / sigma;
    1.0 / (1.0 + share * share).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: [f64; BOTH] = [f64::NEG_INFINITY; BOTH];

    fn residual(group: usize, value: f64, coefficient: usize) -> Residual {
        let mut slope = [0.0; BOTH];
        slope[coefficient] = 1.0;
        Residual { group, set: 0, value, slope, weight: 1.0, sigma: 1e6 }
    }

    /// One parameter, residual 3 + x, ridge 2: least (3 + x)² + 2x² at 2(3 + x) + 4x = 0, x = −1.
    #[test]
    fn a_ridge_shrinks_by_hand() {
        let residuals = [residual(0, 3.0, 0)];
        let sets = [vec![0]];
        let (ridge, at) = ([2.0; COEFFICIENTS], [0.0; COEFFICIENTS]);
        let (residuals, sets) = (&residuals, &sets);
        let problem = Problem { residuals, sets, unquantized: &[true], ridge: &ridge, least: &ANY, at: &at };
        let x = problem.solve(&at);
        assert!((x[0] + 1.0).abs() < 1e-6 && x[1].abs() < 1e-12, "{x:?}");
        // Prior variance 1/2, with the data 1/(2 + 1): two thirds of it are left; of the others all.
        let left = problem.normal(&x).uncertainties(&[0, 1]);
        assert!((left[0] - 2.0 / 3.0).abs() < 1e-6 && (left[1] - 1.0).abs() < 1e-9, "{left:?}");
    }

    /// Two levels of one coefficient, residual 3 + x + y: the one that may not be below 0 stays there, and the other answers
    /// alone: least (3 + x)² + 2x² at x = −1, as by hand above.
    #[test]
    fn what_may_not_fall_stays() {
        let residuals = [residual(0, 3.0, 0)];
        let sets = [vec![0, 1]];
        let (ridge, at) = ([2.0; BOTH], [0.0; BOTH]);
        let mut least = ANY;
        least[COEFFICIENTS..].fill(0.0);
        let problem = Problem {
            residuals: &residuals,
            sets: &sets,
            unquantized: &[true, true],
            ridge: &ridge,
            least: &least,
            at: &at,
        };
        let x = problem.solve(&at);
        assert!((x[0] + 1.0).abs() < 1e-6 && x[COEFFICIENTS] == 0.0, "{} {}", x[0], x[COEFFICIENTS]);
    }

    /// Nine rows say 0, one says 100: the robust answer stays near the nine.
    #[test]
    fn one_outlier_does_not_pull() {
        let mut residuals: Vec<_> = (0..10).map(|group| residual(group, 0.0, 0)).collect();
        residuals[9].value = 100.0;
        residuals.iter_mut().for_each(|r| r.sigma = 0.1);
        let sets = [vec![0]];
        let (ridge, at) = ([1e-6; COEFFICIENTS], [0.0; COEFFICIENTS]);
        let (residuals, sets) = (&residuals, &sets);
        let problem = Problem { residuals, sets, unquantized: &[true], ridge: &ridge, least: &ANY, at: &at };
        assert!(problem.solve(&at)[0].abs() < 0.1);
        assert!(
            problem.solve_without(&problem.normal(&at).solved(), &at, &BTreeSet::from([9]))[0].abs() < 1e-6
        );
    }

    /// What only plain operators say moves the levels that hold for them, and no other: a level of a weight format stays.
    #[test]
    fn unquantized_operators_say_nothing_of_a_format() {
        let residuals = [residual(0, 3.0, COEFFICIENTS)];
        let sets = [vec![0, 1]];
        let (ridge, at) = ([2.0; BOTH], [0.0; BOTH]);
        let (residuals, sets) = (&residuals, &sets);
        let problem =
            Problem { residuals, sets, unquantized: &[true, false], ridge: &ridge, least: &ANY, at: &at };
        let x = problem.solve(&at);
        assert!((x[0] + 1.0).abs() < 1e-6 && x[COEFFICIENTS] == 0.0, "{} {}", x[0], x[COEFFICIENTS]);
    }

    /// A share at its most has no slope: alone it falls back to the prior, and what holds it keeps it, but for the group
    /// that is left out.
    #[test]
    fn a_full_share_is_held_by_other_groups() {
        let full = Residual { slope: [0.0; BOTH], ..residual(0, 0.1, 0) };
        let hold = Residual { weight: 1e6, ..residual(1, 0.0, 0) };
        let (sets, ridge) = ([vec![0]], [2.0; COEFFICIENTS]);
        let mut at = [0.0; COEFFICIENTS];
        at[0] = 0.5;
        let solved = |residuals: &[Residual], without: &[usize]| {
            let problem =
                Problem { residuals, sets: &sets, unquantized: &[true], ridge: &ridge, least: &ANY, at: &at };
            problem.solve_without(&problem.normal(&at).solved(), &at, &without.iter().copied().collect())[0]
        };
        assert!(solved(std::slice::from_ref(&full), &[]).abs() < 1e-6);
        assert!((solved(&[full.clone(), hold.clone()], &[0]) - 0.5).abs() < 1e-5);
        assert!(solved(&[full, hold], &[1]).abs() < 1e-6);
    }
}
