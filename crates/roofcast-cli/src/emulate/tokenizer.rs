//! Text to tokens and back.
//!
//! Knows: the interface of a tokenizer. [`rule`] needs no vocabulary, [`vocabulary`] reads a `tokenizer.json`. Knows
//! nothing about requests, except the refusal of a text that cannot be tokenized.

mod rule;
#[cfg(feature = "tokenizers")]
mod vocabulary;

use super::refusal::Refusal;
pub(crate) use rule::Rule;
use std::fmt::Debug;
#[cfg(feature = "tokenizers")]
pub(crate) use vocabulary::Vocabulary;

/// Tokens of a text, or a refusal.
pub(crate) type Encoded = Result<Vec<u32>, Refusal>;

/// A tokenizer.
pub(crate) trait Tokenizer: Debug + Send + Sync {
    /// The tokens of a text by itself.
    fn encode(&self, text: &str) -> Encoded;

    /// The tokens of a prompt, with the special tokens around every prompt.
    fn prompt(&self, text: &str) -> Encoded {
        self.encode(text)
    }

    /// The tokens of a chat as a prompt: turns with role and content, and the beginning of the answer if asked for.
    fn chat(&self, turns: &[(String, String)], answers: bool) -> Encoded;

    /// True if a prompt may contain this token.
    fn holds(&self, _token: u32) -> bool {
        true
    }

    /// The text of tokens as an answer has it: special ones have none.
    fn text(&self, tokens: &[u32]) -> String;

    /// The text of tokens, special ones by their names.
    fn spelled(&self, tokens: &[u32]) -> String {
        self.text(tokens)
    }

    /// The name of one token.
    fn name(&self, token: u32) -> String {
        self.text(&[token])
    }

    /// The text that each token adds to the previous ones: a character belongs to the token that completes it.
    fn pieces(&self, tokens: &[u32]) -> Vec<String>;
}
