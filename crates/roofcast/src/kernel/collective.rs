//! Times of all-reduces.
//!
//! Knows: which rows of tables are of what engines do. Knows nothing about files.

use super::{CollectiveRow, Kernel, Part};
use crate::accelerator::{Accelerator, Topology};
use crate::operator::collective;
use crate::units::Bytes;

/// Bytes of the shortest message: a row of 2,048 values in 16 bits.
const ONE_ROW: u64 = 4096;

/// All-reduces inside captured graphs, as engines decode, and NCCL's own; bytes are those that [`collective::least`] sends. Of eight
/// cards on PCIe the published times differ tenfold by source: they say more of the host than of the link.
pub(super) fn all_reduce(chip: &Accelerator, row: &CollectiveRow) -> Option<Kernel> {
    let counts = row.op_name == "all_reduce" && !row.variant.ends_with("eager");
    let link = chip.link.as_ref().filter(|_| counts && row.num_gpus <= chip.node_size)?;
    let pcie = link.topology == Topology::Pcie;
    if pcie && row.num_gpus > 4 || !pcie && row.bytes < ONE_ROW {
        return None;
    }
    let wire = collective::least(chip, row.num_gpus, Bytes(row.bytes)).seconds();
    Some(Kernel {
        latency: link.latency_s,
        ranks: row.num_gpus,
        ..Kernel::new(Part::AllReduce, chip, [0.0, wire], row.latency_ms)
    })
}
