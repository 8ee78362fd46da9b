//! The KV pool of one replica in whole pages: what is available, what the tree keeps, what decodes need next.
//!
//! Knows: the pool is what is available, what the tree has, and what requests hold beside the tree; what nobody locks in
//! the tree is evicted when room is taken. Rows that decode grow together, so that what they need is a count per
//! remainder of their lengths by the page. Source: SGLang 0.5.23, `mem_cache/allocation.py` and `mem_cache/allocator/`.
//! Knows nothing about which requests are admitted or retracted.

use super::config::HiCache;
use super::tree::host::Host;
use super::tree::{Node, Tree};

/// What is only on the host is loaded from so many tokens on, SGLang's `load_back_threshold`.
const LOAD_BACK_TOKENS: u64 = 10;

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
    /// Tokens of the pages that running rows span.
    spanned: u64,
    /// Tokens that requests lock; one that several lock counts once for each.
    claims: u64,
}

/// What a pool is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of pages that requests hold.
    pub room: u64,
    /// Tokens that requests hold beyond the first that holds them.
    pub shared: u64,
    /// Tokens of pages that running requests span, shared ones for each of them.
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

    /// `tokens` in whole pages.
    pub(super) fn ceil(&self, tokens: u64) -> u64 {
        tokens.next_multiple_of(self.page)
    }

    /// The whole pages of `tokens`.
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

    /// Takes `tokens` that are only on the host, on the way to `end`, back to the device, all or nothing; their path stays
    /// locked until the load is reported. Whether that is done: few tokens are computed instead.
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

    /// The host tier, where there is one.
    pub(super) fn host(&self) -> Option<&Host> {
        self.tree.as_ref().and_then(|tree| tree.host.as_ref())
    }

    /// A row of `tokens` starts to decode with the others.
    pub(super) fn join(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] += 1;
        self.rows += 1;
        self.spanned += self.ceil(tokens);
    }

    /// A row of `tokens` decodes no more.
    pub(super) fn leave(&mut self, tokens: u64) {
        let remainder = self.remainder(tokens);
        self.remainders[remainder] -= 1;
        self.rows -= 1;
        self.spanned -= self.ceil(tokens);
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
        self.take(self.needed(0));
        self.decodes += 1;
    }

    fn take(&mut self, tokens: u64) {
        self.available = self.available.saturating_sub(tokens);
        self.spanned += tokens;
    }

    /// How many decodes, at most `most`, fit one after another, whatever they evict.
    pub(super) fn decodes_that_fit(&self, most: u64) -> u64 {
        self.count(most, self.reclaimable(), 0)
    }

    /// How many of `most` decodes find their pages in `room`, and before each of them at least `least` tokens of it.
    fn count(&self, most: u64, room: u64, least: u64) -> u64 {
        // In as many steps as a page has tokens every row takes a page once; where one round more is there, every step of
        // the rounds fits.
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

    /// Takes the pages of `steps` decodes that fit: the sum over them of the tokens taken so far.
    pub(super) fn repeat(&mut self, steps: u64) -> u128 {
        let (mut left, mut taken, mut sum) = (steps, 0, 0);
        while left > 0 {
            // Where there is something to evict, a decode evicts until every row could take a page.
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

    /// Takes the pages of `steps` decodes that evict nothing: the sum over them of the tokens taken so far.
    fn take_decodes(&mut self, steps: u64) -> u128 {
        let (rounds, before) = (steps / self.page, self.available);
        let mut sum = 0;
        if rounds > 0 {
            // A round's steps take the same as those of the round before it, each beyond a round more.
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

    /// How many rows run.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// A request locks `to` tokens of the tree, and no more the `from` of before.
    pub(super) fn claim(&mut self, from: u64, to: u64) {
        self.claims = self.claims + to - from;
    }

    /// What the pool, of `tokens`, is used for.
    pub(super) fn usage(&self, tokens: u64) -> Usage {
        let locked = self.tree.as_ref().map_or(0, Tree::locked);
        Usage {
            room: self.floor(tokens) - self.reclaimable(),
            shared: self.claims - locked,
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

        /// Many decodes at once take and evict what they take and evict one by one, and one more would not have fitted.
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
