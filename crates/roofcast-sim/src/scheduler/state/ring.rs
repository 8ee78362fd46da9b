//! A calendar of ends: the sequences that end at each step, soonest first.
//!
//! Knows: a ring of buckets for near steps, with a bitmap to find the next used bucket, and an ordered map for far
//! steps. Every operation touches a few words; a far end is moved once. Knows nothing about sequences beyond their ids.

use roofcast_ask::arrival::SequenceId;
use std::collections::BTreeSet;

/// Number of steps that the ring spans: 64 words of 64 bits, so that one more word indexes the non-empty words.
const SPAN: i64 = 4096;
const NONE: SequenceId = SequenceId::MAX;

/// The ends of all decoding sequences.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    /// First sequence of each bucket.
    heads: Vec<SequenceId>,
    /// Neighbours of each sequence in its bucket, by id.
    links: Vec<[SequenceId; 2]>,
    words: [u64; 64],
    word_map: u64,
    /// Ends that were too far away when inserted; `soonest` is the earliest of these.
    far: BTreeSet<(i64, SequenceId)>,
    soonest: i64,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring {
            heads: vec![NONE; SPAN as usize],
            links: Vec::new(),
            words: [0; 64],
            word_map: 0,
            far: BTreeSet::new(),
            soonest: i64::MAX,
        }
    }
}

impl Ring {
    /// Inserts `id`, which ends at step `end`; `end` must be later than `now`.
    #[inline(always)]
    pub(crate) fn insert(&mut self, now: i64, end: i64, id: SequenceId) {
        if end - now >= SPAN {
            self.far.insert((end, id));
            self.soonest = self.soonest.min(end);
        } else {
            self.link(end, id);
        }
    }

    /// Step of the soonest end after `now`.
    #[inline(always)]
    pub(crate) fn next(&mut self, now: i64) -> Option<i64> {
        self.fetch(now);
        let near = self.scan(((now + 1) % SPAN) as usize).map(|at| {
            let distance = (at as i64 - (now + 1) % SPAN).rem_euclid(SPAN);
            now + 1 + distance
        });
        near.or_else(|| self.far.first().map(|(end, _)| *end))
    }

    /// Removes and returns a sequence that ends at `now`.
    #[inline(always)]
    pub(crate) fn pop(&mut self, now: i64) -> Option<SequenceId> {
        self.fetch(now);
        let id = self.heads[(now % SPAN) as usize];
        if id == NONE {
            return None;
        }
        self.unlink(now, id);
        Some(id)
    }

    /// Removes `id`, whose end was inserted at step `end`.
    pub(crate) fn remove(&mut self, end: i64, id: SequenceId) {
        if !self.far.remove(&(end, id)) {
            self.unlink(end, id);
        }
    }

    /// Moves far ends into the ring when they are fewer than [`SPAN`] steps ahead, so that no bucket holds two steps.
    #[inline(always)]
    fn fetch(&mut self, now: i64) {
        if self.soonest - now < SPAN {
            self.bring_near(now);
        }
    }

    #[cold]
    fn bring_near(&mut self, now: i64) {
        // If the soonest far end was removed meanwhile, this searches once without effect.
        while self.soonest - now < SPAN {
            if let Some(&(end, id)) = self.far.first().filter(|(end, _)| end - now < SPAN) {
                self.far.pop_first();
                self.link(end, id);
            }
            self.soonest = self.far.first().map_or(i64::MAX, |(end, _)| *end);
        }
    }

    #[inline(always)]
    fn link(&mut self, end: i64, id: SequenceId) {
        let at = (end % SPAN) as usize;
        if self.links.len() <= id as usize {
            self.links.resize(id as usize + 1, [NONE; 2]);
        }
        let head = self.heads[at];
        self.links[id as usize] = [NONE, head];
        if head != NONE {
            self.links[head as usize][0] = id;
        }
        self.heads[at] = id;
        self.words[at / 64] |= 1 << (at % 64);
        self.word_map |= 1 << (at / 64);
    }

    #[inline(always)]
    fn unlink(&mut self, end: i64, id: SequenceId) {
        let at = (end % SPAN) as usize;
        let [previous, next] = self.links[id as usize];
        if previous == NONE {
            self.heads[at] = next;
        } else {
            self.links[previous as usize][1] = next;
        }
        if next != NONE {
            self.links[next as usize][0] = previous;
        }
        if self.heads[at] == NONE {
            self.words[at / 64] &= !(1 << (at % 64));
            if self.words[at / 64] == 0 {
                self.word_map &= !(1 << (at / 64));
            }
        }
    }

    /// The first bucket in use from bucket `from` on, around the ring.
    #[inline(always)]
    fn scan(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let rest = self.words[word] & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let after = if word == 63 { 0 } else { self.word_map & (u64::MAX << (word + 1)) };
        let word = if after != 0 { after } else { self.word_map };
        if word == 0 {
            return None;
        }
        let at = word.trailing_zeros() as usize;
        Some(at * 64 + self.words[at].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_in_order_near_and_far_and_around() {
        let mut ring = Ring::default();
        for (id, end) in [(0, 5), (1, 4_100), (2, 5), (3, 100_000), (4, 70)] {
            ring.insert(0, end, id);
        }
        ring.remove(70, 4);
        assert_eq!((ring.next(0), ring.pop(4)), (Some(5), None));
        let mut two = [ring.pop(5), ring.pop(5)];
        two.sort();
        assert_eq!((two, ring.pop(5)), ([Some(0), Some(2)], None));
        assert_eq!((ring.next(5), ring.pop(4_100)), (Some(4_100), Some(1)));
        // Ends beyond the ring are found in the map.
        assert_eq!(
            (ring.next(4_100), ring.next(99_999), ring.pop(100_000)),
            (Some(100_000), Some(100_000), Some(3))
        );
        assert_eq!(ring.next(100_000), None);
    }
}
