//! Caches of replicas as a router knows them from KV events that arrive late.
//!
//! Knows: blocks that a step stored in a replica's prefix cache, or removed from it, are published when the step ends,
//! and the router learns of them after a delay. Knows nothing about policies, or about what the caches hold now.

use crate::engine::Replica;
use crate::kv_cache::paged::Change;
use crate::kv_cache::prefix::{Content, Tokens};
use roofcast_ask::workload::Prompt;
use roofcast_facts::clock::Ticks;
use std::collections::{BTreeSet, VecDeque};

/// KV events of all replicas, and the cache contents that the router knows.
#[derive(Debug, Clone)]
pub(crate) struct KvEvents {
    delay: Ticks,
    /// Tokens per block.
    block: u64,
    views: Vec<View>,
}

/// Events of one replica.
#[derive(Debug, Clone, Default)]
struct View {
    /// Contents that the router believes to be cached.
    known: BTreeSet<Content>,
    /// Events that the router has not received, each with the time at which it does.
    under_way: VecDeque<(Ticks, Vec<Change>)>,
}

impl KvEvents {
    /// Events of `replicas`, with blocks of `block` tokens, that arrive after `delay`.
    pub(crate) fn new(delay: Ticks, block: u64, replicas: &mut [Box<dyn Replica>]) -> KvEvents {
        replicas.iter_mut().for_each(|replica| replica.watch_cache());
        KvEvents { delay, block, views: vec![View::default(); replicas.len()] }
    }

    /// Publishes the changes of replica `index` since the last call.
    pub(super) fn publish(&mut self, index: usize, replica: &mut dyn Replica) {
        let mut changes = Vec::new();
        replica.take_changes(&mut changes);
        if !changes.is_empty() {
            self.views[index].under_way.push_back((replica.clock() + self.delay, changes));
        }
    }

    /// Forgets a replica whose cache was emptied.
    pub(super) fn forget(&mut self, index: usize) {
        self.views[index] = View::default();
    }

    /// Receives the events that have arrived by `now`.
    pub(super) fn receive(&mut self, now: Ticks) {
        for view in &mut self.views {
            while let Some((_, changes)) = view.under_way.pop_front_if(|(at, _)| *at <= now) {
                for change in changes {
                    match change {
                        Change::Stored { contents, .. } => view.known.extend(contents),
                        Change::Removed { content } => {
                            view.known.remove(&content);
                        }
                    }
                }
            }
        }
    }

    /// For each replica, the number of tokens of `prompt` that the router believes to be cached, in whole blocks.
    pub(super) fn known(&self, prompt: &Prompt) -> Vec<u64> {
        let contents = Tokens::of_prompt(prompt).contents((self.block, 0));
        let run = |view: &View| contents.iter().take_while(|content| view.known.contains(content)).count();
        self.views.iter().map(|view| run(view) as u64 * self.block).collect()
    }
}
