//! The picture of a plan's trade-off: dollars against time per output token.

use super::chart::{Axis, Chart, INK, LegendSample, MUTED, Marker, Stroke, Unit, colour, page};
use roofcast_ask::spec::{Metric, Slo};
use roofcast_plan::plan::{Choice, Near, Plan, front};
use std::collections::BTreeSet;

/// TPOT over dollars per hour (over accelerators if prices are missing), one colour per accelerator: the Pareto front
/// and the best candidate of every other accelerator. Hollow points are limits, each joined to its forecast; the line
/// is the Pareto front. If no candidate meets the SLO, the chart shows the nearest candidates by the factor by which
/// they exceed it.
pub fn svg(model: &str, question: &str, plan: &Plan, slo: &Slo) -> String {
    if plan.ranked.is_empty() {
        return page(&[misses(model, question, plan)]);
    }
    let shown = || plan.pareto.iter().chain(&plan.by_accelerator);
    let priced = shown().all(|c| c.cost_per_hour.is_some());
    let cost = |c: &Choice| if priced { c.cost_per_hour.unwrap_or(0.0) } else { c.count as f64 };
    let x = if priced { "dollars per hour" } else { "accelerators" };
    let x = Axis::around(x, Unit::Plain, shown().map(cost));
    let tpot = slo.of(Metric::Tpot).next();
    let times = shown().flat_map(|c| [c.forecast.tpot_ms, c.limit.tpot_ms]).chain(tpot.map(|b| b.ms));
    let y = Axis::around("time per output token", Unit::Milliseconds, times);
    let right = x.most();
    let mut chart = Chart::new(
        &format!("{model}: what a deployment costs and how fast it is"),
        &note(question, plan),
        x,
        y,
    );
    if let Some(bound) = tpot {
        chart.bound(bound.ms, &format!("SLO: {} {} ms", bound.name(), bound.ms));
    }
    let mut edge = front(plan.pareto.iter().collect(), |c: &&Choice| vec![cost(c), c.tpot_ms]);
    edge.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    let mut steps: Vec<_> = edge.iter().map(|c| (cost(c), c.tpot_ms)).collect();
    steps.extend(steps.last().map(|(_, ms)| (right, *ms)));
    chart.steps(&steps, MUTED, Stroke::Solid);
    let chips: BTreeSet<String> = shown().map(Choice::accelerators).collect();
    for (series, chip) in chips.iter().enumerate() {
        for c in shown().filter(|c| c.accelerators() == *chip) {
            let [limit, forecast] = [c.limit, c.forecast].map(|t| (cost(c), t.tpot_ms));
            chart.join(limit, forecast, colour(series));
            chart.point(limit, Marker::hollow(series), &format!("{}: limit {:.1} ms", name(c), limit.1));
            chart.point(
                forecast,
                Marker::filled(series),
                &format!("{}: forecast {:.1} ms", name(c), forecast.1),
            );
        }
        chart.key(LegendSample::Point(Marker::filled(series)), chip);
    }
    if !chips.is_empty() {
        chart.key(LegendSample::Point(Marker::hollow(0).ink()), "at its limit");
    }
    if steps.len() > 1 {
        chart.key(
            LegendSample::Line(MUTED, Stroke::Solid),
            if edge.iter().all(|c| c.tpot_ms == c.limit.tpot_ms) {
                "the fastest for its price, at the limits"
            } else {
                "the fastest for its price, as forecast"
            },
        );
    }
    if let Some(best) = &plan.best {
        let at = (cost(best), best.forecast.tpot_ms);
        chart.label(at, &format!("best: {}", best.hardware()), INK);
    }
    for c in edge.iter().filter(|c| plan.best.as_ref() != Some(**c)) {
        let text = c.hardware();
        let series = chips.iter().position(|chip| *chip == c.accelerators()).unwrap_or(0);
        chart.label((cost(c), c.forecast.tpot_ms), &text, colour(series));
    }
    match throughput(model, plan) {
        Some(second) => page(&[chart, second]),
        None => page(&[chart]),
    }
}

/// Output tokens per second per accelerator over output tokens per second of one user: all candidates that meet the
/// SLO, and their Pareto front; `None` if fewer than two meet it.
fn throughput(model: &str, plan: &Plan) -> Option<Chart> {
    if plan.ranked.len() < 2 {
        return None;
    }
    let x = Axis::around(
        "output tokens/s of one user",
        Unit::Plain,
        plan.ranked.iter().map(|c| c.interactivity_tok_s),
    );
    let y = Axis::around(
        "output tokens/s per accelerator",
        Unit::Plain,
        plan.ranked.iter().map(|c| c.output_tok_s_per_accelerator),
    );
    let note = "deployments that met the SLO when simulated; those on the line are beaten by none in both";
    let mut chart = Chart::new(&format!("{model}: throughput against interactivity"), note, x, y);
    let at = |c: &Choice| (c.interactivity_tok_s, c.output_tok_s_per_accelerator);
    let edge: Vec<_> = plan.pareto_throughput.iter().map(at).collect();
    // Draw the front as a staircase, because there is no deployment between two candidates: a user gets more only with
    // the next candidate.
    let corners = edge.windows(2).flat_map(|pair| [pair[0], (pair[0].0, pair[1].1)]);
    chart.line(corners.chain(edge.last().copied()).collect(), MUTED, Stroke::Solid);
    let chips: BTreeSet<String> = plan.ranked.iter().map(Choice::accelerators).collect();
    for (series, chip) in chips.iter().enumerate() {
        for c in plan.ranked.iter().filter(|c| c.accelerators() == *chip) {
            chart.point(at(c), Marker::filled(series), &name(c));
        }
        chart.key(LegendSample::Point(Marker::filled(series)), chip);
    }
    if edge.len() > 1 {
        chart.key(LegendSample::Line(MUTED, Stroke::Solid), "none has more of both");
    }
    if let Some(best) = &plan.best {
        chart.label(at(best), &format!("best: {}", best.hardware()), INK);
    }
    for c in plan.pareto_throughput.iter().filter(|c| plan.best.as_ref() != Some(*c)) {
        let series = chips.iter().position(|chip| *chip == c.accelerators()).unwrap_or(0);
        chart.label(at(c), &format!("{} × {}", c.count, c.accelerators()), colour(series));
    }
    Some(chart)
}

/// Chart of the factor by which the nearest candidates exceed the SLO, over cost.
fn misses(model: &str, question: &str, plan: &Plan) -> Chart {
    let near: Vec<(&Near, f64)> = plan.nearest.iter().filter_map(|n| Some((n, n.factor?))).collect();
    let priced = near.iter().all(|(n, _)| n.cost_per_hour.is_some());
    let cost = |n: &Near| if priced { n.cost_per_hour.unwrap_or(0.0) } else { n.count as f64 };
    let x = if priced { "dollars per hour" } else { "accelerators" };
    let largest_cost = near.iter().map(|(n, _)| cost(n)).fold(0.0, f64::max);
    let x = Axis::to(x, Unit::Plain, largest_cost * 1.08);
    let factors = near.iter().map(|(_, factor)| *factor).chain([1.0]);
    let y = Axis::around("multiple of the bound", Unit::Plain, factors);
    let open = if plan.is_open() { " of those simulated" } else { "" };
    let title = format!("{model}: no deployment{open} meets the SLO");
    let mut chart = Chart::new(&title, &note(question, plan), x, y);
    chart.bound(1.0, "SLO");
    let mut named = BTreeSet::new();
    for (n, factor) in &near {
        let what = n.deployment.split(" as ").next().unwrap_or_default();
        chart.point((cost(n), *factor), Marker::filled(0), &format!("{}: {}", n.deployment, n.reason));
        if named.insert(what) {
            chart.label((cost(n), *factor), what, colour(0));
        }
    }
    chart
}

/// Number of deployments that are named if none meets the SLO.
const NEAREST: usize = 2;

fn note(question: &str, plan: &Plan) -> String {
    let all = plan.considered;
    let feasible = plan.feasible;
    let shown = if feasible == 0 {
        ""
    } else {
        "; shown are those that none beats in cost, TPOT and TTFT, and the best of each accelerator"
    };
    let nearest: String =
        plan.nearest.iter().take(NEAREST).map(|n| format!("; {}: {}", n.deployment, n.reason)).collect();
    let nearest = if nearest.is_empty() { nearest } else { format!("; nearest{}", &nearest[1..]) };
    format!("{question}; {all} deployments considered, {feasible} fit and keep the SLO{shown}{nearest}")
}

fn name(c: &Choice) -> String {
    format!("{} × {}, tp {}, {} weights, {} KV", c.count, c.accelerators(), c.tp, c.weights, c.kv)
}
