//! The KV pool of one replica in whole pages: what is available, what the tree keeps, what decodes need next.
//!
//! Knows: the pool is what is available, what the tree has, and what requests hold beside the tree; what nobody locks in
//! the tree is evicted when room is taken. Rows that decode grow together, so that what they need is a count per
//! remainder of their lengths by the page. Source: SGLang 0.5.23, `mem_cache/allocation.py` and `mem_cache/allocator/`.
//! Knows nothing about who is admitted or retracted.

use super::tree::{Node, Tree};

/// The pool.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) page: u64,
    /// Tokens of free pages.
    pub(super) available: u64,
    /// What is kept for others; none with `disable_radix_cache`.
    pub(super) tree: Option<Tree>,
    /// Decodes of the running rows so far.
    pub(super) decodes: u64,
    /// Running rows by (tokens − decodes) mod page.
    remainders: Vec<u64>,
    rows: u64,
}

impl Memory {
    /// A pool of `tokens`, in whole pages.
    pub(super) fn new(tokens: u64, page: u64, keeps: bool) -> Memory {
        Memory {
            page,
            available: tokens - tokens % page,
            tree: keeps.then(|| Tree::new(page)),
            decodes: 0,
            remainders: vec![0; page as usize],
            rows: 0,
        }
    }

    /// `tokens` in whole pages.
    pub(super) fn ceil(&self, tokens: u64) -> u64 {
        tokens.next_multiple_of(self.page)
    }

    /// The whole pages of `tokens`.
    pub(super) fn floor(&self, tokens: u64) -> u64 {
        tokens - tokens % self.page
    }

    /// Tokens of the tree that nobody locks.
    pub(super) fn evictable(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::evictable)
    }

    /// Tokens that are available or evictable.
    pub(super) fn reclaimable(&self) -> u64 {
        self.available + self.evictable()
    }

    /// Of these, those that a request with a prefix that ends at `node` takes by locking it.
    pub(super) fn unlocked(&self, node: Node) -> u64 {
        self.tree.as_ref().map_or(0, |tree| tree.unlocked(node))
    }

    /// Locks the prefix that ends at `node`.
    pub(super) fn lock(&mut self, node: Node) {
        if let Some(tree) = &mut self.tree {
            tree.lock(node);
        }
    }

    /// Takes the lock back.
    pub(super) fn unlock(&mut self, node: Node) {
        if let Some(tree) = &mut self.tree {
            tree.unlock(node);
        }
    }

    /// Evicts leaves until `tokens` are available, or nothing is left to evict.
    pub(super) fn evict_until(&mut self, tokens: u64) {
        let Some(tree) = &mut self.tree else { return };
        while self.available < tokens
            && let Some(evicted) = tree.evict()
        {
            self.available += evicted;
        }
    }

    /// A row of `tokens` starts to decode with the others.
    pub(super) fn join(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] += 1;
        self.rows += 1;
    }

    /// A row of `tokens` decodes no more.
    pub(super) fn leave(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] -= 1;
        self.rows -= 1;
    }

    fn remainder(&self, tokens: u64) -> usize {
        ((tokens % self.page + self.page - self.decodes % self.page) % self.page) as usize
    }

    /// Tokens of the pages that a decode takes which comes after `later` others.
    fn needed(&self, later: u64) -> u64 {
        let phase = (self.decodes + later) % self.page;
        self.remainders[((self.page - phase) % self.page) as usize] * self.page
    }

    /// Whether the next decode fits, after evicting what it takes.
    pub(super) fn decode_fits(&mut self) -> bool {
        let needed = self.needed(0);
        self.evict_until(needed);
        needed <= self.available
    }

    /// The running rows decode: pages are taken, after evicting as if each row took one.
    pub(super) fn decode(&mut self) {
        self.evict_until(self.rows * self.page);
        self.available = self.available.saturating_sub(self.needed(0));
        self.decodes += 1;
    }

    /// How many decodes, at most `most`, fit one after another without evicting anything.
    pub(super) fn decodes_that_fit(&self, most: u64) -> u64 {
        // In as many steps as a page has tokens every row takes a page once; where one round more is available, every
        // step of the rounds fits.
        let round = self.rows * self.page;
        if round == 0 {
            return most;
        }
        let rounds = (self.available / round).saturating_sub(1).min(most / self.page);
        let mut steps = rounds * self.page;
        let mut available = self.available - rounds * round;
        // Where there is something to evict, a decode evicts until every row could take a page.
        let evicts = self.evictable() > 0;
        while steps < most {
            let needed = self.needed(steps);
            if available < if evicts { round } else { needed } {
                break;
            }
            available -= needed;
            steps += 1;
        }
        steps
    }

    /// Takes the pages of `steps` decodes that fit.
    pub(super) fn repeat(&mut self, steps: u64) {
        let rounds = steps / self.page;
        self.available -= rounds * self.rows * self.page;
        for later in rounds * self.page..steps {
            self.available -= self.needed(later);
        }
        self.decodes += steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Many decodes at once take what they take one by one, and one more would have evicted or not fitted.
        #[test]
        fn repeating_is_stepping(
            page in 1_u64..20,
            rows in prop::collection::vec(0_u64..60, 0..6),
            pool in 0_u64..400,
            kept in 0_u64..3,
            most in 1_u64..90,
        ) {
            let mut memory = Memory::new(pool.next_multiple_of(page), page, true);
            if let Some(tree) = &mut memory.tree {
                let run = crate::kv_cache::prefix::Run { segment: 0, start: 0, length: kept * page };
                tree.insert(&[run]);
            }
            memory.decodes = 7;
            rows.iter().for_each(|tokens| memory.join(*tokens));
            let steps = memory.decodes_that_fit(most);
            let mut stepped = memory.clone();
            for step in 0..most {
                let before = stepped.evictable();
                let fits = stepped.decode_fits();
                stepped.decode();
                let untouched = fits && stepped.evictable() == before;
                prop_assert_eq!(step < steps, untouched, "step {} of {}", step, steps);
                if !untouched {
                    break;
                }
                if step + 1 == steps {
                    let mut leapt = memory.clone();
                    leapt.repeat(steps);
                    prop_assert_eq!((leapt.available, leapt.decodes), (stepped.available, stepped.decodes));
                }
            }
        }
    }
}
