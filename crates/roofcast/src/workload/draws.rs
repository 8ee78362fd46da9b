//! Random draws of a request: lengths, shared prefix, priority.
//!
//! Knows: a separate random stream for each purpose. Knows nothing about when requests are due.

use super::Workload;
use super::empirical::{LengthSide, Observed};
use super::length::Sampler;
use super::prefix::PrefixDraws;
use super::random::{Purpose, Stream, Weighted};
use super::request::{Prompt, Request};
use crate::units::Picoseconds;

/// Draws of a request's properties other than its time.
#[derive(Debug, Clone)]
pub(super) struct Draws {
    lengths: Lengths,
    input_stream: Stream,
    output_stream: Stream,
    prefixes: Option<PrefixDraws>,
    priorities: Option<Weighted>,
    priority_stream: Stream,
    max_tokens: Option<u32>,
}

#[derive(Debug, Clone)]
enum Lengths {
    Apart {
        input: Sampler,
        output: Sampler,
    },
    /// An observed pair of lengths, drawn from the stream of prompts.
    Together(Observed),
}

impl Draws {
    pub(super) fn new(workload: &Workload) -> Option<Draws> {
        let seed = workload.seed;
        let lengths = match (workload.input_len.source(), workload.output_len.source()) {
            (Some(input), Some(output)) if input.is(output) => Lengths::Together(input.observed.clone()?),
            _ => Lengths::Apart {
                input: workload.input_len.sampler(LengthSide::Input)?,
                output: workload.output_len.sampler(LengthSide::Output)?,
            },
        };
        let priorities = &workload.priorities;
        Some(Draws {
            lengths,
            input_stream: Stream::new(seed, Purpose::Input),
            output_stream: Stream::new(seed, Purpose::Output),
            prefixes: workload.prefix.as_ref().map(|prefix| PrefixDraws::new(prefix, seed)),
            priorities: (!priorities.is_empty()).then(|| Weighted::new(priorities.iter().copied())),
            priority_stream: Stream::new(seed, Purpose::Priority),
            max_tokens: workload.max_tokens.and_then(|tokens| u32::try_from(tokens).ok()),
        })
    }

    /// Number of prompt tokens and of output tokens, without the shared prefix.
    #[inline(always)]
    pub(super) fn lengths(&mut self) -> (u32, u32) {
        let (input, output) = match &mut self.lengths {
            Lengths::Apart { input, output } => {
                (input.draw(&mut self.input_stream), output.draw(&mut self.output_stream))
            }
            Lengths::Together(observed) => observed.draw_pair(&mut self.input_stream),
        };
        (input, output.min(self.max_tokens.unwrap_or(u32::MAX)))
    }

    /// The client's bound on output tokens; `None` if each request asks for exactly its output.
    pub(super) fn max_tokens(&self) -> Option<u32> {
        self.max_tokens
    }

    /// True if prompts share prefixes.
    pub(super) fn shares_prefixes(&self) -> bool {
        self.prefixes.is_some()
    }

    /// Segment and length of the shared prefix; `None` if the request has none.
    #[inline(always)]
    pub(super) fn prefix(&mut self) -> Option<(u32, u32)> {
        self.prefixes.as_mut().and_then(PrefixDraws::draw)
    }

    #[inline(always)]
    pub(super) fn priority(&mut self) -> i32 {
        self.priorities.as_ref().map_or(0, |choice| choice.draw(&mut self.priority_stream) as i32)
    }

    #[inline(always)]
    pub(super) fn request(&mut self, at: Picoseconds, user: u32) -> Request {
        let (own, output_len) = self.lengths();
        let (input_len, prompt) = match self.prefix() {
            Some((segment, length)) => (own + length, Prompt::Shared { segment, length }),
            None => (own, Prompt::Own),
        };
        let max_tokens = self.max_tokens;
        Request { at, input_len, output_len, max_tokens, priority: self.priority(), user, prompt }
    }
}
