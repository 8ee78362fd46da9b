//! The probability that a deployment meets the SLO, given the error bands of forecasts.
//!
//! Knows: one factor of measured over forecast applies to the times of all steps of a run; it is log-normal with the
//! median 1 and the width of the TPOT's interval for the class of load ([`roofcast_cost::coefficients::Band`]), in open loops that
//! of closed loops, because the run itself lengthens its queues. A run is simulated again at
//! the quantile of the required probability and, if it meets the SLO there, at those [`QUANTILES`] that are not known, so that
//! queues grow with the step times. Between simulated quantiles the logarithm of a latency over its bound is linear in the normal
//! deviate z of the factor. The part of the bands of TTFT and E2EL that exceeds the band of steps, and the variation of
//! a percentile over seeds, add a log-normal factor:
//!
//! `chance = ∫ φ(z) · min over bounds Φ(−(ln(latency(z) / bound) + m) / s) dz`
//!
//! with middle m and deviation s of the added factors; 0 above the midpoint between the last quantile at which the load
//! is sustained and the first at which it is not. Knows nothing about the order of the search.

mod case;

use super::proof::carried;
use super::space::Candidate;
pub(super) use case::Case;
use roofcast_ask::spec::{Metric, Slo, SloBound, Spec};
use roofcast_ask::workload::{DEFAULT_REQUESTS, Workload};
use roofcast_cost::bands::class;
use roofcast_cost::coefficients::{Load, Widths, Z90};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::error::Result;
use roofcast_sim::simulate::Simulation;
use std::sync::LazyLock;

/// Quantiles of the step-time band that are simulated for a promising deployment, as normal deviates: 10th, 50th and
/// 90th percentile.
const QUANTILES: [f64; 3] = [-Z90, 0.0, Z90];
/// Number of seeds that are simulated in addition to the proof's.
pub(super) const SEEDS: u64 = 4;
/// Half of the range of the integral, in normal deviates; `STEP` is its step.
const REACH: f64 = 4.0;
const STEP: f64 = 0.01;
/// Logarithm of the largest factor on a bound at which the end of an interval is searched.
const WIDEST: f64 = 12.0;

/// A log-normal factor on times.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Factor {
    /// Mean of the factor's logarithm.
    middle: f64,
    /// Standard deviation of the factor's logarithm.
    deviation: f64,
}

impl Factor {
    /// The factor with the median 1 and this 90th percentile.
    fn of(width: f64) -> Factor {
        Factor { middle: 0.0, deviation: libm::log(width) / Z90 }
    }

    /// Value of the factor at the normal deviate `z`.
    fn at(self, z: f64) -> f64 {
        libm::exp(self.middle + z * self.deviation)
    }

    /// Normal deviate of the factor 1, which is the forecast; `None` if the factor is constant.
    fn own(self) -> Option<f64> {
        (self.deviation > 0.0).then(|| -self.middle / self.deviation)
    }

    /// The independent factor whose product with `inner` is this factor; constant if `inner` is wider.
    fn over(self, inner: Factor) -> Factor {
        let left = self.deviation.powi(2) - inner.deviation.powi(2);
        Factor { middle: self.middle - inner.middle, deviation: left.max(0.0).sqrt() }
    }
}

/// Uncertainty of a deployment's forecast, from its bands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Doubt {
    /// Ratio of measured to forecast step times.
    step: Factor,
    /// For each bound, the ratio of measured to forecast latencies, given the measured step times.
    beyond: Vec<Factor>,
}

impl Doubt {
    /// The uncertainty of `forecaster`'s forecasts under `load`, from the bands of its calibration; `None` without bands.
    pub(super) fn of(forecaster: &Forecaster, slo: &Slo, load: Load) -> Option<Doubt> {
        let load = if load == Load::OpenLoop { Load::ClosedLoop } else { load };
        let prompt_widths = forecaster.coefficients.band?.widths(load);
        let other = forecaster.elsewhere().coefficients.band?.widths(load);
        let widest = |of: fn(&Widths) -> f64| Factor::of(of(&prompt_widths).max(of(&other)));
        let step = widest(|widths| widths.tpot);
        let doubt_of = |bound: SloBound| match bound.metric {
            Metric::Ttft => widest(|widths| widths.ttft).over(step),
            Metric::Tpot | Metric::Itl => Factor::default(),
            Metric::E2el => widest(|widths| widths.e2e).over(step),
        };
        let beyond = match slo.goodput {
            Some(_) => vec![Factor::default()],
            None => slo.bounds().map(doubt_of).collect(),
        };
        Some(Doubt { step, beyond })
    }

    /// Factor on step times that measured step times do not exceed with probability `share`.
    pub(super) fn step_at(&self, share: f64) -> f64 {
        self.step.at(deviate(share))
    }
}

/// Class of the load of `spec`.
pub(super) fn load(spec: &Spec) -> Load {
    let class_of = |workload: &Workload| class(workload, workload.requests.unwrap_or(DEFAULT_REQUESTS));
    match &spec.workload {
        _ if spec.fleet.prefill.is_some() => Load::Disaggregated,
        Some(workload) => class_of(workload),
        None => Load::ClosedLoop,
    }
}

/// 10th and 90th percentile of measured over forecast step times; `None` without bands.
pub fn step_band(forecaster: &Forecaster) -> Option<[f64; 2]> {
    let doubt = Doubt::of(forecaster, &Slo::default(), Load::ClosedLoop)?;
    Some([-Z90, Z90].map(|z| doubt.step.at(z)))
}

/// Results of a run whose step times are multiplied by one factor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChanceRun {
    /// Normal deviate of the factor.
    z: f64,
    /// For each bound, the logarithm of latency over bound.
    excess: Vec<f64>,
    /// True if the load was sustained for as long as the run lasted.
    carried: bool,
}

impl ChanceRun {
    pub(super) fn of(z: f64, run: &Result<Simulation>, slo: &Slo) -> ChanceRun {
        let bounds = slo.goodput.map_or_else(|| slo.bounds().count(), |_| 1);
        match run {
            Ok(run) if !run.ended_early => {
                ChanceRun { z, excess: excess(run, slo), carried: carried(run, slo) }
            }
            // In a run that ended early, the bound that was certain to be missed is also exceeded among the requests so
            // far, unless requests were refused instead.
            Ok(run) => {
                let excess = excess(run, slo);
                let carried = excess.iter().any(|excess| *excess >= 0.0);
                ChanceRun { z, excess, carried }
            }
            Err(_) => ChanceRun { z, excess: vec![0.0; bounds], carried: false },
        }
    }

    fn meets(&self) -> bool {
        self.carried && self.excess.iter().all(|excess| *excess <= 0.0)
    }
}

/// For each bound, the logarithm of latency over bound; for a goodput, the logarithm of the required over the actual
/// number of good requests.
pub(super) fn excess(run: &Simulation, slo: &Slo) -> Vec<f64> {
    let ln = |ratio: f64| libm::log(ratio.max(f64::MIN_POSITIVE));
    if let Some(needed) = slo.needed(run.requests) {
        let good = run.summary.good.unwrap_or(run.summary.completed);
        return vec![ln(needed as f64 / good.max(1) as f64)];
    }
    slo.bounds().map(|bound| ln(run.summary.bounded(&bound) / bound.ms)).collect()
}

/// Results of a deployment at quantiles of its step times, and with other seeds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outlook {
    /// Runs in order of z. The excess at a larger z is never below the excess at a smaller one.
    points: Vec<ChanceRun>,
    /// For each bound, the factor in addition to the factor on step times.
    beyond: Vec<Factor>,
    /// Fraction of the seeds with which the load was sustained.
    sustained: f64,
    /// For each bound, the lowest and highest milliseconds over seeds; `None` if only one seed was simulated.
    pub(super) seeds: Option<Vec<[f64; 2]>>,
}

impl Outlook {
    fn new(mut points: Vec<ChanceRun>, beyond: Vec<Factor>) -> Outlook {
        points.sort_by(|a, b| a.z.total_cmp(&b.z));
        for at in 1..points.len() {
            let (below, here) = points.split_at_mut(at);
            let Some((low, high)) = below.last().zip(here.first_mut()) else { continue };
            let risen = high.excess.iter_mut().zip(&low.excess);
            risen.for_each(|(high, low)| *high = high.max(*low));
        }
        Outlook { points, beyond, sustained: 1.0, seeds: None }
    }

    /// Adds the variation over seeds: `others` are runs with other seeds, `own` are the excesses of the proof's seed.
    pub(super) fn varied(&mut self, own: &[f64], others: &[ChanceRun], slo: &Slo) {
        let all = others.len() as f64 + 1.0;
        let carried: Vec<&ChanceRun> = others.iter().filter(|point| point.carried).collect();
        self.sustained = (carried.len() as f64 + 1.0) / all;
        let mut spans = Vec::new();
        for (bound, beyond) in self.beyond.iter_mut().enumerate() {
            let values: Vec<f64> =
                own.get(bound).copied().into_iter().chain(carried.iter().map(|p| p.excess[bound])).collect();
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
            beyond.deviation = (beyond.deviation.powi(2) + variance).sqrt();
            // Shift by the mean over seeds, because the proof's seed may be a lucky one.
            beyond.middle += mean - own[bound];
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            spans.push([low, high].map(libm::exp));
        }
        let ms = slo.bounds().zip(spans).map(|(bound, span)| span.map(|share| share * bound.ms));
        self.seeds = slo.goodput.is_none().then(|| ms.collect());
    }

    /// The probability of meeting the SLO.
    pub(super) fn chance(&self) -> f64 {
        self.chance_within(1.0)
    }

    /// The probability of meeting the SLO with every bound multiplied by `factor`.
    pub(super) fn chance_within(&self, factor: f64) -> f64 {
        let looser = libm::log(factor);
        let edge = self.edge();
        let kept_at = |z: f64| {
            let each = (0..self.beyond.len()).map(|bound| self.kept(bound, z, looser));
            if z < edge { each.fold(1.0, f64::min) } else { 0.0 }
        };
        mean(kept_at) * self.sustained
    }

    /// 80 % interval of a bounded latency, as factors on its bound, over the draws that give the probability; `None` if
    /// the load is not sustained in so many of them that the latency has no 90th percentile.
    pub(super) fn interval(&self, bound: usize) -> Option<[f64; 2]> {
        let edge = self.edge();
        let below = |log: f64| mean(|z| if z < edge { self.kept(bound, z, log) } else { 0.0 });
        let quantile = |share: f64| {
            let mut low = -WIDEST;
            let mut high = WIDEST;
            if below(high) < share {
                return None;
            }
            while high - low > 1e-3 {
                let middle = f64::midpoint(low, high);
                if below(middle) < share { low = middle } else { high = middle }
            }
            Some(libm::exp(high))
        };
        Some([quantile(0.1)?, quantile(0.9)?])
    }

    /// The probability that a latency is within its bound times e^`looser`, given the normal deviate `z` of step times.
    fn kept(&self, bound: usize, z: f64, looser: f64) -> f64 {
        let beyond = &self.beyond[bound];
        let over = self.excess(bound, z) + beyond.middle - looser;
        if beyond.deviation > 0.0 { below(-over / beyond.deviation) } else { f64::from(over <= 0.0) }
    }

    /// The normal deviate above which the load is not sustained.
    fn edge(&self) -> f64 {
        match self.points.iter().position(|point| !point.carried) {
            None => f64::INFINITY,
            Some(0) => f64::NEG_INFINITY,
            Some(at) => self.points[at - 1].z.midpoint(self.points[at].z),
        }
    }

    /// The excess of a bound at `z`; linear between the simulated points and beyond the last one.
    fn excess(&self, bound: usize, z: f64) -> f64 {
        let above = self.points.iter().position(|point| point.z > z).unwrap_or(self.points.len());
        let high = above.clamp(1, self.points.len() - 1);
        let low = &self.points[high - 1];
        let high = &self.points[high];
        let rise = (high.excess[bound] - low.excess[bound]) / (high.z - low.z).max(f64::MIN_POSITIVE);
        low.excess[bound] + rise * (z - low.z)
    }
}

/// Mean of `of` over the normal deviate of step times.
fn mean(of: impl Fn(f64) -> f64) -> f64 {
    /// Normal deviates with their densities.
    static DENSITIES: LazyLock<Vec<(f64, f64)>> = LazyLock::new(|| {
        let deviates = (0..=(2.0 * REACH / STEP) as i32).map(|n| f64::from(n) * STEP - REACH);
        deviates.map(|z| (z, libm::exp(-z * z / 2.0))).collect()
    });
    let weighed: f64 = DENSITIES.iter().map(|(z, density)| density * of(*z)).sum();
    weighed / DENSITIES.iter().map(|(_, density)| density).sum::<f64>()
}

/// Φ(z), the probability of a normal deviate below `z`.
fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The normal deviate z with Φ(z) = `share`.
pub(super) fn deviate(share: f64) -> f64 {
    let mut low = -REACH;
    let mut high = REACH;
    while high - low > 1e-6 {
        let middle = f64::midpoint(low, high);
        if below(middle) < share { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// A deployment that met the SLO, the spec under which it did, and its run.
pub(super) type Met<'a> = (Candidate, &'a Spec, &'a Simulation);

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::spec::Percentile;

    fn outlook(points: &[(f64, f64)], beyond: Factor) -> Outlook {
        let point = |(z, excess): &(f64, f64)| ChanceRun { z: *z, excess: vec![*excess], carried: true };
        Outlook::new(points.iter().map(point).collect(), vec![beyond])
    }

    #[test]
    fn a_band_is_the_quantiles_of_a_factor() {
        let factor = Factor::of(1.25);
        for (share, value) in [(0.1, 0.8), (0.5, 1.0), (0.9, 1.25)] {
            assert!((factor.at(deviate(share)) - value).abs() < 1e-5, "{share}");
        }
        // A TTFT's width of 2 around a step's width of 1.25: ln 2 = 0.693 and ln 1.25 = 0.223 over 1.2816, √(0.541² −
        // 0.174²) = 0.512.
        let beyond = Factor::of(2.0).over(factor);
        assert!((beyond.deviation - 0.512).abs() < 1e-3 && beyond.middle.abs() < 1e-12);
    }

    /// With latency in proportion to step times, the chance for a band of [0.8, 1.25] is 0.1 at 1.25 times the bound,
    /// and 0.9 at 0.8 times.
    #[test]
    fn the_chance_without_a_queue_is_that_of_the_band() {
        let deviation = Factor::of(1.25).deviation;
        for (over, chance) in [(1.0_f64, 0.5), (1.25, 0.1), (0.8, 0.9)] {
            let points = QUANTILES.map(|z| (z, over.ln() + z * deviation));
            let outcome = outlook(&points, Factor::default());
            assert!((outcome.chance() - chance).abs() < 5e-3, "{over}: {}", outcome.chance());
            // The interval is the band around the latency: `over` / 1.25 to `over` · 1.25.
            let [low, high] = outcome.interval(0).unwrap();
            assert!((low / (over / 1.25) - 1.0).abs() < 1e-2 && (high / (over * 1.25) - 1.0).abs() < 1e-2);
            // With bounds 1.25 times as wide the chance of 0.1 becomes 0.5.
            if over == 1.25 {
                assert!((outcome.chance_within(1.25) - 0.5).abs() < 5e-3);
            }
        }
    }

    /// A latency that doubles from the median to the 90th percentile of step times reaches its bound halfway: Φ(0.64) =
    /// 0.739.
    #[test]
    fn a_queue_makes_the_chance_less_than_the_band_alone() {
        let bound = -0.5 * 2_f64.ln();
        let points = [(-Z90, bound - 0.1), (0.0, bound), (Z90, -bound)];
        let chance = outlook(&points, Factor::default()).chance();
        assert!((chance - below(Z90 / 2.0)).abs() < 5e-3, "{chance}");
        // If the load is not sustained at the 90th percentile, the edge is halfway as well, whatever the latency.
        let mut stuck = outlook(&[(-Z90, -1.0), (0.0, -1.0), (Z90, -1.0)], Factor::default());
        assert!(stuck.chance() > 0.999);
        stuck.points[2].carried = false;
        assert!((stuck.chance() - below(Z90 / 2.0)).abs() < 5e-3);
        // In more than a tenth of the draws the queue grows without end.
        assert_eq!(stuck.interval(0), None);
    }

    /// Three seeds of four sustain the load, with logarithms of latency over bound of -0.2 (the proof's seed), 0 and -0.1:
    /// their mean of -0.1 is 0.1 above the proof's, and their deviation √((0.01 + 0.01)/2) = 0.1. A latency that is
    /// constant in step times is within its bound with Φ((0.2 - 0.1)/0.1) = 0.8413 where the load is sustained.
    #[test]
    fn a_lucky_seed_shifts_the_chance() {
        let mut varied = outlook(&[(-1.0, -0.2), (1.0, -0.2)], Factor::default());
        let seed = |excess: f64, carried: bool| ChanceRun { z: 0.0, excess: vec![excess], carried };
        let slo = Slo::default().with(Metric::Ttft, Percentile::P99, Some(100.0));
        varied.varied(&[-0.2], &[seed(0.0, true), seed(-0.1, true), seed(3.0, false)], &slo);
        assert!((varied.chance() - 0.75 * 0.8413).abs() < 1e-3, "{}", varied.chance());
        let [least, most] = varied.seeds.unwrap()[0];
        assert!((least - 100.0 * (-0.2_f64).exp()).abs() < 1e-9 && (most - 100.0).abs() < 1e-9);
    }

    /// A forecast that is constant at its bound over e^s, with a deviation of s that step times do not explain: Φ(1) =
    /// 0.841.
    #[test]
    fn what_steps_do_not_explain_counts_by_itself() {
        let beyond = Factor { middle: 0.0, deviation: 0.2 };
        let chance = outlook(&[(-1.0, -0.2), (1.0, -0.2)], beyond).chance();
        assert!((chance - 0.8413).abs() < 1e-3, "{chance}");
    }
}
