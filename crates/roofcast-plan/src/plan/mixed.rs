//! Fleets with replicas on two kinds of accelerator behind one router.
//!
//! Knows: the shapes that are combined, in every number of each: two chips with equal formats and engine, each of which
//! meets the SLO alone at the limit and in steady state. [`Judge::deployed`] divides the load. Knows nothing about
//! queues.

use super::feasibility::Judge;
use super::space::{Candidate, CandidatePool};
use roofcast_facts::error::{Error, Result};

/// Fleets of two kinds from `shapes`, with the first requested settings.
///
/// # Errors
/// The load has no rate, so that it cannot be divided between the kinds.
pub(super) fn mixed(judge: &Judge, shapes: &[usize]) -> Result<Vec<Candidate>> {
    if judge.demand.rate.is_none() {
        let accepted = "arrivals with a rate, which two kinds of replicas can share";
        return Err(Error::field("spec", "search.mixed", true, accepted));
    }
    let space = judge.space;
    let shape = |index: usize| &space.shapes[index];
    let first = |index: &&usize| {
        let candidate_shape = shape(**index);
        !space.shapes[..**index].iter().any(|s| {
            s.chip.id == candidate_shape.chip.id && s.alike(candidate_shape) && s.cut == candidate_shape.cut
        })
    };
    let keeps: Vec<usize> = shapes.iter().filter(first).filter(|i| judge.keeps(**i)).copied().collect();
    let mut candidates = Vec::new();
    for (at, serving) in keeps.iter().enumerate() {
        let others = keeps[at + 1..].iter();
        let others = others.filter(|other| {
            shape(**other).chip.id != shape(*serving).chip.id && shape(**other).alike(shape(*serving))
        });
        for beside in others {
            let [own, other] = [*serving, *beside].map(|index| shape(index).cut.ranks());
            for x in 1..=space.most / own {
                for y in 1..=(space.most - x * own) / other {
                    let accelerators = x * own + y * other;
                    if accelerators >= space.least {
                        let pool = |shape, replicas| CandidatePool { shape, replicas };
                        let serving = pool(*serving, x);
                        let beside = Some(pool(*beside, y));
                        candidates.push(Candidate { prefill: None, serving, beside, accelerators });
                    }
                }
            }
        }
    }
    Ok(candidates)
}
