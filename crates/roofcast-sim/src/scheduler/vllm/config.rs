//! Settings by vLLM's names, and differences between vLLM's versions.

use super::transfers::OffloadConfig;
use roofcast_facts::version::Version;

/// Settings of vLLM's scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// Tokens per KV block.
    pub block_size: u64,
    /// Number of blocks, including the reserved null block.
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
    /// True if blocks are found by their content.
    pub enable_prefix_caching: bool,
    /// Most tokens of one request in a step while other requests wait; 0 for no bound.
    pub long_prefill_token_threshold: u64,
    /// True if the threshold grows when fewer requests share the budget.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Order of the queue.
    pub policy: SchedulingPolicy,
    /// True if admission needs memory for the whole known sequence instead of its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Fraction of the blocks that stays free when a request is admitted while others run.
    pub watermark: f64,
    /// Number of steps from one with prompts to the next while requests decode; 1 for every step. Up to 0.32, vLLM
    /// applies this only in data-parallel engines (`DPEngineCoreProc` of `v1/engine/core.py`).
    pub prefill_schedule_interval: u64,
    /// True for asynchronous scheduling, with two batches in flight: a sampled token is counted before its value is
    /// known.
    pub async_scheduling: bool,
    /// Number of draft tokens proposed after each sampled token.
    pub num_speculative_tokens: u64,
    /// Number of tokens after the current step's for which a running request holds blocks: the drafts of the next step.
    pub num_lookahead_tokens: u64,
    /// True if the drafts come from EAGLE or an MTP module, which compute the last token of a block together with the
    /// token after it.
    pub eagle: bool,
    /// Sliding windows in tokens of the groups of layers, which have separate blocks from one pool; `None` is full
    /// attention.
    pub windows: Vec<Option<u64>>,
    /// The host tier; `None` without one.
    pub offload: Option<OffloadConfig>,
    /// Rules of the version.
    pub rules: Rules,
}

impl SchedulerConfig {
    /// Number of tokens for which a request holds blocks after computing `filled` tokens.
    pub(super) fn slots(&self, filled: u64) -> u64 {
        (filled + self.num_lookahead_tokens).min(self.max_model_len)
    }

    /// Number of blocks that requests can hold: vLLM reserves one as the null block.
    pub(crate) fn usable_blocks(&self) -> u64 {
        u64::from(self.num_gpu_blocks) - 1
    }

    /// Number of tokens after a block that the block's hash covers; the block can be shared when these tokens are
    /// known.
    pub(super) fn hash_lookahead(&self) -> u64 {
        u64::from(self.eagle && self.rules.hashes_look_ahead)
    }
}

/// Differences between vLLM's versions; true is the rule of 0.33.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// True if a request that preempts itself ends the pass over the running requests (0.33); false if the pass
    /// continues with the next request.
    pub(crate) self_preemption_ends_pass: bool,
    /// True if, with EAGLE, a block's hash covers the token after the block (0.33); false if a hit drops its last
    /// block.
    pub(crate) hashes_look_ahead: bool,
    /// True if the adapters of all running requests count as in use (0.33); false if only adapters of requests in this
    /// step do.
    pub(crate) running_adapters_count: bool,
    /// True if `prefill_schedule_interval` counts from the last step with prompts (0.33); false if it counts from the
    /// first request of a busy period.
    pub(crate) interval_since_prefill: bool,
}

impl Rules {
    /// Rules of `version`; of the newest known version, 0.33, if `version` has no number.
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

/// Order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// First come, first served; the request admitted last is preempted.
    Fcfs,
    /// Smaller priority values first, equal values by arrival; the request with the largest value is preempted.
    Priority,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_rules() {
        let ends = |version| Rules::of(version).self_preemption_ends_pass;
        let versions = [None, Some("0.33.0"), Some("0.34"), Some("0.32.0"), Some("0.9.2"), Some("0.33.0rc1")];
        assert_eq!(versions.map(ends), [false, false, false, true, true, true]);
    }
}
