//! One request: its lengths, and the identity of its tokens.
//!
//! Knows nothing about how requests are drawn or served.

use crate::units::Picoseconds;

/// The first segment that traffic never uses.
pub const OWN_SEGMENTS: u32 = 1 << 31;

/// A run of consecutive tokens of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Source of the tokens: a shared text, or a request's own output.
    pub segment: u32,
    /// Position of the first token in the segment.
    pub start: u64,
    /// Number of tokens.
    pub length: u64,
}

/// One request as the workload offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Time at which the request is due.
    pub at: Picoseconds,
    /// Prompt tokens, at least 1.
    pub input_len: u32,
    /// Output tokens, at least 1.
    pub output_len: u32,
    /// The client's bound on output tokens, at least `output_len`: all that an engine knows of the request's end. If
    /// absent, the request asks for exactly `output_len` tokens and does not stop earlier (`ignore_eos`).
    pub max_tokens: Option<u32>,
    /// Priority; smaller is served first.
    pub priority: i32,
    /// User of a closed loop, session of a conversation, else 0.
    pub user: u32,
    /// Identity of the prompt's tokens.
    pub prompt: Prompt,
}

/// Identity of a prompt's tokens, as far as prefix caches care: a token is a segment and a position in it. Traffic
/// numbers its segments from 0; numbers from [`OWN_SEGMENTS`] on are reserved for the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// All tokens are unique to this request.
    Own,
    /// The first tokens are shared, the rest are unique to this request.
    Shared {
        /// Segment of the shared tokens.
        segment: u32,
        /// Number of shared tokens.
        length: u32,
    },
    /// Every token's identity, run by run.
    Runs(Box<[Run]>),
}
