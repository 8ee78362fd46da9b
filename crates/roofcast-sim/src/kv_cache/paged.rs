//! A pool of KV blocks, with a free list in eviction order and a prefix cache, equivalent to vLLM's.
//!
//! Source: rules 6 to 8 read from vLLM 0.32's `v1/core/block_pool.py` and `kv_cache_manager.py`. The cost of every
//! operation is proportional to the blocks that it touches.

use super::names::{Name, NameMap};
use super::prefix::Content;

/// Index of a block.
pub(crate) type Block = u32;

/// Marks the absence of a block in the links of the free list.
const NONE: u32 = u32::MAX;

/// Pool of KV blocks.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    /// Blocks that were allocated at least once, followed by the first never-allocated block, which represents all
    /// others in the free list.
    blocks: Vec<Slot>,
    /// Number of blocks in the pool.
    count: u32,
    /// First and last block of the free list.
    head: u32,
    tail: u32,
    free: u64,
    /// Number of holders of blocks beyond the first holder of each, over all blocks.
    repeated: u64,
    /// Oldest block of each shareable content; newer blocks with equal content follow by [`Slot::same`].
    cached: NameMap<Block>,
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

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Number of requests that hold the block.
    holders: u32,
    content: Option<Name>,
    /// Next newer block with equal content.
    same: u32,
    previous: u32,
    next: u32,
}

impl Pool {
    /// Creates a pool of `count` free blocks.
    pub(crate) fn new(count: u32) -> Pool {
        let first = Slot { holders: 0, content: None, same: NONE, previous: NONE, next: NONE };
        let end = if count == 0 { NONE } else { 0 };
        Pool {
            blocks: vec![first],
            count,
            head: end,
            tail: end,
            free: u64::from(count),
            repeated: 0,
            cached: NameMap::default(),
            changes: None,
        }
    }

    /// Starts to log changes of the cache.
    pub(crate) fn watch(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// Returns the log of changes, if changes are watched.
    pub(crate) fn changes(&mut self) -> Option<&mut Vec<Change<Name>>> {
        self.changes.as_mut()
    }

    /// Names of the blocks' contents, and of those in the log.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        let logged = self.changes.iter().flatten().flat_map(|change| match change {
            Change::Stored { contents, .. } => contents.as_slice(),
            Change::Removed { content } => std::slice::from_ref(content),
        });
        self.blocks.iter().filter_map(|block| block.content).chain(logged.copied())
    }

    /// Number of blocks that no request holds, cached blocks included.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Number of holders of blocks beyond the first holder of each, over all blocks.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Finds the oldest block that holds `content`. Name unique to one request is looked up only in `own`, the
    /// block where the request last had it.
    pub(crate) fn find(&self, content: Name, own: Option<Block>) -> Option<Block> {
        if !content.is_own() {
            return self.cached.get(content).copied();
        }
        let holds =
            |block: &Block| self.blocks.get(*block as usize).is_some_and(|b| b.content == Some(content));
        own.filter(holds)
    }

    /// Free blocks that were allocated before, in the order in which they will be allocated again.
    pub(crate) fn next_free(&self) -> impl Iterator<Item = Block> {
        let next = |block: &Block| Some(self.blocks[*block as usize].next).filter(|next| *next != NONE);
        std::iter::successors(Some(self.head).filter(|head| *head != NONE), next)
    }

    /// Number of `blocks` that no request holds; holding them reduces the free blocks by as many.
    pub(crate) fn unheld(&self, blocks: &[Block]) -> u64 {
        blocks.iter().filter(|b| self.blocks[**b as usize].holders == 0).count() as u64
    }

    /// Holds cached blocks for a request.
    pub(crate) fn hold(&mut self, blocks: &[Block]) {
        for &block in blocks {
            match self.blocks[block as usize].holders {
                0 => self.unlink(block),
                _ => self.repeated += 1,
            }
            self.blocks[block as usize].holders += 1;
        }
    }

    /// Allocates `count` blocks from the head of the free list, evicts their contents and appends them to `taken`;
    /// returns false, without any change, if too few are free.
    pub(crate) fn allocate(&mut self, count: u64, taken: &mut Vec<Block>) -> bool {
        if count > self.free {
            return false;
        }
        for _ in 0..count {
            let block = self.head;
            self.unlink(block);
            self.evict(block);
            self.blocks[block as usize].holders = 1;
            taken.push(block);
        }
        true
    }

    /// Records the content of a full block, so that other requests can find it.
    pub(crate) fn cache(&mut self, block: Block, content: Name) {
        if self.blocks[block as usize].content.is_some() {
            return;
        }
        self.blocks[block as usize].content = Some(content);
        if content.is_own() {
            return;
        }
        let Some(mut last) = self.cached.get(content).copied() else {
            return self.cached.insert(content, block);
        };
        while last != block {
            match self.blocks[last as usize].same {
                NONE => {
                    self.blocks[last as usize].same = block;
                    break;
                }
                next => last = next,
            }
        }
    }

    /// Frees a request's blocks from last to first: blocks without cached content move to the head of the free list
    /// as a group, all others to the tail.
    pub(crate) fn release(&mut self, blocks: &[Block]) {
        // Blocks without content keep their order of release at the head: each follows the one released before.
        let mut plain = NONE;
        for &block in blocks.iter().rev() {
            let slot = &mut self.blocks[block as usize];
            slot.holders -= 1;
            if slot.holders > 0 {
                self.repeated -= 1;
                continue;
            }
            if slot.content.is_some() {
                self.link(block, self.tail);
            } else {
                self.link(block, plain);
                plain = block;
            }
        }
    }

    fn evict(&mut self, block: Block) {
        let Some(content) = self.blocks[block as usize].content.take() else { return };
        if content.is_own() {
            return;
        }
        if let Some(changes) = &mut self.changes {
            changes.push(Change::Removed { content });
        }
        let next = std::mem::replace(&mut self.blocks[block as usize].same, NONE);
        let Some(oldest) = self.cached.get(content).copied() else { return };
        if oldest == block {
            if next == NONE {
                self.cached.remove(content);
            } else {
                self.cached.insert(content, next);
            }
            return;
        }
        let mut before = oldest;
        while self.blocks[before as usize].same != block {
            before = self.blocks[before as usize].same;
        }
        self.blocks[before as usize].same = next;
    }

    fn unlink(&mut self, block: Block) {
        let slot = self.blocks[block as usize];
        let mut before = slot.previous;
        let mut after = slot.next;
        // The next never-allocated block takes the place in the free list of the one just allocated.
        let heir = block + 1;
        if self.blocks.len() == heir as usize && heir < self.count {
            self.blocks.push(slot);
            (before, after) = (heir, heir);
        }
        match slot.previous {
            NONE => self.head = after,
            p => self.blocks[p as usize].next = after,
        }
        match slot.next {
            NONE => self.tail = before,
            n => self.blocks[n as usize].previous = before,
        }
        self.free -= 1;
    }

    /// Inserts `block` behind `previous` in the free list, or at the front.
    fn link(&mut self, block: Block, previous: u32) {
        let next = if previous == NONE { self.head } else { self.blocks[previous as usize].next };
        self.blocks[block as usize].previous = previous;
        self.blocks[block as usize].next = next;
        match previous {
            NONE => self.head = block,
            p => self.blocks[p as usize].next = block,
        }
        match next {
            NONE => self.tail = block,
            n => self.blocks[n as usize].previous = block,
        }
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::*;

    fn order(pool: &Pool) -> Vec<Block> {
        let next = |b: &Block| Some(pool.blocks[*b as usize].next).filter(|n| *n != NONE);
        let all = std::iter::successors(Some(pool.head).filter(|h| *h != NONE), next);
        let last = pool.blocks.len() as u32 - 1;
        all.flat_map(|b| if b == last { b..pool.count } else { b..b + 1 }).collect()
    }

    fn taken(pool: &mut Pool, count: u64) -> Vec<Block> {
        let mut blocks = Vec::new();
        pool.allocate(count, &mut blocks);
        blocks
    }

    #[test]
    fn plain_blocks_go_to_the_head_and_cached_ones_to_the_tail() {
        let mut pool = Pool::new(5);
        let full = Names::default().name(Name::START, Content::START.below(1));
        let blocks = taken(&mut pool, 3);
        pool.cache(blocks[0], full);
        pool.release(&blocks);
        // Blocks 2 and 1 are a group at the head, block 0 is at the tail; a look-up finds block 0.
        assert_eq!(order(&pool), [2, 1, 3, 4, 0]);
        assert_eq!(pool.find(full, None), Some(0));
        // Allocating all blocks evicts the content.
        assert_eq!(taken(&mut pool, 5), [2, 1, 3, 4, 0]);
        assert!(pool.find(full, None).is_none() && taken(&mut pool, 1).is_empty());
    }

    #[test]
    fn of_equal_blocks_the_oldest_is_hit_and_the_next_when_it_goes() {
        let mut pool = Pool::new(4);
        let mut names = Names::default();
        let shared = names.name(Name::START, Content::START.below(1));
        let own_name = names.name(Name::START, Content::own(7, 0));
        let blocks = taken(&mut pool, 4);
        blocks[..3].iter().for_each(|b| pool.cache(*b, shared));
        pool.cache(3, own_name);
        assert_eq!((pool.find(shared, None), pool.find(own_name, Some(3))), (Some(0), Some(3)));
        // When the held blocks are freed from last to first and allocated again, 3 and 2 are evicted, and 0 is still
        // the oldest.
        pool.release(&blocks);
        assert_eq!(taken(&mut pool, 2), [3, 2]);
        assert_eq!((pool.find(shared, None), pool.find(own_name, Some(3))), (Some(0), None));
        pool.hold(&[1]);
        assert_eq!(taken(&mut pool, 1), [0]);
        assert_eq!(pool.find(shared, None), Some(1));
    }
}
