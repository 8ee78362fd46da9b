//! Events of SGLang's `/generate`: each has the whole text so far, and in `meta_info` the number of tokens so far.
//! Checked against `python/sglang/srt/managers/tokenizer_manager.py` of SGLang 0.5.

use super::words::Words;
use super::{Chunk, Tokens, Usage, WrittenError, count, given_up};
use crate::bench::failure::Failure;
use roofcast::record::Outcome;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    text: Option<Words<'a>>,
    #[serde(default)]
    index: Option<u32>,
    #[serde(borrow, default)]
    meta_info: Option<Meta<'a>>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(borrow, default)]
    finish_reason: Option<Finish<'a>>,
}

#[derive(Deserialize)]
struct Finish<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

pub(super) fn read(data: &[u8], keep_text: bool) -> Result<Chunk, String> {
    let written: Written = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    let failure = written.error.as_ref().map(WrittenError::failure);
    let Some(meta) = written.meta_info else {
        return Ok(Chunk { passed_over: failure.is_none(), failure, ..Chunk::default() });
    };
    let choice = written.index.unwrap_or(0);
    let mut chunk = Chunk { failure, ..Chunk::default() };
    let answered = meta.completion_tokens.unwrap_or(0);
    if answered > 0 {
        let unseen = written.text.as_ref().is_none_or(Words::is_empty);
        chunk.tokens.push(Tokens { choice, named: None, unseen });
    }
    chunk.usage = Some(Usage {
        prompt_tokens: meta.prompt_tokens.unwrap_or(0),
        completion_tokens: answered,
        cached_tokens: meta.cached_tokens,
        reasoning_tokens: 0,
    });
    chunk.usage_of = Some(choice);
    if let Some(finish) = meta.finish_reason {
        chunk.finished.push(finish.kind == "length");
        let with_message = |f: Failure| match &finish.message {
            Some(message) => Failure::new(Outcome::Aborted, message.as_ref()),
            None => f,
        };
        chunk.failure = chunk.failure.or_else(|| given_up(&finish.kind).map(with_message));
        if keep_text && choice == 0 {
            // Texts are cumulative, so the last one is the whole text.
            chunk.text = written.text.map_or(String::new(), |t| t.into_text().into_owned());
        }
    }
    Ok(chunk)
}
