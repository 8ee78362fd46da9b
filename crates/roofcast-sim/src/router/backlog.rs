//! Tokens that replicas still have to prefill, as a router counts them that sent the prompts.
//!
//! Knows: for each replica, the prompts that it got and the uncached tokens of each when it was sent; prompts get their first
//! tokens in the order in which they were sent, so that the last ones are those without. Knows nothing about costs.

use std::collections::{BTreeMap, VecDeque};

/// A prompt that was sent to a replica.
#[derive(Debug, Clone, Copy)]
struct SentPrompt {
    /// All of its tokens.
    tokens: u64,
    /// Tokens that the replica's cache did not have.
    uncached: u64,
}

/// Prompts without a first token, by replica.
#[derive(Debug, Clone, Default)]
pub(super) struct Backlog {
    sent: BTreeMap<usize, VecDeque<SentPrompt>>,
}

impl Backlog {
    /// Adds a prompt of `tokens` tokens that was sent to `replica`, whose cache lacks `uncached` of them.
    pub(super) fn add(&mut self, replica: usize, tokens: u64, uncached: u64) {
        self.sent.entry(replica).or_default().push_back(SentPrompt { tokens, uncached });
    }

    /// Uncached tokens of the prompts on `replica` without a first token, which have `unanswered` tokens together.
    pub(super) fn uncached(&mut self, replica: usize, unanswered: u64) -> u64 {
        let Some(sent) = self.sent.get_mut(&replica) else { return 0 };
        let mut left: u64 = sent.iter().map(|prompt| prompt.tokens).sum();
        while let Some(first) = sent.front().filter(|first| left - first.tokens >= unanswered) {
            left -= first.tokens;
            sent.pop_front();
        }
        sent.iter().map(|prompt| prompt.uncached).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompts of 100, 50 and 30 tokens, of which 40, 50 and 10 are uncached: 100 in all, 60 once the first is answered, 10
    /// with the last alone, and none in the end.
    #[test]
    fn prompts_are_answered_in_order() {
        let mut backlog = Backlog::default();
        for (tokens, uncached) in [(100, 40), (50, 50), (30, 10)] {
            backlog.add(1, tokens, uncached);
        }
        assert_eq!([180, 80, 30, 0].map(|left| backlog.uncached(1, left)), [100, 60, 10, 0]);
        assert_eq!(backlog.uncached(0, 0), 0);
    }
}
