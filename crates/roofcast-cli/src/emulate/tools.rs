//! Tools that a client offers, and arguments of the form that they ask for.
//!
//! Knows: `tools` and `tool_choice` as vLLM 0.32 checks them (`check_tool_usage` of its `chat_completion/protocol.py`).
//! Knows nothing about how calls are written.

use super::fields::Fields;
use super::form;
use super::refusal::Refusal;
use serde_json::{Map, Value, json};

/// The tool that an answer calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// The form of its arguments.
    parameters: Value,
    /// True if the client named the tool, rather than only requiring a call.
    pub(crate) named: bool,
}

impl Call {
    /// The call that a request asks for: of the tool that it names, or of the first tool if it requires a call.
    pub(crate) fn read(fields: &Fields) -> Result<Option<Call>, Refusal> {
        let choice = match fields.get("tool_choice") {
            None => return tools(fields).map(|_| None),
            Some(choice) => choice,
        };
        if choice == "none" {
            return tools(fields).map(|_| None);
        }
        let tools = tools(fields)?;
        if fields.get("tools").is_none() {
            return Err(Refusal::param("tool_choice", "When using `tool_choice`, `tools` must be set."));
        }
        let call = |(name, parameters): &(String, Value), named: bool| Call {
            name: name.clone(),
            parameters: parameters.clone(),
            named,
        };
        match choice {
            Value::String(text) if text == "auto" => Ok(None),
            Value::String(text) if text == "required" => Ok(tools.first().map(|tool| call(tool, false))),
            Value::Object(_) => {
                let name = choice.pointer("/function/name").and_then(Value::as_str);
                let tool = tools.iter().find(|(known, _)| Some(known.as_str()) == name);
                let missing =
                    "The tool specified in `tool_choice` does not match any of the specified `tools`";
                tool.map(|tool| Some(call(tool, true))).ok_or_else(|| Refusal::param("tool_choice", missing))
            }
            other => {
                let shown = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
                let message = format!(
                    "Invalid value for `tool_choice`: {shown}! Only named tools, \"none\", \"auto\" or \"required\" are \
                     supported."
                );
                Err(Refusal::param("tool_choice", &message))
            }
        }
    }

    /// Arguments that fit the tool's schema; `draw` returns a number below its argument, `word` a word.
    pub(crate) fn arguments(
        &self,
        draw: &mut dyn FnMut(usize) -> usize,
        word: &dyn Fn(usize) -> String,
    ) -> Value {
        match form::filled(&self.parameters, draw, word) {
            Value::Object(map) => Value::Object(map),
            _ => Value::Object(Map::new()),
        }
    }
}

/// Names of the tools and the forms of their arguments.
fn tools(fields: &Fields) -> Result<Vec<(String, Value)>, Refusal> {
    let Some(value) = fields.get("tools") else { return Ok(Vec::new()) };
    let wrong = |reason: &str| Refusal::field("tools", "list_type", reason, value);
    let items = value.as_array().ok_or_else(|| wrong("Input should be a valid list"))?;
    if items.is_empty() {
        let message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.";
        return Err(Refusal::param("tools", message));
    }
    let read = |item: &Value| {
        let name = item.pointer("/function/name").and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong("a tool without a function's name"))?;
        let parameters = item.pointer("/function/parameters").cloned().unwrap_or(json!({}));
        Ok((name.to_owned(), parameters))
    };
    items.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Option<Call>, Refusal> {
        Call::read(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    fn filled(parameters: Value, from: usize) -> Value {
        let call = Call { name: "f".into(), parameters, named: false };
        let mut next = from;
        let mut draw = |below: usize| {
            next += 7;
            next % below.max(1)
        };
        call.arguments(&mut draw, &|index| format!("w{index}"))
    }

    #[test]
    fn a_call_is_asked_for_by_choice() {
        let tools = json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]);
        let with = |choice: Value| read(json!({"tools": tools, "tool_choice": choice}));
        assert_eq!(with(json!("auto")).unwrap(), None);
        assert_eq!(with(json!("none")).unwrap(), None);
        assert_eq!(read(json!({"tools": tools})).unwrap(), None);
        let first = with(json!("required")).unwrap().unwrap();
        assert_eq!((first.name.as_str(), first.named), ("a", false));
        let named = with(json!({"type": "function", "function": {"name": "b"}})).unwrap().unwrap();
        assert_eq!((named.name.as_str(), named.named), ("b", true));
        assert!(with(json!("any")).is_err() && with(json!({"function": {"name": "c"}})).is_err());
        assert!(read(json!({"tool_choice": "required"})).is_err());
        assert!(read(json!({"tools": {}})).is_err() && read(json!({"tools": [{}]})).is_err());
    }

    /// Every property in its form: chosen, bounded, nested, referred to.
    #[test]
    fn arguments_have_the_form_asked_for() {
        let form = json!({"type": "object", "required": ["city", "unit", "days", "at", "tags", "near", "sure"],
            "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}}}},
            "properties": {
                "city": {"type": "string", "minLength": 12}, "unit": {"enum": ["C", "F"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 3}, "at": {"type": "string", "format": "date"},
                "tags": {"type": "array", "minItems": 2, "items": {"type": "string", "maxLength": 2}},
                "near": {"$ref": "#/$defs/place"}, "sure": {"type": ["null", "boolean"]}, "spare": {"type": "string"}}});
        for from in 0..50 {
            let found = filled(form.clone(), from);
            assert!(found["city"].as_str().unwrap().len() >= 12);
            assert!(["C", "F"].contains(&found["unit"].as_str().unwrap()));
            assert!((1..=3).contains(&found["days"].as_i64().unwrap()));
            assert_eq!(found["at"], "2026-01-01");
            let tags = found["tags"].as_array().unwrap();
            assert!(tags.len() == 2 && tags.iter().all(|t| t.as_str().unwrap().len() <= 2));
            assert!((-90.0..=90.0).contains(&found["near"]["lat"].as_f64().unwrap()));
            assert!(found["sure"].is_boolean() && found.get("spare").is_none());
        }
    }

    /// A schema that refers to itself, requires far too much or is invalid terminates.
    #[test]
    fn any_form_is_filled() {
        let own = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(filled(own, 0)["next"]["next"].is_object());
        let wide =
            json!({"type": "object", "properties": {"a": {"type": "array", "minItems": 1_000_000_000}}});
        assert_eq!(filled(wide, 0)["a"].as_array().unwrap().len(), form::MOST_PARTS);
        for odd in [json!(null), json!(7), json!([]), json!({"type": "array"}), json!({"$ref": "#/nowhere"})]
        {
            assert_eq!(filled(odd, 0), json!({}));
        }
    }
}
