//! Settings by SGLang's names, and the differences between SGLang's versions.

use super::SchedulePolicy;
use roofcast_ask::spec::{RetractionPolicy, WritePolicy};

/// Settings of SGLang's scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerArgs {
    /// Order of the queue.
    pub schedule_policy: SchedulePolicy,
    /// Factor on the initial new-token ratio; larger values admit fewer requests.
    pub schedule_conservativeness: f64,
    /// Tokens that the KV pool holds.
    pub max_total_tokens: u64,
    /// Most requests that run at one time.
    pub max_running_requests: u64,
    /// Most prompt tokens of a batch. The first prompt may exceed this if prompts are not chunked.
    pub max_prefill_tokens: u64,
    /// Most prompt tokens of a batch with chunked prefill: the prompt that exceeds this is chunked. `None` without
    /// chunked prefill.
    pub chunked_prefill_size: Option<u64>,
    /// True if running requests decode in the batches that compute prompts.
    pub enable_mixed_chunk: bool,
    /// Tokens per page.
    pub page_size: u64,
    /// True to disable the prefix cache.
    pub disable_radix_cache: bool,
    /// True if the queue is sorted by priority.
    pub enable_priority_scheduling: bool,
    /// True if smaller values have higher priority.
    pub schedule_low_priority_values_first: bool,
    /// Smallest difference in priority that allows preemption.
    pub priority_scheduling_preemption_threshold: i64,
    /// True if a higher priority never preempts a running request.
    pub disable_priority_preemption: bool,
    /// Order in which requests are retracted.
    pub retraction_policy: RetractionPolicy,
    /// Most requests in a batch of prompts; `None` without a bound.
    pub prefill_max_requests: Option<u64>,
    /// True for the normal loop, which processes the results of a batch before it decides the next one.
    pub disable_overlap_schedule: bool,
    /// The host tier, if there is one.
    pub hicache: Option<HiCache>,
    /// Differences of this version from the newest one.
    pub rules: Rules,
    /// True to record the sorted queue and the decoding rows in each step.
    pub records: bool,
}

/// A host tier behind the radix tree, SGLang's `enable_hierarchical_cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiCache {
    /// Tokens that the host pool holds, in whole pages.
    pub host_tokens: u64,
    /// Policy that decides when KV is copied to the host.
    pub write_policy: WritePolicy,
}

impl HiCache {
    /// A host pool of `hicache_ratio` times the device's tokens, rounded down to whole pages, plus one page. Source:
    /// SGLang 0.5.23, `mem_cache/memory_pool_host.py`.
    pub fn of_ratio(ratio: f64, device_tokens: u64, page: u64, write_policy: WritePolicy) -> HiCache {
        let tokens = (device_tokens as f64 * ratio) as u64;
        HiCache { host_tokens: tokens - tokens % page + page, write_policy }
    }
}

impl ServerArgs {
    /// The first setting that contradicts another one: its name, the value found and the values accepted; `None` if
    /// there is none.
    pub fn check(&self) -> Option<(&'static str, String, &'static str)> {
        let mixed = self.chunked_prefill_size.filter(|_| self.enable_mixed_chunk);
        if mixed.is_some_and(|size| size <= self.rows()) {
            let accepted =
                "with enable_mixed_chunk more than max_running_requests, whose tokens it holds, too";
            return Some(("chunked_prefill_size", mixed.unwrap_or(0).to_string(), accepted));
        }
        if self.chunked_prefill_size.is_some_and(|size| size < self.page_size) {
            let chunk_size = self.chunked_prefill_size.unwrap_or(0).to_string();
            return Some(("chunked_prefill_size", chunk_size, "at least a page"));
        }
        if self.max_total_tokens < 2 * self.page_size.max(2) {
            return Some(("max_total_tokens", self.max_total_tokens.to_string(), "at least two pages"));
        }
        None
    }

    /// Number of rows of the request table, which bounds the running requests: `max_running_requests`, or half the
    /// tokens of the pool if that is less.
    pub(super) fn rows(&self) -> u64 {
        self.max_running_requests.min(self.max_total_tokens / 2)
    }

    /// True if a higher priority may preempt a running request.
    pub(super) fn preempts(&self) -> bool {
        self.enable_priority_scheduling && !self.disable_priority_preemption
    }

    /// `priority` as a number of which larger values are more urgent.
    pub(super) fn urgency(&self, priority: i64) -> i128 {
        let priority = i128::from(priority);
        if self.schedule_low_priority_values_first { -priority } else { priority }
    }
}

/// Differences between SGLang's versions. One difference is not modelled: before 0.5.22 a mixed batch whose running
/// rows did not fit ran out of memory; here those rows skip the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// True if estimates count the whole bound of a request with `ignore_eos` (0.5.22 and later).
    pub(crate) counts_ignored_eos_whole: bool,
    /// True if a row whose last token is in flight skips the next decode (0.5.22 and later).
    pub(crate) skips_finishing_rows: bool,
    /// True if the prefixes of waiting requests are touched in every 32nd pass (0.5.22 and later).
    pub(crate) refreshes_waiting: bool,
    /// True if insertion into the radix tree splits at the prompt's end (0.5.20 and later).
    pub(crate) splits_at_prompt: bool,
}

impl Rules {
    /// Rules of the newest known version, 0.5.23.
    pub const NEWEST: Rules = Rules::since(true, true);

    const fn since(split: bool, newest: bool) -> Rules {
        Rules {
            counts_ignored_eos_whole: newest,
            skips_finishing_rows: newest,
            refreshes_waiting: newest,
            splits_at_prompt: split,
        }
    }

    /// Rules of `version`, as in `0.5.20` or `0.5.10.post1`; rules of the newest version if `version` has no number.
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
        let rules_of = |version| {
            let rules = Rules::of(version);
            (rules.splits_at_prompt, rules.skips_finishing_rows)
        };
        assert_eq!(rules_of(None), (true, true));
        assert_eq!(rules_of(Some("0.5.22")), (true, true));
        assert_eq!(rules_of(Some("v0.5.21.post1")), (true, false));
        assert_eq!(rules_of(Some("0.5.6.post2")), (false, false));
        assert_eq!(rules_of(Some("0.6")), (true, true));
        assert_eq!(rules_of(Some("nightly")), (true, true));
    }
}
