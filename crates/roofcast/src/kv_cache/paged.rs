//! A pool of KV blocks with a free list in eviction order and a prefix cache over it, as vLLM keeps it.
//!
//! Source: rules 6 to 8 read from vLLM 0.32's `v1/core/block_pool.py` and `kv_cache_manager.py`. Every operation costs
//! the blocks that it touches.

use super::prefix::Content;
use std::collections::{BTreeMap, VecDeque};

/// A block's number.
pub type Block = u32;

/// "No block" in the free list's links.
const NONE: u32 = u32::MAX;

/// The pool.
#[derive(Debug, Clone)]
pub struct Pool {
    blocks: Vec<Slot>,
    /// First and last of the free list.
    head: u32,
    tail: u32,
    free: u64,
    /// Blocks by content, oldest first: several may hold the same.
    cached: BTreeMap<Content, VecDeque<Block>>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Requests that hold it.
    holders: u32,
    content: Option<Content>,
    previous: u32,
    next: u32,
}

impl Pool {
    /// A pool of `count` free blocks.
    pub fn new(count: u32) -> Pool {
        let slot = |i: u32| Slot {
            holders: 0,
            content: None,
            previous: i.checked_sub(1).unwrap_or(NONE),
            next: if i + 1 < count { i + 1 } else { NONE },
        };
        let (head, tail) = if count == 0 { (NONE, NONE) } else { (0, count - 1) };
        Pool {
            blocks: (0..count).map(slot).collect(),
            head,
            tail,
            free: u64::from(count),
            cached: BTreeMap::new(),
        }
    }

    /// Blocks that nobody holds, those with a cached content among them.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// The blocks that hold `contents`, as far as they are there in a row.
    pub fn lookup(&self, contents: &[Content]) -> Vec<Block> {
        contents.iter().map_while(|c| self.cached.get(c)?.front().copied()).collect()
    }

    /// How many of `blocks` nobody holds: taking them costs a free block each.
    pub fn unheld(&self, blocks: &[Block]) -> u64 {
        blocks.iter().filter(|b| self.blocks[**b as usize].holders == 0).count() as u64
    }

    /// Takes cached blocks.
    pub fn hold(&mut self, blocks: &[Block]) {
        for &block in blocks {
            if self.blocks[block as usize].holders == 0 {
                self.unlink(block);
            }
            self.blocks[block as usize].holders += 1;
        }
    }

    /// Takes `count` blocks from the head of the free list, evicting what they cache; all or none.
    pub fn allocate(&mut self, count: u64) -> Option<Vec<Block>> {
        if count > self.free {
            return None;
        }
        let taken = (0..count).map(|_| {
            let block = self.head;
            self.unlink(block);
            self.evict(block);
            self.blocks[block as usize].holders = 1;
            block
        });
        Some(taken.collect())
    }

    /// Says what a full block holds, so that others may hit it.
    pub fn cache(&mut self, block: Block, content: Content) {
        if self.blocks[block as usize].content.is_none() {
            self.blocks[block as usize].content = Some(content);
            self.cached.entry(content).or_default().push_back(block);
        }
    }

    /// Gives back a request's blocks, last to first: those without a cached content to the head as a group, the others
    /// to the tail.
    pub fn release(&mut self, blocks: &[Block]) {
        let mut plain = Vec::new();
        for &block in blocks.iter().rev() {
            let slot = &mut self.blocks[block as usize];
            slot.holders -= 1;
            if slot.holders > 0 {
                continue;
            }
            if slot.content.is_some() { self.link(block, self.tail) } else { plain.push(block) }
        }
        for block in plain.into_iter().rev() {
            self.link(block, NONE);
        }
    }

    fn evict(&mut self, block: Block) {
        let Some(content) = self.blocks[block as usize].content.take() else { return };
        if let Some(same) = self.cached.get_mut(&content) {
            same.retain(|b| *b != block);
            if same.is_empty() {
                self.cached.remove(&content);
            }
        }
    }

    fn unlink(&mut self, block: Block) {
        let Slot { previous, next, .. } = self.blocks[block as usize];
        match previous {
            NONE => self.head = next,
            p => self.blocks[p as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            n => self.blocks[n as usize].previous = previous,
        }
        self.free -= 1;
    }

    /// Links `block` in behind `previous`, or first.
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
    use super::super::prefix::{Contents, Run};
    use super::*;

    fn order(pool: &Pool) -> Vec<Block> {
        let next = |b: &Block| Some(pool.blocks[*b as usize].next).filter(|n| *n != NONE);
        std::iter::successors(Some(pool.head).filter(|h| *h != NONE), next).collect()
    }

    #[test]
    fn plain_blocks_go_to_the_head_and_cached_ones_to_the_tail() {
        let mut pool = Pool::new(5);
        let mut contents = Contents::default();
        let full = contents.of(None, &[Run { segment: 0, start: 0, length: 16 }]);
        let held = pool.allocate(3).unwrap();
        pool.cache(held[0], full);
        pool.release(&held);
        // 2 and 1 as a group in front, 0 behind; a hit finds 0.
        assert_eq!(order(&pool), [2, 1, 3, 4, 0]);
        assert_eq!(pool.lookup(&[full]), [0]);
        // Taking all evicts it.
        assert_eq!(pool.allocate(5).unwrap(), [2, 1, 3, 4, 0]);
        assert!(pool.lookup(&[full]).is_empty() && pool.allocate(1).is_none());
    }
}
