//! The routes of a vLLM server, and the answers to each.
//!
//! Knows: paths, methods, headers and the order of checks. Knows nothing about connections.

use super::ask::{Ask, Endpoint};
use super::completion::Author;
use super::faults::{Fault, Faults};
use super::fields::Fields;
use super::metrics::Facts;
use super::outlet::Outlet;
use super::refusal::Refusal;
use super::replica::{EngineHandle, Job};
use super::stream::{InFlight, Sent, Stream};
use super::wire::{Reply, Writer};
use super::{ask, tokenizer};
use crate::http::{self, Unread, server};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use roofcast::engine::online::Asked;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of vLLM whose API this is.
pub(crate) const VERSION: &str = "0.32.0";
/// Bodies beyond this are parsed on a thread of their own, where they delay no other request.
const LONG: usize = 128 << 10;
/// Tokens of a completion where the client names no bound: OpenAI's default.
const COMPLETION_TOKENS: u64 = 16;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Asks for the load in an answer's head, and says it.
const LOAD_FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// Where the fault of all requests is set.
const FAULTS: &str = "/admin/faults";

/// What a server is told.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What clients call the model.
    pub(crate) names: Vec<String>,
    /// The model itself.
    pub(crate) root: String,
    pub(crate) max_model_len: u64,
    pub(crate) api_key: Option<String>,
    /// Requests here, and prompt tokens of those without their first token, from which on new ones are refused.
    pub(crate) max_queued: [u64; 2],
    /// Bytes of a body.
    pub(crate) most_body: usize,
    pub(crate) echo_request_id: bool,
    /// Whether clients may ask for faults.
    pub(crate) allow_faults: bool,
    /// What meets all requests from the start.
    pub(crate) fault: Option<Fault>,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Service {
    settings: Settings,
    replica: Arc<EngineHandle>,
    author: Author,
    fingerprint: Arc<str>,
    /// Seconds since 1970.
    started: u64,
    requests: AtomicU64,
    faults: Faults,
}

type Answered = Result<Response<Sent>, Refusal>;

impl Service {
    pub(crate) fn new(settings: Settings, replica: Arc<EngineHandle>, author: Author) -> Service {
        let mark =
            settings.root.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let fingerprint = format!("vllm-{VERSION}-{mark:08x}").into();
        let faults = Faults::new(settings.fault.clone());
        Service {
            settings,
            replica,
            author,
            fingerprint,
            started: now(),
            requests: AtomicU64::new(0),
            faults,
        }
    }

    /// The engine.
    pub(crate) fn replica(&self) -> &Arc<EngineHandle> {
        &self.replica
    }

    async fn route(&self, request: Request<Incoming>) -> Answered {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let methods = methods(path).filter(|_| self.settings.allow_faults || path != FAULTS);
        let Some(methods) = methods else { return Err(Refusal::detail(StatusCode::NOT_FOUND)) };
        if !methods.contains(&parts.method) {
            return Ok(not_allowed(methods));
        }
        if path.starts_with("/v1") || path == FAULTS {
            self.authorize(&parts.headers)?;
        }
        match path {
            "/v1/completions" => self.complete(Endpoint::Completions, &parts.headers, body).await,
            "/v1/chat/completions" => self.complete(Endpoint::Chat, &parts.headers, body).await,
            "/v1/models" => Ok(said(&self.models())),
            "/tokenize" => self.tokenize(&self.read(&parts.headers, body).await?),
            "/detokenize" => self.detokenize(&self.read(&parts.headers, body).await?),
            "/version" => Ok(said(&json!({ "version": VERSION }))),
            "/load" => Ok(said(&json!({ "server_load": self.replica.in_flight() }))),
            "/metrics" => Ok(self.metrics()),
            FAULTS => self.change_fault(&parts.method, &self.read(&parts.headers, body).await?),
            // /health and /ping.
            _ => Ok(whole(StatusCode::OK, "", Bytes::new())),
        }
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(key) = &self.settings.api_key else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match given.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(given) if given == key => Ok(()),
            _ => Err(Refusal::unauthorized()),
        }
    }

    /// The whole body, within its bounds.
    async fn read(&self, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Refusal> {
        let most = self.settings.most_body;
        http::body(headers, body, most).await.map_err(|unread| match unread {
            Unread::TooLarge => Refusal::too_large(most),
            Unread::EndedEarly => Refusal::bad("The body ended early."),
            Unread::TooSlow => Refusal::bad("The body took too long."),
        })
    }

    async fn complete(&self, endpoint: Endpoint, headers: &HeaderMap, body: Incoming) -> Answered {
        let body = self.read(headers, body).await?;
        let fault = if self.settings.allow_faults { self.faults.next(headers)? } else { None };
        if let Some(refusal) = fault.as_ref().and_then(Fault::refusal) {
            return Err(refusal);
        }
        let at = self.replica.pace().now();
        let parse = move || Ask::parse(endpoint, &body);
        let mut ask = if parse_is_long(headers) {
            tokio::task::spawn_blocking(parse).await.map_err(|_| Refusal::dead())??
        } else {
            parse()?
        };
        let number = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()?.trim().parse().ok());
        ask.priority = number("x-vllm-priority").unwrap_or(ask.priority);
        let model = self.model(ask.model.as_deref())?;
        let most = self.bounds(&ask)?;
        let choices = ask.prompts.len() * ask.n;
        self.admit()?;
        let first = self.requests.fetch_add(choices as u64, Ordering::Relaxed);
        let outlet = Arc::new(Outlet::new(choices));
        let mut in_flight = InFlight {
            replica: Arc::clone(&self.replica),
            outlet: Arc::clone(&outlet),
            numbers: (first..first + choices as u64).collect(),
            over: false,
        };
        let mut answers = Vec::with_capacity(choices);
        for choice in 0..choices {
            let index = choice / ask.n;
            let (prompt, most) = (&ask.prompts[index], most[index]);
            let answer = self.author.answer(&ask, prompt, choice % ask.n, most);
            let facts = Facts {
                max_tokens: most,
                stops: answer.stops,
                choices: ((choice + 1) % ask.n == 0).then_some(ask.n as u64),
            };
            let asked = Asked {
                number: first + choice as u64,
                at,
                prompt: Arc::clone(prompt),
                output: Arc::clone(&answer.tokens),
                priority: ask.priority,
            };
            answers.push(answer);
            self.replica.arrive(Job { asked, outlet: Arc::clone(&outlet), choice, facts });
        }
        let reply = self.reply(ask, model, first, headers, answers);
        if let Some(fault) = fault.as_ref().filter(|fault| fault.stall_seconds > 0.0) {
            tokio::time::sleep(Duration::from_secs_f64(fault.stall_seconds)).await;
        }
        let cut = fault.and_then(|fault| fault.cut_after_tokens);
        if reply.ask.stream || cut.is_some() {
            let cut = if reply.ask.stream { cut } else { Some(0) };
            let stream = Stream::new(in_flight, Writer::new(reply), cut);
            let mut response = Response::new(Either::Right(stream));
            content_type(&mut response, "text/event-stream; charset=utf-8");
            return Ok(response);
        }
        let out = outlet.whole().await;
        in_flight.over = true;
        let out = out.ok_or_else(Refusal::dead)?;
        let mut response = whole(StatusCode::OK, "application/json", reply.body(&out).into());
        if let Some(load) = headers.get(LOAD_FORMAT).and_then(|format| self.load(format)) {
            response.headers_mut().insert(LOAD, load);
        }
        Ok(response)
    }

    fn reply(
        &self,
        ask: Ask,
        model: String,
        number: u64,
        headers: &HeaderMap,
        answers: Vec<super::completion::Completion>,
    ) -> Reply {
        let given = headers.get(REQUEST_ID).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let mixed = (number ^ self.started << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = given.or(ask.request_id.clone()).unwrap_or_else(|| format!("{mixed:016x}"));
        let kind = if ask.endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
        let fingerprint = Arc::clone(&self.fingerprint);
        Reply { id: format!("{kind}-{id}"), created: now(), model, fingerprint, answers, ask }
    }

    /// The served name that was asked for; the first where none was.
    fn model(&self, asked: Option<&str>) -> Result<String, Refusal> {
        let names = &self.settings.names;
        let found = match asked {
            None | Some("") => names.first(),
            Some(asked) => names.iter().find(|name| *name == asked),
        };
        found.cloned().ok_or_else(|| Refusal::model(asked.unwrap_or_default(), names))
    }

    /// Tokens that the answer to each prompt may have.
    fn bounds(&self, ask: &Ask) -> Result<Vec<u64>, Refusal> {
        let longest = self.settings.max_model_len;
        let bound = |prompt: &Arc<[u32]>| {
            let input = prompt.len() as u64;
            let room = longest.checked_sub(input).filter(|room| *room > 0);
            let room = room.ok_or_else(|| Refusal::too_long(longest, input))?;
            match (ask.max_tokens, ask.endpoint) {
                (Some(asked), _) if asked > room => Err(Refusal::too_many(longest, input, asked)),
                (Some(asked), _) => Ok(asked),
                (None, Endpoint::Completions) => Ok(COMPLETION_TOKENS.max(ask.min_tokens).min(room)),
                (None, Endpoint::Chat) => Ok(room),
            }
        };
        ask.prompts.iter().map(bound).collect()
    }

    /// Refuses at a full queue, as vLLM's `check_admission` does.
    fn admit(&self) -> Result<(), Refusal> {
        let here = [self.replica.in_flight(), self.replica.queued_tokens()];
        let full = here.iter().zip(&self.settings.max_queued).position(|(here, most)| here >= most);
        match full {
            Some(reason) => {
                self.replica.metrics().rejected(reason);
                Err(Refusal::busy())
            }
            None => Ok(()),
        }
    }

    fn models(&self) -> Value {
        let permission = |name: &str| {
            json!([{"id": format!("modelperm-{name}"), "object": "model_permission", "created": self.started,
                "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
                "group": null, "is_blocking": false}])
        };
        let card = |name: &String| {
            json!({"id": name, "object": "model", "created": self.started, "owned_by": "vllm",
                "root": self.settings.root, "parent": null, "max_model_len": self.settings.max_model_len,
                "permission": permission(name)})
        };
        json!({"object": "list", "data": self.settings.names.iter().map(card).collect::<Vec<_>>()})
    }

    /// The load as ORCA reports it (vLLM's `entrypoints/serve/utils/orca_metrics.py`); none in a format that there is not.
    fn load(&self, format: &HeaderValue) -> Option<HeaderValue> {
        let (usage, waiting) = self.replica.metrics().load();
        let text = match format.to_str().ok()?.to_ascii_lowercase().as_str() {
            "text" => format!(
                "TEXT named_metrics.kv_cache_usage_perc={usage:?}, named_metrics.num_requests_waiting={waiting:?}"
            ),
            "json" => format!(
                "JSON {{\"named_metrics\": {{\"kv_cache_usage_perc\": {usage:?}, \"num_requests_waiting\": {waiting:?}}}}}"
            ),
            _ => return None,
        };
        HeaderValue::from_str(&text).ok()
    }

    /// Shows, sets or ends the fault that meets all requests.
    fn change_fault(&self, method: &Method, body: &[u8]) -> Answered {
        match *method {
            Method::POST => {
                let text = std::str::from_utf8(body).map_err(|_| Refusal::bad("The body is no text."))?;
                self.faults.set(Some(Fault::parse(text).map_err(Refusal::bad)?));
            }
            Method::DELETE => self.faults.set(None),
            _ => {}
        }
        Ok(said(&json!({ "fault": self.faults.standing() })))
    }

    fn metrics(&self) -> Response<Sent> {
        let text = self.replica.metrics().text();
        whole(StatusCode::OK, "text/plain; version=1.0.0; charset=utf-8", text.into())
    }

    fn tokenize(&self, body: &[u8]) -> Answered {
        let fields = Fields::parse(body)?;
        self.model(fields.string("model")?)?;
        let mut tokens = Vec::new();
        match fields.string("prompt")? {
            Some(text) => tokenizer::encode(text, &mut tokens),
            None => tokens = ask::chat(&fields)?,
        }
        let words = fields.flag("return_token_strs")?.unwrap_or(false);
        let words = words.then(|| tokens.iter().map(|t| tokenizer::text(&[*t])).collect::<Vec<_>>());
        Ok(said(
            &json!({"count": tokens.len(), "max_model_len": self.settings.max_model_len, "tokens": tokens,
            "token_strs": words}),
        ))
    }

    fn detokenize(&self, body: &[u8]) -> Answered {
        let fields = Fields::parse(body)?;
        self.model(fields.string("model")?)?;
        let found = fields.need("tokens")?;
        let token = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let tokens: Option<Vec<u32>> = found.as_array().and_then(|all| all.iter().map(token).collect());
        let wrong = || Refusal::field("tokens", "list_type", "Input should be a valid list", found);
        Ok(said(&json!({ "prompt": tokenizer::text(&tokens.ok_or_else(wrong)?) })))
    }
}

impl server::Service for Service {
    type Sent = Sent;

    async fn answer(&self, request: Request<Incoming>) -> Response<Sent> {
        let id = request.headers().get(REQUEST_ID).cloned().filter(|_| self.settings.echo_request_id);
        let mut response = match self.route(request).await {
            Ok(response) => response,
            Err(refusal) => refused(refusal),
        };
        if let Some(id) = id {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }
}

/// The methods that a path takes; none where there is no such path.
fn methods(path: &str) -> Option<&'static [Method]> {
    match path {
        "/v1/completions" | "/v1/chat/completions" | "/tokenize" | "/detokenize" => Some(&[Method::POST]),
        "/health" | "/version" | "/load" | "/metrics" | "/v1/models" => Some(&[Method::GET]),
        "/ping" => Some(&[Method::GET, Method::POST]),
        FAULTS => Some(&[Method::GET, Method::POST, Method::DELETE]),
        _ => None,
    }
}

fn parse_is_long(headers: &HeaderMap) -> bool {
    http::length(headers).is_none_or(|length| length > LONG)
}

fn not_allowed(methods: &[Method]) -> Response<Sent> {
    let mut response = refused(Refusal::detail(StatusCode::METHOD_NOT_ALLOWED));
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
        response.headers_mut().insert(header::ALLOW, names);
    }
    response
}

fn refused(refusal: Refusal) -> Response<Sent> {
    whole(refusal.status, "application/json", refusal.body.to_string().into())
}

fn said(value: &Value) -> Response<Sent> {
    whole(StatusCode::OK, "application/json", value.to_string().into())
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Sent> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    if !kind.is_empty() {
        content_type(&mut response, kind);
    }
    response
}

fn content_type(response: &mut Response<Sent>, kind: &'static str) {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
