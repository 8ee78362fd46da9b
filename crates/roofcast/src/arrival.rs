//! A request as it comes to an engine, and its number there.

use crate::clock::Ticks;

/// Index of a sequence in its engine.
pub type SequenceId = u32;

/// A request as it comes to an engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    /// Its number in the run.
    pub number: u64,
    /// When its client sent it.
    pub sent: Ticks,
    /// When the engine has it.
    pub at: Ticks,
    /// Prompt tokens.
    pub input: u32,
    /// Tokens that it generates.
    pub output: u32,
    /// The client's bound on them, which is all that a scheduler knows of its end.
    pub max_tokens: u32,
    /// Whether it goes on to its bound and says so.
    pub ignore_eos: bool,
    /// What the queue sorts by, smaller first; 0 for all where order is that of arrival.
    pub key: i64,
    /// The user that sent it.
    pub user: u32,
    /// What its output's tokens are, for prompts that repeat them.
    pub output_segment: u32,
}

/// A request that has all its tokens.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    /// As it came.
    pub arrival: Arrival,
    /// When its first token came.
    pub first: Ticks,
    /// How often it was preempted.
    pub preemptions: u32,
    /// Tokens of its prompt that were found in the prefix cache.
    pub cached: u64,
    /// Its name in its replica, where that keeps its cache for another.
    pub id: SequenceId,
}
