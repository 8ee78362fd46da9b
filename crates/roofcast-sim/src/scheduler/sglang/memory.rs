//! The KV pool of one replica in whole pages: pages that are available, held by the tree, and needed by the next
//! decodes.
//!
//! Knows: every page is available, in the tree, or held by a request outside the tree; unlocked pages of the tree are
//! evicted when room is needed. Decoding rows grow together, so their needs follow from the number of rows for each
//! remainder of the length by the page. Source: SGLang 0.5.23, `mem_cache/allocation.py` and `mem_cache/allocator/`.
//! Knows nothing about which requests are admitted or retracted.

use super::config::HiCache;
use super::tree::host::Host;
use super::tree::{Node, Tree};

/// Fewest tokens on the host that are loaded instead of recomputed, SGLang's `load_back_threshold`.
const LOAD_BACK_TOKENS: u64 = 10;

/// The KV pool of one replica.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) page: u64,
    /// Number of tokens in free pages.
    pub(super) available: u64,
    /// The prefix cache; `None` if `disable_radix_cache` is set.
    pub(super) tree: Option<Tree>,
    /// Number of decodes of the running rows so far.
    pub(super) decodes: u64,
    /// Number of running rows for each value of (tokens − decodes) mod page.
    remainders: Vec<u64>,
    rows: u64,
    /// Number of tokens in the pages that running rows span.
    spanned: u64,
    /// Number of tokens that requests lock; a token that several requests lock counts for each.
    claims: u64,
}

/// Use of a KV pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Number of tokens in pages that requests hold.
    pub(crate) room: u64,
    /// Number of tokens that requests hold in addition to a token's first holder.
    pub(crate) shared: u64,
    /// Number of tokens in pages that running requests span; shared pages count for each request.
    pub(crate) spanned: u64,
}

impl Memory {
    /// A pool of `tokens` tokens, in whole pages; `keeps` adds a radix tree, and `hicache` a host tier behind the tree.
    pub(super) fn new(tokens: u64, page: u64, keeps: bool, hicache: Option<HiCache>) -> Memory {
        let host = hicache.map(|host| Host::new(host.host_tokens, host.write_policy));
        Memory {
            page,
            available: tokens - tokens % page,
            tree: keeps.then(|| Tree::new(page, host)),
            decodes: 0,
            remainders: vec![0; page as usize],
            rows: 0,
            spanned: 0,
            claims: 0,
        }
    }

    /// `tokens` rounded up to whole pages.
    pub(super) fn ceil(&self, tokens: u64) -> u64 {
        tokens.next_multiple_of(self.page)
    }

    /// `tokens` rounded down to whole pages.
    pub(super) fn floor(&self, tokens: u64) -> u64 {
        tokens - tokens % self.page
    }

    /// Number of unlocked tokens in the tree.
    pub(super) fn evictable(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::evictable)
    }

    /// Number of tokens that are available or can be evicted.
    pub(super) fn reclaimable(&self) -> u64 {
        self.available + self.evictable()
    }

    /// Number of reclaimable tokens that a request would lock with the prefix that ends at `node`.
    pub(super) fn unlocked(&self, node: Node) -> u64 {
        self.tree.as_ref().map_or(0, |tree| tree.unlocked(node))
    }

    /// Locks the prefix that ends at `node`.
    pub(super) fn lock(&mut self, node: Node) {
        if let Some(tree) = &mut self.tree {
            tree.lock(node);
        }
    }

    /// Unlocks the prefix that ends at `node`.
    pub(super) fn unlock(&mut self, node: Node) {
        if let Some(tree) = &mut self.tree {
            tree.unlock(node);
        }
    }

    /// Evicts leaves until `tokens` tokens are available or no leaf can be evicted.
    pub(super) fn evict_until(&mut self, tokens: u64) {
        let Some(tree) = &mut self.tree else { return };
        while self.available < tokens
            && let Some(evicted) = tree.evict()
        {
            self.available += evicted;
        }
    }

    /// Loads the `tokens` tokens of the path to `end` that are only on the host, all or none. The path stays locked
    /// until the load is reported as complete. Returns true if they are loaded; fewer tokens than the threshold are
    /// recomputed instead.
    pub(super) fn load_back(&mut self, end: Node, tokens: u64) -> bool {
        if tokens < LOAD_BACK_TOKENS {
            return false;
        }
        self.lock(end);
        self.evict_until(tokens);
        if self.available < tokens {
            self.unlock(end);
            return false;
        }
        self.available -= tokens;
        if let Some(tree) = &mut self.tree {
            tree.load(end);
        }
        true
    }

    /// The host tier, if there is one.
    pub(super) fn host(&self) -> Option<&Host> {
        self.tree.as_ref().and_then(|tree| tree.host.as_ref())
    }

    /// Adds a row of `tokens` tokens to the decoding rows.
    pub(super) fn join(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] += 1;
        self.rows += 1;
        self.spanned += self.ceil(tokens);
    }

    /// Removes a row of `tokens` tokens from the decoding rows.
    pub(super) fn leave(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] -= 1;
        self.rows -= 1;
        self.spanned -= self.ceil(tokens);
    }

    fn remainder(&self, tokens: u64) -> usize {
        ((tokens % self.page + self.page - self.decodes % self.page) % self.page) as usize
    }

    /// Number of tokens in the pages that one decode allocates, after `later` decodes before it.
    fn needed(&self, later: u64) -> u64 {
        let phase = (self.decodes + later) % self.page;
        self.remainders[((self.page - phase) % self.page) as usize] * self.page
    }

    /// True if the next decode fits, with eviction.
    pub(super) fn decode_fits(&mut self) -> bool {
        let needed = self.needed(0);
        self.evict_until(needed);
        needed <= self.available
    }

    /// Decodes all running rows: evicts as if each row needed a page, and then allocates the needed pages.
    pub(super) fn decode(&mut self) {
        self.evict_until(self.rows * self.page);
        self.take(self.needed(0));
        self.decodes += 1;
    }

    fn take(&mut self, tokens: u64) {
        self.available = self.available.saturating_sub(tokens);
        self.spanned += tokens;
    }

    /// Number of decodes, at most `most`, that fit one after another, with eviction. If an eviction must wait for a
    /// copy, only decodes that evict nothing count.
    pub(super) fn decodes_that_fit(&self, most: u64) -> u64 {
        if self.host().is_some_and(Host::writes_back) && self.evictable() > 0 {
            return self.count(most, self.available, self.rows * self.page);
        }
        self.count(most, self.reclaimable(), 0)
    }

    /// Number of decodes, at most `most`, that find their pages in `room` tokens and have at least `least` tokens free
    /// before each.
    fn count(&self, most: u64, room: u64, least: u64) -> u64 {
        // In as many steps as a page has tokens (a round) every row takes one page. If there is room for one round
        // more, every step of the rounds fits.
        let round = self.rows * self.page;
        if round == 0 {
            return most;
        }
        let rounds = (room / round).saturating_sub(1).min(most / self.page);
        let mut steps = rounds * self.page;
        let mut room = room - rounds * round;
        while steps < most {
            let needed = self.needed(steps);
            if room < needed.max(least) {
                break;
            }
            room -= needed;
            steps += 1;
        }
        steps
    }

    /// Allocates the pages of `steps` decodes that fit; returns the allocated tokens after each decode, summed.
    pub(super) fn repeat(&mut self, steps: u64) -> u128 {
        let mut left = steps;
        let mut taken = 0;
        let mut sum = 0;
        while left > 0 {
            // If any page can be evicted, a decode evicts until every row could take a page.
            let evicted_slack = if self.evictable() > 0 { self.rows * self.page } else { 0 };
            let fit = self.count(left, self.available, evicted_slack);
            let before = self.spanned;
            sum += u128::from(taken) * u128::from(fit) + self.take_decodes(fit);
            taken += self.spanned - before;
            left -= fit;
            if left > 0 {
                let before = self.spanned;
                self.decode();
                taken += self.spanned - before;
                sum += u128::from(taken);
                left -= 1;
            }
        }
        sum
    }

    /// Allocates the pages of `steps` decodes without eviction; returns the allocated tokens after each decode, summed.
    fn take_decodes(&mut self, steps: u64) -> u128 {
        let rounds = steps / self.page;
        let before = self.available;
        let mut sum = 0;
        if rounds > 0 {
            // Each step of a round allocates as in the round before, on top of one round's amount more.
            let mut taken = 0;
            for later in 0..self.page {
                taken += self.needed(later);
                sum += u128::from(taken) * u128::from(rounds);
            }
            let pairs = u128::from(rounds) * u128::from(rounds - 1) / 2;
            sum += u128::from(taken) * u128::from(self.page) * pairs;
            self.take(rounds * taken);
        }
        for later in rounds * self.page..steps {
            self.take(self.needed(later));
            sum += u128::from(before - self.available);
        }
        self.decodes += steps;
        sum
    }

    /// Number of running rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Records that the tokens of the tree that a request locks change from `from` to `to`.
    pub(super) fn claim(&mut self, from: u64, to: u64) {
        self.claims = self.claims + to - from;
    }

    /// Use of the pool, which has `tokens` tokens.
    pub(super) fn usage(&self, tokens: u64) -> Usage {
        let locked = self.tree.as_ref().map_or(0, Tree::locked);
        Usage {
            room: self.floor(tokens) - self.reclaimable(),
            // Tokens that only a copy to the host locks have no holder.
            shared: self.claims.saturating_sub(locked),
            spanned: self.spanned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Many decodes at once allocate and evict exactly as many tokens as single decodes, and one more decode would
        /// not fit.
        #[test]
        fn repeating_is_stepping(
            page in 1_u64..20,
            rows in prop::collection::vec(0_u64..60, 0..6),
            pool in 0_u64..400,
            kept in prop::collection::vec(1_u64..4, 0..5),
            most in 1_u64..90,
        ) {
            let mut memory = Memory::new(pool.next_multiple_of(page), page, true, None);
            if let Some(tree) = &mut memory.tree {
                for (segment, pages) in kept.iter().enumerate() {
                    let run = roofcast_ask::workload::request::Run { segment: segment as u32, start: 0, length: pages * page };
                    tree.insert(&[run], 0);
                }
            }
            memory.decodes = 7;
            rows.iter().for_each(|tokens| memory.join(*tokens));
            let steps = memory.decodes_that_fit(most);
            let mut stepped = memory.clone();
            let mut sum = 0;
            for _ in 0..steps {
                prop_assert!(stepped.decode_fits());
                stepped.decode();
                sum += u128::from(memory.reclaimable() - stepped.reclaimable());
            }
            let mut leapt = memory.clone();
            prop_assert_eq!(leapt.repeat(steps), sum);
            let counts_of = |m: &Memory| (m.available, m.evictable(), m.decodes, m.spanned);
            prop_assert_eq!(counts_of(&leapt), counts_of(&stepped));
            prop_assert!(steps == most || !stepped.decode_fits());
        }
    }
}
