//! What `roofcast calibrate` is told: measured files, what the runs of some of them ran on, what is left out.

use super::OutputArgs;
use super::values::{positive, rate};
use clap::{Args, ValueEnum};
use roofcast::calibrate::LeaveOut;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// CSV files of measured points or of kernel times, `.gz` or not, results of `vllm bench serve` (.json), records (.jsonl)
    /// and folders of an engine's profile.
    #[arg(required_unless_present = "kernels", value_name = "FILE|FOLDER")]
    pub(crate) files: Vec<PathBuf>,
    /// Tables of kernel times as Parquet, or a folder of them, in the layout of AIConfigurator's database
    /// (h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet).
    #[arg(long, value_name = "FILE|FOLDER", num_args = 1..)]
    pub(crate) kernels: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Write the calibration as TOML.
    #[arg(long = "output", alias = "out", value_name = "FILE.toml")]
    pub(crate) out: Option<PathBuf>,
    /// Write measured, forecast without its group, and limit of every row as CSV.
    #[arg(long, value_name = "OUT.csv")]
    pub(crate) per_row: Option<PathBuf>,
    /// Draw what was measured against the forecast of a fit without it, a colour for each accelerator; with several
    /// protocols, that of the last table.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// What is left out in turn to judge the fit; `all` is every one of them. The bands of a calibration are each from the
    /// table that matches their evidence, where it was made.
    #[arg(long, value_name = "WHAT", default_value = "group")]
    pub(crate) leave_out: LeaveOutArg,
    /// What the calibration says of its data [default: the files' names].
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is left out in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LeaveOutArg {
    /// A source with a model, an accelerator, an engine and a weight format.
    Group,
    /// All rows of an engine on an accelerator.
    EngineAccelerator,
    /// All rows of a model.
    Model,
    /// All rows of a weight format on an accelerator.
    AcceleratorFormat,
    /// All rows of an accelerator.
    Accelerator,
    /// Each of these.
    All,
}

impl LeaveOutArg {
    /// What it asks for.
    pub(crate) fn protocols(self) -> Vec<LeaveOut> {
        match self {
            LeaveOutArg::Group => vec![LeaveOut::Group],
            LeaveOutArg::EngineAccelerator => vec![LeaveOut::EngineAccelerator],
            LeaveOutArg::Model => vec![LeaveOut::Model],
            LeaveOutArg::AcceleratorFormat => vec![LeaveOut::AcceleratorFormat],
            LeaveOutArg::Accelerator => vec![LeaveOut::Accelerator],
            LeaveOutArg::All => LeaveOut::ALL.to_vec(),
        }
    }
}

/// What the runs of `.json` and `.jsonl` files ran on: those files do not say.
#[derive(Debug, Args)]
#[command(next_help_heading = "What .json and .jsonl files were measured on")]
pub(crate) struct RunsArgs {
    /// Catalog id of the model, or a config.json.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Accelerator, as in h100-sxm, or its .toml.
    #[arg(long, value_name = "ID")]
    pub(crate) hardware: Option<String>,
    /// Accelerators in all [default: as many as --tp].
    #[arg(long, value_parser = positive())]
    pub(crate) count: Option<u64>,
    /// Tensor parallelism.
    #[arg(long, default_value_t = 1, value_parser = positive())]
    pub(crate) tp: u64,
    /// Weight format [default: the checkpoint's].
    #[arg(long)]
    pub(crate) weights: Option<String>,
    /// KV-cache format.
    #[arg(long, default_value = "auto")]
    pub(crate) kv: String,
    /// vllm, sglang, tensorrt-llm, llama.cpp, …
    #[arg(long, default_value = "vllm")]
    pub(crate) engine: String,
    /// The engine's version, as in 0.19.0.
    #[arg(long, value_name = "VERSION")]
    pub(crate) engine_version: Option<String>,
    /// Requests that were always in flight, for .jsonl; beside --rate, at most.
    #[arg(long, value_parser = positive())]
    pub(crate) concurrency: Option<u64>,
    /// Requests that came a second, for .jsonl.
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
}
