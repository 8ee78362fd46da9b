//! Requests that are not served, as vLLM words them.
//!
//! Knows: status codes and bodies. Source: answers recorded from vLLM 0.32, and its `entrypoints/openai` for those that
//! were not. Knows nothing about when a request is refused.

use super::dialect::Dialect;
use hyper::StatusCode;
use serde_json::{Value, json};

/// A request that is not served.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    /// Tokens of the prompt and of the context, where the one is beyond the other.
    pub(crate) beyond: Option<[u64; 2]>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &str, param: Option<&str>, message: String) -> Refusal {
        let error = json!({"message": message, "type": kind, "param": param, "code": status.as_u16()});
        Refusal { status, body: json!({ "error": error }), beyond: None }
    }

    /// One of a kind of its own.
    pub(crate) fn named(status: StatusCode, kind: &str, message: String) -> Refusal {
        Refusal::new(status, kind, None, message)
    }

    /// A value that is not accepted.
    pub(crate) fn value(param: &str, value: &Value, message: &str) -> Refusal {
        let message = format!("{message} (parameter={param}, value={value})");
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequestError", Some(param), message)
    }

    /// A request that makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequestError", None, message.into())
    }

    /// A body that is no JSON from byte `at` on.
    pub(crate) fn no_json(at: usize, reason: &str) -> Refusal {
        let message = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', \
             'input': '<dict of 0 items>', 'ctx': {{'error': '{reason}'}}}}"
        );
        let param = format!("body.{at}");
        Refusal::new(StatusCode::BAD_REQUEST, "Bad Request", Some(&param), message)
    }

    /// A field that is missing or of another type.
    pub(crate) fn field(field: &str, kind: &str, reason: &str, found: &Value) -> Refusal {
        let param = format!("body.{field}");
        let message = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': '{reason}', 'input': '{}'}}",
            brief(found)
        );
        Refusal::new(StatusCode::BAD_REQUEST, "Bad Request", Some(&param), message)
    }

    /// A model that is not served.
    pub(crate) fn model(asked: &str, served: &[String]) -> Refusal {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {}.", served.join(", "));
        Refusal::new(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), message)
    }

    /// A prompt that leaves no room for an answer.
    pub(crate) fn too_long(most: u64, input: u64) -> Refusal {
        let message = format!(
            "This model's maximum context length is {most} tokens. However, your prompt contains {input} input tokens, \
             which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
        );
        let refusal = Refusal::value("input_tokens", &input.into(), &message);
        Refusal { beyond: Some([input, most]), ..refusal }
    }

    /// An answer that may grow beyond the context.
    pub(crate) fn too_many(most: u64, input: u64, asked: u64) -> Refusal {
        let message = format!(
            "This model's maximum context length is {most} tokens. However, you requested {asked} output tokens and \
             your prompt contains {input} input tokens, for a total of {} tokens. Please reduce the length of the input \
             prompt or the number of requested output tokens.",
            input.saturating_add(asked)
        );
        Refusal::value("max_tokens", &asked.into(), &message)
    }

    /// A queue that takes no more.
    pub(crate) fn busy() -> Refusal {
        let message = "The engine is currently busy and cannot accept new requests. Please try again later or on a \
                       different instance.";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable", None, message.into())
    }

    /// An engine that is no more.
    pub(crate) fn dead() -> Refusal {
        let message = "The engine has stopped.".to_owned();
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", None, message)
    }

    /// A fault that was asked for.
    pub(crate) fn fault(status: StatusCode) -> Refusal {
        let kind = status.canonical_reason().unwrap_or("Fault");
        Refusal::new(status, kind, None, "A fault on demand.".to_owned())
    }

    /// A body beyond what is read.
    pub(crate) fn too_large(most: usize) -> Refusal {
        let message = format!("The body is larger than {most} bytes.");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large", None, message)
    }

    /// A key that is missing or another.
    pub(crate) fn unauthorized() -> Refusal {
        Refusal { status: StatusCode::UNAUTHORIZED, body: json!({"error": "Unauthorized"}), beyond: None }
    }

    /// A path or a method that there is not.
    pub(crate) fn detail(status: StatusCode) -> Refusal {
        let detail = status.canonical_reason().unwrap_or_default();
        Refusal { status, body: json!({ "detail": detail }), beyond: None }
    }
}

impl Refusal {
    /// Its message.
    fn message(&self) -> String {
        let error = self.body.get("error");
        let found = error.and_then(|error| error.get("message")).or(error).or(self.body.get("detail"));
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Its body as a server of this kind writes it.
    pub(crate) fn written(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Vllm => self.body.clone(),
            Dialect::Sglang => self.written_sglang(),
            Dialect::LlamaCpp => self.written_llama_cpp(),
        }
    }

    /// As SGLang 0.5.23 writes it (`create_error_response` of `entrypoints/openai/serving_base.py`): the error is the body.
    fn written_sglang(&self) -> Value {
        match self.body.get("error") {
            Some(Value::Object(error)) => {
                let part = |key: &str| error.get(key).cloned().unwrap_or(Value::Null);
                json!({"object": "error", "message": part("message"), "type": part("type"), "param": part("param"),
                    "code": part("code")})
            }
            _ => self.body.clone(),
        }
    }

    /// As llama.cpp b11434 writes it.
    fn written_llama_cpp(&self) -> Value {
        let code = self.status.as_u16();
        if let Some([input, context]) = self.beyond {
            let message = format!(
                "request ({input} tokens) exceeds the available context size ({context} tokens), try increasing it"
            );
            return json!({"error": {"code": code, "message": message, "type": "exceed_context_size_error",
                "n_prompt_tokens": input, "n_ctx": context}});
        }
        let (kind, message) = match code {
            401 => ("authentication_error", "Invalid API Key".to_owned()),
            404 => ("not_found_error", "File Not Found".to_owned()),
            503 => ("unavailable_error", self.message()),
            400..=499 => ("invalid_request_error", self.message()),
            _ => ("server_error", self.message()),
        };
        json!({"error": {"message": message, "type": kind, "code": code}})
    }
}

/// A value as a validation error shows it.
fn brief(value: &Value) -> String {
    match value {
        Value::Object(map) => format!("<dict of {} items>", map.len()),
        Value::Array(items) => format!("<list of {} items>", items.len()),
        Value::String(text) => text.chars().take(64).collect(),
        other => other.to_string(),
    }
}
