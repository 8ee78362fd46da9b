//! Unlocked leaves in order of their stamps: leaves on the device in a list, leaves on the host in a set.
//!
//! Knows: a device leaf has no descendants on the device; a host leaf has no children and is only on the host. A node
//! is removed with `delist` before these properties change, and added again with `enlist` afterwards. Knows nothing
//! about eviction decisions.

use super::{DEPTHS, Node, ROOT, Slot, Tree};

/// The list that holds an unlocked leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Listed {
    /// The leaf is in no list.
    #[default]
    No,
    /// The list of device leaves.
    Device,
    /// The set of host leaves.
    Host,
}

impl Slot {
    /// True if the node is an unlocked device leaf.
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
    /// Gives a node the newest stamp.
    pub(super) fn touch(&mut self, node: Node) {
        self.uses += 1;
        self.stamp(node, self.uses * DEPTHS);
    }

    pub(super) fn stamp(&mut self, node: Node, stamp: u64) {
        self.delist(node);
        self.nodes[node as usize].stamp = stamp;
        self.enlist(node, self.newest());
    }

    /// The device leaf that was used last; the root if there is none.
    pub(super) fn newest(&self) -> Node {
        self.nodes[ROOT as usize].older
    }

    /// The device leaf that is evicted next.
    pub(super) fn oldest(&self) -> Option<Node> {
        Some(self.nodes[ROOT as usize].newer).filter(|leaf| *leaf != ROOT)
    }

    /// Adds a node to the list to which it belongs. Its place among the device leaves is searched from `near`: a node
    /// that was just used is the newest, and a parent that became a leaf by an eviction is about as old as the evicted
    /// leaf.
    pub(super) fn enlist(&mut self, node: Node, near: Node) {
        let slot = &self.nodes[node as usize];
        let belongs = slot.belongs();
        let stamp = slot.stamp;
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

    /// Removes a node from its list, before its state changes.
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
        // The root has stamp 0, and the first and the last leaf as neighbours.
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
