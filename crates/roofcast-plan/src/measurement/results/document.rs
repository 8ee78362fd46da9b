//! JSON documents of clients: single objects, lists, lines, and the numbers that Python writes outside JSON.
//!
//! Knows: syntax, and errors that name a key. Knows nothing about the meaning of keys.

use roofcast_facts::error::{Error, Result};
use serde_json::{Map, Value};

/// Most documents that a file may contain.
const MOST_DOCUMENTS: usize = 100_000;

/// An object of a file, with the place of its errors.
pub(super) struct Document<'a> {
    pub(super) place: &'a str,
    pub(super) keys: &'a Map<String, Value>,
}

/// Every object of `text`, which is one object, a list of objects, or an object a line; each with its place.
pub(super) fn objects(place: &str, text: &str) -> Result<Vec<(String, Map<String, Value>)>> {
    let text = standard(text);
    let wrong =
        |place: &str, e: &serde_json::Error| Error::Parse { place: place.into(), message: e.to_string() };
    let no_object = |place: &str| Error::field(place, "document", "no object", super::ACCEPTED);
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(keys)) => Ok(vec![(place.to_owned(), keys)]),
        Ok(Value::Array(list)) => {
            let numbered = list.into_iter().take(MOST_DOCUMENTS).enumerate();
            let object = |(index, value)| match value {
                Value::Object(keys) => Ok((format!("{place}, item {}", index + 1), keys)),
                _ => Err(no_object(&format!("{place}, item {}", index + 1))),
            };
            numbered.map(object).collect()
        }
        Ok(_) => Err(no_object(place)),
        Err(whole) => {
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            let mut objects = Vec::new();
            for (index, line) in lines.take(MOST_DOCUMENTS) {
                let place = format!("{place}:{}", index + 1);
                match serde_json::from_str::<Value>(line) {
                    Ok(Value::Object(keys)) => objects.push((place, keys)),
                    Ok(_) => return Err(no_object(&place)),
                    Err(error) if objects.is_empty() => {
                        let first = if whole.line() > 1 { &whole } else { &error };
                        return Err(wrong(&place[..place.rfind(':').unwrap_or(0)], first));
                    }
                    Err(error) => return Err(wrong(&place, &error)),
                }
            }
            Ok(objects)
        }
    }
}

/// Rewrites the numbers that Python's `json` writes outside the standard: `Infinity` as the text `inf`, `NaN` as null.
fn standard(text: &str) -> String {
    const WORDS: [(&str, &str); 3] = [("-Infinity", "null"), ("Infinity", "\"inf\""), ("NaN", "null")];
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        if !quoted && let Some((word, json)) = WORDS.iter().find(|(word, _)| rest.starts_with(word)) {
            written.push_str(json);
            rest = &rest[word.len()..];
            continue;
        }
        let width = if quoted && c == '\\' {
            c.len_utf8() + rest[1..].chars().next().map_or(0, char::len_utf8)
        } else {
            c.len_utf8()
        };
        quoted ^= c == '"';
        written.push_str(&rest[..width]);
        rest = &rest[width..];
    }
    written
}

impl Document<'_> {
    /// The value at a path of keys, as `/metrics/ttft`; `None` if it is absent or null.
    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        let mut steps = path.trim_start_matches('/').split('/');
        let first = self.keys.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.get(step)).filter(|value| !value.is_null())
    }

    /// The number at a path of keys.
    pub(super) fn number(&self, path: &str) -> Result<Option<f64>> {
        self.at(path).map(|value| self.figure(path, value)).transpose()
    }

    /// The number of a key of the object itself, whose name may have slashes.
    pub(super) fn key(&self, name: &str) -> Result<Option<f64>> {
        let value = self.keys.get(name).filter(|value| !value.is_null());
        value.map(|value| self.figure(name, value)).transpose()
    }

    fn figure(&self, path: &str, value: &Value) -> Result<f64> {
        let sane = value.as_f64().filter(|n| (0.0..=1e15).contains(n));
        sane.ok_or_else(|| Error::field(self.place, path, value, "a number from 0 to 10^15"))
    }

    /// Milliseconds in the unit that a metric names; 1 if it names none.
    pub(super) fn milliseconds_per_unit(&self, metric: &str) -> Result<f64> {
        let path = format!("{metric}/unit");
        match self.at(&path).map(Value::as_str) {
            None | Some(Some("ms" | "milliseconds")) => Ok(1.0),
            Some(Some("sec" | "s" | "seconds")) => Ok(1e3),
            Some(Some("us" | "microseconds")) => Ok(1e-3),
            Some(Some("ns" | "nanoseconds")) => Ok(1e-6),
            Some(_) => self.refuse(&path, "ms, s, sec, us or ns"),
        }
    }

    /// The number at a path of keys, which must exist.
    pub(super) fn needed(&self, path: &str) -> Result<f64> {
        self.number(path)?.ok_or_else(|| Error::field(self.place, path, "missing", "a number"))
    }

    /// The whole number at a path of keys; 0 is absent.
    pub(super) fn count(&self, path: &str) -> Result<Option<u64>> {
        match self.number(path)? {
            None | Some(0.0) => Ok(None),
            Some(n) if n.fract() == 0.0 && n <= 1e15 => Ok(Some(n as u64)),
            Some(n) => Err(Error::field(self.place, path, n, "a whole number, or null")),
        }
    }

    /// The degree of a parallelism at a path of keys, which is 1 or more.
    pub(super) fn degree(&self, path: &str) -> Result<Option<u64>> {
        match self.number(path)? {
            Some(0.0) => self.refuse(path, "a whole number from 1, or null"),
            _ => self.count(path),
        }
    }

    /// The text at a path of keys; `None` if it is absent or empty.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.at(path)?.as_str().filter(|text| !text.is_empty())
    }

    /// Token counts by request; empty if the document has no list under `key`.
    pub(super) fn list(&self, key: &str) -> Result<Vec<u64>> {
        let wrong = |found: &Value| Error::field(self.place, key, found, "a list of token counts");
        match self.at(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(|n| n.as_u64().ok_or_else(|| wrong(n))).collect(),
            Some(other) => Err(wrong(other)),
        }
    }

    /// Refuses a key that changes load or engine in a way that no forecast follows.
    pub(super) fn refuse<T>(&self, path: &str, accepted: &str) -> Result<T> {
        let given = self.at(path).map_or_else(|| "missing".to_owned(), Value::to_string);
        Err(Error::field(self.place, path.trim_start_matches('/'), given, accepted))
    }

    /// A note that names the keys outside `known`, if there are any; `family` accepts keys by their form.
    pub(super) fn unread(&self, known: &[&str], family: fn(&str) -> bool) -> Option<String> {
        let foreign = |key: &&String| !known.contains(&key.as_str()) && !family(key);
        let names: Vec<&str> = self.keys.keys().filter(foreign).map(String::as_str).take(12).collect();
        (!names.is_empty()).then(|| format!("keys that are not read: {}", names.join(", ")))
    }
}
