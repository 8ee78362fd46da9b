//! The default link over which the pools of a deployment hand KV caches over.
//!
//! Knows: the links of accelerators. Knows nothing about their speed.

use roofcast_ask::spec::LinkKind;
use roofcast_facts::accelerator::Accelerator;

/// The default link between pools on one kind of chip with `accelerators` accelerators in total: the link within a node
/// if they fit in one, otherwise the link as between two kinds.
pub(super) fn within(chip: &Accelerator, accelerators: u64) -> LinkKind {
    let has_fast_link = chip.link.as_ref().is_some_and(|link| !link.topology.is_pcie());
    if has_fast_link && accelerators <= chip.node_size { LinkKind::Nvlink } else { between(chip, chip) }
}

/// The default link between pools on two kinds of chip: the network, or PCIe through the host if either chip has no
/// network.
pub(super) fn between(one: &Accelerator, other: &Accelerator) -> LinkKind {
    match one.network.is_some() && other.network.is_some() {
        true => LinkKind::Network,
        false => LinkKind::Pcie,
    }
}
