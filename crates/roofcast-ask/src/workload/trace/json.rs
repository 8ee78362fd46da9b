//! JSON lines, and detection of the format that they are in.

use super::{Recording, TraceFormat};
use roofcast_facts::error::{Result, told};
use serde::de::DeserializeOwned;
use serde_json::Value;
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
