//! A pool of KV blocks with vLLM's prefix cache by extents: contiguous blocks with equal holders.
//!
//! Knows: equal counts to [`super::paged`], at a cost that grows with the extents touched rather than with their
//! blocks. Free blocks without content are interchangeable and used first, so that only their number is stored.
//! Blocks with content are nodes of a radix tree of token runs. A request frees its blocks from last to first: free
//! nodes are in a list in order of eviction, each is evicted from its end, and none before its descendants. Equal
//! contents that were computed twice are copies of one node; look-ups return the oldest. Knows nothing about which
//! requests are admitted or preempted.

use super::cursor::Cursor;
use super::prefix::{Content, ContentMap};
use roofcast_ask::workload::request::Run;
use roofcast_facts::slab::Slab;

/// Index of a node; indices of copies have the same type.
type NodeId = u32;
type CopyId = u32;

/// Marks the absence of a node or a copy.
const NONE: u32 = u32::MAX;

/// Root of the radix tree, which has no blocks.
const ROOT: NodeId = 0;

/// Pool of KV blocks.
#[derive(Debug, Clone)]
pub(crate) struct Extents {
    /// Tokens of a block.
    block: u64,
    nodes: Slab<Node>,
    copies: Slab<Copied>,
    /// Nodes, by their parent and the content of their first block.
    children: ContentMap<NodeId>,
    /// Number of free blocks without content.
    blank: u64,
    /// Number of free blocks with content, and the ends of the list of their copies in order of eviction.
    cached: u64,
    head: CopyId,
    tail: CopyId,
    /// Number of holders of blocks beyond the first holder of each, over all blocks.
    repeated: u64,
}

/// Node of the radix tree: a run of block contents.
#[derive(Debug, Clone)]
struct Node {
    /// Tokens of the node; empty if only `owner` can hold them.
    runs: Vec<Run>,
    blocks: u64,
    parent: NodeId,
    /// Content of the first block, if several requests may hold it.
    first: Option<Content>,
    owner: Option<u64>,
    /// Number of direct children.
    children: u32,
    /// Oldest copy of the node; newer copies follow by [`Copied::newer`].
    oldest: CopyId,
}

/// Blocks with the contents of one node, held and freed together.
#[derive(Debug, Clone, Copy)]
struct Copied {
    node: NodeId,
    /// Number of requests that hold the copy.
    holders: u32,
    /// Next newer copy of the node.
    newer: CopyId,
    /// Copy with the preceding blocks, if the two were one until the node was split.
    above: CopyId,
    /// Neighbours in the order of eviction, while the copy is free.
    previous: CopyId,
    next: CopyId,
}

/// Blocks with content from the beginning of a prompt: held by a request, or found in the cache.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    /// Number of blocks.
    pub(crate) blocks: u64,
    extents: Vec<Extent>,
    /// Node at the end of the shared blocks, and the position of that end in the tokens.
    node: NodeId,
    at: Cursor,
    /// Node of the blocks that only the request itself can hold; remembered after the blocks are freed.
    own: Option<NodeId>,
}

/// A copy, with its number of blocks at allocation. If its node was split later, the number includes the blocks of
/// copies above it.
#[derive(Debug, Clone, Copy)]
struct Extent {
    copy: CopyId,
    blocks: u64,
}

impl Extents {
    /// Creates a pool of `count` free blocks of `block` tokens.
    pub(crate) fn new(count: u64, block: u64) -> Extents {
        let mut nodes = Slab::default();
        nodes.insert(Node::new(Vec::new(), 0));
        Extents {
            block,
            nodes,
            copies: Slab::default(),
            children: ContentMap::default(),
            blank: count,
            cached: 0,
            head: NONE,
            tail: NONE,
            repeated: 0,
        }
    }

    /// Number of blocks that no request holds, cached blocks included.
    pub(crate) fn free(&self) -> u64 {
        self.blank + self.cached
    }

    /// Number of holders of blocks beyond the first holder of each, over all blocks.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Looks up the first blocks of `runs`, at most `most`, and stores the consecutive cached ones in `found`.
    pub(crate) fn find(&self, runs: &[Run], most: u64, found: &mut Path) {
        found.clear();
        found.own = None;
        while found.blocks < most
            && let Some(node) = self.child(found.node, runs, found.at)
        {
            let common = self.common(node, runs, &mut found.at, most - found.blocks);
            found.push(self.nodes[node as usize].oldest, common);
            found.node = node;
            if common < self.nodes[node as usize].blocks {
                break;
            }
        }
    }

    /// Extends `found` by the next blocks unique to `owner`, at most `most`, that `path` had when it was freed and
    /// that are still cached.
    pub(crate) fn find_own(&self, path: &Path, owner: u64, most: u64, found: &mut Path) {
        let is_own = |id: &NodeId| self.nodes[*id as usize].owner == Some(owner);
        let Some(id) = path.own.filter(is_own).filter(|_| most > 0) else { return };
        let node = &self.nodes[id as usize];
        found.push(node.oldest, node.blocks.min(most));
        found.own = Some(id);
    }

    /// Number of found blocks that no request holds; holding them reduces the free blocks by as many.
    pub(crate) fn unheld(&self, found: &Path) -> u64 {
        let free = found.extents.iter().filter(|e| self.copies[e.copy as usize].holders == 0);
        free.map(|e| e.blocks).sum()
    }

    /// Holds the found blocks for a request.
    pub(crate) fn hold(&mut self, found: &mut Path) {
        for extent in &mut found.extents {
            let node = self.copies[extent.copy as usize].node;
            if extent.blocks < self.nodes[node as usize].blocks {
                let upper = self.split(node, extent.blocks);
                extent.copy = self.nodes[upper as usize].oldest;
                match found.own {
                    Some(own) if own == node => found.own = Some(upper),
                    _ => found.node = upper,
                }
            }
            if self.copies[extent.copy as usize].holders == 0 {
                self.unlink(extent.copy);
                self.cached -= extent.blocks;
            } else {
                self.repeated += extent.blocks;
            }
            self.copies[extent.copy as usize].holders += 1;
        }
    }

    /// Allocates `count` free blocks and evicts cached contents if necessary; the caller has checked that enough are
    /// free.
    pub(crate) fn take(&mut self, count: u64) {
        let blank = count.min(self.blank);
        self.blank -= blank;
        let mut left = count - blank;
        while left > 0 && self.head != NONE {
            left -= self.evict(self.head, left);
        }
    }

    /// Records the tokens of `runs` as contents of a request's next blocks, up to block number `to`.
    pub(crate) fn name(&mut self, path: &mut Path, runs: &[Run], to: u64) {
        while path.blocks < to
            && let Some(child) = self.child(path.node, runs, path.at)
        {
            let common = self.common(child, runs, &mut path.at, to - path.blocks);
            path.node =
                if common < self.nodes[child as usize].blocks { self.split(child, common) } else { child };
            path.push(self.copy(path.node), common);
        }
        let left = to.saturating_sub(path.blocks);
        if left == 0 {
            return;
        }
        if !self.lengthens(path, path.node, left) {
            let first = path.at.page(runs, self.block);
            let node = Node { parent: path.node, first: Some(first), ..Node::new(Vec::new(), left) };
            let id = self.nodes.insert(node) as NodeId;
            self.children.insert(first.below(path.node), id);
            self.nodes[path.node as usize].children += 1;
            path.node = id;
            path.push(self.copy(id), left);
        }
        let new = &mut self.nodes[path.node as usize].runs;
        path.at.take(runs, left * self.block, |run| new.push(run));
    }

    /// Records that a request's next blocks, up to block number `to`, have contents unique to `owner`.
    pub(crate) fn name_own(&mut self, path: &mut Path, owner: u64, to: u64) {
        let left = to.saturating_sub(path.blocks);
        if left == 0 || path.own.is_some_and(|own| self.lengthens(path, own, left)) {
            return;
        }
        let node = Node { owner: Some(owner), ..Node::new(Vec::new(), left) };
        let id = self.nodes.insert(node) as NodeId;
        path.own = Some(id);
        path.push(self.copy(id), left);
    }

    /// Frees the blocks of a request from last to first, including `blank` blocks without content.
    pub(crate) fn release(&mut self, path: &mut Path, blank: u64) {
        self.blank += blank;
        for extent in path.extents.iter().rev() {
            let mut left = extent.blocks;
            let mut copy = extent.copy;
            while left > 0 {
                let Copied { node, above, .. } = self.copies[copy as usize];
                let blocks = self.nodes[node as usize].blocks;
                self.copies[copy as usize].holders -= 1;
                if self.copies[copy as usize].holders > 0 {
                    self.repeated -= blocks;
                } else {
                    self.cached += blocks;
                    self.link(copy, self.tail);
                }
                left -= blocks;
                copy = above;
            }
        }
        path.clear();
    }

    /// Adds `blocks` to node `id` if it is the last node of `path` and no other request holds it; returns true if it
    /// did.
    fn lengthens(&mut self, path: &mut Path, id: NodeId, blocks: u64) -> bool {
        let Some(last) = path.extents.last_mut() else { return false };
        let Copied { node, holders, newer, .. } = self.copies[last.copy as usize];
        let slot = &mut self.nodes[id as usize];
        let alone = node == id && slot.oldest == last.copy && newer == NONE && holders == 1;
        if !alone || slot.children > 0 {
            return false;
        }
        slot.blocks += blocks;
        last.blocks += blocks;
        path.blocks += blocks;
        true
    }

    /// Child of `node` that begins with the block of `runs` at the cursor.
    fn child(&self, node: NodeId, runs: &[Run], at: Cursor) -> Option<NodeId> {
        if self.nodes[node as usize].children == 0 {
            return None;
        }
        self.children.get(&at.page(runs, self.block).below(node)).copied()
    }

    /// Number of blocks of `node`, at most `most`, that follow in `runs` from `at`; moves `at` past them.
    fn common(&self, node: NodeId, runs: &[Run], at: &mut Cursor, most: u64) -> u64 {
        at.pass_common(&self.nodes[node as usize].runs, runs, most * self.block, self.block) / self.block
    }

    /// Creates a copy of a node, with one holder.
    fn copy(&mut self, node: NodeId) -> CopyId {
        let copied = Copied { node, holders: 1, newer: NONE, above: NONE, previous: NONE, next: NONE };
        let copy = self.copies.insert(copied) as CopyId;
        self.append(node, copy);
        copy
    }

    /// Makes `copy` the newest copy of a node.
    fn append(&mut self, node: NodeId, copy: CopyId) {
        let mut last = self.nodes[node as usize].oldest;
        if last == NONE {
            self.nodes[node as usize].oldest = copy;
            return;
        }
        while self.copies[last as usize].newer != NONE {
            last = self.copies[last as usize].newer;
        }
        self.copies[last as usize].newer = copy;
    }

    /// Moves the first `blocks` of a node, and of each of its copies, into a new node above it.
    fn split(&mut self, id: NodeId, blocks: u64) -> NodeId {
        let tokens = blocks * self.block;
        let node = &mut self.nodes[id as usize];
        let whole = std::mem::take(&mut node.runs);
        let mut upper = Vec::new();
        let mut at = Cursor::default();
        at.take(&whole, tokens, |run| upper.push(run));
        at.take(&whole, u64::MAX, |run| node.runs.push(run));
        node.blocks -= blocks;
        let parent = node.parent;
        let first = node.first;
        let owner = node.owner;
        let mut copy = node.oldest;
        let below = Cursor::default().page(&node.runs, self.block);
        let above =
            Node { parent, first, owner, children: u32::from(first.is_some()), ..Node::new(upper, blocks) };
        let above = self.nodes.insert(above) as NodeId;
        if let Some(first) = first {
            self.children.insert(first.below(parent), above);
            self.children.insert(below.below(above), id);
            self.nodes[id as usize].first = Some(below);
            self.nodes[id as usize].parent = above;
        }
        while copy != NONE {
            let old = self.copies[copy as usize];
            let part = self.copies.insert(Copied { node: above, newer: NONE, ..old }) as CopyId;
            self.append(above, part);
            self.copies[copy as usize].above = part;
            if old.holders == 0 {
                self.link(part, copy);
            }
            copy = old.newer;
        }
        above
    }

    /// Evicts up to `most` blocks of a free copy, from its end; returns their number.
    fn evict(&mut self, copy: CopyId, most: u64) -> u64 {
        let Copied { node: id, newer, .. } = self.copies[copy as usize];
        let node = &mut self.nodes[id as usize];
        let taken = node.blocks.min(most);
        self.cached -= taken;
        if taken < node.blocks {
            if node.oldest == copy && newer == NONE {
                node.cut(taken, self.block);
                return taken;
            }
            let remaining_blocks = node.blocks - taken;
            self.split(id, remaining_blocks);
        }
        self.unlink(copy);
        self.copies.vacate(copy as usize);
        let oldest = self.nodes[id as usize].oldest;
        if oldest != copy {
            let mut before = oldest;
            while self.copies[before as usize].newer != copy {
                before = self.copies[before as usize].newer;
            }
            self.copies[before as usize].newer = newer;
        } else if newer != NONE {
            self.nodes[id as usize].oldest = newer;
        } else {
            self.forget(id);
        }
        taken
    }

    /// Removes a node that has no copies.
    fn forget(&mut self, id: NodeId) {
        let node = std::mem::replace(&mut self.nodes[id as usize], Node::new(Vec::new(), 0));
        if let Some(first) = node.first {
            self.children.remove(&first.below(node.parent));
            self.nodes[node.parent as usize].children -= 1;
        }
        self.nodes.vacate(id as usize);
    }

    fn unlink(&mut self, copy: CopyId) {
        let Copied { previous, next, .. } = self.copies[copy as usize];
        match previous {
            NONE => self.head = next,
            p => self.copies[p as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            n => self.copies[n as usize].previous = previous,
        }
    }

    /// Inserts `copy` behind `previous` in the order of eviction, or at the front.
    fn link(&mut self, copy: CopyId, previous: CopyId) {
        let next = if previous == NONE { self.head } else { self.copies[previous as usize].next };
        self.copies[copy as usize].previous = previous;
        self.copies[copy as usize].next = next;
        match previous {
            NONE => self.head = copy,
            p => self.copies[p as usize].next = copy,
        }
        match next {
            NONE => self.tail = copy,
            n => self.copies[n as usize].previous = copy,
        }
    }
}

impl Node {
    fn new(runs: Vec<Run>, blocks: u64) -> Node {
        Node { runs, blocks, parent: ROOT, first: None, owner: None, children: 0, oldest: NONE }
    }

    /// Removes the last `blocks` blocks of the node.
    fn cut(&mut self, blocks: u64, block: u64) {
        self.blocks -= blocks;
        let mut left = blocks * block;
        while let Some(last) = self.runs.last_mut().filter(|_| left > 0) {
            let length = last.length.min(left);
            last.length -= length;
            left -= length;
            if last.length == 0 {
                self.runs.pop();
            }
        }
    }
}

impl Path {
    fn push(&mut self, copy: CopyId, blocks: u64) {
        self.extents.push(Extent { copy, blocks });
        self.blocks += blocks;
    }

    /// Empties the path, but remembers the node of the owner's unique blocks.
    fn clear(&mut self) {
        self.extents.clear();
        (self.blocks, self.node, self.at) = (0, ROOT, Cursor::default());
    }
}

#[cfg(test)]
mod tests;
