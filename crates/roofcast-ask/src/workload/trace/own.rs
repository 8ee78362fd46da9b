//! roofcast's CSV format: `arrival_s,input_len,output_len`, and optionally `priority` (smaller first), `session`,
//! `max_tokens` (the client's bound, at least `output_len`) and `adapter` (the name of a LoRA adapter, or nothing).

use super::{Recording, csv, plain};
use crate::workload::request::Request;
use roofcast_facts::error::Result;
use std::collections::BTreeMap;

const COLUMNS: [&str; 7] =
    ["arrival_s", "input_len", "output_len", "priority", "session", "max_tokens", "adapter"];

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    let mut adapters: BTreeMap<String, u32> = BTreeMap::new();
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
        if let Some(name) = row.text(6).filter(|text| !text.is_empty()) {
            let next = adapters.len() as u32 + 1;
            request = Request { adapter: *adapters.entry(name.to_owned()).or_insert(next), ..request };
        }
        recording.add(row.line, request)
    })
}
