//! `roofcast plan --curve`: throughput per accelerator against tokens per second of one user.
//!
//! Knows: the answer's tables, CSV and view. The library computes and draws the curves.

use super::rests::{self, Row};
use super::table::word;
use crate::args::PlanArgs;
use crate::exit;
use crate::input::scenario::Scenario;
use crate::page::Alone;
use crate::show::number::{counted, dollars, grouped, significant};
use crate::show::picture::{Picture, pictures};
use crate::show::target::Target;
use crate::show::{self, Document, table};
use crate::verbs::question::{lengths, slo};
use anyhow::Result;
use roofcast::Model;
use roofcast::plan::{AtSpeed, Curve, CurvePoint, Curves};
use roofcast::report::curves::{figure, svg};
use roofcast::spec::CostKind;
use serde::Serialize;
use std::process::ExitCode;

/// Name and version of the answer's schema.
pub(crate) const SCHEMA: &str = "roofcast/curves/1";

const CSV: [&str; 31] = [
    "curve",
    "accelerator",
    "count",
    "tp",
    "pp",
    "ep",
    "attention_dp",
    "weights",
    "kv",
    "engine",
    "users",
    "interactivity_tok_s",
    "interactivity_tok_s_low",
    "interactivity_tok_s_high",
    "output_tok_s",
    "output_tok_s_per_accelerator",
    "output_tok_s_per_accelerator_low",
    "output_tok_s_per_accelerator_high",
    "tpot_ms",
    "tpot_p99_ms",
    "limit_tpot_ms",
    "ttft_ms",
    "ttft_p99_ms",
    "e2el_ms",
    "cost_per_million_tokens",
    "joules_per_token",
    "bound",
    "evidence",
    "missed",
    "best",
    "interrupted",
];

/// Curves of output tokens per second per accelerator against output tokens per second of one user.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Curves"))]
pub(crate) struct Answer<'a> {
    /// Id of the served model.
    model: &'a str,
    /// Cost by which steps are priced: the limit or the forecast.
    cost: CostKind,
    /// Requests that users send, in words.
    load: String,
    /// The SLO in words.
    slo: String,
    #[serde(flatten)]
    found: &'a Curves,
}

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CurvesAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    /// The charts for wide and for narrow screens.
    pictures: Vec<Picture>,
}

impl<'a> View<'a> {
    pub(crate) fn of(scenario: &Scenario, model: &'a Model, found: &'a Curves) -> View<'a> {
        let body = Answer::of(scenario, model, found);
        let drawn = pictures(|width| figure(body.model, found, &body.question(), width));
        View { pictures: drawn, report: Document { schema: SCHEMA, body } }
    }
}

impl<'a> Answer<'a> {
    fn of(scenario: &Scenario, model: &'a Model, found: &'a Curves) -> Answer<'a> {
        let spec = &scenario.spec;
        let users = |workload| format!("users who wait for answers, {}", lengths(workload));
        let load = spec.workload.as_ref().map_or_else(String::new, users);
        Answer { model: &model.name, cost: spec.engine.cost, load, slo: slo(&spec.slo), found }
    }

    /// The load and the SLO in a line.
    fn question(&self) -> String {
        format!("{}; SLO: {}", self.load, self.slo)
    }
}

/// Writes the curves as requested: pictures, then JSON, CSV or text.
pub(super) fn write(
    args: &PlanArgs,
    (scenario, model, found): (&Scenario, &Model, &Curves),
    (picture, page): (Option<&Target>, Option<&Alone>),
) -> Result<ExitCode> {
    let answer = Answer::of(scenario, model, found);
    if let Some(picture) = picture {
        picture.text(&svg(answer.model, found, &answer.question()))?;
    }
    if let Some(page) = page {
        page.write("curves", &View::of(scenario, model, found))?;
    }
    if args.output.json {
        show::json(SCHEMA, &answer)?;
    } else if args.output.csv {
        show::csv(&CSV, &csv_rows(found))?;
    } else {
        show::text(&people(&answer))?;
    }
    Ok(match (found.interrupted, found.curves.is_empty()) {
        (true, _) => exit::invalid(),
        (false, false) => ExitCode::SUCCESS,
        (false, true) => exit::infeasible(),
    })
}

fn csv_rows(found: &Curves) -> Vec<Vec<String>> {
    let of_curve = |curve: &Curve| -> Vec<Vec<String>> {
        curve.points.iter().map(|p| csv_row(curve, p, found.interrupted)).collect()
    };
    found.curves.iter().flat_map(of_curve).collect()
}

fn csv_row(curve: &Curve, p: &CurvePoint, interrupted: bool) -> Vec<String> {
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let ends = |range: Option<[f64; 2]>| [0, 1].map(|end| some(range.map(|range| range[end])));
    let mut row = vec![curve.name.clone(), curve.accelerator.clone()];
    row.extend([p.count, p.cut.tp, p.cut.pp, p.cut.ep, p.cut.attention_dp].map(|n| n.to_string()));
    row.extend([p.weights.clone(), p.kv.clone(), p.engine.clone(), p.users.to_string()]);
    row.push(p.interactivity_tok_s.to_string());
    row.extend(ends(p.interactivity_range()));
    row.extend([p.output_tok_s, p.output_tok_s_per_accelerator].map(|rate| rate.to_string()));
    row.extend(ends(p.throughput_range()));
    let times = [p.tpot_ms, p.tpot_p99_ms, p.limit_tpot_ms, p.ttft_ms, p.ttft_p99_ms, p.e2el_ms];
    row.extend(times.map(|ms| ms.to_string()));
    row.extend([p.cost_per_million_tokens, p.joules_per_token].map(some));
    row.extend([p.bound.to_owned(), p.evidence.map_or_else(String::new, word)]);
    row.push(p.missed.clone().unwrap_or_default());
    row.extend([curve.best.as_ref() == Some(p), interrupted].map(|on| on.to_string()));
    row
}

fn people(answer: &Answer) -> String {
    let curves_found = answer.found;
    let price = match answer.cost {
        CostKind::Limit => "the machine's limits: no real engine is faster",
        CostKind::Forecast => "forecast with the built-in calibration",
    };
    let pairs =
        [("model", answer.model), ("load", &answer.load), ("SLO", &answer.slo), ("step times", price)];
    let mut text = table::pairs(&pairs.map(|(name, value)| (name, value.to_owned())));
    if curves_found.interrupted {
        text += &table::line("PARTIAL: interrupted; points are missing");
        text += "\n";
    }
    text += &best(curves_found);
    text += &read_off(curves_found);
    text += &table::line(&format!(
        "{}; each point is one replica in steady state, simulated",
        counted(curves_found.simulated, "simulation")
    ));
    text += "\n";
    if !curves_found.curves.is_empty() {
        text += "curves: Pareto-optimal points of each accelerator\n\n";
        let rows: Vec<_> = curves_found.curves.iter().flat_map(rows).collect();
        let header = [
            "replica",
            "users",
            "tok/s/user",
            "80 % interval",
            "tok/s/GPU",
            "80 % interval",
            "$/M output",
            "SLO",
        ];
        text += &table::table(&header, &rows, 1);
    }
    let basis = |curve: &Curve| -> Option<Row> {
        let p = curve.points.first()?;
        let name = format!("{}, {}", curve.accelerator, p.weights);
        Some(Row { name, bands: p.bands.clone()?, kernels: p.kernels.clone(), evidence: p.evidence })
    };
    text += &rests::rows(&curves_found.curves.iter().filter_map(basis).collect::<Vec<_>>());
    for reason in &curves_found.left_out {
        text += &table::line(&format!("no curve: {reason}"));
    }
    if !curves_found.left_out.is_empty() {
        text += "\n";
    }
    text
}

/// A curve's replica in words, as in `h100-sxm, tp 2`.
fn replica(curve: &str, p: &CurvePoint) -> String {
    let cut = p.cut.to_string();
    if curve.ends_with(&cut) { curve.to_owned() } else { format!("{curve}, {cut}") }
}

/// Table of the highest load within the SLO on each curve, by cost per token, the lowest first.
fn best(found: &Curves) -> String {
    let all = found.by_cost();
    if all.is_empty() {
        return if found.curves.is_empty() {
            "no accelerator of the search holds the model\n\n".to_owned()
        } else {
            "no point meets the SLO\n\n".to_owned()
        };
    }
    let row = |(curve, p): &(&Curve, &CurvePoint)| {
        let mut row = vec![replica(&curve.name, p), grouped(p.users)];
        row.extend([p.interactivity_tok_s, p.output_tok_s_per_accelerator].map(significant));
        row.push(dollars(p.cost_per_million_tokens));
        row.push(p.joules_per_token.map_or_else(|| "–".to_owned(), significant));
        row.extend([p.ttft_p99_ms, p.tpot_p99_ms].map(significant));
        row
    };
    let header =
        ["replica", "users", "tok/s/user", "tok/s/GPU", "$/M output", "J/token", "TTFT p99", "TPOT p99"];
    let rows: Vec<_> = all.iter().map(row).collect();
    format!("highest load of a replica within the SLO, cheapest first\n\n{}", table::table(&header, &rows, 1))
}

/// Table of the cheapest replica for users of several speeds.
fn read_off(found: &Curves) -> String {
    let row = |at: &AtSpeed| {
        let mut row =
            vec![format!("{:.0}", at.tok_s), replica(&at.curve, &at.point), grouped(at.point.users)];
        row.extend([dollars(at.point.cost_per_million_tokens), significant(at.point.tpot_ms)]);
        row
    };
    let rows: Vec<_> = found.at_speed.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["tok/s/user", "replica", "users", "$/M output", "TPOT"];
    format!("cheapest replica for each minimum speed of a user\n\n{}", table::table(&header, &rows, 1))
}

fn rows(curve: &Curve) -> Vec<Vec<String>> {
    let range = |range: Option<[f64; 2]>| {
        range.map_or_else(
            || "–".to_owned(),
            |[low, high]| format!("{} to {}", significant(low), significant(high)),
        )
    };
    let row = |p: &CurvePoint| {
        vec![
            replica(&curve.name, p),
            grouped(p.users),
            significant(p.interactivity_tok_s),
            range(p.interactivity_range()),
            significant(p.output_tok_s_per_accelerator),
            range(p.throughput_range()),
            dollars(p.cost_per_million_tokens),
            if p.missed.is_none() { "met" } else { "missed" }.to_owned(),
        ]
    };
    curve.points.iter().map(row).collect()
}
