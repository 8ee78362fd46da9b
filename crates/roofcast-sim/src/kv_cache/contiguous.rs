//! An address space that requests use in contiguous pieces, as engines did before paging.
//!
//! Knows: a piece is placed in the first gap that is long enough, and adjacent gaps merge. A piece may therefore fit
//! in no single gap although enough room is free in total: external fragmentation. The cost of an operation grows
//! with the number of gaps, at most one more than the number of pieces. Knows nothing about requests or time.

use std::collections::BTreeMap;

/// Address space with free gaps.
#[derive(Debug, Clone)]
pub(crate) struct ContiguousSpace {
    /// Length of each gap, by its start; no two are adjacent.
    gaps: BTreeMap<u64, u64>,
    free: u64,
}

impl ContiguousSpace {
    /// Creates an empty space of `size` addresses.
    pub(crate) fn new(size: u64) -> ContiguousSpace {
        ContiguousSpace { gaps: (size > 0).then_some((0, size)).into_iter().collect(), free: size }
    }

    /// Total free length.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Length of the longest gap.
    pub(crate) fn largest(&self) -> u64 {
        self.gaps.values().copied().max().unwrap_or(0)
    }

    /// Fraction of the free addresses that lie outside the longest gap.
    pub(crate) fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest() as f64 / self.free as f64 }
    }

    /// Allocates `length` addresses in the first gap that is long enough and returns the start; `None` if no gap is.
    pub(crate) fn take(&mut self, length: u64) -> Option<u64> {
        let (start, gap) = self.gaps.iter().find(|(_, gap)| **gap >= length).map(|(s, g)| (*s, *g))?;
        self.gaps.remove(&start);
        if gap > length {
            self.gaps.insert(start + length, gap - length);
        }
        self.free -= length;
        Some(start)
    }

    /// Frees the piece of `length` addresses at `start`.
    pub(crate) fn give_back(&mut self, start: u64, length: u64) {
        self.free += length;
        let mut from = start;
        let mut gap = length;
        if let Some(after) = self.gaps.remove(&(start + length)) {
            gap += after;
        }
        if let Some((before, size)) = self.gaps.range(..start).next_back().map(|(s, g)| (*s, *g))
            && before + size == start
        {
            (from, gap) = (before, gap + size);
        }
        self.gaps.insert(from, gap);
    }
}

#[cfg(test)]
mod tests {
    use super::ContiguousSpace;
    use proptest::prelude::*;

    #[test]
    fn room_in_sum_is_not_room_in_one_piece() {
        let mut space = ContiguousSpace::new(10);
        assert_eq!([4, 3, 3].map(|length| space.take(length)), [Some(0), Some(4), Some(7)]);
        space.give_back(0, 4);
        space.give_back(7, 3);
        // Gaps of 4 and 3 are free: the fraction 1 − 4/7 is outside the longest.
        assert_eq!((space.free(), space.largest(), space.take(5)), (7, 4, None));
        assert!((space.fragmentation() - 3.0 / 7.0).abs() < 1e-12);
        space.give_back(4, 3);
        assert_eq!((space.largest(), space.fragmentation(), space.take(10)), (10, 0.0, Some(0)));
        assert_eq!(space.fragmentation(), 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Allocations agree with a map of every address: the lowest free run that is long enough is used, and the
        /// longest run is found.
        #[test]
        fn first_fit_is_first_fit(size in 1_usize..60, moves in prop::collection::vec((any::<bool>(), 1_usize..20), 0..80)) {
            let mut space = ContiguousSpace::new(size as u64);
            let mut taken = vec![false; size];
            let mut pieces: Vec<(usize, usize)> = Vec::new();
            for (take, n) in moves {
                if take {
                    let fit = (0..size.saturating_sub(n - 1)).find(|s| !taken[*s..s + n].contains(&true));
                    prop_assert_eq!(space.take(n as u64), fit.map(|s| s as u64));
                    if let Some(start) = fit {
                        taken[start..start + n].fill(true);
                        pieces.push((start, n));
                    }
                } else if !pieces.is_empty() {
                    let (start, length) = pieces.swap_remove(n % pieces.len());
                    taken[start..start + length].fill(false);
                    space.give_back(start as u64, length as u64);
                }
                let largest = taken.split(|t| *t).map(<[bool]>::len).max().unwrap_or(0);
                let free = taken.iter().filter(|t| !**t).count();
                prop_assert_eq!((space.largest(), space.free()), (largest as u64, free as u64));
            }
        }
    }
}
