//! The task of a deployment in words: to meet an SLO, or to carry the load where no latency is bounded, as of a job.

/// The task of a deployment in words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) meet: &'static str,
    pub(super) meets: &'static str,
    pub(super) miss: &'static str,
    pub(super) misses: &'static str,
}

impl Goal {
    /// The goal of a question whose latencies are `bounded` or not.
    pub(super) fn of(bounded: bool) -> Goal {
        match bounded {
            true => Goal {
                meet: "meet the SLO",
                meets: "meets the SLO",
                miss: "miss the SLO",
                misses: "misses the SLO",
            },
            false => Goal {
                meet: "carry the load",
                meets: "carries the load",
                miss: "do not carry the load",
                misses: "does not carry the load",
            },
        }
    }
}
