//! What happens to requests, one by one, for whoever drives an engine as they come.

/// What happened to a request, in the order of the engine's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is computed from now on; so many tokens of it were in the cache.
    Admitted {
        /// Which.
        number: u64,
        /// Tokens found in the prefix cache.
        cached: u64,
        /// Whether it ran before and was preempted.
        resumed: bool,
    },
    /// Its blocks went to another; it waits again.
    Preempted {
        /// Which.
        number: u64,
    },
    /// It has so many tokens more.
    Sampled {
        /// Which.
        number: u64,
        /// How many.
        tokens: u64,
    },
    /// It has all its tokens.
    Finished {
        /// Which.
        number: u64,
    },
}
