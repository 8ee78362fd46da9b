//! The body of llama.cpp's `/completion`.
//!
//! Source: `tools/server/README.md` of llama.cpp b11434.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::tokenizer::Tokenizer;
use super::bounds::many_stops;
use super::{Ask, Endpoint, prompts};

/// The slot that a body of any endpoint asks for in `id_slot`, as b11549 reads it: a number without its fraction, as 32
/// bits; -1 and values of other types ask for none.
pub(super) fn id_slot(fields: &Fields) -> Option<i32> {
    let value = fields.get("id_slot")?;
    let number = value.as_i64().or_else(|| value.as_bool().map(i64::from));
    let id = number.or_else(|| value.as_f64().map(|number| number as i64))? as i32;
    Some(id).filter(|id| *id != -1)
}

impl Ask {
    /// Reads a body of `/completion`; an `n_predict` below 0 means no bound, and with 0 one token is
    /// generated.
    pub(super) fn llama_completion(fields: &Fields, tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let limit = fields.integer("n_predict")?.or(fields.integer("max_tokens")?);
        let prompts = prompts("prompt", fields.need("prompt")?, tokenizer)?;
        if prompts.len() > 1 && fields.flag("stream")?.unwrap_or(false) {
            return Err(Refusal::bad("A stream has one prompt."));
        }
        Ok(Ask {
            max_tokens: limit.and_then(|limit| u64::try_from(limit).ok()).map(|limit| limit.max(1)),
            stop: many_stops(fields, "stop")?,
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            seed: fields.integer("seed")?.unwrap_or(0) as u64,
            stream: fields.flag("stream")?.unwrap_or(false),
            listed: prompts.len() > 1,
            ..Ask::of(Endpoint::LlamaCompletion, prompts)
        })
    }
}
