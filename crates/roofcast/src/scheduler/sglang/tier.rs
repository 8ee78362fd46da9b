//! The host tier, as the driver sees it: what was handed to the link, and what has arrived.

use super::Scheduler;
use super::tree::Tree;
use super::tree::host::{Host, Moves};

impl Scheduler {
    /// Locked KV tokens on the device.
    pub fn protected(&self) -> u64 {
        self.memory.tree.as_ref().map_or(0, Tree::locked)
    }

    /// With a host tier, its free tokens, and nodes on their way to the host and back.
    pub fn host(&self) -> Option<[u64; 3]> {
        self.memory.host().map(Host::state)
    }

    /// What happened to the host tier since this was last asked.
    pub fn take_moves(&mut self) -> Moves {
        let host = self.memory.tree.as_mut().and_then(|tree| tree.host.as_mut());
        host.map(|host| std::mem::take(&mut host.moves)).unwrap_or_default()
    }

    /// The oldest copy to the host that was submitted is there.
    pub fn stored(&mut self) {
        self.memory.tree.iter_mut().for_each(Tree::stored);
    }

    /// The oldest load from the host that was submitted is there.
    pub fn loaded(&mut self) {
        self.memory.tree.iter_mut().for_each(Tree::loaded);
    }
}
