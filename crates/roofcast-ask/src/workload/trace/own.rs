//! CSV with times in seconds: roofcast's `arrival_s,input_len,output_len`, vidur's
//! `arrived_at,num_prefill_tokens,num_decode_tokens`, ServeGen's `timestamp,input_tokens,output_tokens` and the plain
//! `timestamp,input_length,output_length`; optionally `priority` (smaller first), `session`, `max_tokens` (the client's
//! bound, at least the output) and `adapter` (the name of a LoRA adapter, or nothing). Other columns are skipped.

use super::{Recording, csv, plain};
use crate::workload::request::Request;
use roofcast_facts::error::Result;
use roofcast_facts::table::separator;
use std::collections::BTreeMap;

/// Names of time, input and output: roofcast's, vidur's (`synthetic_request_generator`'s traces), ServeGen's, plain
/// ones.
const FORMS: [[&str; 3]; 4] = [
    ["arrival_s", "input_len", "output_len"],
    ["arrived_at", "num_prefill_tokens", "num_decode_tokens"],
    ["timestamp", "input_tokens", "output_tokens"],
    ["timestamp", "input_length", "output_length"],
];
const OPTIONAL: [&str; 4] = ["priority", "session", "max_tokens", "adapter"];

/// Names of time, input and output in `header`; `None` if it has no such columns.
pub(super) fn form(header: &str, separator: char) -> Option<[&'static str; 3]> {
    let names: Vec<&str> = header.split(separator).map(str::trim).collect();
    FORMS.into_iter().find(|form| form.iter().all(|name| names.contains(name)))
}

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let [roofcasts, ..] = FORMS;
    let columns = [form(header, separator(text)).unwrap_or(roofcasts).as_slice(), &OPTIONAL].concat();
    let mut adapters: BTreeMap<String, u32> = BTreeMap::new();
    csv::rows(text, &columns, 3, recording, |row, recording| {
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
                let output_len = request.output_len;
                let output = columns[2];
                let message = format!("`max_tokens` is {bound}; accepted: {output}, {output_len}, or more");
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
