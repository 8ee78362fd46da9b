//! Exchanges of tokens between ranks with different experts: bytes and least times of dispatch and combination.
//!
//! Knows: DeepEP's messages. Its low-latency kernels send a token once for each of its experts; its normal kernels send
//! it once to each node and once to each rank that has experts of it (deepseek-ai/DeepEP, README). Dispatch is in FP8
//! with a 32-bit scale for every 128 values, combination in BF16. Links within a node and network cards work in
//! parallel, so that the slower decides. Choices of experts are taken as independent and even: routing that is limited
//! to groups of experts reaches fewer nodes. Knows nothing about kernels.

use roofcast_ask::deployment::{Deployment, ExpertShard};
use roofcast_ask::spec::All2AllBackend;
use roofcast_facts::accelerator::Accelerator;

/// Bytes per value of a dispatched token: one, and a scale of four bytes for every 128 values.
const DISPATCHED: f64 = 1.0 + 4.0 / 128.0;
/// Bytes per value of a combined token.
const COMBINED: f64 = 2.0;

/// Exchange of one layer's tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Exchange {
    /// Number of ranks with different experts.
    pub(crate) ranks: u64,
    /// Number of values of a token.
    pub(crate) hidden: u64,
    /// Number of experts that a token chooses.
    pub(crate) top_k: u64,
    /// Number of experts of the layer.
    pub(crate) experts: u64,
}

/// Direction of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Dispatch,
    Combine,
}

impl Direction {
    pub(crate) const BOTH: [Direction; 2] = [Direction::Dispatch, Direction::Combine];
}

impl Exchange {
    /// The exchange of a layer with `shard`.
    pub(crate) fn of(deployment: &Deployment, shard: &ExpertShard) -> Exchange {
        Exchange {
            ranks: deployment.parallelism.ep,
            hidden: shard.experts.width(deployment.model.hidden),
            top_k: shard.experts.per_token,
            experts: shard.experts.count,
        }
    }

    /// Least seconds per token of a rank, by bandwidth alone.
    pub(crate) fn least(&self, chip: &Accelerator, low_latency: bool, direction: Direction) -> f64 {
        let bytes = self.hidden as f64 * if direction == Direction::Dispatch { DISPATCHED } else { COMBINED };
        let [within, between] = self.copies(chip.node_size.min(self.ranks), low_latency);
        let link = chip.slowest_link(1).0.0;
        let network = chip.slowest_link(chip.node_size + 1).0.0;
        bytes * (within / link).max(between / network)
    }

    /// Least seconds per token of a rank in both directions.
    pub(super) fn least_of_both(&self, chip: &Accelerator, low_latency: bool) -> f64 {
        Direction::BOTH.map(|direction| self.least(chip, low_latency, direction)).iter().sum()
    }

    /// Copies of a token over a link within a node of `node` ranks, and over the network.
    fn copies(&self, node: u64, low_latency: bool) -> [f64; 2] {
        let [ranks, node, k] = [self.ranks, node.max(1), self.top_k].map(|n| n as f64);
        if low_latency {
            return [k * (node - 1.0) / ranks, k * (ranks - node) / ranks];
        }
        // Probability that at least one of k experts is on one rank, or on one node.
        let chosen = |parts: f64| 1.0 - (1.0 - 1.0 / parts).powi(self.top_k as i32);
        let nodes = ranks / node;
        let between = (nodes - 1.0) * chosen(nodes);
        // A token enters another node at one rank, from which it goes to the others.
        let within = (node - 1.0) * chosen(ranks) * (1.0 + (nodes - 1.0));
        [within, between]
    }
}

/// Steps of two microbatches, whose exchanges overlap with kernels: of decodes alone, and with prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Overlap {
    /// Tokens of a rank from which a step is split.
    pub(crate) thresholds: [u64; 2],
    /// True if low-latency kernels exchange the tokens.
    pub(crate) low_latency: [bool; 2],
}

impl Overlap {
    /// Overlap of `deployment`, if it is enabled.
    pub(crate) fn of(deployment: &Deployment) -> Option<Overlap> {
        let experts = &deployment.experts;
        let thresholds = experts.overlap?;
        let backend = experts.deepep()?;
        Some(Overlap { thresholds, low_latency: low_latency(backend) })
    }
}

/// True if steps exchange tokens by DeepEP's low-latency kernels: of decodes alone, and with prompts.
pub(crate) fn low_latency(backend: All2AllBackend) -> [bool; 2] {
    match backend {
        All2AllBackend::DeepepAuto => [true, false],
        All2AllBackend::DeepepLowLatency => [true; 2],
        All2AllBackend::DeepepHighThroughput | All2AllBackend::AllgatherReducescatter => [false; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::collective::tests::round_machine;
    use roofcast_facts::accelerator::Network;
    use roofcast_facts::units::ByteRate;

    /// Four nodes of eight ranks, 100 GB/s within and 50 GB/s between them; eight of 256 experts, 128 values. Low
    /// latency: eight copies, of which 7/32 stay in the node and 24/32 leave it: 6 copies of 132 bytes at 50 GB/s.
    /// Normal: 3 (1 − (3/4)^8) = 2.6997 other nodes, and 7 (1 − (31/32)^8) · 4 = 6.2791 ranks by way of links:
    /// max(6.2791/100, 2.6997/50) · 132 bytes.
    #[test]
    fn copies_by_hand() {
        let mut machine = round_machine();
        machine.node_size = 8;
        machine.link.as_mut().unwrap().bytes_per_s = ByteRate(100e9);
        machine.network =
            Some(Network { kind: "network".into(), bytes_per_s: ByteRate(50e9), latency_s: 5e-6 });
        let exchange = Exchange { ranks: 32, hidden: 128, top_k: 8, experts: 256 };
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-4, "{a} {b}");
        near(exchange.least(&machine, true, Direction::Dispatch), 6.0 * 132.0 / 50e9);
        near(exchange.least(&machine, true, Direction::Combine), 6.0 * 256.0 / 50e9);
        let copies = exchange.copies(8, false);
        near(copies[0], 28.0 * (1.0 - (31.0_f64 / 32.0).powi(8)));
        near(copies[1], 2.6997);
        near(exchange.least(&machine, false, Direction::Dispatch), 132.0 * (copies[0] / 100e9));
        // Within one node nothing crosses the network.
        assert_eq!(Exchange { ranks: 8, ..exchange }.copies(8, true), [7.0, 0.0]);
    }
}
