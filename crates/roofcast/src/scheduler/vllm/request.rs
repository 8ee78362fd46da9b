//! State of a request in the scheduler.

use super::blocks::Table;
use crate::kv_cache::prefix::{Content, Tokens};
use std::sync::Arc;

/// A request from its arrival until it is forgotten.
#[derive(Debug, Clone)]
pub(super) struct RequestState {
    /// Number in order of arrival.
    pub(super) number: u64,
    pub(super) tokens: Tokens,
    pub(super) own_from: u64,
    pub(super) prompt_len: u64,
    pub(super) output_len: u64,
    pub(super) priority: i64,
    /// Prompt tokens whose keys and values came from another instance.
    pub(super) transferred: u64,
    /// The LoRA adapter of the request; 0 is none.
    pub(super) adapter: u32,
    pub(super) output_segment: u32,
    pub(super) output_tokens: Option<Arc<[u32]>>,
    /// Tokens whose keys and values are computed.
    pub(super) computed: u64,
    /// Tokens delivered.
    pub(super) generated: u64,
    /// Tokens sampled but not yet delivered that still count (async scheduling), drafts in flight included.
    pub(super) placeholders: u64,
    /// Tokens in flight from before a preemption, which no longer count (async scheduling).
    pub(super) stale: u64,
    /// Tokens drafted to follow its last token.
    pub(super) drafts: u64,
    /// Its blocks, one table for each group.
    pub(super) tables: Vec<Table>,
    pub(super) contents: Vec<Content>,
    pub(super) preempted: bool,
    /// Tokens that its last preemption dropped.
    pub(super) dropped: u64,
    /// True if its prompt, or what a preemption dropped, was incomplete after its last step.
    pub(super) in_prompt: bool,
    pub(super) finished: bool,
}

impl RequestState {
    /// True if its last token is sampled and not yet delivered (async scheduling).
    pub(super) fn is_done(&self) -> bool {
        self.placeholders > 0 && self.computed + 2 >= self.prompt_len + self.output_len + self.placeholders
    }

    /// Tokens of the request: prompt and delivered output.
    pub(super) fn known(&self) -> u64 {
        self.prompt_len + self.generated
    }
}
