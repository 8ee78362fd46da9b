//! The reference for sequences that decode together: every sequence is stored singly and updated in every step.
//!
//! Knows: context, blocks and ends of each sequence. Knows nothing about leaps.

use super::{Decodes, Entry};
use roofcast_ask::arrival::SequenceId;
use roofcast_ask::kv_cache::groups::Groups;
use roofcast_facts::batch::Seen;

/// Sequences that are all stored singly: the reference implementation.
#[derive(Debug, Clone)]
pub(crate) struct Each {
    groups: Groups,
    reaches: Vec<u64>,
    all: Vec<Entry>,
    seen: Vec<u64>,
    growth: Vec<u64>,
}

impl Each {
    fn sum(&mut self) {
        for (index, reach) in self.reaches.iter().enumerate() {
            let context = |e: &Entry| u64::from(e.computed) + 1;
            self.seen[index] = self.all.iter().map(|e| context(e).min(*reach)).sum();
            self.growth[index] = self.all.iter().filter(|e| context(e) < *reach).count() as u64;
        }
    }
}

impl Decodes for Each {
    const LEAPS: bool = false;

    fn new(groups: &Groups, reaches: &[u64]) -> Each {
        let zeros = vec![0; reaches.len()];
        let seen = zeros.clone();
        let growth = zeros;
        Each { groups: groups.clone(), reaches: reaches.to_vec(), all: Vec::new(), seen, growth }
    }

    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    fn seen(&self) -> Seen<'_> {
        Seen { all: self.held() + self.len(), within: &self.seen }
    }

    fn growth(&self) -> Seen<'_> {
        Seen { all: self.len(), within: &self.growth }
    }

    fn held(&self) -> u64 {
        self.all.iter().map(|e| u64::from(e.computed)).sum()
    }

    fn needs(&self, steps: u64) -> u64 {
        let blocks = |tokens: u64| self.groups.blocks(tokens);
        self.all.iter().map(|e| blocks(u64::from(e.computed) + steps) - blocks(u64::from(e.computed))).sum()
    }

    fn steady(&self) -> u64 {
        1
    }

    fn progress(&self, id: SequenceId) -> (u32, u32) {
        self.all.iter().find(|e| e.id == id).map_or((0, 0), |e| (e.computed, e.remaining))
    }

    fn insert(&mut self, entry: Entry) {
        self.all.push(entry);
        self.sum();
    }

    fn remove(&mut self, id: SequenceId) -> (u32, u32) {
        let Some(at) = self.all.iter().position(|e| e.id == id) else { return (0, 0) };
        let entry = self.all.remove(at);
        self.sum();
        (entry.computed, entry.remaining)
    }

    fn advance(&mut self, steps: u64, ended: &mut Vec<(SequenceId, u32)>) {
        for entry in &mut self.all {
            entry.computed += steps as u32;
            entry.remaining -= steps as u32;
        }
        let mut done: Vec<Entry> = self.all.extract_if(.., |e| e.remaining == 0).collect();
        done.sort_by_key(|e| e.order);
        ended.extend(done.into_iter().map(|e| (e.id, e.computed)));
        self.sum();
    }
}
