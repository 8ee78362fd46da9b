//! Events of single requests, for drivers that report each as it happens.

/// What happened to a request, in the order of the engine's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is computed from now on; so many tokens of it were in the cache.
    Admitted {
        /// The request.
        number: u64,
        /// Tokens found in the prefix cache.
        cached: u64,
        /// Whether it ran before and was preempted.
        resumed: bool,
    },
    /// Its blocks are given to another request; it waits again.
    Preempted {
        /// The request.
        number: u64,
    },
    /// It has so many tokens more.
    Sampled {
        /// The request.
        number: u64,
        /// How many.
        tokens: u64,
    },
    /// It has all its tokens.
    Finished {
        /// The request.
        number: u64,
    },
}
