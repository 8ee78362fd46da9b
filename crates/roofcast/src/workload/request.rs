//! One request: its lengths, and what its tokens are.
//!
//! Knows nothing about how requests are drawn or served.

use crate::units::Picoseconds;

/// The first segment that traffic never uses.
pub const OWN_SEGMENTS: u32 = 1 << 31;

/// A run of consecutive tokens of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Where the tokens come from: a shared text, or a request's own output.
    pub segment: u32,
    /// Position of the first.
    pub start: u64,
    /// How many.
    pub length: u64,
}

/// One request as the workload offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// When it is due.
    pub at: Picoseconds,
    /// Prompt tokens, at least 1.
    pub input_len: u32,
    /// Tokens that it generates, at least 1.
    pub output_len: u32,
    /// The client's bound on them, at least as many: what an engine knows of its end. Where absent it asks for as many as
    /// it generates, and to go on to there (`ignore_eos`).
    pub max_tokens: Option<u32>,
    /// Smaller goes first.
    pub priority: i32,
    /// In a closed loop its user, in a conversation its session, else 0.
    pub user: u32,
    /// What its tokens are.
    pub prompt: Prompt,
}

/// What a prompt's tokens are, as far as prefix caches care: a token is a segment and a position in it. Traffic numbers
/// its segments from 0; those from [`OWN_SEGMENTS`] on are left to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// No other request has any of them.
    Own,
    /// The first are shared, the rest are its own.
    Shared {
        /// Whose they are.
        segment: u32,
        /// How many.
        length: u32,
    },
    /// All of them, run by run.
    Runs(Box<[Run]>),
}
