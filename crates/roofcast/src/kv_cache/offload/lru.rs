//! Least-recently-used order by request: chunks of a running request share its rank, and later chunks count as older.
//!
//! Source: vLLM 0.33, `v1/kv_offload/cpu/policies/lru.py`.

use super::{Chunk, Content};
use crate::kv_cache::prefix::ContentMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Age of a chunk as its request's rank (larger is newer) and its place in the request (later is older).
type Rank = (u64, Reverse<u32>);

#[derive(Debug, Clone, Default)]
pub(super) struct Lru {
    ranks: ContentMap<Rank>,
    idle: BTreeSet<(Rank, Content)>,
    requests: BTreeMap<u64, u64>,
    newest: u64,
}

impl Lru {
    fn rank(&mut self, request: u64) -> u64 {
        *self.requests.entry(request).or_insert_with(|| {
            self.newest += 1;
            self.newest
        })
    }

    fn assign(&mut self, content: Content, rank: Rank) {
        let before = self.ranks.insert(content, rank);
        if let Some(before) = before
            && self.idle.remove(&(before, content))
        {
            self.idle.insert((rank, content));
        }
    }

    pub(super) fn insert(&mut self, request: u64, (place, content): Chunk) {
        let rank = self.rank(request);
        self.ranks.insert(content, (rank, Reverse(place)));
    }

    /// Gives chunks that a request uses for the first time the request's rank.
    pub(super) fn access(&mut self, request: u64, chunks: &[Chunk]) {
        let rank = self.rank(request);
        for &(place, content) in chunks {
            let rank = (rank, Reverse(place));
            if self.ranks.get(&content).is_some_and(|before| *before < rank) {
                self.assign(content, rank);
            }
        }
    }

    /// Makes chunks the newest, from the last of `contents` to the first.
    pub(super) fn touch(&mut self, contents: &[Content]) {
        self.renew(contents.iter().rev().copied());
    }

    /// Ends a request: its chunks become the newest, from the last to the first.
    pub(super) fn end(&mut self, request: u64, order: impl Iterator<Item = Content>) {
        self.requests.remove(&request);
        self.renew(order);
    }

    fn renew(&mut self, order: impl Iterator<Item = Content>) {
        for content in order {
            if self.ranks.contains_key(&content) {
                self.newest += 1;
                self.assign(content, (self.newest, Reverse(0)));
            }
        }
    }

    pub(super) fn pinned(&mut self, content: Content) {
        if let Some(rank) = self.ranks.get(&content) {
            self.idle.remove(&(*rank, content));
        }
    }

    pub(super) fn unpinned(&mut self, content: Content) {
        if let Some(rank) = self.ranks.get(&content) {
            self.idle.insert((*rank, content));
        }
    }

    pub(super) fn evict(&mut self, count: usize, offered: &BTreeSet<Content>) -> Option<Vec<Content>> {
        let oldest = self.idle.iter().filter(|(_, content)| !offered.contains(content)).take(count);
        let oldest: Vec<(Rank, Content)> = oldest.copied().collect();
        if oldest.len() < count {
            return None;
        }
        for entry in &oldest {
            self.idle.remove(entry);
            self.ranks.remove(&entry.1);
        }
        Some(oldest.into_iter().map(|(_, content)| content).collect())
    }
}
