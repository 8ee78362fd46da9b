//! The Pareto picture: dollars against time per token.

use super::chart::{Axis, COLOURS, Chart};
use crate::plan::{Choice, Plan};
use std::collections::BTreeMap;

/// TPOT against dollars per hour (or accelerators, where prices lack), one colour per accelerator: the Pareto set as a
/// line, and the best of every other accelerator. Hollow points are the same at the limits.
pub fn svg(model: &str, plan: &Plan) -> String {
    let shown = || plan.pareto.iter().chain(&plan.by_accelerator);
    let priced = shown().all(|c| c.cost_per_hour.is_some());
    let cost = |c: &Choice| if priced { c.cost_per_hour.unwrap_or(0.0) } else { c.count as f64 };
    let x = Axis::around(if priced { "dollars per hour" } else { "accelerators" }, shown().map(cost), false);
    let y = Axis::around(
        "ms per output token (hollow: at the limits)",
        shown().map(|c| c.forecast.tpot_ms),
        false,
    );
    let mut chart = Chart::new(&format!("{model}: TPOT against cost"), x, y);
    let front: Vec<(f64, f64)> = plan.pareto.iter().map(|c| (cost(c), c.tpot_ms)).collect();
    chart.line(&front, "#999", true);
    let mut groups: BTreeMap<&str, Vec<&Choice>> = BTreeMap::new();
    for choice in shown() {
        groups.entry(&choice.accelerator).or_default().push(choice);
    }
    let mut legend = Vec::new();
    for (index, (accelerator, choices)) in groups.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        for c in choices {
            let tip = format!("{} × {accelerator}, tp {}, {} weights, {} KV", c.count, c.tp, c.weights, c.kv);
            chart.point(cost(c), c.limit.tpot_ms, colour, false, &format!("{tip}: limit"));
            chart.point(cost(c), c.forecast.tpot_ms, colour, true, &format!("{tip}: forecast"));
        }
        legend.push((*accelerator, colour, true));
    }
    if let Some(best) = &plan.best {
        let text = format!("best: {} × {}", best.count, best.accelerator);
        chart.label(cost(best), best.forecast.tpot_ms, (10.0, -10.0), &text, "#222");
    }
    chart.legend(&legend);
    chart.finish()
}
