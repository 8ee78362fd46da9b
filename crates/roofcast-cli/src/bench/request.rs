//! Bodies of requests.
//!
//! Knows: the keys of each endpoint and the user's additions and removals. Knows nothing about how they are sent.

use super::conversation;
use super::row_keys;
use super::target::Endpoint;
use super::turn::Turn;
use bytes::Bytes;
use roofcast::Error;
use serde_json::{Map, Value, json};

/// Keys by which APIs limit the tokens of an answer.
const BOUNDS: [&str; 4] = ["max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens"];

/// The key among [`BOUNDS`] that this endpoint accepts; `None` for an endpoint without answers.
fn bound(endpoint: Endpoint) -> Option<&'static str> {
    match endpoint {
        Endpoint::Chat | Endpoint::Completions | Endpoint::Messages => Some("max_tokens"),
        Endpoint::Responses => Some("max_output_tokens"),
        Endpoint::Generate => Some("max_new_tokens"),
        Endpoint::Embeddings => None,
    }
}

/// Keys of every request, before the user's are applied.
fn common(endpoint: Endpoint, model: &str, stream: bool) -> Map<String, Value> {
    let body = match endpoint {
        Endpoint::Embeddings => json!({"model": model}),
        Endpoint::Generate => {
            json!({"stream": stream, "sampling_params": {"temperature": 0, "ignore_eos": true}})
        }
        Endpoint::Chat | Endpoint::Completions if stream => json!({"model": model, "temperature": 0,
            "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true}}),
        _ => json!({"model": model, "temperature": 0, "ignore_eos": true, "stream": stream}),
    };
    body.as_object().cloned().unwrap_or_default()
}

/// Common part of all requests of a run.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) endpoint: Endpoint,
    pub(crate) stream: bool,
    /// Number of choices that each request asks for (`n`).
    pub(crate) choices: u64,
    common: Map<String, Value>,
    /// Keys that the user adds, before which keys of a prompt's row have no effect.
    extra: Map<String, Value>,
}

impl Form {
    /// Creates a form for requests; `extra` overrides the defaults, and a `null` in it removes a key.
    pub(crate) fn new(
        endpoint: Endpoint,
        model: &str,
        stream: bool,
        extra: Option<&str>,
    ) -> Result<Form, Error> {
        let stream = stream && endpoint.generates();
        let mut common = common(endpoint, model, stream);
        let extra = object(extra.unwrap_or("{}"))?;
        common.extend(extra.clone());
        let choices = common.get("n").and_then(Value::as_u64).unwrap_or(1);
        if !(1..=128).contains(&choices) {
            return Err(Error::field("arguments", "--extra-body", format!("n {choices}"), "n from 1 to 128"));
        }
        Ok(Form { endpoint, stream, choices, common, extra })
    }

    /// The keys of a request with its priority, if it has one and the endpoint has a place for it.
    pub(super) fn prioritized(&self, mut keys: Map<String, Value>, priority: i32) -> Map<String, Value> {
        if priority != 0 {
            let row = Map::from_iter([("priority".to_owned(), priority.into())]);
            keys.extend(row_keys::keys(self.endpoint, &row).0);
        }
        keys
    }

    /// Tokens that a request asks for per choice: by the user's key if the form has one, else `output_len`.
    pub(super) fn asked(&self, output_len: u64) -> u64 {
        let bound = BOUNDS.iter().find_map(|key| self.sampling()?.get(*key)?.as_u64());
        if self.endpoint.generates() { bound.unwrap_or(output_len) } else { 0 }
    }

    /// True if the server is asked to generate up to the requested length (`ignore_eos`).
    pub(super) fn runs_on(&self) -> bool {
        self.sampling().and_then(|keys| keys.get("ignore_eos")) == Some(&Value::Bool(true))
    }

    /// The sampling keys, which SGLang's own endpoint nests in an object of their own.
    fn sampling(&self) -> Option<&Map<String, Value>> {
        match self.endpoint {
            Endpoint::Generate => self.common.get("sampling_params").and_then(Value::as_object),
            _ => Some(&self.common),
        }
    }

    /// The body of one request, with the keys of its prompt's row.
    pub(crate) fn body(&self, turns: &[Turn], keys: &Map<String, Value>, output_len: u64) -> Bytes {
        let mut body = self.common.clone();
        for (key, value) in keys {
            match (body.get_mut(key), self.extra.get(key), value) {
                (Some(Value::Object(old)), extra, Value::Object(new)) => {
                    let free =
                        new.iter().filter(|(key, _)| extra.is_none_or(|extra| extra.get(key).is_none()));
                    old.extend(free.map(|(key, value)| (key.clone(), value.clone())));
                }
                (_, Some(_), _) => {}
                _ => drop(body.insert(key.clone(), value.clone())),
            }
        }
        conversation::say(self.endpoint, turns, &mut body);
        if let Some(key) = bound(self.endpoint) {
            let keys = match self.endpoint {
                Endpoint::Generate => body.get_mut("sampling_params").and_then(Value::as_object_mut),
                _ => Some(&mut body),
            };
            if let Some(keys) = keys.filter(|keys| !BOUNDS.iter().any(|key| keys.contains_key(*key))) {
                keys.insert(key.into(), output_len.into());
            }
        }
        body.retain(|_, value| !value.is_null());
        Bytes::from(Value::Object(body).to_string())
    }

    /// The body for `/tokenize` that asks for the tokens of a prompt, with vLLM's keys and llama.cpp's.
    pub(crate) fn tokenizing(&self, turns: &[Turn]) -> Bytes {
        let mut body = Map::new();
        body.insert("model".into(), self.common.get("model").cloned().unwrap_or_default());
        if self.endpoint.takes_messages() {
            body.insert("messages".into(), turns.iter().map(Turn::message).collect());
        } else {
            let text: Vec<_> = turns.iter().map(|t| t.text.as_str()).collect();
            let prompt = text.join(" ");
            body.insert("prompt".into(), prompt.as_str().into());
            body.insert("content".into(), prompt.into());
            body.insert("add_special".into(), true.into());
        }
        Bytes::from(Value::Object(body).to_string())
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
    fn bodies_of_every_endpoint() {
        let form = Form::new(Endpoint::Completions, "m", true, None).unwrap();
        let body: Value = serde_json::from_slice(&form.body(&said("a b"), &Map::new(), 7)).unwrap();
        assert_eq!(
            body,
            json!({"model": "m", "temperature": 0, "ignore_eos": true, "stream": true,
                "stream_options": {"include_usage": true}, "prompt": "a b", "max_tokens": 7})
        );
        let extra = r#"{"n": 2, "ignore_eos": null, "top_p": 0.5}"#;
        let form = Form::new(Endpoint::Chat, "m", false, Some(extra)).unwrap();
        let body: Value = serde_json::from_slice(&form.body(&said("a"), &Map::new(), 3)).unwrap();
        assert_eq!(
            body,
            json!({"model": "m", "temperature": 0, "stream": false, "n": 2, "top_p": 0.5,
                "messages": [{"role": "user", "content": "a"}], "max_tokens": 3})
        );
        assert_eq!(form.choices, 2);
        let body = |endpoint| {
            let form = Form::new(endpoint, "m", true, None).unwrap();
            let turns = [
                Turn::read("t", &json!({"role": "system", "content": "s"})).unwrap(),
                Turn::user("a".into()),
            ];
            serde_json::from_slice::<Value>(&form.body(&turns, &Map::new(), 3)).unwrap()
        };
        assert_eq!(
            body(Endpoint::Messages),
            json!({"model": "m", "temperature": 0, "ignore_eos": true, "stream": true, "system": "s",
                "messages": [{"role": "user", "content": "a"}], "max_tokens": 3})
        );
        assert_eq!(
            body(Endpoint::Generate),
            json!({"stream": true, "text": "s a",
                "sampling_params": {"temperature": 0, "ignore_eos": true, "max_new_tokens": 3}})
        );
        assert_eq!(body(Endpoint::Responses)["max_output_tokens"], 3);
        assert_eq!(body(Endpoint::Embeddings), json!({"model": "m", "input": "s a"}));
        assert!(Form::new(Endpoint::Chat, "m", true, Some("[1]")).is_err());
    }
}
