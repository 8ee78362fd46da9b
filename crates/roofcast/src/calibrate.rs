//! Fits a calibration to measured points, and judges it on groups left out.
//!
//! Knows: how levels are fitted to all rows at once, and how a group's rows are forecast without it. A parameter is shrunk
//! towards the level above it, so that a level of few rows moves little.

mod bands;
pub mod fit;
pub mod kernels;
mod levels;

use crate::calibration::{Calibration, Level, Place, Selector};
use crate::catalog::Catalog;
use crate::coefficients::{Coefficient, Coefficients, ServerLoop, Values};
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::forecaster::Forecaster;
use crate::measurement::{Measurement, Metrics};
use crate::spec::CostKind;
use crate::summary::Statistics;
use crate::validate::{Point, Resolver, point};
use fit::{BOTH, COEFFICIENTS, Problem, Residual};
use levels::{is_widest, matters, scale, selectors, targets};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rounds of Gauss–Newton at most.
const ROUNDS: usize = 12;
/// A round that lowers the cost by a smaller share is the last.
const SETTLED: f64 = 0.001;
/// By how much a coefficient's logarithm is moved for its derivative: more than the grain of whole steps.
const NUDGE: f64 = 0.04;
/// The furthest that one round moves a parameter.
const FURTHEST: f64 = 0.7;
/// What an error counts beside the noise of its metric alone: the errors of a group's rows are mostly the model's own and
/// much alike. Chosen, as the scales below, by the errors of groups left out.
const TRUST: f64 = 0.07;
/// What it costs to move the first level: it stands for what nobody measured.
const FIXED: f64 = 1e12;
/// Share of the prior's variance above which a coefficient counts as undetermined by the data.
const UNDETERMINED: f64 = 0.9;

/// A row that can be fitted.
struct Fitted<'a> {
    row: &'a Measurement,
    deployment: Deployment,
    limit: Metrics,
    weight: f64,
    group: usize,
    set: usize,
    /// Logarithms of the coefficients that levels are factors of, then of the plain ones.
    base: [f64; BOTH],
}

/// A fit of one file.
pub struct Fit<'a> {
    rows: Vec<Fitted<'a>>,
    /// Sets of levels that rows have.
    sets: Vec<Vec<usize>>,
    groups: Vec<String>,
    selectors: Vec<Selector>,
    /// Which levels hold for what is not quantized, too.
    unquantized: Vec<bool>,
    prior: Calibration,
    ridge: Vec<f64>,
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
    /// are left out.
    pub fn new(rows: &'a [Measurement], catalog: &Catalog, prior: &Calibration) -> Result<Fit<'a>> {
        let mut fit = Fit {
            rows: Vec::new(),
            sets: Vec::new(),
            groups: Vec::new(),
            selectors: Vec::new(),
            unquantized: Vec::new(),
            prior: prior.clone(),
            ridge: Vec::new(),
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
        let mut levels: BTreeMap<Selector, usize> = BTreeMap::from([(Selector::default(), 0)]);
        let mut sets: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        self.selectors.push(Selector::default());
        for point in crate::validate::points(rows, catalog, &self.prior) {
            let (Ok(_), Ok(deployment)) = (&point.forecast, resolver.deployment(point.row)) else {
                self.left_out.push(point);
                continue;
            };
            let next = groups.len();
            let group = *groups.entry(point.row.group()).or_insert(next);
            let selectors =
                selectors(&deployment.accelerator, &deployment.options.engine, &deployment.weights);
            let mut own = vec![0];
            for selector in selectors {
                let next = self.selectors.len();
                let index = *levels.entry(selector.clone()).or_insert_with(|| {
                    self.selectors.push(selector);
                    next
                });
                own.push(index);
            }
            let next = self.sets.len();
            let set = *sets.entry(own.clone()).or_insert_with(|| {
                self.sets.push(own);
                next
            });
            let base = self.base(&deployment);
            self.rows.push(Fitted {
                row: point.row,
                base,
                deployment,
                limit: point.limit,
                weight: 1.0,
                group,
                set,
            });
        }
        self.groups = vec![String::new(); groups.len()];
        for (name, index) in groups {
            self.groups[index] = name;
        }
        self.unquantized = self.selectors.iter().map(|s| s.weights.is_none()).collect();
        self.weigh();
        self.x = self.start();
        self.ridge =
            self.selectors.iter().flat_map(|s| Coefficient::ALL.map(|f| scale(s, f).powi(-2))).collect();
        self.ridge[..COEFFICIENTS].fill(FIXED);
    }

    /// Logarithms of the coefficients of a deployment's kernels, and of those of its plain ones.
    fn base(&self, deployment: &Deployment) -> [f64; BOTH] {
        let place = Place::of(deployment);
        let own = self.prior.base(&place);
        let plain = self.prior.base(&Place { weights: "bf16", ..place });
        let mut logs = [0.0; BOTH];
        let values = own.0.iter().chain(&plain.0);
        logs.iter_mut().zip(values).for_each(|(log, value)| *log = value.ln());
        logs
    }

    /// The parameters at which the prior has levels of the same places; the first level counts from its own coefficients.
    fn start(&self) -> Vec<f64> {
        let factor = |selector: &Selector, coefficient: Coefficient| {
            let fitted = self.prior.levels.iter().skip(1).filter(|l| l.kernels.is_none());
            let level = fitted.into_iter().find(|l| l.at == *selector)?;
            level.coefficients.get(&coefficient).map(|f| f.ln())
        };
        let selectors = self.selectors.iter();
        selectors.flat_map(|s| Coefficient::ALL.map(|f| factor(s, f).unwrap_or(0.0))).collect()
    }

    /// Rows of a group say much the same: a group of n counts as √n rows.
    fn weigh(&mut self) {
        let mut sizes = vec![0.0_f64; self.groups.len()];
        self.rows.iter().for_each(|r| sizes[r.group] += 1.0);
        self.rows.iter_mut().for_each(|r| r.weight = TRUST / sizes[r.group].sqrt());
    }

    /// Gauss–Newton with halved steps.
    fn descend(&mut self) {
        self.residuals = self.evaluate(&self.x, true);
        for _ in 0..ROUNDS {
            let target = self.problem(&self.residuals, None).solve(&self.x);
            let before = self.problem(&self.residuals, None).cost(&self.x);
            let mut step = 1.0;
            let mut found = None;
            let mut after = before;
            for _ in 0..4 {
                let next: Vec<f64> = self
                    .x
                    .iter()
                    .zip(&target)
                    .map(|(x, t)| x + (step * (t - x)).clamp(-FURTHEST, FURTHEST))
                    .collect();
                let residuals = self.evaluate(&next, false);
                after = self.problem(&residuals, None).cost(&next);
                if after < before {
                    found = Some(next);
                    break;
                }
                step /= 2.0;
            }
            let Some(next) = found else { break };
            self.x = next;
            self.residuals = self.evaluate(&self.x, true);
            if after > before * (1.0 - SETTLED) {
                break;
            }
        }
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

    fn problem<'b>(&'b self, residuals: &'b [Residual], without: Option<usize>) -> Problem<'b> {
        Problem {
            residuals,
            sets: &self.sets,
            unquantized: &self.unquantized,
            ridge: &self.ridge,
            at: &self.x,
            without,
        }
    }

    /// The residuals at `x`, with slopes where they are wanted.
    fn evaluate(&self, x: &[f64], slopes: bool) -> Vec<Residual> {
        let indices: Vec<usize> = (0..self.rows.len()).collect();
        in_parallel(&indices, |index| self.residuals_of(*index, x, slopes)).into_iter().flatten().collect()
    }

    fn residuals_of(&self, index: usize, x: &[f64], slopes: bool) -> Vec<Residual> {
        let fitted = &self.rows[index];
        let logs = self.logs(fitted, x);
        let Some(now) = self.forecast(fitted, &logs) else { return Vec::new() };
        let wanted = targets(fitted.row);
        let mut residuals: Vec<(usize, Residual)> = Vec::new();
        for (metric, sigma) in wanted {
            let pair = fitted.row.measured.all()[metric].filter(|m| *m > 0.0).zip(now.all()[metric]);
            let Some((measured, forecast)) = pair else { continue };
            let weight = fitted.weight / (sigma * sigma);
            let value = (forecast / measured).ln();
            residuals.push((
                metric,
                Residual { group: fitted.group, set: fitted.set, value, slope: [0.0; BOTH], weight, sigma },
            ));
        }
        if slopes {
            // The few plain operators count to the quantized ones, but where those may be computed as plain.
            let apart = Place::of(&fitted.deployment).unpacks().is_some();
            for coefficient in
                Coefficient::ALL.into_iter().filter(|f| matters(&fitted.deployment, fitted.row, *f))
            {
                let share = coefficient.is_share();
                let coefficient = coefficient as usize;
                let mut nudge = |coefficients: &[usize], into: usize| {
                    // Shares beyond 1 count as 1, where only the way down tells.
                    let down = share && logs[coefficients[0]] + NUDGE > 0.0;
                    let by = if down { -NUDGE } else { NUDGE };
                    let mut nudged = logs;
                    coefficients.iter().for_each(|coefficient| nudged[*coefficient] += by);
                    let Some(then) = self.forecast(fitted, &nudged) else { return };
                    for (metric, residual) in &mut residuals {
                        if let Some((a, b)) = then.all()[*metric].zip(now.all()[*metric]) {
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

    /// Logarithms of the row's coefficients, then of its plain ones.
    fn logs(&self, fitted: &Fitted, x: &[f64]) -> [f64; BOTH] {
        let mut logs = fitted.base;
        for level in &self.sets[fitted.set] {
            let factors = &x[level * COEFFICIENTS..][..COEFFICIENTS];
            let plain = self.unquantized[*level];
            logs[..COEFFICIENTS].iter_mut().zip(factors).for_each(|(log, f)| *log += f);
            logs[COEFFICIENTS..].iter_mut().zip(factors).filter(|_| plain).for_each(|(log, f)| *log += f);
        }
        logs
    }

    fn forecast(&self, fitted: &Fitted, logs: &[f64; BOTH]) -> Option<Metrics> {
        let values = |from: usize| {
            let mut values = [0.0; COEFFICIENTS];
            values.iter_mut().zip(&logs[from..]).for_each(|(v, log)| *v = log.exp());
            Values(values)
        };
        let deployment = fitted.deployment.clone();
        let coefficients = Coefficients {
            name: String::new(),
            values: values(0),
            unquantized: values(COEFFICIENTS),
            unpacks: Place::of(&deployment).unpacks(),
            attention: None,
            launches: None,
            server: ServerLoop::default(),
            band: None,
            ideal: false,
        };
        let forecaster = Forecaster { deployment, coefficients: Arc::new(coefficients), draft: None };
        point::forecast(fitted.row, &forecaster, CostKind::Forecast).ok()
    }

    /// Every row forecast by a calibration that has not seen its group. The parameters of each are the least of the
    /// problem linearised at the fit of all groups.
    pub fn left_out(&self) -> Vec<Point<'a>> {
        let groups: Vec<usize> = (0..self.groups.len()).collect();
        let mut residuals = self.residuals.clone();
        residuals.extend(self.held());
        let mut points: Vec<Point> = in_parallel(&groups, |group| {
            let x = self.problem(&residuals, Some(*group)).solve(&self.x);
            let calibration = self.calibration(&x, Some(*group));
            let rows = (0..self.rows.len()).filter(|r| self.rows[*r].group == *group);
            rows.map(|r| self.point(r, &x, &calibration)).collect::<Vec<_>>()
        })
        .into_iter()
        .flatten()
        .collect();
        points.extend(self.left_out.iter().cloned());
        points
    }

    /// Every row forecast by the calibration that was fitted to it.
    pub fn in_sample(&self) -> Vec<Point<'a>> {
        let calibration = self.calibration(&self.x, None);
        let indices: Vec<usize> = (0..self.rows.len()).collect();
        let mut points = in_parallel(&indices, |r| self.point(*r, &self.x, &calibration));
        points.extend(self.left_out.iter().cloned());
        points
    }

    fn point(&self, index: usize, x: &[f64], calibration: &Calibration) -> Point<'a> {
        let fitted = &self.rows[index];
        let forecast = self.forecast(fitted, &self.logs(fitted, x));
        let evidence = calibration.evidence(&Place::of(&fitted.deployment));
        Point {
            row: fitted.row,
            limit: fitted.limit,
            forecast: forecast.ok_or_else(|| "no forecast at these coefficients".to_owned()),
            evidence,
            band: calibration.band(evidence).copied(),
        }
    }

    /// The calibration of parameters `x`; levels without a row that counts are left out, but for the first.
    fn calibration(&self, x: &[f64], without: Option<usize>) -> Calibration {
        let mut errors: Vec<Vec<f64>> = vec![Vec::new(); self.selectors.len()];
        for residual in self.residuals.iter().filter(|r| without != Some(r.group)) {
            for level in &self.sets[residual.set] {
                errors[*level].push((residual.value.exp() - 1.0).abs());
            }
        }
        let mut calibration = self.prior.clone();
        calibration.levels = Vec::new();
        for (index, selector) in self.selectors.iter().enumerate() {
            if index > 0 && errors[index].is_empty() {
                continue;
            }
            let statistics = Statistics::of(&mut errors[index]);
            let values = Coefficient::ALL.into_iter().filter_map(|coefficient| {
                let log = x[index * COEFFICIENTS + coefficient as usize];
                if index > 0 && log.abs() < 0.003 {
                    return None;
                }
                let start =
                    if index == 0 { self.prior.levels[0].coefficients.get(&coefficient)? } else { &1.0 };
                Some((coefficient, rounded(start * log.exp())))
            });
            calibration.levels.push(Level {
                at: selector.clone(),
                kernels: None,
                rows: errors[index].len() as u64,
                median_error: rounded(statistics.median),
                p90_error: rounded(statistics.p90),
                coefficients: values.collect(),
            });
        }
        let kernels = self.prior.levels.iter().filter(|l| l.kernels.is_some()).cloned();
        calibration.levels.splice(1..1, kernels);
        calibration
    }

    /// The calibration with its bands, which are those of `left_out`.
    pub fn finish(&self, left_out: &[Point], source: &str) -> Fitting {
        let mut calibration = self.calibration(&self.x, None);
        calibration.source = source.to_owned();
        calibration.bands = bands::bands(left_out);
        let widest: Vec<usize> =
            (0..self.selectors.len()).filter(|level| is_widest(&self.selectors[*level])).collect();
        let problem = self.problem(&self.residuals, None);
        let told = |coefficient: Coefficient| {
            let left =
                |level: &usize| problem.uncertainty(&self.x, level * COEFFICIENTS + coefficient as usize);
            widest.iter().any(|level| left(level) <= UNDETERMINED)
        };
        let undetermined =
            Coefficient::ALL.into_iter().filter(|f| !told(*f)).map(Coefficient::name).collect();
        Fitting { calibration, undetermined }
    }
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// `f` of every item in order, on all cores.
fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((index, item)) = Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            .and_then(|index| Some((index, items.get(index)?)))
        {
            done.push((index, f(item)));
        }
        done
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}
