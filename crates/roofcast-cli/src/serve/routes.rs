//! Routes of the page: its files, and its questions.
//!
//! Knows: paths, methods, the order of checks, bounds on bodies, and the headers by which a browser restricts the page.
//! Knows nothing about connections.

use super::api::Api;
use super::question;
use super::work::Lines;
use crate::page::{COMMANDS, PAGE};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use roofcast_http::guard::Guard;
use roofcast_http::{self as http, Unread, server};
use serde_json::{Value, json};
use std::sync::Arc;

/// Most bytes of a question.
const MOST_QUESTION: usize = 1 << 20;
/// Most bytes of a file that was dropped on the page, or of its header.
const MOST_FILE: usize = 64 << 20;

/// Body type of every response.
pub(crate) type Sent = Either<Full<Bytes>, Lines>;

/// Headers by which a browser restricts the page: only the page's own script and style run, the page connects to this
/// server alone, and no other site can frame or read it.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
];

/// Handler of requests, with the page's files and the API.
pub(crate) struct Service {
    guard: Guard,
    api: Arc<Api>,
}

/// An error response, as JSON.
struct Refusal(StatusCode, Value);

impl Refusal {
    fn of(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal(status, json!({ "error": error.into() }))
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, question::refusal(&error))
    }
}

/// Ways to answer a question.
#[derive(Clone, Copy)]
enum Answer {
    /// Answer in one piece.
    Whole(fn(&Api, &[u8]) -> anyhow::Result<String>),
    /// Answer streamed in lines while work progresses.
    Follow(fn(&Api, &[u8]) -> anyhow::Result<Lines>),
}

impl server::Service for Service {
    type Sent = Sent;

    async fn answer(&self, request: Request<Incoming>) -> Response<Sent> {
        let mut response = match self.route(request).await {
            Ok(response) => response,
            Err(Refusal(status, error)) => {
                let mut response = whole("application/json", error.to_string());
                *response.status_mut() = status;
                response
            }
        };
        for (name, value) in HEADERS {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }
}

impl Service {
    pub(crate) fn new(guard: Guard, api: Api) -> Service {
        Service { guard, api: Arc::new(api) }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<Sent>, Refusal> {
        let (parts, body) = request.into_parts();
        if let Some(why) = self.guard.refusal(&parts.headers) {
            return Err(Refusal::of(StatusCode::FORBIDDEN, why));
        }
        let path = parts.uri.path();
        if let Some(response) = self.read(path) {
            return match parts.method {
                Method::GET | Method::HEAD => Ok(response),
                _ => Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "accepted: GET")),
            };
        }
        let (answer, kind, most) = asked(path, &parts.headers)
            .ok_or_else(|| Refusal::of(StatusCode::NOT_FOUND, format!("nothing is at {path}")))?;
        if parts.method != Method::POST {
            return Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "accepted: POST"));
        }
        let content_type =
            parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if content_type.split(';').next().map(str::trim) != Some(kind) {
            return Err(Refusal::of(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("accepted: {kind}")));
        }
        let body = http::body(&parts.headers, body, most).await.map_err(|unread| match unread {
            Unread::TooLarge => {
                Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {most} bytes"))
            }
            Unread::EndedEarly => Refusal::of(StatusCode::BAD_REQUEST, "the body ended early"),
            Unread::TooSlow => Refusal::of(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
        })?;
        let api = Arc::clone(&self.api);
        let work = move || match answer {
            Answer::Whole(answer) => answer(&api, &body).map(|text| whole("application/json", text)),
            Answer::Follow(answer) => answer(&api, &body).map(followed),
        };
        // Computation runs on a blocking thread, so that it never stalls connections; streamed work needs the runtime's
        // handle there.
        let runtime = tokio::runtime::Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            let _within = runtime.enter();
            work()
        });
        let lost = |_| Refusal::of(StatusCode::INTERNAL_SERVER_ERROR, "the answer was lost");
        Ok(done.await.map_err(lost)??)
    }

    /// The response to a GET of `path`; `None` if the path has none.
    fn read(&self, path: &str) -> Option<Response<Sent>> {
        match (path, PAGE) {
            ("/", Some(page)) => Some(whole("text/html; charset=utf-8", page.html)),
            ("/page.js", Some(page)) => Some(whole("text/javascript; charset=utf-8", page.script)),
            ("/page.css", Some(page)) => Some(whole("text/css; charset=utf-8", page.style)),
            ("/", None) => Some(whole("text/plain; charset=utf-8", no_page())),
            ("/api/catalog", _) => Some(whole("application/json", self.api.listing())),
            ("/api/accuracy", _) => Some(followed(self.api.accuracy())),
            _ => None,
        }
    }
}

/// The handler of questions at `path`, with the content type and the maximum size of their bodies.
fn asked(path: &str, headers: &HeaderMap) -> Option<(Answer, &'static str, usize)> {
    const JSON: &str = "application/json";
    const BYTES: &str = "application/octet-stream";
    let bytes = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == BYTES);
    Some(match path {
        "/api/limits" => (Answer::Whole(Api::limits), JSON, MOST_QUESTION),
        "/api/capacity" => (Answer::Whole(Api::capacity), JSON, MOST_QUESTION),
        "/api/limits-sweep" => (Answer::Follow(Api::limits_sweep), JSON, MOST_QUESTION),
        "/api/simulate-sweep" => (Answer::Follow(Api::simulate_sweep), JSON, MOST_QUESTION),
        "/api/simulate" => (Answer::Follow(Api::simulate), JSON, MOST_QUESTION),
        "/api/trace" => (Answer::Follow(Api::trace), JSON, MOST_QUESTION),
        "/api/plan" => (Answer::Follow(Api::plan), JSON, MOST_QUESTION),
        "/api/curves" => (Answer::Follow(Api::curves), JSON, MOST_QUESTION),
        "/api/measure" => (Answer::Follow(Api::measure), JSON, MOST_FILE),
        "/api/validate" => (Answer::Follow(Api::dropped_accuracy), JSON, MOST_FILE),
        "/api/models" if bytes => {
            (Answer::Whole(|api, body| api.gguf("dropped.gguf", body)), BYTES, MOST_FILE)
        }
        "/api/models" => (Answer::Whole(Api::model), JSON, MOST_FILE),
        _ => return None,
    })
}

/// How to get a build with the page.
pub(super) fn no_page() -> String {
    let [web, build] = COMMANDS;
    format!(
        "This build of roofcast has no page. Releases have it, and so has what these make in a checkout, with Node 20 or newer:\n\n  {web}\n  {build}\n\n\
         The questions that the page asks are answered all the same, under /api (docs/page.md).\n"
    )
}

fn whole(kind: &'static str, body: impl Into<Bytes>) -> Response<Sent> {
    typed(kind, Either::Left(Full::new(body.into())))
}

fn followed(lines: Lines) -> Response<Sent> {
    typed("application/x-ndjson", Either::Right(lines))
}

fn typed(kind: &'static str, body: Sent) -> Response<Sent> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
