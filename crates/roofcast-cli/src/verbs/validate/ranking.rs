//! `roofcast validate --ranking`: judges a plan's first choices on sweeps in which every choice was measured.
//!
//! Knows: how the answer is shown. The library defines a sweep and the score.

use crate::args::ValidateArgs;
use crate::show::number::{percent, significant};
use crate::show::table::{line, table};
use crate::{exit, show};
use anyhow::Result;
use roofcast::Error;
use roofcast::validate::RowForecast;
use roofcast::validate::ranking::{MeasuredSweep, PoolComparison, RankingQuality, ranking};
use serde::Serialize;
use std::process::ExitCode;

const SCHEMA: &str = "roofcast/ranking/1";

/// Quality of the ranking of configurations by their forecasts.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Ranking"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    ranking: &'a RankingQuality,
    /// True if rows are missing because Ctrl-C came before they were forecast.
    interrupted: bool,
}

pub(super) fn run(args: &ValidateArgs, points: &[RowForecast], interrupted: bool) -> Result<ExitCode> {
    let ranked = ranking(points);
    if ranked.sweeps.is_empty() && ranked.sides.is_empty() && !interrupted {
        let accepted = "rows of closed loops in which one source measured two configurations or more of one model on one accelerator";
        return Err(Error::field("arguments", "--ranking", "no such rows", accepted).into());
    }
    if args.output.json {
        show::json(SCHEMA, &Answer { ranking: &ranked, interrupted })?;
    } else if args.output.csv {
        let header = ["sweep", "configurations", "points", "interactivity_tok_s", "first", "best", "reached"];
        let row = |s: &MeasuredSweep| {
            let counts = [s.configurations, s.points].map(|n| n.to_string());
            let [asked, reached] = [s.interactivity_tok_s, s.reached].map(|v| v.to_string());
            let [one, two] = counts;
            vec![s.sweep.clone(), one, two, asked, s.first.clone(), s.best.clone(), reached]
        };
        show::csv(&header, &ranked.sweeps.iter().map(row).collect::<Vec<_>>())?;
    } else {
        show::text(&people(&ranked, interrupted))?;
    }
    Ok(if interrupted { exit::invalid() } else { ExitCode::SUCCESS })
}

fn people(found: &RankingQuality, interrupted: bool) -> String {
    let mut text = if interrupted { "PARTIAL: interrupted\n\n".to_owned() } else { String::new() };
    let good = found.sweeps.iter().filter(|s| s.reached >= 0.95).count();
    text += &line(&format!(
        "the configuration ranked first reaches 95 % of the best measured throughput per accelerator at its \
         interactivity in {good} of {} sweeps ({}); one at random in {}",
        found.sweeps.len(),
        percent(found.share),
        percent(found.at_random),
    ));
    if let Some(share) = found.sides_share {
        let decisions: u64 = found.sides.iter().map(|s| s.decisions).sum();
        text += &line(&format!(
            "disaggregated or aggregated: the better side by measurement in {} of {decisions} decisions",
            percent(share)
        ));
    }
    text += "\n";
    let mut worst: Vec<&MeasuredSweep> = found.sweeps.iter().collect();
    worst.sort_by(|a, b| a.reached.total_cmp(&b.reached));
    let row = |s: &&MeasuredSweep| {
        let counts = [s.configurations, s.points].map(|n| n.to_string());
        let [one, two] = counts;
        vec![s.sweep.clone(), one, two, significant(s.interactivity_tok_s), percent(s.reached)]
    };
    let header = ["sweep", "configurations", "points", "tok/s/user", "of the best"];
    text += &table(&header, &worst.iter().map(row).collect::<Vec<_>>(), 1);
    if !found.sides.is_empty() {
        let row = |s: &PoolComparison| {
            let counts = [s.decisions, s.agree, s.apart].map(|n| n.to_string());
            [vec![s.load.clone()], counts.to_vec()].concat()
        };
        let header = ["load", "decisions", "agree", "disaggregated is better"];
        text += &table(&header, &found.sides.iter().map(row).collect::<Vec<_>>(), 1);
    }
    if !found.left_out.is_empty() {
        let rows: Vec<_> =
            found.left_out.iter().map(|(reason, n)| vec![reason.clone(), n.to_string()]).collect();
        text += &table(&["pools omitted because", "rows"], &rows, 1);
    }
    text
}
