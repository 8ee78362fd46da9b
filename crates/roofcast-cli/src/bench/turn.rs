//! Messages of a conversation, in the form that chat endpoints accept.
//!
//! Knows: the roles of OpenAI's API and ShareGPT's names for them; which keys of a message are kept unchanged. Knows
//! nothing about files.

use roofcast::{Error, Result};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Role of the speaker, as in `user`, `assistant`, `system`, `developer` or `tool`.
    pub(crate) role: Cow<'static, str>,
    /// Text of the message; parts that are not text are left out.
    pub(crate) text: String,
    /// The whole message if it has more than text: other parts, tool calls, the id of the call that it answers.
    whole: Option<Map<String, Value>>,
}

/// ShareGPT's names of speakers with OpenAI's roles. `bing` and `bard` occur in the published file.
const NAMES: [(&str, &str); 13] = [
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("assistant", "assistant"),
    ("bing", "assistant"),
    ("bard", "assistant"),
    ("model", "assistant"),
    ("system", "system"),
    ("developer", "developer"),
    ("tool", "tool"),
    ("function", "tool"),
    ("observation", "tool"),
];

/// Types of parts that a chat's messages do not have.
const FOREIGN: [&str; 6] = ["tool_use", "tool_result", "image", "input_text", "output_text", "input_image"];

const ACCEPTED: &str = "a message as {\"role\": \"user\", \"content\": \"…\"} with content as text, parts or null, or as \
                        {\"from\": \"human\", \"value\": \"…\"}";

impl Turn {
    /// A user's message.
    pub(crate) fn user(text: String) -> Turn {
        Turn { role: "user".into(), text, whole: None }
    }

    /// A user's message of images, by their URLs, before a text.
    pub(super) fn pictured(urls: &[String], text: String) -> Turn {
        let image = |url: &String| json!({"type": "image_url", "image_url": {"url": url}});
        let words = json!({"type": "text", "text": text});
        let parts: Vec<Value> = urls.iter().map(image).chain([words]).collect();
        let whole =
            Map::from_iter([("role".to_owned(), json!("user")), ("content".to_owned(), parts.into())]);
        Turn { role: "user".into(), text, whole: Some(whole) }
    }

    /// A server's answer.
    pub(crate) fn assistant(text: String) -> Turn {
        Turn { role: "assistant".into(), text, whole: None }
    }

    /// Puts `words` before the text of the message, also in its first part that is text.
    pub(crate) fn begin(&mut self, words: &str) {
        self.text.insert_str(0, words);
        let Some(content) = self.whole.as_mut().and_then(|whole| whole.get_mut("content")) else { return };
        let text = match content {
            Value::Array(parts) => parts.iter_mut().find_map(|part| part.get_mut("text")),
            other => Some(other),
        };
        if let Some(Value::String(text)) = text {
            text.insert_str(0, words);
        }
    }

    /// True if the message is a server's answer.
    pub(crate) fn is_answer(&self) -> bool {
        self.role == "assistant"
    }

    /// True if the message has content: text, or other parts.
    pub(crate) fn says_something(&self) -> bool {
        let parts = self.whole.as_ref().and_then(|keys| keys.get("content")).and_then(Value::as_array);
        !self.text.trim().is_empty() || parts.is_some_and(|parts| !parts.is_empty())
    }

    /// The message's keys, if it has more than text.
    pub(super) fn keys(&self) -> Option<&Map<String, Value>> {
        self.whole.as_ref()
    }

    /// True if the message is text alone.
    pub(super) fn is_plain(&self) -> bool {
        self.whole.is_none()
    }

    /// True if the message has parts in the form of an API other than a chat's.
    pub(super) fn is_foreign(&self) -> bool {
        let parts = self.whole.as_ref().and_then(|keys| keys.get("content")).and_then(Value::as_array);
        let kind = |part: &Value| {
            part.get("type").and_then(Value::as_str).is_some_and(|kind| FOREIGN.contains(&kind))
        };
        parts.is_some_and(|parts| parts.iter().any(kind))
    }

    /// The message in the JSON of a request's body.
    pub(super) fn message(&self) -> Value {
        match &self.whole {
            Some(keys) => Value::Object(keys.clone()),
            None => json!({"role": self.role, "content": self.text}),
        }
    }

    /// Reads a message in OpenAI's form (`role`, `content`) or ShareGPT's form (`from`, `value`).
    pub(super) fn read(place: &str, value: &Value) -> Result<Turn> {
        let wrong = |field: &str, found: &Value| Error::field(place, field, found, ACCEPTED);
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        if let Some(role) = text("role") {
            let mut keys = value.as_object().cloned().unwrap_or_default();
            // Nulls are columns of a table that only other rows fill.
            keys.retain(|key, kept| !kept.is_null() || key == "content");
            let content = match value.get("content") {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(Value::Array(parts)) => words(parts),
                Some(other) => return Err(wrong("content", other)),
            };
            let plain = keys.len() == 2 && keys.get("content").is_some_and(Value::is_string);
            let whole = (!plain).then_some(keys);
            return Ok(Turn { role: role.to_owned().into(), text: content, whole });
        }
        let (Some(from), Some(said)) = (text("from"), text("value")) else {
            return Err(wrong("message", value));
        };
        let role = NAMES.iter().find(|(name, _)| *name == from).map(|(_, role)| *role);
        let names = || NAMES.map(|(name, _)| name).join(", ");
        let role = role.ok_or_else(|| Error::field(place, "from", format!("{from:?}"), names()))?;
        Ok(Turn { role: role.into(), text: said.to_owned(), whole: None })
    }
}

/// The text of content that is a list of parts.
fn words(parts: &[Value]) -> String {
    let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    texts.join(" ")
}
