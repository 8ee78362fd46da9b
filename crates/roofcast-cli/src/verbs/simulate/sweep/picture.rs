//! A sweep as a picture: latencies with the SLO's bounds, then throughput.

use super::{Run, about, asked};
use crate::input::dimensions::{self, Dimension, number, word};
use roofcast::report::sweep::{Look, Panel, Quantity, SweepCurve, SweepPicture, Values};
use roofcast::simulate::Simulation;
use roofcast::spec::keys::KEYS;
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
    let names: Vec<String> = runs.iter().map(|r| about(&r.deployment, &r.simulation).name()).collect();
    let same = names.iter().all(|name| Some(name) == names.first());
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
        tpot.push(curve(only, "limit of a step", 7, Look::Limit, |s| Some(s.limit_tpot_ms)));
    }
    let rates = each(&groups, "output tokens/s", Look::Points, |s| Some(s.summary.output_throughput()));
    let mut requests = each(&groups, "served", Look::Points, |s| Some(s.summary.request_throughput()));
    requests.extend(match groups.as_slice() {
        [only] => vec![curve(only, "within the SLO", 1, Look::Dashed, |s| s.summary.request_goodput())],
        _ => each(&groups, "within the SLO", Look::Dashed, |s| s.summary.request_goodput()),
    });
    let slo = |metric: Metric| {
        let bounds: Option<Vec<SloBound>> = runs.iter().map(|run| run.slo.of(metric).next()).collect();
        let bounds = bounds.filter(|all| all.iter().all(|v| Some(v) == all.first()))?;
        bounds.first().copied()
    };
    let panel =
        |title: &str, quantity, curves, most| Panel { title: title.to_owned(), quantity, curves, most };
    SweepPicture {
        title: if same {
            names.first().cloned().unwrap_or_default()
        } else {
            format!("Sweep of {}", shorts.join(", "))
        },
        note: asked(runs).iter().map(|(name, said)| format!("{name}: {said}")).collect::<Vec<_>>().join("; "),
        key: titled(key),
        values,
        panels: vec![
            panel(
                "time to first token",
                Quantity::Time,
                latency(&groups, |s| [s.ttft.median, s.ttft.p99]),
                slo(Metric::Ttft),
            ),
            panel("time per output token", Quantity::Time, tpot, slo(Metric::Tpot)),
            panel("requests a second", Quantity::Count, requests, None),
            panel("output tokens a second", Quantity::Count, rates, None),
        ],
    }
}

/// The key with the first words of its meaning, which name its unit: `rate: requests per second`.
fn titled(path: &str) -> String {
    let short = path.rsplit('.').next().unwrap_or(path);
    let about = KEYS.iter().find(|key| key.path == path).map(|key| key.about);
    let words = about.and_then(|about| about.split([',', ';', '[']).next()).map(str::trim);
    words.map_or_else(|| path.to_owned(), |words| format!("{short}: {words}"))
}

/// The runs, grouped by their values in all dimensions except the x axis.
fn groups<'a>(dimensions: &[Dimension], runs: &'a [Run], axis: usize) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for run in runs {
        let name = dimensions::beside(dimensions, &run.values, axis);
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { name, series: groups.len() % SERIES, runs: vec![run] }),
        }
    }
    groups
}

/// Number of colours for series; the colour after them is the limits'.
const SERIES: usize = 7;

fn curve(
    group: &Group,
    name: &str,
    series: usize,
    look: Look,
    of: fn(&Simulation) -> Option<f64>,
) -> SweepCurve {
    SweepCurve::new(name, series, look, group.runs.iter().map(|run| of(&run.simulation)))
}

/// One curve of the value `of` for each group.
fn each(groups: &[Group], name: &str, look: Look, of: fn(&Simulation) -> Option<f64>) -> Vec<SweepCurve> {
    let named = |group: &Group| {
        if group.name.is_empty() { name.to_owned() } else { format!("{}, {name}", group.name) }
    };
    groups.iter().map(|group| curve(group, &named(group), group.series, look, of)).collect()
}

/// Curves of the median and the 99th percentile of a latency for each group.
fn latency(groups: &[Group], of: fn(&RunSummary) -> [f64; 2]) -> Vec<SweepCurve> {
    let one = |group: &Group| {
        let at = |index: usize| group.runs.iter().map(move |run| Some(of(&run.simulation.summary)[index]));
        match group.name.as_str() {
            "" => [
                SweepCurve::new("p50", 0, Look::Points, at(0)),
                SweepCurve::new("p99", 1, Look::Dashed, at(1)),
            ],
            name => [
                SweepCurve::new(&format!("{name}, p50"), group.series, Look::Points, at(0)),
                SweepCurve::new(&format!("{name}, p99"), group.series, Look::Dashed, at(1)),
            ],
        }
    };
    groups.iter().flat_map(one).collect()
}
