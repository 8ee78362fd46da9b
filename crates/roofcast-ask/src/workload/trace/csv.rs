//! Rows of plain CSV without quotes, by the names of their columns, with the separator that the file uses.

use super::Recording;
use roofcast_facts::error::Result;
use roofcast_facts::table::{pointed, separator};
use roofcast_facts::units::Picoseconds;

/// One row, with the positions of the named columns.
pub(super) struct CsvRow<'a> {
    pub(super) line: usize,
    fields: Vec<&'a str>,
    separator: char,
    names: &'a [&'a str],
    places: &'a [Option<usize>],
}

/// Calls `each` with every row of `text`. The header must contain the first `needed` of the named columns.
pub(super) fn rows(
    text: &str,
    names: &[&str],
    needed: usize,
    recording: &mut Recording,
    mut each: impl FnMut(&CsvRow, &mut Recording) -> Result<()>,
) -> Result<()> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (at, header) = lines.next().unwrap_or_default();
    let separator = separator(text);
    let header: Vec<_> = header.split(separator).map(str::trim).collect();
    let places: Vec<_> = names.iter().map(|name| header.iter().position(|h| h == name)).collect();
    if let Some((missing, _)) = names.iter().zip(&places).take(needed).find(|(_, place)| place.is_none()) {
        let message = format!("no column `{missing}`; expected {}", names.join(","));
        return Err(recording.error(at + 1, 1, message));
    }
    for (index, line) in lines {
        let fields = line.split(separator).collect();
        let row = CsvRow { line: index + 1, fields, separator, names, places: &places };
        if row.fields.len() != header.len() {
            let count = row.fields.len();
            let message = format!("{count} fields; expected {} as in the header", header.len());
            return Err(recording.error(row.line, 1, message));
        }
        each(&row, recording)?;
    }
    Ok(())
}

impl<'a> CsvRow<'a> {
    /// Text in a named column; `None` if the header lacks the column.
    pub(super) fn text(&self, name: usize) -> Option<&'a str> {
        self.places[name].map(|place| self.fields[place].trim())
    }

    /// Position of a named column in its line, in characters from 1.
    pub(super) fn column(&self, name: usize) -> usize {
        let before = self.places[name].unwrap_or_default();
        self.fields[..before].iter().map(|field| field.chars().count() + 1).sum::<usize>() + 1
    }

    /// Parsed value in a named column.
    pub(super) fn value<T: std::str::FromStr>(
        &self,
        name: usize,
        accepted: &str,
        recording: &Recording,
    ) -> Result<T> {
        let text = self.text(name).unwrap_or_default();
        pointed(text, self.separator).parse().map_err(|_| {
            let shown: String = text.chars().take(40).collect();
            let message = format!("`{}` is {shown:?}; accepted: {accepted}", self.names[name]);
            recording.error(self.line, self.column(name), message)
        })
    }

    /// Number of tokens in a named column.
    pub(super) fn tokens(&self, name: usize, recording: &Recording) -> Result<u32> {
        let count = self.value(name, "a whole number of tokens from 1", recording)?;
        recording.tokens(self.line, self.column(name), self.names[name], count)
    }

    /// Time in seconds in a named column.
    pub(super) fn seconds(&self, name: usize, recording: &Recording) -> Result<Picoseconds> {
        let seconds = self.value(name, "seconds", recording)?;
        recording.seconds(self.line, self.column(name), self.names[name], seconds)
    }
}
