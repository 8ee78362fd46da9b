//! Tools that a client offers, and generated arguments that fit their schemas.
//!
//! Knows: how each API writes tools and the choice among them. A chat's are checked as vLLM 0.32 does
//! (`check_tool_usage` of its `chat_completion/protocol.py`). Knows nothing about how calls are written.

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

/// API in whose form tools are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Chat,
    Responses,
    /// Anthropic's.
    Messages,
}

/// A client's `tool_choice`.
enum Wanted<'a> {
    None,
    All(Choice),
    /// Any of the tools of these names.
    Some(Choice, Vec<&'a str>),
    Unknown,
}

impl Calls {
    /// Reads the tools that an answer may call; `None` if there are no tools, or none may be called.
    pub(crate) fn read(shape: Shape, fields: &Fields) -> Result<Option<Calls>, Refusal> {
        let tools = tools(shape, fields)?;
        let given = fields.get("tool_choice");
        let single =
            given.and_then(|choice| choice.get("disable_parallel_tool_use")) == Some(&Value::Bool(true));
        let parallel = fields.flag("parallel_tool_calls")?.unwrap_or(true) && !single;
        let wanted = match given {
            // vLLM assumes `auto` if tools are offered.
            None => Wanted::All(Choice::Auto),
            Some(choice) => wanted(shape, choice),
        };
        if matches!(wanted, Wanted::None) || tools.is_empty() && given.is_none() {
            return Ok(None);
        }
        if fields.get("tools").is_none() {
            return Err(Refusal::param("tool_choice", "When using `tool_choice`, `tools` must be set."));
        }
        let calls = match wanted {
            Wanted::None => return Ok(None),
            Wanted::All(choice) => Calls { tools, choice, parallel },
            Wanted::Some(choice, names) => {
                let all = names.iter().map(|name| tools.iter().find(|tool| tool.name == *name).cloned());
                let missing =
                    "The tool specified in `tool_choice` does not match any of the specified `tools`";
                let tools = all.collect::<Option<Vec<Tool>>>().filter(|tools| !tools.is_empty());
                let tools = tools.ok_or_else(|| Refusal::param("tool_choice", missing))?;
                Calls { tools, choice, parallel: parallel && choice != Choice::Named }
            }
            Wanted::Unknown => return Err(unknown(given.unwrap_or(&Value::Null))),
        };
        Ok(Some(calls).filter(|calls| !calls.tools.is_empty()))
    }
}

/// Reads a `tool_choice`: a word, a tool, a list of allowed tools, or Anthropic's object with a `type`.
fn wanted(shape: Shape, choice: &Value) -> Wanted<'_> {
    let word = match choice {
        Value::String(word) if shape != Shape::Messages => word.as_str(),
        Value::Object(_) => choice.get("type").and_then(Value::as_str).unwrap_or("function"),
        _ => return Wanted::Unknown,
    };
    let name = |path: &str| choice.pointer(path).and_then(Value::as_str);
    match (shape, word) {
        (_, "auto") => Wanted::All(Choice::Auto),
        (_, "none") => Wanted::None,
        (Shape::Messages, "any") => Wanted::All(Choice::Required),
        (Shape::Messages, "tool") => Wanted::Some(Choice::Named, name("/name").into_iter().collect()),
        (Shape::Messages, _) => Wanted::Unknown,
        (_, "required") if choice.is_string() => Wanted::All(Choice::Required),
        (Shape::Chat, "function") => {
            Wanted::Some(Choice::Named, name("/function/name").into_iter().collect())
        }
        (Shape::Responses, "function") => Wanted::Some(Choice::Named, name("/name").into_iter().collect()),
        (_, "allowed_tools") => {
            let list = choice.get("allowed_tools").unwrap_or(choice);
            let required = list.get("mode").is_some_and(|mode| mode == "required");
            let tools = list.get("tools").and_then(Value::as_array).into_iter().flatten();
            let names = tools.filter_map(|tool| tool.pointer(paths(shape)[0])?.as_str()).collect();
            Wanted::Some(if required { Choice::Required } else { Choice::Auto }, names)
        }
        _ => Wanted::Unknown,
    }
}

fn unknown(choice: &Value) -> Refusal {
    let shown = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
    let message = format!(
        "Invalid value for `tool_choice`: {shown}! Only named tools, \"none\", \"auto\" or \"required\" are \
         supported."
    );
    Refusal::param("tool_choice", &message)
}

/// Places of a function's name and schema in a tool.
fn paths(shape: Shape) -> [&'static str; 2] {
    match shape {
        Shape::Chat => ["/function/name", "/function/parameters"],
        Shape::Responses => ["/name", "/parameters"],
        Shape::Messages => ["/name", "/input_schema"],
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

/// Reads the functions that a client offers. Tools that a provider runs, which have no schema, are left out, except in
/// a chat, where vLLM refuses them.
fn tools(shape: Shape, fields: &Fields) -> Result<Vec<Tool>, Refusal> {
    let Some(value) = fields.get("tools") else { return Ok(Vec::new()) };
    let wrong = |reason: &str| Refusal::field("tools", "list_type", reason, value);
    let items = value.as_array().ok_or_else(|| wrong("Input should be a valid list"))?;
    if items.is_empty() && shape == Shape::Chat {
        let message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.";
        return Err(Refusal::param("tools", message));
    }
    let [name, schema] = paths(shape);
    let offered = |item: &&Value| match shape {
        Shape::Chat => true,
        Shape::Responses => item.get("type").is_none_or(|kind| kind == "function"),
        Shape::Messages => item.get("input_schema").is_some(),
    };
    let read = |item: &Value| {
        let name = item.pointer(name).and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong("a tool without a function's name"))?;
        let parameters = item.pointer(schema).cloned().unwrap_or(json!({}));
        Ok(Tool { name: name.to_owned(), parameters })
    };
    items.iter().filter(offered).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Option<Calls>, Refusal> {
        Calls::read(Shape::Chat, &Fields::parse(body.to_string().as_bytes()).unwrap())
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

    /// The three APIs ask for one call in their own words.
    #[test]
    fn every_api_asks_for_calls() {
        let function = json!({"type": "function", "name": "b", "parameters": {"type": "object"}});
        let client = json!({"name": "b", "input_schema": {"type": "object"}});
        let calls_of = |shape, tool: &Value, choice: Value| {
            let body = json!({"tools": [{"type": "web_search", "name": "w"}, tool], "tool_choice": choice});
            Calls::read(shape, &Fields::parse(body.to_string().as_bytes()).unwrap())
        };
        let responses = |choice| calls_of(Shape::Responses, &function, choice);
        let messages = |choice| calls_of(Shape::Messages, &client, choice);
        for (calls, choice) in [
            (responses(json!("auto")), Choice::Auto),
            (responses(json!("required")), Choice::Required),
            (responses(json!({"type": "function", "name": "b"})), Choice::Named),
            (
                responses(json!({"type": "allowed_tools", "mode": "required", "tools": [function]})),
                Choice::Required,
            ),
            (messages(json!({"type": "auto"})), Choice::Auto),
            (messages(json!({"type": "any"})), Choice::Required),
            (messages(json!({"type": "tool", "name": "b"})), Choice::Named),
        ] {
            let calls = calls.unwrap().unwrap();
            assert_eq!((calls.tools.len(), calls.tools[0].name.as_str(), calls.choice), (1, "b", choice));
        }
        assert!(
            !messages(json!({"type": "any", "disable_parallel_tool_use": true})).unwrap().unwrap().parallel
        );
        assert_eq!(messages(json!({"type": "none"})).unwrap(), None);
        assert!(
            messages(json!("any")).is_err() && responses(json!({"type": "function", "name": "z"})).is_err()
        );
        let empty = Fields::parse(br#"{"tools": [], "tool_choice": "auto"}"#).unwrap();
        assert_eq!(Calls::read(Shape::Responses, &empty).unwrap(), None);
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
