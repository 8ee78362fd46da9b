//! Decision of one call of vLLM's scheduler.
//!
//! Knows: the data that the engine and conformance tests read. Knows nothing about how a decision is made.

use super::Transfers;

/// Index of a request in order of arrival; indices of forgotten requests are reused.
pub type RequestId = usize;

/// Decision of one call of [`super::Scheduler::schedule`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Requests with the number of tokens computed for each, running requests first.
    pub scheduled: Vec<(RequestId, u64)>,
    /// Requests scheduled for the first time.
    pub new: Vec<RequestId>,
    /// Requests scheduled again after a preemption.
    pub resumed: Vec<RequestId>,
    /// Preempted requests, in order.
    pub preempted: Vec<RequestId>,
    /// Requests with tokens found in the prefix cache at admission, each with the number of tokens.
    pub cached: Vec<(RequestId, u64)>,
    /// Work of each scheduled request, in the order of `scheduled`.
    pub work: Vec<ScheduledRequest>,
    /// Number of tokens of resumed requests that preemptions dropped and that are recomputed.
    pub(crate) recomputed: u64,
    /// Number of running requests with tokens left to compute that the step does not compute, and the sum of their
    /// computed tokens.
    pub(crate) paused: [u64; 2],
    /// Waiting requests that were skipped because other adapters were in use.
    pub(crate) without_slot: Vec<RequestId>,
    /// Copies to and from the host tier.
    pub transfers: Transfers,
}

/// Work of one request in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledRequest {
    /// The scheduled request.
    pub id: RequestId,
    /// Number of tokens computed.
    pub(crate) new: u64,
    /// Context at the end of the step in tokens.
    pub(crate) context: u64,
    /// True if the request samples a token.
    pub samples: bool,
    /// True if the last step that computed the request also sampled a token for it.
    pub(crate) decodes: bool,
    /// Number of drafts among the computed tokens.
    pub drafts: u64,
    /// Number of padding rows in place of drafts, for a request that has no drafts yet.
    pub(crate) padding: u64,
    /// Number of accepted drafts; the scheduler's driver sets this.
    pub accepted: u64,
    /// Number of drafts proposed after the sampled token; the scheduler's driver may lower this.
    pub proposed: u64,
}
