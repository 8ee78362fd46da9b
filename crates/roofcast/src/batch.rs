//! What one forward pass computes: sequences, their new tokens and their contexts.
//!
//! Knows: how a batch is shared by replicas and ranks. Knows nothing about models or time.

/// What one forward pass computes: groups of equal sequences, over the whole deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The groups.
    pub groups: Vec<Sequences>,
}

/// Equal sequences of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    /// How many.
    pub count: u64,
    /// Tokens that each computes.
    pub new: u64,
    /// Tokens that each has then, the new ones among them.
    pub context: u64,
    /// Rows of each that are sampled: one where a prompt ends or a token is decoded, all that verify drafts.
    pub sampled: u64,
    /// What they compute.
    pub phase: Phase,
}

/// Tokens that decoding sequences attend to in a step, summed over the sequences; or by how many these sums grow a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen<'a> {
    /// In operators that see the whole context.
    pub all: u64,
    /// In operators with a window, for each of the model's `reaches`.
    pub within: &'a [u64],
}

/// What a sequence computes in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Tokens of its prompt.
    Prompt,
    /// The token after its last one, with drafts behind it where there are some.
    Decode,
}

impl Sequences {
    /// `count` sequences that each compute the last of `context` tokens.
    pub fn decode(count: u64, context: u64) -> Sequences {
        Sequences { count, new: 1, context: context.max(1), sampled: 1, phase: Phase::Decode }
    }

    /// A piece of `new` tokens at the end of `context` tokens of a prompt; whether the prompt ends with it. One token behind
    /// others that are in the cache is computed like a decode.
    pub fn prompt(new: u64, context: u64, ends: bool) -> Sequences {
        let phase = if new == 1 && context > 1 { Phase::Decode } else { Phase::Prompt };
        Sequences { count: 1, new, context, sampled: u64::from(ends), phase }
    }

    /// A sequence that verifies `new` − 1 drafts at the end of `context` tokens.
    pub fn verify(new: u64, context: u64) -> Sequences {
        Sequences { count: 1, new, context, sampled: new, phase: Phase::Decode }
    }

    /// Whether they compute tokens of prompts.
    pub fn is_prompt(&self) -> bool {
        self.phase == Phase::Prompt
    }

    /// Tokens computed.
    pub fn tokens(&self) -> u64 {
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

    /// The part that the busiest of `ranks` gets.
    pub fn local(&self, ranks: u64) -> Batch {
        let share = |s: &Sequences| Sequences { count: s.count.div_ceil(ranks), ..*s };
        Batch { groups: self.groups.iter().map(share).collect() }
    }

    /// Tokens computed.
    pub fn tokens(&self) -> u64 {
        self.groups.iter().map(Sequences::tokens).fold(0, u64::saturating_add)
    }

    /// Sequences.
    pub fn sequences(&self) -> u64 {
        self.groups.iter().map(|s| s.count).fold(0, u64::saturating_add)
    }
}
