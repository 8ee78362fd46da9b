//! The body of llama.cpp's `/completion`.
//!
//! Source: `tools/server/README.md` of llama.cpp b11434.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::tokenizer::Tokenizer;
use super::bounds::many_stops;
use super::{Ask, Endpoint, prompts};

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
