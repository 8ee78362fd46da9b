//! Time of a step's messages between ranks.
//!
//! Knows: exchanges of tokens last as long as measured ones of DeepEP if it runs, else ten latencies of the link for
//! dispatch and for combination, plus their bytes at a fraction of the link's rate. An all-reduce lasts as long as a measured one with equally many bytes and ranks, scaled by the links' rates
//! on a sibling chip; without a measurement, three latencies of the link plus its bytes at a fraction of the link's
//! rate. Knows nothing about which messages there are.

use super::shared::SharedTimes;
use crate::coefficients::{Coefficients, KernelTimes};
use crate::kernel_time::{Basis, Kernels};
use crate::operator::collective::Links;
use crate::operator::exchange::{self, Exchange, Overlap};
use crate::operator::shared_sequences;
use crate::profile::Curve;
use roofcast_ask::deployment::{BusiestRank, Deployment};

/// Efficiency of a link through the host's memory, which each byte enters and leaves: two cards over PCIe 5 exchange
/// 15 GB/s of 64 (`all_reduce_perf` of nccl-tests; 64 MiB in 4.4 ms).
const THROUGH_HOST: f64 = 0.24;

/// Fixed time of one all-reduce without a measurement, as a multiple of the link's latency.
const LATENCIES: f64 = 3.0;

/// Seconds of NCCL's all-reduce of a few KiB over two nodes: 34 to 37 µs on two single H200 and on 2 × 8 H100 or A100 over
/// InfiniBand, 43 to 50 over RoCE (public tables of nccl-tests), and 35 on two GB10
/// (https://github.com/NVIDIA/dgx-spark-playbooks/pull/103).
const TWO_NODES: f64 = 36e-6;
/// Seconds that each doubling of the nodes adds: two more hops of NCCL's tree over the network, 5 µs each by its own model
/// (https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc, LL protocol).
const DOUBLING: f64 = 10e-6;

/// Least seconds of an all-reduce of `ranks` ranks that span several nodes of `node_size`; 0 on one node.
fn across_nodes(ranks: u64, node_size: u64) -> f64 {
    let nodes = ranks.div_ceil(node_size.max(1));
    if nodes > 1 { TWO_NODES + DOUBLING * (libm::log2(nodes as f64) - 1.0) } else { 0.0 }
}

/// Bytes per row in the all-reduce of a norm over all heads: the sums of squares of queries and of keys in 32 bits
/// (vLLM 0.18, `model_executor/layers/mamba/linear_attn.py`, `MiniMaxText01RMSNormTP.forward_qk`).
const SQUARES: f64 = 8.0;

/// Measured seconds of dispatch and of combination over rows, in equal layers.
#[derive(Debug, Clone, PartialEq)]
struct Exchanged {
    layers: f64,
    both: [Curve; 2],
}

/// Seconds of dispatches, and of combinations, of `rows` rows.
fn sum(exchanges: &[Exchanged], rows: f64) -> [f64; 2] {
    let sum_at = |at: usize| exchanges.iter().map(|e| e.layers * e.both[at].at(rows)).sum();
    [sum_at(0), sum_at(1)]
}

/// Times of the messages of a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Messages {
    /// Number of all-reduces of a step.
    count: f64,
    /// Bytes per row in one all-reduce.
    row_bytes: f64,
    /// Measured seconds of one all-reduce over its bytes, if there is a measurement.
    measured: Option<Curve>,
    /// Fixed seconds of one all-reduce, and seconds per row.
    formula: [f64; 2],
    /// Number of all-reduces in a step that sum the squares of queries and keys.
    norms: f64,
    /// Seconds per row of transfers between stages.
    stages_row: f64,
    /// Seconds per token that a data-parallel rank gathers from other ranks.
    gather: f64,
    /// Fixed seconds of all exchanges of tokens without a measurement.
    exchange_start: f64,
    /// Seconds per row of all exchanges without a measurement, in steps of decodes and in steps with prompts.
    exchange_row: [f64; 2],
    /// Measured seconds of dispatch and combination over rows, with the number of layers: in steps of decodes, and with
    /// prompts.
    exchanges: [Vec<Exchanged>; 2],
    /// Seconds of those in which multiprocessors work; empty for exchanges that occupy few.
    works: [Vec<Exchanged>; 2],
    /// Number of layers that exchange tokens.
    pub(super) exchange_layers: f64,
    /// Times of the messages of ranks that share the tokens of sequences.
    pub(super) shared: SharedTimes,
    /// Seconds per step of moving experts to other ranks, averaged over all steps.
    rebalancing: f64,
    /// Measurement or assumption behind the time of all-reduces.
    pub(crate) basis: Option<Basis>,
}

impl Messages {
    /// Computes the times of the messages of `deployment`, whose amounts are in `links`.
    pub(crate) fn of(deployment: &Deployment, links: &Links, coefficients: &Coefficients) -> Messages {
        let count = links.all_reduces as f64;
        let KernelTimes::Measured { shares, .. } = &coefficients.kernels else {
            let formula = [0.0, links.seconds_per_row()];
            return Messages {
                count,
                formula,
                stages_row: links.seconds_per_row_of_stages(),
                exchange_row: links.exchange_row,
                exchange_layers: links.exchange_layers,
                shared: SharedTimes::limit(links),
                gather: links.gather,
                ..Messages::default()
            };
        };
        let factor = coefficients.factor;
        let kernels = Kernels::of(deployment, coefficients);
        let p = deployment.parallelism;
        let measured = (links.all_reduces > 0).then(|| kernels.all_reduce(p.tp)).flatten();
        let (measured, basis) = measured.unzip();
        let through_host = deployment.accelerator.link.as_ref().is_some_and(|l| l.topology.is_through_host());
        let share = if through_host { THROUGH_HOST } else { shares.link };
        let seconds_per_byte = links.seconds_per_row() / links.row_bytes.max(1.0);
        Messages {
            count,
            row_bytes: links.row_bytes,
            norms: links.norms as f64,
            measured: measured.map(|c| c.map(|bytes, s| (s * factor).max(bytes * seconds_per_byte))),
            formula: [
                factor
                    * (LATENCIES * links.latency).max(across_nodes(p.tp, deployment.accelerator.node_size)),
                (factor / share).max(1.0) * links.seconds_per_row(),
            ],
            stages_row: links.seconds_per_row_of_stages() * (factor / share).max(1.0),
            gather: links.gather * (factor / share).max(1.0),
            exchange_start: factor * links.exchange_latency,
            exchange_row: links.exchange_row.map(|row| row * (factor / share).max(1.0)),
            exchanges: exchanges(deployment, &kernels, p.ep),
            works: works(deployment, &kernels),
            exchange_layers: links.exchange_layers,
            shared: SharedTimes::of(
                shared_sequences::messages(deployment),
                &kernels,
                links,
                deployment.sequence_ranks,
                [factor * LATENCIES / 2.0 * links.latency, (factor / share).max(1.0), factor],
            ),
            rebalancing: deployment.rebalancing().map_or(0.0, |(seconds, steps)| seconds / steps),
            basis,
        }
    }

    /// Seconds of the exchanges of tokens of a step with `rows` rows; `prompts` is true if it computes prompts.
    #[inline(always)]
    pub(crate) fn exchange(&self, rows: f64, prompts: bool) -> f64 {
        self.both_ways(rows, prompts).iter().sum()
    }

    /// Seconds of dispatches, and of combinations.
    pub(super) fn both_ways(&self, rows: f64, prompts: bool) -> [f64; 2] {
        let at = usize::from(prompts);
        match self.exchanges[at].as_slice() {
            [] => [(self.exchange_start + self.exchange_row[at] * rows) / 2.0; 2],
            measured => sum(measured, rows),
        }
    }

    /// Seconds of dispatches, and of combinations, in which multiprocessors work, so that no other kernel runs.
    pub(super) fn works(&self, rows: f64, prompts: bool) -> [f64; 2] {
        sum(&self.works[usize::from(prompts)], rows)
    }

    /// Seconds of the other messages of a step with `rows` rows, for which a rank gathers `gathered` tokens.
    #[inline(always)]
    pub(crate) fn time(&self, rows: f64, gathered: f64) -> f64 {
        let other = self.rebalancing + self.stages_row * rows + self.gather * gathered;
        if self.count == 0.0 {
            return other;
        }
        let [one, norm] = match &self.measured {
            Some(curve) => [self.row_bytes, SQUARES].map(|bytes| curve.at(rows * bytes)),
            None => [self.formula[0] + self.formula[1] * rows, self.formula[0]],
        };
        self.count * one + self.norms * norm + other
    }
}

impl super::Timing {
    /// Measurement behind the time of all-reduces; `None` if there are none, or none were timed.
    pub(crate) fn all_reduces(&self) -> Option<&Basis> {
        self.overhead.messages.basis.as_ref()
    }
}

/// Measured times of exchanges by low-latency kernels on one node, whose multiprocessors copy the tokens; see
/// [`super::overlap`].
fn works(deployment: &Deployment, kernels: &Kernels) -> [Vec<Exchanged>; 2] {
    let Some(overlap) = Overlap::of(deployment) else { return Default::default() };
    let mut works =
        exchanges(deployment, kernels, deployment.accelerator.node_size.min(deployment.parallelism.ep));
    for (work, low_latency) in works.iter_mut().zip(overlap.low_latency) {
        if !low_latency {
            work.clear();
        }
    }
    works
}

/// Measured times of the exchanges of DeepEP among `ranks` ranks, by number of layers: in steps of decodes, and with
/// prompts; empty without measurements of both.
fn exchanges(deployment: &Deployment, kernels: &Kernels, ranks: u64) -> [Vec<Exchanged>; 2] {
    let Some(backend) = deployment.experts.deepep() else { return [Vec::new(), Vec::new()] };
    let load = deployment.experts.load(deployment.parallelism.ep).unwrap_or(BusiestRank::EVEN);
    let [decodes, prompts] = exchange::low_latency(backend).map(|low_latency| {
        let blocks = deployment.stages.iter().flat_map(|stage| &stage.blocks);
        let experts = blocks.filter_map(|(block, layers)| Some((block.experts.as_ref()?, *layers)));
        let timed = experts.map(|(shard, layers)| {
            let exchange = Exchange { ranks, ..Exchange::of(deployment, shard) };
            let curve = kernels.exchange(&exchange, low_latency, load)?;
            Some(Exchanged { layers: layers as f64, both: curve })
        });
        timed.collect::<Option<Vec<_>>>()
    });
    decodes.zip(prompts).map_or_else(Default::default, |(decodes, prompts)| [decodes, prompts])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecaster::Forecaster;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_ask::parallelism::RequestedParallelism;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

    fn messages(model: &str, chip: &str, tp: u64) -> (Messages, Links) {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator(chip).unwrap().clone());
        let parallelism = RequestedParallelism { tp: Some(tp), ..Default::default() };
        let deployment = Deployment::resolve(
            model,
            chip,
            &DeploymentOptions { parallelism, ..DeploymentOptions::default() },
        );
        let forecaster = Forecaster::embedded(deployment.unwrap()).unwrap();
        let links = Links::of(&forecaster.deployment);
        (Messages::of(&forecaster.deployment, &links, &forecaster.coefficients), links)
    }

    /// 16 H100 are two nodes: 36 µs; 32 are four: 36 + 10; 8 are one, whose start is three latencies of NVLink.
    #[test]
    fn ranks_on_several_nodes_pay_for_the_network() {
        assert_eq!([8, 16, 32].map(|ranks| across_nodes(ranks, 8)), [0.0, 36e-6, 46e-6]);
        let (two_nodes, _) = messages("meta-llama/Llama-3.1-405B", "h100-sxm", 16);
        assert!((two_nodes.formula[0] - 36e-6).abs() < 1e-12, "{:?}", two_nodes.formula);
    }

    /// Llama-3.1-8B on two H100 has 64 all-reduces of 8192 bytes per row. 32 rows, 262,144 bytes, take 64 times the
    /// table's time, which is at least the link's limit: 262,144 bytes at 450 GB/s are 0.58 µs.
    #[test]
    fn measured_all_reduces_are_no_faster_than_the_link() {
        let (messages, links) = messages(LLAMA, "h100-sxm", 2);
        assert_eq!((links.all_reduces, links.row_bytes), (64, 8192.0));
        let message_time = messages.time(32.0, 0.0) / 64.0;
        assert!(messages.basis.is_some() && message_time > 262_144.0 / 450e9, "{message_time}");
        // On one node it takes some microseconds, where the bytes of 8192 such messages take 4.8 ms.
        assert!(message_time < 50e-6, "{message_time}");
        assert!(messages.time(64.0, 0.0) >= messages.time(32.0, 0.0));
    }

    /// A card that is an H100 but for its links, which have half the rate, and so no table of its own: beyond its start, which is
    /// that of one byte, an all-reduce takes twice as long as a measured one.
    #[test]
    fn a_siblings_all_reduces_scale_with_the_links() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model(LLAMA).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = catalog.accelerator("h100-sxm").unwrap();
        let curve = |share: f64| {
            let mut chip = chip.clone();
            let mut link = chip.link.clone().unwrap();
            link.bytes_per_s.0 *= share;
            chip.link = Some(link);
            let options = DeploymentOptions::default();
            let deployment = Deployment::resolve(model.clone(), Arc::new(chip), &options).unwrap();
            let forecaster = Forecaster::embedded(deployment).unwrap();
            Kernels::of(&forecaster.deployment, &forecaster.coefficients).all_reduce(2).unwrap().0
        };
        let [whole, half] = [1.0, 0.5].map(curve);
        let start = whole.at(1.0);
        for bytes in [1e6, 64e6] {
            let [usual, slower] = [whole.at(bytes) - start, half.at(bytes) - start];
            assert!(usual > 0.0 && (slower / usual - 2.0).abs() < 1e-9, "{bytes}: {usual} {slower}");
        }
    }

    /// Exchanges without a measurement: 4 µs, and 1 µs a row of decodes or 2 µs a row of a step with prompts; dispatch
    /// takes half of the time.
    #[test]
    fn exchanges_without_a_table_by_hand() {
        let messages = Messages { exchange_start: 4e-6, exchange_row: [1e-6, 2e-6], ..Messages::default() };
        for (prompts, seconds) in [(false, 14e-6), (true, 24e-6)] {
            assert!((messages.exchange(10.0, prompts) - seconds).abs() < 1e-15);
            assert!((messages.both_ways(10.0, prompts)[0] - seconds / 2.0).abs() < 1e-15);
        }
    }

    /// No table covers an MI300X: an all-reduce takes three latencies, plus its bytes at half of the link's rate.
    #[test]
    fn all_reduces_without_a_table_by_hand() {
        let (messages, links) = messages(LLAMA, "mi300x", 8);
        assert_eq!(messages.basis, None);
        let expected = 64.0 * (3.0 * links.latency + 100.0 * links.seconds_per_row() / 0.5);
        assert!((messages.time(100.0, 0.0) / expected - 1.0).abs() < 1e-9);
    }

    /// MiniMax-M2 normalizes queries and keys over all heads: on eight H200, 62 all-reduces of 8 bytes per row are
    /// added to 124 of the residual stream. Qwen3 normalizes each head separately and has none.
    #[test]
    fn a_norm_over_all_heads_adds_an_all_reduce() {
        let (messages, links) = messages("MiniMaxAI/MiniMax-M2", "h200-sxm", 8);
        assert_eq!((links.all_reduces, links.norms), (124, 62));
        let without = Messages { norms: 0.0, ..messages.clone() };
        let added = (messages.time(4.0, 0.0) - without.time(4.0, 0.0)) / 62.0;
        let curve = messages.measured.as_ref().unwrap();
        assert!((added / curve.at(32.0) - 1.0).abs() < 1e-9 && added > 1e-6, "{added}");
        assert_eq!(self::messages("Qwen/Qwen3-30B-A3B", "h200-sxm", 4).1.norms, 0);
    }

    /// One chip sends nothing.
    #[test]
    fn one_chip_sends_nothing() {
        assert_eq!(messages(LLAMA, "h100-sxm", 1).0.time(1000.0, 0.0), 0.0);
    }
}
