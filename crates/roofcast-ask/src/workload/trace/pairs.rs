//! Pairs of lengths without times: `input_length,output_length`, or other names of the two.

use super::{Recording, csv, own, plain};
use roofcast_facts::error::Result;
use roofcast_facts::table::separator;
use roofcast_facts::units::Picoseconds;

const COLUMNS: [&str; 2] = ["input_length", "output_length"];

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let columns = own::lengths(header, separator(text)).unwrap_or(COLUMNS);
    csv::rows(text, &columns, 2, recording, |row, recording| {
        let request = plain(Picoseconds::ZERO, row.tokens(0, recording)?, row.tokens(1, recording)?);
        recording.add(row.line, request)
    })
}
