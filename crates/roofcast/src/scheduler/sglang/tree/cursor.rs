//! Going over a sequence of runs, token by token or page by page.
//!
//! Knows nothing about what the sequence is compared with.

use crate::kv_cache::prefix::Content;
use crate::workload::request::Run;

/// A place in a sequence of runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    pub(super) run: usize,
    pub(super) offset: u64,
}

impl Cursor {
    /// What is left of the run here, or the next one.
    pub(super) fn rest(&mut self, runs: &[Run]) -> Option<Run> {
        while let Some(run) = runs.get(self.run) {
            if self.offset < run.length {
                let (start, length) = (run.start + self.offset, run.length - self.offset);
                return Some(Run { segment: run.segment, start, length });
            }
            *self = Cursor { run: self.run + 1, offset: 0 };
        }
        None
    }

    /// The next `length` tokens, which the cursor passes.
    pub(super) fn take(&mut self, runs: &[Run], length: u64, mut each: impl FnMut(Run)) {
        let mut left = length;
        while left > 0
            && let Some(run) = self.rest(runs)
        {
            let length = run.length.min(left);
            each(Run { length, ..run });
            self.offset += length;
            left -= length;
        }
    }

    /// The content of the next page, which the cursor does not pass.
    pub(super) fn page(mut self, runs: &[Run], page: u64) -> Content {
        let mut content = Content::START;
        self.take(runs, page, |run| content = content.then(run));
        content
    }
}
