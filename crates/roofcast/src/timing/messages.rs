//! What the messages of a step take.
//!
//! Knows: an all-reduce takes what one of as many bytes among as many ranks was measured to take, scaled by the links'
//! rates on a sibling chip; without a measurement a start of three latencies of the link and its bytes at a share of the
//! link. Knows nothing about which messages there are.

use crate::coefficients::{Coefficients, KernelTimes};
use crate::deployment::Deployment;
use crate::kernel_time::{Basis, Kernels};
use crate::operator::collective::Links;
use crate::profile::Curve;

/// Latencies of a link in one all-reduce without a measurement.
const LATENCIES: f64 = 3.0;

/// The messages of a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Messages {
    /// All-reduces of a step.
    count: f64,
    /// Bytes of a row in one.
    row_bytes: f64,
    /// Seconds over bytes, where they were measured.
    measured: Option<Curve>,
    /// Seconds of one whatever its bytes, and of a row.
    formula: [f64; 2],
    /// Seconds of a row in all other messages.
    other_row: f64,
    /// Seconds of all other messages whatever their rows.
    other: f64,
    /// What the time of all-reduces rests on.
    pub basis: Option<Basis>,
}

impl Messages {
    /// Those of `deployment`, whose links are `links`.
    pub fn of(deployment: &Deployment, links: &Links, coefficients: &Coefficients) -> Messages {
        let count = links.all_reduces as f64;
        let KernelTimes::Measured { shares, .. } = &coefficients.kernels else {
            let formula = [0.0, links.seconds_per_row()];
            return Messages { count, formula, other_row: links.seconds_per_row_beside(), ..Messages::default() };
        };
        let factor = coefficients.factor;
        let measured = (links.all_reduces > 0)
            .then(|| Kernels::of(deployment, coefficients).all_reduce(deployment.parallelism.tp))
            .flatten();
        let (measured, basis) = measured.unzip();
        let least = links.seconds_per_row() / links.row_bytes.max(1.0);
        Messages {
            count,
            row_bytes: links.row_bytes,
            measured: measured.map(|c| c.map(|bytes, s| (s * factor).max(bytes * least))),
            formula: [
                factor * LATENCIES * links.latency,
                (factor / shares.link).max(1.0) * links.seconds_per_row(),
            ],
            other_row: links.seconds_per_row_beside() * (factor / shares.link).max(1.0),
            other: factor * links.exchange_latency,
            basis,
        }
    }

    /// Seconds of those of `rows`.
    #[inline(always)]
    pub fn time(&self, rows: f64) -> f64 {
        let one = match &self.measured {
            _ if self.count == 0.0 => 0.0,
            Some(curve) => curve.at(rows * self.row_bytes),
            None => self.formula[0] + self.formula[1] * rows,
        };
        self.count * one + self.other + self.other_row * rows
    }
}
