//! Output: tables for people, CSV and JSON for programs, SVG for both.

pub(crate) mod number;
pub(crate) mod records;
pub(crate) mod table;

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// A JSON document: its schema's name and version, then the keys of `body`.
#[derive(Serialize)]
pub(crate) struct Document<'a, T: Serialize> {
    /// `roofcast/limits/1`, …; the number grows when a key changes its meaning or goes.
    pub(crate) schema: &'static str,
    /// The answer.
    #[serde(flatten)]
    pub(crate) body: &'a T,
}

/// Prints a JSON document.
pub(crate) fn json<T: Serialize>(schema: &'static str, body: &T) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &Document { schema, body }).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
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
        other => std::io::Error::other(format!("{other:?}")),
    };
    writer.write_record(header).map_err(broken)?;
    for row in rows {
        writer.write_record(row).map_err(broken)?;
    }
    writer.flush()?;
    Ok(())
}

/// Writes a file whole or not at all: beside it first, then in its place.
pub(crate) fn file(path: &Path, text: &str) -> Result<()> {
    whole(path, |out| out.write_all(text.as_bytes()))
}

/// Writes a file of lines, whole or not at all.
pub(crate) fn lines(path: &Path, lines: impl Iterator<Item = String>) -> Result<()> {
    whole(path, |out| lines.into_iter().try_for_each(|line| writeln!(out, "{line}")))
}

/// Writes a file whole or not at all.
fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = || {
        let mut out = BufWriter::new(File::create(&part)?);
        write(&mut out)?;
        out.flush()?;
        std::fs::rename(&part, path)
    };
    written().with_context(|| path.display().to_string())
}
