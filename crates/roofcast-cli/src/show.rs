//! Output: tables for people, CSV and JSON for programs, SVG for both.

pub(crate) mod column;
pub(crate) mod distribution;
pub(crate) mod number;
pub(crate) mod picture;
pub(crate) mod progress;
pub(crate) mod records;
pub(crate) mod table;
pub(crate) mod target;

use crate::host;
use anyhow::Result;
use serde::Serialize;
use std::io::{BufWriter, Write};

/// A JSON document: its schema's name and version, then the keys of `body`.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "{T}Document"))]
pub(crate) struct Document<T: Serialize> {
    /// Name of the schema, as in `roofcast/limits/1`; the number grows when a key is removed or changes its meaning.
    pub(crate) schema: &'static str,
    /// The answer, whose keys are the document's.
    #[serde(flatten)]
    pub(crate) body: T,
}

/// Prints a JSON document.
pub(crate) fn json<T: Serialize>(schema: &'static str, body: &T) -> Result<()> {
    let document = Document { schema, body };
    if host::asks() {
        let whole = serde_json::to_string_pretty(&document).map_err(std::io::Error::from)?;
        return text(&(whole + "\n"));
    }
    // Standard output flushes after each line, and a document has thousands, so it is buffered.
    let mut out = BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, &document).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Prints text, or passes it to a host.
pub(crate) fn text(text: &str) -> Result<()> {
    if !host::printed(text) {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// Prints rows as CSV.
pub(crate) fn csv(header: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header)?;
    for row in rows {
        writer.write_record(row)?;
    }
    text(&String::from_utf8_lossy(&writer.into_inner()?))
}
