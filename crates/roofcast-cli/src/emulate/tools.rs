//! Tools that a client offers, and arguments of the form that they ask for.
//!
//! Knows: `tools` and `tool_choice` as vLLM 0.32 checks them (`check_tool_usage` of its `chat_completion/protocol.py`), and of
//! JSON Schema what decides a value's form. Patterns are not followed. Knows nothing about how calls are written.

use super::fields::Fields;
use super::refusal::Refusal;
use serde_json::{Map, Value, json};

/// Levels of a value's form; deeper ones are null.
const DEEPEST: usize = 16;
/// Items and properties of one value.
const MOST_PARTS: usize = 64;
/// Characters of one text.
const LONGEST: u64 = 4096;

/// The tool that an answer calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// The form of its arguments.
    parameters: Value,
    /// Whether the client named it, not only asked for a call.
    pub(crate) named: bool,
}

impl Call {
    /// The call that a request asks for: of the tool that it names, or of the first where it requires one.
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

    /// Arguments of the tool's form; `draw` gives a number below another, `word` a word.
    pub(crate) fn arguments(
        &self,
        draw: &mut dyn FnMut(usize) -> usize,
        word: &dyn Fn(usize) -> String,
    ) -> Value {
        let mut filler = Filler { root: &self.parameters, draw, word };
        match filler.fill(&self.parameters, 0) {
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

/// Values of a form.
struct Filler<'a> {
    /// What `$ref` points into.
    root: &'a Value,
    draw: &'a mut dyn FnMut(usize) -> usize,
    word: &'a dyn Fn(usize) -> String,
}

impl<'a> Filler<'a> {
    fn fill(&mut self, schema: &'a Value, depth: usize) -> Value {
        if depth > DEEPEST {
            return Value::Null;
        }
        if let Some(found) = schema.get("const") {
            return found.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array).filter(|c| !c.is_empty()) {
            return choices[(self.draw)(choices.len())].clone();
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|path| self.root.pointer(path));
            return target.map_or(Value::Null, |target| self.fill(target, depth + 1));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(first) = schema.get(key).and_then(Value::as_array).and_then(|all| all.first()) {
                return self.fill(first, depth + 1);
            }
        }
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
            kind => kind.and_then(Value::as_str),
        };
        match kind {
            Some("array") => self.array(schema, depth),
            Some("integer") => self.integer(schema).into(),
            Some("number") => (self.integer(schema) as f64).into(),
            Some("boolean") => ((self.draw)(2) == 1).into(),
            Some("null") => Value::Null,
            Some("string") => self.text(schema).into(),
            // The form of arguments may leave out that it is an object's.
            None if depth > 0 && schema.get("properties").is_none() => self.text(schema).into(),
            _ => self.object(schema, depth),
        }
    }

    /// The required properties; all where none is.
    fn object(&mut self, schema: &'a Value, depth: usize) -> Value {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
        let mut filled = Map::new();
        let names = properties.unwrap_or(&none).keys().map(String::as_str);
        let wanted: Vec<&str> = if required.is_empty() { names.collect() } else { required };
        for name in wanted.into_iter().take(MOST_PARTS) {
            let form = properties.and_then(|all| all.get(name));
            let value = match form {
                Some(form) => self.fill(form, depth + 1),
                None => self.text(&Value::Null).into(),
            };
            filled.insert(name.to_owned(), value);
        }
        Value::Object(filled)
    }

    fn array(&mut self, schema: &'a Value, depth: usize) -> Value {
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let length = count("minItems").unwrap_or(1).max(1).min(count("maxItems").unwrap_or(u64::MAX));
        let item = schema.get("items").unwrap_or(&Value::Null);
        (0..length.min(MOST_PARTS as u64)).map(|_| self.fill(item, depth + 1)).collect()
    }

    /// A whole number within the bounds, from the lower one up.
    fn integer(&mut self, schema: &Value) -> i64 {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64).map(|n| n.clamp(-1e15, 1e15));
        let least = bound("minimum").map(f64::ceil);
        let least = least.or(bound("exclusiveMinimum").map(|n| n.floor() + 1.0)).map(|n| n as i64);
        let most = bound("maximum").map(f64::floor);
        let most = most.or(bound("exclusiveMaximum").map(|n| n.ceil() - 1.0)).map(|n| n as i64);
        let drawn = (self.draw)(100) as i64;
        match (least, most) {
            (Some(least), Some(most)) => (least + drawn).min(most).max(least),
            (Some(least), None) => least + drawn,
            (None, Some(most)) => most - drawn,
            (None, None) => drawn,
        }
    }

    /// A word, or as many as the text must have characters of.
    fn text(&mut self, schema: &Value) -> String {
        match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => return "2026-01-01T00:00:00Z".to_owned(),
            Some("date") => return "2026-01-01".to_owned(),
            Some("email") => return "someone@example.com".to_owned(),
            Some("uri" | "url") => return "https://example.com".to_owned(),
            _ => {}
        }
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let least = count("minLength").unwrap_or(1).min(LONGEST);
        let mut text = (self.word)((self.draw)(1 << 16));
        while (text.chars().count() as u64) < least {
            text = format!("{text} {}", (self.word)((self.draw)(1 << 16)));
        }
        let most = count("maxLength").unwrap_or(u64::MAX).min(LONGEST + 64) as usize;
        text.chars().take(most).collect()
    }
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

    /// A form that refers to itself, asks for far too much or is no form at all ends.
    #[test]
    fn any_form_is_filled() {
        let own = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(filled(own, 0)["next"]["next"].is_object());
        let wide =
            json!({"type": "object", "properties": {"a": {"type": "array", "minItems": 1_000_000_000}}});
        assert_eq!(filled(wide, 0)["a"].as_array().unwrap().len(), MOST_PARTS);
        for odd in [json!(null), json!(7), json!([]), json!({"type": "array"}), json!({"$ref": "#/nowhere"})]
        {
            assert_eq!(filled(odd, 0), json!({}));
        }
    }
}
