//! The host tier of the tree, SGLang's HiCache: which nodes have a copy in host memory, which copies are under way.
//!
//! Knows: when a node is copied to the host (`write_through`: with its first insert, `write_through_selective`: with its
//! second, `write_back`: when it leaves the device), that ancestors go first, what goes where the host has no room, and that
//! a copy under way locks its path. A node keeps its host copy when it comes back to the device. Source: SGLang 0.5.23,
//! `mem_cache/unified_cache/unified_tree_core.py` and `mem_cache/unified_radix_cache.py`. Not modelled: storage below the
//! host tier, `hicache_host_memory_mode=buffer_only`. Knows nothing about how long copies take: the driver reports them
//! ([`Tree::stored`], [`Tree::loaded`]).

use super::{Node, ROOT, Slot, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// When KV is copied to the host, SGLang's `hicache_write_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WritePolicy {
    /// With its first insert.
    #[default]
    WriteThrough,
    /// With its second insert.
    WriteThroughSelective,
    /// When it leaves the device.
    WriteBack,
}

impl WritePolicy {
    /// Inserts of a node from which on it is copied; none where uses do not matter.
    fn threshold(self) -> Option<u32> {
        match self {
            WritePolicy::WriteThrough => Some(1),
            WritePolicy::WriteThroughSelective => Some(2),
            WritePolicy::WriteBack => None,
        }
    }
}

/// What a node has on the host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostCopy {
    /// Whether it is there, or on its way.
    pub(super) there: bool,
    /// Inserts that went over it while it was on the device.
    hits: u32,
    /// The copies to the host and back that are under way, by number; 0 where none is.
    storing: u64,
    loading: u64,
    /// Its place in the order in which nodes came to be on both sides; 0 where it is not in it.
    duplicate: u64,
}

impl HostCopy {
    /// Of the new upper part of a node that is split.
    pub(super) fn of_part(self) -> HostCopy {
        HostCopy { duplicate: 0, ..self }
    }
}

/// KV that is copied together over the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    /// Tokens from the device to the host.
    Store(u64),
    /// Tokens from the host to the device.
    Load(u64),
}

/// What happened to the host tier since [`crate::scheduler::sglang::Scheduler::take_moves`] was asked last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    /// Nodes copied to the host: number, tokens before it on its path, tokens.
    pub stores: Vec<[u64; 3]>,
    /// Numbers of those that are there.
    pub stored: Vec<u64>,
    /// Nodes without room on the host: tokens before it, tokens.
    pub store_failed: Vec<[u64; 2]>,
    /// Tokens freed on the host.
    pub host_evicted: u64,
    /// Tokens freed on the device by eviction.
    pub device_evicted: u64,
    /// Of these, those that are nowhere any more.
    pub dropped: u64,
    /// Tokens that the decision waited for until they were on the host.
    pub written_back: u64,
    /// What was handed to the link.
    pub submitted: Vec<Submission>,
}

/// A node and the number of its copy.
type Numbered = (Node, u64);

/// The host tier.
#[derive(Debug, Clone)]
pub(in crate::scheduler::sglang) struct Host {
    policy: WritePolicy,
    /// Tokens of free host pages.
    free: u64,
    /// Unlocked leaves that are on the host alone, by stamp.
    pub(super) leaves: BTreeSet<(u64, Node)>,
    /// Nodes that came to be on both sides, in that order; what left one of them may still be here. Of write_back alone.
    duplicates: BTreeMap<u64, Node>,
    born: u64,
    /// Copies so far.
    stores: u64,
    loads: u64,
    /// Copies that wait to be submitted, and those under way, in order; each submission is one copy over the link.
    storing: (Vec<Numbered>, VecDeque<Vec<Numbered>>),
    loading: (Vec<Numbered>, VecDeque<Vec<Numbered>>),
    pub(in crate::scheduler::sglang) moves: Moves,
}

impl Host {
    /// An empty tier of `tokens`.
    pub(in crate::scheduler::sglang) fn new(tokens: u64, policy: WritePolicy) -> Host {
        Host {
            policy,
            free: tokens,
            leaves: BTreeSet::new(),
            duplicates: BTreeMap::new(),
            born: 0,
            stores: 0,
            loads: 0,
            storing: Default::default(),
            loading: Default::default(),
            moves: Moves::default(),
        }
    }

    /// Free tokens, and nodes on their way to the host and back.
    pub(in crate::scheduler::sglang) fn state(&self) -> [u64; 3] {
        let under_way = |(queued, submitted): &(Vec<Numbered>, VecDeque<Vec<Numbered>>)| {
            (queued.len() + submitted.iter().map(Vec::len).sum::<usize>()) as u64
        };
        [self.free, under_way(&self.storing), under_way(&self.loading)]
    }

    /// Whether evicting means waiting for a copy.
    pub(in crate::scheduler::sglang) fn writes_back(&self) -> bool {
        self.policy == WritePolicy::WriteBack
    }

    /// A node leaves the tree.
    pub(super) fn forget(&mut self, slot: &Slot) {
        self.duplicates.remove(&slot.copy.duplicate);
        if slot.copy.there {
            self.free += slot.length;
            self.moves.host_evicted += slot.length;
        }
    }
}

impl Tree {
    /// Counts an insert that went over a node on the device or made it, unless the request had inserted it before.
    pub(super) fn used(&mut self, node: Node, fresh: bool) {
        let Some(threshold) = self.host.as_ref().and_then(|host| host.policy.threshold()) else { return };
        let copy = &mut self.nodes[node as usize].copy;
        copy.hits += u32::from(fresh);
        if fresh && !copy.there && copy.hits >= threshold {
            self.back_up(node);
        }
    }

    /// Copies a node and its ancestors without a copy to the host, the ancestors first, until there is no room.
    fn back_up(&mut self, node: Node) {
        let (mut chain, mut up) = (Vec::new(), node);
        while up != ROOT && !self.nodes[up as usize].copy.there {
            chain.push(up);
            up = self.nodes[up as usize].parent;
        }
        for node in chain.into_iter().rev() {
            let Some(number) = self.copy(node) else { return };
            self.lock(node);
            self.nodes[node as usize].copy.storing = number;
            if let Some(host) = &mut self.host {
                host.storing.0.push((node, number));
            }
        }
    }

    /// Takes host pages for a node: the number of its copy, or none where there is no room.
    fn copy(&mut self, node: Node) -> Option<u64> {
        let length = self.nodes[node as usize].length;
        let start = self.start(node);
        let missing = length.saturating_sub(self.host.as_ref()?.free);
        let fits = missing == 0 || self.evict_host(missing) >= missing;
        let host = self.host.as_mut()?;
        if !fits {
            host.moves.store_failed.push([start, length]);
            return None;
        }
        host.free -= length;
        host.stores += 1;
        host.moves.stores.push([host.stores - 1, start, length]);
        let number = host.stores;
        self.nodes[node as usize].copy.there = true;
        Some(number)
    }

    /// Tokens before a node on its path.
    fn start(&self, node: Node) -> u64 {
        let (mut start, mut up) = (0, self.nodes[node as usize].parent);
        while up != ROOT {
            start += self.nodes[up as usize].length;
            up = self.nodes[up as usize].parent;
        }
        start
    }

    /// Frees at least `tokens` on the host, if they can go; how many it were.
    fn evict_host(&mut self, tokens: u64) -> u64 {
        let mut freed = self.give_up_duplicates(tokens);
        while freed < tokens
            && let Some(&(_, leaf)) = self.host.as_ref().and_then(|host| host.leaves.first())
        {
            freed += self.nodes[leaf as usize].length;
            self.remove(leaf);
        }
        freed
    }

    /// With write_back, gives host copies up of nodes that are on the device, too: first of those that are not about to leave
    /// it.
    fn give_up_duplicates(&mut self, tokens: u64) -> u64 {
        let Some(host) = self.host.as_mut().filter(|host| host.writes_back()) else { return 0 };
        let (mut freed, mut gone) = (0, Vec::new());
        for spares_leaves in [true, false] {
            for (&place, &node) in &host.duplicates {
                if freed >= tokens {
                    break;
                }
                let slot = &mut self.nodes[node as usize];
                if !slot.on_device || !slot.copy.there {
                    gone.push(place);
                } else if !(spares_leaves && slot.is_free_leaf()) && slot.copy.loading == 0 {
                    slot.copy.there = false;
                    freed += slot.length;
                    gone.push(place);
                }
            }
        }
        for place in gone {
            if let Some(node) = host.duplicates.remove(&place) {
                self.nodes[node as usize].copy.duplicate = 0;
            }
        }
        host.free += freed;
        host.moves.host_evicted += freed;
        freed
    }

    /// Keeps a node in the order of those on both sides, or out of it.
    pub(super) fn track_duplicate(&mut self, node: Node) {
        let Some(host) = self.host.as_mut().filter(|host| host.writes_back()) else { return };
        let slot = &mut self.nodes[node as usize];
        let settled = slot.on_device && slot.copy.there && slot.copy.storing == 0 && slot.copy.loading == 0;
        if !settled {
            host.duplicates.remove(&std::mem::take(&mut slot.copy.duplicate));
        } else if slot.copy.duplicate == 0 {
            host.born += 1;
            slot.copy.duplicate = host.born;
            host.duplicates.insert(host.born, node);
        }
    }

    /// A leaf leaves the device. Where it has no host copy it gets one now with write_back, and is lost otherwise.
    pub(super) fn leave_device(&mut self, leaf: Node) {
        let (length, there) = (self.nodes[leaf as usize].length, self.nodes[leaf as usize].copy.there);
        let writes_back = self.host.as_ref().is_some_and(Host::writes_back);
        let number = if !there && writes_back { self.copy(leaf) } else { None };
        let Some(host) = &mut self.host else { return };
        host.moves.device_evicted += length;
        if let Some(number) = number {
            host.moves.stored.push(number - 1);
            host.moves.written_back += length;
            self.track_duplicate(leaf);
        } else if !there {
            // What was below it on the host went when there was no room.
            host.moves.dropped += length;
            return self.remove(leaf);
        }
        self.delist(leaf);
        let slot = &mut self.nodes[leaf as usize];
        slot.on_device = false;
        let parent = slot.parent;
        self.tokens -= length;
        self.nodes[parent as usize].device_children -= 1;
        self.enlist(leaf, ROOT);
        self.enlist(parent, ROOT);
    }

    /// What is on the host alone is on the device, too.
    pub(super) fn enter_device(&mut self, node: Node) {
        self.delist(node);
        let slot = &mut self.nodes[node as usize];
        slot.on_device = true;
        self.tokens += slot.length;
        self.locked += if slot.locks > 0 { slot.length } else { 0 };
        let parent = slot.parent;
        self.delist(parent);
        self.nodes[parent as usize].device_children += 1;
        self.enlist(node, self.newest());
    }

    /// Loads what is on the host alone on the way to `end`, which its lock keeps until [`Tree::loaded`].
    pub(in crate::scheduler::sglang) fn load(&mut self, end: Node) {
        let Some(host) = &mut self.host else { return };
        host.loads += 1;
        host.loading.0.push((end, host.loads));
        let number = if host.writes_back() { host.loads } else { 0 };
        let (mut chain, mut up) = (Vec::new(), end);
        while !self.nodes[up as usize].on_device {
            self.nodes[up as usize].copy.loading = number;
            chain.push(up);
            up = self.nodes[up as usize].parent;
        }
        chain.into_iter().rev().for_each(|node| self.enter_device(node));
    }

    /// Hands the copies to the host that wait over to the link, as one.
    pub(in crate::scheduler::sglang) fn submit_stores(&mut self) {
        let Some(host) = self.host.as_mut().filter(|host| !host.storing.0.is_empty()) else { return };
        let nodes = std::mem::take(&mut host.storing.0);
        // Nodes may have been split since they were queued: their parts are one copy.
        let tokens = nodes.iter().map(|(node, number)| part(&self.nodes, *node, *number)).sum();
        host.storing.1.push_back(nodes);
        host.moves.submitted.push(Submission::Store(tokens));
    }

    /// Hands loads of `tokens` over to the link, as one.
    pub(in crate::scheduler::sglang) fn submit_loads(&mut self, tokens: u64) {
        let Some(host) = self.host.as_mut().filter(|host| !host.loading.0.is_empty()) else { return };
        let nodes = std::mem::take(&mut host.loading.0);
        host.loading.1.push_back(nodes);
        host.moves.submitted.push(Submission::Load(tokens));
    }

    /// The oldest submitted copy to the host is there.
    pub(in crate::scheduler::sglang) fn stored(&mut self) {
        let done = self.host.as_mut().and_then(|host| host.storing.1.pop_front());
        for (node, number) in done.unwrap_or_default() {
            let mut up = node;
            while self.nodes[up as usize].copy.storing == number {
                self.nodes[up as usize].copy.storing = 0;
                up = self.nodes[up as usize].parent;
            }
            self.unlock(node);
            if let Some(host) = &mut self.host {
                host.moves.stored.push(number - 1);
            }
        }
    }

    /// The oldest submitted load is there.
    pub(in crate::scheduler::sglang) fn loaded(&mut self) {
        let done = self.host.as_mut().and_then(|host| host.loading.1.pop_front());
        for (node, number) in done.unwrap_or_default() {
            self.unlock(node);
            let mut up = node;
            while up != ROOT {
                if self.nodes[up as usize].copy.loading == number {
                    self.nodes[up as usize].copy.loading = 0;
                    self.track_duplicate(up);
                }
                up = self.nodes[up as usize].parent;
            }
        }
    }
}

/// Tokens of the parts of a node that are one copy.
fn part(nodes: &[Slot], node: Node, number: u64) -> u64 {
    let (mut tokens, mut up) = (0, node);
    while nodes[up as usize].copy.storing == number {
        tokens += nodes[up as usize].length;
        up = nodes[up as usize].parent;
    }
    tokens
}
