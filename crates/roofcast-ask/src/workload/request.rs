//! One request: its lengths, and the identity of its tokens.
//!
//! Knows: the fields that routers and engines read. Knows nothing about how requests are drawn or served.

use roofcast_facts::units::Picoseconds;

/// The first segment that traffic does not use; engines use this segment and later ones.
pub const OWN_SEGMENTS: u32 = 1 << 31;

/// Consecutive tokens of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Segment of the tokens: a shared text, or a request's own output.
    pub segment: u32,
    /// Position of the first token in the segment.
    pub start: u64,
    /// Number of tokens in the run.
    pub length: u64,
}

/// One request as the workload offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Time at which the client wants to send the request.
    pub at: Picoseconds,
    /// Number of prompt tokens, at least 1.
    pub input_len: u32,
    /// Number of output tokens, at least 1.
    pub output_len: u32,
    /// The client's bound on output tokens, at least `output_len`: the only information on the request's end that an
    /// engine has. If `None`, the request asks for exactly `output_len` tokens and does not stop earlier
    /// (`ignore_eos`).
    pub max_tokens: Option<u32>,
    /// Priority; smaller is served first.
    pub priority: i32,
    /// Index of the class in the workload; 0 without classes.
    pub class: u32,
    /// Number of the LoRA adapter that the request names; 0 without one.
    pub adapter: u32,
    /// Number of the user in a closed loop, or of the session in conversations; else 0.
    pub user: u32,
    /// Identity of the prompt's tokens.
    pub prompt: Prompt,
}

/// Identity of a prompt's tokens for prefix caches: a token is identified by a segment and a position in that segment.
/// Traffic numbers its segments from 0; numbers from [`OWN_SEGMENTS`] on are reserved for engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// All tokens are unique to this request.
    Own,
    /// The first tokens are shared with other requests, the rest are unique to this request.
    Shared {
        /// Segment of the shared tokens.
        segment: u32,
        /// Number of shared tokens.
        length: u32,
    },
    /// The identity of every token, as runs.
    Runs(Box<[Run]>),
}
