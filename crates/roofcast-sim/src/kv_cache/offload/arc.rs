//! Adaptive replacement (ARC): recent chunks (T1), frequent chunks (T2), and lists of chunks recently evicted from
//! each (ghosts, B1 and B2), whose hits move the target size of T1.
//!
//! Source: vLLM 0.33, `v1/kv_offload/cpu/policies/arc.py`.

use super::Chunks;
use crate::kv_cache::names::{Name, index};
use crate::kv_cache::recency::Recency;
use crate::kv_cache::spans::Ranges;
use std::collections::BTreeMap;
use std::ops::Range;

/// Contents of one request.
#[derive(Debug, Clone, Default)]
struct Use {
    inserted: Ranges,
    reused: Ranges,
    missed: Ranges,
}

#[derive(Debug, Clone)]
pub(super) struct Arc {
    capacity: usize,
    /// Target number of chunks in T1.
    target: f64,
    recent: Recency,
    frequent: Recency,
    recent_ghosts: Recency,
    frequent_ghosts: Recency,
    uses: BTreeMap<u64, Use>,
}

impl Arc {
    pub(super) fn new(capacity: usize) -> Arc {
        Arc {
            capacity,
            target: 0.0,
            recent: Recency::default(),
            frequent: Recency::default(),
            recent_ghosts: Recency::default(),
            frequent_ghosts: Recency::default(),
            uses: BTreeMap::new(),
        }
    }

    /// Names of the listed chunks and of those that requests use.
    pub(super) fn names(&self) -> impl Iterator<Item = Range<Name>> {
        let lists = [&self.recent, &self.frequent, &self.recent_ghosts, &self.frequent_ghosts];
        let used = self.uses.values().flat_map(|used| [&used.inserted, &used.reused, &used.missed]);
        let listed = lists.into_iter().flat_map(Recency::iter).map(|name| name..name + 1);
        listed.chain(used.flat_map(Ranges::ranges))
    }

    /// Adds chunks that a request stores.
    pub(super) fn insert(&mut self, request: u64, names: Range<Name>) {
        self.uses.entry(request).or_default().inserted.add(names.clone());
        for name in names {
            self.recent.push(name);
            self.recent_ghosts.remove(name);
            self.frequent_ghosts.remove(name);
        }
    }

    /// Records ready chunks that a request uses and did not store.
    pub(super) fn reused(&mut self, request: u64, names: Range<Name>) {
        let Use { inserted, reused, .. } = self.uses.entry(request).or_default();
        for name in names.filter(|name| !inserted.has(*name)) {
            reused.add(name..name + 1);
        }
    }

    /// Moves the target size of T1 by each of `names` that is a ghost and that the request misses for the first time,
    /// from the last to the first.
    pub(super) fn missed(&mut self, request: u64, names: Range<Name>) {
        let new = self.uses.entry(request).or_default().missed.add(names);
        for name in new.into_iter().rev().flat_map(Iterator::rev) {
            let recent = self.recent_ghosts.len() as f64;
            let frequent = self.frequent_ghosts.len() as f64;
            if self.recent_ghosts.has(name) {
                self.target = (self.target + (frequent / recent).max(1.0)).min(self.capacity as f64);
                self.recent_ghosts.push(name);
            } else if self.frequent_ghosts.has(name) {
                self.target = (self.target - (recent / frequent).max(1.0)).max(0.0);
                self.frequent_ghosts.push(name);
            }
        }
    }

    /// Ends a request: chunks that the request only stored stay in their list, chunks that it reused become frequent.
    /// The first of its `chunks` becomes the newest of its list.
    pub(super) fn end(&mut self, request: u64, chunks: &[Chunks]) {
        let Use { inserted, reused, .. } = self.uses.remove(&request).unwrap_or_default();
        for name in chunks.iter().rev().flat_map(|chunks| chunks.names.clone().rev()) {
            let reused = reused.has(name);
            if inserted.has(name) && !reused {
                if self.recent.has(name) {
                    self.recent.push(name);
                } else if self.frequent.has(name) {
                    self.frequent.push(name);
                }
            } else if reused && (self.recent.remove(name) || self.frequent.has(name)) {
                self.frequent.push(name);
            }
        }
    }

    /// Evicts `count` idle chunks that are not offered; `None`, and no change, if there are fewer.
    pub(super) fn evict(
        &mut self,
        count: usize,
        pins: &[u32],
        offered: &[Chunks],
    ) -> Option<Vec<Range<Name>>> {
        let may_go = |name: &Name| {
            pins[index(*name)] == 0 && !offered.iter().any(|chunks| chunks.names.contains(name))
        };
        let mut recent = self.recent.iter().filter(may_go);
        let mut frequent = self.frequent.iter().filter(may_go);
        let mut size = self.recent.len();
        let mut chosen = Vec::new();
        for _ in 0..count {
            let mut next = None;
            if size >= self.target as usize {
                next = recent.next().map(|name| (name, true));
            }
            let next = next
                .or_else(|| frequent.next().map(|name| (name, false)))
                .or_else(|| recent.next().map(|name| (name, true)))?;
            size -= usize::from(next.1);
            chosen.push(next);
        }
        drop((recent, frequent));
        let mut evicted: Vec<Range<Name>> = Vec::new();
        for (name, from_recent) in chosen {
            let (list, ghosts) = match from_recent {
                true => (&mut self.recent, &mut self.recent_ghosts),
                false => (&mut self.frequent, &mut self.frequent_ghosts),
            };
            list.remove(name);
            ghosts.push(name);
            match evicted.last_mut().filter(|names| names.start == name + 1) {
                Some(names) => names.start = name,
                None => evicted.push(name..name + 1),
            }
        }
        self.recent_ghosts.forget_beyond(self.capacity);
        self.frequent_ghosts.forget_beyond(self.capacity);
        Some(evicted)
    }
}
