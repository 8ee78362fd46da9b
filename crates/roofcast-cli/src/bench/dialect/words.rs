//! Text of an answer, as a string or as a list of parts.
//!
//! Knows: a string may hold half of a surrogate pair if a server cuts an emoji in two, and Mistral's reasoning models
//! send content in parts, which hold text or further parts. Text is kept as bytes and decoded only when it is shown or
//! sent again, when the other half has arrived.

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Text as bytes, which are UTF-8 except for lone surrogates.
#[derive(Debug)]
pub(super) struct Words<'a>(Cow<'a, [u8]>);

/// One part of content that is a list.
#[derive(serde::Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Words<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Words<'a>>,
}

impl<'a> Words<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self.0 {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Words<'a>, D::Error> {
        // Read as bytes, because a Rust string cannot hold half a character.
        deserializer.deserialize_bytes(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Words<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("text, or a list of parts")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Words<'de>, E> {
        Ok(Words(Cow::Borrowed(bytes)))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Words<'de>, E> {
        Ok(Words(Cow::Owned(bytes.to_vec())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Words<'de>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(Part { text, thinking }) = parts.next_element()? {
            for words in [text, thinking].into_iter().flatten() {
                bytes.extend_from_slice(&words.0);
            }
        }
        Ok(Words(Cow::Owned(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        serde_json::from_str::<Words>(json).unwrap().into_text().into_owned()
    }

    #[test]
    fn strings_halves_and_parts() {
        assert_eq!(text(r#""plain""#), "plain");
        assert_eq!(text(r#""a\nb""#), "a\nb");
        // CESU-8 encodes a lone surrogate in three bytes, none of which is valid in UTF-8.
        assert_eq!(text(r#""a\ud83d""#), "a\u{fffd}\u{fffd}\u{fffd}");
        let thinking =
            r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":" a"}]"#;
        assert_eq!(text(thinking), "hm a");
        assert!(serde_json::from_str::<Words>("[]").unwrap().is_empty());
        assert!(serde_json::from_str::<Words>("7").is_err());
    }
}
