//! Host memory as managed by vLLM's offloading connector: chunks of blocks, identified by their contents, that
//! requests load and store.
//!
//! Knows: chunks that are resident, in transfer, or pinned by loads; the offers of a request, the number of offers
//! before a chunk is stored, and the order of chunks when a request ends. Chunks that follow each other in a request are
//! handled together. Source: vLLM 0.33, `v1/kv_offload/cpu/manager.py`. Does not know: the tokens of a chunk, the blocks
//! of the device, storage below host memory, or time.

mod arc;
mod lru;
mod offers;

use super::names::{Name, index};
use super::spans::{Ranges, runs};
use arc::Arc;
use lru::Lru;
use offers::Offers;
use roofcast_ask::spec::EvictionPolicy;
use std::collections::BTreeMap;
use std::ops::Range;

/// Chunks of a request that follow each other, in one group of layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// Number of the group.
    pub group: usize,
    /// Index of the first chunk among the request's chunks.
    pub first: u32,
    /// Contents of the chunks.
    pub names: Range<Name>,
}

/// State of a chunk on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    /// Not on the host.
    Absent,
    /// In transfer from the device.
    Storing,
    /// Ready to be loaded.
    Ready,
}

impl Residence {
    fn of(pins: u32) -> Residence {
        match pins {
            ABSENT => Residence::Absent,
            STORING => Residence::Storing,
            _ => Residence::Ready,
        }
    }
}

/// Result of an offer of chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Chunks that will be copied to the host.
    pub(crate) stored: Vec<Chunks>,
    /// Contents that were evicted to make room, in order of eviction, each range from its end.
    pub(crate) evicted: Vec<Range<Name>>,
}

#[derive(Debug, Clone)]
enum Policy {
    Lru(Lru),
    Arc(Box<Arc>),
}

/// [`Offload::pins`] of a content that is not on the host, and of one in transfer from the device.
const ABSENT: u32 = u32::MAX;
const STORING: u32 = u32::MAX - 1;

/// Host tier of the KV cache.
#[derive(Debug, Clone)]
pub(crate) struct Offload {
    capacity: usize,
    /// Number of offers of a chunk at which it is stored; values below 2 store it at the first.
    store_threshold: u32,
    /// For each content, the number of loads that pin it, or a state.
    pins: Vec<u32>,
    policy: Policy,
    resident: usize,
    idle: usize,
    storing: usize,
    /// Number of evicted chunks.
    evicted: u64,
    offers: Offers,
    /// Indices of the chunks that each request has used, for each group of layers.
    uses: BTreeMap<u64, Vec<Ranges>>,
}

impl Offload {
    /// Creates an empty tier of `capacity` chunks.
    pub(crate) fn new(capacity: usize, policy: EvictionPolicy, store_threshold: u32) -> Offload {
        let policy = match policy {
            EvictionPolicy::Lru => Policy::Lru(Lru::default()),
            EvictionPolicy::Arc => Policy::Arc(Box::new(Arc::new(capacity))),
        };
        Offload {
            capacity,
            store_threshold,
            pins: Vec::new(),
            policy,
            resident: 0,
            idle: 0,
            storing: 0,
            evicted: 0,
            offers: Offers::default(),
            uses: BTreeMap::new(),
        }
    }

    /// Numbers of chunks that are resident, idle, and in transfer from the device.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.resident, self.idle, self.storing].map(|count| count as u64)
    }

    /// Number of chunks that were evicted so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// State of a chunk.
    pub(crate) fn residence(&self, content: Name) -> Residence {
        self.pins.get(index(content)).map_or(Residence::Absent, |pins| Residence::of(*pins))
    }

    /// Consecutive contents in parts of equal state.
    fn parts(&self, names: &Range<Name>) -> Vec<(Range<Name>, Residence)> {
        let from = index(names.start).min(self.pins.len());
        let mut known = &self.pins[from..(from + names.len()).min(self.pins.len())];
        let mut parts: Vec<(Range<Name>, Residence)> = Vec::new();
        let mut at = names.start;
        while let Some(first) = known.first() {
            let state = Residence::of(*first);
            let count = known.iter().take_while(|pins| Residence::of(**pins) == state).count();
            parts.push((at..at + count as Name, state));
            at += count as Name;
            known = &known[count..];
        }
        if at < names.end {
            parts.push((at..names.end, Residence::Absent));
        }
        parts
    }

    /// Pins ready chunks while a request loads them.
    pub(crate) fn load(&mut self, request: u64, chunks: &[Chunks]) {
        self.pin(chunks.iter().map(|chunks| chunks.names.clone()));
        if let Policy::Arc(arc) = &mut self.policy {
            chunks.iter().for_each(|chunks| arc.reused(request, chunks.names.clone()));
        }
        chunks.iter().for_each(|chunks| self.record(request, chunks, true));
    }

    fn pins_of(&mut self, names: &Range<Name>) -> &mut [u32] {
        let from = index(names.start).min(self.pins.len());
        let to = (from + names.len()).min(self.pins.len());
        &mut self.pins[from..to]
    }

    /// Pins ready chunks while they are read; their order of use is unchanged.
    pub(crate) fn pin(&mut self, contents: impl Iterator<Item = Range<Name>>) {
        for names in contents {
            let ready = self.pins_of(&names).iter_mut().filter(|pins| **pins < STORING);
            let newly = ready.map(|pins| std::mem::replace(pins, *pins + 1)).filter(|pins| *pins == 0);
            self.idle -= newly.count();
        }
    }

    /// Unpins chunks that have been read.
    pub(crate) fn loaded(&mut self, contents: &[Range<Name>]) {
        for names in contents {
            let ready = self.pins_of(names).iter_mut().filter(|pins| **pins < STORING);
            let last = ready.map(|pins| std::mem::replace(pins, *pins - 1)).filter(|pins| *pins == 1);
            self.idle += last.count();
        }
    }

    /// Offers chunks of a request for storage; `None`, and nothing stored, if the missing ones do not all fit.
    pub(crate) fn offer(&mut self, request: u64, offered: &[Chunks]) -> Option<Offer> {
        let counted = self.store_threshold >= 2;
        if counted {
            self.offers.count(offered.iter().flat_map(|chunks| chunks.names.clone()));
        }
        let mut missing: Vec<Chunks> = Vec::new();
        let mut ready: Vec<Chunks> = Vec::new();
        for chunks in offered {
            for (names, state) in self.parts(&chunks.names) {
                let part = |names: Range<Name>| Chunks {
                    first: chunks.first + (names.start - chunks.names.start),
                    names,
                    ..*chunks
                };
                match state {
                    Residence::Storing => {}
                    Residence::Ready => ready.push(part(names)),
                    Residence::Absent if counted => {
                        let enough = names.filter(|name| self.offers.of(*name) >= self.store_threshold);
                        missing.extend(enough.map(|name| part(name..name + 1)));
                    }
                    Residence::Absent => missing.push(part(names)),
                }
            }
        }
        if let Policy::Arc(arc) = &mut self.policy {
            missing.iter().rev().for_each(|chunks| arc.missed(request, chunks.names.clone()));
            ready.iter().for_each(|chunks| arc.reused(request, chunks.names.clone()));
        }
        self.uses.entry(request).or_default();
        missing.iter().for_each(|chunks| self.record(request, chunks, false));
        ready.iter().for_each(|chunks| self.record(request, chunks, true));
        let count = missing.iter().map(|chunks| chunks.names.len()).sum::<usize>();
        let excess = (self.resident + count).saturating_sub(self.capacity);
        if excess > self.idle {
            return None;
        }
        let evicted = match &mut self.policy {
            _ if excess == 0 => Vec::new(),
            Policy::Lru(lru) => lru.evict(excess, &self.pins, offered)?,
            Policy::Arc(arc) => arc.evict(excess, &self.pins, offered)?,
        };
        self.idle -= excess;
        self.evicted += excess as u64;
        self.resident = self.resident + count - excess;
        self.storing += count;
        for names in &evicted {
            self.pins_of(names).fill(ABSENT);
        }
        for Chunks { names, .. } in &missing {
            let end = index(names.start) + names.len();
            if self.pins.len() < end {
                self.pins.resize(end, ABSENT);
            }
            self.pins_of(names).fill(STORING);
        }
        match &mut self.policy {
            Policy::Lru(lru) => lru.insert(request, &missing),
            Policy::Arc(arc) => missing.iter().for_each(|chunks| arc.insert(request, chunks.names.clone())),
        }
        Some(Offer { stored: missing, evicted })
    }

    /// Marks chunks as ready after their transfer from the device.
    pub(crate) fn stored(&mut self, contents: &[Range<Name>]) {
        for names in contents {
            let arrived = self.pins_of(names).iter_mut().filter(|pins| **pins == STORING);
            let arrived = arrived.map(|pins| *pins = 0).count();
            self.storing -= arrived;
            self.idle += arrived;
        }
    }

    /// Ends a request: the chunks that it used become the newest, its first chunk newest of all. `names` gives the
    /// contents of chunks of a group by their indices.
    pub(crate) fn end(&mut self, request: u64, names: impl Fn(usize, Range<u32>) -> Vec<Chunks>) {
        let Some(uses) = self.uses.remove(&request) else { return };
        let used = uses.iter().enumerate().flat_map(|(group, used)| {
            used.ranges().flat_map(|indices| names(group, indices)).collect::<Vec<_>>()
        });
        let used: Vec<Chunks> = used.collect();
        let chunks = if uses.len() > 1 { singly(used) } else { used };
        match &mut self.policy {
            Policy::Lru(lru) => lru.end(request, &chunks, &self.pins),
            Policy::Arc(arc) => arc.end(request, &chunks),
        }
    }

    /// Names of the chunks on the host, and of all others that are remembered.
    pub(crate) fn names(&self) -> impl Iterator<Item = Range<Name>> {
        let resident = runs(&self.pins, 0, |pins| pins != ABSENT).into_iter();
        let arc = match &self.policy {
            Policy::Lru(_) => None,
            Policy::Arc(arc) => Some(arc.names()),
        };
        resident.chain(self.offers.names()).chain(arc.into_iter().flatten())
    }

    /// Records that a request uses chunks; those that are `present` and that it uses for the first time count as
    /// accessed.
    fn record(&mut self, request: u64, chunks: &Chunks, present: bool) {
        let groups = self.uses.entry(request).or_default();
        if groups.len() <= chunks.group {
            groups.resize(chunks.group + 1, Ranges::default());
        }
        let end = chunks.first + chunks.names.len() as u32;
        let new = groups[chunks.group].add(chunks.first..end);
        let Policy::Lru(lru) = &mut self.policy else { return };
        for indices in new.into_iter().filter(|_| present) {
            let start = chunks.names.start + (indices.start - chunks.first);
            lru.access(request, indices.start, start..start + indices.len() as u32);
        }
    }
}

/// Chunks of several groups, one by one in the order of their indices, which are counted anew.
fn singly(chunks: Vec<Chunks>) -> Vec<Chunks> {
    let single = |Chunks { group, first, names }: Chunks| {
        names.zip(first..).map(move |(name, first)| Chunks { group, first, names: name..name + 1 })
    };
    let mut singles: Vec<Chunks> = chunks.into_iter().flat_map(single).collect();
    singles.sort_by_key(|chunk| (chunk.first, chunk.group));
    singles.iter_mut().zip(0..).for_each(|(chunk, at)| chunk.first = at);
    singles
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a list of one range is meant
mod tests {
    use super::*;

    fn chunks(numbers: &[u32]) -> Vec<Chunks> {
        let chunk = |(number, first): (&u32, u32)| Chunks { group: 0, first, names: *number..number + 1 };
        numbers.iter().zip(0..).map(chunk).collect()
    }

    fn names(chunks: &[Chunks]) -> Vec<Range<Name>> {
        chunks.iter().map(|chunks| chunks.names.clone()).collect()
    }

    fn store(tier: &mut Offload, request: u64, numbers: &[u32]) -> Option<Vec<Name>> {
        let offer = tier.offer(request, &chunks(numbers))?;
        tier.stored(&names(&offer.stored));
        Some(offer.evicted.into_iter().flat_map(Iterator::rev).collect())
    }

    /// Ends a request whose chunks are `numbers`.
    fn end(tier: &mut Offload, request: u64, numbers: &[u32]) {
        let all = chunks(numbers);
        tier.end(request, |_, indices| all[indices.start as usize..indices.end as usize].to_vec());
    }

    /// Chunks are as recent as their request, and a request's last chunk is evicted first; pinned chunks stay.
    #[test]
    fn the_oldest_request_loses_its_last_chunk_first() {
        let mut tier = Offload::new(4, EvictionPolicy::Lru, 0);
        assert_eq!(store(&mut tier, 1, &[10, 11]), Some(vec![]));
        assert_eq!(store(&mut tier, 2, &[20, 21]), Some(vec![]));
        end(&mut tier, 1, &[10, 11]);
        end(&mut tier, 2, &[20, 21]);
        assert_eq!(store(&mut tier, 3, &[30]), Some(vec![11]));
        tier.load(4, &chunks(&[10]));
        assert_eq!(tier.counts(), [4, 3, 0]);
        assert_eq!(store(&mut tier, 5, &[50]), Some(vec![21]));
        // At most three chunks are idle, because 10 is pinned.
        assert_eq!(store(&mut tier, 6, &[60, 61, 62, 63]), None);
        tier.loaded(&[10..11]);
        assert_eq!(tier.residence(10), Residence::Ready);
    }

    /// A chunk is stored from its second offer on.
    #[test]
    fn offers_are_counted() {
        let mut tier = Offload::new(4, EvictionPolicy::Lru, 2);
        assert_eq!(tier.offer(1, &chunks(&[10])), Some(Offer::default()));
        let again = tier.offer(2, &chunks(&[10, 11])).unwrap();
        assert_eq!((names(&again.stored), tier.residence(10)), (vec![10..11], Residence::Storing));
    }

    /// A chunk that two requests used outlives chunks that one request used, because it is in the list of frequent
    /// chunks.
    #[test]
    fn arc_keeps_what_is_reused() {
        let mut tier = Offload::new(3, EvictionPolicy::Arc, 0);
        assert_eq!(store(&mut tier, 1, &[10]), Some(vec![]));
        end(&mut tier, 1, &[10]);
        tier.load(2, &chunks(&[10]));
        tier.loaded(&[10..11]);
        end(&mut tier, 2, &[10]);
        for (request, new) in [(3, 30), (4, 40)] {
            assert_eq!(store(&mut tier, request, &[new]), Some(vec![]));
            end(&mut tier, request, &[new]);
        }
        assert_eq!(store(&mut tier, 5, &[50]), Some(vec![30]));
    }

    /// Request 1 stores five chunks of which request 2 stores the first two again after it has been interrupted: they
    /// have the rank of request 2, and the later one of them is evicted first, after the others of request 1.
    #[test]
    fn chunks_keep_the_order_of_their_places() {
        let mut tier = Offload::new(6, EvictionPolicy::Lru, 0);
        let piece = |first: u32, names: Range<Name>| [Chunks { group: 0, first, names }];
        let stored = |tier: &mut Offload, request: u64, chunks: &[Chunks]| {
            let offer = tier.offer(request, chunks).unwrap();
            tier.stored(&names(&offer.stored));
            offer.evicted.into_iter().flat_map(Iterator::rev).collect::<Vec<_>>()
        };
        assert!(stored(&mut tier, 1, &piece(0, 10..15)).is_empty());
        assert!(stored(&mut tier, 2, &piece(2, 22..23)).is_empty());
        // Chunks 10 and 11 are used before chunk 22, which was stored first.
        assert!(stored(&mut tier, 2, &piece(0, 10..12)).is_empty());
        assert_eq!(stored(&mut tier, 3, &piece(0, 30..35)), [14, 13, 12, 22, 11]);
    }
}
