//! Host memory as managed by vLLM's offloading connector: chunks of blocks, identified by their contents, that
//! requests load and store.
//!
//! Knows: chunks that are resident, in transfer, or pinned by loads; the offers of a request, the number of offers
//! before a chunk is stored, and the order of chunks when a request ends. Source: vLLM 0.33,
//! `v1/kv_offload/cpu/manager.py`. Does not know: the tokens of a chunk, the blocks of the device, storage below host
//! memory, or time.

mod arc;
mod lru;

use super::prefix::{Content, ContentMap};
use crate::spec::EvictionPolicy;
use arc::Arc;
use lru::Lru;
use std::collections::{BTreeMap, BTreeSet};

/// Number of contents whose offers are counted: vLLM's `max_tracker_size`.
const TRACKED: usize = 64_000;

/// Chunk of a request: its index among the request's chunks, and its content.
pub(crate) type Chunk = (u32, Content);

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
    pub(crate) stored: Vec<Content>,
    /// Contents that were evicted to make room, in order of eviction.
    pub(crate) evicted: Vec<Content>,
}

/// Chunks that one request has used.
#[derive(Debug, Clone, Default)]
struct Use {
    chunks: BTreeMap<Content, u32>,
    inserted: BTreeSet<Content>,
    reused: BTreeSet<Content>,
    missed: BTreeSet<Content>,
}

#[derive(Debug, Clone)]
enum Policy {
    Lru(Lru),
    Arc(Box<Arc>),
}

/// Host tier of the KV cache.
#[derive(Debug, Clone)]
pub(crate) struct Offload {
    capacity: usize,
    /// Number of offers of a chunk at which it is stored; values below 2 store it at the first.
    store_threshold: u32,
    /// Number of loads that pin each chunk; `None` while the chunk is in transfer from the device.
    chunks: ContentMap<Option<u32>>,
    policy: Policy,
    idle: usize,
    storing: usize,
    offers: Offers,
    uses: BTreeMap<u64, Use>,
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
            chunks: ContentMap::default(),
            policy,
            idle: 0,
            storing: 0,
            offers: Offers::default(),
            uses: BTreeMap::new(),
        }
    }

    /// Numbers of chunks that are resident, idle, and in transfer from the device.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.chunks.len(), self.idle, self.storing].map(|count| count as u64)
    }

    /// State of a chunk.
    pub(crate) fn residence(&self, content: Content) -> Residence {
        match self.chunks.get(&content) {
            None => Residence::Absent,
            Some(None) => Residence::Storing,
            Some(Some(_)) => Residence::Ready,
        }
    }

    /// Pins ready chunks while a request loads them.
    pub(crate) fn load(&mut self, request: u64, chunks: &[Chunk]) {
        let reused: Vec<Content> = chunks.iter().map(|(_, content)| *content).collect();
        self.pin(&reused);
        self.record(request, chunks, &reused);
    }

    /// Pins ready chunks while they are read; their order of use is unchanged.
    pub(crate) fn pin(&mut self, contents: &[Content]) {
        for content in contents {
            if let Some(Some(pins)) = self.chunks.get_mut(content) {
                *pins += 1;
                if *pins == 1 {
                    self.idle -= 1;
                    self.policy.pinned(*content);
                }
            }
        }
    }

    /// Unpins chunks that have been read.
    pub(crate) fn loaded(&mut self, contents: &[Content]) {
        for content in contents {
            if let Some(Some(pins)) = self.chunks.get_mut(content) {
                *pins -= 1;
                if *pins == 0 {
                    self.idle += 1;
                    self.policy.unpinned(*content);
                }
            }
        }
    }

    /// Offers chunks of a request for storage; `None`, and no change, if the missing ones do not all fit.
    pub(crate) fn offer(&mut self, request: u64, chunks: &[Chunk]) -> Option<Offer> {
        let counted = self.store_threshold >= 2;
        if counted {
            self.offers.count(chunks.iter().map(|(_, content)| *content));
        }
        let (mut missing, mut ready) = (Vec::new(), Vec::new());
        for &(place, content) in chunks {
            match self.residence(content) {
                Residence::Absent => missing.push((place, content)),
                Residence::Ready => ready.push(content),
                Residence::Storing => {}
            }
        }
        if counted {
            missing.retain(|(_, content)| self.offers.of(*content) >= self.store_threshold);
        }
        let usage = self.uses.entry(request).or_default();
        let new: Vec<Content> = missing
            .iter()
            .map(|(_, content)| *content)
            .filter(|content| usage.missed.insert(*content))
            .collect();
        self.policy.missed(&new);
        let known: BTreeSet<Content> =
            missing.iter().map(|(_, content)| *content).chain(ready.iter().copied()).collect();
        let recorded: Vec<Chunk> =
            chunks.iter().copied().filter(|(_, content)| known.contains(content)).collect();
        self.record(request, &recorded, &ready);
        let excess = (self.chunks.len() + missing.len()).saturating_sub(self.capacity);
        let offered: BTreeSet<Content> = chunks.iter().map(|(_, content)| *content).collect();
        if excess > self.idle {
            return None;
        }
        let evicted = self.policy.evict(excess, &offered)?;
        self.idle -= evicted.len();
        for content in &evicted {
            self.chunks.remove(content);
        }
        for &(place, content) in &missing {
            self.chunks.insert(content, None);
            self.policy.insert(request, (place, content));
        }
        self.storing += missing.len();
        let stored: Vec<Content> = missing.into_iter().map(|(_, content)| content).collect();
        self.uses.entry(request).or_default().inserted.extend(&stored);
        Some(Offer { stored, evicted })
    }

    /// Marks chunks as ready after their transfer from the device.
    pub(crate) fn stored(&mut self, contents: &[Content]) {
        for content in contents {
            if let Some(pins @ None) = self.chunks.get_mut(content) {
                *pins = Some(0);
                self.storing -= 1;
                self.idle += 1;
                self.policy.unpinned(*content);
            }
        }
    }

    /// Ends a request: the chunks that it used become the newest, its first chunk newest of all.
    pub(crate) fn end(&mut self, request: u64) {
        let Some(usage) = self.uses.remove(&request) else { return };
        let mut chunks: Vec<(u32, Content)> =
            usage.chunks.iter().map(|(content, place)| (*place, *content)).collect();
        chunks.sort_unstable();
        let order = chunks.iter().rev().map(|(_, content)| *content);
        match &mut self.policy {
            Policy::Lru(lru) => {
                lru.end(request, order);
            }
            Policy::Arc(arc) => arc.end(order, &usage.inserted, &usage.reused),
        }
    }

    /// Records that a request uses chunks, of which `reused` were ready on the host.
    fn record(&mut self, request: u64, chunks: &[Chunk], reused: &[Content]) {
        let usage = self.uses.entry(request).or_default();
        let new: Vec<Chunk> = chunks
            .iter()
            .copied()
            .filter(|(place, content)| usage.chunks.insert(*content, *place).is_none())
            .collect();
        let reused = reused.iter().filter(|content| !usage.inserted.contains(*content));
        let reused: Vec<Content> = reused.copied().collect();
        usage.reused.extend(reused);
        if let Policy::Lru(lru) = &mut self.policy
            && !new.is_empty()
        {
            lru.access(request, &new);
        }
    }
}

impl Policy {
    fn insert(&mut self, request: u64, chunk: Chunk) {
        match self {
            Policy::Lru(lru) => lru.insert(request, chunk),
            Policy::Arc(arc) => arc.insert(chunk.1),
        }
    }

    /// Marks a chunk as not evictable.
    fn pinned(&mut self, content: Content) {
        match self {
            Policy::Lru(lru) => lru.pinned(content),
            Policy::Arc(arc) => arc.pinned(content),
        }
    }

    /// Marks a chunk as evictable.
    fn unpinned(&mut self, content: Content) {
        match self {
            Policy::Lru(lru) => lru.unpinned(content),
            Policy::Arc(arc) => arc.unpinned(content),
        }
    }

    /// Informs the policy of contents that are offered and not resident.
    fn missed(&mut self, contents: &[Content]) {
        match self {
            Policy::Lru(lru) => lru.touch(contents),
            Policy::Arc(arc) => arc.missed(contents),
        }
    }

    /// Evicts `count` idle chunks that are not in `offered`; `None` if there are fewer.
    fn evict(&mut self, count: usize, offered: &BTreeSet<Content>) -> Option<Vec<Content>> {
        match self {
            Policy::Lru(lru) => lru.evict(count, offered),
            Policy::Arc(arc) => arc.evict(count, offered),
        }
    }
}

/// Numbers of offers by content; when the table is full, the least recently offered content is forgotten.
#[derive(Debug, Clone, Default)]
struct Offers {
    counts: ContentMap<(u32, u64)>,
    order: BTreeMap<u64, Content>,
    now: u64,
}

impl Offers {
    fn of(&self, content: Content) -> u32 {
        self.counts.get(&content).map_or(0, |(count, _)| *count)
    }

    fn count(&mut self, contents: impl Iterator<Item = Content> + Clone) {
        let mut kept = 0;
        for content in contents.clone() {
            if let Some((count, at)) = self.counts.get_mut(&content) {
                *count += 1;
                self.now += 1;
                self.order.remove(at);
                *at = self.now;
                self.order.insert(self.now, content);
                kept += 1;
            }
        }
        let mut others = self.counts.len().saturating_sub(kept);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u64) -> Content {
        Content::own(number, 0)
    }

    fn chunks(numbers: &[u64]) -> Vec<Chunk> {
        numbers.iter().zip(0..).map(|(number, place)| (place, content(*number))).collect()
    }

    fn store(tier: &mut Offload, request: u64, numbers: &[u64]) -> Option<Vec<Content>> {
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
