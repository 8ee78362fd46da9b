//! The runs from which the probability of one deployment follows.
//!
//! Knows: the quantiles of step times to simulate next, of which those of known runs are left out. Knows nothing about what the
//! runs say.

use super::{ChanceRun, Doubt, Outlook, QUANTILES, STEP, excess};
use crate::plan::demand::TrafficDemand;
use crate::plan::proof::{Trial, shortened};
use roofcast_ask::spec::Slo;
use roofcast_facts::error::Result;
use roofcast_sim::simulate::Simulation;

/// Smallest distance of the required quantile from the forecast, in normal deviates, at which these two runs suffice
/// for a probability.
const APART: f64 = 0.5;
/// A deployment whose probability is being computed.
pub(in crate::plan) struct Case<'a> {
    pub(in crate::plan) trial: Trial,
    pub(in crate::plan) doubt: Doubt,
    /// The run of the forecast, without a factor on step times.
    pub(in crate::plan) run: &'a Simulation,
    /// Results of the runs so far.
    points: Vec<ChanceRun>,
    /// Normal deviates of the quantiles to simulate next.
    pub(in crate::plan) open: Vec<f64>,
}

impl<'a> Case<'a> {
    /// A case that is first simulated at the quantile of the required probability `asked`: if it misses the SLO there,
    /// a bound is crossed between the forecast and that quantile.
    pub(in crate::plan) fn new(trial: Trial, doubt: Doubt, run: &'a Simulation, asked: f64) -> Case<'a> {
        let alone = doubt.step.own().is_some_and(|own| asked - own >= APART);
        let case = Case { trial, doubt, run, points: Vec::new(), open: vec![asked] };
        Case { open: if alone { vec![asked] } else { case.quantiles() }, ..case }
    }

    /// The [`QUANTILES`] without the ones of known runs, of which the forecast's has all requests.
    fn quantiles(&self) -> Vec<f64> {
        let known = || self.points.iter().map(|point| point.z).chain(self.doubt.step.own());
        QUANTILES.into_iter().filter(|z| !known().any(|other| (z - other).abs() < STEP)).collect()
    }

    /// Adds the runs at the open quantiles. After the first run, opens [`QUANTILES`] if that run meets the SLO, and
    /// otherwise the middle between the forecast and that run.
    pub(in crate::plan) fn add<'r>(&mut self, runs: impl Iterator<Item = &'r Result<Simulation>>, slo: &Slo) {
        let simulated = std::mem::take(&mut self.open);
        self.points.extend(simulated.iter().zip(runs).map(|(z, run)| ChanceRun::of(*z, run, slo)));
        if let ([only], Some(own)) = (self.points.as_slice(), self.doubt.step.own()) {
            self.open = if only.meets() { self.quantiles() } else { vec![own.midpoint(only.z)] };
        }
    }

    /// The simulation at a quantile of the step times, with half of the requests if these suffice.
    pub(in crate::plan) fn slowed(&self, z: f64, demand: &TrafficDemand) -> Trial {
        let mut trial = self.trial.clone();
        trial.forecaster = trial.forecaster.slowed(self.doubt.step.at(z));
        let short = trial.spec.workload.as_ref().map(|workload| shortened(workload, demand, &trial.spec.slo));
        trial.spec.workload = short;
        trial
    }

    pub(in crate::plan) fn outlook(&self) -> Outlook {
        let step = self.doubt.step;
        // The forecast's own run is one further point.
        let own_run = step.own().map(|z| ChanceRun {
            z,
            excess: excess(self.run, &self.trial.spec.slo),
            carried: true,
        });
        Outlook::new(self.points.iter().cloned().chain(own_run).collect(), self.doubt.beyond.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_ask::spec::Spec;
    use roofcast_cost::coefficients::{Load, Z90};
    use roofcast_cost::forecaster::Forecaster;
    use roofcast_facts::catalog::Catalog;
    use std::sync::Arc;

    const CHAT: &str = "[workload]\nrequests = 100\ninput_len = 100\noutput_len = 20\narrivals = { kind = \"poisson\", \
                        rate = 1.0 }\n[slo]\nttft_p99_ms = 60000\n";

    fn chat() -> Trial {
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = roofcast_facts::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
        let chip = catalog.accelerator("h100-sxm").unwrap().clone();
        let deployment =
            Deployment::resolve(Arc::new(model), Arc::new(chip), &DeploymentOptions::default()).unwrap();
        let forecaster = Forecaster::embedded(deployment).unwrap();
        let spec = Spec::parse("plan.toml", CHAT).unwrap();
        Trial { spec, forecaster, end_when_missed: true, prices: Arc::default() }
    }

    /// The forecast is the 50th percentile of its band, whose run the proof was; a confidence of 0.9 asks for the 90th.
    #[test]
    fn no_quantile_is_simulated_twice() {
        let trial = chat();
        let slo = trial.spec.slo;
        let met = trial.run();
        let run = met.as_ref().unwrap();
        let case = |asked: f64| {
            let doubt = Doubt::of(&trial.forecaster, &slo, Load::ClosedLoop).unwrap();
            Case::new(trial.clone(), doubt, run, asked)
        };
        assert_eq!(case(0.1).open, [-Z90, Z90]);
        let mut confident = case(Z90);
        assert_eq!(confident.open, [Z90]);
        confident.add([&met].into_iter(), &slo);
        assert_eq!(confident.open, [-Z90]);
        let mut usual = case(0.84);
        usual.add([&met].into_iter(), &slo);
        assert_eq!(usual.open, [-Z90, Z90]);
    }
}
