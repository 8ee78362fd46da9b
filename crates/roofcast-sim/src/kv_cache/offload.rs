//! Host memory as managed by vLLM's offloading connector: chunks of blocks, identified by their contents, that
//! requests load and store.
//!
//! Knows: chunks that are resident, in transfer, or pinned by loads; the offers of a request, the number of offers
//! before a chunk is stored, and the order of chunks when a request ends. Source: vLLM 0.33,
//! `v1/kv_offload/cpu/manager.py`. Does not know: the tokens of a chunk, the blocks of the device, storage below host
//! memory, or time.

mod arc;
mod lru;

use super::names::{Name, NameMap};
use arc::Arc;
use lru::{Lru, Seat};
use roofcast_ask::spec::EvictionPolicy;
use std::collections::BTreeMap;

/// Number of contents whose offers are counted: vLLM's `max_tracker_size`.
const TRACKED: usize = 64_000;

/// Chunk of a request: its index among the request's chunks, and its content.
pub(crate) type Chunk = (u32, Name);

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

/// Result of an offer of chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Contents that will be copied to the host.
    pub(crate) stored: Vec<Name>,
    /// Contents that were evicted to make room, in order of eviction.
    pub(crate) evicted: Vec<Name>,
}

#[derive(Debug, Clone)]
enum Policy {
    Lru(Lru),
    Arc(Box<Arc>),
}

/// A chunk on the host.
#[derive(Debug, Clone, Copy)]
struct Resident {
    /// Number of loads that pin the chunk; `None` while the chunk is in transfer from the device.
    pins: Option<u32>,
    /// Record of the chunk in the order of use, if that is [`Lru`].
    seat: Seat,
}

/// Host tier of the KV cache.
#[derive(Debug, Clone)]
pub(crate) struct Offload {
    capacity: usize,
    /// Number of offers of a chunk at which it is stored; values below 2 store it at the first.
    store_threshold: u32,
    chunks: NameMap<Resident>,
    policy: Policy,
    idle: usize,
    storing: usize,
    /// Number of evicted chunks.
    evicted: u64,
    offers: Offers,
    /// Chunks that each request has used, sorted.
    uses: BTreeMap<u64, Vec<Chunk>>,
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
            chunks: NameMap::default(),
            policy,
            idle: 0,
            storing: 0,
            evicted: 0,
            offers: Offers::default(),
            uses: BTreeMap::new(),
        }
    }

    /// Numbers of chunks that are resident, idle, and in transfer from the device.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.chunks.len(), self.idle, self.storing].map(|count| count as u64)
    }

    /// Number of chunks that were evicted so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// State of a chunk.
    pub(crate) fn residence(&self, content: Name) -> Residence {
        match self.chunks.get(content) {
            None => Residence::Absent,
            Some(Resident { pins: None, .. }) => Residence::Storing,
            Some(_) => Residence::Ready,
        }
    }

    /// Pins ready chunks while a request loads them.
    pub(crate) fn load(&mut self, request: u64, chunks: &[Chunk]) {
        self.pin(chunks.iter().map(|(_, content)| content));
        let seat = |content: &Name| self.chunks.get(*content).map(|resident| resident.seat);
        let used: Vec<Used> = chunks.iter().map(|chunk| (*chunk, seat(&chunk.1))).collect();
        if let Policy::Arc(arc) = &mut self.policy {
            arc.reused(request, chunks.iter().map(|(_, content)| *content));
        }
        self.record(request, &used);
    }

    /// Pins ready chunks while they are read; their order of use is unchanged.
    pub(crate) fn pin<'a>(&mut self, contents: impl Iterator<Item = &'a Name>) {
        for content in contents {
            if let Some(Resident { pins: Some(pins), seat }) = self.chunks.get_mut(*content) {
                *pins += 1;
                if *pins == 1 {
                    self.idle -= 1;
                    self.policy.set_idle((*content, *seat), false);
                }
            }
        }
    }

    /// Unpins chunks that have been read.
    pub(crate) fn loaded(&mut self, contents: &[Name]) {
        for content in contents {
            if let Some(Resident { pins: Some(pins), seat }) = self.chunks.get_mut(*content) {
                *pins -= 1;
                if *pins == 0 {
                    self.idle += 1;
                    self.policy.set_idle((*content, *seat), true);
                }
            }
        }
    }

    /// Offers chunks of a request for storage; `None`, and nothing stored, if the missing ones do not all fit.
    pub(crate) fn offer(&mut self, request: u64, chunks: &[Chunk]) -> Option<Offer> {
        let counted = self.store_threshold >= 2;
        if counted {
            self.offers.count(chunks.iter().map(|(_, content)| *content));
        }
        let mut missing = Vec::new();
        let mut used = Vec::new();
        let mut present = Vec::new();
        for &chunk in chunks {
            match self.chunks.get(chunk.1) {
                None if counted && self.offers.of(chunk.1) < self.store_threshold => {}
                None => {
                    missing.push(chunk);
                    used.push((chunk, None));
                }
                Some(Resident { pins, seat }) => {
                    present.push(*seat);
                    if pins.is_some() {
                        used.push((chunk, Some(*seat)));
                    }
                }
            }
        }
        if let Policy::Arc(arc) = &mut self.policy {
            arc.missed(request, missing.iter().map(|(_, content)| *content));
            let ready = used.iter().filter(|(_, seat)| seat.is_some());
            arc.reused(request, ready.map(|((_, content), _)| *content));
        }
        self.record(request, &used);
        let excess = (self.chunks.len() + missing.len()).saturating_sub(self.capacity);
        if excess > self.idle {
            return None;
        }
        let evicted = match &mut self.policy {
            _ if excess == 0 => Vec::new(),
            Policy::Lru(lru) => lru.evict(excess, &present)?,
            Policy::Arc(arc) => arc.evict(excess, chunks.iter().map(|(_, content)| *content))?,
        };
        self.idle -= evicted.len();
        self.evicted += evicted.len() as u64;
        for content in &evicted {
            self.chunks.remove(*content);
        }
        let seats = self.policy.insert(request, &missing);
        for ((_, content), seat) in missing.iter().zip(seats) {
            self.chunks.insert(*content, Resident { pins: None, seat });
        }
        self.storing += missing.len();
        let stored = missing.into_iter().map(|(_, content)| content).collect();
        Some(Offer { stored, evicted })
    }

    /// Marks chunks as ready after their transfer from the device.
    pub(crate) fn stored(&mut self, contents: &[Name]) {
        for content in contents {
            if let Some(Resident { pins: pins @ None, seat }) = self.chunks.get_mut(*content) {
                *pins = Some(0);
                self.storing -= 1;
                self.idle += 1;
                self.policy.set_idle((*content, *seat), true);
            }
        }
    }

    /// Ends a request: the chunks that it used become the newest, its first chunk newest of all.
    pub(crate) fn end(&mut self, request: u64) {
        let Some(chunks) = self.uses.remove(&request) else { return };
        let resident = &self.chunks;
        match &mut self.policy {
            Policy::Lru(lru) => lru.end(
                request,
                chunks.iter().filter_map(|(_, content)| resident.get(*content).map(|resident| resident.seat)),
            ),
            Policy::Arc(arc) => arc.end(request, chunks.iter().rev().map(|(_, content)| *content)),
        }
    }

    /// Names of the chunks on the host, and of all others that are remembered.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        let used = self.uses.values().flatten().map(|(_, content)| *content);
        let known = self.chunks.names().chain(self.offers.counts.names()).chain(used);
        let arc = match &self.policy {
            Policy::Lru(_) => None,
            Policy::Arc(arc) => Some(arc.names()),
        };
        known.chain(arc.into_iter().flatten())
    }

    /// Records that a request uses chunks.
    fn record(&mut self, request: u64, used: &[Used]) {
        let chunks = self.uses.entry(request).or_default();
        let mut new = Vec::new();
        for &(chunk, seat) in used {
            if chunks.last().is_none_or(|last| *last < chunk) {
                chunks.push(chunk);
            } else if let Err(at) = chunks.binary_search(&chunk) {
                chunks.insert(at, chunk);
            } else {
                continue;
            }
            new.extend(seat.map(|seat| (chunk.0, seat)));
        }
        if let Policy::Lru(lru) = &mut self.policy
            && !new.is_empty()
        {
            lru.access(request, new.into_iter());
        }
    }
}

/// A chunk that a request uses, with its record in the order of use if it is on the host.
type Used = (Chunk, Option<Seat>);

impl Policy {
    fn insert(&mut self, request: u64, chunks: &[Chunk]) -> Vec<Seat> {
        match self {
            Policy::Lru(lru) => lru.insert(request, chunks),
            Policy::Arc(arc) => {
                chunks.iter().for_each(|(_, content)| arc.insert(request, *content));
                vec![0; chunks.len()]
            }
        }
    }

    /// Sets whether a chunk may be evicted.
    fn set_idle(&mut self, (content, seat): (Name, Seat), idle: bool) {
        match self {
            Policy::Lru(lru) => lru.set_idle(seat, idle),
            Policy::Arc(arc) => arc.set_idle(content, idle),
        }
    }
}

/// Numbers of offers by content; when the table is full, the least recently offered content is forgotten.
#[derive(Debug, Clone, Default)]
struct Offers {
    counts: NameMap<(u32, u64)>,
    order: BTreeMap<u64, Name>,
    now: u64,
}

impl Offers {
    fn of(&self, content: Name) -> u32 {
        self.counts.get(content).map_or(0, |(count, _)| *count)
    }

    fn count(&mut self, contents: impl Iterator<Item = Name> + Clone) {
        let mut listed = 0;
        for content in contents.clone() {
            if let Some((count, at)) = self.counts.get_mut(content) {
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
            if self.counts.has(content) {
                continue;
            }
            if self.counts.len() >= TRACKED {
                let Some((_, oldest)) = (others > 0).then(|| self.order.pop_first()).flatten() else {
                    continue;
                };
                self.counts.remove(oldest);
                others -= 1;
            }
            self.now += 1;
            self.counts.insert(content, (1, self.now));
            self.order.insert(self.now, content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u64) -> Name {
        Name::numbered(number as u32)
    }

    fn chunks(numbers: &[u64]) -> Vec<Chunk> {
        numbers.iter().zip(0..).map(|(number, place)| (place, content(*number))).collect()
    }

    fn store(tier: &mut Offload, request: u64, numbers: &[u64]) -> Option<Vec<Name>> {
        let offer = tier.offer(request, &chunks(numbers))?;
        tier.stored(&offer.stored);
        Some(offer.evicted)
    }

    /// Chunks are as recent as their request, and a request's last chunk is evicted first; pinned chunks stay.
    #[test]
    fn the_oldest_request_loses_its_last_chunk_first() {
        let mut tier = Offload::new(4, EvictionPolicy::Lru, 0);
        assert_eq!(store(&mut tier, 1, &[10, 11]), Some(vec![]));
        assert_eq!(store(&mut tier, 2, &[20, 21]), Some(vec![]));
        tier.end(1);
        tier.end(2);
        assert_eq!(store(&mut tier, 3, &[30]), Some(vec![content(11)]));
        tier.load(4, &chunks(&[10]));
        assert_eq!(tier.counts(), [4, 3, 0]);
        assert_eq!(store(&mut tier, 5, &[50]), Some(vec![content(21)]));
        // At most three chunks are idle, because 10 is pinned.
        assert_eq!(store(&mut tier, 6, &[60, 61, 62, 63]), None);
        tier.loaded(&[content(10)]);
        assert_eq!(tier.residence(content(10)), Residence::Ready);
    }

    /// A chunk is stored from its second offer on.
    #[test]
    fn offers_are_counted() {
        let mut tier = Offload::new(4, EvictionPolicy::Lru, 2);
        assert_eq!(tier.offer(1, &chunks(&[10])), Some(Offer::default()));
        let again = tier.offer(2, &chunks(&[10, 11])).unwrap();
        assert_eq!((again.stored, tier.residence(content(10))), (vec![content(10)], Residence::Storing));
    }

    /// A chunk that two requests used outlives chunks that one request used, because it is in the list of frequent
    /// chunks.
    #[test]
    fn arc_keeps_what_is_reused() {
        let mut tier = Offload::new(3, EvictionPolicy::Arc, 0);
        assert_eq!(store(&mut tier, 1, &[10]), Some(vec![]));
        tier.end(1);
        tier.load(2, &chunks(&[10]));
        tier.loaded(&[content(10)]);
        tier.end(2);
        for (request, new) in [(3, 30), (4, 40)] {
            assert_eq!(store(&mut tier, request, &[new]), Some(vec![]));
            tier.end(request);
        }
        assert_eq!(store(&mut tier, 5, &[50]), Some(vec![content(30)]));
    }
}
