//! Events of single requests, for drivers that report each as it happens.

/// Event of a request, in the order of the engine's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Admitted: its computation starts.
    Admitted {
        /// The request.
        number: u64,
        /// Tokens found in the prefix cache, on any tier.
        cached: u64,
        /// Tokens of these that were loaded from a host tier.
        loaded: u64,
        /// True if it ran before and was preempted.
        resumed: bool,
    },
    /// Preempted: its blocks are freed, and it waits again.
    Preempted {
        /// The request.
        number: u64,
    },
    /// New tokens were sampled.
    Sampled {
        /// The request.
        number: u64,
        /// Number of tokens.
        tokens: u64,
    },
    /// All its tokens are sampled.
    Finished {
        /// The request.
        number: u64,
    },
}
