//! Answers of a required form: JSON by a schema, or one of several texts.
//!
//! Knows: `response_format` of OpenAI's API, vLLM's `structured_outputs` and its older `guided_*` keys, and the parts
//! of JSON Schema that determine a value's form. Patterns, regular expressions and grammars are ignored: such answers
//! are plain words.

use super::fields::Fields;
use super::refusal::Refusal;
use serde_json::{Map, Value, json};

/// Deepest nesting of generated values; deeper values are null.
const DEEPEST: usize = 16;
/// Most items or properties of one generated value.
pub(super) const MOST_PARTS: usize = 64;
/// Most values of a generated answer, over all depths; later values are null.
const MOST_VALUES: usize = 4096;
/// Most characters of one generated text.
const LONGEST: u64 = 4096;

/// Required form of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    /// JSON by this schema.
    Json(Value),
    /// One of these texts.
    Choice(Vec<String>),
}

impl Form {
    /// The form that a request requires, if any.
    pub(crate) fn read(fields: &Fields) -> Result<Option<Form>, Refusal> {
        if let Some(format) = fields.get("response_format") {
            if !format.is_object() {
                let reason = "Input should be a valid dictionary";
                return Err(Refusal::field("response_format", "dict_type", reason, format));
            }
            return Form::of_format("response_format", format, "/json_schema/schema");
        }
        let outputs = fields.get("structured_outputs").cloned().unwrap_or(Value::Null);
        let named = |old: &str, new: &str| fields.get(old).or(outputs.get(new)).filter(|v| !v.is_null());
        if let Some(schema) = named("guided_json", "json") {
            return Ok(Some(Form::Json(schema_of("guided_json", schema)?)));
        }
        if let Some(found) = named("guided_choice", "choice") {
            let texts = found.as_array().into_iter().flatten().filter_map(Value::as_str);
            let texts: Vec<String> = texts.map(str::to_owned).collect();
            if texts.is_empty() {
                return Err(Refusal::field("choice", "list_type", "Input should be a list of texts", found));
            }
            return Ok(Some(Form::Choice(texts)));
        }
        Ok(named("", "json_object").filter(|v| **v == true).map(|_| Form::Json(any_object())))
    }

    /// The form that an object with a `type` requires, with the schema at `path` in the object: `response_format` of a
    /// chat, `text.format` of a response.
    pub(crate) fn of_format(field: &str, format: &Value, path: &str) -> Result<Option<Form>, Refusal> {
        match format.get("type").and_then(Value::as_str) {
            Some("json_object") => Ok(Some(Form::Json(any_object()))),
            Some("json_schema") => {
                let missing =
                    || Refusal::param(field, "When `type` is `json_schema`, a `schema` must be provided.");
                let schema = format.pointer(path).ok_or_else(missing)?;
                Ok(Some(Form::Json(schema_of(field, schema)?)))
            }
            _ => Ok(None),
        }
    }

    /// Generates a text of this form; `draw` returns a number below its argument, `word` returns a word.
    pub(crate) fn text(
        &self,
        draw: &mut dyn FnMut(usize) -> usize,
        word: &dyn Fn(usize) -> String,
    ) -> String {
        match self {
            Form::Json(schema) => filled(schema, draw, word).to_string(),
            Form::Choice(texts) => texts.get(draw(texts.len())).cloned().unwrap_or_default(),
        }
    }
}

/// A schema, which vLLM also accepts as JSON in a string.
fn schema_of(field: &str, found: &Value) -> Result<Value, Refusal> {
    match found {
        Value::Object(_) | Value::Bool(_) => Ok(found.clone()),
        Value::String(text) => {
            serde_json::from_str(text).map_err(|_| Refusal::param(field, "The schema is no JSON."))
        }
        _ => Err(Refusal::field(field, "dict_type", "Input should be a valid dictionary", found)),
    }
}

/// Schema of any object, for formats without a schema.
fn any_object() -> Value {
    json!({"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}})
}

/// Generates a value that fits a schema.
pub(super) fn filled(
    schema: &Value,
    draw: &mut dyn FnMut(usize) -> usize,
    word: &dyn Fn(usize) -> String,
) -> Value {
    Filler { root: schema, draw, word, left: MOST_VALUES }.fill(schema, 0)
}

/// Generator of values for a schema.
struct Filler<'a> {
    /// The outermost schema, in which `$ref` is looked up.
    root: &'a Value,
    draw: &'a mut dyn FnMut(usize) -> usize,
    word: &'a dyn Fn(usize) -> String,
    /// Number of values that may still be generated.
    left: usize,
}

impl<'a> Filler<'a> {
    fn fill(&mut self, schema: &'a Value, depth: usize) -> Value {
        if depth > DEEPEST || self.left == 0 {
            return Value::Null;
        }
        self.left -= 1;
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
            // Only the outermost schema may omit `type: object`.
            None if depth > 0 && schema.get("properties").is_none() => self.text(schema).into(),
            _ => self.object(schema, depth),
        }
    }

    /// Generates an object with the required properties, or with all properties if none is required.
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

    /// Generates a whole number within the schema's bounds, counted up from the lower one.
    fn integer(&mut self, schema: &Value) -> i64 {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64).map(|n| n.clamp(-1e15, 1e15));
        let inclusive_minimum = bound("minimum").map(f64::ceil);
        let minimum =
            inclusive_minimum.or(bound("exclusiveMinimum").map(|n| n.floor() + 1.0)).map(|n| n as i64);
        let inclusive_maximum = bound("maximum").map(f64::floor);
        let maximum =
            inclusive_maximum.or(bound("exclusiveMaximum").map(|n| n.ceil() - 1.0)).map(|n| n as i64);
        let drawn = (self.draw)(100) as i64;
        match (minimum, maximum) {
            (Some(minimum), Some(maximum)) => (minimum + drawn).min(maximum).max(minimum),
            (Some(minimum), None) => minimum + drawn,
            (None, Some(maximum)) => maximum - drawn,
            (None, None) => drawn,
        }
    }

    /// Generates a word, or as many words as the schema's minimum length needs.
    fn text(&mut self, schema: &Value) -> String {
        match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => return "2026-01-01T00:00:00Z".to_owned(),
            Some("date") => return "2026-01-01".to_owned(),
            Some("email") => return "someone@example.com".to_owned(),
            Some("uri" | "url") => return "https://example.com".to_owned(),
            _ => {}
        }
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let min_length = count("minLength").unwrap_or(1).min(LONGEST);
        let mut text = (self.word)((self.draw)(1 << 16));
        while (text.chars().count() as u64) < min_length {
            text = format!("{text} {}", (self.word)((self.draw)(1 << 16)));
        }
        let max_length = count("maxLength").unwrap_or(u64::MAX).min(LONGEST + 64) as usize;
        text.chars().take(max_length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrays of 9 in arrays, ten deep, would have 9^10 values; the answer has as many as are allowed.
    #[test]
    fn deep_arrays_end_at_the_bound() {
        let deep = (0..10).fold(
            json!({"type": "integer"}),
            |items, _| json!({"type": "array", "minItems": 9, "items": items}),
        );
        let count = |value: &Value| value.to_string().matches(['[', '0']).count();
        let answer = filled(&deep, &mut |_| 0, &|_| String::new());
        assert!((1000..=MOST_VALUES).contains(&count(&answer)), "{}", count(&answer));
    }

    fn read(body: Value) -> Result<Option<Form>, Refusal> {
        Form::read(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn every_way_to_ask_for_a_form() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        let expected = Some(Form::Json(schema.clone()));
        for body in [
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
            json!({ "guided_json": schema }),
            json!({"guided_json": schema.to_string()}),
            json!({"structured_outputs": {"json": schema}}),
        ] {
            assert_eq!(read(body.clone()).unwrap(), expected, "{body}");
        }
        assert_eq!(read(json!({"response_format": {"type": "text"}})).unwrap(), None);
        assert_eq!(read(json!({"structured_outputs": {"regex": "a+"}})).unwrap(), None);
        let choice = read(json!({"structured_outputs": {"choice": ["yes", "no"]}})).unwrap().unwrap();
        assert_eq!(choice.text(&mut |below| below - 1, &|_| String::new()), "no");
        let object = read(json!({"response_format": {"type": "json_object"}})).unwrap().unwrap();
        let text = object.text(&mut |_| 0, &|_| "well".to_owned());
        assert_eq!(text, r#"{"answer":"well"}"#);
        for wrong in [
            json!({"response_format": {"type": "json_schema"}}),
            json!({"response_format": 5}),
            json!({"guided_json": "{"}),
            json!({"guided_json": 7}),
            json!({"guided_choice": []}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
