//! Recorded sessions: their turns, the waits of each turn, and sub-agents.

use crate::workload::request::Run;
use roofcast_facts::units::Picoseconds;

/// A recorded session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Session {
    /// Start time: from the start of the trace, or, for a sub-agent, from the answer that spawns it.
    pub(crate) at: Picoseconds,
    /// Turns in order, at least one.
    pub(crate) turns: Vec<Turn>,
    /// True for a sub-agent, which starts when a turn of its parent spawns it.
    pub spawned: bool,
    /// Indices in the trace of sub-agents that start after the last answer; no turn waits for them.
    pub(crate) background: Vec<usize>,
}

/// A recorded turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    /// Time from the session's last answer to this turn, for tools or a person.
    pub(crate) wait: Picoseconds,
    /// Number of tokens in `text`, at least 1.
    pub(crate) input: u32,
    /// Number of output tokens, at least 1.
    pub(crate) output: u32,
    /// Tokens that the turn adds.
    pub(crate) text: Text,
    /// Indices in the trace of the sub-agents that start after the session's last answer and must end before this turn.
    pub(crate) spawns: Vec<usize>,
}

/// Tokens that a turn sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Text {
    /// New tokens after all earlier text of the session; without an identity, tokens that only this session has.
    Added(Option<Box<[Run]>>),
    /// The whole prompt, which replaces all earlier text.
    Whole(Box<[Run]>),
}
