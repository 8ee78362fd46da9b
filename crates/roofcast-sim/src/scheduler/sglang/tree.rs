//! The radix tree of cached token sequences, page by page.
//!
//! Knows: sequences with a common prefix of whole pages share the nodes of that prefix. A running request locks the
//! nodes of its prefix. Every node carries the stamp of its last use, and unlocked leaves are evicted whole, the oldest
//! stamp first. Tokens are stored as runs of segments, so that a node's cost does not depend on their number. With a
//! host tier ([`host`]) a node's KV is on the device, on the host or on both, and the nodes on the device form the top
//! of the tree. Source: SGLang 0.5.23, `mem_cache/unified_cache/unified_tree_core.py`. Knows nothing about requests or
//! time.

pub(super) mod host;
mod leaves;

use crate::kv_cache::cursor::Cursor;
use crate::kv_cache::prefix::{Content, ContentMap};
use host::Host;
use roofcast_ask::workload::request::Run;
use roofcast_facts::slab::Slab;

/// Index of a node in the tree.
pub(super) type Node = u32;

/// The root, which has no tokens.
pub(super) const ROOT: Node = 0;

/// Most nodes of one path that get separate stamps in a match.
const DEPTHS: u64 = 1 << 20;

/// The radix tree of one replica.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    page: u64,
    nodes: Slab<Slot>,
    /// Nodes by their parent and the content of their first page.
    children: ContentMap<Node>,
    /// Number of stamps issued so far.
    uses: u64,
    /// Number of tokens on the device, and number of locked tokens on the device.
    tokens: u64,
    locked: u64,
    /// Nodes of the path that was inserted last.
    path: Vec<Node>,
    /// The host tier, if there is one.
    pub(super) host: Option<Host>,
}

/// The cached part of a sequence of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// Node at which the part on the device ends, and length of that part in tokens.
    pub(super) node: Node,
    pub(super) length: u64,
    /// Node at which the following part ends that is only on the host, and length of that part in tokens.
    pub(super) end: Node,
    pub(super) host: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    runs: Vec<Run>,
    length: u64,
    parent: Node,
    /// Key under which the node's parent finds it.
    key: Content,
    /// Number of children, and number of children on the device.
    children: u32,
    device_children: u32,
    on_device: bool,
    copy: host::HostCopy,
    listed: leaves::Listed,
    /// Number of requests and copies in flight that lock this node or a descendant.
    locks: u32,
    stamp: u64,
    /// Neighbours of an unlocked device leaf in the order of stamps; the root ends the list on both sides.
    older: Node,
    newer: Node,
}

impl Tree {
    /// An empty tree with pages of `page` tokens.
    pub(super) fn new(page: u64, host: Option<Host>) -> Tree {
        let mut nodes = Slab::default();
        nodes.insert(Slot { locks: 1, on_device: true, ..Slot::default() });
        let children = ContentMap::default();
        Tree { page, nodes, children, uses: 0, tokens: 0, locked: 0, path: Vec::new(), host }
    }

    /// Number of unlocked tokens on the device.
    pub(super) fn evictable(&self) -> u64 {
        self.tokens - self.locked
    }

    /// Number of locked tokens on the device.
    pub(super) fn locked(&self) -> u64 {
        self.locked
    }

    /// The longest cached prefix of `path`, in whole pages. The nodes on the way are stamped, the deepest with the
    /// newest stamp.
    pub(super) fn find(&mut self, path: &[Run]) -> Found {
        let whole = self.whole_pages(path);
        let mut match_so_far = Found::default();
        let mut length = 0;
        let mut at = Cursor::default();
        if whole == 0 {
            return match_so_far;
        }
        let mut node = ROOT;
        while length < whole
            && let Some(&child) = self.children.get(&self.key(node, path, at))
        {
            let common = self.common(child, path, &mut at, whole - length);
            length += common;
            let whole_child = common == self.nodes[child as usize].length;
            node = if whole_child { child } else { self.split(child, common) };
            if self.nodes[node as usize].on_device {
                (match_so_far.node, match_so_far.length) = (node, length);
            }
            if !whole_child {
                break;
            }
        }
        (match_so_far.end, match_so_far.host) = (node, length - match_so_far.length);
        self.uses += 1;
        let mut depth = 1;
        let mut up = node;
        while up != ROOT {
            self.stamp(up, self.uses * DEPTHS - depth.min(DEPTHS - 1));
            up = self.nodes[up as usize].parent;
            depth += 1;
        }
        match_so_far
    }

    /// Number of tokens at the beginning of `path` that are on the device, in whole pages; unlike [`Tree::find`], this
    /// leaves stamps unchanged.
    pub(super) fn holds(&self, path: &[Run]) -> u64 {
        let whole = self.whole_pages(path);
        let mut node = ROOT;
        let mut length = 0;
        let mut at = Cursor::default();
        while length < whole
            && let Some(&child) = self.children.get(&self.key(node, path, at))
            && self.nodes[child as usize].on_device
        {
            let common = self.common(child, path, &mut at, whole - length);
            length += common;
            if common < self.nodes[child as usize].length {
                break;
            }
            node = child;
        }
        length
    }

    /// Adds the whole pages of `path`, of which the request had added the first `before` tokens earlier. Returns the
    /// node at which these pages end, and the number of their tokens that were on the device already. The other tokens
    /// are on the device from now on.
    pub(super) fn insert(&mut self, path: &[Run], before: u64) -> (Node, u64) {
        let whole = self.whole_pages(path);
        let mut node = ROOT;
        let mut length = 0;
        let mut at = Cursor::default();
        let mut there = 0;
        self.path.clear();
        while length < whole {
            let key = self.key(node, path, at);
            let Some(&child) = self.children.get(&key) else {
                let mut runs = Vec::new();
                at.take(path, whole - length, |run| runs.push(run));
                let rest = whole - length;
                node = self.append(Slot { runs, length: rest, parent: node, key, ..Slot::default() });
                self.path.push(node);
                self.used(node, whole > before);
                break;
            };
            self.touch(child);
            let common = self.common(child, path, &mut at, whole - length);
            length += common;
            node = if common < self.nodes[child as usize].length { self.split(child, common) } else { child };
            self.path.push(node);
            if self.nodes[node as usize].on_device {
                there += common;
            } else {
                self.enter_device(node);
                self.track_duplicate(node);
            }
            self.used(node, length > before);
        }
        (node, there)
    }

    /// Adds a leaf below the parent that it names.
    fn append(&mut self, leaf: Slot) -> Node {
        self.tokens += leaf.length;
        self.delist(leaf.parent);
        let node = self.add(Slot { on_device: true, ..leaf });
        self.uses += 1;
        self.nodes[node as usize].stamp = self.uses * DEPTHS;
        self.enlist(node, self.newest());
        node
    }

    /// Inserts the first `length` tokens of `path`, in whole pages; `path` must be the path that was inserted last.
    pub(super) fn insert_head(&mut self, path: &[Run], length: u64) {
        let mut left = length;
        let mut nodes = 0;
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
            self.insert(path, length);
            return;
        }
        // The first part ends at a node, so that only the nodes up to this one need stamps.
        for at in 0..nodes {
            self.touch(self.path[at]);
        }
    }

    /// Number of unlocked tokens from the root to `node`.
    pub(super) fn unlocked(&self, node: Node) -> u64 {
        let mut at = node;
        let mut tokens = 0;
        // A locked node has only locked ancestors.
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
            self.delist(at);
            let slot = &mut self.nodes[at as usize];
            if slot.locks == 0 && slot.on_device {
                self.locked += slot.length;
            }
            slot.locks += 1;
            at = slot.parent;
        }
    }

    /// Unlocks the nodes from the root to `node`.
    pub(super) fn unlock(&mut self, node: Node) {
        let mut at = node;
        while at != ROOT {
            let slot = &mut self.nodes[at as usize];
            slot.locks -= 1;
            if slot.locks == 0 && slot.on_device {
                self.locked -= slot.length;
            }
            let parent = slot.parent;
            self.enlist(at, self.newest());
            at = parent;
        }
    }

    /// Evicts the oldest unlocked leaf from the device; returns the number of its tokens. A leaf without a host copy is
    /// removed from the tree together with its descendants.
    pub(super) fn evict(&mut self) -> Option<u64> {
        let leaf = self.oldest()?;
        let length = self.nodes[leaf as usize].length;
        if self.host.is_some() {
            self.leave_device(leaf);
        } else {
            self.remove(leaf);
        }
        Some(length)
    }

    /// Removes a node without children from the tree.
    fn remove(&mut self, node: Node) {
        self.delist(node);
        let slot = std::mem::take(&mut self.nodes[node as usize]);
        if let Some(host) = &mut self.host {
            host.forget(&slot);
        }
        self.nodes.vacate(node as usize);
        self.children.remove(&slot.key);
        self.nodes[slot.parent as usize].children -= 1;
        if slot.on_device {
            self.tokens -= slot.length;
            self.nodes[slot.parent as usize].device_children -= 1;
        }
        // The parent became a leaf by this eviction and is about as old as the evicted leaf, so its place in the list
        // is searched from the oldest end.
        self.enlist(slot.parent, ROOT);
    }

    /// True if a cached sequence begins with a page of this content.
    pub(super) fn begins_with(&self, first: Content) -> bool {
        self.children.contains_key(&first.below(ROOT))
    }

    /// Content of the first page of `path`; `None` without a whole page.
    pub(super) fn first_page(&self, path: &[Run]) -> Option<Content> {
        (self.whole_pages(path) > 0).then(|| Cursor::default().page(path, self.page))
    }

    fn whole_pages(&self, path: &[Run]) -> u64 {
        let length: u64 = path.iter().map(|run| run.length).sum();
        length - length % self.page
    }

    /// Key of the child of `node` whose first page is the page of `path` at the cursor.
    fn key(&self, node: Node, path: &[Run], at: Cursor) -> Content {
        at.page(path, self.page).below(node)
    }

    /// Number of tokens of `node`, in whole pages and at most `most`, that `path` repeats from `at` on; moves `at` past
    /// these tokens.
    fn common(&self, node: Node, path: &[Run], at: &mut Cursor, most: u64) -> u64 {
        at.pass_common(&self.nodes[node as usize].runs, path, most, self.page)
    }

    /// Moves the first `length` tokens of `node` into a new node above it. Both nodes are stamped, the lower one with
    /// the newer stamp.
    fn split(&mut self, node: Node, length: u64) -> Node {
        self.delist(node);
        let Slot { parent, locks, key, on_device, copy, .. } = self.nodes[node as usize];
        let whole = std::mem::take(&mut self.nodes[node as usize].runs);
        let mut upper = Vec::new();
        let mut lower = Vec::new();
        let mut at = Cursor::default();
        at.take(&whole, length, |run| upper.push(run));
        at.take(&whole, u64::MAX, |run| lower.push(run));
        // The upper node replaces the lower one as child of the parent.
        self.nodes[parent as usize].children -= 1;
        self.nodes[parent as usize].device_children -= u32::from(on_device);
        let above = self.add(Slot {
            runs: upper,
            length,
            parent,
            key,
            locks,
            on_device,
            copy: copy.of_part(),
            children: 1,
            device_children: u32::from(on_device),
            ..Slot::default()
        });
        self.touch(above);
        let key = self.key(above, &lower, Cursor::default());
        let slot = &mut self.nodes[node as usize];
        slot.parent = above;
        slot.length -= length;
        slot.runs = lower;
        slot.key = key;
        self.children.insert(key, node);
        self.touch(node);
        self.track_duplicate(above);
        above
    }

    /// Adds a new node and registers it with its parent.
    fn add(&mut self, slot: Slot) -> Node {
        let key = slot.key;
        let parent = slot.parent;
        let on_device = slot.on_device;
        let node = self.nodes.insert(slot) as Node;
        self.children.insert(key, node);
        let parent = &mut self.nodes[parent as usize];
        parent.children += 1;
        parent.device_children += u32::from(on_device);
        node
    }
}

#[cfg(test)]
mod tests;
