//! Margins of the best deployment: the highest rate that it can serve, and the effects of changes.
//!
//! Knows: simulations of the best deployment under other loads, and with more or fewer replicas. Knows nothing about
//! other deployments.

use super::answer::{Choice, Plan, WhatIf, told};
use super::demand::{at_once, longer, scaled, users};
use super::feasibility::Miss;
use super::proof::GOODPUT;
use super::proof::{Trial, missed};
use super::search::{Judged, Search, outlooks};
use super::space::{Candidate, CandidatePool};
use roofcast_ask::spec::Spec;
use roofcast_ask::workload::Workload;
use roofcast_facts::error::Result;
use roofcast_sim::simulate::Simulation;

/// Loads that are tried, as factors on the offered load.
const FACTORS: [f64; 7] = [1.05, 1.1, 1.2, 1.35, 1.5, 2.0, MOST_TRIED];
/// Highest load that is tried, as a factor on the offered load.
pub(super) const MOST_TRIED: f64 = 4.0;
/// Loads below the offered one that are tried where no deployment meets the SLO, as factors.
const LOWER: [f64; 7] = [0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1];
/// Number of loads that are tried between the last that meets the SLO and the first that misses it.
const BETWEEN: usize = 4;
/// Most additional replicas that are tried.
const MORE: u64 = 8;

/// The plan with the highest rates of its first choices, and the effects of changes on the best one, added.
pub(super) fn explored(found: &mut Search, mut plan: Plan) -> Result<Plan> {
    if plan.interrupted {
        return Ok(plan);
    }
    if let Some(best) = plan.best.clone() {
        let offered = found.judge.demand.rate;
        let factor = highest(found, &found.candidates[best.index].clone())?;
        if let Some((offered, factor)) = offered.zip(factor) {
            let lists =
                [&mut plan.pareto, &mut plan.pareto_throughput, &mut plan.by_accelerator, &mut plan.ranked];
            for choice in lists.into_iter().flatten().chain(&mut plan.best) {
                if choice.index == best.index {
                    choice.max_requests_per_s = Some(offered * factor);
                    choice.utilization = Some(factor.recip());
                }
            }
        }
        plan.what_if = changes(found, &best)?;
    }
    plan.simulated = found.simulated;
    plan.interrupted = !(found.goes_on)();
    Ok(plan)
}

/// The largest factor on the load of `candidate` at which the SLO is met. `None` if the load is not one number, or
/// depends on answers.
fn highest(found: &mut Search, candidate: &Candidate) -> Result<Option<f64>> {
    let Some(workload) = found.base.workload.clone().filter(|_| found.judge.demand.rate.is_some()) else {
        return Ok(None);
    };
    let mut carried = 1.0;
    let mut factors = FACTORS.to_vec();
    for _ in 0..2 {
        let loads: Vec<Workload> = factors.iter().filter_map(|factor| scaled(&workload, *factor)).collect();
        if loads.len() < factors.len() {
            return Ok(None);
        }
        let Some(met) = verdicts(found, candidate, loads)? else { return Ok(None) };
        let first = met.iter().position(|miss| miss.is_some()).unwrap_or(factors.len());
        carried = if first == 0 { carried } else { factors[first - 1] };
        let Some(above) = factors.get(first) else { return Ok(Some(carried)) };
        let step = (above - carried) / (BETWEEN + 1) as f64;
        factors = (1..=BETWEEN).map(|n| carried + step * n as f64).collect();
    }
    Ok(Some(carried))
}

/// The largest factor below 1 on the load at which `candidate` meets the SLO; `None` if none of [`LOWER`] does, or the load is not
/// one number.
pub(super) fn lower(found: &mut Search, candidate: &Candidate) -> Result<Option<f64>> {
    let Some(workload) = found.base.workload.clone() else { return Ok(None) };
    let loads: Vec<Workload> = LOWER.iter().filter_map(|factor| scaled(&workload, *factor)).collect();
    if loads.len() < LOWER.len() {
        return Ok(None);
    }
    let met = verdicts(found, candidate, loads)?.unwrap_or_default();
    Ok(met.iter().position(Option::is_none).map(|first| LOWER[first]))
}

/// For each of `loads`, the reason why `candidate` misses the SLO; `None` if it meets the SLO.
fn verdicts(
    found: &mut Search,
    candidate: &Candidate,
    loads: Vec<Workload>,
) -> Result<Option<Vec<Option<String>>>> {
    let specs = loads.into_iter().map(|workload| Spec { workload: Some(workload), ..found.base.clone() });
    let trials = specs.map(|spec| found.trial(candidate, &spec)).collect::<Result<Vec<Trial>>>()?;
    let met = run(found, &trials);
    Ok(met.map(|met| met.into_iter().map(|(miss, _)| miss.map(|miss| miss.reason)).collect()))
}

type Verdict = (Option<Miss>, Option<Box<Simulation>>);

/// For each of `trials`, the miss of the SLO or the run; `None` if the search was stopped.
fn run(found: &mut Search, trials: &[Trial]) -> Option<Vec<Verdict>> {
    let slo = found.base.slo;
    let verdict = |run| match missed(&run, &slo) {
        Some(miss) => (Some(miss), None),
        None => (None, run.ok().map(Box::new)),
    };
    found.runs(trials).map(|runs| runs.into_iter().map(verdict).collect())
}

/// The miss of `candidate` under the workload of `base`, or its run; `None` if the search was stopped. A number of
/// users that exceeds the memory of `candidate` needs no simulation.
fn verdict(found: &mut Search, candidate: &Candidate, base: &Spec) -> Result<Option<Verdict>> {
    let users = base.workload.as_ref().and_then(users);
    if let Some(miss) = found.judge.crowded(candidate, users) {
        return Ok(Some((Some(miss), None)));
    }
    let trial = found.trial(candidate, base)?;
    Ok(run(found, &[trial]).and_then(|mut met| met.pop()))
}

/// Effects of changes on the best deployment.
fn changes(found: &mut Search, best: &Choice) -> Result<Vec<WhatIf>> {
    let candidate = found.candidates[best.index];
    let mut all = Vec::new();
    all.extend(tighter(found, best));
    let workload = found.base.workload.clone();
    let more = workload.as_ref().and_then(|workload| scaled(workload, 1.1));
    all.extend(changed(found, &candidate, "load 10 % higher", more, true)?);
    let fewer = CandidatePool { replicas: candidate.serving.replicas - 1, ..candidate.serving };
    if fewer.replicas > 0 {
        let lost = Candidate { serving: fewer, ..candidate };
        let workload = found.base.workload.clone();
        all.extend(changed(found, &lost, "a replica is lost", workload, false)?);
    }
    let workload = found.base.workload.clone();
    let twice = workload.as_ref().and_then(longer);
    all.extend(changed(found, &candidate, "prompts twice as long", twice, true)?);
    let more = workload.as_ref().and_then(|workload| scaled(workload, 1.5));
    all.extend(changed(found, &candidate, "1.5 times the traffic", more, true)?);
    let burst = workload.as_ref().and_then(at_once);
    all.extend(changed(found, &candidate, "all users begin at once", burst, false)?);
    Ok(all)
}

/// Effect on the best deployment if every bound is one tenth tighter.
fn tighter(found: &Search, best: &Choice) -> Option<WhatIf> {
    const TENTH: f64 = 0.1;
    let headroom = best.headroom.filter(|h| h.metric != GOODPUT)?;
    let Judged::Meets(proven) = &found.judged[best.index] else { return None };
    let meets = headroom.share >= TENTH;
    let chance = proven.outlook.as_ref().map(|outlook| outlook.chance_within(1.0 - TENTH));
    let percentile = headroom.percentile.unwrap_or_default();
    Some(WhatIf {
        change: "bounds 10 % tighter".to_owned(),
        meets,
        because: format!(
            "{} {percentile} is {:.0} % below its bound",
            headroom.metric,
            headroom.share * 100.0
        ),
        chance: chance.filter(|_| meets),
        replicas: None,
    })
}

/// The effect of `workload` on `candidate`. If the SLO is missed and `grows` is set, also the number of replicas that
/// meets it.
fn changed(
    found: &mut Search,
    candidate: &Candidate,
    change: &str,
    workload: Option<Workload>,
    grows: bool,
) -> Result<Option<WhatIf>> {
    let Some(workload) = workload else { return Ok(None) };
    let base = Spec { workload: Some(workload), ..found.base.clone() };
    let Some((miss, met)) = verdict(found, candidate, &base)? else { return Ok(None) };
    let runs: Vec<_> = met.iter().map(|run| (*candidate, &base, &**run)).collect();
    let outlook = outlooks(found, &runs, false)?.pop().flatten();
    let met = met.map(|run| told(&run.summary, &base.slo));
    let mut replicas = None;
    // Refusals have an infinite factor: with more replicas as many requests are refused.
    let helps = miss.as_ref().is_some_and(|miss| miss.factor.is_finite());
    if helps && grows && candidate.prefill.is_none() {
        for more in 1..=MORE {
            let serving = CandidatePool { replicas: candidate.serving.replicas + more, ..candidate.serving };
            match verdict(found, &Candidate { serving, ..*candidate }, &base)? {
                Some((Some(_), _)) => continue,
                Some((None, _)) => replicas = Some(serving.replicas),
                None => {}
            }
            break;
        }
    }
    Ok(Some(WhatIf {
        change: change.to_owned(),
        meets: miss.is_none(),
        because: miss.map(|miss| miss.reason).or(met).unwrap_or_default(),
        chance: outlook.map(|outlook| outlook.chance()),
        replicas,
    }))
}
