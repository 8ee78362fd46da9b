//! A request: its parameters and its progress.
//!
//! Knows: the fields that decisions read and results change. Knows nothing about the queue or the batch.

use super::tree::{Node, ROOT};
use crate::kv_cache::prefix::Content;
use roofcast_ask::workload::request::Run;
use std::sync::Arc;

/// A request as it arrives at the scheduler.
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// Tokens of the prompt, as runs of segments.
    pub prompt: Box<[Run]>,
    /// Segment of the generated tokens, which are numbered from 0.
    pub output_segment: u32,
    /// The generated tokens themselves, if they are real tokens that a later prompt may repeat; `None` if they are only
    /// numbered.
    pub output_tokens: Option<Arc<[u32]>>,
    /// The client's bound on generated tokens, which estimates use.
    pub max_new_tokens: u64,
    /// Number of generated tokens; if it is below the client's bound, the last one is an end token.
    pub output_len: u64,
    /// True if the request generates up to its bound and declares that.
    pub ignore_eos: bool,
    /// Priority for `enable_priority_scheduling`; requests without a priority are last.
    pub priority: Option<i64>,
}

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RequestPhase {
    /// The request waits in the queue.
    #[default]
    Waiting,
    /// The request computes its prompt.
    Extending,
    /// The request decodes in the running batch.
    Running,
    /// The request skips decodes because the result in flight holds its last token.
    Leaving,
    /// The request has all its tokens, or was aborted.
    Finished,
}

#[derive(Debug, Clone)]
pub(super) struct RequestState {
    pub(super) prompt: Box<[Run]>,
    /// Content of the prompt's first page; `None` without a radix tree or without a whole page.
    pub(super) first_page: Option<Content>,
    pub(super) input: u64,
    pub(super) output_segment: u32,
    pub(super) output_tokens: Option<Arc<[u32]>>,
    pub(super) bound: u64,
    pub(super) output: u64,
    pub(super) ignore_eos: bool,
    pub(super) priority: i64,
    pub(super) phase: RequestPhase,
    /// Number of the request's last entry into the queue; larger is later.
    pub(super) entered: u64,
    /// Number of tokens found on the device by the last look-up.
    pub(super) found: u64,
    /// Number of the following tokens that are only on the host, and the node at which they end.
    pub(super) host_hit: u64,
    pub(super) host_end: Node,
    /// Number of tokens of the request when it was last a candidate or decoded in a mixed batch; preemption for its
    /// sake counts these tokens.
    pub(super) filled: u64,
    /// Number of generated tokens whose results have arrived; for a running request, this number when it started to run
    /// ([`Running`]).
    pub(super) generated: u64,
    /// Number of tokens in the KV cache; for a running request, this number when it started to run.
    pub(super) tokens: u64,
    /// Number of cached tokens of the tree that the request locks, and the node at which they end.
    pub(super) shared: u64,
    pub(super) node: Node,
    /// Number of tokens that the request has inserted into the tree since its admission.
    pub(super) inserted: u64,
    /// True if the prompt is complete and the result of its last chunk is in flight.
    pub(super) samples: bool,
}

impl RequestState {
    /// State of a request on arrival; `lowest` is the priority of requests without one.
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
