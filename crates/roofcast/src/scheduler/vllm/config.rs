//! Settings by vLLM's names, and what its versions decide differently.

use crate::version::Version;

/// Settings of a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// Tokens of a KV block.
    pub block_size: u64,
    /// Number of blocks, the reserved null block included.
    pub num_gpu_blocks: u32,
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// A second bound on requests that run at one time.
    pub max_num_active_seqs: Option<u64>,
    /// Most tokens of one step.
    pub max_num_batched_tokens: u64,
    /// Most tokens of a request, prompt and output.
    pub max_model_len: u64,
    /// True if a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// True if blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Most tokens of one request in a step while others wait; 0 means no bound.
    pub long_prefill_token_threshold: u64,
    /// True if the threshold grows as fewer requests share the budget.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Order of the queue.
    pub policy: SchedulingPolicy,
    /// True if admission needs room for the whole known sequence, not only for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Fraction of the blocks kept free when admitting while others run.
    pub watermark: f64,
    /// Beside decodes prompts are computed in every so many steps; 1 is in each. Up to 0.32 vLLM heeds it in data-parallel
    /// engines alone (`DPEngineCoreProc` of `v1/engine/core.py`).
    pub prefill_schedule_interval: u64,
    /// True for asynchronous scheduling, with two batches in flight: a sampled token is counted before its value is
    /// known.
    pub async_scheduling: bool,
    /// Tokens that a draft proposes after each that is sampled.
    pub num_speculative_tokens: u64,
    /// Tokens beyond a step's that a running request has room for: the drafts of the next step.
    pub num_lookahead_tokens: u64,
    /// Whether the drafts are those of EAGLE or an MTP module, which compute a block's last token with the token after it.
    pub eagle: bool,
    /// The groups of layers that take blocks of their own from the one pool, by their windows; none is full attention.
    pub windows: Vec<Option<u64>>,
    /// What the version decides.
    pub rules: Rules,
}

impl SchedulerConfig {
    /// Tokens that a request has blocks for once it has computed `filled`.
    pub(super) fn slots(&self, filled: u64) -> u64 {
        (filled + self.num_lookahead_tokens).min(self.max_model_len)
    }

    /// Tokens after a block that its hash covers, so that the block exists for others once these are known.
    pub(super) fn hash_lookahead(&self) -> u64 {
        u64::from(self.eagle && self.rules.hashes_look_ahead)
    }
}

/// What vLLM's versions decide differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A request that preempts itself ends the running pass; else the pass goes on with the next one (0.33).
    pub self_preemption_ends_pass: bool,
    /// A block's hash covers the token after it where EAGLE drafts; else a hit drops its last block (0.33).
    pub hashes_look_ahead: bool,
    /// Adapters in use are those of all running requests; else of those that this step computes (0.33).
    pub running_adapters_count: bool,
    /// `prefill_schedule_interval` counts from the last step with prompts; else from the first request of a busy period
    /// (0.33).
    pub interval_since_prefill: bool,
}

impl Rules {
    /// Those of `version`; of the newest known, 0.33, where it has no order.
    pub fn of(version: Option<&str>) -> Rules {
        let before = |first| {
            version
                .and_then(|version| Version::compare(version, first))
                .is_some_and(std::cmp::Ordering::is_lt)
        };
        let newest = !before("0.33.0");
        Rules {
            self_preemption_ends_pass: !newest,
            hashes_look_ahead: newest,
            running_adapters_count: newest,
            interval_since_prefill: newest,
        }
    }
}

/// The order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// First come, first served; the last admitted is preempted.
    Fcfs,
    /// Smaller value first, ties by arrival; the largest is preempted.
    Priority,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_rules() {
        let ends = |version| Rules::of(version).self_preemption_ends_pass;
        let found = [None, Some("0.33.0"), Some("0.34"), Some("0.32.0"), Some("0.9.2"), Some("0.33.0rc1")];
        assert_eq!(found.map(ends), [false, false, false, true, true, true]);
    }
}
