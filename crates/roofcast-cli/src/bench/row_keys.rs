//! Keys of a prompt's row in the body of a request, in the form of each API.
//!
//! Knows: tools, the choice among them, the form of an answer, sampling keys, and which endpoint has a place for each. Knows
//! nothing about conversations.

use super::target::Endpoint;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Keys of a prompt's row in a request's body, and the keys that the endpoint cannot be sent.
pub(crate) fn keys(endpoint: Endpoint, row: &Map<String, Value>) -> (Map<String, Value>, BTreeSet<String>) {
    let mut sent = Map::new();
    let mut left = BTreeSet::new();
    for (key, value) in row {
        match key_of(endpoint, key, value) {
            Some((path, value)) => insert(&mut sent, path, value),
            None => drop(left.insert(key.clone())),
        }
    }
    // Anthropic's choice of tools says too if calls may be parallel.
    if endpoint == Endpoint::Messages && row.get("parallel_tool_calls") == Some(&Value::Bool(false)) {
        left.remove("parallel_tool_calls");
        let choice = sent.entry("tool_choice").or_insert_with(|| json!({"type": "auto"}));
        choice["disable_parallel_tool_use"] = true.into();
    }
    (sent, left)
}

fn insert(into: &mut Map<String, Value>, path: [&str; 2], value: Value) {
    match path {
        [key, ""] => drop(into.insert(key.to_owned(), value)),
        [outer, key] => into.entry(outer).or_insert_with(|| json!({}))[key] = value,
    }
}

/// Sampling keys that OpenAI's older endpoints, as vLLM's, take unchanged.
const SAMPLING: [&str; 14] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "logprobs",
    "top_logprobs",
    "logit_bias",
];

/// Place and value of a row's key in the body of a request; `None` if the endpoint has no such key.
fn key_of<'a>(endpoint: Endpoint, key: &'a str, value: &Value) -> Option<([&'a str; 2], Value)> {
    let same = || Some(([key, ""], value.clone()));
    match (endpoint, key) {
        (Endpoint::Embeddings, "dimensions" | "encoding_format" | "user") => same(),
        (Endpoint::Embeddings, _) => None,
        (Endpoint::Generate, "priority") => same(),
        (Endpoint::Generate, "seed") => Some((["sampling_params", "sampling_seed"], value.clone())),
        (Endpoint::Generate, key) if SAMPLING[..9].contains(&key) || key == "ignore_eos" => {
            Some((["sampling_params", key], value.clone()))
        }
        (Endpoint::Generate, _) => None,
        (Endpoint::Chat, "tools") => {
            Some(([key, ""], value.as_array()?.iter().map(|t| tool(endpoint, t)).collect()))
        }
        (Endpoint::Chat, "tool_choice") => Some(([key, ""], choice(endpoint, value))),
        (Endpoint::Chat, "parallel_tool_calls" | "reasoning_effort" | "chat_template_kwargs") => same(),
        (
            Endpoint::Chat | Endpoint::Completions,
            "priority" | "user" | "response_format" | "structured_outputs",
        ) => same(),
        (Endpoint::Chat | Endpoint::Completions, key) if SAMPLING.contains(&key) => same(),
        (Endpoint::Chat | Endpoint::Completions, _) => None,
        (_, "tools") => Some(([key, ""], value.as_array()?.iter().map(|t| tool(endpoint, t)).collect())),
        (_, "tool_choice") => Some(([key, ""], choice(endpoint, value))),
        (_, "temperature" | "top_p") => same(),
        (Endpoint::Responses, "parallel_tool_calls" | "priority" | "user" | "metadata") => same(),
        (Endpoint::Responses, "reasoning_effort") => Some((["reasoning", "effort"], value.clone())),
        (Endpoint::Responses, "response_format") => Some((["text", "format"], format(value))),
        (Endpoint::Messages, "top_k" | "thinking") => same(),
        (Endpoint::Messages, "stop") => {
            let stops = if value.is_string() { json!([value]) } else { value.clone() };
            Some((["stop_sequences", ""], stops))
        }
        (Endpoint::Messages, "response_format") => {
            let Value::Object(format) = format(value) else { return None };
            let schema = json!({"type": format.get("type")?, "schema": format.get("schema")?});
            Some((["output_config", "format"], schema))
        }
        _ => None,
    }
}

/// The format of an answer, without the nesting of a chat's `response_format`.
fn format(format: &Value) -> Value {
    match format.get("json_schema").and_then(Value::as_object) {
        Some(nested) => {
            let mut flat = nested.clone();
            flat.insert("type".into(), "json_schema".into());
            flat.into()
        }
        None => format.clone(),
    }
}

/// A tool in the form of an endpoint, from the form of any API; a tool that is no function as it is.
fn tool(endpoint: Endpoint, tool: &Value) -> Value {
    let function = tool.get("function").unwrap_or(tool);
    let schema = function.get("parameters").or(function.get("input_schema"));
    let Some(name) = function.get("name").filter(|_| schema.is_some() || tool.get("function").is_some())
    else {
        return tool.clone();
    };
    let schema = schema.cloned().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let mut keys = json!({"name": name});
    for key in ["description", "strict"] {
        if let Some(value) = function.get(key).filter(|_| key != "strict" || endpoint != Endpoint::Messages) {
            keys[key] = value.clone();
        }
    }
    match endpoint {
        Endpoint::Messages => keys["input_schema"] = schema,
        _ => keys["parameters"] = schema,
    }
    match endpoint {
        Endpoint::Messages => keys,
        Endpoint::Responses => {
            keys["type"] = "function".into();
            keys
        }
        _ => json!({"type": "function", "function": keys}),
    }
}

/// A choice among tools in the form of an endpoint, from the form of any API.
fn choice(endpoint: Endpoint, choice: &Value) -> Value {
    let kind = choice.as_str().or(choice.get("type").and_then(Value::as_str)).unwrap_or_default();
    let name = choice.pointer("/function/name").or(choice.get("name"));
    match (endpoint, kind, name) {
        (Endpoint::Messages, _, Some(name)) => json!({"type": "tool", "name": name}),
        (Endpoint::Responses, _, Some(name)) => json!({"type": "function", "name": name}),
        (_, _, Some(name)) => json!({"type": "function", "function": {"name": name}}),
        (Endpoint::Messages, "required", _) => json!({"type": "any"}),
        (Endpoint::Messages, kind, _) => json!({ "type": kind }),
        (_, "any", _) => "required".into(),
        (_, "auto" | "none", _) => kind.into(),
        _ => choice.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_row_are_sent_or_named() {
        let schema = json!({"type": "object"});
        let row = json!({"tools": [{"type": "function", "function": {"name": "w", "parameters": schema}}],
            "tool_choice": "required", "temperature": 0.5, "priority": 3, "mood": "good",
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
        let row = row.as_object().unwrap();
        let sent_and_left = |endpoint| {
            let (sent, left) = keys(endpoint, row);
            (Value::Object(sent), left.into_iter().collect::<Vec<_>>())
        };
        let (chat, left) = sent_and_left(Endpoint::Chat);
        assert_eq!(
            (&chat["tools"], &chat["priority"], left),
            (&row["tools"], &json!(3), vec!["mood".to_owned()])
        );
        let (responses, left) = sent_and_left(Endpoint::Responses);
        assert_eq!(responses["tools"], json!([{"type": "function", "name": "w", "parameters": schema}]));
        assert_eq!(
            responses["text"]["format"],
            json!({"type": "json_schema", "name": "n", "schema": schema})
        );
        assert_eq!((responses["tool_choice"].as_str(), left), (Some("required"), vec!["mood".to_owned()]));
        let (messages, left) = sent_and_left(Endpoint::Messages);
        assert_eq!(messages["tools"], json!([{"name": "w", "input_schema": schema}]));
        assert_eq!(messages["tool_choice"], json!({"type": "any"}));
        assert_eq!(messages["output_config"]["format"], json!({"type": "json_schema", "schema": schema}));
        assert_eq!(left, ["mood", "priority"]);
        assert_eq!(sent_and_left(Endpoint::Completions).1, ["mood", "tool_choice", "tools"]);
        assert_eq!(
            sent_and_left(Endpoint::Generate).0,
            json!({"sampling_params": {"temperature": 0.5}, "priority": 3})
        );
    }
}
