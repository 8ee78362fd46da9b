//! Counters of an engine over a run: steps, tokens, preemptions, use of the cache, and time by bottleneck.
//!
//! Knows: sums only, so that results do not depend on how steps are grouped. Knows nothing about requests.

pub(crate) mod distribution;

use crate::tally::distribution::Distribution;
use roofcast_facts::clock::Ticks;
use roofcast_facts::shares::BottleneckShares;
use std::ops::Deref;

/// Mean of fractions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mean {
    /// Number of values.
    pub(crate) count: u64,
    sum: f64,
}

impl Mean {
    /// Adds a value.
    pub(crate) fn add(&mut self, share: f64) {
        self.count += 1;
        self.sum += share;
    }

    /// Returns the mean over the values of both means.
    pub(crate) fn and(self, other: Mean) -> Mean {
        Mean { count: self.count + other.count, sum: self.sum + other.sum }
    }

    /// Value of the mean; 0 without values.
    pub(crate) fn value(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

/// Counters and sums over the steps of a run.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Number of steps.
    pub steps: u64,
    /// Number of steps in which sequences decoded.
    pub decode_steps: u64,
    /// Number of admissions of requests, including admissions after a preemption.
    pub(crate) admitted: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Tokens whose KV cache was dropped at a preemption, of requests that were admitted again to recompute them.
    pub recomputed_tokens: u64,
    /// Tokens whose KV cache was moved to host memory, or back, at a preemption.
    pub(crate) swapped_tokens: u64,
    /// Tokens found in the prefix cache, summed over admissions.
    pub cached_tokens: u64,
    /// Tokens found in the prefix cache and loaded from the host tier, summed over admissions.
    pub host_hits: u64,
    /// Tokens copied from the host tier.
    pub loaded_tokens: u64,
    /// Tokens copied to the host tier.
    pub stored_tokens: u64,
    /// Tokens of `host_hits` that were copied from storage to the host for their request.
    pub storage_hits: u64,
    /// Tokens copied from storage to the host tier.
    pub storage_loaded_tokens: u64,
    /// Tokens copied from the host tier to storage.
    pub storage_stored_tokens: u64,
    /// Tokens evicted from the device without a copy in any tier.
    pub dropped_tokens: u64,
    /// Tokens computed.
    pub scheduled_tokens: u64,
    /// Tokens computed for finished rows of a batch that waits for its longest output.
    pub idle_tokens: u64,
    /// Number of drafted tokens that were verified.
    pub drafted_tokens: u64,
    /// Number of drafted tokens that were rejected.
    pub rejected_tokens: u64,
    /// Largest number of running requests.
    pub(crate) running_peak: u64,
    /// Largest number of waiting requests.
    pub waiting_peak: u64,
    /// Largest number of held blocks.
    pub blocks_peak: u64,
    /// Running requests, summed over steps.
    pub running_steps: u64,
    /// KV tokens held, summed over steps; shared tokens count for each request that holds them.
    pub token_steps: u128,
    /// KV tokens held by requests beyond the first holder of each, summed over steps.
    pub shared_steps: u128,
    /// Unused token slots in held blocks, summed over steps.
    pub slack_steps: u128,
    /// Additional KV slots of decoding sequences, summed over steps: one copy per group of layers beyond the first;
    /// negative if windows drop tokens.
    pub spread_steps: i128,
    /// Decoding sequences, summed over steps.
    pub decoding_steps: u64,
    /// Blocks that the contexts of decoding sequences occupy, summed over steps.
    pub spanned_blocks: u128,
    /// Mean external fragmentation at attempts to admit a request into contiguous memory.
    pub attempts: Mean,
    /// Mean external fragmentation at attempts that failed although enough memory was free in total, but not in one
    /// gap.
    pub scattered: Mean,
    /// Distribution of the gaps between tokens (inter-token latency).
    pub itl: Distribution,
    /// Number of steps with decodes alone whose length the device determines, indexed by the number of decodes.
    pub decodes: Vec<u64>,
    /// Time of the steps among `decodes`, in ticks.
    pub(crate) decoding: u128,
    /// Time of all other steps in ticks, by bottleneck.
    pub mixed: BottleneckShares<u128>,
    /// Time of swaps, plus time for which batches waited for copies between tiers.
    pub swapping: Ticks,
    /// Time of loads from the host tier, from submission to end.
    pub loading: Ticks,
    /// Time from the start to the end of copies from storage to the host tier, summed.
    pub storage_loading: Ticks,
    /// Time that computing the loaded tokens instead would have added to steps.
    pub spared: Ticks,
    /// Time without a step.
    pub idle: Ticks,
    /// Loads, kernels and waits of LoRA adapters.
    pub(crate) adapters: AdapterTally,
}

/// Counters of LoRA adapters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AdapterTally {
    /// Number of copies from the host to the device.
    pub(crate) copies: u64,
    /// Number of reads from storage to the host.
    pub(crate) reads: u64,
    /// Time of copies and reads, for which steps wait.
    pub(crate) loading: Ticks,
    /// Time that the kernels of adapters add to steps.
    pub(crate) computing: Ticks,
    /// Number of admissions of requests that were skipped because other adapters were in use.
    pub(crate) waits: u64,
    /// Time from the first skip of a request to its admission, summed.
    pub(crate) waiting: Ticks,
}

impl AdapterTally {
    /// Adds the counters of one of `ranks` data-parallel ranks, which load and compute at one time.
    fn add(&mut self, rank: AdapterTally, ranks: u64) {
        self.copies += rank.copies;
        self.reads += rank.reads;
        self.loading += rank.loading / ranks;
        self.computing += rank.computing / ranks;
        self.waits += rank.waits;
        self.waiting += rank.waiting;
    }
}

impl Tally {
    /// Returns these counters of a replica with the sums over the counters of its data-parallel `ranks`. Steps,
    /// bottlenecks, and peaks of requests are the replica's own; blocks at the peak are the sum of the ranks' peaks;
    /// swaps and the times of adapters are the mean over ranks, which swap at one time.
    pub(crate) fn over(&self, ranks: &[impl Deref<Target = Tally>]) -> Tally {
        let mut all = self.clone();
        for rank in ranks {
            all.admitted += rank.admitted;
            all.blocks_peak += rank.blocks_peak;
            all.preemptions += rank.preemptions;
            all.recomputed_tokens += rank.recomputed_tokens;
            all.swapped_tokens += rank.swapped_tokens;
            all.cached_tokens += rank.cached_tokens;
            all.host_hits += rank.host_hits;
            all.storage_hits += rank.storage_hits;
            all.storage_loaded_tokens += rank.storage_loaded_tokens;
            all.storage_stored_tokens += rank.storage_stored_tokens;
            all.storage_loading += rank.storage_loading;
            all.loaded_tokens += rank.loaded_tokens;
            all.stored_tokens += rank.stored_tokens;
            all.dropped_tokens += rank.dropped_tokens;
            all.scheduled_tokens += rank.scheduled_tokens;
            all.idle_tokens += rank.idle_tokens;
            all.drafted_tokens += rank.drafted_tokens;
            all.rejected_tokens += rank.rejected_tokens;
            all.running_steps += rank.running_steps;
            all.token_steps += rank.token_steps;
            all.shared_steps += rank.shared_steps;
            all.slack_steps += rank.slack_steps;
            all.spread_steps += rank.spread_steps;
            all.decoding_steps += rank.decoding_steps;
            all.spanned_blocks += rank.spanned_blocks;
            all.attempts = all.attempts.and(rank.attempts);
            all.scattered = all.scattered.and(rank.scattered);
            all.itl.merge(&rank.itl);
            all.loading += rank.loading;
            all.spared += rank.spared;
            all.swapping += rank.swapping / ranks.len() as u64;
            all.adapters.add(rank.adapters, ranks.len() as u64);
        }
        all
    }

    /// Counts `steps` steps of `n` decodes alone, which take `time` ticks together, or as long as host or server, if `paced`.
    #[inline(always)]
    pub(crate) fn decoded(&mut self, n: u64, steps: u64, time: u128, paced: Option<BottleneckShares<u128>>) {
        if let Some(paced) = paced {
            self.mixed = self.mixed.plus(paced);
            return;
        }
        let index = n as usize;
        if self.decodes.len() <= index {
            self.decodes.resize(index + 1, 0);
        }
        self.decodes[index] += steps;
        self.decoding += time;
    }
}
