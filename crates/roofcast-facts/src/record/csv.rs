//! Records as CSV: one line per record, with columns named by the keys of a record's JSON and three derived columns.
//!
//! Knows: the columns, quotes, and that an absent value is an empty field. Knows nothing about which values are valid;
//! [`Record`] does.

use super::Record;
use crate::units::Picoseconds;
use serde_json::{Map, Value};

/// The columns in the order in which they are written; the last [`DERIVED`] are computed from others and are not read
/// back.
pub const COLUMNS: [&str; 16] = [
    "id",
    "outcome",
    "input_len",
    "output_len",
    "scheduled_ms",
    "sent_ms",
    "first_token_ms",
    "finished_ms",
    "itl_ms",
    "cached_tokens",
    "preemptions",
    "replica",
    "error",
    "ttft_ms",
    "tpot_ms",
    "e2el_ms",
];

/// Number of columns that are derived from others.
const DERIVED: usize = 3;

/// The header line.
pub fn header() -> String {
    COLUMNS.join(",")
}

/// The line of a record, without the newline.
pub fn line(record: &Record) -> String {
    let Ok(Value::Object(mut keys)) = serde_json::to_value(record) else { return String::new() };
    let derived = [record.ttft(), record.tpot(), record.first_token.map(|_| record.e2el())];
    for (name, time) in COLUMNS[COLUMNS.len() - DERIVED..].iter().zip(derived) {
        keys.insert((*name).to_owned(), time.map(Picoseconds::ms).into());
    }
    let fields: Vec<String> =
        COLUMNS.iter().map(|name| keys.get(*name).map_or_else(String::new, field)).collect();
    fields.join(",")
}

/// A value as a field; gaps between chunks, and lines of an error message, are separated by spaces.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => {
            let text = text.replace(['\r', '\n'], " ");
            if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
        }
        Value::Array(all) => all.iter().map(field).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The columns that a header names, in order, or an error message.
pub(super) fn columns(header: &str) -> Result<Vec<&'static str>, String> {
    let mut present = Vec::new();
    for name in split(header) {
        let name = name.trim().to_owned();
        match COLUMNS.iter().find(|c| **c == name) {
            Some(column) if !present.contains(column) => present.push(*column),
            Some(column) => return Err(format!("column `{column}` is there twice")),
            None => return Err(format!("no column `{}`; expected {}", shown(&name), header_names())),
        }
    }
    Ok(present)
}

fn header_names() -> String {
    COLUMNS.join(", ")
}

/// The JSON object of the fields of a line, or an error message.
pub(super) fn object(columns: &[&'static str], line: &str) -> Result<Value, String> {
    let fields = split(line);
    if fields.len() != columns.len() {
        return Err(format!("{} fields; expected {} as in the header", fields.len(), columns.len()));
    }
    let derived = &COLUMNS[COLUMNS.len() - DERIVED..];
    let mut object = Map::new();
    for (column, text) in
        columns.iter().zip(fields).filter(|(c, text)| !text.is_empty() && !derived.contains(c))
    {
        object.insert((*column).to_owned(), value(column, text)?);
    }
    Ok(Value::Object(object))
}

fn value(column: &str, text: String) -> Result<Value, String> {
    let number = |text: &str| match serde_json::from_str(text) {
        Ok(Value::Number(n)) => Ok(Value::Number(n)),
        _ => Err(format!("`{column}` is {:?}; accepted: a number", shown(text))),
    };
    match column {
        "outcome" | "error" => Ok(Value::String(text)),
        "itl_ms" => text.split_whitespace().map(number).collect(),
        _ => number(text.trim()),
    }
}

/// The fields of a line; a quoted field may hold commas and doubled quotes.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, fields.last_mut()) {
            ('"', Some(field)) if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            ('"', _) => quoted = !quoted,
            (',', _) if !quoted => fields.push(String::new()),
            (other, Some(field)) => field.push(other),
            (_, None) => {}
        }
    }
    fields
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas_and_quotes() {
        assert_eq!(split(r#"1,"a, ""b""",,x"#), ["1", r#"a, "b""#, "", "x"]);
        assert_eq!(field(&Value::String("a, \"b\"\nc".into())), r#""a, ""b"" c""#);
    }
}
