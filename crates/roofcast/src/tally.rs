//! Counters of an engine over a run: steps, tokens, preemptions, use of the cache, and time by bottleneck.
//!
//! Sums only, so that they do not depend on how steps are grouped.

pub(crate) mod distribution;

use crate::clock::Ticks;
use crate::shares::BottleneckShares;
use crate::tally::distribution::Distribution;

/// The mean of fractions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mean {
    /// Number of values.
    pub count: u64,
    sum: f64,
}

impl Mean {
    /// Adds a value.
    pub(crate) fn add(&mut self, share: f64) {
        self.count += 1;
        self.sum += share;
    }

    /// Returns the mean over the values of both.
    pub(crate) fn and(self, other: Mean) -> Mean {
        Mean { count: self.count + other.count, sum: self.sum + other.sum }
    }

    /// The mean; 0 without values.
    pub(crate) fn value(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

/// The counts.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Steps.
    pub steps: u64,
    /// Steps in which sequences decoded.
    pub decode_steps: u64,
    /// Requests admitted, readmissions after a preemption included.
    pub admitted: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Tokens dropped with a preempted request's cache, to be computed again.
    pub recomputed_tokens: u64,
    /// Tokens moved to the host's memory and back.
    pub swapped_tokens: u64,
    /// Tokens found in the prefix cache, at every admission.
    pub cached_tokens: u64,
    /// Tokens found in the cache, at every admission, that were loaded from the host tier.
    pub host_hits: u64,
    /// Tokens copied from the host tier.
    pub loaded_tokens: u64,
    /// Tokens copied to the host tier.
    pub stored_tokens: u64,
    /// Tokens evicted from the device that no tier keeps.
    pub dropped_tokens: u64,
    /// Tokens computed.
    pub scheduled_tokens: u64,
    /// Tokens computed for finished rows of a batch that waits for its longest output.
    pub idle_tokens: u64,
    /// Drafts verified.
    pub drafted_tokens: u64,
    /// Drafts that were rejected.
    pub rejected_tokens: u64,
    /// Most requests running.
    pub running_peak: u64,
    /// Most requests waiting.
    pub waiting_peak: u64,
    /// Most blocks held.
    pub blocks_peak: u64,
    /// Sum over steps of requests running.
    pub running_steps: u64,
    /// Sum over steps of KV tokens held; shared ones count for each request.
    pub token_steps: u128,
    /// Sum over steps of KV tokens that requests hold in addition to the first holder.
    pub shared_steps: u128,
    /// Sum over steps of unused token slots in held blocks.
    pub slack_steps: u128,
    /// Sum over steps of extra KV slots of decoding sequences: one copy per layer group beyond the first; negative where
    /// windows drop tokens.
    pub spread_steps: i128,
    /// Sum over steps of decoding sequences.
    pub decoding_steps: u64,
    /// Sum over steps of the blocks that the decoding sequences' contexts occupy.
    pub spanned_blocks: u128,
    /// External fragmentation at attempts to admit a request with contiguous blocks.
    pub attempts: Mean,
    /// External fragmentation at attempts for which enough was free in total, but in no single gap.
    pub scattered: Mean,
    /// Gaps between tokens.
    pub itl: Distribution,
    /// Steps of decodes alone, by the number of decodes.
    pub decodes: Vec<u64>,
    /// Time of these steps, in ticks.
    pub decoding: u128,
    /// Time of the other steps by bottleneck.
    pub mixed: BottleneckShares<u128>,
    /// Time of swaps, and time for which batches waited for copies between tiers.
    pub swapping: Ticks,
    /// Time of loads from the host tier, from their submission to their end.
    pub loading: Ticks,
    /// Time that computing the loaded tokens would have added to steps.
    pub spared: Ticks,
    /// Idle time.
    pub idle: Ticks,
}

impl Tally {
    /// Counts `steps` steps of `n` decodes alone that take `time` together.
    #[inline(always)]
    pub(crate) fn decoded(&mut self, n: u64, steps: u64, time: u128) {
        let index = n as usize;
        if self.decodes.len() <= index {
            self.decodes.resize(index + 1, 0);
        }
        self.decodes[index] += steps;
        self.decoding += time;
    }
}
