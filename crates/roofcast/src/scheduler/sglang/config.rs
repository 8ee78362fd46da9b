//! Settings by SGLang's names, and what its versions do differently.

use super::SchedulePolicy;
use super::tree::host::WritePolicy;
use crate::spec::RetractionPolicy;

/// Settings of a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerArgs {
    /// The queue's order.
    pub schedule_policy: SchedulePolicy,
    /// Multiplies the ratio at its start; more is more careful.
    pub schedule_conservativeness: f64,
    /// KV tokens.
    pub max_total_tokens: u64,
    /// Requests that run at once.
    pub max_running_requests: u64,
    /// Tokens of the prompts of a batch; the first may have more where prompts are not chunked.
    pub max_prefill_tokens: u64,
    /// Tokens of the prompts of a batch, beyond which one is chunked; none where prompts are not.
    pub chunked_prefill_size: Option<u64>,
    /// Whether running requests decode beside prompts.
    pub enable_mixed_chunk: bool,
    /// Tokens of a page.
    pub page_size: u64,
    /// Whether nothing is kept for others.
    pub disable_radix_cache: bool,
    /// Whether the queue is sorted by priority.
    pub enable_priority_scheduling: bool,
    /// Whether smaller values are of higher priority.
    pub schedule_low_priority_values_first: bool,
    /// How much higher a priority has to be to preempt.
    pub priority_scheduling_preemption_threshold: i64,
    /// Whether a higher priority preempts no running request.
    pub disable_priority_preemption: bool,
    /// Which requests are retracted first.
    pub retraction_policy: RetractionPolicy,
    /// Requests of a batch of prompts.
    pub prefill_max_requests: Option<u64>,
    /// Whether results are processed before the next batch is decided.
    pub disable_overlap_schedule: bool,
    /// The host tier, where there is one.
    pub hicache: Option<HiCache>,
    /// What the version does.
    pub rules: Rules,
    /// Whether steps say what their decisions went over: the queue as sorted, the rows that decode.
    pub records: bool,
}

/// A host tier behind the radix tree, SGLang's `enable_hierarchical_cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiCache {
    /// Tokens of the host pool, in whole pages.
    pub host_tokens: u64,
    /// When KV is copied there.
    pub write_policy: WritePolicy,
}

impl HiCache {
    /// A host pool of `hicache_ratio` times the tokens of the device's: rounded down to pages, and one page more. Source: SGLang
    /// 0.5.23, `mem_cache/memory_pool_host.py`.
    pub fn of_ratio(ratio: f64, device_tokens: u64, page: u64, write_policy: WritePolicy) -> HiCache {
        let tokens = (device_tokens as f64 * ratio) as u64;
        HiCache { host_tokens: tokens - tokens % page + page, write_policy }
    }
}

impl ServerArgs {
    /// What makes no sense together: the setting, what was found and what is accepted.
    pub(crate) fn check(&self) -> Option<(&'static str, String, &'static str)> {
        let mixed = self.chunked_prefill_size.filter(|_| self.enable_mixed_chunk);
        if mixed.is_some_and(|size| size <= self.rows()) {
            let accepted =
                "with enable_mixed_chunk more than max_running_requests, whose tokens it holds, too";
            return Some(("chunked_prefill_size", mixed.unwrap_or(0).to_string(), accepted));
        }
        if self.chunked_prefill_size.is_some_and(|size| size < self.page_size) {
            let found = self.chunked_prefill_size.unwrap_or(0).to_string();
            return Some(("chunked_prefill_size", found, "at least a page"));
        }
        if self.max_total_tokens < 2 * self.page_size.max(2) {
            return Some(("max_total_tokens", self.max_total_tokens.to_string(), "at least two pages"));
        }
        None
    }

    /// Rows of the table of requests, which bound the running ones: `max_running_requests`, or half the tokens of the pool.
    pub(super) fn rows(&self) -> u64 {
        self.max_running_requests.min(self.max_total_tokens / 2)
    }

    /// Whether a running request may make room for one of higher priority.
    pub(super) fn preempts(&self) -> bool {
        self.enable_priority_scheduling && !self.disable_priority_preemption
    }

    /// `priority` as a number of which larger is higher.
    pub(super) fn urgency(&self, priority: i64) -> i128 {
        let priority = i128::from(priority);
        if self.schedule_low_priority_values_first { -priority } else { priority }
    }
}

/// What SGLang's versions do differently. Two more points are not modelled: before 0.5.22 a mixed batch whose running rows
/// did not fit ran out of memory, where here they sit it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Estimates take the whole bound of a request that ignores its end (0.5.22).
    pub counts_ignored_eos_whole: bool,
    /// Rows whose result under way is their last sit the next decode out (0.5.22).
    pub skips_finishing_rows: bool,
    /// Prefixes of waiting requests are used every 32nd pass (0.5.22).
    pub refreshes_waiting: bool,
    /// What goes into the tree is split at the prompt's end (0.5.20).
    pub splits_at_prompt: bool,
}

impl Rules {
    /// Those of the newest version known, 0.5.23.
    pub const NEWEST: Rules = Rules::since(true, true);

    const fn since(split: bool, newest: bool) -> Rules {
        Rules {
            counts_ignored_eos_whole: newest,
            skips_finishing_rows: newest,
            refreshes_waiting: newest,
            splits_at_prompt: split,
        }
    }

    /// Those of `version`, as in `0.5.20` or `0.5.10.post1`; the newest where it is none.
    pub fn of(version: Option<&str>) -> Rules {
        let number = |part: &str| part.parse::<u64>().ok();
        let parts =
            version.map(|v| v.trim_start_matches('v').split('.').map_while(number).collect::<Vec<_>>());
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return Rules::NEWEST };
        Rules::since(parts >= vec![0, 5, 20], parts >= vec![0, 5, 22])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_rules() {
        let of = |version| {
            let rules = Rules::of(version);
            (rules.splits_at_prompt, rules.skips_finishing_rows)
        };
        assert_eq!(of(None), (true, true));
        assert_eq!(of(Some("0.5.22")), (true, true));
        assert_eq!(of(Some("v0.5.21.post1")), (true, false));
        assert_eq!(of(Some("0.5.6.post2")), (false, false));
        assert_eq!(of(Some("0.6")), (true, true));
        assert_eq!(of(Some("nightly")), (true, true));
    }
}
