//! The tokens of a model's own `tokenizer.json`, by Hugging Face's library.
//!
//! Knows: which special tokens mark a chat's turns, and which token completes a character. Runs no chat template: turns
//! are written in the form of ChatML or Llama 3 if the file has their special tokens, else as lines of text.

use super::{Encoded, Tokenizer};
use crate::refusal::Refusal;
use roofcast::workload::words;
use roofcast::{Error, Result};
use tokenizers::Tokenizer as Library;

/// Texts before a turn's role, after the role, and after the turn.
type Marks = [&'static str; 3];

/// Marks of turns that are special tokens: those in Qwen's vocabularies and others, and Llama 3's.
const SPECIAL: [Marks; 2] =
    [["<|im_start|>", "\n", "<|im_end|>\n"], ["<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"]];
/// Marks of turns for a vocabulary without special tokens.
const PLAIN: Marks = ["", ":\n", "\n\n"];

const ACCEPTED: &str = "a tokenizer.json that Hugging Face's tokenizers 0.23 reads";

/// A vocabulary, with the rules that cut texts into its tokens.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    library: Library,
    marks: Marks,
}

impl Vocabulary {
    /// Reads a `tokenizer.json`.
    pub(crate) fn parse(place: &str, text: &str) -> Result<Vocabulary> {
        let wrong = |what: String| Error::Parse {
            place: place.into(),
            message: format!("{what}; accepted: {ACCEPTED}"),
        };
        let mut library = Library::from_bytes(text).map_err(|e| wrong(e.to_string()))?;
        // Truncation is meant for training batches; a server must count all tokens.
        library.with_truncation(None).map_err(|e| wrong(e.to_string()))?;
        library.with_padding(None);
        let is_known = |mark: &str| mark.trim().is_empty() || library.token_to_id(mark.trim()).is_some();
        let marks = SPECIAL.into_iter().find(|marks| marks.iter().all(|mark| is_known(mark)));
        let vocabulary = Vocabulary { marks: marks.unwrap_or(PLAIN), library };
        let says = |word: &str| vocabulary.encode(word).is_ok_and(|tokens| !tokens.is_empty());
        if !words().any(says) {
            return Err(wrong("it has tokens for no English word".to_owned()));
        }
        Ok(vocabulary)
    }

    fn cut(&self, text: &str, special: bool) -> Encoded {
        let encoded = self.library.encode_fast(text, special);
        let encoding =
            encoded.map_err(|e| Refusal::bad(format!("The prompt could not be tokenized: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn decode(&self, tokens: &[u32], skip_special_tokens: bool) -> String {
        self.library.decode(tokens, skip_special_tokens).unwrap_or_default()
    }
}

impl Tokenizer for Vocabulary {
    fn encode(&self, text: &str) -> Encoded {
        self.cut(text, false)
    }

    fn prompt(&self, text: &str) -> Encoded {
        self.cut(text, true)
    }

    fn chat(&self, turns: &[(String, String)], answers: bool) -> Encoded {
        let [start, middle, end] = self.marks;
        let turn = |(role, content): &(String, String)| [start, role, middle, content, end].concat();
        let mut text: String = turns.iter().map(turn).collect();
        if answers {
            text.extend([start, "assistant", middle]);
        }
        self.prompt(&text)
    }

    fn holds(&self, token: u32) -> bool {
        self.library.id_to_token(token).is_some()
    }

    fn text(&self, tokens: &[u32]) -> String {
        self.decode(tokens, true)
    }

    fn spelled(&self, tokens: &[u32]) -> String {
        self.decode(tokens, false)
    }

    fn name(&self, token: u32) -> String {
        self.library.id_to_token(token).unwrap_or_default()
    }

    /// A token's text depends on the tokens before it, so each token is decoded together with the last tokens whose
    /// text is complete.
    fn pieces(&self, tokens: &[u32]) -> Vec<String> {
        let mut pieces = Vec::with_capacity(tokens.len());
        let mut from = 0;
        let mut out = 0;
        let mut before = 0;
        for end in 1..=tokens.len() {
            let text = self.text(&tokens[from..end]);
            // A text that ends within a character waits until the character is complete.
            let new = text.get(before..).filter(|new| !new.ends_with(char::REPLACEMENT_CHARACTER));
            pieces.push(new.unwrap_or_default().to_owned());
            if new.is_some() {
                (from, out) = (out, end);
                before = self.text(&tokens[from..out]).len();
            }
        }
        pieces
    }
}
