//! The KV pool of one replica in whole pages: available, held by the tree, and needed by the next decodes.
//!
//! Knows: the pool is divided into available pages, the tree's, and pages that requests hold outside the tree;
//! unlocked pages of the tree are evicted when room is needed. Decoding rows grow together, so their needs are a
//! count per remainder of their lengths by the page. Source: SGLang 0.5.23, `mem_cache/allocation.py` and
//! `mem_cache/allocator/`. Knows nothing about which requests are admitted or retracted.

use super::config::HiCache;
use super::tree::host::Host;
use super::tree::{Node, Tree};

/// Minimum number of tokens on the host that are loaded rather than recomputed, SGLang's `load_back_threshold`.
const LOAD_BACK_TOKENS: u64 = 10;

/// The pool of one replica.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) page: u64,
    /// Tokens of free pages.
    pub(super) available: u64,
    /// The prefix cache; `None` with `disable_radix_cache`.
    pub(super) tree: Option<Tree>,
    /// Decodes of the running rows so far.
    pub(super) decodes: u64,
    /// Running rows by (tokens − decodes) mod page.
    remainders: Vec<u64>,
    rows: u64,
    /// Tokens of the pages that running rows span.
    spanned: u64,
    /// Tokens that requests lock; a token that several lock counts once for each.
    claims: u64,
}

/// Use of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// Tokens of pages that requests hold.
    pub room: u64,
    /// Tokens that further requests hold in addition to the first holder.
    pub shared: u64,
    /// Tokens of pages that running requests span, shared ones counted for each request.
    pub spanned: u64,
}

impl Memory {
    /// A pool of `tokens`, in whole pages, with a host tier behind the tree.
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

    /// Unlocked tokens of the tree.
    pub(super) fn evictable(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::evictable)
    }

    /// Tokens that are available or evictable.
    pub(super) fn reclaimable(&self) -> u64 {
        self.available + self.evictable()
    }

    /// Reclaimable tokens that a request locks with the prefix that ends at `node`.
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

    /// Evicts leaves until `tokens` are available, or nothing evictable remains.
    pub(super) fn evict_until(&mut self, tokens: u64) {
        let Some(tree) = &mut self.tree else { return };
        while self.available < tokens
            && let Some(evicted) = tree.evict()
        {
            self.available += evicted;
        }
    }

    /// Loads `tokens` that are only on the host, on the path to `end`, onto the device, all or nothing; the path
    /// stays locked until the load is reported as complete. True if they are loaded; fewer tokens than the threshold
    /// are recomputed instead.
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

    /// Adds a row of `tokens` to the decoding ones.
    pub(super) fn join(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] += 1;
        self.rows += 1;
        self.spanned += self.ceil(tokens);
    }

    /// Removes a row of `tokens` from the decoding ones.
    pub(super) fn leave(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] -= 1;
        self.rows -= 1;
        self.spanned -= self.ceil(tokens);
    }

    fn remainder(&self, tokens: u64) -> usize {
        ((tokens % self.page + self.page - self.decodes % self.page) % self.page) as usize
    }

    /// Tokens of the pages that the decode after `later` others allocates.
    fn needed(&self, later: u64) -> u64 {
        let phase = (self.decodes + later) % self.page;
        self.remainders[((self.page - phase) % self.page) as usize] * self.page
    }

    /// True if the next decode fits, after evicting for it.
    pub(super) fn decode_fits(&mut self) -> bool {
        let needed = self.needed(0);
        self.evict_until(needed);
        needed <= self.available
    }

    /// Decodes all running rows: allocates pages, after evicting as if each row needed one.
    pub(super) fn decode(&mut self) {
        self.evict_until(self.rows * self.page);
        self.take(self.needed(0));
        self.decodes += 1;
    }

    fn take(&mut self, tokens: u64) {
        self.available = self.available.saturating_sub(tokens);
        self.spanned += tokens;
    }

    /// Number of decodes, at most `most`, that fit one after another, with eviction; if an eviction waits for a copy, the
    /// decodes that evict nothing.
    pub(super) fn decodes_that_fit(&self, most: u64) -> u64 {
        if self.host().is_some_and(Host::writes_back) && self.evictable() > 0 {
            return self.count(most, self.available, self.rows * self.page);
        }
        self.count(most, self.reclaimable(), 0)
    }

    /// Number of decodes, at most `most`, that find their pages in `room` and at least `least` tokens free before
    /// each.
    fn count(&self, most: u64, room: u64, least: u64) -> u64 {
        // Over as many steps as a page has tokens every row takes one page; if room for one round more exists, every
        // step of the rounds fits.
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

    /// Allocates the pages of `steps` decodes that fit; returns the sum over them of the tokens allocated so far.
    pub(super) fn repeat(&mut self, steps: u64) -> u128 {
        let (mut left, mut taken, mut sum) = (steps, 0, 0);
        while left > 0 {
            // If anything is evictable, a decode evicts until every row could take a page.
            let least = if self.evictable() > 0 { self.rows * self.page } else { 0 };
            let fit = self.count(left, self.available, least);
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

    /// Allocates the pages of `steps` decodes without eviction; returns the sum over them of the tokens allocated so
    /// far.
    fn take_decodes(&mut self, steps: u64) -> u128 {
        let (rounds, before) = (steps / self.page, self.available);
        let mut sum = 0;
        if rounds > 0 {
            // The steps of a round allocate as the previous round's, each one round's amount further.
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

    /// A request changes its locked tokens of the tree from `from` to `to`.
    pub(super) fn claim(&mut self, from: u64, to: u64) {
        self.claims = self.claims + to - from;
    }

    /// Use of the pool, of `tokens`.
    pub(super) fn usage(&self, tokens: u64) -> Usage {
        let locked = self.tree.as_ref().map_or(0, Tree::locked);
        Usage {
            room: self.floor(tokens) - self.reclaimable(),
            // What only a copy to the host locks is claimed by nobody.
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

        /// Many decodes at once allocate and evict exactly as many as one by one, and one more would not fit.
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
                    let run = crate::workload::request::Run { segment: segment as u32, start: 0, length: pages * page };
                    tree.insert(&[run], 0);
                }
            }
            memory.decodes = 7;
            rows.iter().for_each(|tokens| memory.join(*tokens));
            let steps = memory.decodes_that_fit(most);
            let (mut stepped, mut sum) = (memory.clone(), 0);
            for _ in 0..steps {
                prop_assert!(stepped.decode_fits());
                stepped.decode();
                sum += u128::from(memory.reclaimable() - stepped.reclaimable());
            }
            let mut leapt = memory.clone();
            prop_assert_eq!(leapt.repeat(steps), sum);
            let of = |m: &Memory| (m.available, m.evictable(), m.decodes, m.spanned);
            prop_assert_eq!(of(&leapt), of(&stepped));
            prop_assert!(steps == most || !stepped.decode_fits());
        }
    }
}
