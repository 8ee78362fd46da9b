//! The body of `/v1/embeddings`: texts or tokens, each of which becomes a vector.
//!
//! Source: `entrypoints/pooling/embed/protocol.py` of vLLM 0.32. An engine computes the prompts and generates nothing.

use super::super::fields::Fields;
use super::super::refusal::Refusal;
use super::super::tokenizer::Tokenizer;
use super::bounds::at_least;
use super::{Ask, Endpoint, Vectors, prompts};
use serde_json::Value;

/// Most numbers in a vector.
const MOST_DIMENSIONS: u64 = 1 << 16;

impl Ask {
    /// Reads a body of `/v1/embeddings`.
    pub(super) fn embeddings(fields: &Fields, tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let prompts = prompts("input", fields.get("input").unwrap_or(&Value::Null), tokenizer)?;
        let base64 = match fields.string("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let given = Value::from(other);
                let reason = "Input should be 'float' or 'base64'";
                return Err(Refusal::field("encoding_format", "literal_error", reason, &given));
            }
        };
        let dimensions = at_least(fields, "dimensions", 1)?;
        if let Some(found) = dimensions.filter(|n| *n > MOST_DIMENSIONS) {
            let message = format!("dimensions must be at most {MOST_DIMENSIONS}, got {found}.");
            return Err(Refusal::value("dimensions", &found.into(), &message));
        }
        Ok(Ask {
            model: fields.string("model")?.map(str::to_owned),
            max_tokens: Some(1),
            priority: fields.integer("priority")?.unwrap_or(0),
            user: fields.string("user")?.map(str::to_owned),
            vectors: Vectors { dimensions, base64 },
            ..Ask::of(Endpoint::Embeddings, prompts)
        })
    }
}
