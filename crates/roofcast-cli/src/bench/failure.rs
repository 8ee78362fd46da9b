//! Reason why a request has no complete answer.

use roofcast::record::Outcome;
use std::time::Duration;

/// Failure of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Kind of the failure.
    pub(super) outcome: Outcome,
    /// Message of the failure.
    pub(super) message: String,
    /// Time after which the server says that the request may be sent again.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Failure {
        Failure { outcome, message: message.into(), retry_after: None }
    }
}

/// The first bytes of `bytes` as text, for a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..200).unwrap_or(bytes)).into_owned();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
