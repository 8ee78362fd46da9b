//! Normal equations of a weighted linear problem, and their Cholesky factor.
//!
//! Knows: sums of residuals' slopes by pairs of parameters, which residuals were taken out again, parameters at their least.
//! Knows nothing about what parameters mean or how residuals are weighted.

use super::problem::{COEFFICIENTS, Problem, Residual, dot};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Columns that are factored at once.
const BLOCK: usize = 64;
/// Right sides that are solved at once.
const RIGHTS: usize = 16;
/// Sweeps over the parameters that have a least.
const SWEEPS: usize = 50;
/// Where a parameter is not among those that move.
const NOWHERE: usize = usize::MAX;

type Sums = [[f64; COEFFICIENTS]; COEFFICIENTS];

/// (AᵀWA + R) x = −AᵀW c for residuals c + A x, with R the ridge; the lower triangle, by rows.
#[derive(Debug, Clone)]
pub(super) struct Normal<'a> {
    problem: Problem<'a>,
    /// The parameters that move.
    parameters: Vec<usize>,
    /// The place of each parameter among them.
    places: Vec<usize>,
    matrix: Vec<f64>,
    right: Vec<f64>,
}

/// What the residuals of one set of levels say: sums over slopes of what holds for unquantized operators, too, and of what
/// does not.
struct OfSet {
    both: Sums,
    mixed: Sums,
    own: Sums,
    right_both: [f64; COEFFICIENTS],
    right_own: [f64; COEFFICIENTS],
}

impl<'a> Normal<'a> {
    /// Those of all residuals of `problem`, weighted by `weights`.
    pub(super) fn new(problem: Problem<'a>, weights: &[f64]) -> Normal<'a> {
        let mut moves = vec![false; problem.at.len()];
        for residual in problem.residuals {
            for level in &problem.sets[residual.set] {
                for coefficient in 0..COEFFICIENTS {
                    let told = residual.slope[coefficient] != 0.0
                        || residual.slope[COEFFICIENTS + coefficient] != 0.0;
                    let parameter = level * COEFFICIENTS + coefficient;
                    moves[parameter] |= told && problem.ridge[parameter] < super::FIXED;
                }
            }
        }
        let parameters: Vec<usize> = (0..moves.len()).filter(|p| moves[*p]).collect();
        let mut places = vec![NOWHERE; moves.len()];
        parameters.iter().enumerate().for_each(|(place, parameter)| places[*parameter] = place);
        let size = parameters.len();
        let mut matrix = vec![0.0; size * size];
        for (place, parameter) in parameters.iter().enumerate() {
            matrix[place * size + place] = problem.ridge[*parameter];
        }
        let mut normal = Normal { problem, parameters, places, matrix, right: vec![0.0; size] };
        normal.add(problem.residuals.iter().zip(weights.iter().copied()));
        normal
    }

    /// Adds residuals with their weights; a negative weight takes one out.
    pub(super) fn add<'r>(&mut self, residuals: impl Iterator<Item = (&'r Residual, f64)>) {
        let mut sets: BTreeMap<usize, OfSet> = BTreeMap::new();
        let offsets = self.problem.gather(self.problem.at);
        for (residual, weight) in residuals.filter(|(_, w)| *w != 0.0) {
            let sums = sets.entry(residual.set).or_insert_with(OfSet::new);
            sums.add(residual, weight, residual.value - dot(&residual.slope, &offsets[residual.set]));
        }
        for (set, sums) in sets {
            self.scatter(&self.problem.sets[set], &sums);
        }
    }

    fn scatter(&mut self, levels: &[usize], sums: &OfSet) {
        let size = self.parameters.len();
        let unquantized = self.problem.unquantized;
        for a in levels {
            let right = if unquantized[*a] { &sums.right_both } else { &sums.right_own };
            for (i, right) in right.iter().enumerate() {
                let row = self.places[a * COEFFICIENTS + i];
                if row == NOWHERE {
                    continue;
                }
                self.right[row] -= right;
                for b in levels {
                    let columns = &self.places[b * COEFFICIENTS..][..COEFFICIENTS];
                    for (j, column) in columns.iter().enumerate().filter(|(_, column)| **column <= row) {
                        self.matrix[row * size + column] += match (unquantized[*a], unquantized[*b]) {
                            (true, true) => sums.both[i][j],
                            (true, false) => sums.mixed[i][j],
                            (false, true) => sums.mixed[j][i],
                            (false, false) => sums.own[i][j],
                        };
                    }
                }
            }
        }
    }

    /// The parameters of least cost, none below its least; those that do not move are 0.
    pub(super) fn solve(&self) -> Vec<f64> {
        let solved = self.solved();
        self.bounded(solved.free, &solved.columns)
    }

    /// The solution without bounds, with its factor.
    pub(super) fn solved(&self) -> Solved<'_, 'a> {
        let size = self.right.len();
        let factor = Factor::new(self.matrix.clone(), size);
        let least = |place: usize| self.problem.least[self.parameters[place]];
        let bounded = (0..size).filter(|place| least(*place).is_finite());
        let mut all: Vec<Vec<f64>> = bounded.map(|place| unit(size, place)).collect();
        all.push(self.right.clone());
        let mut columns = factor.solutions(all);
        let free = columns.pop().unwrap_or_default();
        Solved { normal: self, factor, free, columns }
    }

    /// The solution none of which is below its least, from the one without bounds and the columns of the matrix's inverse of
    /// the parameters that have one.
    ///
    /// With M x = b without bounds, M x = b + μ with them: μ ≥ 0, and 0 where x is above its least. Projected Gauss–Seidel
    /// finds μ.
    fn bounded(&self, mut solution: Vec<f64>, columns: &[Vec<f64>]) -> Vec<f64> {
        let least = |place: usize| self.problem.least[self.parameters[place]];
        let bounded: Vec<usize> = (0..solution.len()).filter(|place| least(*place).is_finite()).collect();
        let mut pushes = vec![0.0_f64; bounded.len()];
        for _ in 0..SWEEPS {
            for ((place, column), push) in bounded.iter().zip(columns).zip(&mut pushes) {
                let by = (least(*place) - solution[*place]) / column[*place];
                let change = (*push + by).max(0.0) - *push;
                if change != 0.0 {
                    *push += change;
                    solution.iter_mut().zip(column).for_each(|(x, c)| *x += change * c);
                }
            }
        }
        let mut x = vec![0.0; self.problem.at.len()];
        for (place, parameter) in self.parameters.iter().enumerate() {
            x[*parameter] = solution[place].max(least(place));
        }
        x
    }

    /// The row of A of one residual: what it depends on among the parameters that move.
    fn row(&self, residual: &Residual) -> Vec<(usize, f64)> {
        let (own, unquantized) = residual.slope.split_at(COEFFICIENTS);
        let mut row = Vec::new();
        for level in &self.problem.sets[residual.set] {
            let holds = f64::from(u8::from(self.problem.unquantized[*level]));
            let places = &self.places[level * COEFFICIENTS..][..COEFFICIENTS];
            let slopes = own.iter().zip(unquantized).map(|(o, u)| o + holds * u);
            row.extend(places.iter().copied().zip(slopes).filter(|(p, s)| *p != NOWHERE && *s != 0.0));
        }
        row
    }

    /// For each of `parameters` the share of its prior's variance that the residuals leave: near 1 they say nothing of it.
    pub(super) fn uncertainties(&self, parameters: &[usize]) -> Vec<f64> {
        let size = self.right.len();
        let factor = Factor::new(self.matrix.clone(), size);
        let one = |parameter: &usize| match self.places[*parameter] {
            NOWHERE => 1.0,
            place => factor.solution(&unit(size, place))[place] * self.problem.ridge[*parameter],
        };
        parameters.iter().map(one).collect()
    }
}

/// A share of the parameters: with more residuals than this taken out, the matrix is factored again.
const FEW: usize = 6;

/// A solution of normal equations, from which others follow that lack a few residuals.
pub(super) struct Solved<'n, 'a> {
    normal: &'n Normal<'a>,
    factor: Factor,
    free: Vec<f64>,
    /// Of the inverse, for the parameters that have a least.
    columns: Vec<Vec<f64>>,
}

impl Solved<'_, '_> {
    /// The parameters of least cost without residuals that had these weights.
    ///
    /// With A the rows of the residuals taken out, W their weights and Z = M⁻¹Aᵀ:
    /// (M − AᵀWA)⁻¹v = M⁻¹v + Z (W⁻¹ − AZ)⁻¹ A M⁻¹v (Woodbury).
    pub(super) fn without(&self, out: &[(&Residual, f64)]) -> Vec<f64> {
        let (normal, size) = (self.normal, self.free.len());
        if out.len() * FEW > size {
            let mut rest = normal.clone();
            rest.add(out.iter().map(|(residual, weight)| (*residual, -weight)));
            return rest.solve();
        }
        let rows: Vec<Vec<(usize, f64)>> = out.iter().map(|(residual, _)| normal.row(residual)).collect();
        let dense = |row: &Vec<(usize, f64)>| {
            let mut dense = vec![0.0; size];
            row.iter().for_each(|(place, slope)| dense[*place] += slope);
            dense
        };
        let inverse = self.factor.solutions(rows.iter().map(dense).collect());
        let along = |row: &[(usize, f64)], x: &[f64]| row.iter().map(|(place, s)| s * x[*place]).sum::<f64>();
        let count = out.len();
        let mut between = vec![0.0; count * count];
        for (i, (row, (_, weight))) in rows.iter().zip(out).enumerate() {
            inverse.iter().enumerate().for_each(|(j, z)| between[i * count + j] = -along(row, z));
            between[i * count + i] += 1.0 / weight;
        }
        let between = Factor::new(between, count);
        let lacking = |mut x: Vec<f64>| {
            let told: Vec<f64> = rows.iter().map(|row| along(row, &x)).collect();
            for (share, z) in between.solution(&told).into_iter().zip(&inverse) {
                x.iter_mut().zip(z).for_each(|(x, z)| *x += share * z);
            }
            x
        };
        let offsets = normal.problem.gather(normal.problem.at);
        let mut free = self.free.clone();
        for ((residual, weight), z) in out.iter().zip(&inverse) {
            let value = residual.value - dot(&residual.slope, &offsets[residual.set]);
            free.iter_mut().zip(z).for_each(|(x, z)| *x += weight * value * z);
        }
        let columns: Vec<Vec<f64>> = self.columns.iter().cloned().map(lacking).collect();
        normal.bounded(lacking(free), &columns)
    }
}

impl OfSet {
    fn new() -> OfSet {
        let sums = [[0.0; COEFFICIENTS]; COEFFICIENTS];
        let right = [0.0; COEFFICIENTS];
        OfSet { both: sums, mixed: sums, own: sums, right_both: right, right_own: right }
    }

    fn add(&mut self, residual: &Residual, weight: f64, value: f64) {
        let (own, unquantized) = residual.slope.split_at(COEFFICIENTS);
        let mut both = [0.0; COEFFICIENTS];
        both.iter_mut().zip(own.iter().zip(unquantized)).for_each(|(b, (o, u))| *b = o + u);
        for i in 0..COEFFICIENTS {
            let (wide, narrow) = (weight * both[i], weight * own[i]);
            self.right_both[i] += wide * value;
            self.right_own[i] += narrow * value;
            for j in 0..COEFFICIENTS {
                self.both[i][j] += wide * both[j];
                self.mixed[i][j] += wide * own[j];
                self.own[i][j] += narrow * own[j];
            }
        }
    }
}

/// A lower triangle L with L Lᵀ the matrix, by rows.
struct Factor {
    size: usize,
    rows: Vec<f64>,
}

impl Factor {
    /// By blocks of columns: the block's triangle, the rows below it, then what they change of the columns after it.
    fn new(mut rows: Vec<f64>, size: usize) -> Factor {
        for first in (0..size).step_by(BLOCK) {
            let after = (first + BLOCK).min(size);
            let width = after - first;
            let (upper, lower) = rows.split_at_mut(after * size);
            for row in first..after {
                let (before, own) = upper.split_at_mut(row * size);
                let own = &mut own[first..=row];
                for column in first..row {
                    let of_column = &before[column * size + first..][..column - first + 1];
                    eliminate(own, of_column);
                }
                let last = row - first;
                let square = own[last] - dot(&own[..last], &own[..last]);
                own[last] = square.max(f64::MIN_POSITIVE).sqrt();
            }
            let triangle = &upper[first * size..];
            lower.par_chunks_mut(size).for_each(|row| {
                let own = &mut row[first..after];
                (0..width).for_each(|column| eliminate(own, &triangle[column * size + first..][..=column]));
            });
            let panel: Vec<f64> =
                lower.chunks(size).flat_map(|row| row[first..after].iter().copied()).collect();
            lower.par_chunks_mut(size).enumerate().for_each(|(index, row)| {
                let (done, rest) = row.split_at_mut(after);
                update(&mut rest[..=index], &done[first..], &panel);
            });
        }
        Factor { size, rows }
    }

    /// Those of several right sides: a few at a time pass each row of L.
    fn solutions(&self, mut rights: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        for x in rights.chunks_mut(RIGHTS) {
            for row in 0..self.size {
                let values = &self.rows[row * self.size..][..=row];
                x.iter_mut().for_each(|x| x[row] = (x[row] - dot(&values[..row], &x[..row])) / values[row]);
            }
            for row in (0..self.size).rev() {
                let values = &self.rows[row * self.size..][..=row];
                for x in &mut *x {
                    x[row] /= values[row];
                    let known = x[row];
                    x[..row].iter_mut().zip(values).for_each(|(x, v)| *x -= v * known);
                }
            }
        }
        rights
    }

    /// The x with L Lᵀ x = `right`.
    fn solution(&self, right: &[f64]) -> Vec<f64> {
        self.solutions(vec![right.to_vec()]).pop().unwrap_or_default()
    }
}

fn unit(size: usize, place: usize) -> Vec<f64> {
    let mut unit = vec![0.0; size];
    unit[place] = 1.0;
    unit
}

/// Takes from each value the product of `own` with a row of the panel.
fn update(values: &mut [f64], own: &[f64], panel: &[f64]) {
    for (value, other) in values.iter_mut().zip(panel.chunks(own.len())) {
        *value -= dot(own, other);
    }
}

/// Element `of_column.len() − 1` of a row of L, from that column's own row of L.
fn eliminate(row: &mut [f64], of_column: &[f64]) {
    let column = of_column.len() - 1;
    row[column] = (row[column] - dot(&row[..column], &of_column[..column])) / of_column[column];
}

#[cfg(test)]
mod tests {
    use super::super::problem::BOTH;
    use super::*;

    /// What lacks three of twenty residuals by a change of low rank is what the seventeen others give, a bound or not.
    #[test]
    fn without_a_few_is_the_solution_of_the_others() {
        let residual = |index: usize| {
            let mut slope = [0.0; BOTH];
            let wave = |c: usize| ((index * 31 + c * 17) % 13) as f64 / 13.0 - 0.4;
            (0..COEFFICIENTS).for_each(|c| slope[c] = wave(c));
            Residual { group: index, set: 0, value: wave(97), slope, weight: 1.0, sigma: 1.0 }
        };
        let all: Vec<Residual> = (0..20).map(residual).collect();
        let weights: Vec<f64> = (0..20).map(|i| 0.5 + f64::from(i % 4)).collect();
        let (sets, ridge, at) = ([vec![0]], [2.0; COEFFICIENTS], [0.1; COEFFICIENTS]);
        for bound in [f64::NEG_INFINITY, -0.05] {
            let least = [bound; COEFFICIENTS];
            let problem = |residuals| Problem {
                residuals,
                sets: &sets,
                unquantized: &[true],
                ridge: &ridge,
                least: &least,
                at: &at,
            };
            let out: Vec<_> = [3, 4, 11].iter().map(|i| (&all[*i], weights[*i])).collect();
            let lacking = Normal::new(problem(&all), &weights).solved().without(&out);
            let kept = |i: &usize| ![3, 4, 11].contains(i);
            let rest: Vec<Residual> = (0..20).filter(kept).map(|i| all[i].clone()).collect();
            let of_rest: Vec<f64> = (0..20).filter(kept).map(|i| weights[i]).collect();
            let expected = Normal::new(problem(&rest), &of_rest).solve();
            for (a, b) in lacking.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
        }
    }
}
