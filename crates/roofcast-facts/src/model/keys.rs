//! Typed access to the keys of a `config.json`, with errors that name file and key.
//!
//! Knows: types and ranges of values. Knows nothing about the meaning of keys.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Largest accepted dimension, far above any real model's; a larger one shows that the file is damaged or hostile.
const LARGEST: u64 = 1 << 24;

/// Longest accepted list, longer than the most layers; it bounds the time to look up a layer.
const LONGEST_LIST: usize = 4096;

/// Keys of a multimodal config's text part, and of the layers of a drafter as the package speculators writes it.
const TEXT_PARTS: [&str; 4] = ["text_config", "llm_config", "language_config", "transformer_layer_config"];

/// Nested text part of `config`, the object that [`Keys::new`] takes; `None` if the keys are not nested.
pub(super) fn text_part(config: &mut Value) -> Option<&mut Map<String, Value>> {
    let nested =
        |value: &Value| TEXT_PARTS.into_iter().find(|key| value.get(key).is_some_and(Value::is_object));
    let thinker = config.get("thinker_config").and_then(nested);
    match thinker {
        Some(key) => config.get_mut("thinker_config")?.get_mut(key)?.as_object_mut(),
        None => {
            let key = nested(config)?;
            config.get_mut(key)?.as_object_mut()
        }
    }
}

/// Names of the keys that have been read.
#[derive(Default)]
pub(super) struct Reads(RefCell<BTreeSet<String>>);

/// JSON object, with the name of its file for errors.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) place: &'a str,
    map: &'a Map<String, Value>,
    /// Outer object of a multimodal config, which supplies keys that the nested text part lacks.
    outer: Option<&'a Map<String, Value>>,
    /// Keys that hold for one layer, ahead of the others.
    over: Option<&'a Map<String, Value>>,
    /// Record of every key that is read, if the caller requests one.
    reads: Option<&'a Reads>,
}

impl Reads {
    /// True if `key` has been read.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.borrow().contains(key)
    }
}

impl<'a> Keys<'a> {
    /// Takes the keys of `value`, or of its nested text part.
    pub(super) fn new(place: &'a str, value: &'a Value) -> Result<Keys<'a>> {
        let map = value.as_object().ok_or_else(|| Error::Parse {
            place: place.into(),
            message: "not a JSON object; accepted: a Hugging Face config.json".into(),
        })?;
        let nested = |map: &'a Map<String, Value>| {
            TEXT_PARTS.iter().find_map(|k| map.get(*k)).and_then(Value::as_object)
        };
        // Omni models nest the text part two levels deep.
        let thinker = map.get("thinker_config").and_then(Value::as_object);
        Ok(match thinker.and_then(nested).or_else(|| nested(map)) {
            Some(inner) => Keys { place, map: inner, outer: Some(map), over: None, reads: None },
            None => Keys { place, map, outer: None, over: None, reads: None },
        })
    }

    /// Returns the keys with `reads` as the record of keys that are read.
    pub(super) fn noting(self, reads: &'a Reads) -> Keys<'a> {
        Keys { reads: Some(reads), ..self }
    }

    /// Returns the keys, overridden by the keys of the object `over`.
    pub(super) fn under(self, over: &'a Value) -> Keys<'a> {
        Keys { over: over.as_object(), ..self }
    }

    /// Names of keys with a value that were never read, in file order. Nested objects are separate `Keys`.
    pub(super) fn unread(&self, reads: &'a Reads) -> impl Iterator<Item = &'a str> {
        let all = self.map.iter().chain(self.outer.into_iter().flatten());
        all.filter(|(key, value)| is_set(value) && !value.is_object() && !reads.0.borrow().contains(*key))
            .map(|(key, _)| key.as_str())
    }

    /// Keys and values of the object itself, in file order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.map.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Values of `model_type`: of the text part, then of the enclosing multimodal config.
    pub(super) fn types(&self) -> impl Iterator<Item = &'a str> {
        let type_of = |map: &'a Map<String, Value>| map.get("model_type").and_then(Value::as_str);
        type_of(self.map).into_iter().chain(self.outer.and_then(type_of))
    }

    /// Nested object under `key`; `None` if absent.
    pub(super) fn object(&self, key: &str) -> Option<Keys<'a>> {
        self.value(key)?.as_object().map(|map| Keys {
            place: self.place,
            map,
            outer: None,
            over: None,
            reads: None,
        })
    }

    /// Keys of `value`, an object inside this one.
    pub(super) fn within(&self, value: &'a Value) -> Option<Keys<'a>> {
        value.as_object().map(|map| Keys { place: self.place, map, outer: None, over: None, reads: None })
    }

    /// List of whole numbers under `key`; `None` if absent.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let list = value.as_array().filter(|l| l.len() <= LONGEST_LIST);
        let numbers = list.and_then(|l| l.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
        let accepted = || format!("at most {LONGEST_LIST} whole numbers");
        numbers.map(Some).ok_or_else(|| self.bad(key, brief(value), accepted()))
    }

    /// True if the file has `key`, be it null.
    pub(super) fn states(&self, key: &str) -> bool {
        self.map.contains_key(key) || self.outer.is_some_and(|outer| outer.contains_key(key))
    }

    /// Value of `key`; null counts as absent.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        if let Some(reads) = self.reads {
            reads.0.borrow_mut().insert(key.to_owned());
        }
        let from_map = self.over.and_then(|over| over.get(key)).or_else(|| self.map.get(key));
        let value = from_map.or_else(|| self.outer.and_then(|o| o.get(key)));
        value.filter(|v| !v.is_null())
    }

    /// Name of the first of `keys` that has a value.
    pub(super) fn any(&self, keys: &[&'static str]) -> Option<&'static str> {
        keys.iter().find(|k| self.value(k).is_some()).copied()
    }

    /// Value of the first of `keys` that has one, as a count from 1 to 2^24.
    pub(super) fn count(&self, keys: &[&str]) -> Result<Option<u64>> {
        match self.whole(keys, LARGEST)? {
            Some((key, 0)) => Err(self.bad(key, "0", format!("1 to {LARGEST}"))),
            found => Ok(found.map(|(_, n)| n)),
        }
    }

    /// Returns a count like [`Keys::count`], but accepts 0, and gives 0 for an absent key.
    pub(super) fn count_or_zero(&self, keys: &[&str]) -> Result<u64> {
        Ok(self.whole(keys, LARGEST)?.map_or(0, |(_, n)| n))
    }

    /// Returns a count like [`Keys::count`], but an absent key is an error that names it.
    pub(super) fn required(&self, keys: &[&str]) -> Result<u64> {
        self.count(keys)?
            .ok_or_else(|| self.bad(keys[0], "missing", format!("a whole number ({})", keys.join(" or "))))
    }

    /// Returns a count like [`Keys::required`], but accepts 0.
    pub(super) fn required_or_zero(&self, key: &str) -> Result<u64> {
        if self.value(key).is_none() {
            return self.required(&[key]);
        }
        self.count_or_zero(&[key])
    }

    fn whole<'k>(&self, keys: &[&'k str], most: u64) -> Result<Option<(&'k str, u64)>> {
        for key in keys {
            let Some(value) = self.value(key) else { continue };
            let value = same_everywhere(value).unwrap_or(value);
            let number = value.as_u64().or_else(|| {
                value
                    .as_f64()
                    .filter(|f| f.fract() == 0.0 && (0.0..=most as f64).contains(f))
                    .map(|f| f as u64)
            });
            return match number {
                Some(n) if n <= most => Ok(Some((key, n))),
                _ => Err(self.bad(key, brief(value), format!("a whole number up to {most}"))),
            };
        }
        Ok(None)
    }

    /// Boolean under `key`; `default` if absent.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.value(key) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(other) => Err(self.bad(key, brief(other), "true or false")),
        }
    }

    /// String under `key`; `None` if absent.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(self.bad(key, brief(other), "a string")),
        }
    }

    /// Array under `key`, which must have `length` entries; `None` if absent.
    pub(super) fn list(&self, key: &str, length: u64) -> Result<Option<&'a [Value]>> {
        match self.value(key) {
            Some(Value::Array(list)) if list.len() as u64 >= length => Ok(Some(list)),
            Some(Value::Array(list)) => {
                Err(self.bad(key, format!("{} entries", list.len()), format!("{length}, one a layer")))
            }
            _ => Ok(None),
        }
    }

    /// Creates an error about `key` of this file.
    pub(super) fn bad(
        &self,
        key: &str,
        found: impl std::fmt::Display,
        accepted: impl std::fmt::Display,
    ) -> Error {
        Error::field(self.place, key, found, accepted)
    }
}

/// True for a value that switches a feature on: neither null, false, 0 nor empty.
pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
    }
}

/// Common value of a list with equal entries, as in Hunyuan's per-layer expert keys; `None` if entries differ.
fn same_everywhere(value: &Value) -> Option<&Value> {
    let list = value.as_array().filter(|l| l.len() <= LONGEST_LIST)?;
    let first = list.first()?;
    list.iter().all(|v| v == first).then_some(first)
}

/// Text of a value, shortened for error messages.
pub(crate) fn brief(value: &Value) -> String {
    match value {
        Value::Array(list) if list.len() > 8 => return format!("a list of {}", list.len()),
        Value::Object(map) if map.len() > 8 => return format!("an object of {} keys", map.len()),
        _ => {}
    }
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
