//! A request: what it asks for, and how far it is.
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
    /// Its generated tokens themselves, where they are real ones that a later prompt may repeat token by token.
    pub output_tokens: Option<Arc<[u32]>>,
    /// The client's bound on generated tokens, which estimates use.
    pub max_new_tokens: u64,
    /// Tokens that it generates; where they are fewer than its bound, the last one ends it.
    pub output_len: u64,
    /// Whether it generates as many as its bound, and says so.
    pub ignore_eos: bool,
    /// What `enable_priority_scheduling` sorts by; where absent, last.
    pub priority: Option<i64>,
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// In the queue.
    #[default]
    Waiting,
    /// Its prompt is being computed.
    Extending,
    /// It decodes with the others.
    Running,
    /// It sat out because the result under way is its last.
    Leaving,
    /// It has all its tokens, or was aborted.
    Finished,
}

#[derive(Debug, Clone)]
pub(super) struct RequestState {
    pub(super) prompt: Box<[Run]>,
    /// The content of its prompt's first page, where there is a tree and the prompt has a whole page.
    pub(super) first_page: Option<Content>,
    pub(super) input: u64,
    pub(super) output_segment: u32,
    pub(super) output_tokens: Option<Arc<[u32]>>,
    pub(super) bound: u64,
    pub(super) output: u64,
    pub(super) ignore_eos: bool,
    pub(super) priority: i64,
    pub(super) phase: Phase,
    /// When it last entered the queue; larger is later.
    pub(super) entered: u64,
    /// Tokens that the last look at the cache found on the device.
    pub(super) found: u64,
    /// Those that it found behind them on the host alone, and where they end.
    pub(super) host_hit: u64,
    pub(super) host_end: Node,
    /// Tokens that it had when it was last a candidate or decoded beside prompts: what preemption for it counts.
    pub(super) filled: u64,
    /// Tokens generated whose results are there; while it runs, at its start ([`Running`]).
    pub(super) generated: u64,
    /// Tokens in its cache; while it runs, at its start.
    pub(super) tokens: u64,
    /// Of these, those that the tree has and it locks, and where they end.
    pub(super) shared: u64,
    pub(super) node: Node,
    /// Tokens that it has put into the tree since it was admitted.
    pub(super) inserted: u64,
    /// Whether its prompt is whole and the result of its last chunk is under way.
    pub(super) samples: bool,
}

impl RequestState {
    /// As it arrives; `lowest` is the priority of one without any.
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
            phase: Phase::Waiting,
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
