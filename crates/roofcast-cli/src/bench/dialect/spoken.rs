//! Text under any key: what a delta says beyond the keys that are read by name.
//!
//! Knows: text may be nested, as in `audio.transcript`, and some keys hold marks of a message and no text of it.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// True if a value holds text, at any depth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spoken(pub(super) bool);

/// Keys whose text the model did not generate as part of the answer: roles, names of things, signatures, sources.
const MARKS: [&str; 17] = [
    "role",
    "id",
    "type",
    "object",
    "format",
    "status",
    "model",
    "finish_reason",
    "tool_call_id",
    "encrypted_content",
    "signature",
    "thought_signature",
    "annotations",
    "citations",
    "extra_content",
    "provider_specific_fields",
    "metadata",
];

impl Spoken {
    /// Reads the value of `key`.
    pub(super) fn of<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Spoken, A::Error> {
        if MARKS.contains(&key) {
            map.next_value::<IgnoredAny>()?;
            return Ok(Spoken(false));
        }
        map.next_value()
    }
}

impl<'de> Deserialize<'de> for Spoken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spoken, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Spoken;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Spoken, E> {
        Ok(Spoken(!text.is_empty()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Spoken, E> {
        Ok(Spoken(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Spoken, E> {
        Ok(Spoken(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Spoken, E> {
        Ok(Spoken(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Spoken, E> {
        Ok(Spoken(false))
    }

    fn visit_unit<E>(self) -> Result<Spoken, E> {
        Ok(Spoken(false))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Spoken, A::Error> {
        let mut spoken = false;
        while let Some(Spoken(item)) = items.next_element()? {
            spoken |= item;
        }
        Ok(Spoken(spoken))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spoken, A::Error> {
        let mut spoken = false;
        while let Some(key) = map.next_key::<Cow<str>>()? {
            spoken |= Spoken::of(&key, &mut map)?.0;
        }
        Ok(Spoken(spoken))
    }
}
