//! Text to tokens and back.
//!
//! Knows: what a server asks of a tokenizer. [`rule`] needs no vocabulary, [`vocabulary`] is that of a `tokenizer.json`.
//! Knows nothing about requests, but for how one is refused whose text is in no tokens.

mod rule;
#[cfg(feature = "tokenizers")]
mod vocabulary;

use super::refusal::Refusal;
pub(crate) use rule::Rule;
use std::fmt::Debug;
#[cfg(feature = "tokenizers")]
pub(crate) use vocabulary::Vocabulary;

/// Tokens of a text, or why there are none.
pub(crate) type Encoded = Result<Vec<u32>, Refusal>;

/// What cuts texts into tokens.
pub(crate) trait Tokenizer: Debug + Send + Sync {
    /// The tokens of a text by itself.
    fn encode(&self, text: &str) -> Encoded;

    /// Those of a prompt, with the special tokens that every prompt has around it.
    fn prompt(&self, text: &str) -> Encoded {
        self.encode(text)
    }

    /// Those of a chat as a prompt: turns with role and content, and the beginning of the answer where it is asked for.
    fn chat(&self, turns: &[(String, String)], answers: bool) -> Encoded;

    /// Whether a prompt may name this token.
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

    /// The text that each token adds to those before it: a character is with the token that ends it.
    fn pieces(&self, tokens: &[u32]) -> Vec<String>;
}
