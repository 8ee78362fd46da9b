//! What the events of `/v1/chat/completions` and `/v1/completions` mean, in every dialect that servers speak.
//!
//! Knows: which chunk brings tokens, where usage may be, how errors look, when an answer is over. Knows no time and
//! no bytes on wires. Checked against recorded streams of vLLM 0.32 and llama.cpp b11434.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// What one event, or one whole answer, says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chunk {
    /// For each choice with tokens: its index and how many tokens it names, where it names them.
    pub(super) tokens: Vec<(u32, Option<u64>)>,
    /// The text, where it was asked for.
    pub(super) text: String,
    /// Choices that ended here, and whether each did because it had all its tokens.
    pub(super) finished: Vec<bool>,
    /// Token counts as the server has them.
    pub(super) usage: Option<Usage>,
    /// The one choice whose they are, where they are in its chunk: llama.cpp's last, vLLM's continuous ones.
    pub(super) usage_of: Option<u32>,
    /// An error instead of an answer, in words.
    pub(super) error: Option<String>,
}

/// Token counts as the server has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) cached_tokens: u64,
}

/// The mark after the last event.
pub(super) const DONE: &[u8] = b"[DONE]";

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
    index: u32,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    /// `delta` in a stream, `message` in a whole answer.
    #[serde(borrow, default, alias = "message")]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(default)]
    token_ids: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    /// The same by vLLM's and OpenRouter's name.
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    refusal: Option<Cow<'a, str>>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

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

/// Reads the data of one event, or the body of a whole answer. The error says what is wrong with the JSON.
pub(super) fn read(data: &[u8], keep_text: bool) -> Result<Chunk, String> {
    let written: Written = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    let mut chunk = Chunk { error: error_of(&written), ..Chunk::default() };
    chunk.usage = written.usage.map(|u| Usage {
        prompt_tokens: u.prompt_tokens.unwrap_or(0),
        completion_tokens: u.completion_tokens.unwrap_or(0),
        cached_tokens: u.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or(0),
    });
    if let (Some(_), Some([only])) = (chunk.usage, written.choices.as_deref()) {
        chunk.usage_of = Some(only.index);
    }
    let said_nothing = written.choices.is_none() && chunk.usage.is_none() && chunk.error.is_none();
    for choice in written.choices.unwrap_or_default() {
        if brings_tokens(&choice) {
            let named = choice.token_ids.as_ref().map(|ids| ids.len() as u64).filter(|n| *n > 0);
            chunk.tokens.push((choice.index, named));
        }
        if let Some(reason) = &choice.finish_reason {
            chunk.finished.push(reason == "length");
        }
        if keep_text && choice.index == 0 {
            let content = choice.text.or(choice.delta.and_then(|d| d.content));
            chunk.text.push_str(content.as_deref().unwrap_or_default());
        }
    }
    if said_nothing {
        return Err("neither choices nor usage nor an error".into());
    }
    Ok(chunk)
}

/// The error that an event is, if it is one: OpenAI's `error` object, or an object that calls itself an error.
fn error_of(written: &Written) -> Option<String> {
    match (&written.error, &written.object) {
        (Some(WrittenError::Object { message } | WrittenError::Text(message)), _) => {
            Some(message.to_string())
        }
        (Some(WrittenError::Other(_)), _) => Some("an error without a message".into()),
        (None, Some(kind)) if kind == "error" => {
            Some(written.message.as_deref().unwrap_or("an error without a message").into())
        }
        _ => None,
    }
}

/// Whether a choice brings tokens. The role alone does not, nor a bare end. Text may be empty where the token is special
/// or half a character: then a chunk that neither opens nor ends the answer is taken for one.
fn brings_tokens(choice: &Choice) -> bool {
    let some = |text: &Option<Cow<str>>| text.as_deref().is_some_and(|t| !t.is_empty());
    if choice.token_ids.as_ref().is_some_and(|ids| !ids.is_empty()) || some(&choice.text) {
        return true;
    }
    let Some(delta) = &choice.delta else {
        return choice.text.is_some() && choice.finish_reason.is_none();
    };
    let words = [&delta.content, &delta.reasoning_content, &delta.reasoning, &delta.refusal];
    words.into_iter().any(some)
        || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
        || (delta.content.is_some() && delta.role.is_none() && choice.finish_reason.is_none())
}
