//! A server: the checks of a request, and the response of each route.
//!
//! Knows: headers and the order of checks. [`routes`] has the paths, [`generation`] sends requests to the engine,
//! [`control`] changes the server, [`sglang`] and [`llama_cpp`] have the answers that only those servers give. Knows
//! nothing about connections.

mod browser;
mod control;
mod description;
mod generation;
mod llama_cpp;
mod routes;
mod sglang;
mod tokens;

use super::adapters::Adapters;
use super::completion::Author;
use super::dialect::Dialect;
use super::faults::{Fault, Faults};
use super::group::Group;
use super::late;
use super::metrics::{Answering, Fixed, HttpCounts};
use super::pins::Pins;
use super::refusal::Refusal;
use super::replica::Latencies;
use super::response::{not_allowed, refused, said, text, whole};
use super::sleep::Sleep;
use super::stream::Sent;
use super::tokenizer::Tokenizer;
use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use roofcast::fleet::TransferPath;
use roofcast_http::guard::Guard;
use roofcast_http::{self as http, Unread, server};
use routes::{ADMIN, Action};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of vLLM whose API is imitated.
pub(crate) const VERSION: &str = "0.32.0";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Path prefixes that require the API key, even for unknown paths: vLLM's, and the emulator's own `/admin`.
const GUARDED: [&str; 5] = ["/v1", "/v2", "/inference", "/cohere", "/admin"];

/// Settings of one server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// API of the server.
    pub dialect: Dialect,
    /// Names by which clients may call the model.
    pub names: Vec<String>,
    /// Name of the model itself, as `/v1/models` gives it in `root`.
    pub root: String,
    /// Key that clients must send, if any.
    pub api_key: Option<String>,
    /// Limits beyond which new requests are refused: requests at an engine, and prompt tokens of requests that have no
    /// token yet.
    pub max_queued: [u64; 2],
    /// Most bytes of a request's body.
    pub most_body: usize,
    /// True if each answer has its request's `X-Request-Id`, or a fresh one.
    pub echo_request_id: bool,
    /// True if clients may ask for faults and pin gauges.
    pub allow_faults: bool,
    /// Fault that applies to all requests from the start.
    pub fault: Option<Fault>,
    /// True if clients may put the server to sleep.
    pub sleeps: bool,
    /// Adapters loaded at the start, each a name and a path; `None` if adapters are not served.
    pub adapters: Option<Vec<(String, String)>>,
    /// Path on which KV caches arrive from another instance; without one, transfers take no time.
    pub link: Option<TransferPath>,
    /// Tensor-parallel degree.
    pub tp: u64,
    /// Width of the model, which is the default length of an embedding.
    pub hidden: u64,
    /// Check of requests to administrative paths.
    pub guard: Guard,
    /// Fixed latencies at the start, if the engine has them.
    pub latencies: Option<Latencies>,
}

/// One server: its settings, engines and state.
#[derive(Debug)]
pub struct Service {
    settings: Settings,
    group: Group,
    /// Most tokens of a request, prompt and answer, that every engine accepts.
    max_model_len: u64,
    author: Author,
    fingerprint: Arc<str>,
    /// Start time in seconds since 1970.
    started: u64,
    faults: Faults,
    pins: Pins,
    sleep: Sleep,
    adapters: Adapters,
    /// Current fixed latencies, if the engine has them.
    latencies: Mutex<Option<Latencies>>,
    /// Number of requests in progress, as `/load` reports it.
    load: Arc<AtomicU64>,
    http: Arc<HttpCounts>,
}

type Answered = Result<Response<Sent>, Refusal>;

impl Service {
    /// Creates the server of the engines in `group`, with answers by `author`.
    pub fn new(settings: Settings, group: Group, author: Author) -> Service {
        let mark =
            settings.root.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let fingerprint = format!("vllm-{VERSION}-{mark:08x}").into();
        let faults = Faults::new(settings.fault.clone());
        let modules = settings.adapters.clone().unwrap_or_default();
        let adapters = Adapters::new(settings.names.clone(), &modules);
        let longest = group.engines().iter().map(|engine| engine.metrics().fixed().max_model_len).min();
        Service {
            max_model_len: longest.unwrap_or_default(),
            latencies: Mutex::new(settings.latencies),
            settings,
            group,
            author,
            fingerprint,
            started: now(),
            faults,
            pins: Pins::default(),
            sleep: Sleep::default(),
            adapters,
            load: Arc::default(),
            http: Arc::default(),
        }
    }

    fn tokenizer(&self) -> &dyn Tokenizer {
        &**self.author.tokenizer()
    }

    /// Warns on stderr, from tasks of the current runtime, while an engine's steps end late: clients then measure this
    /// machine instead of the forecast.
    pub fn warn_when_late(&self) {
        self.group.engines().iter().for_each(late::warn);
    }

    async fn route(&self, request: Request<Incoming>) -> Answered {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if path.starts_with(ADMIN) {
            if let Some(why) = self.settings.guard.refusal(&parts.headers) {
                return Err(Refusal::named(StatusCode::FORBIDDEN, "Forbidden", why.to_owned()));
            }
        } else if let Some(response) = browser::preflight(&parts.method, &parts.headers) {
            return Ok(response);
        }
        if parts.method != Method::OPTIONS && GUARDED.iter().any(|guarded| path.starts_with(guarded)) {
            self.authorize(&parts.headers)?;
        }
        let Some(route) = self.routes().find(|route| route.is_of(path)) else {
            return Err(Refusal::detail(StatusCode::NOT_FOUND));
        };
        if !route.methods.contains(&parts.method) {
            return Ok(not_allowed(route.methods, self.settings.dialect));
        }
        if self.settings.dialect == Dialect::Vllm && route.takes_json() && !is_json(&parts.headers) {
            return Err(Refusal::media_type());
        }
        self.act(route.action, &parts, body).await
    }

    async fn act(&self, action: Action, parts: &Parts, body: Incoming) -> Answered {
        let dialect = self.settings.dialect;
        let method = &parts.method;
        let query = parts.uri.query().unwrap_or_default();
        let body = match action {
            Action::Complete(endpoint) => return self.complete(endpoint, &parts.headers, body).await,
            _ if parts.method == Method::GET => Bytes::new(),
            _ => self.read(&parts.headers, body).await?,
        };
        match action {
            Action::Complete(_) => Err(Refusal::detail(StatusCode::NOT_FOUND)),
            Action::CountTokens => self.count_tokens(&body),
            Action::Description => Ok(said(&self.description())),
            Action::Metrics => Ok(self.metrics()),
            Action::Models if dialect == Dialect::LlamaCpp => Ok(said(&self.listed())),
            Action::Models => Ok(said(&self.models())),
            Action::Model => self.one_model(parts.uri.path()),
            Action::Tokenize if dialect == Dialect::LlamaCpp => self.llama_tokenize(&body),
            Action::Tokenize => self.tokenize(&body),
            Action::Detokenize => match dialect {
                Dialect::Vllm => self.detokenize(&body),
                Dialect::Sglang => Ok(said(&json!({ "text": self.detokenized(&body)? }))),
                Dialect::LlamaCpp => Ok(said(&json!({ "content": self.detokenized(&body)? }))),
            },
            Action::Health if self.is_dead() => Ok(whole(StatusCode::SERVICE_UNAVAILABLE, "", Bytes::new())),
            Action::Health if dialect == Dialect::LlamaCpp => Ok(said(&json!({ "status": "ok" }))),
            Action::Health => Ok(whole(StatusCode::OK, "", Bytes::new())),
            Action::Version => Ok(said(&json!({ "version": VERSION }))),
            Action::Load => Ok(said(&json!({ "server_load": self.load.load(Ordering::Relaxed) }))),
            Action::LoadAdapter => Ok(text(self.adapters.load(&body)?)),
            Action::UnloadAdapter => Ok(text(self.adapters.unload(&body)?)),
            Action::Sleep => self.fall_asleep(query).await,
            Action::WakeUp => Ok(self.wake_up(query)),
            Action::IsSleeping => Ok(said(&json!({ "is_sleeping": self.sleep.level().is_some() }))),
            Action::ModelInfo => Ok(said(&self.model_info())),
            Action::ServerInfo => Ok(said(&self.server_info())),
            Action::FlushCache => Ok(self.flush_cache()),
            Action::ResetPrefixCache => Ok(self.reset_prefix_cache()),
            Action::Props => Ok(said(&self.props())),
            Action::Slots => Ok(said(&self.slots())),
            Action::Fault => self.change_fault(method, &body),
            Action::Pins => self.pin(method, &body),
            Action::Clock => self.change_clock(method, &body),
            Action::Latencies => self.change_latencies(method, &body),
            Action::Replicas => self.change_replicas(method, &body),
        }
    }

    /// The request as HTTP metrics count it.
    fn answering(&self, request: &Request<Incoming>) -> Option<Answering> {
        let path = request.uri().path();
        let path = self.routes().find(|route| route.is_of(path)).map_or("none", |route| route.path);
        self.http.begin(path, request.method().as_str(), http::length(request.headers()).unwrap_or(0) as u64)
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(key) = &self.settings.api_key else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match given.and_then(|value| value.split_once(' ')) {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case("bearer") && same(given, key) => Ok(()),
            _ => Err(Refusal::unauthorized()),
        }
    }

    /// Reads the whole body, which may not exceed the limit.
    async fn read(&self, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Refusal> {
        let body_limit = self.settings.most_body;
        http::body(headers, body, body_limit).await.map_err(|unread| match unread {
            Unread::TooLarge => Refusal::too_large(body_limit),
            Unread::EndedEarly => Refusal::bad("The body ended early."),
            Unread::TooSlow => Refusal::bad("The body took too long."),
        })
    }

    /// The served name of the requested model, or of an adapter; the first name if the request has none. SGLang and
    /// llama.cpp accept any name.
    fn model(&self, asked: Option<&str>) -> Result<String, Refusal> {
        let names = &self.settings.names;
        let served_name = match asked {
            None | Some("") => names.first(),
            Some(asked) => names.iter().find(|name| *name == asked),
        };
        match (served_name, asked) {
            (Some(name), _) => Ok(name.clone()),
            (None, Some(asked)) if self.adapters.get(asked).is_some() => Ok(asked.to_owned()),
            (None, Some(asked)) if self.settings.dialect != Dialect::Vllm => Ok(asked.to_owned()),
            _ => Err(Refusal::model(asked.unwrap_or_default(), names)),
        }
    }

    fn models(&self) -> Value {
        let permission = |name: &str| {
            json!([{"id": format!("modelperm-{name}"), "object": "model_permission", "created": self.started,
                "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
                "group": null, "is_blocking": false}])
        };
        let vllm = self.settings.dialect == Dialect::Vllm;
        let card = |name: &str, root: &str, parent: Option<&String>, longest: Option<u64>| {
            let owner = self.settings.dialect.owner();
            let mut card = json!({"id": name, "object": "model", "created": self.started, "owned_by": owner,
                "root": root, "parent": parent, "max_model_len": longest});
            if vllm {
                card["permission"] = permission(name);
            }
            card
        };
        let root = &self.settings.root;
        let longest = Some(self.max_model_len);
        let base = self.settings.names.first();
        let adapters = self.adapters.all();
        let bases = self.settings.names.iter().map(|name| card(name, root, None, longest));
        let adapters = adapters.iter().map(|one| card(&one.name, &one.path, base, None));
        json!({"object": "list", "data": bases.chain(adapters).collect::<Vec<_>>()})
    }

    /// The model that the end of `path` names, slashes included.
    fn one_model(&self, path: &str) -> Answered {
        let name = path.strip_prefix("/v1/models/").unwrap_or_default();
        let name = name.replace("%2F", "/").replace("%2f", "/");
        let models = self.models();
        let card =
            models["data"].as_array().and_then(|all| all.iter().find(|card| card["id"] == name.as_str()));
        card.map(said).ok_or_else(|| Refusal::model(&name, &self.settings.names))
    }

    /// vLLM's `/reset_prefix_cache`: empties the prefix caches of idle engines; it answers alike where it could not.
    fn reset_prefix_cache(&self) -> Response<Sent> {
        self.group.engines().iter().for_each(|engine| _ = engine.flush());
        whole(StatusCode::OK, "", Bytes::new())
    }

    /// Properties of the first engine that do not change.
    fn fixed(&self) -> Option<Fixed> {
        Some(self.group.engines().first()?.metrics().fixed().clone())
    }
}

impl server::Service for Service {
    type Sent = Sent;

    async fn answer(&self, request: Request<Incoming>) -> Response<Sent> {
        let given = request.headers().get(REQUEST_ID).cloned();
        let shares =
            request.headers().contains_key(header::ORIGIN) && !request.uri().path().starts_with(ADMIN);
        let id = self.settings.echo_request_id.then(|| given.or_else(fresh_id)).flatten();
        let anthropic = request.uri().path().starts_with("/v1/messages");
        let answering = self.answering(&request);
        let mut response = match self.route(request).await {
            Ok(response) => response,
            Err(refusal) if anthropic => {
                whole(refusal.status, "application/json", refusal.written_anthropic().to_string().into())
            }
            Err(refusal) => refused(&refusal, self.settings.dialect),
        };
        if shares {
            browser::share(&mut response);
        }
        if let Some(id) = id {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        if let Some(mut answering) = answering {
            let bytes = response.body().size_hint().exact().unwrap_or(0);
            answering.response = Some((format!("{}xx", response.status().as_u16() / 100), bytes));
            if let Either::Right(stream) = response.body_mut() {
                stream.answering = Some(answering);
            }
        }
        response
    }
}

/// True if two keys are equal. Hashes of the keys are compared, as in vLLM's `AuthenticationMiddleware`, so that the
/// time taken does not reveal how many characters agree.
fn same(given: &str, key: &str) -> bool {
    let [given, key] = [given, key].map(Sha256::digest);
    given.iter().zip(&key).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

/// True if the content type of a body is JSON; parameters after a semicolon are ignored.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().eq_ignore_ascii_case("application/json")
}

/// A new id for a request without one: a random UUID of version 4, without hyphens.
fn fresh_id() -> Option<HeaderValue> {
    let [high, low] = [(); 2].map(|()| RandomState::new().build_hasher().finish());
    let high = high & !0xf000 | 0x4000;
    let low = low >> 2 | 1 << 63;
    HeaderValue::from_str(&format!("{high:016x}{low:016x}")).ok()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
