//! Parts of an answer, which APIs send as blocks or items of their own.

use super::Completion;
use std::ops::Range;

/// Part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// Number of the part in the answer.
    pub(crate) number: usize,
    pub(crate) kind: PartKind<'a>,
    pub(crate) tokens: Range<usize>,
}

/// Kind of a part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind<'a> {
    Thinking,
    Text,
    /// A call of the tool of this name, whose arguments are the part's text.
    Call(&'a str),
}

impl Completion {
    /// The parts of the answer, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let token_count = self.tokens.len();
        let thinking = (self.thoughts > 0).then_some((PartKind::Thinking, 0));
        let text = (self.calls.is_empty() && (self.thoughts < token_count || token_count == 0))
            .then_some((PartKind::Text, self.thoughts));
        let calls = self.calls.iter().map(|call| (PartKind::Call(&call.name), call.first));
        let starts = thinking.into_iter().chain(text).chain(calls);
        let ends = starts.clone().skip(1).map(|(_, from)| from).chain([token_count]);
        let parts = starts.zip(ends).enumerate();
        parts.map(|(number, ((kind, from), to))| Part { number, kind, tokens: from..to })
    }
}
