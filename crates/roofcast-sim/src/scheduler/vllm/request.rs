//! State of a request in the scheduler.

use super::ScheduledRequest;
use super::blocks::Table;
use crate::kv_cache::cursor::Cursor;
use crate::kv_cache::names::Name;
use crate::kv_cache::offload::Chunks;
use crate::kv_cache::prefix::{Tokens, push_output};
use crate::kv_cache::spans::Spans;
use std::ops::Range;
use std::sync::Arc;

/// A request from its arrival until it is forgotten.
#[derive(Debug, Clone)]
pub(super) struct RequestState {
    /// Number of the request in order of arrival.
    pub(super) number: u64,
    pub(super) tokens: Tokens,
    pub(super) own_from: u64,
    pub(super) prompt_len: u64,
    pub(super) output_len: u64,
    pub(super) priority: i64,
    /// Number of prompt tokens whose KV cache came from another instance.
    pub(super) transferred: u64,
    /// LoRA adapter of the request; 0 without one.
    pub(super) adapter: u32,
    pub(super) output_segment: u32,
    pub(super) output_tokens: Option<Arc<[u32]>>,
    /// Number of tokens whose keys and values are computed.
    pub(super) computed: u64,
    /// Number of tokens for which blocks are allocated; 0 if layers have windows, which free blocks.
    pub(super) covered: u64,
    /// Number of known tokens with which the next block's content can be published; 0 if it was not looked up.
    pub(super) published: u64,
    /// Number of delivered tokens.
    pub(super) generated: u64,
    /// Number of tokens that are sampled or drafted in flight, not yet delivered, and count as known (async
    /// scheduling).
    pub(super) placeholders: u64,
    /// Number of tokens in flight from before a preemption, which do not count any more (async scheduling).
    pub(super) stale: u64,
    /// Number of tokens drafted after the request's last token.
    pub(super) drafts: u64,
    /// Blocks of the request, one table for each group of layers.
    pub(super) tables: Vec<Table>,
    /// Contents of the first blocks, in each group of layers.
    pub(super) contents: Vec<Spans>,
    /// Position of the token behind the last block whose content has a name.
    pub(super) named: Cursor,
    pub(super) preempted: bool,
    /// Number of tokens that the last preemption dropped.
    pub(super) dropped: u64,
    /// True if the prompt, or the tokens that a preemption dropped, were incomplete after the request's last step.
    pub(super) in_prompt: bool,
    pub(super) finished: bool,
}

impl RequestState {
    /// True if the last token is sampled but not yet delivered (async scheduling).
    pub(super) fn is_done(&self) -> bool {
        self.placeholders > 0 && self.computed + 2 >= self.prompt_len + self.output_len + self.placeholders
    }

    /// Adds the next `count` output tokens to the known ones.
    pub(super) fn push_output(&mut self, count: u64) {
        if self.own_from == u64::MAX {
            let output = (self.output_segment, self.output_tokens.as_deref());
            push_output(&mut self.tokens, output, self.generated, count);
        }
        self.generated += count;
    }

    /// The request's chunks of `per` blocks each in a group of layers.
    pub(super) fn chunks(&self, per: usize, group: usize, indices: Range<u32>) -> Vec<Chunks> {
        let contents = &self.contents[group];
        if per == 1 {
            let parts = contents.parts(indices.start as usize..indices.end as usize);
            return parts.map(|(first, names)| Chunks { group, first: first as u32, names }).collect();
        }
        // The content of a chunk is that of its last block.
        let named = |first: u32| contents.get((first as usize + 1) * per - 1).map(|name| (first, name));
        let single = |(first, name): (u32, Name)| Chunks { group, first, names: name..name + 1 };
        indices.filter_map(named).map(single).collect()
    }

    /// Receives the tokens of `work`; tokens computed for rejected drafts are computed again.
    pub(super) fn deliver(&mut self, work: &ScheduledRequest) {
        let &ScheduledRequest { drafts, padding, accepted, proposed, .. } = work;
        let rejected = drafts + padding - accepted;
        if self.stale > 0 {
            self.stale -= 1 + drafts + padding;
            self.dropped -= rejected;
        } else {
            self.placeholders -= 1 + drafts + padding;
            self.computed -= rejected;
        }
        self.push_output(1 + accepted);
        if !self.preempted {
            self.drafts = proposed;
        }
    }

    /// Number of known tokens: prompt and delivered output.
    pub(super) fn known(&self) -> u64 {
        self.prompt_len + self.generated
    }
}
