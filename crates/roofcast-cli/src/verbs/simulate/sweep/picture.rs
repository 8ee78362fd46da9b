//! A sweep as a picture: latencies with the SLO's bounds, then throughput.

use super::rows::asked;
use super::{Run, about};
use crate::input::dimensions::{self, Dimension, number, word};
use crate::verbs::{About, sweep_title};
use roofcast::report::sweep::{Look, Panel, Quantity, SweepCurve, SweepPicture, Values};
use roofcast::simulate::Simulation;
use roofcast::spec::{Metric, SloBound};
use roofcast::summary::RunSummary;

/// Runs that differ only in their value on the x axis.
struct Group<'a> {
    /// Name of the curve, as in `tp 2`; empty if there is only one.
    name: String,
    series: usize,
    runs: Vec<&'a Run>,
}

/// The picture of a sweep. The x axis is the last numeric dimension, or else the last dimension; each combination of
/// the others is a series.
pub(super) fn of(dimensions: &[Dimension], runs: &[Run]) -> SweepPicture {
    let abouts: Vec<About> = runs.iter().map(|r| about(&r.deployment, &r.simulation)).collect();
    let axis = dimensions::axis(dimensions);
    let shorts: Vec<&str> = dimensions.iter().map(Dimension::short).collect();
    let (key, along) = dimensions.get(axis).map_or(("", [].as_slice()), |d| (d.path.as_str(), &d.values));
    let values = match along.iter().map(number).collect() {
        Some(numbers) => Values::Numbers(numbers),
        None => Values::Names(along.iter().map(word).collect()),
    };
    let groups = groups(dimensions, runs, axis);
    let mut tpot = latency(&groups, |s| [s.tpot.median, s.tpot.p99]);
    if let [only] = groups.as_slice() {
        tpot.push(curve(only, "limit of a step", LIMIT, Look::Limit, |s| Some(s.limit_tpot_ms)));
    }
    let rates = each(&groups, "", Look::Points, |s| Some(s.summary.output_throughput()));
    let mut requests = each(&groups, "served", Look::Points, |s| Some(s.summary.request_throughput()));
    let judged = runs.iter().any(|run| run.simulation.summary.request_goodput().is_some());
    if judged {
        let good = |s: &Simulation| s.summary.request_goodput();
        requests.extend(match groups.as_slice() {
            [only] => vec![curve(only, "within the SLO", 1, Look::Dashed, good)],
            // The title of the axis says what is dashed.
            all => all.iter().map(|group| curve(group, "", group.series, Look::Dashed, good)).collect(),
        });
    }
    let slo = |metric: Metric| {
        let bounds: Option<Vec<SloBound>> = runs.iter().map(|run| run.slo.of(metric).next()).collect();
        let bounds = bounds.filter(|all| all.iter().all(|v| Some(v) == all.first()))?;
        bounds.first().copied()
    };
    // With several series, the legend names each once, and the titles say what is dashed.
    let title = |title: &str, dashed: Option<&str>| match dashed.filter(|_| groups.len() > 1) {
        Some(dashed) => format!("{title}; {dashed}"),
        None => title.to_owned(),
    };
    let quantiles = Some("p50, dashed: p99");
    let good = judged.then_some("dashed: within the SLO");
    let panel = |name: &str, dashed, quantity, curves, most| Panel {
        title: title(name, dashed),
        quantity,
        curves,
        most,
    };
    SweepPicture {
        title: sweep_title(&abouts, &shorts),
        note: asked(runs).iter().map(|(name, said)| format!("{name}: {said}")).collect::<Vec<_>>().join("; "),
        key: dimensions::titled(key, &[]),
        values,
        panels: vec![
            panel(
                "time to first token",
                quantiles,
                Quantity::Time,
                latency(&groups, |s| [s.ttft.median, s.ttft.p99]),
                slo(Metric::Ttft),
            ),
            panel("time per output token", quantiles, Quantity::Time, tpot, slo(Metric::Tpot)),
            panel("requests a second", good, Quantity::Count, requests, None),
            panel("output tokens a second", None, Quantity::Count, rates, None),
        ],
    }
}

/// The runs, grouped by their values in all dimensions except the x axis.
fn groups<'a>(dimensions: &[Dimension], runs: &'a [Run], axis: usize) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for run in runs {
        let name = dimensions::beside(dimensions, &run.values, axis);
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { name, series: groups.len(), runs: vec![run] }),
        }
    }
    groups
}

/// Series of the limit of the only group: the last colour.
const LIMIT: usize = 7;

fn curve(
    group: &Group,
    name: &str,
    series: usize,
    look: Look,
    of: fn(&Simulation) -> Option<f64>,
) -> SweepCurve {
    SweepCurve::new(name, series, look, group.runs.iter().map(|run| of(&run.simulation)))
}

/// One curve of the value `of` for each group; the only group has the name `name`.
fn each(groups: &[Group], name: &str, look: Look, of: fn(&Simulation) -> Option<f64>) -> Vec<SweepCurve> {
    let named = |group: &Group| if group.name.is_empty() { name.to_owned() } else { group.name.clone() };
    groups.iter().map(|group| curve(group, &named(group), group.series, look, of)).collect()
}

/// Curves of the median and the 99th percentile of a latency for each group.
fn latency(groups: &[Group], of: fn(&RunSummary) -> [f64; 2]) -> Vec<SweepCurve> {
    let curves_of = |group: &Group| {
        let at = |index: usize| group.runs.iter().map(move |run| Some(of(&run.simulation.summary)[index]));
        match group.name.as_str() {
            "" => [
                SweepCurve::new("p50", 0, Look::Points, at(0)),
                SweepCurve::new("p99", 1, Look::Dashed, at(1)),
            ],
            name => [
                SweepCurve::new(name, group.series, Look::Points, at(0)),
                SweepCurve::new("", group.series, Look::Dashed, at(1)),
            ],
        }
    };
    groups.iter().flat_map(curves_of).collect()
}
