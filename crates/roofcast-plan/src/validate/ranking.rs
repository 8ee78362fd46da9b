//! Quality of a plan's first choice, for sweeps in which all candidates were measured.
//!
//! Knows: a sweep is the set of points that one source measured for one model on one chip under one closed-loop load,
//! with at least two configurations. At the interactivity (output tokens per second of one user) that half of the
//! sweep's points reach, the first choice is the point with the most forecast output tokens per second per accelerator
//! among the points that are forecast to reach this interactivity. The choice is compared with the highest throughput
//! that was measured at the choice's own measured interactivity or more. Between disaggregated pools and replicas that
//! do both phases, the side with the highest throughput at an interactivity is chosen likewise. Knows nothing about how
//! points are forecast.

use super::RowForecast;
use crate::measurement::{Lengths, Measurement, MeasurementKind, Metrics};
use roofcast_ask::spec::PoolSpec;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Fraction of the best throughput from which a choice counts as good.
const CLOSE_TO_BEST: f64 = 0.95;

/// Quality of the first choices over all sweeps.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankingQuality {
    /// Results of each sweep.
    pub sweeps: Vec<MeasuredSweep>,
    /// Fraction of sweeps whose first choice reaches at least 95 % of the best throughput.
    pub share: f64,
    /// The fraction that random choices among the points that reach the interactivity would achieve.
    pub at_random: f64,
    /// Results for each model, chip and load that was measured both with disaggregated pools and without.
    pub sides: Vec<PoolComparison>,
    /// Fraction of choices between the two sides that agree with the measurements; `None` without choices.
    pub sides_share: Option<f64>,
    /// Number of omitted disaggregated points by reason; suspected speculative decoding is one reason.
    pub left_out: BTreeMap<String, u64>,
}

/// One sweep, and the first choice in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasuredSweep {
    /// Source, model, accelerator and lengths.
    pub sweep: String,
    /// Number of configurations that were measured.
    pub configurations: u64,
    /// Number of measured points.
    pub points: u64,
    /// Required interactivity, in output tokens per second of one user.
    pub interactivity_tok_s: f64,
    /// The configuration that is ranked first.
    pub first: String,
    /// The configuration with the most measured tokens per second per accelerator at this interactivity.
    pub best: String,
    /// Measured tokens per second per accelerator of the first choice, as a fraction of the best.
    pub reached: f64,
}

/// Comparison of disaggregated pools with replicas that do both phases.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolComparison {
    /// Model, accelerator, formats and lengths.
    pub load: String,
    /// Number of interactivities at which a side is chosen.
    pub decisions: u64,
    /// Number of choices in which the forecast prefers the side that was measured to be better.
    pub agree: u64,
    /// Number of choices in which disaggregated pools were measured to be better.
    pub apart: u64,
}

/// A point by its two axes, each measured and forecast.
#[derive(Debug, Clone)]
struct Axes {
    configuration: String,
    /// Output tokens per second of one user.
    interactivity: [f64; 2],
    /// Output tokens per second per accelerator.
    throughput: [f64; 2],
}

const MEASURED: usize = 0;
const FORECAST: usize = 1;

/// Interactivity and throughput per accelerator of `users` users in a closed loop.
fn axes(m: &Metrics, users: f64, output: f64, accelerators: f64) -> Option<(f64, f64)> {
    let tpot = m.tpot_ms.filter(|ms| *ms > 0.0)?;
    let e2e = m.e2e_ms.or_else(|| Some(m.ttft_ms? + tpot * (output - 1.0)))?;
    let rate = m.output_tok_s.unwrap_or(users * output / e2e * 1e3);
    Some((1e3 / tpot, rate / accelerators))
}

impl Axes {
    fn new(
        configuration: String,
        (measured, forecast): (&Metrics, &Metrics),
        load: (f64, f64, f64),
    ) -> Option<Axes> {
        let (users, output, accelerators) = load;
        // Use only metrics that were measured; the forecast has all metrics.
        let comparable = Metrics {
            e2e_ms: forecast.e2e_ms.filter(|_| measured.e2e_ms.is_some()),
            output_tok_s: forecast.output_tok_s.filter(|_| measured.output_tok_s.is_some()),
            ..*forecast
        };
        let [m, f] = [measured, &comparable].map(|m| axes(m, users, output, accelerators));
        let m = m?;
        let f = f?;
        Some(Axes { configuration, interactivity: [m.0, f.0], throughput: [m.1, f.1] })
    }

    fn of(point: &RowForecast) -> Option<Axes> {
        let row = point.row;
        let accelerators = accelerators(row)? as f64;
        let load = (row.concurrency? as f64, row.output?.mean(), accelerators);
        Axes::new(configuration(row), (&row.measured, point.forecast.as_ref().ok()?), load)
    }
}

/// Number of accelerators of a row; the sum over both pools if the row is disaggregated.
fn accelerators(row: &Measurement) -> Option<u64> {
    let Some(pools) = &row.pools else { return row.parallelism.count };
    let ranks = |p: &PoolSpec| {
        [p.replicas, p.tp, p.pp, p.attention_dp].map(|n| n.unwrap_or(1)).iter().product::<u64>()
    };
    Some(pools.iter().map(ranks).sum())
}

fn configuration(row: &Measurement) -> String {
    let p = row.parallelism;
    let mut text = format!("{} {} {}", row.engine, row.version, row.weights);
    for (name, n) in [("gpus", p.count), ("tp", p.tp), ("pp", p.pp), ("ep", p.ep), ("dp", p.attention_dp)] {
        if let Some(n) = n.filter(|n| *n > 1 || name == "gpus") {
            text += &format!(" {name} {n}");
        }
    }
    text
}

/// The point with the highest throughput among the points that reach interactivity `least`; `by` selects measured or
/// forecast values.
fn best(points: &[Axes], by: usize, least: f64) -> Option<&Axes> {
    let reach = points.iter().filter(|p| p.interactivity[by] >= least);
    reach.max_by(|a, b| a.throughput[by].total_cmp(&b.throughput[by]))
}

/// Measured throughput of `point`, as a fraction of the highest at the point's measured interactivity.
fn reached(points: &[Axes], point: &Axes) -> f64 {
    let best_point = best(points, MEASURED, point.interactivity[MEASURED]).unwrap_or(point);
    point.throughput[MEASURED] / best_point.throughput[MEASURED].max(f64::MIN_POSITIVE)
}

fn lengths(row: &Measurement) -> String {
    let tokens = |l: Option<Lengths>| l.map_or_else(|| "–".to_owned(), |l| l.max.to_string());
    format!("{} in {} out", tokens(row.input), tokens(row.output))
}

/// Quality of the first choices among `points`, and of the choices between disaggregated pools and replicas that do
/// both phases.
pub fn ranking(points: &[RowForecast]) -> RankingQuality {
    let mut groups: BTreeMap<String, Vec<Axes>> = BTreeMap::new();
    let mut loads: BTreeMap<String, [Vec<Axes>; 2]> = BTreeMap::new();
    let mut left_out = BTreeMap::new();
    for point in points
        .iter()
        .filter(|p| [MeasurementKind::ClosedLoop, MeasurementKind::Disaggregated].contains(&p.row.kind))
    {
        let row = point.row;
        if let Some(reason) = unusable(point) {
            *left_out.entry(reason).or_default() += 1;
            continue;
        }
        let Some(axes) = Axes::of(point) else { continue };
        let load = format!("{} | {}", row.model, row.hardware);
        if row.pools.is_some() {
            loads.entry(format!("{load} | {} | {}", row.weights, lengths(row))).or_default()[1].push(axes);
            continue;
        }
        groups.entry(format!("{} | {load} | {}", row.source, lengths(row))).or_default().push(axes.clone());
        loads.entry(format!("{load} | {} | {}", row.weights, lengths(row))).or_default()[0].push(axes);
    }
    let sweeps: Vec<(MeasuredSweep, f64)> =
        groups.into_iter().filter_map(|(name, points)| sweep(name, &points)).collect();
    let count = sweeps.len().max(1) as f64;
    let enough = sweeps.iter().filter(|(sweep, _)| sweep.reached >= CLOSE_TO_BEST).count() as f64;
    let at_random = sweeps.iter().map(|(_, random)| random).sum::<f64>() / count;
    let sides: Vec<PoolComparison> = loads.into_iter().filter_map(|(load, both)| side(load, &both)).collect();
    let decisions: u64 = sides.iter().map(|s| s.decisions).sum();
    let agree: u64 = sides.iter().map(|s| s.agree).sum();
    RankingQuality {
        share: enough / count,
        at_random,
        sweeps: sweeps.into_iter().map(|(sweep, _)| sweep).collect(),
        sides,
        sides_share: (decisions > 0).then(|| agree as f64 / decisions as f64),
        left_out,
    }
}

/// Reason why a disaggregated point does not count; `None` if it counts.
fn unusable(point: &RowForecast) -> Option<String> {
    point.row.pools.as_ref()?;
    if point.is_drafted() {
        return Some("it looks as if it ran with speculation".to_owned());
    }
    point.forecast.as_ref().err().cloned()
}

/// The first choice in one sweep, and the probability that a random choice is good; `None` if there are fewer than two
/// configurations.
fn sweep(name: String, points: &[Axes]) -> Option<(MeasuredSweep, f64)> {
    let configurations: BTreeSet<&str> = points.iter().map(|p| p.configuration.as_str()).collect();
    if configurations.len() < 2 {
        return None;
    }
    let mut measured: Vec<f64> = points.iter().map(|p| p.interactivity[MEASURED]).collect();
    measured.sort_by(f64::total_cmp);
    let middle = *measured.get((measured.len() - 1) / 2)?;
    let fastest =
        || points.iter().max_by(|a, b| a.interactivity[FORECAST].total_cmp(&b.interactivity[FORECAST]));
    let first = best(points, FORECAST, middle).or_else(fastest)?;
    let best_measured = best(points, MEASURED, first.interactivity[MEASURED])?;
    let reach: Vec<&Axes> = points.iter().filter(|p| p.interactivity[MEASURED] >= middle).collect();
    let good = reach.iter().filter(|p| reached(points, p) >= CLOSE_TO_BEST).count();
    let sweep = MeasuredSweep {
        sweep: name,
        configurations: configurations.len() as u64,
        points: points.len() as u64,
        interactivity_tok_s: middle,
        first: first.configuration.clone(),
        best: best_measured.configuration.clone(),
        reached: reached(points, first),
    };
    Some((sweep, good as f64 / reach.len().max(1) as f64))
}

/// Choices at every interactivity at which disaggregated pools were measured; `None` if one side is missing.
fn side(load: String, [together, apart]: &[Vec<Axes>; 2]) -> Option<PoolComparison> {
    if together.is_empty() || apart.is_empty() {
        return None;
    }
    let better = |by: usize, least: f64| {
        let most_throughput = |points: &[Axes]| best(points, by, least).map_or(0.0, |p| p.throughput[by]);
        most_throughput(apart) > most_throughput(together)
    };
    let mut side = PoolComparison { load, decisions: 0, agree: 0, apart: 0 };
    for asked in apart.iter().map(|p| p.interactivity[MEASURED]) {
        let measured = better(MEASURED, asked);
        side.decisions += 1;
        side.apart += u64::from(measured);
        side.agree += u64::from(measured == better(FORECAST, asked));
    }
    Some(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, measured: (f64, f64), forecast: (f64, f64)) -> Axes {
        Axes {
            configuration: name.to_owned(),
            interactivity: [measured.0, forecast.0],
            throughput: [measured.1, forecast.1],
        }
    }

    /// Half of the points reach 50 tokens per second. Points b (1000) and c (900) are forecast to reach it: b is first.
    /// At b's measured interactivity of 60 the highest throughput is b's own 800, so that the choice reaches 100 %. If
    /// b were measured at 700, c with 760 at 60 would be better: 700/760 = 0.921.
    #[test]
    fn a_choice_is_held_against_the_best_at_its_own_interactivity() {
        let a = point("a", (40.0, 2000.0), (45.0, 2100.0));
        let b = |tokens| point("b", (60.0, tokens), (55.0, 1000.0));
        let c = point("c", (60.0, 760.0), (70.0, 900.0));
        let d = point("c", (50.0, 900.0), (49.0, 950.0));
        let (first, _) = sweep("s".into(), &[a.clone(), b(800.0), c.clone(), d.clone()]).unwrap();
        assert_eq!((first.first.as_str(), first.interactivity_tok_s, first.reached), ("b", 50.0, 1.0));
        let (first, random) = sweep("s".into(), &[a, b(700.0), c, d]).unwrap();
        assert_eq!((first.best.as_str(), first.configurations), ("c", 3));
        assert!((first.reached - 700.0 / 760.0).abs() < 1e-12);
        // Three points reach 50, and b is not good: c is the best both at 60 and, with its other point, at 50.
        assert!((random - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn one_configuration_is_no_choice() {
        let only_point = point("a", (40.0, 2000.0), (45.0, 2100.0));
        assert!(sweep("s".into(), &[only_point.clone(), only_point]).is_none());
    }

    /// At 50, pools have a measured throughput of 300 against 400; at 80 only pools remain. In the forecast pools have
    /// less at both.
    #[test]
    fn sides_are_chosen_at_every_interactivity_of_the_pools() {
        let together = vec![point("t", (60.0, 400.0), (90.0, 500.0))];
        let apart = vec![point("x", (50.0, 300.0), (50.0, 400.0)), point("y", (80.0, 200.0), (80.0, 100.0))];
        let side = side("l".into(), &[together, apart]).unwrap();
        assert_eq!((side.decisions, side.apart, side.agree), (2, 1, 1));
    }

    /// 8 users of 101 tokens, each with a first token after 1 s and 10 ms per further token: 2 s each, so 8 · 101 / 2 =
    /// 404 tokens per second, 101 on each of 4 accelerators.
    #[test]
    fn throughput_follows_from_latency_in_a_closed_loop() {
        let m = Metrics { ttft_ms: Some(1000.0), tpot_ms: Some(10.0), ..Metrics::default() };
        assert_eq!(axes(&m, 8.0, 101.0, 4.0), Some((100.0, 101.0)));
    }
}
