//! The host tier, as the driver sees it: copies that were submitted to the link, and copies that have arrived.

use super::Scheduler;
use super::tree::Tree;
use super::tree::host::{Host, Moves};

impl Scheduler {
    /// Number of locked KV tokens on the device.
    pub fn protected(&self) -> u64 {
        self.memory.tree.as_ref().map_or(0, Tree::locked)
    }

    /// Free tokens of the host tier, number of nodes being copied to the host, and number being loaded; `None` without
    /// a host tier.
    pub fn host(&self) -> Option<[u64; 3]> {
        self.memory.host().map(Host::state)
    }

    /// Returns the events of the host tier since the last call.
    pub fn take_moves(&mut self) -> Moves {
        let host = self.memory.tree.as_mut().and_then(|tree| tree.host.as_mut());
        host.map(|host| std::mem::take(&mut host.moves)).unwrap_or_default()
    }

    /// Reports that the oldest submitted copy to the host has arrived.
    pub fn stored(&mut self) {
        self.memory.tree.iter_mut().for_each(Tree::stored);
    }

    /// Reports that the oldest submitted load from the host has arrived.
    pub fn loaded(&mut self) {
        self.memory.tree.iter_mut().for_each(Tree::loaded);
    }
}
