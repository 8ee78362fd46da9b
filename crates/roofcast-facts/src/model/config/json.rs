//! JSON as Python writes it: `NaN`, `Infinity` and `-Infinity` appear bare in some config.json files.
//!
//! Knows: the syntax. Knows nothing about keys.

use crate::error::{Error, Result};
use serde_json::Value;
use std::borrow::Cow;

/// Longest accepted text in bytes, longer than any config (the longest known lists 22,000 modules in 2 MB), which
/// bounds time and memory.
const LONGEST: usize = 64 << 20;

/// Parses `text` and reads bare `NaN` and infinities as null; `place` names the file in errors.
pub(crate) fn parse(place: &str, text: &str) -> Result<Value> {
    let failed = |message: String| Error::Parse { place: place.into(), message };
    if text.len() > LONGEST {
        return Err(failed(format!("{} bytes; accepted: at most {LONGEST}", text.len())));
    }
    serde_json::from_str(&without_bare_floats(text)).map_err(|e| failed(format!("{e}; accepted: JSON")))
}

/// Replaces bare `NaN`, `Infinity` and `-Infinity` outside strings by null.
fn without_bare_floats(text: &str) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].iter().find(|w| !quoted && rest.starts_with(**w));
        let taken = match (word, c) {
            (Some(word), _) => {
                clean.push_str("null");
                word.len()
            }
            // A backslash is followed by the character that it escapes.
            (None, '\\') if quoted => {
                let length = 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
                clean.push_str(&rest[..length]);
                length
            }
            (None, _) => {
                quoted ^= c == '"';
                clean.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_floats_are_null_and_strings_stay() {
        let text = r#"{"a": [0.0, Infinity, -Infinity], "b": NaN, "c": "NaN \" Infinity", "é": 1}"#;
        let value = parse("c.json", text).unwrap();
        assert_eq!(value["a"], serde_json::json!([0.0, null, null]));
        assert_eq!(value["c"], "NaN \" Infinity");
        assert!(value["b"].is_null());
    }

    #[test]
    fn damage_is_still_an_error() {
        for text in ["{\"a\": Infinityx}", "{\"a\": \"NaN", "{\"a\": NaN", "\\NaN", "-Infinity-"] {
            assert!(parse("c.json", text).is_err(), "{text}");
        }
    }
}
