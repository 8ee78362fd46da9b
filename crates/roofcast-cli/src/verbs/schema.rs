//! `roofcast schema [NAME]`: the JSON Schema of a document of `--json`, or the list of all documents.

use crate::args::SchemaArgs;
use crate::schemas::Schemas;
use crate::show::{self, table};
use anyhow::Result;
use roofcast::Error;
use std::process::ExitCode;

pub(crate) fn run(args: &SchemaArgs) -> Result<ExitCode> {
    let schemas = Schemas::all();
    let Some(name) = &args.name else {
        let documents = schemas.documents.iter();
        let pairs: Vec<(&str, String)> = documents.map(|d| (d.id, d.about().to_owned())).collect();
        show::text(&table::pairs(&pairs))?;
        return Ok(ExitCode::SUCCESS);
    };
    let wanted = name.trim_start_matches("roofcast/").trim_end_matches(".json");
    let is_wanted = |id: &str| {
        id == wanted
            || id.replace('/', "-") == wanted
            || id.split('/').next().is_some_and(|verb| verb == wanted)
    };
    let ids: Vec<&str> = schemas.documents.iter().map(|document| document.id).collect();
    let unknown = || Error::field("arguments", "NAME", format!("{name:?}"), ids.join(", "));
    let document = schemas.documents.iter().find(|document| is_wanted(document.id)).ok_or_else(unknown)?;
    show::text(&(serde_json::to_string_pretty(&schemas.whole(document))? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
