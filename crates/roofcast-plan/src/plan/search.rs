//! The order in which deployments are proven.
//!
//! Knows: deployments are simulated in order of the objective, in groups of equal objective, until one meets the SLO
//! with the required probability; no deployment with a lower objective does, and the best of the group is the answer.
//! Within a group, probabilities are computed in order of rank, until one is high enough. A few more expensive
//! deployments are also proven, for the table. A search that is stopped keeps its results. Waves of simulations have a
//! fixed size, so that the simulated deployments do not depend on the number of cores. Knows nothing about how a
//! deployment is judged.

use super::chance::{Case, ChanceRun, Doubt, Met, Outlook, SEEDS, deviate, excess, load};
use super::feasibility::{Judge, Miss, SearchStage, deployment};
use super::proof::{Runner, Trial, is_certain, missed};
use super::space::{Candidate, Cut};
use super::told::ReplicaSettings;
use roofcast_ask::spec::{Objective, Spec};
use roofcast_ask::workload::Arrivals;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::Result;
use roofcast_sim::fleet::results::Sample;
use roofcast_sim::simulate::{PriceBook, Simulation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of simulations that are requested at one time.
const WAVE: usize = 8;
/// Most simulations after the best deployment is found, for the table.
const BEYOND: usize = 32;
/// Most attempts per kind of deployment, for the table.
const TRIES: usize = 3;

/// Judgement of one deployment.
#[derive(Debug, Clone)]
pub(super) enum Judged {
    /// The deployment misses the SLO.
    Missed(Miss),
    /// The deployment meets the SLO.
    Meets(Box<Proven>),
    /// The deployment was not judged, because its objective is worse than the best one's.
    MoreExpensive,
}

/// A deployment whose simulation met the SLO.
#[derive(Debug, Clone)]
pub(super) struct Proven {
    pub(super) run: Simulation,
    /// Simulations for the probability of meeting the SLO; `None` without bands, and if a better deployment with equal
    /// objective has the required probability.
    pub(super) outlook: Option<Outlook>,
}

impl Proven {
    /// Probability of meeting the SLO; `None` if it was not computed.
    pub(super) fn chance(&self) -> Option<f64> {
        self.outlook.as_ref().map(Outlook::chance)
    }
}

/// Kind of a deployment: chip, formats, chip of another pool, parallelism, and settings of engine and router.
pub(super) type Kind = (String, [Option<String>; 2], Option<String>, Cut, ReplicaSettings);

/// A search in progress.
pub(super) struct Search<'a> {
    pub(super) judge: &'a Judge<'a>,
    pub(super) candidates: &'a [Candidate],
    /// The spec, with the workload that a proof simulates.
    pub(super) base: &'a Spec,
    pub(super) objective: Objective,
    /// Probability of meeting the SLO that the best deployment must have.
    pub(super) confidence: f64,
    pub(super) runner: Runner<'a>,
    /// Function that is called with the number of simulations and the number of judged candidates.
    pub(super) progress: &'a dyn Fn(u64, u64),
    /// Function that returns false to stop the search.
    pub(super) goes_on: &'a dyn Fn() -> bool,
    pub(super) judged: Vec<Judged>,
    pub(super) simulated: u64,
    /// Prices of steps, which runs on one shape share.
    pub(super) prices: Arc<PriceBook>,
}

impl Search<'_> {
    /// The objective of `candidate`, as far as it is known before a simulation: exactly for an open load, but for
    /// energy, which is at most the one at the highest power. If arrivals depend on answers, dollars per token and
    /// energy depend on the rate, so that candidates are ordered by the cost or power of the accelerators.
    pub(super) fn value(&self, candidate: &Candidate) -> Option<f64> {
        let count = candidate.accelerators as f64;
        let per_hour = self.per_hour(candidate);
        let tokens = self.judge.demand.output_per_s();
        match self.objective {
            Objective::CostPerHour => per_hour,
            Objective::CostPerMillionTokens => per_hour.map(|usd| usd / 3600.0 / tokens.unwrap_or(1.0) * 1e6),
            Objective::Accelerators => Some(count),
            Objective::Energy => self.watts(candidate).map(|watts| watts / tokens.unwrap_or(1.0)),
        }
    }

    /// The accelerators whose price or power, which the objective needs, is unknown. If no other candidate is left,
    /// candidates are ranked by their number of accelerators.
    pub(super) fn fall_back(&mut self) -> Vec<String> {
        let unknown = |chip: &&Arc<Accelerator>| match self.objective {
            Objective::CostPerHour | Objective::CostPerMillionTokens => chip.price.is_none(),
            Objective::Energy => chip.most_watts().is_none(),
            Objective::Accelerators => false,
        };
        let unpriced: Vec<String> =
            self.judge.space.chips.iter().filter(unknown).map(|chip| chip.id.clone()).collect();
        if !unpriced.is_empty() && self.candidates.iter().all(|c| self.value(c).is_none()) {
            self.objective = Objective::Accelerators;
        }
        unpriced
    }

    /// Dollars per hour of all accelerators and host tiers; `None` if an accelerator has no price.
    pub(super) fn per_hour(&self, candidate: &Candidate) -> Option<f64> {
        let accelerators =
            self.judge.space.total(candidate, |chip| Some(chip.price.as_ref()?.usd_per_hour))?;
        Some(accelerators + self.judge.space.host_dollars(candidate))
    }

    /// The most watts of all accelerators; `None` if the power of an accelerator is unknown.
    pub(super) fn watts(&self, candidate: &Candidate) -> Option<f64> {
        self.judge.space.total(candidate, Accelerator::most_watts)
    }

    /// Proves deployments in order of the objective; all of them if `exhaustive`.
    pub(super) fn run(&mut self, exhaustive: bool) -> Result<()> {
        let mut open: Vec<(f64, usize)> = Vec::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            match (self.judge.miss(candidate, exhaustive), self.value(candidate)) {
                (Some(miss), _) => self.judged[index] = Judged::Missed(miss),
                (None, Some(value)) => open.push((value, index)),
                (None, None) => {}
            }
        }
        open.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let paced = self.judge.demand.rate.is_some()
            || matches!(self.objective, Objective::CostPerHour | Objective::Accelerators);
        let mut from = 0;
        while from < open.len() {
            let level = open[from..].iter().take_while(|(value, _)| *value == open[from].0).count();
            let level = if paced { level } else { open.len() - from };
            let some = &open[from..from + level];
            self.prove(some)?;
            let likely = self.weigh(some, true)?;
            from += level;
            if likely && !exhaustive || !(self.goes_on)() {
                break;
            }
        }
        self.beyond(&open[from..])
    }

    /// Simulates the deployments of `some`, given by objective and index.
    fn prove(&mut self, some: &[(f64, usize)]) -> Result<()> {
        for wave in some.chunks(WAVE) {
            if !(self.goes_on)() {
                break;
            }
            let trials = wave.iter().map(|(_, index)| self.trial(&self.candidates[*index], self.base));
            let trials = trials.collect::<Result<Vec<Trial>>>()?;
            let runs = (self.runner)(&trials);
            let stopped = !(self.goes_on)();
            for ((_, index), run) in wave.iter().zip(runs) {
                // An interrupted run does not judge its deployment.
                if stopped && run.as_ref().map_or(true, |run| run.interrupted) {
                    continue;
                }
                self.simulated += 1;
                self.judged[*index] = self.outcome(run);
            }
            let judged = self.judged.iter().filter(|j| !matches!(j, Judged::MoreExpensive)).count();
            (self.progress)(self.simulated, judged as u64);
        }
        Ok(())
    }

    /// Computes the probabilities of the deployments of `some` that met the SLO, in order of rank, until one reaches
    /// the required probability; with other seeds as well if `seeds` is set. Returns true if one reaches it.
    fn weigh(&mut self, some: &[(f64, usize)], seeds: bool) -> Result<bool> {
        let met: Vec<usize> = self.ranked().into_iter().map(|(index, _)| index).collect();
        let met: Vec<usize> =
            met.into_iter().filter(|met| some.iter().any(|(_, index)| index == met)).collect();
        for wave in met.chunks(WAVE) {
            if self.weigh_all(wave, seeds)? || !(self.goes_on)() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Computes the probabilities of the deployments `some`, which met the SLO; returns true if any reaches the
    /// required probability.
    fn weigh_all(&mut self, some: &[usize], seeds: bool) -> Result<bool> {
        let met = |index: &usize| match &self.judged[*index] {
            Judged::Meets(proven) => Some((*index, proven.run.clone())),
            _ => None,
        };
        let met: Vec<(usize, Simulation)> = some.iter().filter_map(met).collect();
        let base = self.base;
        let runs: Vec<_> = met.iter().map(|(index, run)| (self.candidates[*index], base, run)).collect();
        let outlooks = outlooks(self, &runs, seeds)?;
        let mut likely = false;
        for ((index, _), outlook) in met.iter().zip(outlooks) {
            if let Judged::Meets(proven) = &mut self.judged[*index] {
                proven.outlook = outlook;
                likely |= proven.chance().is_none_or(|chance| chance >= self.confidence);
            }
        }
        Ok(likely)
    }

    /// Computes the probability of the deployment `index`, which met the SLO, unless it is known.
    pub(super) fn weigh_one(&mut self, index: usize) -> Result<()> {
        match &self.judged[index] {
            Judged::Meets(proven) if proven.outlook.is_none() => self.weigh_all(&[index], true).map(drop),
            _ => Ok(()),
        }
    }

    /// The runs of `trials`; `None` if the search was stopped.
    pub(super) fn runs(&mut self, trials: &[Trial]) -> Option<Vec<Result<Simulation>>> {
        self.simulated += trials.len() as u64;
        let runs = (self.runner)(trials);
        (self.goes_on)().then_some(runs)
    }

    /// Judges a deployment by its run.
    pub(super) fn outcome(&self, run: Result<Simulation>) -> Judged {
        match (missed(&run, &self.base.slo), run) {
            (None, Ok(mut run)) => {
                run.latencies.iter_mut().for_each(|(_, sample)| *sample = Sample::default());
                Judged::Meets(Box::new(Proven { run, outlook: None }))
            }
            (Some(miss), _) => Judged::Missed(miss),
            (None, Err(error)) => {
                let stage = SearchStage::Simulation;
                let factor = f64::INFINITY;
                Judged::Missed(Miss { stage, reason: error.to_string(), factor })
            }
        }
    }

    /// The simulation of a candidate under the workload of `base`.
    pub(super) fn trial(&self, candidate: &Candidate, base: &Spec) -> Result<Trial> {
        let space = self.judge.space;
        let shape = &space.shapes[candidate.serving.shape];
        let spec = self.judge.deployed(base, candidate);
        let fitted = |shape: usize| match &self.judge.fitted[shape] {
            Ok(fitted) => Ok(&fitted.forecaster),
            Err(reason) => {
                Err(roofcast_facts::Error::field("plan", "search", reason, "formats that the chip has"))
            }
        };
        let serving = fitted(candidate.serving.shape)?;
        let deployment = deployment(&spec, &serving.deployment.model, &shape.chip)?;
        let mut forecaster = serving.reshaped(deployment);
        if let Some(pool) = space.elsewhere(candidate) {
            forecaster.other = Some(Box::new(fitted(pool.shape)?.clone()));
        }
        Ok(Trial { spec, forecaster, end_when_missed: true, prices: Arc::clone(&self.prices) })
    }

    /// Proves the next more expensive deployments of each kind until one meets the SLO, within [`BEYOND`] simulations
    /// in total.
    fn beyond(&mut self, rest: &[(f64, usize)]) -> Result<()> {
        let kind = |index: usize| self.kind(&self.candidates[index]);
        let proven: Vec<_> = (0..self.candidates.len())
            .filter(|index| matches!(self.judged[*index], Judged::Meets(_)))
            .map(kind)
            .collect();
        let mut kinds: BTreeMap<_, Vec<(f64, usize)>> = BTreeMap::new();
        for (value, index) in rest {
            let kind = kind(*index);
            let tried = kinds.entry(kind.clone()).or_default();
            if !proven.contains(&kind) && tried.len() < TRIES {
                tried.push((*value, *index));
            }
        }
        let mut left = BEYOND;
        for round in 0..TRIES {
            let mut next: Vec<(f64, usize)> =
                kinds.values().filter_map(|of| of.get(round).copied()).collect();
            next.retain(|(_, index)| {
                let kind = self.kind(&self.candidates[*index]);
                let earlier = kinds[&kind][..round].iter();
                !earlier.clone().any(|(_, index)| matches!(self.judged[*index], Judged::Meets(_)))
            });
            next.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            next.truncate(left);
            left -= next.len();
            self.prove(&next)?;
            let met = next
                .iter()
                .map(|(_, index)| *index)
                .filter(|index| matches!(self.judged[*index], Judged::Meets(_)));
            self.weigh_all(&met.collect::<Vec<_>>(), false)?;
        }
        Ok(())
    }

    /// The properties that candidates have in common if they differ only in numbers and scheduler settings.
    pub(super) fn kind(&self, candidate: &Candidate) -> Kind {
        let shape = &self.judge.space.shapes[candidate.serving.shape];
        let formats = [shape.weights.clone(), shape.kv.clone()];
        let other = candidate.prefill.or(candidate.beside);
        let other = other.map(|pool| self.judge.space.shapes[pool.shape].chip.id.clone());
        (shape.chip.id.clone(), formats, other, shape.cut, shape.told.clone())
    }

    /// The lowest objective among unjudged candidates, and the number of these whose objective is at most `most`.
    /// `None` if the objective is not known before a simulation.
    pub(super) fn open(&self, most: f64) -> Option<(f64, u64)> {
        let paced = self.judge.demand.rate.is_some()
            || matches!(self.objective, Objective::CostPerHour | Objective::Accelerators);
        let unknown =
            self.candidates.iter().zip(&self.judged).filter(|(_, j)| matches!(j, Judged::MoreExpensive));
        let values: Vec<f64> = unknown.filter_map(|(candidate, _)| self.value(candidate)).collect();
        let lowest = values.iter().copied().min_by(f64::total_cmp).filter(|_| paced)?;
        Some((lowest, values.iter().filter(|value| **value <= most).count() as u64))
    }

    /// Candidates that meet the SLO, best first: those with the required probability precede the others; then by
    /// objective, number of accelerators, probability in whole percents, latency, and order in the space. If no candidate
    /// has the required probability, candidates are ordered by their probability.
    pub(super) fn ranked(&self) -> Vec<(usize, &Proven)> {
        let meets = self.judged.iter().enumerate().filter_map(|(index, judged)| match judged {
            Judged::Meets(proven) => Some((index, proven.as_ref())),
            _ => None,
        });
        let meets: Vec<(usize, &Proven)> = meets.collect();
        // A candidate without a probability, where others have one, was not computed because a better candidate of
        // equal objective has the required probability.
        let absent = if meets.iter().any(|(_, proven)| proven.outlook.is_some()) { 0.0 } else { 1.0 };
        let with_chance =
            meets.into_iter().map(|(index, proven)| (index, proven, proven.chance().unwrap_or(absent)));
        let mut ranked: Vec<(usize, &Proven, f64)> = with_chance.collect();
        let likely = |chance: f64| chance >= self.confidence;
        let percent = |chance: f64| (100.0 * chance).round();
        let some = ranked.iter().any(|(_, _, chance)| likely(*chance));
        ranked.sort_by(|(a, left, sure), (b, right, unsure)| {
            let accelerators = |index: usize| self.candidates[index].accelerators;
            let chance = if some { likely(*unsure).cmp(&likely(*sure)) } else { unsure.total_cmp(sure) };
            chance
                .then(self.value_of(*a, &left.run).total_cmp(&self.value_of(*b, &right.run)))
                .then(accelerators(*a).cmp(&accelerators(*b)))
                .then(percent(*unsure).total_cmp(&percent(*sure)))
                .then(left.run.summary.e2el.mean.total_cmp(&right.run.summary.e2el.mean))
                .then(a.cmp(b))
        });
        ranked.into_iter().map(|(index, proven, _)| (index, proven)).collect()
    }

    /// The objective of a candidate that was proven by `run`.
    pub(super) fn value_of(&self, index: usize, run: &Simulation) -> f64 {
        let known = self.value(&self.candidates[index]).unwrap_or(f64::INFINITY);
        match (self.objective, self.judge.demand.rate) {
            (Objective::CostPerMillionTokens, None) => known / run.summary.output_throughput(),
            (Objective::Energy, rate) => {
                let tokens = rate.and(self.judge.demand.output_per_s());
                let tokens = tokens.unwrap_or_else(|| run.summary.output_throughput());
                run.expense.watts.map_or(f64::INFINITY, |watts| watts / tokens)
            }
            _ => known,
        }
    }
}

/// For each of `met`, the simulations for its probability, with other seeds as well if `seeds` is set; `None` without
/// bands, if no bound can be missed, or if the search was stopped.
pub(super) fn outlooks(found: &mut Search, met: &[Met], seeds: bool) -> Result<Vec<Option<Outlook>>> {
    let slo = found.base.slo;
    if is_certain(found.judge.demand, &slo) {
        return Ok(met.iter().map(|_| None).collect());
    }
    let deviation = deviate(found.confidence);
    let case = |&(candidate, spec, run)| {
        let trial = found.trial(&candidate, spec)?;
        let doubt = Doubt::of(&trial.forecaster, &slo, load(&trial.spec));
        Ok(doubt.map(|doubt| Case::new(trial, doubt, run, deviation)))
    };
    let mut cases = met.iter().map(case).collect::<Result<Vec<Option<Case>>>>()?;
    for _ in 0..2 {
        let slowed = |case: &Case| -> Vec<Trial> {
            case.open.iter().map(|z| case.slowed(*z, found.judge.demand)).collect()
        };
        let trials: Vec<Trial> = cases.iter().flatten().flat_map(slowed).collect();
        let Some(runs) = found.runs(&trials) else { return Ok(met.iter().map(|_| None).collect()) };
        let mut runs = runs.iter();
        for case in cases.iter_mut().flatten() {
            case.add(runs.by_ref(), &slo);
        }
    }
    if !seeds {
        return Ok(cases.iter().map(|case| case.as_ref().map(Case::outlook)).collect());
    }
    over_seeds(found, &cases)
}

/// The outlooks of `cases`; cases that reach the required probability are also simulated with other seeds.
fn over_seeds(found: &mut Search, cases: &[Option<Case>]) -> Result<Vec<Option<Outlook>>> {
    let mut all: Vec<Option<Outlook>> = cases.iter().map(|case| case.as_ref().map(Case::outlook)).collect();
    let likely = |outlook: &Outlook| outlook.chance() >= found.confidence;
    let chosen: Vec<bool> = all.iter().map(|outlook| outlook.as_ref().is_some_and(likely)).collect();
    let seeded = |case: &Case| -> Vec<Trial> {
        let seed = |n: u64| {
            let mut trial = case.trial.clone();
            // A trace does not depend on the seed.
            let drawn = trial.spec.workload.as_mut().filter(|w| !matches!(w.arrivals, Arrivals::Trace(_)));
            drawn.map(|workload| workload.seed = workload.seed.wrapping_add(n)).map(|()| trial)
        };
        (1..=SEEDS).filter_map(seed).collect()
    };
    let trials: Vec<Vec<Trial>> = cases
        .iter()
        .zip(&chosen)
        .map(|(case, chosen)| case.as_ref().filter(|_| *chosen).map(seeded).unwrap_or_default())
        .collect();
    let Some(runs) = found.runs(&trials.concat()) else { return Ok(all) };
    let mut runs = runs.iter();
    for ((case, outlook), trials) in cases.iter().zip(&mut all).zip(&trials) {
        let (Some(case), Some(outlook)) = (case, outlook) else { continue };
        let slo = &case.trial.spec.slo;
        let others: Vec<ChanceRun> =
            trials.iter().zip(runs.by_ref()).map(|(_, run)| ChanceRun::of(0.0, run, slo)).collect();
        if !others.is_empty() {
            outlook.varied(&excess(case.run, slo), &others, slo);
        }
    }
    Ok(all)
}
