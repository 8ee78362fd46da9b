//! The order in which one pass considers the queue.
//!
//! Knows: first come first served, order by priority, and longest prefix first (on the device and on the host), in
//! which a request goes last if another queued request is about to compute its prefix. With over 128 waiting requests
//! prefixes are not matched, and every 32nd such pass touches the prefixes of waiting requests, so that they are not
//! evicted first. Source: SGLang 0.5.23, `managers/schedule_policy.py`. Knows nothing about admission.

use super::tree::{Found, Tree};
use super::{RequestId, Scheduler};
use roofcast_ask::spec::SchedulePolicy;
use std::cmp::Reverse;

/// Most waiting requests with which prefixes are matched.
const MATCH_MOST: usize = 128;
/// Most cached tokens with which a request is also compared with other queued requests; it waits for a request that
/// shares at least this number of tokens.
const IN_BATCH_TOKENS: u64 = 32;
/// Number of passes without matching from one touch of the waiting requests' prefixes to the next.
const REFRESH_PASSES: u64 = 32;

impl Scheduler {
    /// Sorts the queue.
    pub(super) fn sort(&mut self) {
        let prefixes = self.config.schedule_policy == SchedulePolicy::Lpm && !self.config.disable_radix_cache;
        if prefixes && self.waiting.len() <= MATCH_MOST {
            return self.longest_prefix_first();
        }
        if !prefixes && self.config.enable_priority_scheduling {
            let config = &self.config;
            let requests = &self.requests;
            let key =
                |id: &RequestId| (Reverse(config.urgency(requests[*id].priority)), requests[*id].entered);
            self.waiting.make_contiguous().sort_by_key(key);
        }
        self.refresh();
    }

    fn longest_prefix_first(&mut self) {
        let mut others = Tree::new(1, None);
        let queue: Vec<RequestId> = self.waiting.iter().copied().collect();
        let mut keys = Vec::with_capacity(queue.len());
        for id in queue {
            let known = self.known(id);
            self.look(id, known);
            let device_hit = self.requests[id].found;
            let host_hit = self.requests[id].host_hit;
            let mut last = false;
            if device_hit <= IN_BATCH_TOKENS {
                self.trace(id, known);
                last = others.find(&self.path).length >= IN_BATCH_TOKENS;
                if !last {
                    others.insert(&self.path, 0);
                }
            }
            keys.push((last, Reverse(if last { 0 } else { (device_hit + host_hit).min(known - 1) }), id));
        }
        keys.sort_by_key(|(last, found, _)| (*last, *found));
        self.waiting = keys.into_iter().map(|(_, _, id)| id).collect();
    }

    /// Touches the prefixes of waiting requests, in reverse order, so that the first request's prefix is the most
    /// recent.
    fn refresh(&mut self) {
        if !self.config.rules.refreshes_waiting || self.config.disable_radix_cache || self.waiting.is_empty()
        {
            return;
        }
        self.passes += 1;
        if self.passes % REFRESH_PASSES != 1 {
            return;
        }
        for at in (0..self.waiting.len().min(MATCH_MOST)).rev() {
            let id = self.waiting[at];
            self.find(id, self.known(id));
        }
    }

    /// Records the cached part of a request's first `length` tokens.
    pub(super) fn look(&mut self, id: RequestId, length: u64) {
        let Found { node, length, end, host } = self.find(id, length);
        let r = &mut self.requests[id];
        (r.node, r.found, r.host_end, r.host_hit) = (node, length, end, host);
    }

    /// Finds the cached part of a request's first `length` tokens.
    fn find(&mut self, id: RequestId, length: u64) -> Found {
        let Some(tree) = &self.memory.tree else { return Found::default() };
        // Return early for most prompts, of which not even the first page is cached.
        if self.requests[id].first_page.is_some_and(|first| !tree.begins_with(first)) {
            return Found::default();
        }
        self.trace(id, length);
        self.memory.tree.as_mut().map(|tree| tree.find(&self.path)).unwrap_or_default()
    }
}
