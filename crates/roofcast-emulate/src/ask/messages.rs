//! The body of Anthropic's `/v1/messages`: messages in, one text out.
//!
//! Source: `entrypoints/anthropic/protocol.py` of vLLM 0.32. Tools and thinking are not supported.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::tokenizer::{Encoded, Tokenizer};
use super::bounds::{at_least, many_stops, sampling};
use super::{Ask, Endpoint, content, said, turns};

/// Encodes the system prompt and the messages of a body as tokens.
pub(crate) fn prompt(fields: &Fields, tokenizer: &dyn Tokenizer) -> Encoded {
    let mut all = Vec::new();
    if let Some(system) = fields.get("system") {
        let wrong = || Refusal::field("system", "string_type", "Input should be a valid string", system);
        all.push(("system".to_owned(), content(Some(system)).ok_or_else(wrong)?));
    }
    all.extend(turns("messages", fields.need("messages")?)?);
    said(&all, true, tokenizer)
}

impl Ask {
    /// Reads a body of `/v1/messages`.
    pub(super) fn messages(fields: &Fields, tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let prompt = prompt(fields, tokenizer)?;
        sampling(fields, 1)?;
        fields.need("max_tokens")?;
        Ok(Ask {
            model: fields.string("model")?.map(str::to_owned),
            max_tokens: at_least(fields, "max_tokens", 1)?,
            stop: many_stops(fields, "stop_sequences")?,
            stream: fields.flag("stream")?.unwrap_or(false),
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            ..Ask::of(Endpoint::Messages, vec![prompt.into()])
        })
    }
}
