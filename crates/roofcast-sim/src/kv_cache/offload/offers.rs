//! Numbers of offers of chunks to the host, for tiers that store a chunk only after several offers.
//!
//! Knows: when the table is full, the least recently offered content is forgotten. Knows nothing about what is stored.
//! Source: vLLM 0.33, `v1/kv_offload/cpu/manager.py`.

use crate::kv_cache::names::Name;
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of contents whose offers are counted: vLLM's `max_tracker_size`.
const TRACKED: usize = 64_000;

/// Numbers of offers by content.
#[derive(Debug, Clone, Default)]
pub(super) struct Offers {
    counts: BTreeMap<Name, (u32, u64)>,
    order: BTreeMap<u64, Name>,
    now: u64,
}

impl Offers {
    pub(super) fn of(&self, content: Name) -> u32 {
        self.counts.get(&content).map_or(0, |(count, _)| *count)
    }

    /// Names of the counted contents.
    pub(super) fn names(&self) -> impl Iterator<Item = Range<Name>> {
        self.counts.keys().map(|name| *name..name + 1)
    }

    pub(super) fn count(&mut self, contents: impl Iterator<Item = Name> + Clone) {
        let mut listed = 0;
        for content in contents.clone() {
            if let Some((count, at)) = self.counts.get_mut(&content) {
                *count += 1;
                self.now += 1;
                self.order.remove(at);
                *at = self.now;
                self.order.insert(self.now, content);
                listed += 1;
            }
        }
        let mut others = self.counts.len().saturating_sub(listed);
        for content in contents {
            if self.counts.contains_key(&content) {
                continue;
            }
            if self.counts.len() >= TRACKED {
                let Some((_, oldest)) = (others > 0).then(|| self.order.pop_first()).flatten() else {
                    continue;
                };
                self.counts.remove(&oldest);
                others -= 1;
            }
            self.now += 1;
            self.counts.insert(content, (1, self.now));
            self.order.insert(self.now, content);
        }
    }
}
