//! The body of `/v1/responses`: a text or items in.
//!
//! Source: `entrypoints/openai/responses/protocol.py` of vLLM 0.32. Stored answers and reasoning are not supported.

use super::super::fields::Fields;
use super::super::form::Form;
use super::super::refusal::Refusal;
use super::super::tokenizer::Tokenizer;
use super::super::tools::{Calls, Shape};
use super::bounds::{at_least, sampling};
use super::conversation::{said, turns};
use super::{Ask, Endpoint};
use serde_json::Value;

/// Keys of a request that its response repeats.
const REPEATED: [&str; 8] = [
    "instructions",
    "metadata",
    "parallel_tool_calls",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
];

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
        let repeated = |key: &&str| Some(((*key).to_owned(), fields.get(key)?.clone()));
        Ok(Ask {
            form,
            calls: Calls::read(Shape::Responses, fields)?,
            repeated: REPEATED.iter().filter_map(repeated).collect(),
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
