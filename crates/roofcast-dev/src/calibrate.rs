//! Fit of engines' host, launch and small-kernel times to measured rows: at most forty numbers, each with a prior and
//! bounds.
//!
//! Knows: each number is fitted by its logarithm, between bounds; measured rows pull it from its prior, and the prior
//! pulls it back. The n rows of one deployment together weigh as much as √n rows; rows with large errors count less
//! (Cauchy's loss). Equally named numbers of different engines share one run of all rows for their slopes, because
//! each row depends on the number of only one engine. Knows nothing about kernel times, which are not fitted, nor
//! about files.

mod bands;
mod problem;

use problem::Problem;
use roofcast_cost::calibration::{Calibration, EngineNumbers};
use roofcast_cost::coefficients::{Constant, EngineTimes, Evidence, Load};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::version::precedes;
use roofcast_plan::measurement::Measurement;
use roofcast_plan::validate::points;
use std::collections::BTreeMap;

/// Rounds of linearization and solution; each round runs all rows once for every name of a number.
const ROUNDS: usize = 3;
/// Step in a number's logarithm for the finite-difference slopes of a forecast.
const NUDGE: f64 = 0.1;
/// Most rows of one source, deployment and kind that enter the fit, because further rows add little information.
const MOST_OF_A_GROUP: usize = 12;
/// Index of the time to first token in a row's metrics.
const TTFT: usize = 0;
/// Metrics of which residuals are computed, each as its index in a row and its weight in the fit. The throughput has
/// none, because it follows from the others; its residuals give intervals.
const METRICS: [(usize, f64); 4] = [(0, 0.5), (1, 1.0), (2, 0.7), (3, 0.0)];

/// Part of the data that cross-validation leaves out in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LeaveOut {
    /// All rows of one source.
    Source,
    /// All rows of one model.
    Model,
    /// All rows of one accelerator.
    Accelerator,
}

roofcast_facts::named! { LeaveOut {
    Source: "source",
    Model: "model",
    Accelerator: "accelerator",
} }

impl LeaveOut {
    fn part(self, row: &Measurement) -> &str {
        match self {
            LeaveOut::Source => &row.source,
            LeaveOut::Model => &row.model,
            LeaveOut::Accelerator => &row.hardware,
        }
    }
}

/// One fitted number of one engine.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Number {
    /// Name of the engine, as in `vllm`, with the versions if they are not the newest: `vllm before 0.14.0
    /// (2026-01)`.
    pub engine: String,
    /// Name of the number, as in `small_kernel`.
    pub name: String,
    /// Value, prior and bounds in microseconds.
    #[serde(flatten)]
    pub constant: Constant,
    /// Number of rows whose forecast depends on the number.
    pub rows: u64,
}

/// Measured row in the form that the fit needs.
struct FitRow {
    evidence: Evidence,
    /// For each of [`EngineTimes::NAMES`], the index of the number that the row's forecast uses.
    numbers: Vec<Option<usize>>,
    weight: f64,
    /// Logarithm of forecast over measured, for each metric of [`METRICS`].
    residuals: [Option<f64>; METRICS.len()],
}

/// Linearized problem at the fitted numbers, with the rows that it was built from.
pub struct Fit {
    /// Calibration with the fitted numbers.
    pub(crate) calibration: Calibration,
    measured: Vec<Measurement>,
    rows: Vec<FitRow>,
    problem: Problem,
}

/// Error of the forecast of a row that was left out of the fit, with the other rows of its part of the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Index of the row's metric, as in [`roofcast_plan::measurement::Metrics::NAMES`].
    pub metric: usize,
    /// Natural logarithm of forecast over measured.
    pub log: f64,
    /// Weight of the row in quantiles.
    pub(crate) weight: f64,
    /// Depth of evidence behind the forecast.
    pub(crate) evidence: Evidence,
    /// Class of load of the row: single step, closed loop or open loop.
    pub(crate) load: Load,
}

impl Fit {
    /// Fits the numbers of `prior` to `rows`. `goes_on` is called before every run of the rows; the fit stops if it
    /// returns false.
    ///
    /// # Errors
    /// Fails if no row can be forecast.
    pub fn new(
        rows: &[Measurement],
        catalog: &Catalog,
        prior: &Calibration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Fit>> {
        let measured = sampled(rows);
        let mut calibration = prior.clone();
        let mut fit = None;
        for _ in 0..ROUNDS {
            let Some(mut round) = Fit::round(&measured, catalog, &calibration, goes_on) else {
                return Ok(None);
            };
            round.calibration = round.solved(&|_| true);
            calibration = round.calibration.clone();
            fit = Some(round);
        }
        match fit {
            Some(fit) if !fit.rows.is_empty() => Ok(Some(Fit { measured, ..fit })),
            _ => {
                Err(Error::field("rows", "forecast", 0, "a file with at least one row that can be forecast"))
            }
        }
    }

    /// Residuals of the rows at the calibration `at`, and their slopes by each number; `None` if the fit was stopped.
    fn round(
        measured: &[Measurement],
        catalog: &Catalog,
        at: &Calibration,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<Fit> {
        let numbers = places(at);
        let mut groups: BTreeMap<String, f64> = BTreeMap::new();
        measured.iter().for_each(|row| *groups.entry(row.group()).or_default() += 1.0);
        let mut rows: Vec<FitRow> = points(measured, catalog, at)
            .iter()
            .map(|point| FitRow {
                evidence: point.evidence,
                numbers: EngineTimes::NAMES.iter().map(|name| held(at, &numbers, point.row, name)).collect(),
                weight: 1.0 / groups[&point.row.group()].sqrt(),
                // A mean TTFT that includes the start of a cold server carries no information about a warm server.
                residuals: METRICS.map(|(metric, _)| {
                    let cold = metric == TTFT && point.row.is_cold();
                    point.ratio(metric).filter(|_| !cold).map(f64::ln)
                }),
            })
            .collect();
        let mut problem = Problem::new(numbers.iter().map(|(e, name)| at.engines[*e].times[name]).collect());
        let mut slopes = vec![vec![[0.0; METRICS.len()]; EngineTimes::NAMES.len()]; rows.len()];
        for (index, name) in EngineTimes::NAMES.iter().enumerate() {
            if !goes_on() {
                return None;
            }
            let moved = nudged(at, name);
            for (row, point) in points(measured, catalog, &moved).iter().enumerate() {
                for (slot, (metric, _)) in METRICS.iter().enumerate() {
                    let nudged = point.ratio(*metric).map(f64::ln);
                    if let Some((after, before)) = nudged.zip(rows[row].residuals[slot]) {
                        slopes[row][index][slot] = (after - before) / NUDGE;
                    }
                }
            }
        }
        for (row, slopes) in rows.iter_mut().zip(slopes) {
            for (slot, (_, counts)) in METRICS.iter().enumerate() {
                let Some(value) = row.residuals[slot] else { continue };
                let terms = row.numbers.iter().zip(&slopes).filter_map(|(n, s)| Some(((*n)?, s[slot])));
                problem.add(value, row.weight * counts, terms.collect());
            }
        }
        Some(Fit { calibration: at.clone(), measured: Vec::new(), rows, problem })
    }

    /// Calibration at the minimum of the problem over the residuals for which `counts` is true.
    fn solved(&self, counts: &dyn Fn(usize) -> bool) -> Calibration {
        let mut calibration = self.calibration.clone();
        let values = self.problem.solve(counts);
        for ((engine, name), us) in places(&self.calibration).iter().zip(values) {
            if let Some(constant) = calibration.engines[*engine].times.get_mut(name) {
                constant.us = rounded(us).clamp(constant.least, constant.most);
            }
        }
        calibration
    }

    /// The fitted numbers, each with the count of rows that depend on it.
    pub fn numbers(&self) -> Vec<Number> {
        let places = places(&self.calibration);
        let number = |(index, (engine, name)): (usize, &(usize, String))| {
            let EngineNumbers { name: of, until, times, .. } = &self.calibration.engines[*engine];
            let engine = until.as_ref().map_or(of.clone(), |until| format!("{of} before {until}"));
            let rows = self.rows.iter().filter(|r| r.numbers.contains(&Some(index))).count() as u64;
            Number { engine, name: name.clone(), constant: times[name], rows }
        };
        places.iter().enumerate().map(number).collect()
    }

    /// Cross-validated errors of every row: for each part of the data the problem is solved again without the part,
    /// and the part's residuals are extrapolated along their slopes.
    pub fn left_out(&self, protocol: LeaveOut) -> Vec<Residual> {
        let mut parts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, row) in self.measured.iter().enumerate() {
            parts.entry(protocol.part(row)).or_default().push(index);
        }
        let owners = self.owners();
        let mut all = Vec::new();
        for rows in parts.values() {
            let without = self.problem.solve(&|residual| !rows.contains(&owners[residual].0));
            for (residual, (row, slot)) in owners.iter().enumerate().filter(|(_, (r, _))| rows.contains(r)) {
                all.push(Residual {
                    metric: METRICS[*slot].0,
                    log: self.problem.moved(residual, &without),
                    weight: self.rows[*row].weight,
                    evidence: self.rows[*row].evidence,
                    load: self.measured[*row].kind.load(),
                });
            }
        }
        all
    }

    /// For each residual of the problem, its row and its index into [`METRICS`].
    fn owners(&self) -> Vec<(usize, usize)> {
        let of_row = |(index, row): (usize, &FitRow)| {
            let slots = row.residuals.iter().enumerate().filter(|(_, r)| r.is_some());
            slots.map(|(slot, _)| (index, slot)).collect::<Vec<_>>()
        };
        self.rows.iter().enumerate().flat_map(of_row).collect()
    }

    /// Returns the fitted calibration with bands derived, by depth of evidence, from the residuals of left-out
    /// sources.
    pub fn with_bands(&self) -> Calibration {
        Calibration { bands: bands::of(&self.left_out(LeaveOut::Source)), ..self.calibration.clone() }
    }
}

/// Rounds to three significant digits, more than the data support.
fn rounded(value: f64) -> f64 {
    let unit = 10_f64.powi(value.abs().max(1e-9).log10().floor() as i32 - 2);
    // Dividing by 10 is exact, but multiplying by 0.1 is not, because 0.1 has no exact float.
    if unit < 1.0 { (value / unit).round() / (1.0 / unit).round() } else { (value / unit).round() * unit }
}

/// Takes evenly spaced rows from each source, deployment and kind.
fn sampled(rows: &[Measurement]) -> Vec<Measurement> {
    let mut groups: BTreeMap<String, Vec<&Measurement>> = BTreeMap::new();
    for row in rows {
        let name = format!("{} | {} | {}", row.source, row.group(), row.kind.name());
        groups.entry(name).or_default().push(row);
    }
    let sample = |rows: Vec<&Measurement>| -> Vec<Measurement> {
        let step = rows.len().div_ceil(MOST_OF_A_GROUP).max(1);
        rows.into_iter().step_by(step).cloned().collect()
    };
    groups.into_values().flat_map(sample).collect()
}

/// Every number of a calibration that the fit may change, as the index of its engine entry and its name.
fn places(calibration: &Calibration) -> Vec<(usize, String)> {
    let engines = calibration.engines.iter().enumerate();
    let movable = |(index, engine): (usize, &EngineNumbers)| {
        let may_move = engine.times.iter().filter(|(_, c)| c.least < c.most);
        may_move.map(|(name, _)| (index, name.clone())).collect::<Vec<_>>()
    };
    engines.flat_map(movable).collect()
}

/// Index in `numbers` of the number called `name` that a forecast of `row` uses: from the last engine entry that
/// applies to the row and lists it.
fn held(at: &Calibration, numbers: &[(usize, String)], row: &Measurement, name: &str) -> Option<usize> {
    let before = |release: &String| precedes(&row.version, release);
    let holds = |e: &EngineNumbers| {
        e.name == row.engine && e.until.as_ref().is_none_or(before) && e.times.contains_key(name)
    };
    let engine = at.engines.iter().rposition(holds)?;
    numbers.iter().position(|(index, own)| *index == engine && own == name)
}

/// Returns the calibration with the number called `name` raised by one step in every engine.
fn nudged(at: &Calibration, name: &str) -> Calibration {
    let mut moved = at.clone();
    for constant in moved.engines.iter_mut().filter_map(|engine| engine.times.get_mut(name)) {
        constant.us *= NUDGE.exp();
    }
    moved
}

#[cfg(test)]
mod tests;
