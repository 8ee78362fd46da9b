//! Fields of a request's body: fields that are read are checked, unknown fields are ignored.

use super::refusal::Refusal;
use serde_json::{Map, Value};

/// The body of a request, a JSON object.
#[derive(Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a body, which must be a JSON object.
    pub(crate) fn parse(body: &[u8]) -> Result<Fields, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields(map)),
            Ok(other) => {
                let reason = "Input should be a valid dictionary or object to extract fields from";
                Err(Refusal::field("", "model_attributes_type", reason, &other))
            }
            Err(e) => Err(Refusal::no_json(body, &e)),
        }
    }

    /// The value of a field; `None` if the field is absent or null.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// The value of a field that must be present.
    pub(crate) fn need(&self, field: &str) -> Result<&Value, Refusal> {
        self.get(field)
            .ok_or_else(|| Refusal::field(field, "missing", "Field required", &Value::Object(self.0.clone())))
    }

    pub(crate) fn string(&self, field: &str) -> Result<Option<&str>, Refusal> {
        self.typed(field, |value| value.as_str().ok_or(STRING))
    }

    /// Reads a boolean in pydantic's lax mode, which also accepts 0, 1 and words such as "yes".
    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, Refusal> {
        let unclear = ("bool_parsing", "Input should be a valid boolean, unable to interpret input");
        self.typed(field, |value| match value {
            Value::Bool(flag) => Ok(*flag),
            Value::Number(_) => match whole(value) {
                Some(0) => Ok(false),
                Some(1) => Ok(true),
                Some(_) => Err(unclear),
                None => Err(("bool_type", "Input should be a valid boolean")),
            },
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "0" | "off" | "f" | "false" | "n" | "no" => Ok(false),
                "1" | "on" | "t" | "true" | "y" | "yes" => Ok(true),
                _ => Err(unclear),
            },
            _ => Err(("bool_type", "Input should be a valid boolean")),
        })
    }

    /// Reads a whole number in pydantic's lax mode, which also accepts numeric strings and booleans.
    pub(crate) fn integer(&self, field: &str) -> Result<Option<i64>, Refusal> {
        let kinds = [
            ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"),
            ("int_from_float", "Input should be a valid integer, got a number with a fractional part"),
            ("int_type", "Input should be a valid integer"),
        ];
        self.typed(field, |value| match value {
            Value::String(text) => {
                let text = text.trim();
                let text = text.split_once('.').map_or(text, |(before, rest)| {
                    if rest.bytes().all(|b| b == b'0') { before } else { text }
                });
                text.parse().map_err(|_| kinds[0])
            }
            Value::Number(_) => whole(value).ok_or(kinds[1]),
            Value::Bool(flag) => Ok((*flag).into()),
            _ => Err(kinds[2]),
        })
    }

    /// Reads a number in pydantic's lax mode.
    pub(crate) fn number(&self, field: &str) -> Result<Option<f64>, Refusal> {
        let unclear = ("float_parsing", "Input should be a valid number, unable to parse string as a number");
        self.typed(field, |value| match value {
            Value::String(text) => {
                text.trim().parse().ok().filter(|number: &f64| number.is_finite()).ok_or(unclear)
            }
            Value::Bool(flag) => Ok(f64::from(u8::from(*flag))),
            value => value.as_f64().ok_or(("float_type", "Input should be a valid number")),
        })
    }

    pub(crate) fn object(&self, field: &str) -> Result<Option<Fields>, Refusal> {
        let wrong = ("dict_type", "Input should be a valid dictionary");
        self.typed(field, |value| value.as_object().cloned().map(Fields).ok_or(wrong))
    }

    /// Reads a string, or a list of strings.
    pub(crate) fn strings(&self, field: &str) -> Result<Vec<String>, Refusal> {
        let read = |value: &Value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            _ => None,
        };
        Ok(self.typed(field, |value| read(value).ok_or(STRING))?.unwrap_or_default())
    }

    /// Converts a field by `read`; the error names the expected kind.
    fn typed<'a, T>(
        &'a self,
        field: &str,
        read: impl Fn(&'a Value) -> Result<T, (&'static str, &'static str)>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(field) else { return Ok(None) };
        read(value).map(Some).map_err(|(kind, reason)| Refusal::field(field, kind, reason, value))
    }
}

const STRING: (&str, &str) = ("string_type", "Input should be a valid string");

/// The whole number in `value`, if it is a number without a fractional part.
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or(value.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
}
