//! Bodies of requests.
//!
//! Knows: the keys of the two endpoints and what a user adds to them or takes away. Knows nothing about how they are sent.

use super::target::Endpoint;
use super::turn::Turn;
use bytes::Bytes;
use roofcast::Error;
use serde_json::{Map, Value, json};

/// Keys that bound an answer's tokens.
const BOUNDS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// What all requests of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) endpoint: Endpoint,
    pub(crate) stream: bool,
    /// Choices that each request asks for.
    pub(crate) choices: u64,
    common: Map<String, Value>,
}

impl Form {
    /// `extra` is laid over what is sent by default; a `null` there takes a key away.
    pub(crate) fn new(
        endpoint: Endpoint,
        model: &str,
        stream: bool,
        extra: Option<&str>,
    ) -> Result<Form, Error> {
        let mut common = Map::new();
        common.insert("model".into(), model.into());
        common.insert("temperature".into(), 0.into());
        common.insert("ignore_eos".into(), true.into());
        common.insert("stream".into(), stream.into());
        if stream {
            common.insert("stream_options".into(), json!({"include_usage": true}));
        }
        for (key, value) in object(extra.unwrap_or("{}"))? {
            common.insert(key, value);
        }
        let choices = common.get("n").and_then(Value::as_u64).unwrap_or(1);
        if !(1..=128).contains(&choices) {
            return Err(Error::field("arguments", "--extra-body", format!("n {choices}"), "n from 1 to 128"));
        }
        Ok(Form { endpoint, stream, choices, common })
    }

    /// Tokens that a request asks each choice for: what the body's common keys say, else `output_len`.
    pub(super) fn asked(&self, output_len: u64) -> u64 {
        BOUNDS.iter().find_map(|key| self.common.get(*key)?.as_u64()).unwrap_or(output_len)
    }

    /// Whether the server is told to go on to that length.
    pub(super) fn runs_on(&self) -> bool {
        self.common.get("ignore_eos") == Some(&Value::Bool(true))
    }

    /// The body of one request.
    pub(crate) fn body(&self, turns: &[Turn], output_len: u64) -> Bytes {
        let mut body = self.common.clone();
        self.say(turns, &mut body);
        if !BOUNDS.iter().any(|key| body.contains_key(*key)) {
            body.insert("max_tokens".into(), output_len.into());
        }
        body.retain(|_, value| !value.is_null());
        Bytes::from(Value::Object(body).to_string())
    }

    /// The body that asks `/tokenize` for the tokens of a prompt: vLLM's keys, and llama.cpp's beside them.
    pub(crate) fn tokenizing(&self, turns: &[Turn]) -> Bytes {
        let mut body = Map::new();
        body.insert("model".into(), self.common.get("model").cloned().unwrap_or_default());
        self.say(turns, &mut body);
        if let Some(prompt) = body.get("prompt").cloned() {
            body.insert("content".into(), prompt);
            body.insert("add_special".into(), true.into());
        }
        Bytes::from(Value::Object(body).to_string())
    }

    fn say(&self, turns: &[Turn], body: &mut Map<String, Value>) {
        match self.endpoint {
            Endpoint::Chat => {
                body.insert("messages".into(), turns.iter().map(Turn::message).collect());
            }
            Endpoint::Completions => {
                let texts: Vec<_> = turns.iter().map(|t| t.text.as_str()).collect();
                body.insert("prompt".into(), texts.join(" ").into());
            }
        }
    }
}

fn object(text: &str) -> Result<Map<String, Value>, Error> {
    serde_json::from_str(text).map_err(|e| {
        let accepted = format!("a JSON object, as {{\"top_p\": 0.9}} ({e})");
        Error::field("arguments", "--extra-body", format!("{text:?}"), accepted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<Turn> {
        vec![Turn::user(text.into())]
    }

    #[test]
    fn both_endpoints() {
        let form = Form::new(Endpoint::Completions, "m", true, None).unwrap();
        let body: Value = serde_json::from_slice(&form.body(&said("a b"), 7)).unwrap();
        assert_eq!(
            body,
            json!({"model": "m", "temperature": 0, "ignore_eos": true, "stream": true,
                "stream_options": {"include_usage": true}, "prompt": "a b", "max_tokens": 7})
        );
        let extra = r#"{"n": 2, "ignore_eos": null, "top_p": 0.5}"#;
        let form = Form::new(Endpoint::Chat, "m", false, Some(extra)).unwrap();
        let body: Value = serde_json::from_slice(&form.body(&said("a"), 3)).unwrap();
        assert_eq!(
            body,
            json!({"model": "m", "temperature": 0, "stream": false, "n": 2, "top_p": 0.5,
                "messages": [{"role": "user", "content": "a"}], "max_tokens": 3})
        );
        assert_eq!(form.choices, 2);
        assert!(Form::new(Endpoint::Chat, "m", true, Some("[1]")).is_err());
    }
}
