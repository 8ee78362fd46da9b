//! Output: tables for people, CSV and JSON for programs, SVG for both.

pub(crate) mod number;
pub(crate) mod progress;
pub(crate) mod records;
pub(crate) mod table;
pub(crate) mod target;

use anyhow::Result;
use serde::Serialize;
use std::io::{BufWriter, Write};

/// A JSON document: its schema's name and version, then the keys of `body`.
#[derive(Serialize)]
pub(crate) struct Document<T: Serialize> {
    /// `roofcast/limits/1`, …; the number grows when a key changes its meaning or goes.
    pub(crate) schema: &'static str,
    /// The answer.
    #[serde(flatten)]
    pub(crate) body: T,
}

/// Prints a JSON document.
pub(crate) fn json<T: Serialize>(schema: &'static str, body: &T) -> Result<()> {
    // Standard output takes a line at a time, and a document has thousands.
    let mut out = BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, &Document { schema, body }).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Prints text.
pub(crate) fn text(text: &str) -> Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Prints rows as CSV.
pub(crate) fn csv(header: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let mut writer = csv::Writer::from_writer(std::io::stdout().lock());
    let broken = |e: csv::Error| match e.into_kind() {
        csv::ErrorKind::Io(io) => io,
        _ => std::io::Error::other("the rows are no CSV"),
    };
    writer.write_record(header).map_err(broken)?;
    for row in rows {
        writer.write_record(row).map_err(broken)?;
    }
    writer.flush()?;
    Ok(())
}
