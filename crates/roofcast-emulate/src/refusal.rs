//! Refused requests, with vLLM's messages.
//!
//! Knows: status codes and bodies; [`llama_cpp`] has the messages of llama.cpp. Source: answers recorded from vLLM
//! 0.32, and its `entrypoints/openai` for others. Knows nothing about when a request is refused.

mod llama_cpp;

use super::dialect::Dialect;
use hyper::StatusCode;
use serde_json::{Value, json};

/// The refusal of a request: status, type of error and message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    /// llama.cpp's error, if its form differs.
    llama_cpp: Option<Box<Value>>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &str, param: Option<&str>, message: String) -> Refusal {
        let error = json!({"message": message, "type": kind, "param": param, "code": status.as_u16()});
        Refusal { status, body: json!({ "error": error }), llama_cpp: None }
    }

    /// A refusal with the type of error `kind`.
    pub(crate) fn named(status: StatusCode, kind: &str, message: String) -> Refusal {
        Refusal::new(status, kind, None, message)
    }

    /// Refusal of a parameter.
    pub(crate) fn param(param: &str, message: &str) -> Refusal {
        let message = format!("{message} (parameter={param})");
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequestError", Some(param), message)
    }

    /// Refusal of a parameter's value.
    pub(crate) fn value(param: &str, value: &Value, message: &str) -> Refusal {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let message = format!("{message} (parameter={param}, value={shown})");
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequestError", Some(param), message)
    }

    /// Refusal of a request that is invalid as a whole.
    pub(crate) fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequestError", None, message.into())
    }

    /// Refusal with pydantic's errors about a body, one per line.
    fn invalid(param: Option<&str>, errors: &[String]) -> Refusal {
        let count = errors.len();
        let many = if errors.len() == 1 { "" } else { "s" };
        let message = format!("{count} validation error{many}:\n  {}", errors.join("\n  "));
        Refusal::new(StatusCode::BAD_REQUEST, "Bad Request", param, message)
    }

    /// Refusal of a body that is not JSON.
    pub(crate) fn no_json(body: &[u8], error: &serde_json::Error) -> Refusal {
        let lines = body.split_inclusive(|b| *b == b'\n').take(error.line().saturating_sub(1));
        let before = lines.map(<[u8]>::len).sum::<usize>();
        let at = if error.is_eof() { body.len() } else { before + error.column().saturating_sub(1) };
        let param = format!("body.{at}");
        let detail = format!(
            "{{'type': 'json_invalid', 'loc': '{param}', 'msg': 'JSON decode error', \
             'input': '<dict of 0 items>', 'ctx': {{'error': 'Expecting value'}}}}"
        );
        let llama_refusal = llama_cpp::no_json(body.get(at).copied(), error);
        Refusal { llama_cpp: Some(Box::new(llama_refusal)), ..Refusal::invalid(Some(&param), &[detail]) }
    }

    /// Refusal of a body whose content type is absent or is not JSON.
    pub(crate) fn media_type() -> Refusal {
        Refusal::invalid(None, &["Unsupported Media Type: Only 'application/json' is allowed".to_owned()])
    }

    /// Refusal of a list with more than `most` items, in a field that also accepts a string.
    pub(crate) fn long_list(field: &str, found: &[Value], most: usize) -> Refusal {
        let param = format!("body.{field}");
        let count = found.len();
        let input = format!("'<list of {count} items>'");
        let errors = [
            format!(
                "{{'type': 'string_type', 'loc': '{param}', 'msg': 'Input should be a valid string', 'input': {input}}}"
            ),
            format!(
                "{{'type': 'too_long', 'loc': '{param}', 'msg': 'List should have at most {most} items after validation, \
                 not {count}', 'input': {input}, 'ctx': {{'field_type': 'List', 'max_length': {most}, 'actual_length': \
                 {count}}}}}"
            ),
        ];
        Refusal::invalid(Some(&param), &errors)
    }

    /// Refusal of a field that is missing or of another type.
    pub(crate) fn field(field: &str, kind: &str, reason: &str, found: &Value) -> Refusal {
        let param = format!("body.{field}");
        let detail =
            format!("{{'type': '{kind}', 'loc': '{param}', 'msg': '{reason}', 'input': '{}'}}", brief(found));
        Refusal::invalid(Some(&param), &[detail])
    }

    /// Refusal of a model that is not served.
    pub(crate) fn model(asked: &str, served: &[String]) -> Refusal {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {}.", served.join(", "));
        Refusal::new(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), message)
    }

    /// Refusal of a prompt that leaves no room for an answer.
    pub(crate) fn too_long(most: u64, input: u64) -> Refusal {
        let message = format!(
            "This model's maximum context length is {most} tokens. However, your prompt contains {input} input tokens, \
             which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
        );
        let refusal = Refusal::value("input_tokens", &input.into(), &message);
        Refusal { llama_cpp: Some(Box::new(llama_cpp::too_long(input, most))), ..refusal }
    }

    /// Refusal of an answer that may grow beyond the context.
    pub(crate) fn too_many(most: u64, input: u64, asked: u64) -> Refusal {
        let message = format!(
            "This model's maximum context length is {most} tokens. However, you requested {asked} output tokens and \
             your prompt contains {input} input tokens, for a total of {} tokens. Please reduce the length of the input \
             prompt or the number of requested output tokens.",
            input.saturating_add(asked)
        );
        Refusal::value("max_tokens", &asked.into(), &message)
    }

    /// Refusal because the queue is full.
    pub(crate) fn busy() -> Refusal {
        let message = "The engine is currently busy and cannot accept new requests. Please try again later or on a \
                       different instance.";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable", None, message.into())
    }

    /// Refusal because the engine is stopped.
    pub(crate) fn dead() -> Refusal {
        let message = "The engine has stopped.".to_owned();
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", None, message)
    }

    /// Error of the requests in llama.cpp's slots whose shared cache is used up.
    pub(crate) fn overflow() -> Refusal {
        let message = "Context size has been exceeded.".to_owned();
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, message)
    }

    /// Refusal by a fault on demand.
    pub(crate) fn fault(status: StatusCode) -> Refusal {
        let kind = status.canonical_reason().unwrap_or("Fault");
        Refusal::new(status, kind, None, "A fault on demand.".to_owned())
    }

    /// Refusal of a body larger than the limit.
    pub(crate) fn too_large(most: usize) -> Refusal {
        let message = format!("The body is larger than {most} bytes.");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large", None, message)
    }

    /// Refusal of a missing or wrong API key.
    pub(crate) fn unauthorized() -> Refusal {
        Refusal { status: StatusCode::UNAUTHORIZED, body: json!({"error": "Unauthorized"}), llama_cpp: None }
    }

    /// Refusal of an unknown path or method.
    pub(crate) fn detail(status: StatusCode) -> Refusal {
        let detail = status.canonical_reason().unwrap_or_default();
        Refusal { status, body: json!({ "detail": detail }), llama_cpp: None }
    }
}

impl Refusal {
    /// Message of the refusal.
    fn message(&self) -> String {
        let error = self.body.get("error");
        let message = error.and_then(|error| error.get("message")).or(error).or(self.body.get("detail"));
        message.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Body of the refusal, in the form of this dialect.
    pub(crate) fn written(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Vllm => self.body.clone(),
            Dialect::Sglang => self.written_sglang(),
            Dialect::LlamaCpp => self.written_llama_cpp(),
        }
    }

    /// Body in Anthropic's form (`AnthropicErrorResponse` of `entrypoints/anthropic/protocol.py` of vLLM 0.32).
    pub(crate) fn written_anthropic(&self) -> Value {
        let kind = self.body.pointer("/error/type").and_then(Value::as_str).unwrap_or("api_error");
        json!({"type": "error", "error": {"type": kind, "message": self.message()}})
    }

    /// Body in the form of SGLang 0.5.23 (`create_error_response` of `entrypoints/openai/serving_base.py`): the error
    /// object itself is the body.
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
}

/// Most characters of a text in a validation error.
const SHOWN: usize = 200;

/// A value in the form in which validation errors show it.
fn brief(value: &Value) -> String {
    match value {
        Value::Object(map) => format!("<dict of {} items>", map.len()),
        Value::Array(items) => format!("<list of {} items>", items.len()),
        Value::String(text) if text.chars().nth(SHOWN).is_some() => {
            text.chars().take(SHOWN).chain("...[truncated]".chars()).collect()
        }
        Value::String(text) => text.clone(),
        Value::Bool(flag) => (if *flag { "True" } else { "False" }).to_owned(),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}
