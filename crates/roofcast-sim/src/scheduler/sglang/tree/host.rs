//! The host tier of the tree, SGLang's HiCache: nodes with a copy in host memory, and copies in flight.
//!
//! Knows: when a node is copied to the host (`write_through`: at its first insert, `write_through_selective`: at its
//! second, `write_back`: when it leaves the device). Ancestors are copied first, the oldest leaves are evicted if the
//! host is full, and a copy in flight locks its path. A node keeps its host copy when it returns to the device. Source:
//! SGLang 0.5.23, `mem_cache/unified_cache/unified_tree_core.py` and `mem_cache/unified_radix_cache.py`. Not modelled:
//! storage below the host tier, `hicache_host_memory_mode=buffer_only`. Knows nothing about the duration of copies: the
//! driver reports their ends ([`Tree::stored`], [`Tree::loaded`]).

use super::{Node, ROOT, Slot, Tree};
use roofcast_ask::spec::WritePolicy;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of inserts after which a node is copied to the host; `None` if the policy ignores inserts.
fn threshold(policy: WritePolicy) -> Option<u32> {
    match policy {
        WritePolicy::WriteThrough => Some(1),
        WritePolicy::WriteThroughSelective => Some(2),
        WritePolicy::WriteBack => None,
    }
}

/// The host side of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostCopy {
    /// True if the host copy exists, or is in flight.
    pub(super) there: bool,
    /// Number of inserts that went through the node while it was on the device.
    hits: u32,
    /// Number of the copy to the host in flight, and of the load in flight; 0 if there is none.
    storing: u64,
    loading: u64,
    /// Rank by the time since which the node has been on both device and host; 0 if it is not ranked.
    duplicate: u64,
}

impl HostCopy {
    /// State of the new upper node when a node is split.
    pub(super) fn of_part(self) -> HostCopy {
        HostCopy { duplicate: 0, ..self }
    }
}

/// KV cache that is copied over the link in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    /// Number of tokens copied from the device to the host.
    Store(u64),
    /// Number of tokens loaded from the host to the device.
    Load(u64),
}

/// Events of the host tier since the last call of [`crate::scheduler::sglang::Scheduler::take_moves`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    /// Nodes copied to the host: number, tokens before the node on its path, tokens.
    pub stores: Vec<[u64; 3]>,
    /// Numbers of the copies to the host that have arrived.
    pub stored: Vec<u64>,
    /// Nodes for which the host had no room: tokens before the node on its path, tokens of the node.
    pub store_failed: Vec<[u64; 2]>,
    /// Number of tokens freed on the host.
    pub host_evicted: u64,
    /// Number of tokens freed on the device by eviction.
    pub device_evicted: u64,
    /// Number of tokens freed on the device without a host copy, so that their KV is lost.
    pub dropped: u64,
    /// Number of tokens copied to the host while the decision waited for the copy.
    pub(crate) written_back: u64,
    /// Copies submitted to the link.
    pub submitted: Vec<Submission>,
}

/// A node, and the number of its copy.
type Numbered = (Node, u64);

/// The host tier.
#[derive(Debug, Clone)]
pub(in crate::scheduler::sglang) struct Host {
    policy: WritePolicy,
    /// Number of tokens in free host pages.
    free: u64,
    /// Unlocked leaves that are only on the host, by stamp.
    pub(super) leaves: BTreeSet<(u64, Node)>,
    /// Nodes on both device and host, in the order in which they came to be on both. Entries of nodes that have left
    /// one of the two may remain. Used only with `write_back`.
    duplicates: BTreeMap<u64, Node>,
    born: u64,
    /// Number of copies to the host so far.
    stores: u64,
    loads: u64,
    /// Copies that wait to be submitted, and submitted copies in order; each submission is one copy over the link.
    storing: (Vec<Numbered>, VecDeque<Vec<Numbered>>),
    loading: (Vec<Numbered>, VecDeque<Vec<Numbered>>),
    pub(in crate::scheduler::sglang) moves: Moves,
}

impl Host {
    /// An empty host tier with room for `tokens` tokens.
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

    /// Free tokens, number of nodes being copied to the host, and number being loaded.
    pub(in crate::scheduler::sglang) fn state(&self) -> [u64; 3] {
        let under_way = |(queued, submitted): &(Vec<Numbered>, VecDeque<Vec<Numbered>>)| {
            (queued.len() + submitted.iter().map(Vec::len).sum::<usize>()) as u64
        };
        [self.free, under_way(&self.storing), under_way(&self.loading)]
    }

    /// True if eviction from the device must wait for a copy to the host.
    pub(in crate::scheduler::sglang) fn writes_back(&self) -> bool {
        self.policy == WritePolicy::WriteBack
    }

    /// Removes a node from the tier's lists when it leaves the tree.
    pub(super) fn forget(&mut self, slot: &Slot) {
        self.duplicates.remove(&slot.copy.duplicate);
        if slot.copy.there {
            self.free += slot.length;
            self.moves.host_evicted += slot.length;
        }
    }
}

impl Tree {
    /// Counts an insert that created a node or went through it on the device; `fresh` is false if the request itself
    /// had inserted the node before.
    pub(super) fn used(&mut self, node: Node, fresh: bool) {
        let Some(threshold) = self.host.as_ref().and_then(|host| threshold(host.policy)) else { return };
        let copy = &mut self.nodes[node as usize].copy;
        copy.hits += u32::from(fresh);
        if fresh && !copy.there && copy.hits >= threshold {
            self.back_up(node);
        }
    }

    /// Copies a node and its ancestors without a host copy to the host, ancestors first, until the host is full.
    fn back_up(&mut self, node: Node) {
        let mut chain = Vec::new();
        let mut up = node;
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

    /// Allocates host pages for a node; returns the number of the copy, or `None` if there is no room.
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

    /// Number of tokens before a node on its path.
    fn start(&self, node: Node) -> u64 {
        let mut start = 0;
        let mut up = self.nodes[node as usize].parent;
        while up != ROOT {
            start += self.nodes[up as usize].length;
            up = self.nodes[up as usize].parent;
        }
        start
    }

    /// Frees at least `tokens` tokens on the host if that many can be evicted; returns the number of freed tokens.
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

    /// With `write_back`, frees host copies of nodes that are also on the device; nodes that are about to leave the
    /// device are the last to lose their host copies.
    fn give_up_duplicates(&mut self, tokens: u64) -> u64 {
        let Some(host) = self.host.as_mut().filter(|host| host.writes_back()) else { return 0 };
        let mut freed = 0;
        let mut gone = Vec::new();
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

    /// Adds a node to the order of nodes on both device and host, or removes the node from it.
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

    /// Removes a leaf from the device. If it has no host copy, `write_back` copies it now; with the other policies its
    /// KV is lost.
    pub(super) fn leave_device(&mut self, leaf: Node) {
        let length = self.nodes[leaf as usize].length;
        let there = self.nodes[leaf as usize].copy.there;
        let writes_back = self.host.as_ref().is_some_and(Host::writes_back);
        let number = if !there && writes_back { self.copy(leaf) } else { None };
        let Some(host) = &mut self.host else { return };
        host.moves.device_evicted += length;
        if let Some(number) = number {
            host.moves.stored.push(number - 1);
            host.moves.written_back += length;
            self.track_duplicate(leaf);
        } else if !there {
            // The descendants on the host were evicted when the host ran out of room.
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

    /// Marks a node that was only on the host as being on the device as well.
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

    /// Loads the nodes on the path to `end` that are only on the host; a lock on `end` keeps them until
    /// [`Tree::loaded`].
    pub(in crate::scheduler::sglang) fn load(&mut self, end: Node) {
        let Some(host) = &mut self.host else { return };
        host.loads += 1;
        host.loading.0.push((end, host.loads));
        let number = if host.writes_back() { host.loads } else { 0 };
        let mut chain = Vec::new();
        let mut up = end;
        while !self.nodes[up as usize].on_device {
            self.nodes[up as usize].copy.loading = number;
            chain.push(up);
            up = self.nodes[up as usize].parent;
        }
        chain.into_iter().rev().for_each(|node| self.enter_device(node));
    }

    /// Submits the waiting copies to the host to the link, as one copy.
    pub(in crate::scheduler::sglang) fn submit_stores(&mut self) {
        let Some(host) = self.host.as_mut().filter(|host| !host.storing.0.is_empty()) else { return };
        let nodes = std::mem::take(&mut host.storing.0);
        // Nodes may have been split after they were queued; their parts still form one copy.
        let tokens = nodes.iter().map(|(node, number)| part(&self.nodes, *node, *number)).sum();
        host.storing.1.push_back(nodes);
        host.moves.submitted.push(Submission::Store(tokens));
    }

    /// Submits the waiting loads, `tokens` tokens in total, to the link as one copy.
    pub(in crate::scheduler::sglang) fn submit_loads(&mut self, tokens: u64) {
        let Some(host) = self.host.as_mut().filter(|host| !host.loading.0.is_empty()) else { return };
        let nodes = std::mem::take(&mut host.loading.0);
        host.loading.1.push_back(nodes);
        host.moves.submitted.push(Submission::Load(tokens));
    }

    /// Completes the oldest submitted copy to the host.
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

    /// Completes the oldest submitted load.
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

/// Number of tokens in all parts of a node that belong to one copy.
fn part(nodes: &[Slot], node: Node, number: u64) -> u64 {
    let mut tokens = 0;
    let mut up = node;
    while nodes[up as usize].copy.storing == number {
        tokens += nodes[up as usize].length;
        up = nodes[up as usize].parent;
    }
    tokens
}
