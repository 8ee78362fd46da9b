//! What is left out of a fit at once, to judge it by rows that it has not seen.
//!
//! Knows: protocols, and which part of the rows a row belongs to in each. Groups lie within the parts of every protocol.

use crate::measurement::Measurement;
use serde::Serialize;

/// What is left out at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveOut {
    /// A source with a model, an accelerator, an engine and a weight format.
    Group,
    /// All rows of an accelerator.
    Accelerator,
    /// All rows of an engine on an accelerator.
    EngineAccelerator,
    /// All rows of a model.
    Model,
    /// All rows of a weight format on an accelerator, of all engines.
    AcceleratorFormat,
}

impl LeaveOut {
    /// All, the narrowest first.
    pub const ALL: [LeaveOut; 5] = [
        LeaveOut::Group,
        LeaveOut::EngineAccelerator,
        LeaveOut::Model,
        LeaveOut::AcceleratorFormat,
        LeaveOut::Accelerator,
    ];

    /// As in arguments.
    pub fn name(self) -> &'static str {
        match self {
            LeaveOut::Group => "group",
            LeaveOut::EngineAccelerator => "engine-accelerator",
            LeaveOut::Model => "model",
            LeaveOut::AcceleratorFormat => "accelerator-format",
            LeaveOut::Accelerator => "accelerator",
        }
    }

    /// In a sentence.
    pub fn words(self) -> &'static str {
        match self {
            LeaveOut::Group => "group",
            LeaveOut::EngineAccelerator => "engine on an accelerator",
            LeaveOut::Model => "model",
            LeaveOut::AcceleratorFormat => "weight format on an accelerator",
            LeaveOut::Accelerator => "accelerator",
        }
    }

    /// The part that `row` belongs to.
    pub(super) fn part(self, row: &Measurement) -> String {
        match self {
            LeaveOut::Group => row.group(),
            LeaveOut::EngineAccelerator => format!("{} | {}", row.engine, row.hardware),
            LeaveOut::Model => row.model.clone(),
            LeaveOut::AcceleratorFormat => format!("{} | {}", row.hardware, row.weights),
            LeaveOut::Accelerator => row.hardware.clone(),
        }
    }
}
