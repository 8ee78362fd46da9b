//! The key whose value a parser refuses, if the parser names only its section.
//!
//! Knows: serde reads a section that states its `kind` as a whole, so that an error in it has the section's path; its message
//! describes the refused value. Knows nothing about accepted values.

use super::settings;
use toml::{Table, Value};

/// Path and value of the key in the section at `path` whose value `message` refuses; `None` if no value is as described.
pub(super) fn misread(table: &Table, path: &str, message: &str) -> Option<(String, String)> {
    let refused = ["invalid type: ", "invalid value: "].iter().find_map(|head| message.strip_prefix(head))?;
    let (refused, _) = refused.split_once(", expected ")?;
    let section = settings::get(table, path)?.as_table()?;
    let (key, value) = section.iter().find(|(_, value)| described(value) == refused)?;
    Some((format!("{path}.{key}"), value.to_string()))
}

/// A value as serde's messages describe it (`serde::de::Unexpected`).
fn described(value: &Value) -> String {
    match value {
        Value::String(text) => format!("string {text:?}"),
        Value::Integer(number) => format!("integer `{number}`"),
        Value::Float(number) => format!("floating point `{number:?}`"),
        Value::Boolean(truth) => format!("boolean `{truth}`"),
        Value::Array(_) => "sequence".to_owned(),
        Value::Table(_) => "map".to_owned(),
        Value::Datetime(_) => String::new(),
    }
}
