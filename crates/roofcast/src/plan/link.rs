//! The default link over which the pools of a deployment hand KV caches over.
//!
//! Knows: the links of accelerators. Knows nothing about their speed.

use crate::accelerator::Accelerator;
use crate::spec::LinkKind;

/// The link between pools of one kind, `accelerators` in all: their own link within a node, otherwise the link
/// between two kinds.
pub(super) fn within(chip: &Accelerator, accelerators: u64) -> LinkKind {
    let own = chip.link.as_ref().is_some_and(|link| !link.topology.is_pcie());
    if own && accelerators <= chip.node_size { LinkKind::Nvlink } else { between(chip, chip) }
}

/// The link between pools that share no link of their own: the network, or the host if either has no network.
pub(super) fn between(one: &Accelerator, other: &Accelerator) -> LinkKind {
    match one.network.is_some() && other.network.is_some() {
        true => LinkKind::Network,
        false => LinkKind::Pcie,
    }
}
