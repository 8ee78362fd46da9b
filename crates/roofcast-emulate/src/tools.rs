//! Tools that a client offers, and generated arguments that fit their schemas.
//!
//! Knows: `tools` and `tool_choice` as vLLM 0.32 checks them (`check_tool_usage` of its `chat_completion/protocol.py`).
//! Knows nothing about how calls are written.

use super::fields::Fields;
use super::form;
use super::refusal::Refusal;
use serde_json::{Map, Value, json};

/// Tools that an answer may call, and who decides about the call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Calls {
    /// Tools to choose from, at least one.
    pub(crate) tools: Vec<Tool>,
    pub(crate) choice: Choice,
    /// True if an answer may have several calls.
    pub(crate) parallel: bool,
}

/// Party that decides if an answer calls a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The model decides.
    Auto,
    /// The client requires a call of any tool.
    Required,
    /// The client requires a call of the tool that it names.
    Named,
}

/// A tool that the client offers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// JSON Schema of the tool's arguments.
    parameters: Value,
}

impl Calls {
    /// Reads the tools that an answer may call; `None` if there are no tools, or none may be called.
    pub(crate) fn read(fields: &Fields) -> Result<Option<Calls>, Refusal> {
        let tools = tools(fields)?;
        let parallel = fields.flag("parallel_tool_calls")?.unwrap_or(true);
        let all = |choice: Choice| Calls { tools: tools.clone(), choice, parallel };
        let choice = match fields.get("tool_choice") {
            // vLLM assumes `auto` if tools are offered.
            None => return Ok((!tools.is_empty()).then(|| all(Choice::Auto))),
            Some(choice) => choice,
        };
        if choice == "none" {
            return Ok(None);
        }
        if fields.get("tools").is_none() {
            return Err(Refusal::param("tool_choice", "When using `tool_choice`, `tools` must be set."));
        }
        match choice {
            Value::String(text) if text == "auto" => Ok(Some(all(Choice::Auto))),
            Value::String(text) if text == "required" => Ok(Some(all(Choice::Required))),
            Value::Object(_) => {
                let name = choice.pointer("/function/name").and_then(Value::as_str);
                let tool = tools.iter().find(|tool| Some(tool.name.as_str()) == name);
                let missing =
                    "The tool specified in `tool_choice` does not match any of the specified `tools`";
                let tool = tool.ok_or_else(|| Refusal::param("tool_choice", missing))?.clone();
                Ok(Some(Calls { tools: vec![tool], choice: Choice::Named, parallel: false }))
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
}

impl Tool {
    /// Generates arguments that fit the tool's schema; `draw` returns a number below its argument, `word` returns a
    /// word.
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

/// Reads the tools that a client offers.
fn tools(fields: &Fields) -> Result<Vec<Tool>, Refusal> {
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
        Ok(Tool { name: name.to_owned(), parameters })
    };
    items.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Option<Calls>, Refusal> {
        Calls::read(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    fn filled(parameters: Value, from: usize) -> Value {
        let tool = Tool { name: "f".into(), parameters };
        let mut next = from;
        let mut draw = |below: usize| {
            next += 7;
            next % below.max(1)
        };
        tool.arguments(&mut draw, &|index| format!("w{index}"))
    }

    #[test]
    fn a_call_is_asked_for_by_choice() {
        let tools = json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]);
        let with = |choice: Value| read(json!({"tools": tools, "tool_choice": choice}));
        let names =
            |calls: Option<Calls>| calls.unwrap().tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>();
        assert_eq!(with(json!("none")).unwrap(), None);
        assert_eq!(read(json!({})).unwrap(), None);
        for auto in [with(json!("auto")), read(json!({"tools": tools}))] {
            assert_eq!(auto.unwrap().unwrap().choice, Choice::Auto);
        }
        let required = with(json!("required")).unwrap();
        assert_eq!(required.as_ref().unwrap().choice, Choice::Required);
        assert!(required.as_ref().unwrap().parallel);
        assert_eq!(names(required), ["a", "b"]);
        let alone = read(json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false}));
        assert!(!alone.unwrap().unwrap().parallel);
        let named = with(json!({"type": "function", "function": {"name": "b"}})).unwrap();
        assert_eq!(named.as_ref().unwrap().choice, Choice::Named);
        assert_eq!(names(named), ["b"]);
        assert!(with(json!("any")).is_err() && with(json!({"function": {"name": "c"}})).is_err());
        assert!(read(json!({"tool_choice": "required"})).is_err());
        assert!(read(json!({"tools": {}})).is_err() && read(json!({"tools": [{}]})).is_err());
    }

    /// Every property has the form that its schema requires: a choice, a bound, nesting, a reference.
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
            let arguments = filled(form.clone(), from);
            assert!(arguments["city"].as_str().unwrap().len() >= 12);
            assert!(["C", "F"].contains(&arguments["unit"].as_str().unwrap()));
            assert!((1..=3).contains(&arguments["days"].as_i64().unwrap()));
            assert_eq!(arguments["at"], "2026-01-01");
            let tags = arguments["tags"].as_array().unwrap();
            assert!(tags.len() == 2 && tags.iter().all(|t| t.as_str().unwrap().len() <= 2));
            assert!((-90.0..=90.0).contains(&arguments["near"]["lat"].as_f64().unwrap()));
            assert!(arguments["sure"].is_boolean() && arguments.get("spare").is_none());
        }
    }

    /// Generation terminates for a schema that refers to itself, requires far too much or is invalid.
    #[test]
    fn any_form_is_filled() {
        let recursive = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(filled(recursive, 0)["next"]["next"].is_object());
        let wide =
            json!({"type": "object", "properties": {"a": {"type": "array", "minItems": 1_000_000_000}}});
        assert_eq!(filled(wide, 0)["a"].as_array().unwrap().len(), form::MOST_PARTS);
        for odd in [json!(null), json!(7), json!([]), json!({"type": "array"}), json!({"$ref": "#/nowhere"})]
        {
            assert_eq!(filled(odd, 0), json!({}));
        }
    }
}
