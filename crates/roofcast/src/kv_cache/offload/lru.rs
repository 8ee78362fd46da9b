//! Least-recently-used order by request: chunks of a running request share its rank, and later chunks count as older.
//!
//! Knows: the order of the chunks on the host, held as one list for each rank. A chunk that gets another rank leaves a
//! void entry behind, which the next eviction that reads it removes, so that no operation searches by content. Source:
//! vLLM 0.33, `v1/kv_offload/cpu/policies/lru.py`.

use super::{Chunk, Content};
use std::collections::BTreeMap;

/// Index of a chunk's record here.
pub(super) type Seat = u32;

/// A chunk on the host.
#[derive(Debug, Clone, Copy)]
struct Record {
    content: Content,
    rank: u64,
    /// Number of changes of rank in this seat; entries with another number are void.
    changes: u32,
    idle: bool,
    /// Number of the last eviction that had to spare the chunk.
    spared: u64,
}

/// Place of a chunk in the list of a rank.
#[derive(Debug, Clone, Copy)]
struct Entry {
    place: u32,
    content: Content,
    seat: Seat,
    changes: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Lru {
    records: Vec<Record>,
    vacant: Vec<Seat>,
    /// Chunks by rank, the oldest rank first; in the list of a rank the oldest chunk is last.
    ranks: BTreeMap<u64, Vec<Entry>>,
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
        let seats: Vec<Seat> = chunks.iter().map(|(_, content)| self.seat(*content)).collect();
        self.enter(rank, chunks.iter().zip(&seats).map(|((place, _), seat)| (*place, *seat)));
        seats
    }

    fn seat(&mut self, content: Content) -> Seat {
        let Some(seat) = self.vacant.pop() else {
            self.records.push(Record { content, rank: 0, changes: 0, idle: false, spared: 0 });
            return self.records.len() as Seat - 1;
        };
        self.records[seat as usize].content = content;
        seat
    }

    /// Gives chunks that a request uses for the first time the request's rank, unless theirs is newer.
    pub(super) fn access(&mut self, request: u64, chunks: impl Iterator<Item = (u32, Seat)>) {
        let rank = self.rank(request);
        let older: Vec<(u32, Seat)> =
            chunks.filter(|(_, seat)| self.records[*seat as usize].rank < rank).collect();
        self.enter(rank, older.into_iter());
    }

    /// Moves chunks to the list of `rank`, where a later place is older, and among equal places the lesser content.
    fn enter(&mut self, rank: u64, chunks: impl Iterator<Item = (u32, Seat)>) {
        let mut list = self.ranks.remove(&rank).unwrap_or_default();
        for (place, seat) in chunks {
            let entry = self.renew(rank, place, seat);
            let precedes = |e: &Entry| e.place < place || e.place == place && e.content > entry.content;
            let at =
                if list.last().is_none_or(precedes) { list.len() } else { list.partition_point(precedes) };
            list.insert(at, entry);
        }
        if !list.is_empty() {
            self.ranks.insert(rank, list);
        }
    }

    fn renew(&mut self, rank: u64, place: u32, seat: Seat) -> Entry {
        let record = &mut self.records[seat as usize];
        record.rank = rank;
        record.changes = record.changes.wrapping_add(1);
        Entry { place, content: record.content, seat, changes: record.changes }
    }

    /// Ends a request: its `chunks`, sorted, become the newest, the first of them newest of all.
    pub(super) fn end(&mut self, request: u64, chunks: impl Iterator<Item = (u32, Seat)>) {
        if let Some(rank) = self.requests.remove(&request) {
            self.ranks.remove(&rank);
        }
        self.newest += 1;
        let rank = self.newest;
        let list: Vec<Entry> = chunks.map(|(place, seat)| self.renew(rank, place, seat)).collect();
        if !list.is_empty() {
            self.ranks.insert(rank, list);
        }
    }

    /// Sets whether a chunk may be evicted.
    pub(super) fn set_idle(&mut self, seat: Seat, idle: bool) {
        self.records[seat as usize].idle = idle;
    }

    /// Evicts the `count` oldest idle chunks that are not in `spared`; `None`, and no change, if there are fewer.
    pub(super) fn evict(&mut self, count: usize, spared: &[Seat]) -> Option<Vec<Content>> {
        self.evictions += 1;
        for seat in spared {
            self.records[*seat as usize].spared = self.evictions;
        }
        let (mut chosen, mut read) = (Vec::with_capacity(count), Vec::new());
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
                let record = &self.records[entry.seat as usize];
                if record.changes == entry.changes && record.idle && record.spared != self.evictions {
                    chosen.push(entry.seat);
                }
            }
            read.push((*rank, entries));
        }
        if chosen.len() < count {
            return None;
        }
        let evicted = chosen.iter().map(|seat| self.records[*seat as usize].content).collect();
        for seat in chosen {
            let record = &mut self.records[seat as usize];
            record.changes = record.changes.wrapping_add(1);
            record.idle = false;
            self.vacant.push(seat);
        }
        for (rank, entries) in read {
            self.drop_void(rank, entries);
        }
        Some(evicted)
    }

    /// Removes the void ones of the last `entries` entries of a list, and the list if nothing is left.
    fn drop_void(&mut self, rank: u64, entries: usize) {
        let Some(list) = self.ranks.get_mut(&rank) else { return };
        let tail = list.split_off(list.len() - entries);
        list.extend(tail.iter().filter(|e| self.records[e.seat as usize].changes == e.changes));
        if list.is_empty() {
            self.ranks.remove(&rank);
        }
    }
}
