//! Turns of a conversation, as every API writes them, encoded as tokens.
//!
//! Knows: messages of a chat, items of a response, blocks of Anthropic's messages; tools' calls and results are text.
//! Images have no tokens.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::tokenizer::{Encoded, Tokenizer};
use serde_json::Value;

/// Encodes the messages of a chat as tokens.
pub(crate) fn chat(fields: &Fields, tokenizer: &dyn Tokenizer) -> Encoded {
    let answers = fields.flag("add_generation_prompt")?.unwrap_or(true);
    said(&turns("messages", fields.need("messages")?)?, answers, tokenizer)
}

/// Encodes turns of role and text as tokens; if `answers`, the beginning of the answer follows.
pub(super) fn said(turns: &[(String, String)], answers: bool, tokenizer: &dyn Tokenizer) -> Encoded {
    if turns.is_empty() {
        return Err(Refusal::bad("At least one message is needed."));
    }
    let tokens = tokenizer.chat(turns, answers)?;
    if tokens.is_empty() {
        return Err(Refusal::bad("The messages have no token."));
    }
    Ok(tokens)
}

/// Roles and texts of the messages in a field.
pub(super) fn turns(field: &str, value: &Value) -> Result<Vec<(String, String)>, Refusal> {
    let wrong = |reason: &str| Refusal::field(field, "list_type", reason, value);
    let items = value.as_array().ok_or_else(|| wrong("Input should be a valid list"))?;
    let turn = |item: &Value| {
        let role = role(item).ok_or_else(|| wrong("a message without a role"))?;
        let text = match item.get("role") {
            Some(_) => content(item.get("content")).map(|text| text + &called(item)),
            None => Some(part(item)),
        };
        Ok((role.to_owned(), text.ok_or_else(|| wrong("a content that is no text"))?))
    };
    items.iter().map(turn).collect()
}

/// Role of a message; of a response's item that has none, by its type.
fn role(item: &Value) -> Option<&str> {
    if let Some(role) = item.get("role") {
        return role.as_str();
    }
    match item.get("type")?.as_str()? {
        "message" => None,
        kind if kind.ends_with("_output") => Some("tool"),
        _ => Some("assistant"),
    }
}

/// The arguments of the tools that an assistant's message called. Encoding them gives the tokens of the original
/// answer, so that the prefix cache has them.
fn called(message: &Value) -> String {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let arguments = |call: &Value| call.pointer("/function/arguments")?.as_str().map(str::to_owned);
    calls.into_iter().flatten().filter_map(arguments).collect()
}

/// The text of a message: a string, or the text of the parts of a list.
pub(super) fn content(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => Some(parts.iter().map(part).collect()),
        Some(_) => None,
    }
}

/// The text of a part: its text or thinking, a call's arguments, a result's content, a reasoning's summary.
fn part(part: &Value) -> String {
    if let Value::String(text) = part {
        return text.clone();
    }
    let texts = ["text", "thinking", "arguments"].into_iter().filter_map(|key| part.get(key)?.as_str());
    let input = part.get("input").map(|input| match input {
        Value::String(text) => text.clone(),
        input => input.to_string(),
    });
    let nested = ["content", "output", "summary"].into_iter().filter_map(|key| content(part.get(key)));
    texts.map(str::to_owned).chain(input).chain(nested).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A question, a call with its result, and thinking, as each API returns them.
    #[test]
    fn every_api_says_the_same() {
        let call = r#"{"city":"x"}"#;
        let chat = json!([{"role": "user", "content": "rain?"},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "w", "arguments": call}}]},
            {"role": "tool", "content": "wet", "tool_call_id": "1"}]);
        let items = json!([{"role": "user", "content": [{"type": "input_text", "text": "rain?"}]},
            {"type": "function_call", "call_id": "1", "name": "w", "arguments": call},
            {"type": "function_call_output", "call_id": "1", "output": "wet"}]);
        let text = |turns: Vec<(String, String)>| turns.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(text(turns("messages", &chat).unwrap()), ["rain?", call, "wet"]);
        assert_eq!(turns("input", &items).unwrap(), turns("messages", &chat).unwrap());
        let blocks = json!([{"role": "user", "content": "rain?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "w", "input": {"city": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "wet"}]}]}]);
        assert_eq!(text(turns("messages", &blocks).unwrap()), ["rain?", call, "wet"]);
        let thought = json!([{"role": "assistant", "content": [{"type": "thinking", "thinking": "so", "signature": "s"}]}]);
        assert_eq!(text(turns("messages", &thought).unwrap()), ["so"]);
        assert!(turns("input", &json!([{"type": "message", "content": "a"}])).is_err());
    }
}
