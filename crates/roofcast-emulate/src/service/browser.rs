//! Rights of pages of other sites: they may send requests, as in vLLM, but never administer.
//!
//! Knows: CORS as starlette's middleware implements it with vLLM's defaults: every origin, method and header, without
//! credentials (`--allowed-origins` and related flags of `entrypoints/openai/cli_args.py` of vLLM 0.32).

use super::super::response::whole;
use super::super::stream::Sent;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};

/// Methods that starlette lists in a preflight response.
const METHODS: HeaderValue = HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
const EVERYONE: HeaderValue = HeaderValue::from_static("*");
/// Seconds for which a browser may cache a preflight response.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The response to a CORS preflight request; `None` for any other request.
pub(super) fn preflight(method: &Method, headers: &HeaderMap) -> Option<Response<Sent>> {
    let asks =
        headers.contains_key(header::ORIGIN) && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if *method != Method::OPTIONS || !asks {
        return None;
    }
    let mut response = whole(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"OK"));
    let answer_headers = response.headers_mut();
    answer_headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    answer_headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer_headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    Some(response)
}

/// Allows the page that sent the request to read the response.
pub(super) fn share(response: &mut Response<Sent>) {
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, EVERYONE);
}
