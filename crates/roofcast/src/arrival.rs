//! A request in the form of an engine, and its sequence id.

use crate::clock::Ticks;

/// Index of a sequence in its engine.
pub(crate) type SequenceId = u32;

/// A request as it arrives at an engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    /// Number of the request in the run.
    pub number: u64,
    /// Time at which its client sent it.
    pub sent: Ticks,
    /// Time at which the engine received it.
    pub at: Ticks,
    /// Prompt tokens.
    pub input: u32,
    /// Output tokens.
    pub output: u32,
    /// The client's bound on output tokens, which is all that a scheduler knows of its end.
    pub max_tokens: u32,
    /// True if it generates up to its bound (`ignore_eos`).
    pub ignore_eos: bool,
    /// Sort key of the queue, smaller first; 0 for all in order of arrival.
    pub key: i64,
    /// The user that sent it.
    pub user: u32,
    /// Segment of its output's tokens, for prompts that repeat them.
    pub output_segment: u32,
}

/// A request that has all its tokens.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    /// The request as it arrived.
    pub arrival: Arrival,
    /// Time of its first token.
    pub first: Ticks,
    /// Number of its preemptions.
    pub preemptions: u32,
    /// Tokens of its prompt that were found in the prefix cache.
    pub cached: u64,
    /// Its id in its replica, if the replica keeps the cache for another one.
    pub id: SequenceId,
}
