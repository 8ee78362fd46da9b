//! What an engine counts over a run: steps, tokens, preemptions, use of the cache, and what its time went to.
//!
//! Sums only, so that they come out the same however steps are grouped.

pub mod distribution;

use crate::clock::Ticks;
use crate::shares::Shares;
use crate::tally::distribution::Distribution;

/// The mean of shares.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mean {
    /// How many.
    pub count: u64,
    sum: f64,
}

impl Mean {
    /// Adds one.
    pub fn add(&mut self, share: f64) {
        self.count += 1;
        self.sum += share;
    }

    /// Those of both.
    pub fn and(self, other: Mean) -> Mean {
        Mean { count: self.count + other.count, sum: self.sum + other.sum }
    }

    /// The mean; 0 of none.
    pub fn value(self) -> f64 {
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
    /// Requests admitted, again after a preemption included.
    pub admitted: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Tokens dropped with a preempted request's cache, to be computed again.
    pub recomputed_tokens: u64,
    /// Tokens moved to the host's memory and back.
    pub swapped_tokens: u64,
    /// Tokens found in the prefix cache, at every admission.
    pub cached_tokens: u64,
    /// Of these, the tokens that were loaded from the host tier.
    pub loaded_tokens: u64,
    /// Tokens copied to the host tier.
    pub stored_tokens: u64,
    /// Tokens evicted from the device that no tier keeps.
    pub dropped_tokens: u64,
    /// Tokens computed.
    pub scheduled_tokens: u64,
    /// Tokens computed for a batch that waits for its longest.
    pub idle_tokens: u64,
    /// Drafts verified.
    pub drafted_tokens: u64,
    /// Of these, the drafts that were rejected.
    pub rejected_tokens: u64,
    /// Most requests running.
    pub running_peak: u64,
    /// Most requests waiting.
    pub waiting_peak: u64,
    /// Most blocks held.
    pub blocks_peak: u64,
    /// Sum over steps of requests running.
    pub running_steps: u64,
    /// Sum over steps of KV tokens held; shared ones count once for each request.
    pub token_steps: u128,
    /// Sum over steps of KV tokens that requests hold beyond the first that holds them.
    pub shared_steps: u128,
    /// Sum over steps of tokens that held blocks have room for and do not hold.
    pub slack_steps: u128,
    /// Sum over steps of extra KV slots of decoding sequences: one copy per layer group beyond the first; negative where
    /// windows drop tokens.
    pub spread_steps: i128,
    /// Sum over steps of sequences that decode, and of the blocks that their contexts lie in.
    pub decoding_steps: u64,
    /// See above.
    pub spanned_blocks: u128,
    /// External fragmentation at attempts to admit a request in one piece.
    pub attempts: Mean,
    /// The same where enough was free in sum, and in no single gap.
    pub scattered: Mean,
    /// Gaps between tokens.
    pub itl: Distribution,
    /// Steps of decodes alone, by the number of decodes.
    pub decodes: Vec<u64>,
    /// What they took, in ticks.
    pub decoding: u128,
    /// What the time of the other steps went to.
    pub mixed: Shares<u128>,
    /// Time of swaps, and what batches waited for copies between tiers.
    pub swapping: Ticks,
    /// Time with nothing to do.
    pub idle: Ticks,
}

impl Tally {
    /// Counts `steps` steps of `n` decodes alone that take `time` together.
    #[inline(always)]
    pub fn decoded(&mut self, n: u64, steps: u64, time: u128) {
        let index = n as usize;
        if self.decodes.len() <= index {
            self.decodes.resize(index + 1, 0);
        }
        self.decodes[index] += steps;
        self.decoding += time;
    }
}
