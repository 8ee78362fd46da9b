//! Times of all-reduces.
//!
//! Knows: which rows of tables are of what engines do. Knows nothing about files.

use super::{CollectiveRow, Kernel, Part};
use crate::accelerator::{Accelerator, Topology};
use crate::operator::collective;
use crate::units::Bytes;

/// Bytes of the shortest message: a row of 2,048 values in 16 bits.
const ONE_ROW: u64 = 4096;

/// Tables of a machine whose cards exchange through the host's memory, by accelerator, backend and version: 64 MiB between two
/// cards take 4.4 ms and 4 KiB 20 µs in all three, 1.8 ms and 5 µs in those of later versions, which are of other machines.
const THROUGH_HOST: [[&str; 3]; 3] = [
    ["rtx-pro-6000-server", "sglang", "0.5.10"],
    ["rtx-pro-6000-server", "trtllm", "1.3.0rc10"],
    ["rtx-pro-6000-server", "vllm", "0.19.0"],
];

/// The link between the accelerators of the machine that a table was measured on.
fn topology(chip: &Accelerator, backend: &str, version: &str) -> Option<Topology> {
    let through_host = THROUGH_HOST.contains(&[chip.id.as_str(), backend, version]);
    if through_host { Some(Topology::Host) } else { chip.link.as_ref().map(|link| link.topology) }
}

/// All-reduces inside captured graphs, as engines decode, and NCCL's own; bytes are those that [`collective::least`] sends. Of eight
/// cards on PCIe the published times differ tenfold by source: they say more of the board than of the link.
pub(super) fn all_reduce(chip: &Accelerator, row: &CollectiveRow) -> Option<Kernel> {
    let counts = row.op_name == "all_reduce" && !row.variant.ends_with("eager");
    let link = chip.link.as_ref().filter(|_| counts && row.num_gpus <= chip.node_size)?;
    let pcie = link.topology.is_pcie();
    if pcie && row.num_gpus > 4 || !pcie && row.bytes < ONE_ROW {
        return None;
    }
    let wire = collective::least(chip, row.num_gpus, Bytes(row.bytes)).seconds();
    Some(Kernel {
        link: topology(chip, &row.backend, &row.version),
        latency: link.latency_s,
        ranks: row.num_gpus,
        ..Kernel::new(Part::AllReduce, chip, [0.0, wire], row.latency_ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    /// 4 MiB among four cards at 63 GB/s are 2 · 3/4 · 4 MiB = 6.29 MB, 99.9 µs.
    #[test]
    fn old_tables_are_of_cards_through_the_host() {
        let catalog = Catalog::embedded().unwrap();
        let row = |backend: &str, version: &str, num_gpus| CollectiveRow {
            system: String::new(),
            backend: backend.into(),
            version: version.into(),
            latency_ms: 0.3,
            variant: "vLLM_custom_graph".into(),
            op_name: "all_reduce".into(),
            num_gpus,
            bytes: 4 << 20,
        };
        let of = |card: &str, row: &CollectiveRow| {
            let kernel = all_reduce(catalog.accelerator(card).unwrap(), row).unwrap();
            (kernel.link, kernel.memory)
        };
        let (link, seconds) = of("rtx-pro-6000-server", &row("vllm", "0.24.0", 4));
        assert_eq!(link, Some(Topology::Pcie));
        assert!((seconds * 1e6 - 99.9).abs() < 0.1, "{seconds}");
        let eight =
            all_reduce(catalog.accelerator("rtx-pro-6000-server").unwrap(), &row("vllm", "0.24.0", 8));
        assert_eq!(eight, None);
        for (backend, version) in [("vllm", "0.19.0"), ("sglang", "0.5.10"), ("trtllm", "1.3.0rc10")] {
            assert_eq!(of("rtx-pro-6000-server", &row(backend, version, 2)).0, Some(Topology::Host));
        }
        // GeForce cards do not reach each other, whatever the table.
        assert_eq!(of("rtx-4090", &row("vllm", "0.24.0", 2)).0, Some(Topology::Host));
        assert_eq!(of("l40s", &row("vllm", "0.19.0", 2)).0, Some(Topology::Pcie));
    }
}
