//! The text of a plan on one screen: the question, the best, why it and not the next, how sure, and the command.
//!
//! Knows: which rows stand against the best. Every other section is in the whole text.

use super::goal::Goal;
use super::table::{chance, distinct, latency, near, pools};
use super::{Answer, best, over_time, text};
use crate::show::number::{dollars, percent, significant};
use crate::show::table;
use anyhow::Result;
use roofcast::plan::{Choice, Plan, WhatIf};
use roofcast::spec::{Metric, Objective};
use roofcast::{Catalog, Model, Spec};
use std::sync::Arc;

/// Most deployments that stand beside the best: the next ones, and the best one of each other accelerator.
const RIVALS: usize = 4;

/// The answer on one screen.
pub(super) fn people(spec: &Spec, model: &Arc<Model>, catalog: &Catalog, answer: &Answer) -> Result<String> {
    let found = answer.plan;
    let mut text = text::begin(spec, model, answer);
    match &found.best {
        Some(best) => {
            text += &best::in_brief(spec, model, catalog, (best, answer))?;
            text += &rivals(found, best);
            text += &risks(&found.what_if, Goal::of(spec.slo.is_bounded()));
        }
        None => {
            let goal = Goal::of(spec.slo.is_bounded());
            let counts = table::line(&text::counts(found, goal));
            text += &(counts + "\n" + &text::none(found, goal) + &text::left_out(found))
        }
    }
    if !found.why.is_empty() {
        text += &format!("deployments named in the question\n\n{}", near(&found.why));
    }
    text += &over_time::people(found, false);
    text += &text::end(answer);
    Ok(text + "every section: --all (tables, Pareto fronts, evidence, what-ifs)\n\n")
}

/// Deployments that a reader compares with the best, each with the reason for which it is not the best.
fn rivals(found: &Plan, best: &Choice) -> String {
    let others = |list: &[Choice]| -> Vec<Choice> {
        distinct(list)
            .into_iter()
            .filter(|c| {
                pools(c) != pools(best)
                    || c.accelerators() != best.accelerators()
                    || c.weights != best.weights
                    || c.kv != best.kv
            })
            .cloned()
            .collect()
    };
    let next = others(&found.ranked).into_iter().filter(|c| !found.cheaper.contains(c)).take(RIVALS / 2);
    let all = others(&found.cheaper).into_iter().take(1).chain(next).chain(others(&found.by_accelerator));
    let all: Vec<Choice> = all.collect();
    let rows: Vec<Vec<String>> =
        distinct(&all).into_iter().take(RIVALS).map(|c| rival(found, best, c)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let [ttft, tpot] = [Metric::Ttft, Metric::Tpot].map(|m| format!("{} {}", m.name(), latency(best, m).0));
    let header = ["not the best", "formats", "because", &ttft, &tpot, "chance", "$/h"];
    table::table(&header, &rows, 3)
}

fn rival(found: &Plan, best: &Choice, c: &Choice) -> Vec<String> {
    let value = |c: &Choice| match found.minimise {
        Objective::CostPerHour => c.cost_per_hour,
        Objective::CostPerMillionTokens => c.cost_per_million_tokens,
        Objective::Accelerators => Some(c.count as f64),
        Objective::Energy => c.joules_per_token,
    };
    let worse = match found.minimise {
        Objective::CostPerHour | Objective::CostPerMillionTokens => "dearer",
        Objective::Accelerators => "more chips",
        Objective::Energy => "more energy",
    };
    let more = value(c).zip(value(best)).map(|(other, least)| other / least - 1.0);
    // Among deployments that are likely enough, the chance does not decide.
    let likely = c.chance.is_none_or(|chance| found.confident && chance >= found.confidence);
    let unsure = c.chance.zip(best.chance).filter(|(other, own)| other < own && !likely);
    let because = match (more, unsure) {
        (Some(more), _) if more > 5e-4 => format!("{} {worse}", percent(more)),
        (_, Some(_)) => "less likely".to_owned(),
        _ if c.count > best.count => "more chips".to_owned(),
        _ if times(c) == times(best) => "as fast".to_owned(),
        _ => "slower".to_owned(),
    };
    let mut row =
        vec![format!("{} as {}", c.hardware(), pools(c)), format!("{} / {}", c.weights, c.kv), because];
    row.extend(times(c));
    row.push(c.chance.map_or_else(|| "–".to_owned(), chance));
    row.push(dollars(c.cost_per_hour));
    row
}

/// TTFT and TPOT as they are shown.
fn times(c: &Choice) -> [String; 2] {
    [Metric::Ttft, Metric::Tpot].map(|metric| significant(latency(c, metric).1))
}

/// Changes under which the best deployment misses its goal, in a line.
fn risks(changes: &[WhatIf], goal: Goal) -> String {
    let missed = changes.iter().filter(|w| !w.meets).map(|w| {
        w.replicas.map_or_else(|| w.change.clone(), |n| format!("{} ({n} replicas suffice)", w.change))
    });
    let all: Vec<String> = missed.collect();
    if all.is_empty() {
        return String::new();
    }
    table::line(&format!("it {} if: {}", goal.misses, all.join("; "))) + "\n"
}
