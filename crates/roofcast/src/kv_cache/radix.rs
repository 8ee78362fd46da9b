//! A radix tree of token sequences that are in the cache, as SGLang keeps it.
//!
//! Knows: sequences with a common prefix share its nodes, whoever runs locks the nodes of its own, and of what nobody
//! locks the leaves go first, the least recently used before others. Tokens are runs of segments, so a node costs the
//! same however many it has. Source: rules of SGLang 0.5's `mem_cache/radix_cache.py` for pages of one token. Knows
//! nothing about requests or time.

use crate::workload::request::Run;
use std::collections::{BTreeMap, BTreeSet};

/// A node's number.
pub type Node = u32;

/// The node of no tokens.
pub const ROOT: Node = 0;

/// The tree.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Slot>,
    vacant: Vec<Node>,
    /// Looks at the tree so far.
    looks: u64,
    /// Leaves that nobody locks, by when they were last looked at.
    idle: BTreeSet<(u64, Node)>,
    tokens: u64,
    locked: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    runs: Vec<Run>,
    length: u64,
    parent: Node,
    /// By the segment and position of their first token.
    children: BTreeMap<(u32, u64), Node>,
    /// Requests that hold it or a node below it.
    locks: u32,
    looked: u64,
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
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            nodes: vec![Slot { locks: 1, ..Slot::default() }],
            vacant: Vec::new(),
            looks: 0,
            idle: BTreeSet::new(),
            tokens: 0,
            locked: 0,
        }
    }
}

impl Tree {
    /// Tokens that nobody locks.
    pub fn evictable(&self) -> u64 {
        self.tokens - self.locked
    }

    /// Tokens in all.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The node where the longest known prefix of `path` ends, and how long that is; its nodes are looked at.
    pub fn find(&mut self, path: &[Run]) -> (Node, u64) {
        let (node, length, _) = self.walk(path);
        (node, length)
    }

    /// Adds `path`: the node where it ends.
    pub fn insert(&mut self, path: &[Run]) -> Node {
        let (node, _, mut at) = self.walk(path);
        let mut runs = Vec::new();
        while let Some(run) = at.rest(path) {
            runs.push(run);
            at.offset += run.length;
        }
        if runs.is_empty() {
            return node;
        }
        let length = runs.iter().map(|run| run.length).sum();
        self.tokens += length;
        let leaf = self.add(Slot { runs, length, parent: node, looked: self.looks, ..Slot::default() });
        self.idle.remove(&(self.nodes[node as usize].looked, node));
        self.idle.insert((self.looks, leaf));
        leaf
    }

    /// Tokens from the root to `node` that nobody locks.
    pub fn unlocked(&self, node: Node) -> u64 {
        self.to_root(node)
            .filter(|n| self.nodes[*n as usize].locks == 0)
            .map(|n| self.nodes[n as usize].length)
            .sum()
    }

    /// Locks the nodes from the root to `node`: how many tokens nobody locked before.
    pub fn lock(&mut self, node: Node) -> u64 {
        let before = self.locked;
        let mut at = node;
        while at != ROOT {
            let slot = &mut self.nodes[at as usize];
            if slot.locks == 0 {
                self.locked += slot.length;
                self.idle.remove(&(slot.looked, at));
            }
            slot.locks += 1;
            at = slot.parent;
        }
        self.locked - before
    }

    /// Takes a lock back: how many tokens nobody locks now.
    pub fn unlock(&mut self, node: Node) -> u64 {
        let before = self.locked;
        let mut at = node;
        while at != ROOT {
            let slot = &mut self.nodes[at as usize];
            slot.locks -= 1;
            if slot.locks == 0 {
                self.locked -= slot.length;
                if slot.children.is_empty() {
                    self.idle.insert((slot.looked, at));
                }
            }
            at = slot.parent;
        }
        before - self.locked
    }

    /// Drops leaves that nobody locks until at most `most` of such tokens are left.
    pub fn shrink(&mut self, most: u64) {
        while self.evictable() > most {
            let Some((_, leaf)) = self.idle.pop_first() else { return };
            let slot = std::mem::take(&mut self.nodes[leaf as usize]);
            self.vacant.push(leaf);
            self.tokens -= slot.length;
            let parent = &mut self.nodes[slot.parent as usize];
            if let Some(first) = slot.runs.first() {
                parent.children.remove(&(first.segment, first.start));
            }
            if parent.children.is_empty() && parent.locks == 0 {
                self.idle.insert((parent.looked, slot.parent));
            }
        }
    }

    fn to_root(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let from = Some(node).filter(|n| *n != ROOT);
        std::iter::successors(from, |n| Some(self.nodes[*n as usize].parent).filter(|p| *p != ROOT))
    }

    /// Follows `path` as far as it is known, and splits the node in which it leaves the tree.
    fn walk(&mut self, path: &[Run]) -> (Node, u64, Cursor) {
        self.looks += 1;
        let (mut node, mut length, mut at) = (ROOT, 0, Cursor::default());
        while let Some(run) = at.rest(path) {
            let Some(&child) = self.nodes[node as usize].children.get(&(run.segment, run.start)) else {
                break;
            };
            let common = common(&self.nodes[child as usize].runs, path, &mut at);
            length += common;
            if common < self.nodes[child as usize].length {
                node = self.split(child, common);
                break;
            }
            node = child;
            self.look(child);
        }
        (node, length, at)
    }

    fn look(&mut self, node: Node) {
        let slot = &mut self.nodes[node as usize];
        if self.idle.remove(&(slot.looked, node)) {
            self.idle.insert((self.looks, node));
        }
        slot.looked = self.looks;
    }

    /// Gives the first `length` tokens of `node` to a new node above it, which has just been looked at.
    fn split(&mut self, node: Node, length: u64) -> Node {
        let Slot { parent, locks, .. } = self.nodes[node as usize];
        let mut lower = std::mem::take(&mut self.nodes[node as usize].runs);
        let mut upper = Vec::new();
        let mut left = length;
        while left > 0 && !lower.is_empty() {
            let run = lower[0];
            upper.push(Run { length: run.length.min(left), ..run });
            if run.length <= left {
                lower.remove(0);
            } else {
                lower[0] = Run { start: run.start + left, length: run.length - left, ..run };
            }
            left -= run.length.min(left);
        }
        let above =
            self.add(Slot { runs: upper, length, parent, locks, looked: self.looks, ..Slot::default() });
        let slot = &mut self.nodes[node as usize];
        slot.parent = above;
        slot.length -= length;
        let first = lower.first().map(|run| (run.segment, run.start));
        slot.runs = lower;
        self.nodes[above as usize].children.extend(first.map(|first| (first, node)));
        above
    }

    /// A new node, which its parent knows.
    fn add(&mut self, slot: Slot) -> Node {
        let (parent, first) = (slot.parent, slot.runs.first().map(|run| (run.segment, run.start)));
        let node = match self.vacant.pop() {
            Some(node) => {
                self.nodes[node as usize] = slot;
                node
            }
            None => {
                self.nodes.push(slot);
                (self.nodes.len() - 1) as Node
            }
        };
        self.nodes[parent as usize].children.extend(first.map(|first| (first, node)));
        node
    }
}

/// How many tokens of `runs` follow in `path` from `at`, which moves behind them.
fn common(runs: &[Run], path: &[Run], at: &mut Cursor) -> u64 {
    let (mut here, mut length) = (Cursor::default(), 0);
    while let Some((ours, theirs)) = here.rest(runs).zip(at.rest(path)) {
        if (ours.segment, ours.start) != (theirs.segment, theirs.start) {
            break;
        }
        let same = ours.length.min(theirs.length);
        here.offset += same;
        at.offset += same;
        length += same;
    }
    length
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
        let mut tree = Tree::default();
        let first = tree.insert(&[run(0, 0, 100), run(1, 0, 20)]);
        tree.insert(&[run(0, 0, 100), run(2, 0, 30)]);
        // 100 shared, 20 and 30 apart.
        assert_eq!((tree.tokens(), tree.evictable(), tree.unlocked(first)), (150, 150, 120));
        assert_eq!(tree.lock(first), 120);
        assert_eq!(tree.evictable(), 30);
        assert_eq!(tree.find(&[run(0, 0, 40), run(9, 0, 5)]).1, 40);
        // Only the 30 can go, and the locked ones stay, however the shared part was split.
        tree.shrink(0);
        assert_eq!((tree.tokens(), tree.find(&[run(0, 0, 100), run(1, 0, 50)]).1), (120, 120));
        assert_eq!((tree.unlock(first), tree.evictable()), (120, 120));
        // 20 go first, then 60 of the shared, then the other 40.
        tree.shrink(119);
        assert_eq!(tree.tokens(), 100);
        tree.shrink(99);
        assert_eq!(tree.tokens(), 40);
        tree.shrink(0);
        assert_eq!((tree.tokens(), tree.find(&[run(0, 0, 1)])), (0, (ROOT, 0)));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut tree = Tree::default();
        for segment in 0..3 {
            tree.insert(&[run(segment, 0, 10)]);
        }
        tree.find(&[run(0, 0, 10)]);
        tree.shrink(20);
        let found = [0, 1, 2].map(|segment| tree.find(&[run(segment, 0, 10)]).1);
        assert_eq!(found, [10, 0, 10]);
    }

    type Token = (u32, u64);

    /// Paths in few segments, so that they share prefixes and part within runs.
    fn paths() -> impl Strategy<Value = Vec<Run>> {
        prop::collection::vec((0_u32..2, 0_u64..3, 1_u64..5), 0..4).prop_map(|runs| {
            runs.into_iter().map(|(segment, start, length)| run(segment, start, length)).collect()
        })
    }

    fn tokens(path: &[Run]) -> Vec<Token> {
        path.iter().flat_map(|r| (r.start..r.start + r.length).map(|at| (r.segment, at))).collect()
    }

    /// The first `length` tokens of a path.
    fn runs(tokens: &[Token]) -> Vec<Run> {
        tokens.iter().map(|(segment, start)| run(*segment, *start, 1)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against the set of all prefixes that are there: a hit is the longest of them, what is evicted was nobody's, and
        /// locks come out even.
        #[test]
        fn the_tree_is_a_set_of_prefixes(moves in prop::collection::vec((0_u8..4, paths(), 0_u64..20), 1..60)) {
            let mut tree = Tree::default();
            let mut there: BTreeSet<Vec<Token>> = BTreeSet::new();
            let mut held: Vec<(Node, Vec<Token>)> = Vec::new();
            for (what, path, number) in moves {
                let all = tokens(&path);
                match what {
                    0 => {
                        tree.insert(&path);
                        (1..=all.len()).for_each(|n| { there.insert(all[..n].to_vec()); });
                    }
                    1 => {
                        let known = (1..=all.len()).rev().find(|n| there.contains(&all[..*n])).unwrap_or(0);
                        let (node, length) = tree.find(&path);
                        prop_assert_eq!(length, known as u64);
                        let free = tree.unlocked(node);
                        prop_assert_eq!(tree.lock(node), free);
                        held.push((node, all[..known].to_vec()));
                    }
                    2 if !held.is_empty() => {
                        let (node, _) = held.swap_remove(number as usize % held.len());
                        let free = tree.unlock(node);
                        prop_assert_eq!(tree.unlocked(node), free);
                    }
                    _ => {
                        let before = tree.tokens();
                        tree.shrink(number);
                        prop_assert!(tree.evictable() <= number);
                        there.retain(|prefix| tree.clone().find(&runs(prefix)).1 == prefix.len() as u64);
                        prop_assert_eq!(there.len() as u64, tree.tokens());
                        prop_assert!(tree.tokens() <= before);
                    }
                }
                prop_assert_eq!(there.len() as u64, tree.tokens());
                let locked: BTreeSet<&[Token]> =
                    held.iter().flat_map(|(_, p)| (1..=p.len()).map(|n| &p[..n])).collect();
                prop_assert_eq!(tree.tokens() - tree.evictable(), locked.len() as u64);
                prop_assert!(locked.iter().all(|prefix| there.contains(*prefix)));
            }
            held.into_iter().for_each(|(node, _)| { tree.unlock(node); });
            tree.shrink(0);
            prop_assert_eq!((tree.tokens(), tree.nodes.len() - tree.vacant.len()), (0, 1));
        }
    }
}
