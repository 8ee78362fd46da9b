//! Over what the pools of a deployment hand caches over, where the search does not say.
//!
//! Knows: which links accelerators have. Knows nothing about how fast they are.

use crate::accelerator::Accelerator;
use crate::spec::LinkKind;

/// What joins the pools of `accelerators` of one kind: within a node their own link, beyond what joins two kinds.
pub(super) fn within(chip: &Accelerator, accelerators: u64) -> LinkKind {
    let own = chip.link.as_ref().is_some_and(|link| !link.topology.is_pcie());
    if own && accelerators <= chip.node_size { LinkKind::Nvlink } else { between(chip, chip) }
}

/// What joins pools that have no link of their own: the network, and the host where one of them has none.
pub(super) fn between(one: &Accelerator, other: &Accelerator) -> LinkKind {
    match one.network.is_some() && other.network.is_some() {
        true => LinkKind::Network,
        false => LinkKind::Pcie,
    }
}
