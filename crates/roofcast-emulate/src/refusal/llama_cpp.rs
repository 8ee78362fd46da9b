//! Errors with the messages of llama.cpp's server.
//!
//! Source: answers recorded from llama.cpp b11434; messages about JSON are from the nlohmann/json parser with which it
//! is built.

use super::Refusal;
use serde_json::{Value, json};

/// Error for a prompt that leaves no room for an answer.
pub(super) fn too_long(input: u64, context: u64) -> Value {
    let message = format!(
        "request ({input} tokens) exceeds the available context size ({context} tokens), try increasing it"
    );
    json!({"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": input,
        "n_ctx": context})
}

/// Error for a body that is not JSON because of the byte `found`, or because the body ends early.
pub(super) fn no_json(found: Option<u8>, error: &serde_json::Error) -> Value {
    let reason = error.to_string();
    let (context, expected) = if reason.contains("key must be") {
        ("object key", "string literal")
    } else if reason.contains("`:`") {
        ("object separator", "':'")
    } else if reason.contains("`}`") || reason.contains("parsing an object") {
        ("object", "'}'")
    } else if reason.contains("`]`") || reason.contains("parsing a list") {
        ("array", "']'")
    } else {
        ("value", "'[', '{', or a literal")
    };
    // The parser reports an early end one past the last byte.
    let column = error.column() + usize::from(error.is_eof());
    let unexpected = match found {
        _ if error.is_eof() => format!("unexpected end of input; expected {expected}"),
        Some(mark @ (b'{' | b'}' | b'[' | b']' | b':' | b',')) => {
            format!("unexpected '{}'; expected {expected}", char::from(mark))
        }
        other => format!("invalid literal; last read: '{}'", char::from(other.unwrap_or(b' '))),
    };
    let message = format!(
        "[json.exception.parse_error.101] parse error at line {}, column {column}: syntax error while parsing {context} - \
         {unexpected}",
        error.line()
    );
    json!({"code": 400, "message": message, "type": "invalid_request_error"})
}

impl Refusal {
    /// Body of the refusal, in the form of llama.cpp b11434.
    pub(super) fn written_llama_cpp(&self) -> Value {
        let code = self.status.as_u16();
        if let Some(error) = &self.llama_cpp {
            return json!({ "error": error });
        }
        let (kind, message) = match code {
            401 => ("authentication_error", "Invalid API Key".to_owned()),
            404 => ("not_found_error", "File Not Found".to_owned()),
            503 => ("unavailable_error", self.message()),
            400..=499 => ("invalid_request_error", self.message()),
            _ => ("server_error", self.message()),
        };
        json!({"error": {"code": code, "message": message, "type": kind}})
    }
}
