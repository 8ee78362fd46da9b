//! Arguments of `roofcast catalog`.

use super::OutputArgs;
use super::values::{Range, gibibytes, usd};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<CatalogVerb>,
    /// An accelerator, model or workload to show.
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// A TOML file of accelerators and models, in addition to the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Filters; an entry is listed if it passes every one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which entries")]
pub(crate) struct FilterArgs {
    /// Words that must occur in id, other names, family or maker.
    #[arg(long, value_name = "TEXT", conflicts_with = "name")]
    pub(crate) search: Option<String>,
    /// A model's model_type or an accelerator's generation, as in qwen3 or hopper; a prefix suffices.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) family: Option<String>,
    /// A model's organisation or an accelerator's maker, as in Qwen or nvidia.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) vendor: Option<String>,
    /// GiB of an accelerator's memory or of a model's weights: 24 (accelerators with at least 24, models that fit 24), ..24, 24..80.
    #[arg(long, value_name = "GIB", value_parser = gibibytes, conflicts_with = "name", allow_hyphen_values = true)]
    pub(crate) memory: Option<Range>,
    /// Price of an accelerator in dollars per hour: 2 (at most), 1.., 1..2.5.
    #[arg(long, value_name = "USD", value_parser = usd, conflicts_with = "name", allow_hyphen_values = true)]
    pub(crate) price: Option<Range>,
    /// A format that an accelerator computes in or a model is published in, as in fp8.
    #[arg(long, value_name = "FORMAT", conflicts_with = "name")]
    pub(crate) format: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogVerb {
    /// Writes the entry of a model's config.json, for --catalog.
    Add(AddArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// A Hugging Face config.json or its folder.
    #[arg(value_name = "CONFIG.json")]
    pub(crate) config: PathBuf,
    /// The entry's id [default: the config's own, else its folder's name].
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Source of the config [default: its path].
    #[arg(long, value_name = "URL")]
    pub(crate) source: Option<String>,
    /// Append to this file [default: print].
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) output: Option<PathBuf>,
}
