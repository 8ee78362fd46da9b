//! The body of SGLang's `/generate`.
//!
//! Source: `GenerateReqInput` of `managers/io_struct.py` and `sampling/sampling_params.py` of SGLang 0.5.23.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::tokenizer::Tokenizer;
use super::bounds::{at_least, choices, many_stops};
use super::{Ask, Endpoint, prompts};
use serde_json::Value;

/// Most tokens of an answer if the client gives no bound.
const MAX_NEW_TOKENS: u64 = 128;

impl Ask {
    /// Reads a body of `/generate`.
    pub(super) fn generate(fields: &Fields, tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let prompt = match fields.get("input_ids") {
            Some(ids) => ids,
            None => fields.need("text")?,
        };
        let listed = prompt.as_array().and_then(|all| all.first()).is_some_and(|first| !first.is_number());
        let empty = Fields::default();
        let given = fields.object("sampling_params")?;
        let sampling = given.as_ref().unwrap_or(&empty);
        let rid = fields.get("rid").and_then(Value::as_str);
        Ok(Ask {
            model: fields.string("lora_path")?.map(str::to_owned),
            n: choices(sampling)?,
            max_tokens: at_least(sampling, "max_new_tokens", 1)?.or(Some(MAX_NEW_TOKENS)),
            min_tokens: at_least(sampling, "min_new_tokens", 0)?.unwrap_or(0),
            stop: many_stops(sampling, "stop")?,
            ignore_eos: sampling.flag("ignore_eos")?.unwrap_or(false),
            seed: sampling.integer("sampling_seed")?.unwrap_or(0) as u64,
            stream: fields.flag("stream")?.unwrap_or(false),
            priority: fields.integer("priority")?.unwrap_or(0),
            request_id: rid.map(str::to_owned),
            listed,
            ..Ask::of(Endpoint::Generate, prompts("prompt", prompt, tokenizer)?)
        })
    }
}
