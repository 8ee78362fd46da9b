//! A pool of KV blocks, with a free list in eviction order and a prefix cache, equivalent to vLLM's.
//!
//! Knows: blocks have addresses, of which there are more than blocks: blocks that are allocated together get consecutive
//! addresses, so that what is known of a request's blocks lies together and lists of blocks are a few ranges. Source:
//! rules 6 to 8 read from vLLM 0.32's `v1/core/block_pool.py` and `kv_cache_manager.py`.

use super::names::{Name, index, is_own};
use super::prefix::Content;
use super::spans::{NONE, Ranges, Spans, Supply};
use std::collections::VecDeque;
use std::ops::Range;

/// Address of a block. A block has another address each time it is allocated.
pub(crate) type Block = u32;

/// Number of addresses for each block.
const SPREAD: u32 = 4;

/// [`Slot::entry`] of an address without a block, of a held block, and of a free block without content.
const VACANT: u32 = 0;
const HELD: u32 = 1;
const PLAIN: u32 = 2;

/// Pool of KV blocks.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    addresses: Supply,
    /// Number of blocks in the pool.
    count: u32,
    /// Free blocks in the order of eviction: those without content, from the last of the last range down; those that were
    /// never allocated; those with content, by entry, each from its last block down.
    plain: Vec<Range<Block>>,
    fresh: u32,
    cached: VecDeque<Entry>,
    /// Number of entries so far.
    entries: u32,
    free: u64,
    /// Number of holders of blocks beyond the first holder of each, over all blocks.
    repeated: u64,
    /// Oldest block of each shareable content; newer blocks with equal content follow by [`Slot::same`].
    oldest: Vec<Block>,
    /// Blocks that keep their addresses when they are allocated, because they are still read after they were freed.
    pub(crate) protected: Ranges,
    /// Log of contents stored and removed, if changes are watched.
    changes: Option<Vec<Change<Name>>>,
}

/// Change of the contents of the prefix cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<C = Content> {
    /// Full blocks of a request became findable.
    Stored {
        /// Id of the request.
        owner: u64,
        /// Index in the request of the first of these blocks.
        first: u64,
        /// Contents of the blocks, in order.
        contents: Vec<C>,
    },
    /// A cached block was allocated anew and lost its content.
    Removed {
        /// Former content of the block.
        content: C,
    },
}

/// Blocks with content that were freed together. Only blocks whose [`Slot::entry`] is `number` are still in it.
#[derive(Debug, Clone)]
struct Entry {
    blocks: Range<Block>,
    number: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Number of requests that hold the block.
    holders: u32,
    /// Content of the block; [`NONE`] without one.
    content: Name,
    /// Next newer block with equal content.
    same: Block,
    /// Number of the block's entry in the free list, or a state.
    entry: u32,
}

impl Pool {
    /// Creates a pool of `count` free blocks.
    pub(crate) fn new(count: u32) -> Pool {
        Pool {
            slots: Vec::new(),
            addresses: Supply::default(),
            count,
            plain: Vec::new(),
            fresh: count,
            cached: VecDeque::new(),
            entries: PLAIN,
            free: u64::from(count),
            repeated: 0,
            oldest: Vec::new(),
            protected: Ranges::default(),
            changes: None,
        }
    }

    /// Starts to log changes of the cache.
    pub(crate) fn watch(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// True if changes are logged.
    pub(crate) fn is_watched(&self) -> bool {
        self.changes.is_some()
    }

    /// Returns the log of changes, if changes are watched.
    pub(crate) fn changes(&mut self) -> Option<&mut Vec<Change<Name>>> {
        self.changes.as_mut()
    }

    /// Names of the blocks' contents, and of those in the log.
    pub(crate) fn names(&self) -> impl Iterator<Item = Range<Name>> {
        let logged = self.changes.iter().flatten().flat_map(|change| match change {
            Change::Stored { contents, .. } => contents.as_slice(),
            Change::Removed { content } => std::slice::from_ref(content),
        });
        let mut cached = Spans::default();
        let contents = self.slots.iter().map(|slot| slot.content).filter(|content| *content != NONE);
        contents.for_each(|content| cached.push(content..content + 1));
        let cached: Vec<Range<Name>> = cached.ranges().collect();
        cached.into_iter().chain(logged.map(|name| *name..name + 1))
    }

    /// Number of blocks that no request holds, cached blocks included.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Number of holders of blocks beyond the first holder of each, over all blocks.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Finds the oldest block that holds `content`. A content unique to one request is looked up only in `own`, the
    /// block where the request last had it.
    pub(crate) fn find(&self, content: Name, own: Option<Block>) -> Option<Block> {
        if !is_own(content) {
            return self.oldest.get(index(content)).copied().filter(|block| *block != NONE);
        }
        own.filter(|block| self.slots.get(*block as usize).is_some_and(|slot| slot.content == content))
    }

    /// Addresses of the next `count` blocks that will be allocated and were allocated before.
    pub(crate) fn next_free(&self, count: usize) -> impl Iterator<Item = Block> {
        let plain = self.plain.iter().rev().flat_map(|blocks| blocks.clone().rev());
        let fresh = std::iter::repeat_n(NONE, self.fresh as usize);
        let cached = self.cached.iter().flat_map(|Entry { blocks, number }| {
            blocks.clone().rev().filter(|block| self.slots[*block as usize].entry == *number)
        });
        plain.chain(fresh).chain(cached).take(count)
    }

    /// Number of `blocks` that no request holds; holding them reduces the free blocks by as many.
    pub(crate) fn unheld(&self, blocks: &Spans) -> u64 {
        let free = |range: Range<Block>| {
            let slots = &self.slots[range.start as usize..range.end as usize];
            slots.iter().filter(|slot| slot.holders == 0).count() as u64
        };
        blocks.ranges().map(free).sum()
    }

    /// Holds cached blocks for a request.
    pub(crate) fn hold(&mut self, blocks: &Spans) {
        for range in blocks.ranges() {
            for slot in &mut self.slots[range.start as usize..range.end as usize] {
                match slot.holders {
                    0 => self.free -= 1,
                    _ => self.repeated += 1,
                }
                slot.entry = HELD;
                slot.holders += 1;
            }
        }
    }

    /// Allocates `count` blocks from the head of the free list, evicts their contents and appends them to `taken`;
    /// returns false, without any change, if too few are free.
    pub(crate) fn allocate(&mut self, count: u64, taken: &mut Spans) -> bool {
        if count > self.free {
            return false;
        }
        self.free -= count;
        let mut left = count as u32;
        // Blocks whose addresses are given up.
        let mut moved = 0;
        while left > 0
            && let Some(blocks) = self.plain.last_mut()
        {
            let from = blocks.start.max(blocks.end - left.min(blocks.len() as u32));
            let range = from..blocks.end;
            blocks.end = from;
            if Range::is_empty(blocks) {
                self.plain.pop();
            }
            left -= range.len() as u32;
            moved += self.reuse(range, taken);
        }
        let fresh = left.min(self.fresh);
        self.fresh -= fresh;
        left -= fresh;
        moved += fresh;
        while left > 0
            && let Some(Entry { blocks, number }) = self.cached.pop_front()
        {
            let mut rest = blocks.clone();
            let protects = self.protected.overlap(&blocks);
            while left > 0
                && let Some(block) = rest.next_back()
            {
                if self.slots[block as usize].entry != number {
                    continue;
                }
                self.evict(block);
                left -= 1;
                if protects {
                    moved += self.reuse(block..block + 1, taken);
                } else {
                    self.slots[block as usize].entry = VACANT;
                    moved += 1;
                }
            }
            if !rest.is_empty() {
                self.cached.push_front(Entry { blocks: rest, number });
            }
        }
        self.place(moved, taken);
        true
    }

    /// Gives up the addresses of free blocks that are allocated, and appends protected ones to `taken`; returns the number
    /// of blocks without address.
    fn reuse(&mut self, blocks: Range<Block>, taken: &mut Spans) -> u32 {
        let mut moved = 0;
        for block in blocks.rev() {
            let slot = &mut self.slots[block as usize];
            if self.protected.has(block) {
                (slot.holders, slot.entry) = (1, HELD);
                taken.push(block..block + 1);
            } else {
                slot.entry = VACANT;
                moved += 1;
            }
        }
        moved
    }

    /// Gives `count` allocated blocks addresses, and appends them to `taken`.
    fn place(&mut self, count: u32, taken: &mut Spans) {
        let mut left = count;
        while left > 0 {
            if self.addresses.is_spent() && self.addresses.end >= self.count.saturating_mul(SPREAD) {
                let slots = &self.slots;
                self.addresses.refill(|block| slots[block as usize].entry == VACANT);
            }
            let range = self.addresses.take(left);
            let slot = Slot { holders: 1, content: NONE, same: NONE, entry: HELD };
            if self.slots.len() < range.end as usize {
                self.slots.resize(range.end as usize, slot);
            }
            self.slots[range.start as usize..range.end as usize].fill(slot);
            left -= range.len() as u32;
            taken.push(range);
        }
    }

    /// Records the contents of full blocks, so that other requests can find them.
    pub(crate) fn cache(&mut self, blocks: Range<Block>, contents: Range<Name>) {
        if !is_own(contents.start) && self.oldest.len() < contents.end as usize {
            self.oldest.resize(contents.end as usize, NONE);
        }
        let slots = self.slots[blocks.start as usize..blocks.end as usize].iter_mut();
        let new = slots.zip(contents.clone()).zip(blocks).filter(|((slot, _), _)| slot.content == NONE);
        if is_own(contents.start) {
            return new.for_each(|((slot, content), _)| slot.content = content);
        }
        // Blocks whose content another block has, with the oldest such block.
        let mut repeated = Vec::new();
        for ((slot, content), block) in new {
            slot.content = content;
            match &mut self.oldest[content as usize] {
                oldest if *oldest == NONE => *oldest = block,
                oldest => repeated.push((*oldest, block)),
            }
        }
        for (oldest, block) in repeated {
            let mut last = oldest;
            while self.slots[last as usize].same != NONE {
                last = self.slots[last as usize].same;
            }
            self.slots[last as usize].same = block;
        }
    }

    /// Frees a request's blocks from last to first: blocks without cached content move to the head of the free list
    /// as a group, all others to the tail.
    pub(crate) fn release(&mut self, blocks: &Spans) {
        // Blocks without content keep their order of release at the head: the last of the request is the next one.
        let mut plain: Vec<Range<Block>> = Vec::new();
        for range in blocks.ranges().rev() {
            self.entries += 1;
            let mut cached = false;
            for block in range.clone().rev() {
                let slot = &mut self.slots[block as usize];
                slot.holders -= 1;
                if slot.holders > 0 {
                    self.repeated -= 1;
                    continue;
                }
                self.free += 1;
                if slot.content != NONE {
                    slot.entry = self.entries;
                    cached = true;
                    continue;
                }
                slot.entry = PLAIN;
                match plain.last_mut().filter(|last| last.start == block + 1) {
                    Some(last) => last.start = block,
                    None => plain.push(block..block + 1),
                }
            }
            if cached {
                self.cached.push_back(Entry { blocks: range, number: self.entries });
            }
        }
        self.plain.extend(plain.into_iter().rev());
        if self.cached.len() > 64 + 2 * self.count as usize {
            let slots = &self.slots;
            self.cached.retain(|Entry { blocks, number }| {
                blocks.clone().any(|block| slots[block as usize].entry == *number)
            });
        }
    }

    fn evict(&mut self, block: Block) {
        let slot = &mut self.slots[block as usize];
        let content = std::mem::replace(&mut slot.content, NONE);
        let next = std::mem::replace(&mut slot.same, NONE);
        if content == NONE || is_own(content) {
            return;
        }
        if let Some(changes) = &mut self.changes {
            changes.push(Change::Removed { content });
        }
        let oldest = &mut self.oldest[index(content)];
        if *oldest == block {
            *oldest = next;
            return;
        }
        let mut before = *oldest;
        while self.slots[before as usize].same != block {
            before = self.slots[before as usize].same;
        }
        self.slots[before as usize].same = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of single blocks.
    fn list(blocks: &[Block]) -> Spans {
        let mut list = Spans::default();
        blocks.iter().for_each(|block| list.push(*block..block + 1));
        list
    }

    fn numbers(list: &Spans) -> Vec<Block> {
        list.ranges().flatten().collect()
    }

    /// A pool whose blocks keep their addresses, of which all are allocated once.
    fn pool(count: u32) -> (Pool, Vec<Block>) {
        let mut pool = Pool::new(count);
        pool.protected.add(0..count);
        let mut blocks = Spans::default();
        pool.allocate(u64::from(count), &mut blocks);
        (pool, numbers(&blocks))
    }

    fn taken(pool: &mut Pool, count: u64) -> Vec<Block> {
        let mut blocks = Spans::default();
        pool.allocate(count, &mut blocks);
        numbers(&blocks)
    }

    #[test]
    fn plain_blocks_go_to_the_head_and_cached_ones_to_the_tail() {
        let (mut pool, blocks) = pool(5);
        pool.release(&list(&blocks[3..]));
        pool.cache(blocks[0]..blocks[1], 1..2);
        pool.release(&list(&blocks[..3]));
        // Blocks 2 and 1 are a group at the head, before 4 and 3, which were freed earlier; block 0 is at the tail. A
        // look-up finds block 0.
        assert_eq!(pool.next_free(9).collect::<Vec<_>>(), [2, 1, 4, 3, 0]);
        assert_eq!(pool.find(1, None), Some(0));
        // Allocating all blocks evicts the content.
        assert_eq!(taken(&mut pool, 5), [2, 1, 4, 3, 0]);
        assert!(pool.find(1, None).is_none() && taken(&mut pool, 1).is_empty());
    }

    #[test]
    fn of_equal_blocks_the_oldest_is_hit_and_the_next_when_it_goes() {
        let (mut pool, blocks) = pool(4);
        let private = 1 << 31 | 2;
        blocks[..3].iter().for_each(|block| pool.cache(*block..block + 1, 1..2));
        pool.cache(3..4, private..private + 1);
        assert_eq!((pool.find(1, None), pool.find(private, Some(3))), (Some(0), Some(3)));
        // When the held blocks are freed from last to first and allocated again, 3 and 2 are evicted, and 0 is still
        // the oldest.
        pool.release(&list(&blocks));
        assert_eq!(taken(&mut pool, 2), [3, 2]);
        assert_eq!((pool.find(1, None), pool.find(private, Some(3))), (Some(0), None));
        pool.hold(&list(&[1]));
        assert_eq!(taken(&mut pool, 1), [0]);
        assert_eq!(pool.find(1, None), Some(1));
    }

    /// Of four blocks one is always held, while three are allocated and freed again and again: the three get consecutive
    /// addresses each time, of no more than 16.
    #[test]
    fn blocks_allocated_together_lie_together() {
        let mut pool = Pool::new(4);
        assert_eq!(taken(&mut pool, 1), [0]);
        for _ in 0..20 {
            let mut blocks = Spans::default();
            assert!(pool.allocate(3, &mut blocks));
            assert_eq!(blocks.ranges().count(), 1);
            assert!(numbers(&blocks).iter().all(|block| (1..19).contains(block)));
            pool.release(&blocks);
        }
    }
}
