//! A request in the form in which an engine receives and returns it, and the index of its sequence.

use roofcast_facts::clock::Ticks;
use std::collections::BTreeSet;

/// Index of a sequence in its engine.
pub type SequenceId = u32;

/// A request as it arrives at an engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    /// Number of the request in the run.
    pub number: u64,
    /// Time at which the client sent the request.
    pub sent: Ticks,
    /// Time at which the engine received the request.
    pub at: Ticks,
    /// Number of prompt tokens.
    pub input: u32,
    /// Number of output tokens that the request generates.
    pub output: u32,
    /// The client's bound on output tokens. A scheduler plans with this bound, because it cannot know the output
    /// length.
    pub max_tokens: u32,
    /// True if the request generates up to `max_tokens` (`ignore_eos`).
    pub ignore_eos: bool,
    /// Sort key of the queue, smaller first; 0 for every request if the queue is in order of arrival.
    pub key: i64,
    /// Index of the request's class; 0 without classes.
    pub class: u32,
    /// LoRA adapter of the request; 0 without one.
    pub adapter: u32,
    /// Number of the user that sent the request.
    pub user: u32,
    /// Number of the segment that holds the output tokens, so that later prompts can repeat them.
    pub output_segment: u32,
}

/// LoRA adapters that the requests of a replica name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedAdapters {
    /// Adapters of running requests.
    pub running: BTreeSet<u32>,
    /// Adapters of waiting requests.
    pub waiting: BTreeSet<u32>,
    /// Most adapters whose requests run at one time; 0 if none are served.
    pub most: usize,
}

/// A request that has generated all its output tokens, or ended with an error.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    /// The request as it arrived.
    pub arrival: Arrival,
    /// Time of the first output token.
    pub first: Ticks,
    /// Number of times that the request was preempted.
    pub preemptions: u32,
    /// Number of prompt tokens that were found in the prefix cache.
    pub cached: u64,
    /// Sequence id in the replica that served the request, for a replica that keeps the KV cache until another one
    /// fetches it.
    pub id: SequenceId,
    /// True if the engine ended the request with an error.
    pub failed: bool,
}
