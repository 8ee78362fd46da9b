//! Unlocked leaves by their stamps: of the device in a list, of the host in a set.
//!
//! Knows: a leaf of the device has nothing on the device below it, a leaf of the host has nothing below it and is on the host
//! alone; whoever changes what decides this takes the node out first and puts it back afterwards. Knows nothing about who
//! evicts.

use super::{DEPTHS, Node, ROOT, Slot, Tree};

/// Where an unlocked leaf is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Listed {
    /// Nowhere.
    #[default]
    No,
    /// Among the leaves of the device.
    Device,
    /// Among those of the host.
    Host,
}

impl Slot {
    /// Whether it is an unlocked leaf of the device.
    pub(super) fn is_free_leaf(&self) -> bool {
        self.on_device && self.device_children == 0 && self.locks == 0
    }

    fn belongs(&self) -> Listed {
        if self.is_free_leaf() {
            Listed::Device
        } else if !self.on_device && self.copy.there && self.children == 0 && self.locks == 0 {
            Listed::Host
        } else {
            Listed::No
        }
    }
}

impl Tree {
    /// Stamps a node as the newest.
    pub(super) fn touch(&mut self, node: Node) {
        self.uses += 1;
        self.stamp(node, self.uses * DEPTHS);
    }

    pub(super) fn stamp(&mut self, node: Node, stamp: u64) {
        self.delist(node);
        self.nodes[node as usize].stamp = stamp;
        self.enlist(node, self.newest());
    }

    /// The leaf of the device that was used last, if there is one.
    pub(super) fn newest(&self) -> Node {
        self.nodes[ROOT as usize].older
    }

    /// The leaf of the device that goes first.
    pub(super) fn oldest(&self) -> Option<Node> {
        Some(self.nodes[ROOT as usize].newer).filter(|leaf| *leaf != ROOT)
    }

    /// Puts a node where it belongs. Its place among the leaves of the device is looked for from `near` on: what was just used
    /// is the newest, and what an evicted leaf leaves bare is about as old as that leaf.
    pub(super) fn enlist(&mut self, node: Node, near: Node) {
        let slot = &self.nodes[node as usize];
        let (belongs, stamp) = (slot.belongs(), slot.stamp);
        if slot.listed == belongs {
            return;
        }
        self.delist(node);
        self.nodes[node as usize].listed = belongs;
        match (belongs, &mut self.host) {
            (Listed::Device, _) => self.list(node, near),
            (Listed::Host, Some(host)) => {
                host.leaves.insert((stamp, node));
            }
            _ => {}
        }
    }

    /// Takes a node out of where it is kept, before what decides that changes.
    pub(super) fn delist(&mut self, node: Node) {
        let Slot { listed, older, newer, stamp, .. } = self.nodes[node as usize];
        match (listed, &mut self.host) {
            (Listed::Device, _) => self.connect(older, newer),
            (Listed::Host, Some(host)) => {
                host.leaves.remove(&(stamp, node));
            }
            _ => {}
        }
        self.nodes[node as usize].listed = Listed::No;
    }

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

    fn connect(&mut self, older: Node, newer: Node) {
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
    }
}
