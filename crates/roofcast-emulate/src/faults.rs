//! Faults on demand: errors, stalls and cut connections, for all requests or for requests with a header.
//!
//! Knows: which requests a fault affects. Knows nothing about how a fault is applied.

use super::refusal::Refusal;
use clap::ValueEnum;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Request header that asks for a fault of this request.
pub(crate) const HEADER: &str = "x-roofcast-fault";
/// Longest stall, in seconds.
const LONGEST: f64 = 3600.0;

/// Description of a fault and of the requests that it affects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// HTTP status with which a request is refused, before the engine receives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Seconds of delay before the answer begins; the engine is not delayed.
    #[serde(default)]
    pub stall_seconds: f64,
    /// Number of tokens after which the connection is cut; an answer that is not streamed is cut at its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_after_tokens: Option<u64>,
    /// Kinds of refusal that are used in turn, instead of `status`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_types: Vec<FailureType>,
    /// Fraction of requests that are affected, evenly spread over the requests.
    #[serde(default = "all")]
    pub share: f64,
}

/// Failures by the names and with the statuses of llm-d-inference-sim (its `failures.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum FailureType {
    /// Status 429.
    RateLimit,
    /// Status 401.
    InvalidApiKey,
    /// Status 400, because the context is too long.
    ContextLength,
    /// Status 503.
    ServerError,
    /// Status 400.
    InvalidRequest,
    /// Status 404.
    ModelNotFound,
}

impl FailureType {
    fn status(self) -> u16 {
        match self {
            FailureType::RateLimit => 429,
            FailureType::InvalidApiKey => 401,
            FailureType::ContextLength | FailureType::InvalidRequest => 400,
            FailureType::ServerError => 503,
            FailureType::ModelNotFound => 404,
        }
    }
}

fn all() -> f64 {
    1.0
}

impl Fault {
    /// A fault by which a fraction of requests fails, with `types` in turn, or with every kind if `types` is empty.
    pub fn injected(share: f64, types: &[FailureType]) -> Fault {
        let types = if types.is_empty() { FailureType::value_variants() } else { types };
        Fault {
            status: None,
            stall_seconds: 0.0,
            cut_after_tokens: None,
            failure_types: types.to_vec(),
            share,
        }
    }

    /// The fault as it applies to affected request number `number`.
    fn nth(mut self, number: usize) -> Fault {
        if let Some(kind) = self.failure_types.get(number % self.failure_types.len().max(1)) {
            self.status = Some(kind.status());
        }
        self
    }

    /// Parses a fault from JSON; the error names the accepted forms.
    pub fn parse(text: &str) -> Result<Fault, String> {
        let accepted = "a fault as {\"status\": 503}, {\"stall_seconds\": 2} or {\"cut_after_tokens\": 5}, with a \"share\" up to 1";
        let fault: Fault = serde_json::from_str(text).map_err(|e| format!("{e}; accepted: {accepted}"))?;
        let status = fault.status.is_none_or(|status| (400..=599).contains(&status));
        let stall = (0.0..=LONGEST).contains(&fault.stall_seconds);
        if status && stall && (0.0..=1.0).contains(&fault.share) {
            return Ok(fault);
        }
        Err(format!("status 400 to 599, stall_seconds up to {LONGEST}, share 0 to 1; accepted: {accepted}"))
    }

    /// The refusal that the fault asks for, if any.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let status = StatusCode::from_u16(self.status?).ok()?;
        Some(Refusal::fault(status))
    }
}

/// The faults of one server, including the fault that applies to all requests.
#[derive(Debug)]
pub(crate) struct Faults {
    standing: Mutex<Option<Fault>>,
    /// Number of requests since the fault for all requests was set.
    seen: AtomicU64,
}

impl Faults {
    pub(crate) fn new(standing: Option<Fault>) -> Faults {
        Faults { standing: Mutex::new(standing), seen: AtomicU64::new(0) }
    }

    /// The fault that applies to all requests, if one is set.
    pub(crate) fn standing(&self) -> Option<Fault> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the fault that applies to all requests, and restarts the count of requests.
    pub(crate) fn set(&self, fault: Option<Fault>) {
        self.seen.store(0, Ordering::Relaxed);
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The fault of the next request: its header's, else the one for all requests.
    pub(crate) fn next(&self, headers: &HeaderMap) -> Result<Option<Fault>, Refusal> {
        if let Some(given) = headers.get(HEADER) {
            let text = given.to_str().map_err(|_| Refusal::bad(format!("{HEADER} is no text.")))?;
            return Fault::parse(text)
                .map(|fault| Some(fault.nth(0)))
                .map_err(|e| Refusal::bad(format!("{HEADER}: {e}")));
        }
        let Some(fault) = self.standing() else { return Ok(None) };
        let before = self.seen.fetch_add(1, Ordering::Relaxed) as f64;
        let met = |seen: f64| (seen * fault.share).floor();
        let number = met(before);
        Ok((met(before + 1.0) > number).then(|| fault.nth(number as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_met_evenly() {
        let faults = Faults::new(Some(Fault::parse(r#"{"status": 503, "share": 0.25}"#).unwrap()));
        let met = |_| faults.next(&HeaderMap::new()).unwrap().is_some();
        assert_eq!(
            (0..8).map(met).collect::<Vec<_>>(),
            [false, false, false, true, false, false, false, true]
        );
        faults.set(None);
        assert_eq!(faults.next(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn kinds_of_failures_come_one_after_the_other() {
        let faults = Faults::new(Some(Fault::injected(0.5, &[])));
        let statuses: Vec<u16> = (0..14)
            .filter_map(|_| faults.next(&HeaderMap::new()).unwrap())
            .filter_map(|f| f.status)
            .collect();
        assert_eq!(statuses, [429, 401, 400, 503, 400, 404, 429]);
        let missing_model = Fault::parse(r#"{"failure_types": ["model_not_found"], "share": 1}"#).unwrap();
        assert_eq!(
            Faults::new(Some(missing_model)).next(&HeaderMap::new()).unwrap().unwrap().status,
            Some(404)
        );
    }

    #[test]
    fn what_is_no_fault_says_what_is() {
        for wrong in
            ["", "{}}", "{\"status\": 200}", "{\"share\": 2}", "{\"stall_seconds\": -1}", "{\"stal\": 1}"]
        {
            assert!(Fault::parse(wrong).unwrap_err().contains("accepted"), "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, "nonsense".parse().unwrap());
        assert!(Faults::new(None).next(&headers).is_err());
    }
}
