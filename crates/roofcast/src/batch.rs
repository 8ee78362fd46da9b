//! A batch: the sequences of one forward pass, their new tokens and their contexts.
//!
//! Knows: how a batch is divided over replicas and ranks. Knows nothing about models or time.

/// Work of one forward pass: groups of equal sequences, over the whole deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The groups.
    pub groups: Vec<Sequences>,
}

/// Equal sequences of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    /// Number of sequences.
    pub count: u64,
    /// New tokens of each sequence.
    pub new: u64,
    /// Context of each sequence in tokens, new ones included.
    pub context: u64,
    /// Rows per sequence that are sampled: one where a prompt ends or a token is decoded, all rows that verify
    /// drafts.
    pub sampled: u64,
    /// Phase of the sequences.
    pub phase: Phase,
}

/// Tokens that decoding sequences attend to in a step, summed over the sequences; or the growth of these sums per
/// step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen<'a> {
    /// Tokens seen by operators with full attention.
    pub all: u64,
    /// Tokens seen by operators with a sliding window, for each of the model's `reaches`.
    pub within: &'a [u64],
}

/// Phase of a sequence in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Prefill of prompt tokens.
    Prompt,
    /// Decode of the next token, with drafts to verify if there are any.
    Decode,
}

impl Sequences {
    /// `count` sequences that each compute the last of `context` tokens.
    pub(crate) fn decode(count: u64, context: u64) -> Sequences {
        Sequences { count, new: 1, context: context.max(1), sampled: 1, phase: Phase::Decode }
    }

    /// A chunk of `new` tokens at the end of `context` tokens of a prompt; `ends` is true for the prompt's last
    /// chunk. One token after cached ones is computed like a decode.
    pub(crate) fn prompt(new: u64, context: u64, ends: bool) -> Sequences {
        let phase = if new == 1 && context > 1 { Phase::Decode } else { Phase::Prompt };
        Sequences { count: 1, new, context, sampled: u64::from(ends), phase }
    }

    /// A sequence that verifies `new` − 1 drafts at the end of `context` tokens.
    pub(crate) fn verify(new: u64, context: u64) -> Sequences {
        Sequences { count: 1, new, context, sampled: new, phase: Phase::Decode }
    }

    /// True if the sequences compute prompt tokens.
    pub(crate) fn is_prompt(&self) -> bool {
        self.phase == Phase::Prompt
    }

    /// Tokens computed by all sequences.
    pub(crate) fn tokens(&self) -> u64 {
        self.count.saturating_mul(self.new)
    }
}

impl Batch {
    /// `count` sequences that each compute the last of `context` tokens.
    pub fn decode(count: u64, context: u64) -> Batch {
        Batch { groups: vec![Sequences::decode(count, context)] }
    }

    /// `count` prompts of `tokens`.
    pub fn prefill(count: u64, tokens: u64) -> Batch {
        Batch { groups: vec![Sequences { count, ..Sequences::prompt(tokens, tokens, true) }] }
    }

    /// The part of the batch on the busiest of `ranks`.
    pub(crate) fn local(&self, ranks: u64) -> Batch {
        let share = |s: &Sequences| Sequences { count: s.count.div_ceil(ranks), ..*s };
        Batch { groups: self.groups.iter().map(share).collect() }
    }
}
