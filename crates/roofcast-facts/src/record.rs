//! One request's life, as a client sees it. The simulator, the emulator and the load generator all write records.
//!
//! Knows: times since the start of the run, token counts, and the outcome of the request, as one JSON object per line
//! or one row of [`csv`]. Knows nothing about where the times come from. `summary` aggregates a run's records.

pub mod csv;
mod reader;

pub use reader::{RecordFormat, Records};

use crate::error::{Error, Result};
use crate::units::Picoseconds;
use serde::{Deserialize, Serialize};

/// One request's life. Times are measured from the start of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Number of the request in order of the schedule.
    pub id: u64,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Number of prompt tokens.
    pub input_len: u64,
    /// Number of output tokens received.
    pub output_len: u64,
    /// Time at which the workload scheduled the request.
    #[serde(rename = "scheduled_ms")]
    pub scheduled: Picoseconds,
    /// Time at which the request was sent.
    #[serde(rename = "sent_ms")]
    pub sent: Picoseconds,
    /// Arrival time of the first content token.
    #[serde(rename = "first_token_ms", default, skip_serializing_if = "Option::is_none")]
    pub first_token: Option<Picoseconds>,
    /// Arrival time of the last token, or of the failure.
    #[serde(rename = "finished_ms")]
    pub finished: Picoseconds,
    /// Gaps between streamed chunks; empty if the run did not keep them.
    #[serde(rename = "itl_ms", default, skip_serializing_if = "Vec::is_empty")]
    pub itl: Vec<Picoseconds>,
    /// Number of prompt tokens found in the prefix cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Number of times that the request was preempted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub preemptions: u64,
    /// Number of the replica that served the request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replica: u64,
    /// Error message; `None` for a request without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All tokens arrived.
    Completed,
    /// The server refused the request because it is longer than the context or the KV cache.
    Refused,
    /// A queue limit or a rate limit rejected the request.
    Rejected,
    /// The run ended before the request did.
    Unfinished,
    /// The client cancelled the request, as configured.
    Cancelled,
    /// The client could not connect.
    Connect,
    /// No answer arrived within the timeout.
    Timeout,
    /// The server answered with an HTTP status other than success.
    HttpStatus,
    /// The server reported an error in its stream.
    StreamError,
    /// The server aborted the answer and reported that.
    Aborted,
    /// The answer ended without a token.
    Empty,
    /// The connection ended before the answer did.
    Disconnected,
    /// The answer violated the protocol.
    Malformed,
    /// The answer exceeded the client's size limits.
    TooLarge,
}

crate::named! { Outcome {
    Completed: "completed",
    Refused: "refused",
    Rejected: "rejected",
    Unfinished: "unfinished",
    Cancelled: "cancelled",
    Connect: "connect",
    Timeout: "timeout",
    HttpStatus: "http_status",
    StreamError: "stream_error",
    Aborted: "aborted",
    Empty: "empty",
    Disconnected: "disconnected",
    Malformed: "malformed",
    TooLarge: "too_large",
} }

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Record {
    /// TTFT: arrival of the first content token − send time.
    pub fn ttft(&self) -> Option<Picoseconds> {
        Some(Picoseconds(self.first_token?.0.saturating_sub(self.sent.0)))
    }

    /// E2EL: arrival of the last token − send time.
    pub fn e2el(&self) -> Picoseconds {
        Picoseconds(self.finished.0.saturating_sub(self.sent.0))
    }

    /// TPOT: (E2EL − TTFT)/(output tokens − 1); `None` for a single output token, and if all came at one time.
    pub fn tpot(&self) -> Option<Picoseconds> {
        let others = self.output_len.checked_sub(1).filter(|n| *n > 0)?;
        let after = self.e2el().0.saturating_sub(self.ttft()?.0);
        (after > 0).then_some(Picoseconds(after / others))
    }

    /// The record as a line of JSON, without the newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads one line of JSON; `place` names file and line in errors.
    pub fn from_line(place: &str, line: &str) -> Result<Record> {
        serde_json::from_str(line).map_err(|e| Error::Parse {
            place: place.into(),
            message: format!("{e}: expected a record such as {}", EXAMPLE),
        })
    }
}

const EXAMPLE: &str = r#"{"id":0,"outcome":"completed","input_len":10,"output_len":2,"scheduled_ms":0,"sent_ms":0,"first_token_ms":5,"finished_ms":7}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_and_its_metrics_are_vllms() {
        let record = Record::from_line("x:1", EXAMPLE).unwrap();
        assert_eq!(Record::from_line("x:1", &record.to_line()).unwrap(), record);
        // TTFT 5 − 0, E2EL 7, TPOT (7 − 5)/(2 − 1).
        let ms = |t: Picoseconds| t.ms();
        assert_eq!(
            (record.ttft().map(ms), record.tpot().map(ms), ms(record.e2el())),
            (Some(5.0), Some(2.0), 7.0)
        );
        let outcomes = [Outcome::Completed, Outcome::HttpStatus, Outcome::StreamError, Outcome::Aborted];
        for outcome in outcomes.into_iter().chain([Outcome::Empty, Outcome::TooLarge]) {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
        let wrong = Record::from_line("x:9", r#"{"id":0}"#).unwrap_err().to_string();
        assert!(wrong.contains("x:9") && wrong.contains("outcome"), "{wrong}");
    }
}
