//! An HTTP/1.1 server, for the verbs that are one: connections, bounds on what is sent, bodies.
//!
//! Knows: sockets, time limits, sizes. Knows nothing about what is asked.

pub(crate) mod guard;
mod patient;
pub(crate) mod server;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use std::time::Duration;

/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is larger than what is accepted.
    TooLarge,
    /// Its connection ended before it did.
    EndedEarly,
    /// It took too long.
    TooSlow,
}

/// The length that the headers tell of a body.
pub(crate) fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
}

/// The whole body, of at most `most` bytes.
pub(crate) async fn body(headers: &HeaderMap, body: Incoming, most: usize) -> Result<Bytes, Unread> {
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
