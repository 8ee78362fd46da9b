//! Settings by vLLM's names, and differences between its versions.

use super::transfers::OffloadConfig;
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
    /// Number of steps from one with prompts to the next while others decode; 1 is every step. Up to 0.32 vLLM
    /// applies it only in data-parallel engines (`DPEngineCoreProc` of `v1/engine/core.py`).
    pub prefill_schedule_interval: u64,
    /// True for asynchronous scheduling, with two batches in flight: a sampled token is counted before its value is
    /// known.
    pub async_scheduling: bool,
    /// Number of draft tokens proposed after each sampled token.
    pub num_speculative_tokens: u64,
    /// Tokens beyond the current step's for which a running request has blocks: the drafts of the next step.
    pub num_lookahead_tokens: u64,
    /// True if the drafts come from EAGLE or an MTP module, which compute a block's last token together with the
    /// token after it.
    pub eagle: bool,
    /// Sliding windows of the groups of layers that take their own blocks from the common pool; `None` is full
    /// attention.
    pub windows: Vec<Option<u64>>,
    /// The host tier, if there is one.
    pub offload: Option<OffloadConfig>,
    /// Rules of the version.
    pub rules: Rules,
}

impl SchedulerConfig {
    /// Tokens that a request has blocks for once it has computed `filled`.
    pub(super) fn slots(&self, filled: u64) -> u64 {
        (filled + self.num_lookahead_tokens).min(self.max_model_len)
    }

    /// Blocks that requests can hold: vLLM keeps one back as the null block.
    pub(crate) fn usable_blocks(&self) -> u64 {
        u64::from(self.num_gpu_blocks) - 1
    }

    /// Number of tokens after a block that its hash covers; the block can be shared once these are known.
    pub(super) fn hash_lookahead(&self) -> u64 {
        u64::from(self.eagle && self.rules.hashes_look_ahead)
    }
}

/// Differences between vLLM's versions; true is the rule of 0.33.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A request that preempts itself ends the pass over the running ones; otherwise the pass continues with the next
    /// one (0.33).
    pub self_preemption_ends_pass: bool,
    /// With EAGLE, a block's hash covers the token after it; otherwise a hit drops its last block (0.33).
    pub hashes_look_ahead: bool,
    /// Adapters of all running requests count as in use; otherwise only adapters of requests in this step (0.33).
    pub running_adapters_count: bool,
    /// `prefill_schedule_interval` counts from the last step with prompts; otherwise from the first request of a busy
    /// period (0.33).
    pub interval_since_prefill: bool,
}

impl Rules {
    /// Rules of `version`; of the newest known version, 0.33, if `version` has no number.
    pub(crate) fn of(version: Option<&str>) -> Rules {
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
