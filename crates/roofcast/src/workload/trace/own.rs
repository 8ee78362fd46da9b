//! roofcast's CSV format: `arrival_s,input_len,output_len`, and optionally `priority` (smaller first), `session` and
//! `max_tokens` (the client's bound, at least `output_len`).

use super::{Recording, csv, plain};
use crate::error::Result;
use crate::workload::request::Request;

const COLUMNS: [&str; 6] = ["arrival_s", "input_len", "output_len", "priority", "session", "max_tokens"];

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
        if row.text(5).is_some_and(|text| !text.is_empty()) {
            let bound = row.tokens(5, recording)?;
            if bound < request.output_len {
                let least = request.output_len;
                let message = format!("`max_tokens` is {bound}; accepted: output_len, {least}, or more");
                return Err(recording.error(row.line, row.column(5), message));
            }
            request = Request { max_tokens: Some(bound), ..request };
        }
        recording.add(row.line, request)
    })
}
