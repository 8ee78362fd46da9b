//! Words that are one token each, found in a model's own `tokenizer.json`.
//!
//! Knows: which of the library's words a vocabulary has as one token together with the space before the word, and
//! the tokens that a tokenizer adds around a text. Does not tokenize: prompts consist only of words that need no
//! splitting.

use roofcast::workload::words;
use roofcast::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fewest words that can make prompts distinct.
pub(super) const FEWEST_WORDS: usize = 16;

/// Marks of a space at the start of a token: in byte-level vocabularies, in SentencePiece's.
const SPACES: [char; 2] = ['Ġ', '▁'];

/// Words that are one token each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vocabulary {
    pub(super) words: Vec<&'static str>,
    /// Number of special tokens around every text: start and end.
    pub(super) around: u64,
}

#[derive(Deserialize)]
struct File {
    model: Model,
    post_processor: Option<Value>,
}

#[derive(Deserialize)]
struct Model {
    vocab: Value,
}

const ACCEPTED: &str = "a tokenizer.json whose `model.vocab` holds common English words, marked by Ġ or ▁";

/// Reads a `tokenizer.json`.
pub(crate) fn parse(place: &str, text: &str) -> Result<Vocabulary> {
    let file: File = serde_json::from_str(text)
        .map_err(|e| Error::Parse { place: place.into(), message: format!("{e}; accepted: {ACCEPTED}") })?;
    let tokens: BTreeSet<&str> = match &file.model.vocab {
        Value::Object(ids) => ids.keys().map(String::as_str).collect(),
        // A Unigram vocabulary is a list of pieces, each with its score.
        Value::Array(pieces) => pieces.iter().filter_map(|piece| piece.get(0)?.as_str()).collect(),
        _ => BTreeSet::new(),
    };
    let is_token = |word: &str| SPACES.iter().any(|space| tokens.contains(format!("{space}{word}").as_str()));
    let words: Vec<_> = words().filter(|word| is_token(word)).collect();
    if words.len() < FEWEST_WORDS {
        return Err(Error::field(place, "model.vocab", format!("{} of them", words.len()), ACCEPTED));
    }
    Ok(Vocabulary { words, around: file.post_processor.as_ref().map_or(0, around) })
}

/// Number of special tokens that a post-processor, or a member of its sequence, adds around a single text.
fn around(processor: &Value) -> u64 {
    let parts = |key: &str| processor.get(key).and_then(Value::as_array).into_iter().flatten();
    let special = parts("single").filter(|part| part.get("SpecialToken").is_some()).count() as u64;
    special + parts("processors").map(around).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A vocabulary of all candidate words except `left_out`, with this mark of a space.
    fn vocabulary(space: char, left_out: &str, pieces: bool) -> Value {
        let tokens = words().filter(|w| *w != left_out).map(|w| format!("{space}{w}"));
        match pieces {
            true => tokens.map(|t| json!([t, -2.0])).collect(),
            false => Value::Object(tokens.map(|t| (t, json!(1))).collect()),
        }
    }

    #[test]
    fn words_and_what_stands_around_them() {
        let start = json!({"SpecialToken": {"id": "<s>"}});
        let text = json!({"Sequence": {"id": "A"}});
        for (space, pieces, post_processor, around) in [
            // Llama 3's form: a byte-level vocabulary, one special token before the text.
            ('Ġ', false, json!({"processors": [{"type": "ByteLevel"}, {"single": [start, text]}]}), 1),
            // T5's form: pieces with scores, one special token after the text.
            ('▁', true, json!({"single": [text, start]}), 1),
            // Qwen's form: a byte-level vocabulary, no special tokens.
            ('Ġ', false, json!({"type": "ByteLevel"}), 0),
            ('▁', false, Value::Null, 0),
        ] {
            let model = json!({"vocab": vocabulary(space, "time", pieces)});
            let file = json!({"model": model, "post_processor": post_processor}).to_string();
            let vocabulary = parse("tokenizer.json", &file).unwrap();
            assert_eq!((vocabulary.words.len(), vocabulary.around), (words().count() - 1, around));
            assert!(!vocabulary.words.contains(&"time"));
        }
    }

    #[test]
    fn what_is_no_tokenizer() {
        for text in ["{", "{}", r#"{"model": {"vocab": {"Ġthe": 1}}}"#, r#"{"model": {"vocab": 7}}"#] {
            let error = parse("tokenizer.json", text).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json") && error.contains("vocab"), "{error}");
        }
    }
}
