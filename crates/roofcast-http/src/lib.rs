//! The HTTP/1.1 server of the verbs that serve: connections, size limits, bodies.
//!
//! Knows: sockets, time limits, sizes. Knows nothing about the content of requests.

pub mod guard;
mod patient;
pub mod server;
pub mod tls;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use std::time::Duration;

/// Timeout for receiving a body.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Reasons why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The body is larger than accepted.
    TooLarge,
    /// The connection ended before the body did.
    EndedEarly,
    /// The body took longer than [`BODY_TIME`].
    TooSlow,
}

/// Length of a body in bytes as its headers state it.
pub fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
}

/// Reads the whole body, of at most `most` bytes.
pub async fn body(headers: &HeaderMap, body: Incoming, most: usize) -> Result<Bytes, Unread> {
    if length(headers).is_some_and(|length| length > most) {
        return Err(Unread::TooLarge);
    }
    match tokio::time::timeout(BODY_TIME, Limited::new(body, most).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(Unread::TooLarge),
        Ok(Err(_)) => Err(Unread::EndedEarly),
        Err(_) => Err(Unread::TooSlow),
    }
}
