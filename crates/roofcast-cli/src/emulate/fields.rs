//! Fields of a request's body: what is read is checked, what is not known is left alone.

use super::refusal::Refusal;
use serde_json::{Map, Value};

/// A body.
#[derive(Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body.
    pub(crate) fn parse(body: &[u8]) -> Result<Fields, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields(map)),
            Ok(other) => {
                let reason = "Input should be a valid dictionary or object to extract fields from";
                Err(Refusal::field("", "model_attributes_type", reason, &other))
            }
            Err(e) => {
                let lines = body.split_inclusive(|b| *b == b'\n').take(e.line().saturating_sub(1));
                let at = lines.map(<[u8]>::len).sum::<usize>() + e.column().saturating_sub(1);
                Err(Refusal::no_json(at, "Expecting value"))
            }
        }
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(crate) fn need(&self, field: &str) -> Result<&Value, Refusal> {
        self.get(field)
            .ok_or_else(|| Refusal::field(field, "missing", "Field required", &Value::Object(self.0.clone())))
    }

    pub(crate) fn string(&self, field: &str) -> Result<Option<&str>, Refusal> {
        self.typed(field, "string_type", "Input should be a valid string", Value::as_str)
    }

    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, Refusal> {
        self.typed(field, "bool_type", "Input should be a valid boolean", Value::as_bool)
    }

    pub(crate) fn integer(&self, field: &str) -> Result<Option<i64>, Refusal> {
        let whole =
            |value: &Value| value.as_i64().or(value.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64));
        self.typed(field, "int_type", "Input should be a valid integer", whole)
    }

    pub(crate) fn object(&self, field: &str) -> Result<Option<Fields>, Refusal> {
        let reason = "Input should be a valid dictionary";
        self.typed(field, "dict_type", reason, |value| value.as_object().cloned().map(Fields))
    }

    /// A string, or a list of them.
    pub(crate) fn strings(&self, field: &str) -> Result<Vec<String>, Refusal> {
        let read = |value: &Value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            _ => None,
        };
        let found = self.typed(field, "string_type", "Input should be a valid string", read)?;
        Ok(found.unwrap_or_default())
    }

    fn typed<'a, T>(
        &'a self,
        field: &str,
        kind: &str,
        reason: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(field) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| Refusal::field(field, kind, reason, value))
    }
}
