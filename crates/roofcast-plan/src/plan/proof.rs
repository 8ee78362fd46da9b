//! The proof of a deployment: a simulation of its own spec.
//!
//! Knows: the necessary length of a run, and the conditions under which a run meets the SLO. Every bounded percentile
//! must be within its bound and at most one hundredth of the requests refused; with a goodput, that fraction of the
//! requests must be within every bound instead. Neither the queue nor the number of requests in flight may grow while
//! requests arrive ([`roofcast_sim::simulate::Simulation::load`]). A run ends early when a percentile is certain to be missed.
//! Knows nothing about threads, or about the number of parallel simulations.

use super::demand::TrafficDemand;
use super::feasibility::{Miss, SearchStage};
use roofcast_ask::spec::{Metric, Percentile, Slo, SloBound, Spec};
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::{Arrivals, Workload};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::simulate::{ClassResults, PriceBook, RunOptions, Simulation, simulate_priced};
use serde::Serialize;
use std::sync::Arc;

/// Name of the metric in a headroom if the SLO is a goodput.
pub(super) const GOODPUT: &str = "goodput";

/// Distance to the nearest bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Headroom {
    /// Name of the metric, as in `TTFT`, or `goodput`.
    pub metric: &'static str,
    /// The percentile, as in `p99`; `None` for a goodput.
    pub percentile: Option<&'static str>,
    /// Remaining fraction of the bound.
    pub share: f64,
}

/// Default number of requests of a run.
const REQUESTS: u64 = 10_000;
/// Largest number of requests that a spec may ask for.
const MOST_ASKED: u64 = 10_000_000;
/// Largest number of requests to which a run is lengthened.
const MOST_REQUESTS: u64 = 200_000;
/// Duration of the arrivals, in multiples of the longest decode time of a request within the SLO.
const DECODES: f64 = 20.0;
/// Assumed time per output token in seconds, if the SLO does not bound it.
const USUAL_TPOT_S: f64 = 0.05;

/// One simulation to run.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Spec to simulate.
    pub spec: Spec,
    /// Forecaster of the spec's deployment.
    pub(crate) forecaster: Forecaster,
    /// True if the run may end when a bound is certain to be missed.
    pub(crate) end_when_missed: bool,
    /// Prices of steps that the trials of a search share.
    pub(crate) prices: Arc<PriceBook>,
}

impl Trial {
    /// Runs the simulation.
    pub fn run(&self) -> Result<Simulation> {
        self.run_while(&mut |_, _| true)
    }

    /// Like [`Trial::run`], but ends early when `watch` returns false; `watch` is called repeatedly with the number of
    /// ended requests and the number of all requests.
    pub fn run_while(&self, watch: &mut dyn FnMut(u64, u64) -> bool) -> Result<Simulation> {
        let options =
            RunOptions { leap: true, end_when_missed: self.end_when_missed, ..RunOptions::default() };
        simulate_priced(&self.forecaster, &self.spec, ("plan", &self.prices), options, watch)
    }
}

/// Function that runs trials and returns their results in order.
pub type Runner<'a> = &'a dyn Fn(&[Trial]) -> Vec<Result<Simulation>>;

/// Runs trials one after another.
pub fn in_turn(trials: &[Trial]) -> Vec<Result<Simulation>> {
    trials.iter().map(Trial::run).collect()
}

/// Reads `search.requests`.
///
/// # Errors
/// The number is too large, or too small for a bounded percentile (for the 99th without bounds).
pub(super) fn asked(spec: &Spec) -> Result<Option<u64>> {
    let tail = spec.slo.bounds().any(|bound| bound.percentile == Percentile::P999);
    // With this number, one request in a hundred or in a thousand exceeds the percentile.
    let fewest = if tail { 1000 } else { 100 };
    match spec.search.as_ref().and_then(|search| search.requests) {
        Some(n) if !(fewest..=MOST_ASKED).contains(&n) => {
            let accepted =
                format!("{fewest} to {MOST_ASKED} requests of a simulation; {REQUESTS} where absent");
            Err(Error::field("spec", "search.requests", n, accepted))
        }
        asked => Ok(asked),
    }
}

/// `workload` with the number of requests that a proof needs: the requested number, or else the larger of [`REQUESTS`]
/// and the workload's number. At the least, requests arrive for [`DECODES`] times a request's decode time, and each
/// user in a closed loop with bounds sends [`DECODES`] requests. Users begin one after another, over the longest time
/// of a request within the SLO, because a simultaneous start would be an unrealistic burst that decides the 99th
/// percentile. A trace is used whole.
pub(super) fn lengthened(
    workload: &Workload,
    demand: &TrafficDemand,
    slo: &Slo,
    asked: Option<u64>,
) -> Workload {
    if matches!(workload.arrivals, Arrivals::Trace(_)) {
        return workload.clone();
    }
    let mut arrivals = workload.arrivals.clone();
    if let Arrivals::ClosedLoop { ramp_s, .. } = &mut arrivals {
        let ttft_s = slo.of_a_request(Metric::Ttft).map_or(0.0, |ms| ms / 1e3);
        let whole_s = slo.of_a_request(Metric::E2el).map_or(f64::INFINITY, |ms| ms / 1e3);
        ramp_s.get_or_insert(whole_s.min(ttft_s + decode_s(demand, slo)));
    }
    // A profile has as many requests as its recording, a series as many as it is expected to bring.
    let whole =
        matches!(arrivals, Arrivals::Profile { .. } | Arrivals::Series { .. }).then(|| workload.total());
    let fewest = asked.unwrap_or(REQUESTS.max(workload.requests.or(whole).unwrap_or(0)));
    Workload { requests: Some(fewest.max(enough(demand, slo))), arrivals, ..workload.clone() }
}

/// The workload of `spec` with the number of requests that a verdict on its SLO needs: its own number or else
/// [`REQUESTS`], and enough to show a growing queue. Users begin one after another.
///
/// # Errors
/// The spec has no workload, or a workload whose requests cannot be drawn.
pub fn judged_load(spec: &Spec, place: &str) -> Result<Workload> {
    let missing =
        || Error::field(place, "workload", "missing", "[workload] with arrivals, input_len and output_len");
    let workload = spec.workload.as_ref().ok_or_else(missing)?;
    let demand = TrafficDemand::of(workload, place)?;
    // The SLO that gives a request the longest time, so that every class is judged.
    let slos = workload.classes.iter().map(|class| class.slo).chain([spec.slo]).filter(Slo::is_bounded);
    let slowest = slos.max_by(|a, b| decode_s(&demand, a).total_cmp(&decode_s(&demand, b)));
    Ok(lengthened(workload, &demand, &slowest.unwrap_or(spec.slo), workload.requests))
}

/// `workload` lengthened as by [`lengthened`], but with half of the requests if these suffice, because probabilities
/// need less precision.
pub(super) fn shortened(workload: &Workload, demand: &TrafficDemand, slo: &Slo) -> Workload {
    let half = |requests: u64| (requests / 2).max(enough(demand, slo)).min(requests);
    Workload { requests: workload.requests.map(half), ..workload.clone() }
}

/// Longest decode time of a request within `slo`, in seconds.
fn decode_s(demand: &TrafficDemand, slo: &Slo) -> f64 {
    let tpot_s = slo.of_a_request(Metric::Tpot).map_or(USUAL_TPOT_S, |ms| ms / 1e3);
    let whole_s = slo.of_a_request(Metric::E2el).map_or(f64::INFINITY, |ms| ms / 1e3);
    whole_s.min(tpot_s * demand.output)
}

/// True if no bound can be missed: users wait for their answers, and latencies have no bounds.
pub(super) fn is_certain(demand: &TrafficDemand, slo: &Slo) -> bool {
    demand.users.is_some() && slo.bounds().next().is_none()
}

/// Number of requests that arrive during [`DECODES`] decode times; for users whose requests have bounds, [`DECODES`]
/// requests each.
fn enough(demand: &TrafficDemand, slo: &Slo) -> u64 {
    let for_growth = demand.rate.map_or(0.0, |rate| rate * decode_s(demand, slo) * DECODES);
    let users = demand.users.filter(|_| !is_certain(demand, slo));
    let for_users = users.map_or(0, |users| users * DECODES as u64);
    (for_growth as u64).max(for_users).min(MOST_REQUESTS)
}

/// The reason why a run misses `slo` or the SLO of a class; `None` if it meets all of them.
pub fn missed(run: &Result<Simulation>, slo: &Slo) -> Option<Miss> {
    let miss = |reason: String, factor: f64| Some(Miss { stage: SearchStage::Simulation, reason, factor });
    let run = match run {
        Ok(run) => run,
        Err(error @ Error::Stuck { .. }) => return miss(error.to_string(), f64::INFINITY),
        Err(error) => return miss(error.to_string(), f64::INFINITY),
    };
    let class_miss = |class: &ClassResults| {
        let miss = missed_by(class.requests, &class.summary, &class.slo, false)?;
        Some(Miss { reason: format!("{}: {}", class.name, miss.reason), ..miss })
    };
    missed_by(run.requests, &run.summary, slo, run.ended_early)
        .or_else(|| run.classes.iter().find_map(class_miss))
        .or_else(|| grows(run))
}

/// The bound of `slo` that a run of `requests` requests misses, or its share of refusals; `None` if it meets `slo`.
/// `ended_early` is true if the run ended because a bound was certain to be missed.
fn missed_by(requests: u64, summary: &RunSummary, slo: &Slo, ended_early: bool) -> Option<Miss> {
    let miss = |reason: String, factor: f64| Some(Miss { stage: SearchStage::Simulation, reason, factor });
    if let Some(needed) = slo.needed(requests) {
        let good = summary.good.unwrap_or(summary.completed);
        let share = |n: u64| n as f64 / requests.max(1) as f64 * 100.0;
        if ended_early {
            let tolerated = 100.0 - share(needed);
            return miss(format!("more than {tolerated:.1} % of the requests miss a bound"), 1.0);
        }
        if good >= needed {
            return None;
        }
        let reason =
            format!("{:.1} % of the requests keep every bound, {:.1} % must", share(good), share(needed));
        return miss(reason, needed as f64 / good.max(1) as f64);
    }
    if summary.failed * 100 > requests {
        return miss(format!("{} of {requests} requests are refused", summary.failed), f64::INFINITY);
    }
    let worst = beyond(summary, slo);
    if let Some((bound, found)) = worst.filter(|(bound, found)| *found > bound.ms) {
        let early = if ended_early { " when the run was ended" } else { "" };
        // Show hundredths if whole milliseconds would be equal.
        let digits = if found.round() == bound.ms.round() { 2 } else { 0 };
        let reason =
            format!("{} {found:.digits$} ms{early}, {:.digits$} ms are allowed", bound.name(), bound.ms);
        return miss(reason, found / bound.ms);
    }
    if ended_early {
        return miss("more requests are beyond a bound than its percentile allows".to_owned(), 1.0);
    }
    None
}

/// True if `run` sustained its load: its queue did not grow and, unless the SLO is a goodput, at most one hundredth of
/// the requests was refused.
pub(super) fn carried(run: &Simulation, slo: &Slo) -> bool {
    let refused = run.refused + run.rejected + run.overflowed;
    grows(run).is_none() && (slo.goodput.is_some() || refused * 100 <= run.requests)
}

/// The miss if the load exceeds the rate at which `run` served requests.
fn grows(run: &Simulation) -> Option<Miss> {
    let served = run.load.stable_per_s.zip(run.load.offered_per_s).filter(|_| run.load.overloaded);
    served.map(|(stable, offered)| {
        let reason = format!("the queue grows: {offered:.2} requests/s come, {stable:.2} are served");
        Miss { stage: SearchStage::Simulation, reason, factor: offered / stable.max(f64::MIN_POSITIVE) }
    })
}

/// The distance to the nearest bound; `None` without bounds.
pub(super) fn headroom(run: &Simulation, slo: &Slo) -> Option<Headroom> {
    if let Some(share) = slo.goodput {
        let good = run.summary.good? as f64 / run.requests.max(1) as f64;
        return Some(Headroom { metric: GOODPUT, percentile: None, share: good / share - 1.0 });
    }
    beyond(&run.summary, slo).map(|(bound, found)| Headroom {
        metric: bound.metric.name(),
        percentile: Some(bound.percentile.name()),
        share: 1.0 - found / bound.ms,
    })
}

/// The bound that is missed by the largest factor, or else is nearest to being missed, and the value in
/// milliseconds.
fn beyond(summary: &RunSummary, slo: &Slo) -> Option<(SloBound, f64)> {
    let latencies = slo.bounds().map(|bound| (bound, summary.bounded(&bound)));
    latencies.max_by(|(a, latencies), (b, other)| (latencies / a.ms).total_cmp(&(other / b.ms)))
}
