//! The body of `/v1/responses` in its simplest form: a text or messages in, one message out.
//!
//! Source: `entrypoints/openai/responses/protocol.py` of vLLM 0.32. Stored answers, tools and reasoning are not
//! supported.

use super::super::fields::Fields;
use super::super::form::Form;
use super::super::refusal::Refusal;
use super::super::tokenizer::Tokenizer;
use super::bounds::{at_least, sampling};
use super::{Ask, Endpoint, said, turns};
use serde_json::Value;

impl Ask {
    /// Reads a body of `/v1/responses`.
    pub(super) fn responses(fields: &Fields, tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let mut all = Vec::new();
        if let Some(instructions) = fields.string("instructions")? {
            all.push(("system".to_owned(), instructions.to_owned()));
        }
        match fields.need("input")? {
            Value::String(text) => all.push(("user".to_owned(), text.clone())),
            items => all.extend(turns("input", items)?),
        }
        sampling(fields, 1)?;
        let format = fields.get("text").and_then(|text| text.get("format"));
        let form = match format {
            Some(format) => Form::of_format("text.format", format, "/schema")?,
            None => None,
        };
        Ok(Ask {
            form,
            model: fields.string("model")?.map(str::to_owned),
            max_tokens: at_least(fields, "max_output_tokens", 1)?,
            stream: fields.flag("stream")?.unwrap_or(false),
            priority: fields.integer("priority")?.unwrap_or(0),
            request_id: fields.string("request_id")?.map(str::to_owned),
            user: fields.string("user")?.map(str::to_owned),
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            ..Ask::of(Endpoint::Responses, vec![said(&all, true, tokenizer)?.into()])
        })
    }
}
