//! Arguments of `roofcast schema`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// A document by the value of its key `schema`, with or without its version, as in roofcast/limits/1 or limits
    /// [default: a list of all documents].
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}
