//! The radix tree of token sequences that are in the cache, page by page.
//!
//! Knows: sequences with a common prefix of whole pages share its nodes, a running request locks the nodes of its
//! prefix, every node carries the stamp of its last use, and unlocked leaves are evicted whole, the oldest stamp first.
//! Tokens are runs of segments, so a node costs the same however many it has. Source: SGLang 0.5.23,
//! `mem_cache/unified_cache/unified_tree_core.py`. Knows nothing about requests or time.

use crate::kv_cache::cursor::Cursor;
use crate::kv_cache::prefix::{Content, ContentMap};
use crate::slab::Slab;
use crate::workload::request::Run;

/// A node's number.
pub(super) type Node = u32;

/// The node of no tokens.
pub(super) const ROOT: Node = 0;

/// Nodes of one path that a match can tell apart in their stamps.
const DEPTHS: u64 = 1 << 20;

/// The tree.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    page: u64,
    nodes: Slab<Slot>,
    /// Nodes by the one above them and the content of their first page.
    children: ContentMap<Node>,
    /// Stamps given so far.
    uses: u64,
    tokens: u64,
    locked: u64,
    /// The nodes of the last path that was inserted.
    path: Vec<Node>,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    runs: Vec<Run>,
    length: u64,
    parent: Node,
    /// What its parent finds it by.
    key: Content,
    /// How many nodes are below it at once.
    children: u32,
    /// Requests that hold it or a node below it.
    locks: u32,
    stamp: u64,
    /// Of an unlocked leaf, the unlocked leaves with the next older and the next newer stamp; the root ends the list on both
    /// sides.
    older: Node,
    newer: Node,
}

impl Tree {
    /// An empty tree of pages of `page` tokens.
    pub(super) fn new(page: u64) -> Tree {
        let mut nodes = Slab::default();
        nodes.insert(Slot { locks: 1, ..Slot::default() });
        Tree { page, nodes, children: ContentMap::default(), uses: 0, tokens: 0, locked: 0, path: Vec::new() }
    }

    /// Unlocked tokens.
    pub(super) fn evictable(&self) -> u64 {
        self.tokens - self.locked
    }

    /// Locked tokens.
    pub(super) fn locked(&self) -> u64 {
        self.locked
    }

    /// The node where the longest known prefix of `path`, in whole pages, ends, and how long that is. The nodes on the way
    /// are stamped, the deepest newest.
    pub(super) fn find(&mut self, path: &[Run]) -> (Node, u64) {
        let whole = self.whole_pages(path);
        if whole == 0 {
            return (ROOT, 0);
        }
        let (mut node, mut length, mut at) = (ROOT, 0, Cursor::default());
        while length < whole
            && let Some(&child) = self.children.get(&self.key(node, path, at))
        {
            let common = self.common(child, path, &mut at, whole - length);
            length += common;
            if common < self.nodes[child as usize].length {
                node = self.split(child, common);
                break;
            }
            node = child;
        }
        self.uses += 1;
        let (mut depth, mut up) = (1, node);
        while up != ROOT {
            self.stamp(up, self.uses * DEPTHS - depth.min(DEPTHS - 1));
            up = self.nodes[up as usize].parent;
            depth += 1;
        }
        (node, length)
    }

    /// Adds the whole pages of `path`: the node where they end, and how many tokens were there already.
    pub(super) fn insert(&mut self, path: &[Run]) -> (Node, u64) {
        let whole = self.whole_pages(path);
        let (mut node, mut length, mut at) = (ROOT, 0, Cursor::default());
        self.path.clear();
        while length < whole {
            let key = self.key(node, path, at);
            let Some(&child) = self.children.get(&key) else {
                let mut runs = Vec::new();
                at.take(path, whole - length, |run| runs.push(run));
                node =
                    self.append(Slot { runs, length: whole - length, parent: node, key, ..Slot::default() });
                self.path.push(node);
                break;
            };
            self.touch(child);
            let common = self.common(child, path, &mut at, whole - length);
            length += common;
            node = if common < self.nodes[child as usize].length { self.split(child, common) } else { child };
            self.path.push(node);
        }
        (node, length)
    }

    /// Adds a leaf below its parent.
    fn append(&mut self, leaf: Slot) -> Node {
        self.tokens += leaf.length;
        if self.nodes[leaf.parent as usize].is_free_leaf() {
            self.unlist(leaf.parent);
        }
        let node = self.add(leaf);
        self.uses += 1;
        self.nodes[node as usize].stamp = self.uses * DEPTHS;
        self.list(node, self.newest());
        node
    }

    /// Adds the first `length` tokens, in whole pages, of the path that was inserted last, `path`.
    pub(super) fn insert_head(&mut self, path: &[Run], length: u64) {
        let (mut left, mut nodes) = (length, 0);
        while let Some(node) = self.path.get(nodes)
            && left > 0
        {
            left = match left.checked_sub(self.nodes[*node as usize].length) {
                Some(left) => left,
                None => break,
            };
            nodes += 1;
        }
        if left > 0 {
            self.insert(path);
            return;
        }
        // It ends where a node does: all that is left to do is to stamp the way there.
        for at in 0..nodes {
            self.touch(self.path[at]);
        }
    }

    /// Unlocked tokens from the root to `node`.
    pub(super) fn unlocked(&self, node: Node) -> u64 {
        let (mut at, mut tokens) = (node, 0);
        // Whatever is above a locked node is locked.
        while at != ROOT && self.nodes[at as usize].locks == 0 {
            tokens += self.nodes[at as usize].length;
            at = self.nodes[at as usize].parent;
        }
        tokens
    }

    /// Locks the nodes from the root to `node`.
    pub(super) fn lock(&mut self, node: Node) {
        let mut at = node;
        while at != ROOT {
            if self.nodes[at as usize].is_free_leaf() {
                self.unlist(at);
            }
            let slot = &mut self.nodes[at as usize];
            if slot.locks == 0 {
                self.locked += slot.length;
            }
            slot.locks += 1;
            at = slot.parent;
        }
    }

    /// Takes a lock back.
    pub(super) fn unlock(&mut self, node: Node) {
        let mut at = node;
        while at != ROOT {
            let slot = &mut self.nodes[at as usize];
            slot.locks -= 1;
            if slot.locks == 0 {
                self.locked -= slot.length;
            }
            let parent = slot.parent;
            if slot.is_free_leaf() {
                self.list(at, self.newest());
            }
            at = parent;
        }
    }

    /// Evicts the oldest unlocked leaf; returns its tokens.
    pub(super) fn evict(&mut self) -> Option<u64> {
        let leaf = self.nodes[ROOT as usize].newer;
        if leaf == ROOT {
            return None;
        }
        self.unlist(leaf);
        let slot = std::mem::take(&mut self.nodes[leaf as usize]);
        self.nodes.vacate(leaf as usize);
        self.tokens -= slot.length;
        self.children.remove(&slot.key);
        let parent = &mut self.nodes[slot.parent as usize];
        parent.children -= 1;
        if parent.is_free_leaf() {
            self.list(slot.parent, ROOT);
        }
        Some(slot.length)
    }

    /// Whether some sequence begins with a page of this content.
    pub(super) fn begins_with(&self, first: Content) -> bool {
        self.children.contains_key(&first.below(ROOT))
    }

    /// The content of the first page of `path`, if it has a whole one.
    pub(super) fn first_page(&self, path: &[Run]) -> Option<Content> {
        (self.whole_pages(path) > 0).then(|| Cursor::default().page(path, self.page))
    }

    fn whole_pages(&self, path: &[Run]) -> u64 {
        let length: u64 = path.iter().map(|run| run.length).sum();
        length - length % self.page
    }

    /// What `node` finds the child by that begins with the page of `path` at a cursor.
    fn key(&self, node: Node, path: &[Run], at: Cursor) -> Content {
        at.page(path, self.page).below(node)
    }

    /// How many tokens of `node`, in whole pages and at most `most`, follow in `path` from `at`, which passes them.
    fn common(&self, node: Node, path: &[Run], at: &mut Cursor, most: u64) -> u64 {
        at.pass_common(&self.nodes[node as usize].runs, path, most, self.page)
    }

    fn touch(&mut self, node: Node) {
        self.uses += 1;
        self.stamp(node, self.uses * DEPTHS);
    }

    fn stamp(&mut self, node: Node, stamp: u64) {
        self.nodes[node as usize].stamp = stamp;
        if self.nodes[node as usize].is_free_leaf() {
            self.unlist(node);
            self.list(node, self.newest());
        }
    }

    /// The unlocked leaf that was used last, if there is one.
    fn newest(&self) -> Node {
        self.nodes[ROOT as usize].older
    }

    /// Puts an unlocked leaf into the list of those by its stamp. Its place is looked for from `near` on: what was just used
    /// is the newest, and what an evicted leaf leaves bare is about as old as that leaf.
    fn list(&mut self, leaf: Node, near: Node) {
        let stamp = self.nodes[leaf as usize].stamp;
        let mut older = near;
        // The root has the stamp 0, and the first and the last for neighbours.
        while self.nodes[older as usize].stamp > stamp {
            older = self.nodes[older as usize].older;
        }
        let mut newer = self.nodes[older as usize].newer;
        while newer != ROOT && self.nodes[newer as usize].stamp < stamp {
            (older, newer) = (newer, self.nodes[newer as usize].newer);
        }
        self.connect(older, leaf);
        self.connect(leaf, newer);
    }

    /// Takes a leaf out of the list.
    fn unlist(&mut self, leaf: Node) {
        let Slot { older, newer, .. } = self.nodes[leaf as usize];
        self.connect(older, newer);
    }

    fn connect(&mut self, older: Node, newer: Node) {
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
    }

    /// Gives the first `length` tokens of `node` to a new node above it. Both are stamped, the lower one last.
    fn split(&mut self, node: Node, length: u64) -> Node {
        let Slot { parent, locks, key, .. } = self.nodes[node as usize];
        let whole = std::mem::take(&mut self.nodes[node as usize].runs);
        let (mut upper, mut lower, mut at) = (Vec::new(), Vec::new(), Cursor::default());
        at.take(&whole, length, |run| upper.push(run));
        at.take(&whole, u64::MAX, |run| lower.push(run));
        // The one above takes the other's place.
        self.nodes[parent as usize].children -= 1;
        let above =
            self.add(Slot { runs: upper, length, parent, key, locks, children: 1, ..Slot::default() });
        self.touch(above);
        let key = self.key(above, &lower, Cursor::default());
        let slot = &mut self.nodes[node as usize];
        slot.parent = above;
        slot.length -= length;
        slot.runs = lower;
        slot.key = key;
        self.children.insert(key, node);
        self.touch(node);
        above
    }

    /// A new node, which its parent knows.
    fn add(&mut self, slot: Slot) -> Node {
        let (key, parent) = (slot.key, slot.parent);
        let node = self.nodes.insert(slot) as Node;
        self.children.insert(key, node);
        self.nodes[parent as usize].children += 1;
        node
    }
}

impl Slot {
    /// Whether it is an unlocked leaf.
    fn is_free_leaf(&self) -> bool {
        self.children == 0 && self.locks == 0
    }
}

#[cfg(test)]
mod tests;
