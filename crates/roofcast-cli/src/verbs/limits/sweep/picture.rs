//! A sweep as a picture: times in the upper plot, throughput in the lower one; each compared setting, and each
//! combination of keys other than the x axis, is a curve.

use super::super::super::{About, sweep_title};
use super::point::Point;
use super::{Space, Step};
use crate::input::dimensions::{self, Dimension, number, word};
use crate::show::number::grouped;
use roofcast::report::sweep::{Look, Panel, Quantity, SweepCurve, SweepPicture, Values};
use toml::Value;

/// Series of the limit of the only group: the last colour.
const LIMIT: usize = 7;

/// Meanings of the keys of a step, with their units.
const ABOUT: [(&str, &str); 5] = [
    ("batch", "sequences that decode together"),
    ("context", "tokens of each sequence"),
    ("prefill", "tokens of a prompt"),
    ("tp", "accelerators that share each matrix"),
    ("position", "output token that the step computes"),
];

/// Points that differ only in their value on the x axis.
struct Group<'a> {
    /// Name of the curve, as in `tp 2`; empty if there is only one.
    name: String,
    points: Vec<Option<&'a Point>>,
}

/// The picture of `points`; `measured` has measured times by the value of the only key.
pub(super) fn drawn(space: &Space, points: &[Point], measured: &[(u64, f64)]) -> SweepPicture {
    let axis = dimensions::axis(&space.dimensions);
    let (key, along) =
        space.dimensions.get(axis).map_or(("", [].as_slice()), |d| (d.path.as_str(), d.values.as_slice()));
    let values = match along.iter().map(number).collect() {
        Some(numbers) => Values::Numbers(numbers),
        None => Values::Names(along.iter().map(word).collect()),
    };
    let groups = groups(space, points, axis, along);
    let what = match space.step {
        Step::Prefill => "time of a prefill",
        Step::Decode | Step::Position => "time of a decode step",
    };
    // With several groups, the legend names each once, and the titles say how a limit is drawn.
    let limit = match &values {
        _ if groups.len() < 2 => "",
        Values::Numbers(all) if all.len() > 1 => "; dotted: the limit",
        _ => "; hollow: the limit",
    };
    let panel = |title: &str, quantity, curves| Panel {
        title: format!("{title}{limit}"),
        quantity,
        curves,
        most: None,
    };
    let mut panels = vec![panel(what, Quantity::Time, times(&groups, along, measured))];
    if points.iter().all(|p| p.compared.is_empty()) {
        panels.push(panel("tokens a second", Quantity::Count, rates(&groups)));
    }
    SweepPicture {
        title: title(space),
        note: held(space),
        key: dimensions::titled(key, &ABOUT),
        values,
        panels,
    }
}

fn title(space: &Space) -> String {
    let abouts: Vec<About> = space.machines.iter().map(|m| About::of(&m.forecaster.deployment)).collect();
    sweep_title(&abouts, &space.dimensions.iter().map(Dimension::short).collect::<Vec<_>>())
}

/// Text of the values that all points have in common.
fn held(space: &Space) -> String {
    let swept = |key: &str| space.dimensions.iter().any(|d| d.path == key);
    let Some(held) = space.machines.first().map(|m| m.question) else { return String::new() };
    let part = |key: &str, text: String| if swept(key) { String::new() } else { text };
    let batch = part("batch", format!(" of batch {}", grouped(held.batch)));
    match space.step {
        Step::Prefill => "One prompt".to_owned(),
        Step::Decode => {
            let context = part("context", format!(", {} tokens of context each", grouped(held.context)));
            format!("Decode steps{batch}{context}")
        }
        Step::Position => {
            let prompt = part("prefill", format!(" behind prompts of {} tokens", grouped(held.prefill)));
            format!("Decode steps{batch}{prompt}")
        }
    }
}

fn groups<'a>(space: &Space, points: &'a [Point], axis: usize, along: &[Value]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for point in points {
        let name = dimensions::beside(&space.dimensions, &point.values, axis);
        let place = along.iter().position(|value| Some(value) == point.values.get(axis));
        if !groups.iter().any(|group| group.name == name) {
            groups.push(Group { name: name.clone(), points: vec![None; along.len()] });
        }
        if let Some(group) = groups.iter_mut().find(|group| group.name == name)
            && let Some(place) = place
        {
            group.points[place] = Some(point);
        }
    }
    groups
}

fn curve(
    group: &Group,
    name: &str,
    series: usize,
    look: Look,
    of: impl Fn(&Point) -> Option<f64>,
) -> SweepCurve {
    let name = [group.name.as_str(), name].into_iter().filter(|part| !part.is_empty());
    let name = name.collect::<Vec<_>>().join(", ");
    SweepCurve::new(&name, series, look, group.points.iter().map(|p| p.and_then(&of)))
}

/// Curves of each group and of its limit; with several groups, a limit has the colour of its group and no name.
fn with_limits(
    groups: &[Group],
    forecast: fn(&Point) -> f64,
    limit: fn(&Point) -> f64,
) -> (Vec<SweepCurve>, Vec<SweepCurve>) {
    if let [only] = groups {
        let roof = curve(only, "limit", LIMIT, Look::Limit, |p| Some(limit(p)));
        return (vec![curve(only, "forecast", 0, Look::Points, |p| Some(forecast(p)))], vec![roof]);
    }
    let each = groups.iter().enumerate();
    let forecasts = each.clone().map(|(at, group)| curve(group, "", at, Look::Points, |p| Some(forecast(p))));
    let limits = each.map(|(at, group)| {
        let values = group.points.iter().map(|p| p.map(limit));
        SweepCurve::new("", at, Look::Limit, values)
    });
    (forecasts.collect(), limits.collect())
}

fn times(groups: &[Group], along: &[Value], measured: &[(u64, f64)]) -> Vec<SweepCurve> {
    let (mut all, limits) = with_limits(groups, |p| p.forecast_ms, |p| p.limit_with_communication_ms);
    if let ([only], [forecast]) = (groups, all.as_mut_slice()) {
        forecast.ranges = only.points.iter().map(|p| p.map(|p| p.forecast_band_ms)).collect();
    }
    let settings = || groups.iter().flat_map(|g| &g.points).flatten().next().map(|p| p.compared.as_slice());
    if let Some(settings) = settings().filter(|settings| !settings.is_empty()) {
        let curves_of = |(at, group)| {
            settings.iter().enumerate().map(move |(index, setting): (usize, _)| {
                let time = |p: &Point| Some(p.compared.iter().find(|c| c.name == setting.name)?.forecast_ms);
                curve(group, &setting.name, at * settings.len() + index, Look::Points, time)
            })
        };
        all = groups.iter().enumerate().flat_map(curves_of).collect();
    }
    if !measured.is_empty() {
        let at = |value: &Value| {
            let whole = value.as_integer().and_then(|n| u64::try_from(n).ok())?;
            measured.iter().find(|(value, _)| *value == whole).map(|(_, ms)| *ms)
        };
        all.push(SweepCurve::new("measured", 2, Look::Dashed, along.iter().map(at)));
    }
    all.extend(limits);
    all
}

fn rates(groups: &[Group]) -> Vec<SweepCurve> {
    let forecast = |p: &Point| p.tokens_per_s * p.limit_with_communication_ms / p.forecast_ms;
    let (mut all, limits) = with_limits(groups, forecast, |p| p.tokens_per_s);
    all.extend(limits);
    all
}
