//! Adaptive replacement (ARC): recent chunks (T1), frequent chunks (T2), and lists of chunks recently evicted from
//! each (ghosts, B1 and B2), whose hits move the target size of T1.
//!
//! Source: vLLM 0.33, `v1/kv_offload/cpu/policies/arc.py`.

use super::Name;
use crate::kv_cache::recency::Recency;
use std::collections::{BTreeMap, BTreeSet};

/// Contents of one request.
#[derive(Debug, Clone, Default)]
struct Use {
    inserted: BTreeSet<Name>,
    reused: BTreeSet<Name>,
    missed: BTreeSet<Name>,
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
    idle: BTreeSet<Name>,
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
            idle: BTreeSet::new(),
            uses: BTreeMap::new(),
        }
    }

    /// Names of the listed chunks and of those that requests use.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        let lists = [&self.recent, &self.frequent, &self.recent_ghosts, &self.frequent_ghosts];
        let used = self.uses.values().flat_map(|used| [&used.inserted, &used.reused, &used.missed]);
        lists.into_iter().flat_map(Recency::iter).chain(used.flatten().copied())
    }

    /// Adds a chunk that a request stores; it is not idle yet.
    pub(super) fn insert(&mut self, request: u64, content: Name) {
        self.uses.entry(request).or_default().inserted.insert(content);
        self.recent.push(content);
        self.recent_ghosts.remove(content);
        self.frequent_ghosts.remove(content);
    }

    /// Sets whether a chunk may be evicted.
    pub(super) fn set_idle(&mut self, content: Name, idle: bool) {
        if idle {
            self.idle.insert(content);
        } else {
            self.idle.remove(&content);
        }
    }

    /// Records ready chunks that a request uses and did not store.
    pub(super) fn reused(&mut self, request: u64, contents: impl Iterator<Item = Name>) {
        let Use { inserted, reused, .. } = self.uses.entry(request).or_default();
        reused.extend(contents.filter(|content| !inserted.contains(content)));
    }

    /// Moves the target size of T1 by each of `contents` that is a ghost and that the request misses for the first
    /// time, from the last to the first.
    pub(super) fn missed(&mut self, request: u64, contents: impl Iterator<Item = Name>) {
        let missed = &mut self.uses.entry(request).or_default().missed;
        let new: Vec<Name> = contents.filter(|content| missed.insert(*content)).collect();
        for content in new.into_iter().rev() {
            let recent = self.recent_ghosts.len() as f64;
            let frequent = self.frequent_ghosts.len() as f64;
            if self.recent_ghosts.has(content) {
                self.target = (self.target + (frequent / recent).max(1.0)).min(self.capacity as f64);
                self.recent_ghosts.push(content);
            } else if self.frequent_ghosts.has(content) {
                self.target = (self.target - (recent / frequent).max(1.0)).max(0.0);
                self.frequent_ghosts.push(content);
            }
        }
    }

    /// Ends a request: chunks that the request only stored stay in their list, chunks that it reused become frequent.
    /// `order` is the order in which they become the newest of their list.
    pub(super) fn end(&mut self, request: u64, order: impl Iterator<Item = Name>) {
        let Use { inserted, reused, .. } = self.uses.remove(&request).unwrap_or_default();
        for content in order {
            let reused = reused.contains(&content);
            if inserted.contains(&content) && !reused {
                if self.recent.has(content) {
                    self.recent.push(content);
                } else if self.frequent.has(content) {
                    self.frequent.push(content);
                }
            } else if reused && (self.recent.remove(content) || self.frequent.has(content)) {
                self.frequent.push(content);
            }
        }
    }

    /// Evicts `count` idle chunks that are not in `offered`; `None`, and no change, if there are fewer.
    pub(super) fn evict(&mut self, count: usize, offered: impl Iterator<Item = Name>) -> Option<Vec<Name>> {
        let offered: BTreeSet<Name> = offered.collect();
        let may_go = |content: &Name| self.idle.contains(content) && !offered.contains(content);
        let mut recent = self.recent.iter().filter(may_go);
        let mut frequent = self.frequent.iter().filter(may_go);
        let mut size = self.recent.len();
        let mut chosen = Vec::new();
        for _ in 0..count {
            let mut next = None;
            if size >= self.target as usize {
                next = recent.next().map(|content| (content, true));
            }
            let next = next
                .or_else(|| frequent.next().map(|content| (content, false)))
                .or_else(|| recent.next().map(|content| (content, true)))?;
            size -= usize::from(next.1);
            chosen.push(next);
        }
        drop((recent, frequent));
        for (content, from_recent) in &chosen {
            self.idle.remove(content);
            if *from_recent {
                self.recent.remove(*content);
                self.recent_ghosts.push(*content);
            } else {
                self.frequent.remove(*content);
                self.frequent_ghosts.push(*content);
            }
        }
        self.recent_ghosts.forget_beyond(self.capacity);
        self.frequent_ghosts.forget_beyond(self.capacity);
        Some(chosen.into_iter().map(|(content, _)| content).collect())
    }
}
