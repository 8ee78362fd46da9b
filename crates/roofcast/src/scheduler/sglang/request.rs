//! A request: its parameters and its progress.
//!
//! Knows nothing about the queue or the batch.

use super::tree::{Node, ROOT};
use crate::kv_cache::prefix::Content;
use crate::workload::request::Run;
use std::sync::Arc;

/// A request as it arrives.
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// The tokens of its prompt.
    pub prompt: Box<[Run]>,
    /// The segment of its generated tokens, which are numbered from 0.
    pub output_segment: u32,
    /// The generated tokens themselves, if they are real ones that a later prompt may repeat token by token.
    pub output_tokens: Option<Arc<[u32]>>,
    /// The client's bound on generated tokens, which estimates use.
    pub max_new_tokens: u64,
    /// Number of generated tokens; if it is below the client's bound, the last one is an end token.
    pub output_len: u64,
    /// True if the request generates up to its bound, and says so.
    pub ignore_eos: bool,
    /// Priority for `enable_priority_scheduling`; requests without one come last.
    pub priority: Option<i64>,
}

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RequestPhase {
    /// Waits in the queue.
    #[default]
    Waiting,
    /// Computes its prompt.
    Extending,
    /// Decodes with the others.
    Running,
    /// Skips decodes because the result in flight is its last.
    Leaving,
    /// Has all its tokens, or was aborted.
    Finished,
}

#[derive(Debug, Clone)]
pub(super) struct RequestState {
    pub(super) prompt: Box<[Run]>,
    /// The content of its prompt's first page, if there is a tree and the prompt has a whole page.
    pub(super) first_page: Option<Content>,
    pub(super) input: u64,
    pub(super) output_segment: u32,
    pub(super) output_tokens: Option<Arc<[u32]>>,
    pub(super) bound: u64,
    pub(super) output: u64,
    pub(super) ignore_eos: bool,
    pub(super) priority: i64,
    pub(super) phase: RequestPhase,
    /// Number of its last entry into the queue; larger is later.
    pub(super) entered: u64,
    /// Tokens found on the device at the last look-up.
    pub(super) found: u64,
    /// Tokens found after them that are only on the host, and the node at which they end.
    pub(super) host_hit: u64,
    pub(super) host_end: Node,
    /// Tokens of the request when it was last a candidate or decoded together with prompts; preemption on its behalf
    /// counts these.
    pub(super) filled: u64,
    /// Generated tokens whose results have arrived; while it runs, the count at its start ([`Running`]).
    pub(super) generated: u64,
    /// Tokens in its cache; while it runs, the count at its start.
    pub(super) tokens: u64,
    /// Cached tokens that belong to the tree and are locked by the request, and the node at which they end.
    pub(super) shared: u64,
    pub(super) node: Node,
    /// Tokens that it has inserted into the tree since its admission.
    pub(super) inserted: u64,
    /// True if its prompt is complete and the result of its last chunk is in flight.
    pub(super) samples: bool,
}

impl RequestState {
    /// The state on arrival; `lowest` is the priority of requests without one.
    pub(super) fn new(arrival: NewRequest, first_page: Option<Content>, lowest: i64) -> RequestState {
        RequestState {
            first_page,
            input: arrival.prompt.iter().map(|run| run.length).sum(),
            prompt: arrival.prompt,
            output_segment: arrival.output_segment,
            output_tokens: arrival.output_tokens,
            bound: arrival.max_new_tokens,
            output: arrival.output_len.min(arrival.max_new_tokens),
            ignore_eos: arrival.ignore_eos,
            priority: arrival.priority.unwrap_or(lowest),
            phase: RequestPhase::Waiting,
            entered: 0,
            found: 0,
            host_hit: 0,
            host_end: ROOT,
            filled: 0,
            generated: 0,
            tokens: 0,
            shared: 0,
            node: ROOT,
            inserted: 0,
            samples: false,
        }
    }
}
