//! Faults on demand: errors, stalls and cut connections, for all requests or for those with a header.
//!
//! Knows: which requests a fault affects. Knows nothing about how it is applied.

use super::refusal::Refusal;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The header that asks for a fault of one request.
pub(crate) const HEADER: &str = "x-roofcast-fault";
/// Longest stall, in seconds.
const LONGEST: f64 = 3600.0;

/// Fault of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// HTTP status with which it is refused, before the engine receives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Seconds of delay before its answer begins; the engine is not affected.
    #[serde(default)]
    pub(crate) stall_seconds: f64,
    /// Number of tokens after which its connection is cut; a whole answer is cut at its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut_after_tokens: Option<u64>,
    /// Fraction of requests that are affected, evenly spread.
    #[serde(default = "all")]
    pub(crate) share: f64,
}

fn all() -> f64 {
    1.0
}

impl Fault {
    /// Reads a fault; the error names the accepted forms.
    pub(crate) fn parse(text: &str) -> Result<Fault, String> {
        let accepted = "a fault as {\"status\": 503}, {\"stall_seconds\": 2} or {\"cut_after_tokens\": 5}, with a \"share\" up to 1";
        let fault: Fault = serde_json::from_str(text).map_err(|e| format!("{e}; accepted: {accepted}"))?;
        let status = fault.status.is_none_or(|status| (400..=599).contains(&status));
        let stall = (0.0..=LONGEST).contains(&fault.stall_seconds);
        if status && stall && (0.0..=1.0).contains(&fault.share) {
            return Ok(fault);
        }
        Err(format!("status 400 to 599, stall_seconds up to {LONGEST}, share 0 to 1; accepted: {accepted}"))
    }

    /// The refusal that the fault requests.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let status = StatusCode::from_u16(self.status?).ok()?;
        Some(Refusal::fault(status))
    }
}

/// The faults of one server.
#[derive(Debug)]
pub(crate) struct Faults {
    standing: Mutex<Option<Fault>>,
    /// Requests counted for a standing fault.
    seen: AtomicU64,
}

impl Faults {
    pub(crate) fn new(standing: Option<Fault>) -> Faults {
        Faults { standing: Mutex::new(standing), seen: AtomicU64::new(0) }
    }

    /// The fault for all requests.
    pub(crate) fn standing(&self) -> Option<Fault> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the standing fault and restarts the count.
    pub(crate) fn set(&self, fault: Option<Fault>) {
        self.seen.store(0, Ordering::Relaxed);
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The fault of the next request: by its header, else the standing one.
    pub(crate) fn next(&self, headers: &HeaderMap) -> Result<Option<Fault>, Refusal> {
        if let Some(given) = headers.get(HEADER) {
            let text = given.to_str().map_err(|_| Refusal::bad(format!("{HEADER} is no text.")))?;
            return Fault::parse(text).map(Some).map_err(|e| Refusal::bad(format!("{HEADER}: {e}")));
        }
        let Some(fault) = self.standing() else { return Ok(None) };
        let before = self.seen.fetch_add(1, Ordering::Relaxed) as f64;
        let met = ((before + 1.0) * fault.share).floor() > (before * fault.share).floor();
        Ok(met.then_some(fault))
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
