//! Endpoints that count, encode and decode tokens.
//!
//! Knows: `/tokenize` and `/detokenize` of vLLM and SGLang, and Anthropic's `/v1/messages/count_tokens`.

use super::super::ask;
use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::response::said;
use super::{Answered, Service};
use serde_json::json;

impl Service {
    pub(super) fn tokenize(&self, body: &[u8]) -> Answered {
        let fields = Fields::parse(body)?;
        self.model(fields.string("model")?)?;
        let tokenizer = self.tokenizer();
        let special = fields.flag("add_special_tokens")?.unwrap_or(true);
        let tokens = match fields.string("prompt")? {
            Some(text) if special => tokenizer.prompt(text)?,
            Some(text) => tokenizer.encode(text)?,
            None => ask::conversation::chat(&fields, tokenizer)?,
        };
        let words = fields.flag("return_token_strs")?.unwrap_or(false);
        let words = words.then(|| tokens.iter().map(|token| tokenizer.name(*token)).collect::<Vec<_>>());
        Ok(said(&json!({"count": tokens.len(), "max_model_len": self.max_model_len, "tokens": tokens,
            "token_strs": words})))
    }

    /// The text of the tokens in the body of `/detokenize`.
    pub(super) fn detokenized(&self, body: &[u8]) -> Result<String, Refusal> {
        let fields = Fields::parse(body)?;
        self.model(fields.string("model")?)?;
        let written = fields.need("tokens")?;
        let tokens: Option<Vec<u32>> =
            written.as_array().and_then(|all| all.iter().map(ask::token).collect());
        let wrong = || Refusal::field("tokens", "list_type", "Input should be a valid list", written);
        Ok(self.tokenizer().spelled(&tokens.ok_or_else(wrong)?))
    }

    /// The number of prompt tokens of a body of `/v1/messages`.
    pub(super) fn count_tokens(&self, body: &[u8]) -> Answered {
        let fields = Fields::parse(body)?;
        self.model(fields.string("model")?)?;
        let prompt = ask::messages::prompt(&fields, self.tokenizer())?;
        Ok(said(&json!({ "input_tokens": prompt.len() })))
    }

    pub(super) fn detokenize(&self, body: &[u8]) -> Answered {
        Ok(said(&json!({ "prompt": self.detokenized(body)? })))
    }
}
