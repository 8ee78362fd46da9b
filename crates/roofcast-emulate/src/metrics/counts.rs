//! Counters of an engine that are not kept by request.

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) queried: u64,
    pub(super) hit: u64,
    /// Tokens looked up in external caches, and tokens found there.
    pub(super) external: [u64; 2],
    pub(super) preemptions: u64,
    pub(super) prompt_cached: u64,
    pub(super) prompt_external: u64,
    pub(super) stopped: u64,
    pub(super) full_length: u64,
    pub(super) aborted: u64,
    /// Number of running requests, summed over steps.
    pub(super) running_steps: u64,
    /// Tokens of the longest sequence so far.
    pub(super) longest: u64,
    /// Requests rejected because too many requests wait, and because too many tokens wait.
    pub(super) rejected: [u64; 2],
}

impl Counts {
    /// Sum of the counters of two engines.
    pub(super) fn plus(&self, other: &Counts) -> Counts {
        let both = |one: [u64; 2], other: [u64; 2]| [one[0] + other[0], one[1] + other[1]];
        Counts {
            queried: self.queried + other.queried,
            hit: self.hit + other.hit,
            external: both(self.external, other.external),
            preemptions: self.preemptions + other.preemptions,
            prompt_cached: self.prompt_cached + other.prompt_cached,
            prompt_external: self.prompt_external + other.prompt_external,
            stopped: self.stopped + other.stopped,
            full_length: self.full_length + other.full_length,
            aborted: self.aborted + other.aborted,
            running_steps: self.running_steps + other.running_steps,
            longest: self.longest.max(other.longest),
            rejected: both(self.rejected, other.rejected),
        }
    }
}
