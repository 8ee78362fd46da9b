//! A prompt in the form of each API: messages of a chat, items of a response, blocks of Anthropic's messages, or text.
//!
//! Knows: how the APIs write text, images, calls of tools and their results. A chat's messages that need no conversion are
//! sent as they are. Knows nothing about files.

use super::target::Endpoint;
use super::turn::Turn;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Part of a message.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    /// An image's URL, which may hold its data.
    Image(String),
    /// A call of a tool: id, name, and arguments as JSON text.
    Call([String; 3]),
    /// Result of a call: its id, and the text.
    Result([String; 2]),
    /// A part that only the API of its own form takes; the text is its type.
    Other(String),
}

/// Puts the turns of a prompt into the body of a request.
pub(super) fn say(endpoint: Endpoint, turns: &[Turn], body: &mut Map<String, Value>) {
    let text = || turns.iter().map(|t| t.text.as_str()).collect::<Vec<_>>().join(" ");
    match endpoint {
        Endpoint::Chat => body.insert("messages".into(), turns.iter().flat_map(chat).collect()),
        Endpoint::Responses => body.insert("input".into(), turns.iter().flat_map(items).collect()),
        Endpoint::Messages => {
            // Anthropic's messages hold only user and assistant turns.
            let (instructions, said): (Vec<_>, Vec<_>) =
                turns.iter().partition(|t| matches!(t.role.as_ref(), "system" | "developer"));
            if !instructions.is_empty() {
                let texts: Vec<_> = instructions.iter().map(|t| t.text.as_str()).collect();
                body.insert("system".into(), texts.join("\n").into());
            }
            body.insert("messages".into(), blocks(&said).into())
        }
        Endpoint::Completions => body.insert("prompt".into(), text().into()),
        Endpoint::Generate => body.insert("text".into(), text().into()),
        Endpoint::Embeddings => body.insert("input".into(), text().into()),
    };
}

/// The messages of a chat that a turn is: one, and one for each result of a tool.
fn chat(turn: &Turn) -> Vec<Value> {
    if !turn.is_foreign() {
        return vec![turn.message()];
    }
    let mut messages = Vec::new();
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for part in parts(turn) {
        match part {
            Part::Text(text) => content.push(json!({"type": "text", "text": text})),
            Part::Image(url) => content.push(json!({"type": "image_url", "image_url": {"url": url}})),
            Part::Call([id, name, arguments]) => calls.push(
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}),
            ),
            Part::Result([id, text]) => {
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            Part::Other(_) => {}
        }
    }
    if !content.is_empty() || !calls.is_empty() {
        let mut message = json!({"role": turn.role, "content": plain(content)});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        messages.push(message);
    }
    messages
}

/// Content that is one text as a string, as every server takes it; no content as null.
fn plain(mut content: Vec<Value>) -> Value {
    match content.as_mut_slice() {
        [] => Value::Null,
        [only] if only["type"] == "text" => only["text"].take(),
        _ => content.into(),
    }
}

/// The items of a response's input that a turn is.
fn items(turn: &Turn) -> Vec<Value> {
    let mut items = Vec::new();
    let mut content = Vec::new();
    let kind = if turn.is_answer() { "output_text" } else { "input_text" };
    for part in parts(turn) {
        match part {
            Part::Text(text) => content.push(json!({"type": kind, "text": text})),
            Part::Image(url) => content.push(json!({"type": "input_image", "image_url": url})),
            Part::Call([id, name, arguments]) => items
                .push(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})),
            Part::Result([id, text]) => {
                items.push(json!({"type": "function_call_output", "call_id": id, "output": text}));
            }
            Part::Other(_) => {}
        }
    }
    if !content.is_empty() {
        let texts = content.iter().all(|part| part["type"] == kind);
        let content = match content.as_slice() {
            [only] if texts && turn.is_plain() => only["text"].clone(),
            // Parts of an answer would need the item's id; its text needs none.
            all if turn.is_answer() => {
                all.iter().filter_map(|part| part["text"].as_str()).collect::<String>().into()
            }
            _ => content.into(),
        };
        items.insert(0, json!({"role": turn.role, "content": content}));
    }
    items
}

/// Anthropic's messages: results of tools are a user's, and results of one answer's calls stand in one message.
fn blocks(turns: &[&Turn]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for turn in turns {
        let role = if turn.is_answer() { "assistant" } else { "user" };
        let mut content: Vec<Value> = parts(turn).into_iter().filter_map(block).collect();
        let results = content.iter().any(|block| block["type"] == "tool_result");
        if results
            && let Some(last) = messages.last_mut().filter(|last| last["role"] == role)
            && let Some(before) = last["content"].as_array_mut()
        {
            before.append(&mut content);
            continue;
        }
        let content = if results { content.into() } else { plain(content) };
        if !content.is_null() {
            messages.push(json!({"role": role, "content": content}));
        }
    }
    messages
}

fn block(part: Part) -> Option<Value> {
    Some(match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image(url) => {
            let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            let source = match data {
                Some((kind, data)) => json!({"type": "base64", "media_type": kind, "data": data}),
                None => json!({"type": "url", "url": url}),
            };
            json!({"type": "image", "source": source})
        }
        Part::Call([id, name, arguments]) => {
            let input = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
        Part::Result([id, text]) => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
        Part::Other(_) => return None,
    })
}

/// The parts of a turn, in whichever form it is written.
fn parts(turn: &Turn) -> Vec<Part> {
    let Some(keys) = turn.keys() else { return vec![Part::Text(turn.text.clone())] };
    let string = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    if turn.role == "tool" {
        return vec![Part::Result([string(keys.get("tool_call_id")), turn.text.clone()])];
    }
    let mut parts: Vec<Part> = match keys.get("content") {
        Some(Value::String(text)) if !text.is_empty() => vec![Part::Text(text.clone())],
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        _ => Vec::new(),
    };
    let calls = keys.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    parts.extend(calls.map(|call| {
        let part_at = |path: &str| string(call.pointer(path));
        Part::Call([part_at("/id"), part_at("/function/name"), part_at("/function/arguments")])
    }));
    parts
}

fn part(part: &Value) -> Part {
    let string = |path: &str| part.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let text = |path: &str| string(path).unwrap_or_default();
    match text("/type").as_str() {
        "text" | "input_text" | "output_text" => Part::Text(text("/text")),
        "image_url" | "input_image" => {
            Part::Image(string("/image_url/url").or(string("/image_url")).unwrap_or_default())
        }
        "image" => Part::Image(match (string("/source/media_type"), string("/source/data")) {
            (Some(kind), Some(data)) => format!("data:{kind};base64,{data}"),
            _ => text("/source/url"),
        }),
        "tool_use" => {
            let input = part.get("input").map_or_else(|| "{}".to_owned(), Value::to_string);
            Part::Call([text("/id"), text("/name"), input])
        }
        "tool_result" => {
            let content = part.get("content").cloned().unwrap_or_default();
            let words = match &content {
                Value::String(text) => text.clone(),
                content => {
                    content.as_array().into_iter().flatten().filter_map(|p| p["text"].as_str()).collect()
                }
            };
            Part::Result([text("/tool_use_id"), words])
        }
        other => Part::Other(other.to_owned()),
    }
}

/// Kinds of parts in `turns` that an endpoint cannot be sent.
pub(crate) fn unsent(endpoint: Endpoint, turns: &[Turn]) -> BTreeSet<String> {
    let text_alone = !endpoint.takes_messages();
    let kind = |part: Part| match part {
        Part::Other(kind) => Some(kind),
        Part::Image(_) if text_alone => Some("image".to_owned()),
        _ => None,
    };
    let converted = turns.iter().filter(|turn| endpoint != Endpoint::Chat || turn.is_foreign());
    converted.flat_map(|turn| parts(turn).into_iter().filter_map(kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(endpoint: Endpoint, messages: &Value) -> Value {
        let turns: Vec<Turn> =
            messages.as_array().unwrap().iter().map(|message| Turn::read("t", message).unwrap()).collect();
        let mut body = Map::new();
        say(endpoint, &turns, &mut body);
        body.into()
    }

    /// A conversation in each API's form: an image, a call and its result.
    fn forms() -> [(Endpoint, Value); 3] {
        let chat = json!([
            {"role": "user", "content": [{"type": "text", "text": "what?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]},
            {"role": "assistant", "content": null,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "w", "arguments": "{\"x\":1}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "wet"}]);
        let responses = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "what?"},
                {"type": "input_image", "image_url": "data:image/png;base64,QQ=="}]},
            {"type": "function_call", "call_id": "a", "name": "w", "arguments": "{\"x\":1}"},
            {"type": "function_call_output", "call_id": "a", "output": "wet"}]);
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "what?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "w", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "wet"}]}]);
        [(Endpoint::Chat, chat), (Endpoint::Responses, responses), (Endpoint::Messages, messages)]
    }

    #[test]
    fn a_conversation_is_said_in_every_form() {
        let [(_, chat), (_, items), (_, messages)] = &forms();
        for (endpoint, key, form) in [
            (Endpoint::Chat, "messages", chat),
            (Endpoint::Responses, "input", items),
            (Endpoint::Messages, "messages", messages),
        ] {
            for written in [chat, messages] {
                assert_eq!(&said(endpoint, written)[key], form, "{endpoint:?} from {written}");
            }
        }
        assert_eq!(said(Endpoint::Completions, chat)["prompt"], "what?  wet");
    }

    /// Two results of one answer's calls are one message of Anthropic's; a text part alone is a part of a response.
    #[test]
    fn results_are_together_and_text_parts_are_named() {
        let call =
            |id: &str| json!({"id": id, "type": "function", "function": {"name": "w", "arguments": "{}"}});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "wet"});
        let chat = json!([{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call("a"), call("b")]},
            result("a"), result("b")]);
        let messages = said(Endpoint::Messages, &chat)["messages"].as_array().unwrap().clone();
        assert_eq!((messages.len(), messages[2]["content"].as_array().unwrap().len()), (3, 2));
        let text = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
        assert_eq!(
            said(Endpoint::Responses, &text)["input"][0]["content"],
            json!([{"type": "input_text", "text": "hi"}])
        );
        assert_eq!(
            said(Endpoint::Responses, &json!([{"role": "user", "content": "hi"}]))["input"][0]["content"],
            "hi"
        );
    }
}
