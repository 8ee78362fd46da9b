//! Arguments of `roofcast validate`: measured files, the rows that count, and the files to write.

use super::{OutputArgs, RunsArgs};
use clap::{Args, ValueEnum};
use roofcast::validate::split::Side;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// CSV files of measured points, results of `vllm bench serve` (.json), records (.jsonl), and folders of recorded
    /// runs (meta.json, requests.jsonl); `fastertransformer`: the batches that its guide publishes.
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Only rows whose source, group and kind contain all these words, as in "splitwise 70b h100".
    #[arg(long, value_name = "WORDS")]
    pub(crate) group: Option<String>,
    /// Only rows on this side: of public measurements a quarter of the groups may be looked at row by row, the others judge.
    #[arg(long, value_name = "SIDE", default_value = "all")]
    pub(crate) split: SplitArg,
    /// Draw measured values against their forecasts as SVG, by accelerator.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the answer as one self-contained HTML file.
    #[arg(long, value_name = "OUT.html")]
    pub(crate) html: Option<PathBuf>,
    /// Draw measured times over batch, prompt or context as SVG, with their forecasts and limits.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) curves: Option<PathBuf>,
    /// Write measured, forecast and limit of every row as CSV, with the parts of the forecast's time.
    #[arg(long, value_name = "OUT.csv")]
    pub(crate) per_row: Option<PathBuf>,
    /// Instead of errors: quality of first choices among configurations that a source measured for a model on a chip.
    #[arg(long, conflicts_with_all = ["svg", "html", "curves"])]
    pub(crate) ranking: bool,
    /// A calibration that replaces the embedded one.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) calibration: Option<PathBuf>,
    /// A TOML file of accelerators and models, in addition to the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Side of the rows: look or judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum SplitArg {
    /// A quarter of the groups, whose rows may be read one by one.
    Look,
    /// The other groups, shown as a table of errors only.
    Judge,
    /// Every row.
    All,
}

impl SplitArg {
    /// The side of the split that is selected; `None` if every row counts.
    pub(crate) fn side(self) -> Option<Side> {
        match self {
            SplitArg::Look => Some(Side::Look),
            SplitArg::Judge => Some(Side::Judge),
            SplitArg::All => None,
        }
    }
}
