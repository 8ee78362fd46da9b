//! What one call of the scheduler decides.
//!
//! Contains data only.

use super::Transfers;

/// Index of a request in order of arrival; indices of forgotten requests are reused.
pub(crate) type RequestId = usize;

/// Decision of one call of [`super::Scheduler::schedule`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Requests with their tokens, running ones first.
    pub scheduled: Vec<(RequestId, u64)>,
    /// Requests scheduled for the first time.
    pub new: Vec<RequestId>,
    /// Requests scheduled again after a preemption.
    pub resumed: Vec<RequestId>,
    /// Preempted requests, in order.
    pub preempted: Vec<RequestId>,
    /// Tokens found in the prefix cache at admission; only non-zero ones.
    pub cached: Vec<(RequestId, u64)>,
    /// Work of each scheduled request, in the order of `scheduled`.
    pub work: Vec<ScheduledRequest>,
    /// Tokens of resumed requests that preemptions dropped and that are computed again.
    pub recomputed: u64,
    /// Running requests with tokens left to compute that the step does not compute, and their computed tokens.
    pub paused: [u64; 2],
    /// Transfers to and from the host tier.
    pub transfers: Transfers,
}

/// Work of one request in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScheduledRequest {
    /// The request.
    pub id: RequestId,
    /// Tokens computed.
    pub new: u64,
    /// Context at the end of the step in tokens.
    pub context: u64,
    /// True if it samples a token.
    pub samples: bool,
    /// True if the step before it sampled one as well, or none since then computed the request.
    pub decodes: bool,
    /// Drafts among the new tokens.
    pub drafts: u64,
    /// Padding rows in place of drafts, for a request that has no drafts yet.
    pub padding: u64,
    /// Number of accepted drafts, set by the scheduler's driver.
    pub accepted: u64,
}
