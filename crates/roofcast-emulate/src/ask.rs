//! Requests of clients: the bodies of `/v1/completions` and `/v1/chat/completions`.
//!
//! Knows: OpenAI's keys and vLLM's additions; [`bounds`] knows their valid values, [`conversation`] the turns; [`responses`], [`messages`],
//! [`embeddings`], [`sglang`] and [`llama_cpp`] know the keys of other endpoints. Keys that have no effect in this
//! emulation are ignored, as vLLM ignores unknown keys. Knows nothing about engines.

mod bounds;
pub(crate) mod conversation;
mod embeddings;
mod llama_cpp;
pub(crate) mod messages;
mod responses;
mod sglang;

use super::fields::Fields;
use super::form::Form;
use super::refusal::Refusal;
use super::tokenizer::Tokenizer;
use super::tools::{Calls, Shape};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Endpoint to which a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Completions,
    Chat,
    /// `/v1/responses`.
    Responses,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// `/v1/embeddings`.
    Embeddings,
    /// SGLang's `/generate`.
    Generate,
    /// llama.cpp's `/completion`.
    LlamaCompletion,
}

/// Parameters for the transfer of a request's KV cache between instances: `kv_transfer_params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KvTransfer {
    /// True if another instance has computed the request's prompt.
    pub(crate) do_remote_prefill: bool,
    /// True if another instance will continue the request.
    pub(crate) do_remote_decode: bool,
}

impl KvTransfer {
    fn read(fields: &Fields) -> Result<KvTransfer, Refusal> {
        let Some(params) = fields.object("kv_transfer_params")? else { return Ok(KvTransfer::default()) };
        let flag = |key: &str| params.flag(key).map(Option::unwrap_or_default);
        Ok(KvTransfer {
            do_remote_prefill: flag("do_remote_prefill")?,
            do_remote_decode: flag("do_remote_decode")?,
        })
    }
}

/// A request whose body has been read and checked.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: Option<String>,
    pub(crate) prompts: Vec<Arc<[u32]>>,
    /// Number of choices for each prompt.
    pub(crate) n: usize,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) min_tokens: u64,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_eos: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) priority: i64,
    pub(crate) seed: u64,
    /// True if the prompt is returned before the answer.
    pub(crate) echo: bool,
    /// True if only the prompt is returned: an engine computes at least one token, which is not shown.
    pub(crate) prompt_only: bool,
    /// Number of most likely tokens to list with log probabilities.
    pub(crate) logprobs: Option<usize>,
    pub(crate) return_token_ids: bool,
    pub(crate) request_id: Option<String>,
    /// The tools that the answer may call.
    pub(crate) calls: Option<Calls>,
    /// Required form of the answer.
    pub(crate) form: Option<Form>,
    /// Most tokens of thinking before the answer, in Anthropic's API; 0 without thinking.
    pub(crate) thinking: u64,
    /// Keys of a response that repeat the request's.
    pub(crate) repeated: Map<String, Value>,
    /// Requested format of embeddings.
    pub(crate) vectors: Vectors,
    pub(crate) kv_transfer: KvTransfer,
    /// User whom the client names; without an `X-Session-Id`, the session for routing.
    pub(crate) user: Option<String>,
    /// True if `/generate` was called with a list of prompts, so that its answer is a list.
    pub(crate) listed: bool,
    /// Slot of llama.cpp's server that the client asks for.
    pub(crate) id_slot: Option<i32>,
}

/// Requested format of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Vectors {
    /// Length of each vector; the model's width if the client gives none.
    pub(crate) dimensions: Option<u64>,
    /// True for base64 of little-endian 32-bit floats, false for JSON numbers.
    pub(crate) base64: bool,
}

/// Most prompts of one request.
const MOST_PROMPTS: usize = 1024;
/// Most choices over all prompts of one request; vLLM has no such bound.
const MOST_ANSWERS: usize = 1 << 17;

impl Ask {
    /// A request with defaults for all other fields.
    fn of(endpoint: Endpoint, prompts: Vec<Arc<[u32]>>) -> Ask {
        Ask {
            endpoint,
            model: None,
            prompts,
            n: 1,
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            ignore_eos: false,
            stream: false,
            include_usage: false,
            continuous_usage: false,
            priority: 0,
            seed: 0,
            echo: false,
            prompt_only: false,
            logprobs: None,
            return_token_ids: false,
            request_id: None,
            calls: None,
            form: None,
            thinking: 0,
            repeated: Map::new(),
            vectors: Vectors::default(),
            kv_transfer: KvTransfer::default(),
            user: None,
            listed: false,
            id_slot: None,
        }
    }

    /// Reads the body of a request to `endpoint`; text prompts become tokens of `tokenizer`.
    pub(crate) fn parse(endpoint: Endpoint, body: &[u8], tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let fields = Fields::parse(body)?;
        let ask = match endpoint {
            Endpoint::Completions | Endpoint::Chat => Ask::openai(endpoint, &fields, tokenizer),
            Endpoint::Responses => Ask::responses(&fields, tokenizer),
            Endpoint::Messages => Ask::messages(&fields, tokenizer),
            Endpoint::Embeddings => Ask::embeddings(&fields, tokenizer),
            Endpoint::Generate => Ask::generate(&fields, tokenizer),
            Endpoint::LlamaCompletion => Ask::llama_completion(&fields, tokenizer),
        }?;
        Ok(Ask { id_slot: llama_cpp::id_slot(&fields), ..ask })
    }

    fn openai(endpoint: Endpoint, fields: &Fields, tokenizer: &dyn Tokenizer) -> Result<Ask, Refusal> {
        let prompts = match endpoint {
            Endpoint::Chat => vec![conversation::chat(fields, tokenizer)?.into()],
            _ => prompts("prompt", fields.get("prompt").unwrap_or(&Value::Null), tokenizer)?,
        };
        let stream = fields.flag("stream")?.unwrap_or(false);
        let options = fields.object("stream_options")?;
        if options.is_some() && !stream {
            let message = "Stream options can only be defined when `stream=True`.";
            return Err(Refusal::param("stream_options", message));
        }
        let option =
            |key: &str| options.as_ref().map_or(Ok(None), |o| o.flag(key)).map(Option::unwrap_or_default);
        let include_usage = option("include_usage")?;
        let n = bounds::choices(fields)?;
        if prompts.len() * n > MOST_ANSWERS {
            let message =
                format!("{} prompts of {n} choices: at most {MOST_ANSWERS} together.", prompts.len());
            return Err(Refusal::param("n", &message));
        }
        bounds::sampling(fields, n)?;
        let echo = endpoint == Endpoint::Completions && fields.flag("echo")?.unwrap_or(false);
        let prompt_only = echo && fields.integer("max_tokens")? == Some(0);
        let max_tokens = if prompt_only { Some(1) } else { bounds::max_tokens(endpoint, fields)? };
        Ok(Ask {
            model: fields.string("model")?.map(str::to_owned),
            n,
            max_tokens,
            min_tokens: bounds::min_tokens(fields, max_tokens)?,
            stop: bounds::stops(fields)?,
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            stream,
            include_usage,
            continuous_usage: include_usage && option("continuous_usage_stats")?,
            priority: fields.integer("priority")?.unwrap_or(0),
            seed: fields.integer("seed")?.unwrap_or(0) as u64,
            echo,
            prompt_only,
            logprobs: bounds::logprobs(endpoint, fields)?,
            return_token_ids: fields.flag("return_token_ids")?.unwrap_or(false),
            request_id: fields.string("request_id")?.map(str::to_owned),
            calls: if endpoint == Endpoint::Chat { Calls::read(Shape::Chat, fields)? } else { None },
            form: Form::read(fields)?,
            kv_transfer: KvTransfer::read(fields)?,
            user: fields.string("user")?.map(str::to_owned),
            ..Ask::of(endpoint, prompts)
        })
    }
}

/// Reads a prompt as text or tokens, or a list of such prompts.
fn prompts(field: &str, value: &Value, tokenizer: &dyn Tokenizer) -> Result<Vec<Arc<[u32]>>, Refusal> {
    let wrong = || Refusal::field(field, "string_type", "Input should be a valid string", value);
    let empty = || Refusal::param(field, "Either prompt or prompt_embeds must be provided and non-empty.");
    let prompt = |value: &Value| match value {
        Value::String(text) => tokenizer.prompt(text).map(Arc::from),
        Value::Array(ids) => {
            named(ids.iter().map(token).collect::<Option<_>>().ok_or_else(wrong)?, tokenizer)
        }
        Value::Null => Err(empty()),
        _ => Err(wrong()),
    };
    let prompts = match value {
        Value::Array(items) if items.first().is_some_and(|i| !i.is_number()) => {
            if items.len() > MOST_PROMPTS {
                let message = format!(
                    "prompt list length {} exceeds the maximum allowed count of {MOST_PROMPTS}. To increase this limit, set the \
                     VLLM_MAX_COMPLETION_PROMPTS environment variable.",
                    items.len()
                );
                return Err(Refusal::param("prompt", &message));
            }
            items.iter().map(prompt).collect::<Result<Vec<_>, _>>()?
        }
        one => vec![prompt(one)?],
    };
    if prompts.is_empty() || prompts.iter().any(|p| p.is_empty()) {
        return Err(empty());
    }
    Ok(prompts)
}

/// A token's id, if `value` is one.
pub(crate) fn token(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Checks token ids that a client supplies; as in vLLM, the largest must be in the vocabulary.
fn named(tokens: Arc<[u32]>, tokenizer: &dyn Tokenizer) -> Result<Arc<[u32]>, Refusal> {
    match tokens.iter().max().filter(|largest| !tokenizer.holds(**largest)) {
        Some(largest) => Err(Refusal::bad(format!("Token id {largest} is out of vocabulary"))),
        None => Ok(tokens),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Rule;
    use super::*;
    use serde_json::json;

    fn parse(endpoint: Endpoint, body: Value) -> Result<Ask, Refusal> {
        Ask::parse(endpoint, body.to_string().as_bytes(), &Rule)
    }

    fn message(refusal: Refusal) -> String {
        refusal.body["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn prompts_are_texts_or_tokens_one_or_many() {
        let read =
            |prompt: Value| parse(Endpoint::Completions, json!({ "prompt": prompt })).map(|a| a.prompts);
        let lengths = |prompt: Value| read(prompt).unwrap().iter().map(|p| p.len()).collect::<Vec<_>>();
        assert_eq!(lengths(json!("the of")), [2]);
        assert_eq!(lengths(json!(["the", "the of and"])), [1, 3]);
        assert_eq!(lengths(json!([5, 6, 7])), [3]);
        assert_eq!(lengths(json!([[5, 6, 7], [8]])), [3, 1]);
        for wrong in [json!(7), json!([1, "a"]), json!([-1]), json!(""), json!([]), json!([[]])] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let with = |key: &str, value: Value| {
            let body = json!({"prompt": "a", key: value});
            message(parse(Endpoint::Completions, body).unwrap_err())
        };
        // Values recorded from vLLM 0.32.
        assert_eq!(
            with("max_tokens", json!(-3)),
            "max_tokens must be at least 1, got -3. (parameter=max_tokens, value=-3)"
        );
        assert!(with("stream", json!("maybe")).contains("body.stream"));
        assert!(message(parse(Endpoint::Chat, json!({})).unwrap_err()).contains("'loc': 'body.messages'"));
        let broken = Ask::parse(Endpoint::Chat, b"{\"model\":}", &Rule).unwrap_err();
        assert!(message(broken).contains("'loc': 'body.9'"));
    }

    #[test]
    fn unknown_keys_and_nulls_pass() {
        let body = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "max_tokens": null, "frequency_penalty": 0.1, "no_such_key": {}, "max_completion_tokens": 7});
        let ask = parse(Endpoint::Chat, body).unwrap();
        assert_eq!((ask.max_tokens, ask.n, ask.stream), (Some(7), 1, false));
    }
}
