//! Pairs of lengths without times: `input_length,output_length`.

use super::{Recording, csv, plain};
use roofcast_facts::error::Result;
use roofcast_facts::units::Picoseconds;

const COLUMNS: [&str; 2] = ["input_length", "output_length"];

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    csv::rows(text, &COLUMNS, 2, recording, |row, recording| {
        let request = plain(Picoseconds::ZERO, row.tokens(0, recording)?, row.tokens(1, recording)?);
        recording.add(row.line, request)
    })
}
