//! The radix tree of token sequences that are in the cache, page by page.
//!
//! Knows: sequences with a common prefix of whole pages share its nodes, whoever runs locks the nodes of its own, every
//! node carries the stamp of its last use, and leaves that nobody locks are evicted whole, the oldest stamp first. Tokens
//! are runs of segments, so a node costs the same however many it has. Source: SGLang 0.5.23,
//! `mem_cache/unified_cache/unified_tree_core.py`. Knows nothing about requests or time.

use crate::kv_cache::prefix::Content;
use crate::slab::Slab;
use crate::workload::request::Run;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Stamps given so far.
    uses: u64,
    /// Leaves that nobody locks, by stamp.
    evictable_leaves: BTreeSet<(u64, Node)>,
    tokens: u64,
    locked: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    runs: Vec<Run>,
    length: u64,
    parent: Node,
    /// Content of the first page.
    first: Option<Content>,
    /// By the content of their first page.
    children: BTreeMap<Content, Node>,
    /// Requests that hold it or a node below it.
    locks: u32,
    stamp: u64,
}

/// A place in a sequence of runs.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    run: usize,
    offset: u64,
}

impl Cursor {
    /// What is left of the run here, or the next one.
    fn rest(&mut self, runs: &[Run]) -> Option<Run> {
        while let Some(run) = runs.get(self.run) {
            if self.offset < run.length {
                let (start, length) = (run.start + self.offset, run.length - self.offset);
                return Some(Run { segment: run.segment, start, length });
            }
            *self = Cursor { run: self.run + 1, offset: 0 };
        }
        None
    }

    /// The next `length` tokens, which the cursor passes.
    fn take(&mut self, runs: &[Run], length: u64, mut each: impl FnMut(Run)) {
        let mut left = length;
        while left > 0
            && let Some(run) = self.rest(runs)
        {
            let length = run.length.min(left);
            each(Run { length, ..run });
            self.offset += length;
            left -= length;
        }
    }

    /// The content of the next page, which the cursor does not pass.
    fn page(mut self, runs: &[Run], page: u64) -> Content {
        let mut content = Content::START;
        self.take(runs, page, |run| content = content.then(run));
        content
    }
}

impl Tree {
    /// An empty tree of pages of `page` tokens.
    pub(super) fn new(page: u64) -> Tree {
        let mut nodes = Slab::default();
        nodes.insert(Slot { locks: 1, ..Slot::default() });
        Tree { page, nodes, uses: 0, evictable_leaves: BTreeSet::new(), tokens: 0, locked: 0 }
    }

    /// Tokens that nobody locks.
    pub(super) fn evictable(&self) -> u64 {
        self.tokens - self.locked
    }

    /// Tokens that somebody locks.
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
            && let Some(child) = self.child(node, path, at)
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
        while length < whole
            && let Some(child) = self.child(node, path, at)
        {
            self.touch(child);
            let common = self.common(child, path, &mut at, whole - length);
            length += common;
            node = if common < self.nodes[child as usize].length { self.split(child, common) } else { child };
        }
        if length == whole {
            return (node, length);
        }
        let mut runs = Vec::new();
        at.take(path, whole - length, |run| runs.push(run));
        self.tokens += whole - length;
        let leaf = self.add(Slot { runs, length: whole - length, parent: node, ..Slot::default() });
        self.evictable_leaves.remove(&(self.nodes[node as usize].stamp, node));
        self.touch(leaf);
        self.evictable_leaves.insert((self.nodes[leaf as usize].stamp, leaf));
        (leaf, length)
    }

    /// Tokens from the root to `node` that nobody locks.
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
            let slot = &mut self.nodes[at as usize];
            if slot.locks == 0 {
                self.locked += slot.length;
                self.evictable_leaves.remove(&(slot.stamp, at));
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
                if slot.children.is_empty() {
                    self.evictable_leaves.insert((slot.stamp, at));
                }
            }
            at = slot.parent;
        }
    }

    /// Drops the oldest leaf that nobody locks: how many tokens that were.
    pub(super) fn evict(&mut self) -> Option<u64> {
        let (_, leaf) = self.evictable_leaves.pop_first()?;
        let slot = std::mem::take(&mut self.nodes[leaf as usize]);
        self.nodes.vacate(leaf as usize);
        self.tokens -= slot.length;
        let parent = &mut self.nodes[slot.parent as usize];
        if let Some(first) = slot.first {
            parent.children.remove(&first);
        }
        if parent.children.is_empty() && parent.locks == 0 {
            self.evictable_leaves.insert((parent.stamp, slot.parent));
        }
        Some(slot.length)
    }

    fn whole_pages(&self, path: &[Run]) -> u64 {
        let length: u64 = path.iter().map(|run| run.length).sum();
        length - length % self.page
    }

    /// The child of `node` that begins with the page of `path` at a cursor.
    fn child(&self, node: Node, path: &[Run], at: Cursor) -> Option<Node> {
        let children = &self.nodes[node as usize].children;
        if children.is_empty() { None } else { children.get(&at.page(path, self.page)).copied() }
    }

    /// How many tokens of `node`, in whole pages and at most `most`, follow in `path` from `at`, which passes them.
    fn common(&self, node: Node, path: &[Run], at: &mut Cursor, most: u64) -> u64 {
        let runs = &self.nodes[node as usize].runs;
        let (mut here, mut there, mut length) = (Cursor::default(), *at, 0);
        while length < most
            && let Some((ours, theirs)) = here.rest(runs).zip(there.rest(path))
        {
            if (ours.segment, ours.start) != (theirs.segment, theirs.start) {
                break;
            }
            let same = ours.length.min(theirs.length).min(most - length);
            here.offset += same;
            there.offset += same;
            length += same;
        }
        length -= length % self.page;
        at.take(path, length, |_| {});
        length
    }

    fn touch(&mut self, node: Node) {
        self.uses += 1;
        self.stamp(node, self.uses * DEPTHS);
    }

    fn stamp(&mut self, node: Node, stamp: u64) {
        let slot = &mut self.nodes[node as usize];
        if slot.locks == 0 && slot.children.is_empty() && self.evictable_leaves.remove(&(slot.stamp, node)) {
            self.evictable_leaves.insert((stamp, node));
        }
        slot.stamp = stamp;
    }

    /// Gives the first `length` tokens of `node` to a new node above it. Both are stamped, the lower one last.
    fn split(&mut self, node: Node, length: u64) -> Node {
        let Slot { parent, locks, .. } = self.nodes[node as usize];
        let whole = std::mem::take(&mut self.nodes[node as usize].runs);
        let (mut upper, mut lower, mut at) = (Vec::new(), Vec::new(), Cursor::default());
        at.take(&whole, length, |run| upper.push(run));
        at.take(&whole, u64::MAX, |run| lower.push(run));
        let above = self.add(Slot { runs: upper, length, parent, locks, ..Slot::default() });
        self.touch(above);
        let first = Cursor::default().page(&lower, self.page);
        let slot = &mut self.nodes[node as usize];
        slot.parent = above;
        slot.length -= length;
        slot.runs = lower;
        slot.first = Some(first);
        self.nodes[above as usize].children.insert(first, node);
        self.touch(node);
        above
    }

    /// A new node, which its parent knows.
    fn add(&mut self, slot: Slot) -> Node {
        let first = Cursor::default().page(&slot.runs, self.page);
        let parent = slot.parent;
        let slot = Slot { first: Some(first), ..slot };
        let node = self.nodes.insert(slot) as Node;
        self.nodes[parent as usize].children.insert(first, node);
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(segment: u32, start: u64, length: u64) -> Run {
        Run { segment, start, length }
    }

    #[test]
    fn prefixes_are_shared_locked_and_evicted() {
        let mut tree = Tree::new(1);
        let (first, found) = tree.insert(&[run(0, 0, 100), run(1, 0, 20)]);
        let (_, shared) = tree.insert(&[run(0, 0, 100), run(2, 0, 30)]);
        // 100 shared, 20 and 30 apart.
        assert_eq!(
            (found, shared, tree.tokens, tree.evictable(), tree.unlocked(first)),
            (0, 100, 150, 150, 120)
        );
        tree.lock(first);
        assert_eq!((tree.evictable(), tree.find(&[run(0, 0, 40), run(9, 0, 5)]).1), (30, 40));
        // Only the 30 can go, and the locked ones stay, however the shared part was split.
        assert_eq!((tree.evict(), tree.evict()), (Some(30), None));
        assert_eq!(tree.find(&[run(0, 0, 100), run(1, 0, 50)]).1, 120);
        tree.unlock(first);
        // 20 go first, then 60 of the shared, then the other 40.
        assert_eq!(
            [tree.evict(), tree.evict(), tree.evict(), tree.evict()],
            [Some(20), Some(60), Some(40), None]
        );
        assert_eq!((tree.tokens, tree.find(&[run(0, 0, 1)])), (0, (ROOT, 0)));
    }

    /// Pages of 16: two sequences that part at token 40 share 32 tokens; of 47 tokens 32 are kept.
    #[test]
    fn only_whole_pages_are_shared() {
        let mut tree = Tree::new(16);
        assert_eq!(tree.insert(&[run(0, 0, 40), run(1, 0, 40)]).1, 0);
        assert_eq!((tree.tokens, tree.insert(&[run(0, 0, 40), run(2, 0, 7)])), (80, (2, 32)));
        assert_eq!(tree.find(&[run(0, 0, 40), run(1, 0, 23)]).1, 48);
        assert_eq!(tree.find(&[run(0, 0, 15)]).1, 0);
        // First tokens alone do not name a page.
        assert_eq!((tree.insert(&[run(0, 0, 8), run(3, 0, 8)]).1, tree.tokens), (0, 96));
    }

    /// What is split is stamped, so that its lower half outlives what was used before; a match stamps the deepest newest.
    #[test]
    fn the_oldest_stamp_goes_first() {
        let mut tree = Tree::new(1);
        tree.insert(&[run(0, 0, 10)]);
        tree.insert(&[run(1, 0, 10)]);
        tree.find(&[run(0, 0, 4)]);
        // 10 of segment 1, then the lower 6 and the upper 4 of segment 0.
        assert_eq!([tree.evict(), tree.evict(), tree.evict()], [Some(10), Some(6), Some(4)]);
    }

    type Token = (u32, u64);

    /// Paths in few segments, so that they share prefixes and part within runs.
    fn paths() -> impl Strategy<Value = Vec<Run>> {
        prop::collection::vec((0_u32..2, 0_u64..3, 1_u64..5), 0..5).prop_map(|runs| {
            runs.into_iter().map(|(segment, start, length)| run(segment, start, length)).collect()
        })
    }

    /// The tokens of a path's whole pages, and the path of them one by one.
    fn tokens(path: &[Run], page: u64) -> Vec<Token> {
        let all: Vec<Token> =
            path.iter().flat_map(|r| (r.start..r.start + r.length).map(|at| (r.segment, at))).collect();
        all[..all.len() - all.len() % page as usize].to_vec()
    }

    fn runs(tokens: &[Token]) -> Vec<Run> {
        let mut path = crate::kv_cache::prefix::Tokens::default();
        tokens.iter().for_each(|(segment, start)| path.push(run(*segment, *start, 1)));
        path.runs().to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against the set of all prefixes that are there: a hit is the longest of them, what is evicted was nobody's, and
        /// locks come out even.
        #[test]
        fn the_tree_is_a_set_of_prefixes(
            page in 1_u64..4,
            moves in prop::collection::vec((0_u8..4, paths(), 0_usize..20), 1..60),
        ) {
            let mut tree = Tree::new(page);
            let mut there: BTreeSet<Vec<Token>> = BTreeSet::new();
            let mut held: Vec<(Node, Vec<Token>)> = Vec::new();
            let step = page as usize;
            for (what, path, number) in moves {
                let all = tokens(&path, page);
                let path = runs(&all);
                let longest = (step..=all.len()).step_by(step).filter(|n| there.contains(&all[..*n])).last().unwrap_or(0);
                match what {
                    0 => {
                        prop_assert_eq!(tree.insert(&path).1, longest as u64);
                        (step..=all.len()).step_by(step).for_each(|n| { there.insert(all[..n].to_vec()); });
                    }
                    1 => {
                        let (node, length) = tree.find(&path);
                        prop_assert_eq!(length, longest as u64);
                        let (free, before) = (tree.unlocked(node), tree.evictable());
                        tree.lock(node);
                        prop_assert_eq!(before - tree.evictable(), free);
                        held.push((node, all[..longest].to_vec()));
                    }
                    2 if !held.is_empty() => {
                        let (node, _) = held.swap_remove(number % held.len());
                        let before = tree.evictable();
                        tree.unlock(node);
                        prop_assert_eq!(tree.unlocked(node), tree.evictable() - before);
                    }
                    _ => {
                        let before = tree.tokens;
                        let gone = tree.evict().unwrap_or(0);
                        prop_assert_eq!(before - tree.tokens, gone);
                        there.retain(|p| tree.clone().find(&runs(p)).1 == p.len() as u64);
                    }
                }
                prop_assert_eq!(there.len() as u64 * page, tree.tokens);
                let locked: BTreeSet<&[Token]> = held
                    .iter()
                    .flat_map(|(_, p)| (step..=p.len()).step_by(step).map(|n| &p[..n]))
                    .collect();
                prop_assert_eq!(tree.tokens - tree.evictable(), locked.len() as u64 * page);
                prop_assert!(locked.iter().all(|prefix| there.contains(*prefix)));
            }
            held.into_iter().for_each(|(node, _)| tree.unlock(node));
            while tree.evict().is_some() {}
            prop_assert_eq!((tree.tokens, tree.nodes.held()), (0, 1));
        }
    }
}
