//! Least-recently-used order by request: chunks of a running request share its rank, and later chunks count as older.
//!
//! Knows: the order of the idle chunks on the host, held as one list for each rank. A chunk that is pinned or gets
//! another rank leaves a void entry behind, which is removed when an eviction reads it or the list would grow, so that no
//! operation searches by content. Source: vLLM 0.33, `v1/kv_offload/cpu/policies/lru.py`.

use super::{Chunk, Name};
use std::collections::BTreeMap;

/// Index of a chunk's record here.
pub(super) type Seat = u32;

/// A chunk on the host.
#[derive(Debug, Clone, Copy)]
struct Record {
    content: Name,
    rank: u64,
    place: u32,
    /// Number of entries that the chunks of this record had; all but the last one are void.
    entries: u32,
    idle: bool,
    /// Number of the last eviction that had to spare the chunk.
    spared: u64,
}

/// An idle chunk in the list of its rank.
#[derive(Debug, Clone, Copy)]
struct Entry {
    place: u32,
    content: Name,
    seat: Seat,
    /// The record's number of entries when this one was made.
    number: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Lru {
    records: Vec<Record>,
    vacant: Vec<Seat>,
    /// Idle chunks by rank, the oldest rank first; in the list of a rank the oldest chunk is last.
    ranks: BTreeMap<u64, Vec<Entry>>,
    /// The rank to which entries were added last, with its list, which is not in `ranks` meanwhile.
    open: (u64, Vec<Entry>),
    /// Ranks of requests that have not ended.
    requests: BTreeMap<u64, u64>,
    newest: u64,
    evictions: u64,
}

impl Lru {
    fn rank(&mut self, request: u64) -> u64 {
        *self.requests.entry(request).or_insert_with(|| {
            self.newest += 1;
            self.newest
        })
    }

    /// Adds chunks, which are not idle yet, with the rank of their request.
    pub(super) fn insert(&mut self, request: u64, chunks: &[Chunk]) -> Vec<Seat> {
        let rank = self.rank(request);
        let seat = |&(place, content): &Chunk| {
            let seat = self.vacant.pop().unwrap_or(self.records.len() as Seat);
            let entries = self.records.get(seat as usize).map_or(0, |record| record.entries);
            let record = Record { content, rank, place, entries, idle: false, spared: 0 };
            match self.records.get_mut(seat as usize) {
                Some(vacant) => *vacant = record,
                None => self.records.push(record),
            }
            seat
        };
        chunks.iter().map(seat).collect()
    }

    /// Gives chunks that a request uses for the first time the request's rank, unless theirs is newer.
    pub(super) fn access(&mut self, request: u64, chunks: impl Iterator<Item = (u32, Seat)>) {
        let rank = self.rank(request);
        for (place, seat) in chunks {
            if self.records[seat as usize].rank < rank {
                self.renew(rank, place, seat);
            }
        }
    }

    /// Ends a request: its `chunks`, sorted, become the newest, the first of them newest of all.
    pub(super) fn end(&mut self, request: u64, chunks: impl Iterator<Item = Seat>) {
        self.requests.remove(&request);
        self.newest += 1;
        let rank = self.newest;
        chunks.zip(0..).for_each(|(seat, place)| self.renew(rank, place, seat));
    }

    fn renew(&mut self, rank: u64, place: u32, seat: Seat) {
        let record = &mut self.records[seat as usize];
        (record.rank, record.place) = (rank, place);
        if record.idle {
            self.enter(seat);
        }
    }

    /// Sets whether a chunk may be evicted.
    pub(super) fn set_idle(&mut self, seat: Seat, idle: bool) {
        self.records[seat as usize].idle = idle;
        if idle {
            self.enter(seat);
        }
    }

    /// Adds a chunk to the list of its rank, where a later place is older, and among equal places the lesser content.
    fn enter(&mut self, seat: Seat) {
        let record = &mut self.records[seat as usize];
        record.entries = record.entries.wrapping_add(1);
        let Record { content, rank, place, entries: number, .. } = *record;
        if self.open.0 != rank {
            self.close();
            self.open = (rank, self.ranks.remove(&rank).unwrap_or_default());
        }
        let list = &mut self.open.1;
        if list.len() == list.capacity() {
            list.retain(|entry| entry.is_valid(&self.records));
        }
        let precedes = |e: &Entry| e.place < place || e.place == place && e.content > content;
        let at = if list.last().is_none_or(precedes) { list.len() } else { list.partition_point(precedes) };
        list.insert(at, Entry { place, content, seat, number });
    }

    /// Returns the open list to its place.
    fn close(&mut self) {
        let (rank, list) = std::mem::take(&mut self.open);
        if !list.is_empty() {
            self.ranks.insert(rank, list);
        }
    }

    /// Evicts the `count` oldest idle chunks that are not in `spared`; `None`, and no change, if there are fewer.
    pub(super) fn evict(&mut self, count: usize, spared: &[Seat]) -> Option<Vec<Name>> {
        self.close();
        self.evictions += 1;
        for seat in spared {
            self.records[*seat as usize].spared = self.evictions;
        }
        let mut chosen = Vec::with_capacity(count);
        let mut read = Vec::new();
        for (rank, list) in &self.ranks {
            if chosen.len() == count {
                break;
            }
            let mut entries = 0;
            for entry in list.iter().rev() {
                if chosen.len() == count {
                    break;
                }
                entries += 1;
                let is_spared = self.records[entry.seat as usize].spared == self.evictions;
                if entry.is_valid(&self.records) && !is_spared {
                    chosen.push(entry.seat);
                }
            }
            read.push((*rank, entries));
        }
        if chosen.len() < count {
            return None;
        }
        for seat in &chosen {
            self.records[*seat as usize].idle = false;
        }
        for (rank, entries) in read {
            self.drop_void(rank, entries);
        }
        let evicted = chosen.iter().map(|seat| self.records[*seat as usize].content).collect();
        self.vacant.extend(chosen);
        Some(evicted)
    }

    /// Removes the void ones of the last `entries` entries of a list, and the list if nothing is left.
    fn drop_void(&mut self, rank: u64, entries: usize) {
        let Some(list) = self.ranks.get_mut(&rank) else { return };
        let tail = list.split_off(list.len() - entries);
        list.extend(tail.iter().filter(|entry| entry.is_valid(&self.records)));
        if list.is_empty() {
            self.ranks.remove(&rank);
        }
    }
}

impl Entry {
    /// True if the chunk is idle and has had no other entry since.
    fn is_valid(&self, records: &[Record]) -> bool {
        let record = &records[self.seat as usize];
        record.idle && record.entries == self.number
    }
}
