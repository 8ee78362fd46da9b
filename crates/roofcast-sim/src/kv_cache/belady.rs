//! Bound on the hits of a cache of equal blocks: Belady's replacement, which knows every future look-up.
//!
//! Knows: a missing block may be left out of the cache, and else displaces the block whose next look-up is farthest in
//! the future (Belady, IBM Systems Journal 5(2), 1966; with bypass it is optimal for caches that may leave blocks out,
//! too). A block names all content before it, so it is looked up at most as early as the blocks before it, and the
//! cached blocks of a sequence are always its first ones. Knows nothing about time, running requests or replicas.

use super::prefix::{Content, ContentMap};
use std::collections::BTreeSet;

/// Uses of blocks in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses {
    numbers: ContentMap<u32>,
    /// Number of the block of each use, and whether it was looked up (else it was computed without a look-up).
    uses: Vec<(u32, bool)>,
}

/// Time of a look-up that never comes.
const NEVER: u32 = u32::MAX;

impl Uses {
    /// Number of uses.
    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    /// Adds uses of blocks, in order.
    pub(crate) fn add(&mut self, contents: &[Content], looked_up: bool) {
        for content in contents {
            let next = self.numbers.len() as u32;
            let number = *self.numbers.entry(*content).or_insert(next);
            self.uses.push((number, looked_up));
        }
    }

    /// Most look-ups that a cache of `capacity` blocks can answer.
    pub(crate) fn most_hits(&self, capacity: usize) -> u64 {
        // For each use, the index of the next look-up of its block.
        let mut next = vec![NEVER; self.numbers.len()];
        let mut follows = vec![NEVER; self.uses.len()];
        for (index, (number, looked_up)) in self.uses.iter().enumerate().rev() {
            follows[index] = next[*number as usize];
            if *looked_up {
                next[*number as usize] = index as u32;
            }
        }
        // The cached blocks in order of their next look-ups, and the next look-up of each cached block.
        let mut hits = 0;
        let mut order: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut cached = vec![NEVER; self.numbers.len()];
        for ((number, looked_up), follows) in self.uses.iter().zip(follows) {
            let previous_use = std::mem::replace(&mut cached[*number as usize], follows);
            if previous_use != NEVER {
                order.remove(&(previous_use, *number));
                hits += u64::from(*looked_up);
            }
            if follows != NEVER {
                order.insert((follows, *number));
                if order.len() > capacity
                    && let Some((_, farthest)) = order.pop_last()
                {
                    cached[farthest as usize] = NEVER;
                }
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uses(numbers: &[u64]) -> Uses {
        let mut uses = Uses::default();
        numbers.iter().for_each(|number| uses.add(&[Content::own(*number, 0)], true));
        uses
    }

    /// Three rounds over three blocks. A cache of n blocks, up to three, keeps the first n and leaves the others out: n
    /// hits in each of the last two rounds. LRU finds nothing with n below three.
    #[test]
    fn a_circle_keeps_what_fits() {
        let circle = uses(&[1, 2, 3, 1, 2, 3, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|capacity| circle.most_hits(capacity)), [0, 2, 4, 6]);
    }

    /// A block that was computed as output is found by a later prompt.
    #[test]
    fn outputs_are_found_and_not_looked_up() {
        let mut uses = uses(&[1]);
        uses.add(&[Content::own(2, 0)], false);
        uses.add(&[Content::own(1, 0), Content::own(2, 0)], true);
        assert_eq!([0, 1, 2].map(|capacity| uses.most_hits(capacity)), [0, 1, 2]);
    }

    /// Most hits by trying every choice of what to keep.
    fn tried(numbers: &[u64], cached: &mut Vec<u64>, capacity: usize) -> u64 {
        let Some((number, rest)) = numbers.split_first() else { return 0 };
        if cached.contains(number) {
            return 1 + tried(rest, cached, capacity);
        }
        let mut best = tried(rest, &mut cached.clone(), capacity);
        if cached.len() < capacity {
            let mut with = cached.clone();
            with.push(*number);
            return best.max(tried(rest, &mut with, capacity));
        }
        for index in 0..cached.len() {
            let mut with = cached.clone();
            with[index] = *number;
            best = best.max(tried(rest, &mut with, capacity));
        }
        best
    }

    proptest! {
        #[test]
        fn no_choice_of_evictions_hits_more(numbers in proptest::collection::vec(0_u64..5, 0..10), capacity in 0_usize..4) {
            prop_assert_eq!(uses(&numbers).most_hits(capacity), tried(&numbers, &mut Vec::new(), capacity));
        }
    }
}
