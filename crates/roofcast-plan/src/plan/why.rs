//! Deployments that miss the SLO, and the reasons: the nearest misses, and deployments requested by name.
//!
//! Knows: the results of the search so far. Deployments that the search did not simulate are simulated now, to the end,
//! so that their figures can be reported. Knows nothing about the order of the search.

use super::answer::{name, told};
use super::feasibility::{Miss, SearchStage};
use super::margins;
use super::near::Near;
use super::search::{Judged, Search};
use super::space::CandidatePool;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Most deployments that are explained for one name.
const MOST: usize = 5;

/// The misses with the smallest factors, for a search in which no deployment meets the SLO: simulated ones, and the
/// nearest of the ones that were ruled out.
pub(super) fn nearest(found: &mut Search, most: usize) -> Result<Vec<Near>> {
    if found.judged.iter().any(|judged| matches!(judged, Judged::Meets(_))) {
        return Ok(Vec::new());
    }
    let mut missed: Vec<(f64, usize)> = Vec::new();
    for (index, judged) in found.judged.iter().enumerate() {
        if let Judged::Missed(miss) = judged {
            missed.push((miss.factor, index));
        }
    }
    // Order deployments that do not fit by their missing memory; they are the farthest from meeting the SLO.
    let lacks = |index: usize| found.judge.lacks(found.candidates[index].serving.shape);
    missed.sort_by(|a, b| {
        let further = if a.0 == f64::INFINITY { lacks(a.1).cmp(&lacks(b.1)) } else { Ordering::Equal };
        a.0.total_cmp(&b.0).then(further).then(a.1.cmp(&b.1))
    });
    // Report only the nearest of the deployments that differ in scheduler settings alone.
    let mut seen = BTreeSet::new();
    missed.retain(|(_, index)| {
        let candidate = &found.candidates[*index];
        seen.insert((found.kind(candidate), candidate.serving.replicas, candidate.accelerators))
    });
    // A run that ended early looks nearer by its first requests than by all of them, so more deployments are run to
    // their end than are reported.
    let mut nearest: Vec<(Near, usize)> = Vec::new();
    for (_, index) in missed.into_iter().take(2 * most) {
        nearest.push((near(found, index)?, index));
    }
    let factor = |near: &Near| near.factor.unwrap_or(f64::INFINITY);
    nearest.sort_by(|(a, _), (b, _)| factor(a).total_cmp(&factor(b)));
    nearest.truncate(most);
    if let Some((near, index)) = nearest.first_mut().filter(|(near, _)| near.factor.is_some()) {
        carried(found, near, *index)?;
    }
    Ok(nearest.into_iter().map(|(near, _)| near).collect())
}

/// Adds to `near` the load at which its deployment `index` would meet the SLO.
fn carried(found: &mut Search, near: &mut Near, index: usize) -> Result<()> {
    let demand = found.judge.demand;
    if !(found.goes_on)() || near.stage.is_none_or(|stage| stage <= SearchStage::Limit) {
        return Ok(());
    }
    let Some(factor) = margins::lower(found, &found.candidates[index].clone())? else { return Ok(()) };
    near.meets_at_requests_per_s = demand.rate.map(|rate| rate * factor);
    near.meets_at_users = demand.users.map(|users| (users as f64 * factor).round().max(1.0) as u64);
    Ok(())
}

/// If the best deployment has pools, the best one without them: the first that meets the SLO, with its chance, else the nearest
/// miss, else the first that was not simulated because it is more expensive. `None` if there is none that fits.
pub(super) fn without_pools(found: &mut Search) -> Result<Option<Near>> {
    let whole = |index: usize| {
        let candidate = &found.candidates[index];
        candidate.prefill.is_none() && candidate.beside.is_none()
    };
    let ranked: Vec<usize> = found.ranked().iter().map(|(index, _)| *index).collect();
    if ranked.first().is_none_or(|best| whole(*best)) {
        return Ok(None);
    }
    let factor = |index: &usize| match &found.judged[*index] {
        Judged::Missed(miss) if miss.stage > SearchStage::Memory => Some(miss.factor),
        _ => None,
    };
    let all = || (0..found.candidates.len()).filter(|index| whole(*index));
    let missed =
        || all().filter_map(|index| Some((factor(&index)?, index))).min_by(|a, b| a.0.total_cmp(&b.0));
    let dearer = || {
        let value = |index: usize| found.value(&found.candidates[index]);
        let open = all().filter(|index| matches!(found.judged[*index], Judged::MoreExpensive));
        open.filter_map(|index| Some((value(index)?, index))).min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let met = ranked.into_iter().find(|index| whole(*index));
    let Some(index) = met.or_else(|| missed().or_else(dearer).map(|(_, index)| index)) else {
        return Ok(None);
    };
    if met.is_some() {
        found.weigh_one(index)?;
    }
    near(found, index).map(Some)
}

/// The results of the deployments that `named` describes.
pub(super) fn asked(found: &mut Search, named: &str) -> Result<Vec<Near>> {
    let wanted = parse(named)?;
    let mut matching: Vec<usize> =
        (0..found.candidates.len()).filter(|index| wanted.iter().all(|w| has(found, *index, w))).collect();
    matching.sort_by_key(|index| (found.candidates[*index].accelerators, *index));
    if matching.is_empty() {
        let accepted = "a deployment of the search: accelerators, degrees and formats that [search] spans";
        return Err(Error::field("arguments", "why", format!("{named:?}"), accepted));
    }
    matching.into_iter().take(MOST).map(|index| near(found, index)).collect()
}

const KEYS: [&str; 16] = [
    "accelerator",
    "prefill_accelerator",
    "beside_accelerator",
    "count",
    "tp",
    "pp",
    "ep",
    "attention_dp",
    "replicas",
    "prefill",
    "beside",
    "weights",
    "kv",
    "max_num_batched_tokens",
    "engine",
    "router",
];

fn parse(named: &str) -> Result<Vec<(&str, &str)>> {
    let words = named.split([',', ' ']).filter(|word| !word.is_empty());
    let pairs: Vec<_> = words
        .map(|word| {
            word.split_once('=').filter(|(key, _)| KEYS.contains(key)).ok_or_else(|| {
                let accepted = format!("KEY=VALUE with a key of {}", KEYS.join(", "));
                Error::field("arguments", "why", format!("{word:?}"), accepted)
            })
        })
        .collect::<Result<_>>()?;
    Ok(pairs)
}

fn has(found: &Search, index: usize, (key, value): &(&str, &str)) -> bool {
    let candidate = &found.candidates[index];
    let shape = &found.judge.space.shapes[candidate.serving.shape];
    let deployment =
        found.judge.fitted[candidate.serving.shape].as_ref().ok().map(|f| &f.forecaster.deployment);
    let count = |n: u64| n.to_string() == *value;
    let named = |chip: &Accelerator| chip.id == *value || chip.aliases.iter().any(|alias| alias == value);
    let on = |pool: Option<CandidatePool>| {
        pool.is_some_and(|pool| named(&found.judge.space.shapes[pool.shape].chip))
    };
    let replicas = |pool: Option<CandidatePool>| count(pool.map_or(0, |pool| pool.replicas));
    match *key {
        "accelerator" => named(&shape.chip),
        "prefill_accelerator" => on(candidate.prefill),
        "beside_accelerator" => on(candidate.beside),
        "count" => count(candidate.accelerators),
        "tp" => count(shape.cut.tp),
        "pp" => count(shape.cut.pp),
        "ep" => count(shape.cut.ep),
        "attention_dp" => count(shape.cut.attention_dp),
        "replicas" => count(candidate.serving.replicas),
        "prefill" => replicas(candidate.prefill),
        "beside" => replicas(candidate.beside),
        "weights" => deployment.is_some_and(|d| d.weights == *value),
        "kv" => deployment.is_some_and(|d| d.kv.name == *value),
        "engine" => deployment.is_some_and(|d| d.engine.name() == *value),
        "router" => shape.told.router.unwrap_or(found.base.fleet.router).name() == *value,
        _ => deployment.is_some_and(|d| count(d.engine.max_num_batched_tokens)),
    }
}

/// The result of one deployment, which is simulated to the end unless it was already, or cannot run.
fn near(found: &mut Search, index: usize) -> Result<Near> {
    let candidate = found.candidates[index];
    let runs = match &found.judged[index] {
        Judged::Missed(miss) => miss.stage > SearchStage::Limit,
        Judged::Meets(_) => false,
        Judged::MoreExpensive => true,
    };
    let mut judged = found.judged[index].clone();
    if runs && (found.goes_on)() {
        let mut trial = found.trial(&candidate, found.base)?;
        trial.end_when_missed = false;
        found.simulated += 1;
        let run = (found.runner)(&[trial]).pop();
        if let Some(run) = run.filter(|_| (found.goes_on)()) {
            judged = found.outcome(run);
        }
    }
    let (stage, reason, factor) = match (&judged, &found.judged[index]) {
        (Judged::Missed(Miss { stage, reason, factor }), _) => {
            (Some(*stage), reason.clone(), Some(*factor).filter(|f| f.is_finite()))
        }
        (Judged::Meets(proven), first) => {
            let dearer =
                if matches!(first, Judged::MoreExpensive) { "; more expensive than the best" } else { "" };
            let likely = proven.chance().map_or_else(String::new, |chance| {
                format!(
                    "; {:.0} % likely to, where {:.0} % are asked for",
                    chance * 100.0,
                    found.confidence * 100.0
                )
            });
            let reason =
                format!("meets the SLO: {}{likely}{dearer}", told(&proven.run.summary, &found.base.slo));
            (Some(SearchStage::Simulation), reason, None)
        }
        (Judged::MoreExpensive, _) => (None, "skipped: more expensive than the best".to_owned(), None),
    };
    Ok(Near {
        deployment: name(found.judge.space, &candidate),
        count: candidate.accelerators,
        cost_per_hour: found.per_hour(&candidate),
        stage,
        reason,
        factor,
        meets_at_requests_per_s: None,
        meets_at_users: None,
    })
}
