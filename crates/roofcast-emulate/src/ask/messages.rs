//! The body of Anthropic's `/v1/messages`.
//!
//! Source: `entrypoints/anthropic/protocol.py` of vLLM 0.32; `thinking` and `output_config` by
//! https://docs.anthropic.com/en/api/messages.

use super::super::fields::Fields;
use super::super::form::Form;
use super::super::refusal::Refusal;
use super::super::tokenizer::{Encoded, Tokenizer};
use super::super::tools::{Calls, Shape};
use super::bounds::{at_least, many_stops, sampling};
use super::conversation::{content, said, turns};
use super::{Ask, Endpoint};
use serde_json::Value;

/// Tokens of thinking if the model chooses their number (`adaptive`): the least budget that Anthropic's API accepts.
const ADAPTIVE: u64 = 1024;

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

/// Most tokens of thinking that a body asks for; 0 without thinking.
fn thinking(fields: &Fields) -> Result<u64, Refusal> {
    let Some(thinking) = fields.object("thinking")? else { return Ok(0) };
    match thinking.string("type")? {
        Some("enabled") => Ok(at_least(&thinking, "budget_tokens", 1)?.unwrap_or(ADAPTIVE)),
        Some("adaptive") => Ok(ADAPTIVE),
        _ => Ok(0),
    }
}

/// The form that a body asks for, by `output_config` or by `output_format`, its name in the API's beta.
fn form(fields: &Fields) -> Result<Option<Form>, Refusal> {
    let config = fields.get("output_config").and_then(|config| config.get("format"));
    let format = config.or(fields.get("output_format")).unwrap_or(&Value::Null);
    Form::of_format("output_config.format", format, "/schema")
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
            calls: Calls::read(Shape::Messages, fields)?,
            form: form(fields)?,
            thinking: thinking(fields)?,
            ..Ask::of(Endpoint::Messages, vec![prompt.into()])
        })
    }
}
