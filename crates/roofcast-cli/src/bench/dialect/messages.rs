//! Events of Anthropic's `/v1/messages`, distinguished by their `type`. vLLM and SGLang serve this API, too.
//!
//! Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming (2026-10).

use super::words::Words;
use super::{Chunk, Counts, NO_MESSAGE, Tokens, Usage, WrittenError};
use crate::bench::failure::Failure;
use roofcast::record::Outcome;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'a, str>,
    /// Key of `message_start`.
    #[serde(default)]
    message: Option<Message>,
    /// Key of `content_block_start`, whose block has no text by the API, and its first text from some gateways.
    #[serde(borrow, default)]
    content_block: Option<Block<'a>>,
    /// Key of `content_block_delta` and `message_delta`.
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// Key of `message_delta`, and of an answer that is not streamed.
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    content: Vec<Block<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<Words<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Words<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Words<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Option<Words<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Words<'a>>,
    /// Arguments of a call.
    #[serde(default)]
    input: Option<IgnoredAny>,
}

pub(super) fn read(data: &[u8], keep_text: bool) -> Result<Chunk, String> {
    let written: Written = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    let mut chunk = Chunk::default();
    match written.kind.as_ref() {
        "message_start" => chunk.counts = written.message.and_then(|m| m.usage),
        "content_block_start" => {
            let Some(block) = written.content_block else { return Ok(chunk) };
            let some = |words: &Option<Words>| words.as_ref().is_some_and(|words| !words.is_empty());
            chunk.reasons = some(&block.thinking);
            if chunk.reasons || some(&block.text) {
                chunk.tokens.push(Tokens { choice: 0, named: None, unseen: false });
            }
            if keep_text {
                chunk.text = block.text.map_or(String::new(), |t| t.into_text().into_owned());
            }
        }
        "content_block_delta" => {
            let Some(delta) = written.delta else { return Ok(chunk) };
            chunk.reasons = delta.thinking.as_ref().is_some_and(|words| !words.is_empty());
            let words = [&delta.text, &delta.thinking, &delta.partial_json];
            if words.iter().all(|words| words.is_none()) {
                // A signature or a citation is no token.
                return Ok(chunk);
            }
            let unseen = !words.into_iter().flatten().any(|words| !words.is_empty());
            chunk.tokens.push(Tokens { choice: 0, named: None, unseen });
            if keep_text {
                chunk.text = delta.text.map_or(String::new(), |t| t.into_text().into_owned());
            }
        }
        "message_delta" => {
            // Servers report the prompt's tokens here, in `message_start`, or in both.
            chunk.counts = written.usage;
            let reason = written.delta.and_then(|delta| delta.stop_reason);
            chunk.finished.extend(reason.map(|reason| reason == "max_tokens"));
        }
        "message" => {
            chunk.usage = written.usage.as_ref().map(Usage::from);
            for block in written.content {
                match block.text {
                    Some(words) => chunk.say(words, keep_text),
                    None if block.thinking.is_some() || block.input.is_some() => {
                        chunk.tokens.push(Tokens { choice: 0, named: None, unseen: false });
                    }
                    None => {}
                }
            }
            chunk.finished.push(written.stop_reason.is_some_and(|reason| reason == "max_tokens"));
        }
        "error" => {
            let words = written.error.as_ref().map_or(NO_MESSAGE, WrittenError::words);
            chunk.failure = Some(Failure::new(Outcome::StreamError, words));
        }
        "" => {
            let failure = written.error.as_ref().map(WrittenError::failure);
            chunk.failure = Some(failure.ok_or("neither `type` nor an error")?);
        }
        _ => {}
    }
    Ok(chunk)
}
