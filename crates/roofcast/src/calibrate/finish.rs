//! The levels of a calibration from the parameters of a fit.
//!
//! Knows: what each level rests on, and which coefficients the data do not tell apart. Knows nothing about how the least
//! was found.

use super::fit::COEFFICIENTS;
use super::levels::{Versions, is_widest};
use super::{Fit, Fitted, Fitting, LeaveOut, bands, rounded};
use crate::calibration::{Calibration, Level};
use crate::coefficients::Coefficient;
use crate::summary::Statistics;
use crate::validate::Point;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the prior's variance above which a coefficient counts as undetermined by the data.
const UNDETERMINED: f64 = 0.9;
/// Factors nearer to 1 are not written, as a logarithm.
const NOTHING: f64 = 0.003;

impl Fit<'_> {
    /// The calibration of parameters `x`; levels without a row that counts are left out, but for the first.
    pub(super) fn calibration(&self, x: &[f64], without: &BTreeSet<usize>) -> Calibration {
        let mut errors: Vec<Vec<f64>> = vec![Vec::new(); self.selectors.len()];
        for residual in self.residuals.iter().filter(|r| r.weight > 0.0 && !without.contains(&r.group)) {
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
                if index > 0 && log.abs() < NOTHING {
                    return None;
                }
                let start =
                    if index == 0 { self.prior.levels[0].coefficients.get(&coefficient)? } else { &1.0 };
                Some((coefficient, rounded(start * log.exp())))
            });
            calibration.levels.push(Level {
                at: selector.clone(),
                kernels: None,
                source: None,
                versions: Vec::new(),
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

    /// The calibration with its bands, which are those of the tables of what was left out.
    pub fn finish(&self, tables: &BTreeMap<LeaveOut, Vec<Point>>, source: &str) -> Fitting {
        let none = BTreeSet::new();
        let mut calibration = self.calibration(&self.x, &none);
        calibration.source = source.to_owned();
        calibration.bands = bands::bands(tables);
        self.say_sources(&mut calibration);
        let widest: Vec<usize> =
            (0..self.selectors.len()).filter(|level| is_widest(&self.selectors[*level])).collect();
        let asked: Vec<usize> = Coefficient::ALL
            .iter()
            .flat_map(|c| widest.iter().map(|l| l * COEFFICIENTS + *c as usize))
            .collect();
        let left = self.problem(&self.residuals).normal(&self.x).uncertainties(&asked);
        let told = |coefficient: Coefficient| {
            let of_widest = left.chunks(widest.len()).nth(coefficient as usize).unwrap_or_default();
            of_widest.iter().any(|left| *left <= UNDETERMINED)
        };
        let undetermined =
            Coefficient::ALL.into_iter().filter(|f| !told(*f)).map(Coefficient::name).collect();
        Fitting { calibration, undetermined }
    }

    /// Gives each level of whole steps and runs the files and sources of its rows, and those of an engine on a chip its
    /// versions.
    fn say_sources(&self, calibration: &mut Calibration) {
        for (index, selector) in self.selectors.iter().enumerate() {
            let rows: Vec<&Fitted> = self.rows.iter().filter(|r| self.sets[r.set].contains(&index)).collect();
            let levels = calibration.levels.iter_mut().enumerate();
            let own = |(at, l): &(usize, &mut Level)| {
                l.at == *selector && l.kernels.is_none() && (*at == 0) == (index == 0)
            };
            let Some((_, level)) = levels.into_iter().find(own) else { continue };
            level.source = Some(self.sources(&rows));
            let on_chip = selector.accelerator.is_some() && selector.engine.is_some();
            if on_chip && selector.weights.is_none() {
                let all = rows.iter().filter_map(|r| r.deployment.options.engine.version.as_ref());
                level.versions = Versions::ordered(all);
            }
        }
    }

    /// As in `measurements.csv: argonne_bench, nvidia_lab`.
    fn sources(&self, rows: &[&Fitted]) -> String {
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for fitted in rows {
            let source = fitted.row.source.as_str();
            let file = self.files.get(source).map_or("measured rows", String::as_str);
            files.entry(file).or_default().insert(if source.is_empty() { "no source named" } else { source });
        }
        let of = |(file, sources): (&str, BTreeSet<&str>)| {
            format!("{file}: {}", sources.into_iter().collect::<Vec<_>>().join(", "))
        };
        files.into_iter().map(of).collect::<Vec<_>>().join("; ")
    }
}
