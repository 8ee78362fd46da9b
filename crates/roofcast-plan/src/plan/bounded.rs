//! Comparison of the bounds of an SLO with the values of a run.
//!
//! Knows: each bounded percentile, and its range over seeds. Knows nothing about whether a run meets the SLO.

use super::search::Proven;
use roofcast_ask::spec::{Metric, Slo, SloBound};
use roofcast_ask::summary::RunSummary;
use serde::Serialize;

/// A bounded percentile of a run, with its bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bounded {
    /// Name of the metric, as in `TTFT`.
    pub metric: &'static str,
    /// Name of the percentile, as in `p90`.
    pub percentile: &'static str,
    /// Simulated value in milliseconds.
    pub ms: f64,
    /// Bound in milliseconds.
    pub most_ms: f64,
    /// Lowest and highest value over five seeds; `None` if the deployment does not have the required probability.
    pub over_seeds: Option<[f64; 2]>,
    /// 80 % interval in milliseconds, from the simulations that give the deployment's probability; `None` without a
    /// probability, and if the load is not sustained in more than a tenth of the draws.
    pub interval: Option<[f64; 2]>,
}

/// Each bound of `slo` with the value of a run, in order of metric and descending percentile.
pub fn against(summary: &RunSummary, slo: &Slo) -> Vec<Bounded> {
    let all = Metric::ALL.into_iter().flat_map(|metric| slo.of(metric));
    let bounded_by = |bound: SloBound| Bounded {
        metric: bound.metric.name(),
        percentile: bound.percentile.name(),
        ms: summary.bounded(&bound),
        most_ms: bound.ms,
        over_seeds: None,
        interval: None,
    };
    all.map(bounded_by).collect()
}

/// Each bound of `slo` with the value of a proof, and with the range over seeds if the deployment was simulated with
/// several.
pub(super) fn bounded(proven: &Proven, slo: &Slo) -> Vec<Bounded> {
    let mut all = against(&proven.run.summary, slo);
    let Some(outlook) = proven.outlook.as_ref().filter(|_| slo.goodput.is_none()) else { return all };
    for (index, bound) in slo.bounds().enumerate() {
        let is_bound =
            |b: &&mut Bounded| (b.metric, b.percentile) == (bound.metric.name(), bound.percentile.name());
        if let Some(bounded) = all.iter_mut().find(is_bound) {
            bounded.over_seeds = outlook.seeds.as_ref().map(|seeds| seeds[index]);
            // The centre is the mean over seeds; the proof's own run is always within.
            let around =
                |[low, high]: [f64; 2]| [(low * bound.ms).min(bounded.ms), (high * bound.ms).max(bounded.ms)];
            bounded.interval = outlook.interval(index).map(around);
        }
    }
    all
}
