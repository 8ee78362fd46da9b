//! Our own CSV: `arrival_s,input_len,output_len`, and if wanted `priority` (smaller first) and `session`.

use super::{Recording, csv, plain};
use crate::error::Result;
use crate::workload::request::Request;

const COLUMNS: [&str; 5] = ["arrival_s", "input_len", "output_len", "priority", "session"];

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    csv::rows(text, &COLUMNS, 3, recording, |row, recording| {
        let at = row.seconds(0, recording)?;
        let mut request = plain(at, row.tokens(1, recording)?, row.tokens(2, recording)?);
        if row.text(3).is_some() {
            request = Request { priority: row.value(3, "a whole number", recording)?, ..request };
        }
        if row.text(4).is_some() {
            request = Request { user: row.value(4, "a whole number from 0", recording)?, ..request };
        }
        recording.add(row.line, request)
    })
}
