//! Arguments of `roofcast keys`.

use super::OutputArgs;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// Words that must occur in a key, its flag or its description, as in prefix or engine.speculative [default: every key].
    #[arg(value_name = "SEARCH")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
