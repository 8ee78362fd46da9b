//! Sessions as recorded: turns, what they wait for, and sub-agents.

use crate::units::Picoseconds;
use crate::workload::request::Run;

/// A session as recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Session {
    /// Start time: of a session in the trace, of a sub-agent after the answer that spawns it.
    pub at: Picoseconds,
    /// Turns in order, at least one.
    pub turns: Vec<Turn>,
    /// True for sub-agents, which start when a turn spawns them.
    pub spawned: bool,
    /// Sub-agents that start after the last answer; nothing waits for them.
    pub background: Vec<usize>,
}

/// A turn as recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Time between the session's last answer and this turn: tools, or a person.
    pub wait: Picoseconds,
    /// Tokens of `text`, at least 1.
    pub input: u32,
    /// Output tokens, at least 1.
    pub output: u32,
    /// Tokens that the turn adds.
    pub text: Text,
    /// Sub-agents that start after the session's last answer and must end before this turn, by their index in the trace.
    pub spawns: Vec<usize>,
}

/// Tokens of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Text {
    /// Tokens after everything said so far; without an identity, tokens of the session alone.
    Added(Option<Box<[Run]>>),
    /// The whole prompt, whatever was said before.
    Whole(Box<[Run]>),
}
