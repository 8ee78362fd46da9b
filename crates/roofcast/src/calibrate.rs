//! Fits a calibration to measured points, and judges it on groups left out.
//!
//! Knows: how levels are fitted to all rows at once, and how a group's rows are forecast without it. A parameter is shrunk
//! towards the level above it, so that a level of few rows moves little.

mod bands;
mod contradiction;
mod finish;
pub mod fit;
pub mod kernels;
mod leave_out;
mod levels;
mod normal;
mod problem;
#[cfg(test)]
mod tests;

use crate::calibration::{Calibration, Place, Selector, is_unquantized};
use crate::catalog::Catalog;
use crate::coefficients::{Coefficient, Coefficients, ServerLoop, Values};
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::forecaster::Forecaster;
use crate::measurement::{Measurement, Metrics};
use crate::operator::Operator;
use crate::step::StepModel;
use crate::validate::point::{self, Forecast};
use crate::validate::{Point, Resolver};
use fit::{BOTH, COEFFICIENTS, Problem, Residual};
pub use leave_out::LeaveOut;
use levels::{Versions, least, matters, scale, selectors, targets};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Times that slopes are taken at most.
const ROUNDS: usize = 3;
/// Steps with the same slopes at most.
const CHORDS: usize = 3;
/// Halvings of a step at most.
const HALVINGS: i32 = 4;
/// A step that lowers the cost by a smaller share is the last.
const SETTLED: f64 = 0.003;
/// By how much a coefficient's logarithm is moved for its derivative: more than the grain of whole steps.
const NUDGE: f64 = 0.04;
/// The furthest that one round moves a parameter.
const FURTHEST: f64 = 0.7;
/// What an error counts beside the noise of its metric alone: the errors of a group's rows are mostly the model's own and
/// much alike. Chosen, as the scales below, by the errors of groups left out.
const TRUST: f64 = 0.07;
/// What it costs to move the first level: it stands for what nobody measured.
const FIXED: f64 = 1e12;
/// A row that can be fitted.
struct Fitted<'a> {
    row: &'a Measurement,
    deployment: Deployment,
    limit: Metrics,
    weight: f64,
    group: usize,
    set: usize,
    /// Whether its unquantized products have slopes of their own.
    apart: bool,
    /// Logarithms of the coefficients that levels are factors of, then of the unquantized ones.
    base: [f64; BOTH],
}

/// A fit of one file.
pub struct Fit<'a> {
    rows: Vec<Fitted<'a>>,
    /// Sets of levels that rows have.
    sets: Vec<Vec<usize>>,
    groups: usize,
    selectors: Vec<Selector>,
    /// Which levels hold for what is not quantized, too.
    unquantized: Vec<bool>,
    prior: Calibration,
    files: BTreeMap<String, String>,
    ridge: Vec<f64>,
    least: Vec<f64>,
    x: Vec<f64>,
    residuals: Vec<Residual>,
    left_out: Vec<Point<'a>>,
}

/// A fitted calibration.
pub struct Fitting {
    /// The levels.
    pub calibration: Calibration,
    /// Metrics that the data cannot tell apart from others, or say nothing about: they hardly moved.
    pub undetermined: Vec<String>,
}

impl<'a> Fit<'a> {
    /// Fits `rows`, starting from `prior`. Rows without a forecast and rows faster than their limit
    /// are left out. `files` says where rows of a source stand.
    pub fn new(
        rows: &'a [Measurement],
        files: BTreeMap<String, String>,
        catalog: &Catalog,
        prior: &Calibration,
    ) -> Result<Fit<'a>> {
        let mut fit = Fit {
            rows: Vec::new(),
            sets: Vec::new(),
            groups: 0,
            selectors: Vec::new(),
            unquantized: Vec::new(),
            prior: prior.clone(),
            files,
            ridge: Vec::new(),
            least: Vec::new(),
            x: Vec::new(),
            residuals: Vec::new(),
            left_out: Vec::new(),
        };
        fit.take(rows, catalog);
        if fit.rows.is_empty() {
            return Err(Error::field(
                "rows",
                "forecast",
                0,
                "a file with at least one row that can be forecast",
            ));
        }
        fit.descend();
        Ok(fit)
    }

    /// Resolves the rows and gives them their levels.
    fn take(&mut self, rows: &'a [Measurement], catalog: &Catalog) {
        let mut resolver = Resolver::new(catalog);
        let mut groups: BTreeMap<String, usize> = BTreeMap::new();
        let mut versions = Versions::default();
        for point in crate::validate::points(rows, catalog, &self.prior) {
            let (Ok(_), Ok(deployment)) = (&point.forecast, resolver.deployment(point.row)) else {
                self.left_out.push(point);
                continue;
            };
            versions.add(&Place::of(&deployment));
            let next = groups.len();
            let group = *groups.entry(point.row.group()).or_insert(next);
            let (base, apart) = (self.base(&deployment), has_two_sorts(&deployment));
            let (row, limit) = (point.row, point.limit);
            self.rows.push(Fitted { row, base, apart, deployment, limit, weight: 1.0, group, set: 0 });
        }
        self.groups = groups.len();
        self.give_levels(&versions);
        self.weigh();
        self.x = self.start();
        let timed = self.prior.levels.iter().filter(|l| l.kernels.is_some());
        let timed: BTreeSet<&str> = timed
            .flat_map(|l| [&l.at.accelerator, &l.at.architecture])
            .filter_map(|at| at.as_deref())
            .collect();
        let scales = self.selectors.iter().flat_map(|s| Coefficient::ALL.map(|c| scale(s, c, &timed)));
        self.ridge = scales.map(|scale| scale.map_or(FIXED, |s| s.powi(-2))).collect();
        self.ridge[..COEFFICIENTS].fill(FIXED);
    }

    fn give_levels(&mut self, versions: &Versions) {
        self.selectors.push(Selector::default());
        let mut levels: BTreeMap<Selector, usize> = BTreeMap::new();
        let mut sets: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for fitted in &mut self.rows {
            let mut own = vec![0];
            for selector in selectors(&Place::of(&fitted.deployment), versions) {
                let next = self.selectors.len();
                let index = *levels.entry(selector.clone()).or_insert_with(|| {
                    self.selectors.push(selector);
                    next
                });
                own.push(index);
            }
            let next = self.sets.len();
            fitted.set = *sets.entry(own.clone()).or_insert_with(|| {
                self.sets.push(own);
                next
            });
        }
        self.unquantized =
            self.selectors.iter().map(|s| s.weights.as_deref().is_none_or(is_unquantized)).collect();
        self.least = self.selectors.iter().flat_map(|s| [least(s); COEFFICIENTS]).collect();
    }

    /// Logarithms of the coefficients of a deployment's kernels, and of its unquantized ones.
    fn base(&self, deployment: &Deployment) -> [f64; BOTH] {
        let place = Place::of(deployment);
        let own = self.prior.base(&place);
        let unquantized = self.prior.base(&Place { weights: "bf16", ..place });
        let mut logs = [0.0; BOTH];
        let values = own.0.iter().chain(&unquantized.0);
        logs.iter_mut().zip(values).for_each(|(log, value)| *log = value.ln());
        logs
    }

    /// The parameters at which the prior has levels of the same places; the first level counts from its own coefficients.
    fn start(&self) -> Vec<f64> {
        let factor = |selector: &Selector, coefficient: Coefficient| {
            let mut fitted = self.prior.levels.iter().skip(1).filter(|l| l.source.is_some());
            let level = fitted.find(|l| l.at == *selector)?;
            level.coefficients.get(&coefficient).map(|f| f.ln())
        };
        let others = self.selectors.iter().skip(1);
        let factors =
            others.flat_map(|s| Coefficient::ALL.map(|c| factor(s, c).unwrap_or(0.0).max(least(s))));
        [0.0; COEFFICIENTS].into_iter().chain(factors).collect()
    }

    /// Rows of a group say much the same: a group of n counts as √n rows. What contradicts itself does not count.
    fn weigh(&mut self) {
        let contradicted = contradiction::contradicted(&self.rows);
        let mut sizes = vec![0.0_f64; self.groups];
        self.rows.iter().for_each(|r| sizes[r.group] += 1.0);
        for (row, contradicted) in self.rows.iter_mut().zip(contradicted) {
            row.weight = if contradicted { 0.0 } else { TRUST / sizes[row.group].sqrt() };
        }
    }

    /// Rows that are judged but not fitted: they contradict their limit, or others that say the same.
    pub fn contradicted(&self) -> usize {
        self.rows.iter().filter(|row| row.weight == 0.0).count()
    }

    /// Gauss–Newton with halved steps; slopes serve for a few of them.
    fn descend(&mut self) {
        for _ in 0..ROUNDS {
            self.residuals = self.evaluate(&self.x, true);
            let mut settled = true;
            for chord in 0..CHORDS {
                let before = self.problem(&self.residuals).cost(&self.x);
                let Some((x, residuals)) = self.step(before) else { break };
                let after = self.problem(&residuals).cost(&x);
                self.x = x;
                let values = residuals.iter().map(|r| r.value);
                self.residuals.iter_mut().zip(values).for_each(|(r, value)| r.value = value);
                settled &= chord == 0 && after > before * (1.0 - SETTLED);
                if after > before * (1.0 - SETTLED) {
                    break;
                }
            }
            if settled {
                break;
            }
        }
    }

    /// Towards the least of the linear problem, as far as the cost falls below `before`.
    fn step(&self, before: f64) -> Option<(Vec<f64>, Vec<Residual>)> {
        let target = self.problem(&self.residuals).solve(&self.x);
        (0..HALVINGS).find_map(|halved| {
            let share = 0.5_f64.powi(halved);
            let moved = |(x, t): (&f64, &f64)| x + (share * (t - x)).clamp(-FURTHEST, FURTHEST);
            let next: Vec<f64> = self.x.iter().zip(&target).map(moved).collect();
            let residuals = self.evaluate(&next, false);
            let falls =
                residuals.len() == self.residuals.len() && self.problem(&residuals).cost(&next) < before;
            falls.then_some((next, residuals))
        })
    }

    /// What holds shares that have reached 1, where rows tell only that they are no smaller: without it nothing but the prior
    /// would speak for them when a group is left out.
    fn held(&self) -> Vec<Residual> {
        let mut full: BTreeSet<(usize, usize, usize)> = BTreeSet::new();
        for fitted in &self.rows {
            let logs = self.logs(fitted, &self.x);
            let shares = Coefficient::ALL.into_iter().filter(|f| f.is_share() && logs[*f as usize] > -NUDGE);
            full.extend(shares.map(|coefficient| (fitted.group, fitted.set, coefficient as usize)));
        }
        let hold = |(group, set, coefficient)| {
            let mut slope = [0.0; BOTH];
            slope[coefficient] = 1.0;
            Residual { group, set, value: 0.0, slope, weight: NUDGE.powi(-2), sigma: 1.0 }
        };
        full.into_iter().map(hold).collect()
    }

    fn problem<'b>(&'b self, residuals: &'b [Residual]) -> Problem<'b> {
        Problem {
            residuals,
            sets: &self.sets,
            unquantized: &self.unquantized,
            ridge: &self.ridge,
            least: &self.least,
            at: &self.x,
        }
    }

    /// The residuals at `x`, with slopes where they are wanted.
    fn evaluate(&self, x: &[f64], slopes: bool) -> Vec<Residual> {
        let rows = (0..self.rows.len()).into_par_iter();
        rows.flat_map_iter(|index| self.residuals_of(index, x, slopes)).collect()
    }

    fn residuals_of(&self, index: usize, x: &[f64], slopes: bool) -> Vec<Residual> {
        let fitted = &self.rows[index];
        let logs = self.logs(fitted, x);
        let Some(now) = self.forecast(fitted, &logs, None) else { return Vec::new() };
        let wanted = targets(fitted.row);
        let mut residuals: Vec<(usize, Residual)> = Vec::new();
        for (metric, sigma) in wanted {
            let pair = fitted.row.measured.all()[metric].filter(|m| *m > 0.0).zip(now.metrics.all()[metric]);
            let Some((measured, forecast)) = pair else { continue };
            let weight = fitted.weight / (sigma * sigma);
            let value = (forecast / measured).ln();
            residuals.push((
                metric,
                Residual { group: fitted.group, set: fitted.set, value, slope: [0.0; BOTH], weight, sigma },
            ));
        }
        if slopes {
            for coefficient in
                Coefficient::ALL.into_iter().filter(|f| matters(&fitted.deployment, fitted.row, *f))
            {
                let share = coefficient.is_share();
                let apart = fitted.apart && (coefficient.is_of_products() || coefficient.is_of_small_m());
                let coefficient = coefficient as usize;
                let mut nudge = |coefficients: &[usize], into: usize| {
                    // Shares beyond 1 count as 1, where only the way down tells.
                    let down = share && logs[coefficients[0]] + NUDGE > 0.0;
                    let by = if down { -NUDGE } else { NUDGE };
                    let mut nudged = logs;
                    coefficients.iter().for_each(|coefficient| nudged[*coefficient] += by);
                    let Some(then) = self.forecast(fitted, &nudged, Some(&now)) else { return };
                    for (metric, residual) in &mut residuals {
                        if let Some((a, b)) = then.metrics.all()[*metric].zip(now.metrics.all()[*metric]) {
                            residual.slope[into] = (a / b).ln() / by;
                        }
                    }
                };
                if apart {
                    nudge(&[coefficient], coefficient);
                    nudge(&[COEFFICIENTS + coefficient], COEFFICIENTS + coefficient);
                } else {
                    nudge(&[coefficient, COEFFICIENTS + coefficient], coefficient);
                }
            }
        }
        residuals.into_iter().map(|(_, r)| r).collect()
    }

    /// Logarithms of the row's coefficients, then of its unquantized ones.
    fn logs(&self, fitted: &Fitted, x: &[f64]) -> [f64; BOTH] {
        let mut logs = fitted.base;
        for level in &self.sets[fitted.set] {
            let factors = &x[level * COEFFICIENTS..][..COEFFICIENTS];
            let both = self.unquantized[*level];
            logs[..COEFFICIENTS].iter_mut().zip(factors).for_each(|(log, f)| *log += f);
            logs[COEFFICIENTS..].iter_mut().zip(factors).filter(|_| both).for_each(|(log, f)| *log += f);
        }
        logs
    }

    /// The row's forecast by these coefficients; `near` is one by others, which saves the run where those take the same steps.
    fn forecast(&self, fitted: &Fitted, logs: &[f64; BOTH], near: Option<&Forecast>) -> Option<Forecast> {
        let values = |from: usize| {
            let mut values = [0.0; COEFFICIENTS];
            values.iter_mut().zip(&logs[from..]).for_each(|(v, log)| *v = log.exp());
            Values(values)
        };
        let deployment = fitted.deployment.clone();
        let place = Place::of(&deployment);
        let coefficients = Coefficients {
            name: String::new(),
            values: place.with_own_shares(values(0)),
            unquantized: values(COEFFICIENTS),
            regimes: place.regimes(),
            attention: None,
            multiprocessors: deployment.accelerator.multiprocessors,
            launches: None,
            server: ServerLoop::default(),
            band: None,
            ideal: false,
        };
        let forecaster =
            Forecaster { deployment, coefficients: Arc::new(coefficients), draft: None, other: None };
        point::forecast_near(fitted.row, &forecaster, near).ok()
    }

    /// Every row forecast by a calibration that has not seen its part by `protocol`. The parameters of each are the least
    /// of the problem linearised at the fit of all rows.
    pub fn left_out(&self, protocol: LeaveOut) -> Vec<Point<'a>> {
        let mut residuals = self.residuals.clone();
        residuals.extend(self.held());
        let mut parts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, fitted) in self.rows.iter().enumerate() {
            parts.entry(protocol.part(fitted.row)).or_default().push(index);
        }
        let parts: Vec<Vec<usize>> = parts.into_values().collect();
        let problem = self.problem(&residuals);
        let normal = problem.normal(&self.x);
        let solved = normal.solved();
        let part = |rows: &Vec<usize>| {
            // Groups lie within the parts of every protocol.
            let groups: BTreeSet<usize> = rows.iter().map(|r| self.rows[*r].group).collect();
            let x = problem.solve_without(&solved, &self.x, &groups);
            let calibration = self.calibration(&x, &groups);
            rows.iter().map(|r| self.point(*r, &x, &calibration)).collect::<Vec<_>>()
        };
        let mut points: Vec<Point> = parts.par_iter().flat_map_iter(part).collect();
        points.extend(self.left_out.iter().cloned());
        points
    }

    /// Every row forecast by the calibration that was fitted to it.
    pub fn in_sample(&self) -> Vec<Point<'a>> {
        let calibration = self.calibration(&self.x, &BTreeSet::new());
        let rows = (0..self.rows.len()).into_par_iter();
        let mut points: Vec<Point> = rows.map(|r| self.point(r, &self.x, &calibration)).collect();
        points.extend(self.left_out.iter().cloned());
        points
    }

    fn point(&self, index: usize, x: &[f64], calibration: &Calibration) -> Point<'a> {
        let fitted = &self.rows[index];
        let forecast = self.forecast(fitted, &self.logs(fitted, x), None).map(|forecast| forecast.metrics);
        let evidence = calibration.evidence(&Place::of(&fitted.deployment));
        Point {
            row: fitted.row,
            limit: fitted.limit,
            forecast: forecast.ok_or_else(|| "no forecast at these coefficients".to_owned()),
            parts: None,
            evidence,
            band: calibration.band(evidence).copied(),
        }
    }
}

/// Whether a deployment has products in 16 bits beside quantized ones: where a kernel may unpack its weights, or routed experts
/// alone are quantized. The output layer and routers, in 16 bits everywhere, are little and count to the rest.
fn has_two_sorts(deployment: &Deployment) -> bool {
    let place = Place::of(deployment);
    let in_16_bits = |o: &Operator| o.kind.is_product() && o.is_unquantized() && !o.kind.is_unquantized();
    let beside = || StepModel::compile(deployment).operators.iter().any(in_16_bits);
    !place.is_unquantized() && (place.regimes().needs_16_bits() || beside())
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
