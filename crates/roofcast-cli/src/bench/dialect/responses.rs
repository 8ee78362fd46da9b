//! Events of `/v1/responses`, distinguished by their `type`, and its answer if it is not streamed.
//!
//! Source: https://platform.openai.com/docs/api-reference/responses-streaming (2026-10).

use super::spoken::Spoken;
use super::words::Words;
use super::{Chunk, Counts, NO_MESSAGE, Tokens, Usage, WrittenError};
use crate::bench::failure::Failure;
use roofcast::record::Outcome;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    delta: Option<Words<'a>>,
    #[serde(borrow, default)]
    response: Option<Answer<'a>>,
    /// Key of an `error`; some servers nest it in `error`.
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
}

/// The answer in the final event of a stream, or the answer that is not streamed.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    status: Option<Cow<'a, str>>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
    #[serde(borrow, default)]
    output: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    content: Option<Words<'a>>,
    #[serde(borrow, default)]
    arguments: Option<Words<'a>>,
}

/// An event whose delta is no text, as an object of a tool.
#[derive(Deserialize)]
struct ObjectDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    delta: Spoken,
}

/// End of the types of events that bring tokens: text, reasoning, refusals, arguments and inputs of calls.
const DELTA: &str = ".delta";

pub(super) fn read(data: &[u8], keep_text: bool) -> Result<Chunk, String> {
    let mut chunk = Chunk::default();
    let event: Event = match serde_json::from_slice(data) {
        Ok(event) => event,
        Err(error) => {
            let other =
                serde_json::from_slice::<ObjectDelta>(data).ok().filter(|other| other.kind.ends_with(DELTA));
            let Some(ObjectDelta { delta: Spoken(spoken), .. }) = other else {
                return Err(error.to_string());
            };
            chunk.tokens.push(Tokens { choice: 0, named: None, unseen: !spoken });
            return Ok(chunk);
        }
    };
    match event.kind.as_deref() {
        Some(kind) if kind.ends_with(DELTA) => {
            let unseen = event.delta.as_ref().is_none_or(Words::is_empty);
            chunk.tokens.push(Tokens { choice: 0, named: None, unseen });
            // A summary of reasoning is not the reasoning.
            chunk.reasons = kind == "response.reasoning_text.delta";
            if let Some(text) = event.delta.filter(|_| keep_text && kind == "response.output_text.delta") {
                chunk.text = text.into_text().into_owned();
            }
        }
        Some("response.completed" | "response.incomplete" | "response.failed") => {
            end(event.response.ok_or("no `response` at its end")?, &mut chunk);
        }
        Some("error") => {
            let nested = event.error.as_ref().map(WrittenError::words);
            let words = event.message.as_deref().or(nested).unwrap_or(NO_MESSAGE);
            chunk.failure = Some(Failure::new(Outcome::StreamError, words));
        }
        Some(_) => {}
        None => whole(data, keep_text, &mut chunk)?,
    }
    Ok(chunk)
}

fn whole(data: &[u8], keep_text: bool, chunk: &mut Chunk) -> Result<(), String> {
    let mut answer: Answer = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    if answer.status.is_none() && answer.error.is_none() {
        return Err("neither `type` nor `status` nor an error".into());
    }
    for item in std::mem::take(&mut answer.output) {
        let words = item.content.into_iter().chain(item.arguments).filter(|words| !words.is_empty());
        words.for_each(|words| chunk.say(words, keep_text));
    }
    end(answer, chunk);
    Ok(())
}

fn end(answer: Answer, chunk: &mut Chunk) {
    let status = answer.status.as_deref().unwrap_or_default();
    chunk.finished.push(status == "incomplete");
    chunk.failure = answer.error.as_ref().map(WrittenError::failure);
    if matches!(status, "failed" | "cancelled") && chunk.failure.is_none() {
        chunk.failure = Some(Failure::new(Outcome::Aborted, format!("the answer's status is `{status}`")));
    }
    chunk.usage = answer.usage.as_ref().map(Usage::from);
}
