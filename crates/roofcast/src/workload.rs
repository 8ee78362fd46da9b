//! Traffic: when requests arrive and how long they are.
//!
//! Knows: the keys of `[workload]` and what they may hold. The distributions and their means, which a plan's arithmetic
//! takes, are in [`length`] and [`arrivals`]; [`traffic`] draws single requests.

pub mod arrivals;
pub mod length;
pub mod prediction;
mod random;
pub mod traffic;

pub use arrivals::Arrivals;
pub use length::{Length, LengthKind};
pub use traffic::{Prompt, Request, Traffic};

use crate::error::Result;
use serde::Deserialize;

/// How many requests a run has where nothing says so.
pub const DEFAULT_REQUESTS: u64 = 1000;

/// `[workload]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// How many requests a run has; [`DEFAULT_REQUESTS`] where absent.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Seed of every draw.
    #[serde(default)]
    pub seed: u64,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// Prompt tokens.
    pub input_len: Length,
    /// Generated tokens.
    pub output_len: Length,
}

impl Workload {
    /// Refuses what no traffic can be.
    pub fn check(&self, place: &str) -> Result<()> {
        self.input_len.check(place, "workload.input_len")?;
        self.output_len.check(place, "workload.output_len")?;
        self.arrivals.check(place)
    }
}
