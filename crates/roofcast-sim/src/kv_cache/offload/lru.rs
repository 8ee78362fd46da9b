//! Least-recently-used order by request: chunks of a running request share its rank, and later chunks count as older.
//!
//! Knows: the rank of each chunk, and for each rank its chunks in the order of their places, as ranges. A chunk that gets
//! another rank or leaves the host stays in the list of its former rank, where an eviction passes over it. Source: vLLM
//! 0.33, `v1/kv_offload/cpu/policies/lru.py`.

use super::Chunks;
use crate::kv_cache::names::{Name, index};
use crate::kv_cache::spans::{overlap, runs};
use std::collections::BTreeMap;
use std::ops::Range;

/// Rank of a content without one.
const UNRANKED: u32 = 0;

/// Chunks with consecutive places in the list of a rank.
#[derive(Debug, Clone)]
struct Entry {
    place: u32,
    names: Range<Name>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Lru {
    /// Rank of each content.
    rank_of: Vec<u32>,
    /// Chunks by rank, the oldest rank first; in the list of a rank the oldest chunk is last.
    ranks: BTreeMap<u32, Vec<Entry>>,
    /// Ranks of requests that have not ended.
    requests: BTreeMap<u64, u32>,
    newest: u32,
    /// Number of entries that were added since the last time that all were checked, and number that were left then.
    added: usize,
    kept: usize,
}

impl Lru {
    fn rank(&mut self, request: u64) -> u32 {
        *self.requests.entry(request).or_insert_with(|| {
            self.newest += 1;
            self.newest
        })
    }

    /// Adds chunks with the rank of their request.
    pub(super) fn insert(&mut self, request: u64, chunks: &[Chunks]) {
        let rank = self.rank(request);
        for Chunks { first, names, .. } in chunks {
            self.enter(rank, *first, names.clone());
        }
    }

    /// Gives chunks that a request uses for the first time the request's rank, unless theirs is newer.
    pub(super) fn access(&mut self, request: u64, first: u32, names: Range<Name>) {
        let rank = self.rank(request);
        let ranks = &self.rank_of[index(names.start)..index(names.start) + names.len()];
        for part in runs(ranks, names.start, |of| of < rank) {
            self.enter(rank, first + (part.start - names.start), part);
        }
    }

    /// Ends a request: its `chunks`, in order, become the newest, the first of them newest of all.
    pub(super) fn end(&mut self, request: u64, chunks: &[Chunks], pins: &[u32]) {
        if let Some(rank) = self.requests.remove(&request) {
            // Every chunk with the request's rank is one that it has used.
            self.ranks.remove(&rank);
        }
        self.newest += 1;
        let rank = self.newest;
        for Chunks { first, names, .. } in chunks {
            let from = index(names.start).min(pins.len());
            let known = &pins[from..(from + names.len()).min(pins.len())];
            for part in runs(known, names.start, |pins| pins != super::ABSENT) {
                self.enter(rank, first + (part.start - names.start), part);
            }
        }
        self.drop_void();
    }

    /// Adds chunks to the list of a rank, where a later place is older, and among equal places the lesser content.
    fn enter(&mut self, rank: u32, place: u32, names: Range<Name>) {
        let end = index(names.start) + names.len();
        if self.rank_of.len() < end {
            self.rank_of.resize(end, UNRANKED);
        }
        self.rank_of[index(names.start)..end].fill(rank);
        let list = self.ranks.entry(rank).or_default();
        let behind = |entry: &Entry| entry.place + entry.names.len() as u32;
        let follows = list.last().is_none_or(|last| behind(last) <= place);
        match list.last_mut().filter(|last| behind(last) == place && last.names.end == names.start) {
            Some(last) => last.names.end = names.end,
            None => {
                list.push(Entry { place, names });
                self.added += 1;
            }
        }
        if !follows {
            sort(list, |name| self.rank_of[index(name)] == rank);
        }
    }

    /// Evicts the `count` oldest idle chunks that are not offered; `None`, and no change, if there are fewer.
    pub(super) fn evict(
        &mut self,
        count: usize,
        pins: &[u32],
        offered: &[Chunks],
    ) -> Option<Vec<Range<Name>>> {
        let Lru { rank_of, ranks, .. } = self;
        let mut chosen: Vec<(u32, Range<Name>)> = Vec::new();
        let mut left = count;
        let mut last = 0;
        'ranks: for (rank, list) in ranks.iter() {
            last = *rank;
            for Entry { names, .. } in list.iter().rev() {
                let spared = offered.iter().any(|chunks| overlap(&chunks.names, names));
                let spares = |name: Name| spared && offered.iter().any(|chunks| chunks.names.contains(&name));
                let from = index(names.start);
                let mut end = names.end;
                while end > names.start && left > 0 {
                    let to = from + (end - names.start) as usize;
                    let oldest = rank_of[from..to].iter().zip(&pins[from..to]).rev().take(left);
                    let goes = oldest.take_while(|(of, pins)| *of == rank && **pins == 0).count();
                    let goes = if spared {
                        (end - goes as Name..end).rev().take_while(|name| !spares(*name)).count()
                    } else {
                        goes
                    };
                    if goes == 0 {
                        end -= 1;
                        continue;
                    }
                    rank_of[to - goes..to].fill(UNRANKED);
                    let start = end - goes as Name;
                    match chosen.last_mut().filter(|(of, names)| of == rank && names.start == end) {
                        Some((_, names)) => names.start = start,
                        None => chosen.push((*rank, start..end)),
                    }
                    left -= goes;
                    end = start;
                }
                if left == 0 {
                    break 'ranks;
                }
            }
        }
        if left > 0 {
            for (rank, names) in chosen {
                names.for_each(|name| rank_of[index(name)] = rank);
            }
            return None;
        }
        self.trim(last);
        Some(chosen.into_iter().map(|(_, names)| names).collect())
    }

    /// Removes the void chunks at the ends of the lists of all ranks up to `last`.
    fn trim(&mut self, last: u32) {
        let rank_of = &self.rank_of;
        for (rank, list) in self.ranks.range_mut(..=last) {
            while let Some(Entry { names, .. }) = list.last_mut() {
                while !Range::is_empty(names) && rank_of[index(names.end - 1)] != *rank {
                    names.end -= 1;
                }
                if !Range::is_empty(names) {
                    break;
                }
                list.pop();
            }
        }
        while self.ranks.first_key_value().is_some_and(|(_, list)| list.is_empty()) {
            self.ranks.pop_first();
        }
    }

    /// Removes entries without a chunk of their rank, once there are many entries.
    fn drop_void(&mut self) {
        if self.added <= self.kept + 64 {
            return;
        }
        let rank_of = &self.rank_of;
        self.ranks.retain(|rank, list| {
            list.retain(|Entry { names, .. }| names.clone().any(|name| rank_of[index(name)] == *rank));
            !list.is_empty()
        });
        self.kept = self.ranks.values().map(Vec::len).sum();
        self.added = 0;
    }
}

/// Sorts the chunks of a list for which `is_in` is true.
fn sort(list: &mut Vec<Entry>, is_in: impl Fn(Name) -> bool) {
    let all = list.drain(..).flat_map(|Entry { place, names }| (place..).zip(names));
    let mut all: Vec<(u32, Name)> = all.filter(|(_, name)| is_in(*name)).collect();
    all.sort_unstable_by_key(|(place, name)| (*place, std::cmp::Reverse(*name)));
    all.dedup();
    for (place, name) in all {
        let behind =
            |last: &&mut Entry| last.place + last.names.len() as u32 == place && last.names.end == name;
        match list.last_mut().filter(behind) {
            Some(last) => last.names.end += 1,
            None => list.push(Entry { place, names: name..name + 1 }),
        }
    }
}
