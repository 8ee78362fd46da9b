//! Events of single requests and copies, for a driver that reports each event when it happens.

use roofcast_facts::clock::Ticks;

/// Event of one request. Events are recorded in the order of the engine's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The request is admitted: its computation starts.
    Admitted {
        /// Number of the request.
        number: u64,
        /// Prompt tokens found in the prefix cache, on the device or in the host tier.
        cached: u64,
        /// Prompt tokens that were loaded from the host tier; `cached` includes them.
        loaded: u64,
        /// True if the request ran before and was preempted.
        resumed: bool,
    },
    /// The request is preempted: its blocks are freed, and it waits again.
    Preempted {
        /// Number of the request.
        number: u64,
    },
    /// The request has new output tokens.
    Sampled {
        /// Number of the request.
        number: u64,
        /// Number of new tokens.
        tokens: u64,
    },
    /// The request has all its output tokens.
    Finished {
        /// Number of the request.
        number: u64,
    },
}

/// A copy between the device and the host tier that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCopy {
    /// True if the copy was to the device.
    pub loads: bool,
    /// Number of copied tokens.
    pub tokens: u64,
    /// Time of the copy by itself, without waiting for earlier ones.
    pub time: Ticks,
}
