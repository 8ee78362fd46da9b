//! A batch: the sequences of one forward pass, their new tokens and their contexts.
//!
//! Knows: how a batch is divided over replicas and ranks. Knows nothing about models or time.

/// Work of one forward pass of the whole deployment, as groups of equal sequences.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Groups of sequences that have equal lengths.
    pub groups: Vec<Sequences>,
}

/// Group of equal sequences of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    /// Number of sequences.
    pub count: u64,
    /// Tokens that each sequence computes in this pass.
    pub new: u64,
    /// Context of each sequence in tokens, new tokens included.
    pub context: u64,
    /// Rows per sequence whose logits are sampled: one if a prompt ends or a token is decoded, every row if drafts
    /// are verified, otherwise none.
    pub sampled: u64,
    /// Phase of the sequences.
    pub phase: Phase,
}

/// Context tokens that attention reads in a decode step, summed over sequences; also used for the growth of these
/// sums per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen<'a> {
    /// Tokens read by full attention.
    pub all: u64,
    /// Tokens read by sliding-window attention, for each of the model's window lengths (`reaches`).
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
    /// Returns `count` sequences that each decode the last of `context` tokens.
    pub(crate) fn decode(count: u64, context: u64) -> Sequences {
        Sequences { count, new: 1, context: context.max(1), sampled: 1, phase: Phase::Decode }
    }

    /// Returns a prompt chunk of `new` tokens that ends at token `context`; `ends` is true for the prompt's last
    /// chunk. A chunk of one token after cached tokens is computed like a decode.
    pub fn prompt(new: u64, context: u64, ends: bool) -> Sequences {
        let phase = if new == 1 && context > 1 { Phase::Decode } else { Phase::Prompt };
        Sequences { count: 1, new, context, sampled: u64::from(ends), phase }
    }

    /// Returns a sequence that verifies `new` − 1 drafts and whose context, drafts included, is `context` tokens.
    pub fn verify(new: u64, context: u64) -> Sequences {
        Sequences { count: 1, new, context, sampled: new, phase: Phase::Decode }
    }

    /// True if the sequences compute prompt tokens.
    pub fn is_prompt(&self) -> bool {
        self.phase == Phase::Prompt
    }

    /// Tokens computed by all sequences.
    pub fn tokens(&self) -> u64 {
        self.count.saturating_mul(self.new)
    }
}

impl Batch {
    /// Returns a batch of `count` sequences that each decode the last of `context` tokens.
    pub fn decode(count: u64, context: u64) -> Batch {
        Batch { groups: vec![Sequences::decode(count, context)] }
    }

    /// Returns a batch of `count` sequences that each verify `drafts` drafts beside the token that they decode; `context` is
    /// the context without drafts.
    pub fn verify(count: u64, context: u64, drafts: u64) -> Batch {
        Batch { groups: vec![Sequences { count, ..Sequences::verify(1 + drafts, context.max(1) + drafts) }] }
    }

    /// Returns a batch of `count` whole prompts of `tokens` tokens.
    pub fn prefill(count: u64, tokens: u64) -> Batch {
        Batch { groups: vec![Sequences { count, ..Sequences::prompt(tokens, tokens, true) }] }
    }

    /// Part of the batch that the busiest of `ranks` data-parallel ranks computes.
    pub fn local(&self, ranks: u64) -> Batch {
        let share = |s: &Sequences| Sequences { count: s.count.div_ceil(ranks), ..*s };
        Batch { groups: self.groups.iter().map(share).collect() }
    }
}
