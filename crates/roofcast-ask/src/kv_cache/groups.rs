//! Groups of layers with equal retention of tokens, and the blocks of each group in a common pool.
//!
//! Knows: vLLM puts layers with a sliding window into separate groups, each with as many layers as a full-attention
//! group, so that all blocks have equal bytes. A group with a window frees the blocks that have left the window, so
//! that a long sequence holds a constant number. A group holds ⌈tokens/b⌉ blocks of b tokens, with a window w at most
//! ⌈(w − 1)/b⌉ + 1, which suffices at any alignment. The additional blocks of a prompt chunk longer than the window,
//! held during its step, are not counted. Knows nothing about which request holds which blocks.
//!
//! Source: vLLM 0.13, `v1/core/kv_cache_utils.py` (`_get_kv_cache_groups_uniform_page_size`) and
//! `single_type_kv_cache_manager.py` (`SlidingWindowManager`).

use std::collections::BTreeMap;

/// Tokens per block. Divisions by a power of two, the usual case, are shifts, because each request divides several
/// times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    tokens: u64,
    shift: Option<u32>,
}

impl BlockSize {
    /// Creates a block size of `tokens` tokens, at least one.
    pub(crate) fn new(tokens: u64) -> BlockSize {
        BlockSize { tokens, shift: tokens.is_power_of_two().then(|| tokens.trailing_zeros()) }
    }

    /// Tokens per block.
    #[inline(always)]
    pub fn tokens(self) -> u64 {
        self.tokens
    }

    /// Number of whole blocks in `tokens`, and the remaining tokens.
    #[inline(always)]
    pub fn divide(self, tokens: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (tokens >> shift, tokens & (self.tokens - 1)),
            None => self.divide_by_any(tokens),
        }
    }

    #[cold]
    fn divide_by_any(self, tokens: u64) -> (u64, u64) {
        (tokens / self.tokens, tokens % self.tokens)
    }

    /// Number of blocks that hold `tokens`.
    #[inline(always)]
    pub(crate) fn ceil(self, tokens: u64) -> u64 {
        let (whole, rest) = self.divide(tokens);
        whole + u64::from(rest > 0)
    }
}

/// Groups of a model's layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    block: BlockSize,
    all: Vec<Group>,
    /// True if there is only one group and it has full attention.
    one: bool,
}

/// Several groups with equal retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Number of groups.
    pub count: u64,
    /// Most blocks of a sequence in each group.
    pub most: u64,
    /// Most tokens that attention of the next token reads in these layers.
    window: u64,
}

impl Groups {
    /// One group of all layers, in blocks of `block` tokens.
    pub fn one(block: u64) -> Groups {
        Groups::new(block, vec![Group { count: 1, most: u64::MAX, window: u64::MAX }])
    }

    /// Groups for `layers`, the number of layers by window (`u64::MAX` for full attention), in blocks of `block`
    /// tokens, and the number of layers of a group. `None` if no layer has a window.
    pub fn of_windows(layers: &BTreeMap<u64, u64>, block: u64) -> Option<(Groups, u64)> {
        if layers.keys().all(|window| *window == u64::MAX) {
            return None;
        }
        let fewest = layers.values().min()?;
        let largest = layers.values().max()?;
        let size = *if 2 * largest < 3 * fewest { largest } else { fewest };
        let group = |(window, layers): (&u64, &u64)| {
            let reached = window.saturating_sub(1);
            let block_limit = if *window == u64::MAX { u64::MAX } else { reached.div_ceil(block) + 1 };
            Group { count: layers.div_ceil(size), most: block_limit, window: reached }
        };
        Some((Groups::new(block, layers.iter().map(group).collect()), size))
    }

    fn new(block: u64, all: Vec<Group>) -> Groups {
        let is_single = matches!(all[..], [Group { count: 1, most: u64::MAX, .. }]);
        Groups { block: BlockSize::new(block), all, one: is_single }
    }

    /// True if there is only one group and it has full attention.
    #[inline]
    pub fn are_one(&self) -> bool {
        self.one
    }

    /// Groups, with equal ones merged.
    pub fn kinds(&self) -> &[Group] {
        &self.all
    }

    /// Number of groups.
    pub fn count(&self) -> u64 {
        self.all.iter().map(|group| group.count).sum()
    }

    /// Tokens per block.
    pub fn block(&self) -> u64 {
        self.block.tokens()
    }

    /// Block size in a form that divides fast.
    pub fn block_size(&self) -> BlockSize {
        self.block
    }

    /// Number of blocks of a sequence of `tokens` tokens, over all groups.
    #[inline(always)]
    pub fn blocks(&self, tokens: u64) -> u64 {
        let blocks = self.block.ceil(tokens);
        if self.are_one() { blocks } else { self.of_all(blocks) }
    }

    /// Number of blocks over all groups of a sequence that has `blocks` in each full-attention group.
    #[inline(never)]
    fn of_all(&self, blocks: u64) -> u64 {
        self.all.iter().map(|group| group.count * blocks.min(group.most)).sum()
    }

    /// Tokens of the longest sequence that fits in `blocks` blocks, at most 2^32.
    pub fn longest(&self, blocks: u64) -> u64 {
        let mut fits = 0;
        let mut beyond = 1 << 32;
        while beyond - fits > 1 {
            let middle = (fits + beyond) / 2;
            if self.blocks(middle * self.block()) <= blocks { fits = middle } else { beyond = middle }
        }
        fits * self.block()
    }

    /// Token slots in the blocks of a sequence with its next token, over all groups, summed over sequence lengths
    /// from 0 to `tokens` − 1.
    pub fn room_below(&self, tokens: u64) -> u128 {
        let room_of = |group: &Group| {
            let full = group.most.saturating_mul(self.block());
            let rising = tokens.min(full);
            let rest = u128::from(tokens - rising) * u128::from(full);
            u128::from(group.count) * (self.spanned_below(rising) * u128::from(self.block()) + rest)
        };
        self.all.iter().map(room_of).sum()
    }

    /// Occupied slots among those of [`Groups::room_below`]: the tokens that attention of the next token reads.
    pub fn kept_below(&self, tokens: u64) -> u128 {
        let kept_of = |group: &Group| {
            let rising = u128::from(tokens.min(group.window.saturating_add(1)));
            let level = u128::from(tokens) - rising;
            u128::from(group.count)
                * (rising * rising.saturating_sub(1) / 2 + level * u128::from(group.window))
        };
        self.all.iter().map(kept_of).sum()
    }

    /// Blocks of a sequence with its next token in a full-attention group, summed over sequence lengths from 0 to
    /// `tokens` − 1: 1, 2, … n for each whole block of lengths, and n + 1 for the rest. `tokens` is below 2³².
    #[inline(always)]
    pub fn spanned_below(&self, tokens: u64) -> u128 {
        let (whole, rest) = self.block.divide(tokens);
        u128::from((tokens + rest) * (whole + 1) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One full-attention group and five with a window of 8 tokens, in blocks of 4 tokens: at most ⌈7/4⌉ + 1 = 3
    /// blocks of each windowed group.
    fn six() -> Groups {
        let all = vec![
            Group { count: 1, most: u64::MAX, window: u64::MAX },
            Group { count: 5, most: 3, window: 7 },
        ];
        Groups::new(4, all)
    }

    #[test]
    fn blocks_by_hand() {
        let blocks = [0, 1, 4, 5, 12, 13, 40].map(|tokens| six().blocks(tokens));
        assert_eq!(blocks, [0, 6, 6, 12, 18, 19, 10 + 15]);
        // 18 blocks hold 12 tokens, 19 hold 16; 17 are too few for a third block in each of the six groups.
        assert_eq!([17, 18, 19, 25].map(|blocks| six().longest(blocks)), [8, 12, 16, 40]);
        // Groups with windows never need more than a constant number of blocks.
        let window = Groups::new(4, six().all[1..].to_vec());
        assert!(window.longest(15) > 1 << 33 && window.longest(14) == 8);
    }

    #[test]
    fn sums_are_of_every_step() {
        for tokens in 0..60 {
            let room: u64 = (0..tokens).map(|c| six().blocks(c + 1) * 4).sum();
            let kept_steps: u64 = (0..tokens).map(|c| c + 5 * c.min(7)).sum();
            let spanned: u64 = (0..tokens).map(|c: u64| (c + 1).div_ceil(4)).sum();
            assert_eq!(six().room_below(tokens), u128::from(room));
            assert_eq!(six().kept_below(tokens), u128::from(kept_steps));
            assert_eq!(six().spanned_below(tokens), u128::from(spanned));
        }
    }

    /// 35 tokens are two blocks of 16 tokens and three more tokens, or five blocks of seven.
    #[test]
    fn powers_of_two_divide_as_others_do() {
        let [sixteen, seven] = [16, 7].map(BlockSize::new);
        assert_eq!((sixteen.divide(35), sixteen.ceil(35), sixteen.ceil(32)), ((2, 3), 3, 2));
        assert_eq!((seven.divide(35), seven.ceil(35), seven.ceil(36)), ((5, 0), 5, 6));
        assert_eq!((BlockSize::new(1).divide(35), BlockSize::new(1).ceil(35)), ((35, 0), 35));
    }
}
