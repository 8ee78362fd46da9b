//! Events of `/v1/chat/completions` and `/v1/completions`, in the dialects that servers speak. Checked against recorded
//! streams of vLLM 0.32 and llama.cpp b11434.

use super::words::Words;
use super::{Chunk, NO_MESSAGE, Tokens, Usage, WrittenError, given_up};
use crate::bench::failure::Failure;
use roofcast::record::Outcome;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<WrittenUsage>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
    #[serde(borrow, default)]
    object: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u32>,
    #[serde(borrow, default)]
    text: Option<Words<'a>>,
    /// Key of a streamed chunk. Perplexity sends the whole `message` so far in addition.
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// Key of an answer that is not streamed.
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
    #[serde(default)]
    token_ids: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<Words<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Words<'a>>,
    /// Reasoning text, under the key of vLLM and OpenRouter.
    #[serde(borrow, default)]
    reasoning: Option<Words<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Words<'a>>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
    /// OpenAI's older form of a tool call.
    #[serde(default)]
    function_call: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    /// Cached prompt tokens, under DeepSeek's key.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl From<WrittenUsage> for Usage {
    fn from(written: WrittenUsage) -> Usage {
        let details = written.prompt_tokens_details.and_then(|d| d.cached_tokens);
        Usage {
            prompt_tokens: written.prompt_tokens.unwrap_or(0),
            completion_tokens: written.completion_tokens.unwrap_or(0),
            cached_tokens: details.or(written.prompt_cache_hit_tokens),
        }
    }
}

/// Parses the data of one event, or the body of a whole answer. The error describes the fault in the JSON.
pub(super) fn read(data: &[u8], keep_text: bool) -> Result<Chunk, String> {
    let written: Written = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    let mut chunk = Chunk { failure: failure_of(&written), ..Chunk::default() };
    chunk.usage = written.usage.map(Usage::from);
    if let (Some(_), Some([only])) = (chunk.usage, written.choices.as_deref()) {
        chunk.usage_of = Some(only.index.unwrap_or(0));
    }
    if written.choices.is_none() && chunk.usage.is_none() && chunk.failure.is_none() {
        return Err("neither choices nor usage nor an error".into());
    }
    for choice in written.choices.unwrap_or_default() {
        let index = choice.index.unwrap_or(0);
        if let Some(unseen) = brings_tokens(&choice) {
            let named = choice.token_ids.as_ref().map(|ids| ids.len() as u64).filter(|n| *n > 0);
            chunk.tokens.push(Tokens { choice: index, named, unseen: unseen && named.is_none() });
        }
        if let Some(reason) = &choice.finish_reason {
            chunk.finished.push(reason == "length");
        }
        chunk.failure = chunk.failure.or_else(|| failure_in(&choice));
        if keep_text && index == 0 {
            let delta = choice.delta.or(choice.message);
            let content = choice.text.or(delta.and_then(|d| d.content));
            chunk.text.push_str(&content.map_or(Cow::Borrowed(""), Words::into_text));
        }
    }
    Ok(chunk)
}

/// The error in an event, if any: in OpenAI's `error` key, or the event itself.
fn failure_of(written: &Written) -> Option<Failure> {
    match (&written.error, &written.object) {
        (Some(error), _) => Some(error.failure()),
        (None, Some(kind)) if kind == "error" => {
            Some(Failure::new(Outcome::StreamError, written.message.as_deref().unwrap_or(NO_MESSAGE)))
        }
        _ => None,
    }
}

/// The failure of a choice: an error inside it (OpenRouter), or a finish reason that means failure.
fn failure_in(choice: &Choice) -> Option<Failure> {
    let error = choice.error.as_ref().map(WrittenError::failure);
    error.or_else(|| given_up(choice.finish_reason.as_deref()?))
}

/// `Some` if a choice brings tokens, true if they show no text. A chunk with only the role, or only a finish reason,
/// brings none. Text may be empty for a special token or half a character, so a chunk without text that neither opens
/// nor ends the answer counts as a token.
fn brings_tokens(choice: &Choice) -> Option<bool> {
    let some = |text: &Option<Words>| text.as_ref().is_some_and(|t| !t.is_empty());
    if choice.token_ids.as_ref().is_some_and(|ids| !ids.is_empty()) || some(&choice.text) {
        return Some(false);
    }
    let Some(delta) = choice.delta.as_ref().or(choice.message.as_ref()) else {
        return (choice.text.is_some() && choice.finish_reason.is_none()).then_some(true);
    };
    let words = [&delta.content, &delta.reasoning_content, &delta.reasoning, &delta.refusal];
    let calls = delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
    if words.into_iter().any(some) || calls || delta.function_call.is_some() {
        return Some(false);
    }
    let between = delta.content.is_some() && delta.role.is_none() && choice.finish_reason.is_none();
    between.then_some(true)
}
