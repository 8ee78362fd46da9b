//! Responses that are sent in one piece: JSON, text, refusals.

use super::dialect::Dialect;
use super::refusal::Refusal;
use super::stream::Sent;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde_json::Value;

/// A response with this body and content type; if `kind` is empty, without a content type.
pub(super) fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Sent> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    if !kind.is_empty() {
        content_type(&mut response, kind);
    }
    response
}

/// A JSON response.
pub(super) fn said(value: &Value) -> Response<Sent> {
    whole(StatusCode::OK, "application/json", value.to_string().into())
}

/// A plain-text response.
pub(super) fn text(text: impl Into<Bytes>) -> Response<Sent> {
    whole(StatusCode::OK, "text/plain; charset=utf-8", text.into())
}

/// The response to a refused request, in the form of the imitated server.
pub(super) fn refused(refusal: &Refusal, dialect: Dialect) -> Response<Sent> {
    whole(refusal.status, "application/json", refusal.written(dialect).to_string().into())
}

/// The response to a method that the path does not support.
pub(super) fn not_allowed(methods: &[Method], dialect: Dialect) -> Response<Sent> {
    let mut response = refused(&Refusal::detail(StatusCode::METHOD_NOT_ALLOWED), dialect);
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
        response.headers_mut().insert(header::ALLOW, names);
    }
    response
}

/// Sets the content type of a response.
pub(super) fn content_type(response: &mut Response<Sent>, kind: &'static str) {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
}
