//! The answer of `/v1/embeddings`: a vector for each input, and the number of prompt tokens.

use super::{Chunk, Usage, WrittenError, count};
use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Deserialize)]
struct Written<'a> {
    data: Option<Vec<IgnoredAny>>,
    usage: Option<WrittenUsage>,
    #[serde(borrow, default)]
    error: Option<WrittenError<'a>>,
}

#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
}

pub(super) fn read(data: &[u8]) -> Result<Chunk, String> {
    let written: Written = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    let failure = written.error.as_ref().map(WrittenError::failure);
    if failure.is_none() && written.data.as_ref().is_none_or(Vec::is_empty) {
        return Err("neither `data` nor an error".into());
    }
    let usage =
        written.usage.map(|u| Usage { prompt_tokens: u.prompt_tokens.unwrap_or(0), ..Usage::default() });
    Ok(Chunk { usage, failure, finished: vec![true], ..Chunk::default() })
}
