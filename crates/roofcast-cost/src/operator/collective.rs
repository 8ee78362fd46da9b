//! Bytes and least times of collectives: rings, trees, torus axes, and rings of nodes.
//!
//! Knows: messages of one forward pass and the bandwidth of a link. A limit counts bandwidth alone; latency per hop
//! is shown separately and belongs to the forecast. Source: Thakur et al., "Optimization of collective communication
//! operations in MPICH" (2005); scaling book, chapter 3, for torus axes; for nodes, NCCL's all-reduces with a network
//! card for every accelerator (`rail-optimized`).

use super::exchange::{self, Exchange};
use super::shared_sequences;
use roofcast_ask::deployment::Deployment;
use roofcast_facts::accelerator::{Accelerator, Topology};
use roofcast_facts::units::{ByteRate, Bytes, Picoseconds};
use serde::Serialize;

/// Times of one all-reduce by one algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllReduce {
    /// Name of the algorithm: `ring`, `tree`, `nodes`, or `torus` with its axes.
    pub algorithm: String,
    /// Time of the bytes at the link's bandwidth, which is the limit.
    #[serde(rename = "bandwidth_ms")]
    pub bandwidth: Picoseconds,
    /// Number of hops times the link's latency.
    #[serde(rename = "latency_ms")]
    pub latency: Picoseconds,
}

/// Times of an all-reduce of `bytes` over `ranks` ranks by each possible algorithm.
///
/// * ring: every rank sends 2(n − 1)/n of the message in 2(n − 1) hops;
/// * tree: the message moves up and down once, in 2⌈log2 n⌉ hops;
/// * nodes, if the ranks fill N nodes of m each: a ring within each node leaves every rank 1/m of the sum, which the
///   rank all-reduces with its counterparts in the other nodes over its own network card, 2(N − 1)/N of the part;
///   then the node gathers. Both kinds of links work in parallel on different pieces, so that the slower one decides;
/// * torus: along each axis in parallel, in both directions if the axis is a ring and in one if it is a line: 2(n −
///   1)/n of the message over the sum of these directions.
pub(crate) fn all_reduce(accelerator: &Accelerator, ranks: u64, bytes: Bytes) -> Vec<AllReduce> {
    if ranks <= 1 {
        return Vec::new();
    }
    let (rate, latency) = accelerator.slowest_link(ranks);
    let hops = |count: u64| Picoseconds::from_seconds(latency * count as f64);
    let ring_bytes = bytes.scale(2 * (ranks - 1), ranks);
    let torus =
        accelerator.link.as_ref().filter(|l| l.topology == Topology::Torus && ranks <= accelerator.node_size);
    if torus.is_some() {
        let shape = accelerator.torus_shape(ranks).unwrap_or_default();
        let links = accelerator.axis_links(&shape);
        let used_axes = shape.iter().filter(|n| **n > 1).count().max(1) as u64;
        // The longest axes are last.
        let last = |axes: u64| shape.iter().zip(&links).rev().take(axes as usize);
        let hop = |n: u64, links: f64| if links > 1.0 { n / 2 * 2 } else { 2 * (n - 1) };
        return (1..=used_axes)
            .map(|axes| AllReduce {
                algorithm: format!(
                    "torus, {axes} of {}",
                    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
                ),
                bandwidth: Picoseconds::moving(
                    ring_bytes,
                    ByteRate(rate.0 * last(axes).map(|(_, links)| links).sum::<f64>()),
                ),
                latency: hops(last(axes).map(|(n, links)| hop(*n, *links)).sum()),
            })
            .collect();
    }
    let depth = u64::from(ranks.next_power_of_two().trailing_zeros());
    let mut ways = vec![
        AllReduce {
            algorithm: "ring".into(),
            bandwidth: Picoseconds::moving(ring_bytes, rate),
            latency: hops(2 * (ranks - 1)),
        },
        AllReduce {
            algorithm: "tree".into(),
            bandwidth: Picoseconds::moving(bytes * 2, rate),
            latency: hops(2 * depth),
        },
    ];
    ways.extend(by_nodes(accelerator, ranks, bytes));
    ways
}

/// All-reduce within nodes and between them in parallel; `None` unless `ranks` fill several nodes.
fn by_nodes(accelerator: &Accelerator, ranks: u64, bytes: Bytes) -> Option<AllReduce> {
    let link = accelerator.link.as_ref()?;
    let network = accelerator.network.as_ref()?;
    let node = accelerator.node_size;
    let nodes = ranks / node;
    if node < 2 || nodes < 2 || !ranks.is_multiple_of(node) {
        return None;
    }
    let within = Picoseconds::moving(bytes.scale(2 * (node - 1), node), link.bytes_per_s);
    let between = Picoseconds::moving(bytes.scale(2 * (nodes - 1), nodes * node), network.bytes_per_s);
    let hops = 2.0 * ((node - 1) as f64 * link.latency_s + (nodes - 1) as f64 * network.latency_s);
    Some(AllReduce {
        algorithm: "nodes".into(),
        bandwidth: within.max(between),
        latency: Picoseconds::from_seconds(hops),
    })
}

/// Least time of one all-reduce: the smallest bandwidth term of all algorithms.
pub(crate) fn least(accelerator: &Accelerator, ranks: u64, bytes: Bytes) -> Picoseconds {
    all_reduce(accelerator, ranks, bytes).iter().map(|a| a.bandwidth).min().unwrap_or(Picoseconds::ZERO)
}

/// Messages of one forward pass on its busiest rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Communication {
    /// Number of all-reduces of the residual stream, in all layers.
    pub all_reduces: u64,
    /// Bytes of one all-reduce.
    pub message_bytes: Bytes,
    /// Time of the all-reduces at the links' bandwidth, which is their limit.
    #[serde(rename = "all_reduce_ms")]
    pub all_reduce: Picoseconds,
    /// Time to send tokens to experts on other ranks and their results back.
    #[serde(rename = "all_to_all_ms")]
    pub(crate) all_to_all: Picoseconds,
    /// Time to send activations from pipeline stage to stage.
    #[serde(rename = "pipeline_ms")]
    pub pipeline: Picoseconds,
    /// Hops of every message times the latency of a link. Not part of the limit.
    #[serde(rename = "latency_ms")]
    pub(crate) latency: Picoseconds,
}

impl Communication {
    /// No messages between ranks.
    pub(crate) const NONE: Communication = Communication {
        all_reduces: 0,
        message_bytes: Bytes::ZERO,
        all_reduce: Picoseconds::ZERO,
        all_to_all: Picoseconds::ZERO,
        pipeline: Picoseconds::ZERO,
        latency: Picoseconds::ZERO,
    };

    /// Sum of the times at the links' bandwidth.
    pub(crate) fn total(&self) -> Picoseconds {
        self.all_reduce + self.all_to_all + self.pipeline
    }
}

/// Time of one dispatch or combine of tokens, as a multiple of a link's latency: DeepEP's low-latency kernels take
/// about 20 µs with hardly any tokens, ten times NVLink's 2 µs (deepseek-ai/DeepEP, README).
const EXCHANGE_LATENCIES: f64 = 10.0;

/// Messages of a forward pass, as a function of the rows of its busiest rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Links {
    /// Number of all-reduces of the residual stream, in all layers.
    pub(crate) all_reduces: u64,
    /// Latency of the slowest link among tensor-parallel ranks, in seconds.
    pub(crate) latency: f64,
    /// Bytes per row of one all-reduce.
    pub(crate) row_bytes: f64,
    /// Number of layers whose norm of queries and keys covers all heads, so that ranks must first add up their sums
    /// of squares.
    pub(crate) norms: u64,
    /// Number of layers that exchange tokens with experts on other ranks.
    pub(crate) exchange_layers: f64,
    /// Fixed seconds of all exchanges of tokens with experts on other ranks.
    pub(crate) exchange_latency: f64,
    /// Seconds per row of all-reduces, and of transfers between stages.
    row: [f64; 2],
    /// Seconds per decode, and per cached token before a chunk of a prompt, of ranks that share the tokens of a sequence.
    pub(crate) shared_sequences: [f64; 2],
    /// Seconds per row of exchanges with experts on other ranks, in steps of decodes and in steps with prompts.
    pub(crate) exchange_row: [f64; 2],
    /// Seconds per token that a data-parallel rank gathers from other ranks, without expert parallelism.
    pub(crate) gather: f64,
    /// Seconds of latency of all hops of a pass.
    hops: f64,
}

impl Links {
    /// Derives the messages of `deployment`.
    pub(crate) fn of(deployment: &Deployment) -> Links {
        let p = deployment.parallelism;
        let chip = &deployment.accelerator;
        let row_bytes = deployment.model.hidden as f64 * f64::from(deployment.base.bits()) / 8.0;
        let blocks = || deployment.stages.iter().flat_map(|s| &s.blocks);
        let all_reduces: u64 = if p.tp > 1 { blocks().map(|(b, n)| b.all_reduces * n).sum() } else { 0 };
        let norms = if p.tp > 1 {
            blocks().filter(|(b, _)| b.mixer.norms_all_heads()).map(|(_, n)| n).sum()
        } else {
            0
        };
        let (expert_rate, expert_latency) = chip.slowest_link(p.stage_ranks());
        let (stage_rate, stage_latency) = chip.slowest_link(p.stage_ranks() * p.pp);
        let mut exchange_row = [0.0; 2];
        let mut gather = 0.0;
        let mut exchanges = 0;
        for (block, layers) in blocks().filter(|_| p.attention_dp > 1) {
            let Some(shard) = &block.experts else { continue };
            // Experts on a latent stream receive the latent.
            let width = shard.experts.width(deployment.model.hidden) as f64;
            let row = row_bytes * width / deployment.model.hidden as f64;
            let there_and_back = 2.0 * row / expert_rate.0 * *layers as f64;
            exchanges += 2 * layers;
            match deployment.experts.backend {
                // Each token is sent to the ranks of its experts and back; 1/ep of the experts are local.
                None if p.ep > 1 => {
                    let copies = shard.experts.per_token.min(p.ep) as f64;
                    let sent = there_and_back * copies * (p.ep - 1) as f64 / p.ep as f64;
                    exchange_row.iter_mut().for_each(|row| *row += sent);
                }
                Some(backend) if backend.is_deepep() => {
                    let exchange = Exchange::of(deployment, shard);
                    for (row, low_latency) in exchange_row.iter_mut().zip(exchange::low_latency(backend)) {
                        *row += exchange.least_of_both(chip, low_latency) * *layers as f64;
                    }
                }
                // Every rank gathers the tokens of the other ranks, and its sums are scattered back to them, whether it
                // has whole experts or a slice of each (vLLM, docs/serving/data_parallel_deployment.md).
                _ => gather += there_and_back,
            }
        }
        let first = all_reduce(chip, p.tp, Bytes(1)).iter().map(|a| a.latency).min().unwrap_or_default();
        let stages = (p.pp - 1) as f64;
        Links {
            all_reduces,
            latency: chip.slowest_link(p.tp).1,
            row_bytes,
            norms,
            exchange_layers: exchanges as f64 / 2.0,
            exchange_latency: expert_latency * EXCHANGE_LATENCIES * exchanges as f64,
            row: [
                seconds_per_byte(chip, p.tp) * row_bytes * all_reduces as f64,
                row_bytes / stage_rate.0 * stages,
            ],
            shared_sequences: shared_sequences(deployment),
            exchange_row: exchange_row.map(|row| row * deployment.experts.busiest()),
            gather,
            hops: first.seconds() * all_reduces as f64
                + expert_latency * exchanges as f64
                + stage_latency * stages,
        }
    }

    /// Seconds per row of one all-reduce, by bandwidth alone; 0 without all-reduces.
    pub(crate) fn seconds_per_row(&self) -> f64 {
        self.row[0] / self.all_reduces.max(1) as f64
    }

    /// Seconds per row of transfers between stages, by bandwidth alone.
    pub(crate) fn seconds_per_row_of_stages(&self) -> f64 {
        self.row[1]
    }

    /// Messages of a pass of `rows` rows, for which a rank gathers `gathered` tokens; `prompts` is true if it computes
    /// prompts; `shared` are its decodes, and the cached tokens before its prompts.
    pub(crate) fn communication(
        &self,
        rows: u64,
        gathered: u64,
        prompts: bool,
        shared: [f64; 2],
    ) -> Communication {
        let of_rows = |seconds: f64| Picoseconds::from_seconds(seconds * rows as f64);
        let [all_reduce, pipeline] = self.row.map(of_rows);
        let shared: f64 =
            self.shared_sequences.iter().zip(shared).map(|(seconds, count)| seconds * count).sum();
        let all_reduce = all_reduce + Picoseconds::from_seconds(shared);
        let all_to_all = of_rows(self.exchange_row[usize::from(prompts)]);
        Communication {
            all_reduces: self.all_reduces,
            message_bytes: Bytes::from_f64(self.row_bytes * rows as f64),
            all_reduce,
            all_to_all: all_to_all + Picoseconds::from_seconds(self.gather * gathered as f64),
            pipeline,
            latency: Picoseconds::from_seconds(self.hops),
        }
    }
}

/// Seconds per decode, and per cached token before a prompt, of ranks that share the tokens of a sequence, by bandwidth
/// alone: a gather or a scatter moves half as many bytes as an all-reduce.
fn shared_sequences(deployment: &Deployment) -> [f64; 2] {
    let byte = seconds_per_byte(&deployment.accelerator, deployment.sequence_ranks) / 2.0;
    shared_sequences::messages(deployment).iter().fold([0.0; 2], |[decode, cached], m| {
        [decode + m.layers * m.decode.iter().sum::<f64>() * byte, cached + m.layers * m.cached * byte]
    })
}

/// Seconds per byte of an all-reduce, by bandwidth alone.
fn seconds_per_byte(accelerator: &Accelerator, ranks: u64) -> f64 {
    const MANY: u64 = 1 << 30;
    least(accelerator, ranks, Bytes(MANY)).seconds() / MANY as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use roofcast_facts::accelerator::Network;

    /// Machine with round figures for arithmetic by hand: 100 TFLOP/s in bf16, 1 TB/s, links of 100 GB/s.
    pub(crate) fn round_machine() -> Accelerator {
        let text = r#"
            id = "round"
            name = "Round"
            vendor = "nvidia"
            architecture = "test"
            memory_bytes = 16_000_000_000
            usable_bytes = 15_000_000_000
            bandwidth_bytes_per_s = 1e12
            node_size = 8
            peak_flops = { bf16 = 100e12, fp8 = 200e12 }
            link = { kind = "test", topology = "switch", bytes_per_s = 100e9, latency_s = 1e-6 }
        "#;
        toml::from_str(text).unwrap()
    }

    #[test]
    fn rings_and_trees_by_hand() {
        // 100 MB over 4 ranks at 100 GB/s: ring 2·3/4·100 MB = 150 MB in 1.5 ms and 6 hops; tree 200 MB in 2 ms and 4
        // hops.
        let ways = all_reduce(&round_machine(), 4, Bytes(100_000_000));
        assert_eq!((ways[0].bandwidth.ms(), ways[0].latency.ms()), (1.5, 0.006));
        assert_eq!((ways[1].bandwidth.ms(), ways[1].latency.ms()), (2.0, 0.004));
        assert_eq!(least(&round_machine(), 1, Bytes(1)), Picoseconds::ZERO);
    }

    /// 80 MB over 16 ranks in two nodes of 8, with links of 450 GB/s within and 50 GB/s between nodes: within
    /// 2·7/8·80 MB = 140 MB in 0.311 ms; between 2·1/2·80 MB/8 = 10 MB in 0.2 ms. One ring over all ranks would send
    /// 150 MB at 50 GB/s, in 3 ms.
    #[test]
    fn nodes_share_an_all_reduce() {
        let mut machine = round_machine();
        machine.node_size = 8;
        let mut link = machine.link.clone().unwrap();
        (link.bytes_per_s, link.latency_s) = (ByteRate(450e9), 1e-6);
        let network = Network { kind: "network".into(), bytes_per_s: ByteRate(50e9), latency_s: 5e-6 };
        (machine.link, machine.network) = (Some(link), Some(network));
        let ways = all_reduce(&machine, 16, Bytes(80_000_000));
        let nodes = ways.iter().find(|w| w.algorithm == "nodes").unwrap();
        assert!(
            (nodes.bandwidth.ms() - 140.0 / 450.0).abs() < 1e-6
                && (ways[0].bandwidth.ms() - 3.0).abs() < 1e-6
        );
        // 14 hops within nodes and 2 between them.
        assert!((nodes.latency.ms() - 0.024).abs() < 1e-9);
        assert_eq!(least(&machine, 16, Bytes(80_000_000)), nodes.bandwidth);
    }
}
