//! JSON lines of conversations, without times.
//!
//! A line has lengths (`input_length` or `prompt_tokens`, `output_length` or `completion_tokens`), or `conversations`
//! (`conversation` of LMSYS and WildChat, `messages` of chats), whose first two texts are prompt and answer, behind a
//! system's, of as many tokens as their bytes and script suggest. For accurate
//! lengths, tokenize the texts beforehand.

use super::super::words::estimated_tokens;
use super::{Recording, json, plain};
use roofcast_facts::error::Result;
use roofcast_facts::units::Picoseconds;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    #[serde(alias = "prompt_tokens", alias = "input_len", alias = "input_tokens", alias = "prompt_len")]
    input_length: Option<u64>,
    #[serde(alias = "completion_tokens", alias = "output_len", alias = "output_tokens")]
    output_length: Option<u64>,
    #[serde(default, alias = "conversation", alias = "messages")]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(alias = "role")]
    from: Option<String>,
    #[serde(alias = "content")]
    value: String,
}

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    json::lines(text, recording, |line, found: Line, recording| {
        let tokens = |turn: &Turn| estimated_tokens(&turn.value);
        let (input, output) = match (&found, found.conversations.as_slice()) {
            (Line { input_length: Some(input), output_length: Some(output), .. }, _) => (*input, *output),
            (_, [system, prompt, answer, ..]) if system.from.as_deref() == Some("system") => {
                (tokens(system) + tokens(prompt), tokens(answer))
            }
            (_, [prompt, answer, ..]) => (tokens(prompt), tokens(answer)),
            _ => {
                let message =
                    "expected input_length and output_length, or conversations of two texts or more";
                return Err(recording.error(line, 1, message.into()));
            }
        };
        let input = recording.tokens(line, 1, "input_length", input)?;
        let output = recording.tokens(line, 1, "output_length", output)?;
        recording.add(line, plain(Picoseconds::ZERO, input, output))
    })
}
