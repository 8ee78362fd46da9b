//! Arguments of `roofcast calibrate`: measured files, the deployments of measured runs, tables of kernel times.

use super::OutputArgs;
use super::values::{positive, rate};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// CSV files of measured points, `.gz` or not, results of `vllm bench serve` (.json) and records (.jsonl).
    #[arg(required_unless_present = "kernels", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Tables of kernel times as Parquet, or a folder with such tables, in the layout of AIConfigurator's database
    /// (h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet). They become the file of times that --out names, and a file with
    /// their provenance.
    #[arg(long, value_name = "FILE|FOLDER", num_args = 1.., conflicts_with_all = ["files", "teaching"])]
    pub(crate) kernels: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Write the calibration as TOML, or with --kernels the file of times.
    #[arg(long = "output", alias = "out", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Fit the embedded calibration again: from published priors, and only to rows that the hash of their deployment lets a fit
    /// see (all of `validate --split look`, half of the others). Without it the embedded numbers are the priors.
    #[arg(long)]
    pub(crate) teaching: bool,
    /// The calibration's statement of its data [default: the files' names].
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// A TOML file of accelerators and models, in addition to the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Model and machine of the runs in `.json` and `.jsonl` files, which do not name them.
#[derive(Debug, Args)]
#[command(next_help_heading = "What .json and .jsonl files were measured on")]
pub(crate) struct RunsArgs {
    /// Catalog id of the model, or a config.json [default: as the file says].
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Accelerator, as in h100-sxm, or its .toml [default: as the file says].
    #[arg(long, value_name = "ID")]
    pub(crate) hardware: Option<String>,
    /// Total accelerators [default: as many as --tp].
    #[arg(long, value_parser = positive())]
    pub(crate) count: Option<u64>,
    /// Tensor parallelism [default: as the file says, else 1].
    #[arg(long, value_parser = positive())]
    pub(crate) tp: Option<u64>,
    /// Weight format [default: the checkpoint's].
    #[arg(long)]
    pub(crate) weights: Option<String>,
    /// KV-cache format.
    #[arg(long, default_value = "auto")]
    pub(crate) kv: String,
    /// vllm, sglang, tensorrt-llm, llama.cpp, … [default: as the file says, else vllm].
    #[arg(long)]
    pub(crate) engine: Option<String>,
    /// The engine's version, as in 0.19.0.
    #[arg(long, value_name = "VERSION")]
    pub(crate) engine_version: Option<String>,
    /// Requests in flight at all times, for .jsonl; with --rate, the most in flight.
    #[arg(long, value_parser = positive())]
    pub(crate) concurrency: Option<u64>,
    /// Requests per second, for .jsonl.
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Prompt tokens of a request, for results that do not state them.
    #[arg(long, value_name = "TOKENS", value_parser = positive())]
    pub(crate) input_len: Option<u64>,
    /// Output tokens of a request, for results that do not state them.
    #[arg(long, value_name = "TOKENS", value_parser = positive())]
    pub(crate) output_len: Option<u64>,
}
