//! Blocks that the current step allocates.
//!
//! Knows: the blocks as ranges. Knows nothing about requests.

use crate::kv_cache::spans::{Spans, overlap};
use std::ops::Range;

/// Blocks allocated in the current step.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken(Vec<Range<u32>>);

impl Taken {
    /// Begins a new step.
    pub(super) fn begin(&mut self) {
        self.0.clear();
    }

    /// Adds the blocks of a list from index `from` on.
    pub(super) fn extend(&mut self, blocks: &Spans, from: usize) {
        self.0.extend(blocks.parts(from..blocks.len()).map(|(_, blocks)| blocks));
    }

    /// True if the current step allocates any of the blocks.
    pub(super) fn has(&self, blocks: &Spans) -> bool {
        self.0.iter().any(|taken| blocks.ranges().any(|blocks| overlap(taken, &blocks)))
    }
}
