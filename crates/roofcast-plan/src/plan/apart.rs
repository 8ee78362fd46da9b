//! Deployments with disaggregated prefill and decode.
//!
//! Knows: the shapes that can form the two sides of a fleet, the numbers of replicas on each side, and the engines that
//! support disaggregation. Sides on one chip are combined in every number. Sides on two chips are combined only if the
//! limit of each meets its part of the SLO and of the load, which loses no solution: the limit would rule out all
//! combinations that are skipped here. Knows nothing about queues.

use super::feasibility::Judge;
use super::space::{Candidate, CandidatePool, ReplicaShape};
use roofcast_ask::spec::LinkKind;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::simulate::has_pools;
use std::collections::BTreeSet;

/// Most deployments of a search.
const MOST_CANDIDATES: usize = 2_000_000;

/// Disaggregated deployments of `shapes`, all of which hold the model. Both sides have equal formats and engines; each
/// side has its own chip, parallelism and number of replicas. The scheduler's settings are the first requested ones.
pub(super) fn apart(judge: &Judge, shapes: &[usize]) -> Result<Vec<Candidate>> {
    let space = judge.space;
    let shape = |index: usize| &space.shapes[index];
    let same = |one: &ReplicaShape, other: &ReplicaShape| {
        one.chip.id == other.chip.id && one.alike(other) && one.cut == other.cut
    };
    let first = |index: &&usize| {
        let candidate_shape = shape(**index);
        !space.shapes[..**index].iter().any(|earlier| same(earlier, candidate_shape))
    };
    let pooled = |index: &&usize| has_pools(shape(**index).scheduler(judge.spec)).is_ok();
    let shapes: Vec<usize> = shapes.iter().filter(pooled).filter(first).copied().collect();
    let mut candidates = Vec::new();
    for decode in &shapes {
        for prefill in shapes.iter().filter(|prefill| shape(**prefill).alike(shape(*decode))) {
            let Some([least_x, least_y]) = least(judge, *prefill, *decode) else { continue };
            let [sends, takes] = [*prefill, *decode].map(|index| shape(index).cut.ranks());
            for y in least_y..=space.most / takes {
                for x in least_x..=(space.most - y * takes) / sends {
                    let accelerators = x * sends + y * takes;
                    if accelerators >= space.least {
                        let pool = |shape, replicas| CandidatePool { shape, replicas };
                        let prefill = Some(pool(*prefill, x));
                        let serving = pool(*decode, y);
                        candidates.push(Candidate { prefill, serving, beside: None, accelerators });
                    }
                }
            }
        }
        if candidates.len() > MOST_CANDIDATES {
            let accepted = format!("fewer than {MOST_CANDIDATES} deployments: fewer accelerators or degrees");
            return Err(Error::field("spec", "search", format!("{} or more", candidates.len()), accepted));
        }
    }
    Ok(candidates)
}

/// The smallest numbers of prefill and decode replicas for which two shapes are considered; `None` if they cannot form
/// a fleet. Two chips must be from one vendor whose engines hand over KV caches, have equal cache formats, and have a
/// link between them.
fn least(judge: &Judge, prefill: usize, decode: usize) -> Option<[u64; 2]> {
    let [prompts, others] = [prefill, decode].map(|index| &judge.space.shapes[index].chip);
    if prompts.id == others.id {
        return Some([1, 1]);
    }
    let [sends, takes] =
        [prefill, decode].map(|index| judge.fitted[index].as_ref().ok().map(|f| &f.forecaster.deployment));
    let (sends, takes) = sends.zip(takes)?;
    let wanted_link = judge.spec.search.as_ref().and_then(|search| search.link);
    let joined = wanted_link != Some(LinkKind::Nvlink)
        && (wanted_link != Some(LinkKind::Network) || prompts.network.is_some() && others.network.is_some());
    let alike = sends.kv == takes.kv && sends.weights == takes.weights;
    if !(joined && alike && prompts.vendor == others.vendor) {
        return None;
    }
    judge.least_at_the_limit(prefill, decode)
}

/// Engines of the search that cannot disaggregate, each with the reason.
pub(super) fn left_out(judge: &Judge) -> Vec<String> {
    let without = judge.space.shapes.iter().filter_map(|shape| {
        let reason = has_pools(shape.scheduler(judge.spec)).err()?;
        Some(format!("disaggregated {}: {reason}", shape.engine(judge.spec)))
    });
    without.collect::<BTreeSet<String>>().into_iter().collect()
}
