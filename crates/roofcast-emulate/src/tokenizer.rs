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

/// Tokens of a text, or a refusal of the text.
pub(crate) type Encoded = Result<Vec<u32>, Refusal>;

/// Conversion between text and tokens.
pub(crate) trait Tokenizer: Debug + Send + Sync {
    /// The tokens of a text, without special tokens around it.
    fn encode(&self, text: &str) -> Encoded;

    /// The tokens of a prompt, including the special tokens that surround every prompt.
    fn prompt(&self, text: &str) -> Encoded {
        self.encode(text)
    }

    /// The tokens of a chat as a prompt: turns of role and content, and the beginning of the answer if `answers`.
    fn chat(&self, turns: &[(String, String)], answers: bool) -> Encoded;

    /// True if a prompt may contain the id `_token`.
    fn holds(&self, _token: u32) -> bool {
        true
    }

    /// The text of tokens in an answer, where special tokens have no text.
    fn text(&self, tokens: &[u32]) -> String;

    /// The text of tokens, where special tokens are spelled by their names.
    fn spelled(&self, tokens: &[u32]) -> String {
        self.text(tokens)
    }

    /// The name of one token, as log probabilities show it.
    fn name(&self, token: u32) -> String {
        self.text(&[token])
    }

    /// The text that each token adds to the tokens before it. A character of several tokens belongs to the token that
    /// completes it.
    fn pieces(&self, tokens: &[u32]) -> Vec<String>;
}
