//! Meaning of the events of an answer, for every API.
//!
//! Knows: the content that all APIs have in common: which chunk brings tokens, token counts, failures, ends. Each API's
//! own keys are in a separate file. Knows nothing about time or sockets.

mod count;
mod embeddings;
mod generate;
mod messages;
mod openai;
mod responses;
mod spoken;
mod words;

use super::failure::Failure;
use super::target::Endpoint;
use count::count;
use roofcast::record::Outcome;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use words::Words;

/// Content of one event, or of a whole answer that is not streamed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chunk {
    /// Tokens by choice; a choice that received none is absent.
    pub(super) tokens: Vec<Tokens>,
    /// Text of the chunk; empty unless the caller keeps text.
    pub(super) text: String,
    /// For each choice that ended here, true if it reached its token limit.
    pub(super) finished: Vec<bool>,
    /// Token counts reported by the server.
    pub(super) usage: Option<Usage>,
    /// The choice that the counts are for, if the server counts each choice separately: llama.cpp does in its last
    /// chunk, vLLM with continuous usage.
    pub(super) usage_of: Option<u32>,
    /// Token counts of one of several events that report them, which are merged.
    pub(super) counts: Option<Counts>,
    /// True if the chunk shows reasoning.
    pub(super) reasons: bool,
    /// True if the event has no content that the API defines.
    pub(super) passed_over: bool,
    /// Error that the server sent in place of an answer.
    pub(super) failure: Option<Failure>,
}

/// Tokens of one choice in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) choice: u32,
    /// Number of tokens, if the server states it for this chunk.
    pub(super) named: Option<u64>,
    /// True if the chunk shows no text: for a special token, for half a character, or from a server that opens its
    /// stream before the first token.
    pub(super) unseen: bool,
}

/// Token counts reported by the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    /// Prompt tokens found in a prefix cache; `None` if the server does not report them.
    pub(super) cached_tokens: Option<u64>,
    /// Output tokens that are reasoning, of which a stream may show none.
    pub(super) reasoning_tokens: u64,
}

/// Token counts by the keys that Anthropic's API and OpenAI's Responses share, with the keys of cached tokens, which
/// differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Counts {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    /// Anthropic's count of cached tokens, which `input_tokens` does not include.
    #[serde(default, deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    /// OpenAI's count of cached tokens, which `input_tokens` includes.
    #[serde(default)]
    input_tokens_details: Option<Details>,
    #[serde(default)]
    output_tokens_details: Option<Details>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
struct Details {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
}

impl Counts {
    /// Counts of this event and a later one of the same answer: the later one corrects what it states. A later event
    /// without prompt tokens states none, though it may write zeros.
    pub(super) fn merged(self, later: Counts) -> Counts {
        let prompt = [later.input_tokens, later.cache_read_input_tokens, later.cache_creation_input_tokens];
        if prompt.into_iter().flatten().all(|n| n == 0) {
            return Counts {
                output_tokens: later.output_tokens.or(self.output_tokens),
                output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
                ..self
            };
        }
        Counts {
            input_tokens: later.input_tokens.or(self.input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            input_tokens_details: later.input_tokens_details.or(self.input_tokens_details),
            output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
        }
    }
}

impl From<&Counts> for Usage {
    fn from(counts: &Counts) -> Usage {
        let read = counts.cache_read_input_tokens;
        let created = counts.cache_creation_input_tokens;
        let details = counts.input_tokens_details.as_ref();
        Usage {
            prompt_tokens: [counts.input_tokens, read, created]
                .into_iter()
                .flatten()
                .fold(0, u64::saturating_add),
            completion_tokens: counts.output_tokens.unwrap_or(0),
            cached_tokens: read.or_else(|| details?.cached_tokens),
            reasoning_tokens: counts.output_tokens_details.and_then(|d| d.reasoning_tokens).unwrap_or(0),
        }
    }
}

impl Chunk {
    /// Adds text of an answer with a single choice; the text itself is stored only if `keep_text`.
    fn say(&mut self, words: Words, keep_text: bool) {
        self.tokens.push(Tokens { choice: 0, named: None, unseen: words.is_empty() });
        if keep_text {
            self.text.push_str(&words.into_text());
        }
    }
}

/// Data of the event that ends a stream.
pub(super) const DONE: &[u8] = b"[DONE]";

/// Parses the data of one event, or the body of a whole answer. The error describes the fault in the JSON.
pub(super) fn read(endpoint: Endpoint, data: &[u8], keep_text: bool) -> Result<Chunk, String> {
    match endpoint {
        Endpoint::Chat | Endpoint::Completions => openai::read(data, keep_text),
        Endpoint::Responses => responses::read(data, keep_text),
        Endpoint::Messages => messages::read(data, keep_text),
        Endpoint::Generate => generate::read(data, keep_text),
        Endpoint::Embeddings => embeddings::read(data),
    }
}

/// Forms of an error: OpenAI's object, a bare string, or any other value.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenError<'a> {
    Object {
        #[serde(borrow)]
        message: Cow<'a, str>,
    },
    Text(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl WrittenError<'_> {
    fn words(&self) -> &str {
        match self {
            WrittenError::Object { message } | WrittenError::Text(message) => message,
            WrittenError::Other(_) => NO_MESSAGE,
        }
    }

    fn failure(&self) -> Failure {
        Failure::new(Outcome::StreamError, self.words())
    }
}

/// Message for an error object without one.
const NO_MESSAGE: &str = "an error without a message";

/// Finish reasons that mean that the server aborted the answer, with the outcome of each. vLLM and SGLang use `abort`,
/// vLLM and OpenRouter `error`; `insufficient_system_resource` is DeepSeek's.
const GIVEN_UP: [(&str, Outcome); 3] = [
    ("abort", Outcome::Aborted),
    ("error", Outcome::StreamError),
    ("insufficient_system_resource", Outcome::Aborted),
];

/// The failure that a finish reason means, if any.
fn given_up(reason: &str) -> Option<Failure> {
    let (_, outcome) = GIVEN_UP.iter().find(|(name, _)| *name == reason)?;
    Some(Failure::new(*outcome, format!("the server ended the answer with finish reason `{reason}`")))
}

#[cfg(test)]
mod tests;
