//! Events of `/v1/chat/completions` and `/v1/completions`, in the dialects that servers speak. Checked against recorded
//! streams of vLLM 0.32 and llama.cpp b11434.

use super::spoken::Spoken;
use super::words::Words;
use super::{Chunk, Details, NO_MESSAGE, Tokens, Usage, WrittenError, count, given_up};
use crate::bench::failure::Failure;
use roofcast::record::Outcome;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

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

/// Content of a message, or the next part of it.
#[derive(Default)]
struct Delta<'a> {
    /// True if the delta has a role, as the first one of a message.
    role: bool,
    content: Option<Words<'a>>,
    /// True if another key has text: a refusal, a transcript, a call.
    spoken: bool,
    /// True if a key of reasoning has text.
    reasons: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Delta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Delta<'a>, D::Error> {
        deserializer.deserialize_map(DeltaKeys)
    }
}

struct DeltaKeys;

impl<'de> Visitor<'de> for DeltaKeys {
    type Value = Delta<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a message, or a part of it")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Delta<'de>, A::Error> {
        let mut delta = Delta::default();
        let some = |words: Option<Words>| words.is_some_and(|words| !words.is_empty());
        while let Some(key) = map.next_key::<Cow<str>>()? {
            match key.as_ref() {
                "role" => delta.role = map.next_value::<Option<IgnoredAny>>()?.is_some(),
                "content" => delta.content = map.next_value()?,
                "refusal" => delta.spoken |= some(map.next_value()?),
                // Keys of vLLM, DeepSeek and OpenRouter.
                "reasoning_content" | "reasoning" | "reasoning_text" => {
                    delta.reasons |= some(map.next_value()?)
                }
                "tool_calls" => {
                    let calls: Option<Vec<IgnoredAny>> = map.next_value()?;
                    delta.spoken |= calls.is_some_and(|calls| !calls.is_empty());
                }
                // OpenAI's older form of a tool call.
                "function_call" => delta.spoken |= map.next_value::<Option<IgnoredAny>>()?.is_some(),
                other => {
                    let Spoken(spoken) = Spoken::of(other, &mut map)?;
                    delta.spoken |= spoken;
                    delta.reasons |=
                        spoken && (other.starts_with("reasoning") || other.starts_with("thinking"));
                }
            }
        }
        Ok(delta)
    }
}

#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    #[serde(default)]
    completion_tokens_details: Option<Details>,
    /// Cached prompt tokens, under DeepSeek's key.
    #[serde(default, deserialize_with = "count")]
    prompt_cache_hit_tokens: Option<u64>,
}

impl From<WrittenUsage> for Usage {
    fn from(written: WrittenUsage) -> Usage {
        let details = written.prompt_tokens_details.and_then(|d| d.cached_tokens);
        let prompt_tokens = written.prompt_tokens.unwrap_or(0);
        let rest = written.total_tokens.map_or(0, |total| total.saturating_sub(prompt_tokens));
        Usage {
            prompt_tokens,
            completion_tokens: written.completion_tokens.unwrap_or(rest),
            cached_tokens: details.or(written.prompt_cache_hit_tokens),
            reasoning_tokens: written.completion_tokens_details.and_then(|d| d.reasoning_tokens).unwrap_or(0),
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
    chunk.passed_over = written.choices.is_none() && chunk.usage.is_none() && chunk.failure.is_none();
    for choice in written.choices.unwrap_or_default() {
        let index = choice.index.unwrap_or(0);
        if let Some(unseen) = brings_tokens(&choice) {
            let named = choice.token_ids.as_ref().map(|ids| ids.len() as u64).filter(|n| *n > 0);
            chunk.tokens.push(Tokens { choice: index, named, unseen: unseen && named.is_none() });
        }
        let message = choice.delta.as_ref().or(choice.message.as_ref());
        chunk.reasons |= message.is_some_and(|delta| delta.reasons);
        if let Some(reason) = ended(&choice) {
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
    error.or_else(|| given_up(ended(choice)?))
}

/// The reason for which a choice ended. Some gateways write an empty one, or the word `null`, in every chunk before the
/// last.
fn ended<'a>(choice: &'a Choice) -> Option<&'a str> {
    choice.finish_reason.as_deref().filter(|reason| !["", "null", "none"].contains(reason))
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
        return (choice.text.is_some() && ended(choice).is_none()).then_some(true);
    };
    if some(&delta.content) || delta.spoken || delta.reasons {
        return Some(false);
    }
    let between = delta.content.is_some() && !delta.role && ended(choice).is_none();
    between.then_some(true)
}
