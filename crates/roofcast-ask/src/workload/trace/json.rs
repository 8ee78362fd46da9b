//! JSON lines, and detection of the format that they are in.

use super::{Recording, TraceFormat};
use roofcast_facts::error::{Result, told};
use serde::de::DeserializeOwned;

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

/// The format of a file, from its first line; `is_vllms` distinguishes the two formats that have time stamps.
pub(super) fn detect(line: &str, is_vllms: impl Fn(serde_json::Value) -> bool) -> Option<TraceFormat> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    if value.get("session_id").is_some() {
        return Some(TraceFormat::Turns);
    }
    if value.get("requests").is_some() {
        return Some(TraceFormat::Weka);
    }
    if value.get("timestamp").is_some() {
        return Some(if is_vllms(value) { TraceFormat::Vllm } else { TraceFormat::Mooncake });
    }
    Some(TraceFormat::ShareGpt)
}
