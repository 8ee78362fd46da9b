//! Traversal of a sequence of runs of token contents, token by token or page by page.
//!
//! Knows: one position in the sequence. Knows nothing about blocks or requests.

use crate::kv_cache::prefix::Content;
use roofcast_ask::workload::request::Run;

/// Position in a sequence of runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    pub(crate) run: usize,
    pub(crate) offset: u64,
}

impl Cursor {
    /// Returns the rest of the current run or, at its end, the next run; `None` at the end of the sequence.
    pub(crate) fn rest(&mut self, runs: &[Run]) -> Option<Run> {
        while let Some(run) = runs.get(self.run) {
            if self.offset < run.length {
                let start = run.start + self.offset;
                let length = run.length - self.offset;
                return Some(Run { segment: run.segment, start, length });
            }
            *self = Cursor { run: self.run + 1, offset: 0 };
        }
        None
    }

    /// Passes the next `length` tokens to `each`, run by run, and moves past them.
    pub(crate) fn take(&mut self, runs: &[Run], length: u64, mut each: impl FnMut(Run)) {
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

    /// Number of tokens, at most `most`, that are equal in `runs` from this position on and in `same` from `from` on.
    pub(crate) fn common(mut self, runs: &[Run], (same, mut from): (&[Run], Cursor), most: u64) -> u64 {
        let mut length = 0;
        while length < most
            && let Some((ours, theirs)) = from.rest(same).zip(self.rest(runs))
        {
            if (ours.segment, ours.start) != (theirs.segment, theirs.start) {
                break;
            }
            let common = ours.length.min(theirs.length).min(most - length);
            from.offset += common;
            self.offset += common;
            length += common;
        }
        length
    }

    /// Number of tokens, in whole pages and at most `most`, that are equal in `runs` from this position on and in
    /// `same` from its beginning on; moves past them.
    pub(crate) fn pass_common(&mut self, same: &[Run], runs: &[Run], most: u64, page: u64) -> u64 {
        let mut length = self.common(runs, (same, Cursor::default()), most);
        length -= length % page;
        self.take(runs, length, |_| {});
        length
    }

    /// Content of the next page; the position does not move.
    pub(crate) fn page(mut self, runs: &[Run], page: u64) -> Content {
        let mut content = Content::START;
        self.take(runs, page, |run| content = content.then(run));
        content
    }
}
