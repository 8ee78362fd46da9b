//! Bound of a kernel's time by a chip that the deployment's chip supersedes.
//!
//! Knows: a chip with the bandwidth of another chip of its architecture, and at least its multiprocessors and rate, runs that
//! chip's kernels, and no slower. The tables of two such chips were often timed under different versions of an engine, with
//! different kernels. Knows nothing about formats.

use super::choice::{Asking, superseded};
use super::{Basis, Kernels, MeasuredTimes};
use crate::coefficients::Evidence;
use crate::operator::Operator;
use crate::profile::Profiles;

impl Kernels<'_> {
    /// The times `own` of `operator`, which exceed at no size those on a chip that the deployment's chip supersedes, if they were
    /// timed there or are known as well.
    pub(super) fn no_slower_than_older(
        &self,
        profiles: &Profiles,
        operator: &Operator,
        own: (MeasuredTimes, Basis),
    ) -> (MeasuredTimes, Basis) {
        superseded(self.chip, operator.dtype).fold(own, |(times, basis), chip| {
            let kernels = Kernels { chip, asking: Asking { chip, ..self.asking }, ..*self };
            let evidence = basis.evidence.min(Evidence::Accelerator);
            let known = kernels.timed(profiles, operator).filter(|(_, of)| of.evidence >= evidence);
            let Some((bound, of)) = known else { return (times, basis) };
            let bounded = times.least(&bound);
            if bounded == times {
                return (times, basis);
            }
            let kernel = format!("{}, at most {}", basis.kernel, of.kernel);
            (bounded, Basis { kernel, ..basis })
        })
    }
}

impl MeasuredTimes {
    /// The lesser time of both at every size; the own times behind an exchange, which depends on links.
    fn least(&self, other: &MeasuredTimes) -> MeasuredTimes {
        match (self, other) {
            (MeasuredTimes::Rows(own), MeasuredTimes::Rows(other)) => MeasuredTimes::Rows(own.least(other)),
            (MeasuredTimes::Context(own), MeasuredTimes::Context(other)) => {
                MeasuredTimes::Context(own.least(other))
            }
            _ => self.clone(),
        }
    }
}
