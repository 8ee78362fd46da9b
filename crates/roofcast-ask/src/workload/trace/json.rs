//! JSON lines, and detection of the format that they are in.

use super::{Recording, TraceFormat};
use roofcast_facts::error::{Result, told};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Calls `each` with every line of `text`, parsed as a `T`.
pub(super) fn lines<T: DeserializeOwned>(
    text: &str,
    recording: &mut Recording,
    mut each: impl FnMut(usize, T, &mut Recording) -> Result<()>,
) -> Result<()> {
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut parser = serde_json::Deserializer::from_str(line);
        let value = serde_path_to_error::deserialize(&mut parser).map_err(|e| {
            let path = e.path().to_string();
            let cause = e.into_inner();
            let message = cause.to_string();
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(said, _)| said);
            let message = if message.starts_with("invalid ") {
                told(&path, message, None)
            } else {
                format!("{message}; expected one JSON object a line")
            };
            recording.error(index + 1, cause.column(), message)
        })?;
        parser.end().map_err(|e| {
            recording.error(
                index + 1,
                e.column(),
                "more than one JSON value; expected one JSON object a line".into(),
            )
        })?;
        each(index + 1, value, recording)?;
    }
    Ok(())
}

/// The elements of a JSON list as lines, as ShareGPT's files have their conversations; other texts unchanged.
pub(super) fn listed(text: &str) -> Cow<'_, str> {
    let is_list = text.trim_start().starts_with('[');
    let elements: Option<Vec<Value>> = is_list.then(|| serde_json::from_str(text).ok()).flatten();
    match elements {
        Some(elements) => elements.iter().map(|element| format!("{element}\n")).collect::<String>().into(),
        None => text.into(),
    }
}

/// Lines of flat objects with the names of a CSV's columns, as that CSV; `None` for other lines. A list of block hashes is no cell.
pub(super) fn table(text: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    let first: Map<String, Value> = serde_json::from_str(lines.peek()?).ok()?;
    let header = first.keys().map(String::as_str).collect::<Vec<_>>().join(",");
    let is_mooncakes =
        ["timestamp", "input_length", "output_length"].iter().all(|key| first.contains_key(*key));
    if is_mooncakes || super::own::form(&header, ',').is_none() {
        return None;
    }
    let cell = |value: &Value| match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if !text.contains([',', '"', '\n']) => Some(text.clone()),
        Value::Null => Some(String::new()),
        _ => None,
    };
    let row = |line: &str| {
        let row: Map<String, Value> = serde_json::from_str(line).ok()?;
        let cells = header.split(',').map(|key| cell(row.get(key).unwrap_or(&Value::Null)));
        Some(cells.collect::<Option<Vec<_>>>()?.join(","))
    };
    let rows = lines.map(row).collect::<Option<Vec<_>>>()?;
    Some([header.clone()].into_iter().chain(rows).collect::<Vec<_>>().join("\n"))
}

/// The format of a file, from its first line; `is_vllms` distinguishes the two formats that have time stamps.
pub(super) fn detect(line: &str, is_vllms: impl Fn(Value) -> bool) -> Option<TraceFormat> {
    let value: Value = serde_json::from_str(line).ok()?;
    if value.get("session_id").is_some() {
        return Some(TraceFormat::Turns);
    }
    if value.get("requests").is_some() {
        return Some(TraceFormat::Weka);
    }
    let talks = ["conversation", "conversations", "messages"].iter().any(|key| value.get(key).is_some());
    if value.get("timestamp").is_some() && !talks {
        return Some(if is_vllms(value) { TraceFormat::Vllm } else { TraceFormat::Mooncake });
    }
    Some(TraceFormat::ShareGpt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_lines_are_a_table() {
        let lines = "{\"timestamp\": 0.5, \"prompt_tokens\": 100, \"completion_tokens\": 10, \"id\": \"a\"}\n\n\
            {\"completion_tokens\": 20, \"timestamp\": 1.5, \"prompt_tokens\": 300}\n";
        let expected = "completion_tokens,id,prompt_tokens,timestamp\n10,a,100,0.5\n20,,300,1.5";
        let sorted = |text: &str| {
            let mut rows: Vec<Vec<String>> =
                text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
            rows.iter_mut().for_each(|row| row.sort());
            rows
        };
        assert_eq!(sorted(&table(lines).unwrap()), sorted(expected));
        for other in [
            "",
            "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1}",
            "{\"timestamp\": 0, \"input_tokens\": 5, \"output_tokens\": 1, \"hash_ids\": [1]}",
            "{\"conversations\": []}",
            "timestamp,input_tokens,output_tokens\n0,1,2",
        ] {
            assert_eq!(table(other), None, "{other}");
        }
    }
}
