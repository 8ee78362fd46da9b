//! Times from efficiencies: of limits, and of unmeasured kernels.
//!
//! Knows: `max(c, m)` plus the exposed fraction of the shorter, with c = FLOPs over a fraction of the peak and m =
//! bytes over a fraction of the bandwidth; the rows that share a read of the weights, tiles that a small-M GEMM
//! leaves empty, and weights that are dequantized before the GEMM. Knows nothing about which kernel runs.

use super::Kernels;
use crate::coefficients::{KernelEfficiency, KernelTimes, SKEW, busiest};
use crate::operator::{Form, Matrix, Operator, RoutedExperts, Work};
use roofcast_ask::quantized_kernel::RowBlocks;
use roofcast_facts::model::Family;
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::number;

/// Bytes of an activation that a GEMM reads or writes.
const VALUE: f64 = 2.0;

/// Time of one operator as a formula of the chip's rates and efficiencies.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateFormula {
    /// Seconds per FLOP.
    pub(crate) flop: f64,
    /// Seconds per byte.
    pub(crate) byte: f64,
    /// Efficiency of the HBM traffic: fraction of the bandwidth.
    share: f64,
    /// Fraction of the shorter of arithmetic and HBM traffic that is exposed, not overlapped with the longer.
    exposed: f64,
    /// Fixed seconds of the kernel on top of its work.
    start: f64,
    /// Number of rows that share one read of the weights; `None` if one read serves all rows.
    blocks: Option<RowBlocks>,
    multiprocessors: Option<u64>,
    /// Seconds per byte of a GEMM's input, and of its output, for separate kernels that read or write them once more.
    crossings: [f64; 2],
    /// Seconds in which one thread converts an element of the input of routed experts.
    input: f64,
    /// True for a limit, in which tokens choose experts evenly.
    ideal: bool,
    /// Dequantization in a separate kernel before the GEMM: the smallest number of rows with it, its seconds per
    /// byte, and the rates of the 16-bit GEMM that follows.
    dequantized: Option<(u64, f64, Box<RateFormula>)>,
}

impl RateFormula {
    pub(super) fn of(kernels: &Kernels, operator: &Operator) -> RateFormula {
        let regimes = &kernels.coefficients.regimes;
        let quantized = operator.kind.is_product() && !operator.is_unquantized();
        let mut rates = RateFormula::plain(kernels, operator, quantized);
        if let Some(most) = regimes.beside_unpacking.filter(|_| quantized) {
            rates.flop = rates.flop.max(kernels.coefficients.factor / most.0);
        }
        rates.dequantized = regimes.unpacking.filter(|_| quantized).map(|first| {
            let mut then = RateFormula::plain(kernels, operator, false);
            then.flop /= first.faster;
            let byte = kernels.coefficients.factor / (kernels.chip.bandwidth_bytes_per_s.0 * first.share);
            (first.from, byte, Box::new(then))
        });
        rates
    }

    /// Rates for weights that are multiplied in their stored format.
    fn plain(kernels: &Kernels, operator: &Operator, quantized: bool) -> RateFormula {
        let coefficients = kernels.coefficients;
        let bandwidth = kernels.chip.bandwidth_bytes_per_s.0;
        let regimes = &coefficients.regimes;
        let family = operator.kind.family();
        let (ideal, [compute, memory], start) = match &coefficients.kernels {
            KernelTimes::Ideal { mfu, mbu } => (true, [*mfu, *mbu], 0.0),
            KernelTimes::Measured { shares, .. } => {
                let [compute, memory] = of_family(shares, family);
                (false, [(compute * kernels.chip.held_back()).min(1.0), memory], shares.start)
            }
        };
        let in_fp32 = regimes.on_chip.attention_fp32.zip(kernels.chip.peak_flops.get(&Dtype::Fp32));
        let published = match family {
            Family::Moe => regimes.on_chip.experts,
            Family::Attention | Family::Indexer => {
                in_fp32.map(|(share, rate)| share * rate.0 / operator.rate.0)
            }
            _ => regimes.compute.filter(|_| quantized),
        };
        let compute = published.filter(|_| !ideal).unwrap_or(compute);
        let memory = regimes.memory.filter(|_| quantized && !ideal).unwrap_or(memory);
        let sustained = kernels.chip.readable_bandwidth() / bandwidth;
        let memory = if ideal { memory } else { memory.min(sustained) };
        let exposed = regimes.exposed.filter(|_| quantized && !ideal).unwrap_or(0.0);
        let busier = match &operator.form {
            Form::Experts(experts) if !ideal && experts.busiest.is_none() => {
                busiest(experts.count(), experts.ranks, SKEW)
            }
            _ => 1.0,
        };
        let [takes, gives] =
            regimes.crossings.filter(|_| operator.kind.is_product() && !ideal).unwrap_or([0.0; 2]);
        let factor = coefficients.factor;
        RateFormula {
            flop: factor * busier / (operator.rate.0 * compute),
            byte: factor / (bandwidth * memory),
            share: memory,
            exposed,
            start: factor
                * if family == Family::Embedding || family == Family::Elementwise { 0.0 } else { start },
            blocks: if family == Family::Moe { regimes.expert_rows } else { regimes.rows }.filter(|_| !ideal),
            multiprocessors: coefficients.multiprocessors,
            crossings: [factor * takes / bandwidth, factor * gives / bandwidth],
            input: if ideal { 0.0 } else { factor * regimes.on_chip.input },
            ideal,
            dequantized: None,
        }
    }

    /// Seconds of `demand` in arithmetic and in HBM traffic, which add up to its time: the longer in full, and the
    /// exposed part of the shorter.
    #[inline(always)]
    pub(crate) fn time(&self, demand: Work) -> [f64; 2] {
        self.longer(demand.flops * self.flop, (demand.weight_bytes + demand.kv_bytes) * self.byte)
    }

    /// Time of work that is added to a running kernel, without the kernel's fixed start.
    pub(crate) fn without_start(&self, demand: Work) -> [f64; 2] {
        let [computing, moving] =
            [demand.flops * self.flop, (demand.weight_bytes + demand.kv_bytes) * self.byte];
        if computing > moving {
            [computing, moving * self.exposed]
        } else {
            [computing * self.exposed, moving]
        }
    }

    #[inline(always)]
    fn longer(&self, computing: f64, moving: f64) -> [f64; 2] {
        if computing > moving {
            [computing + self.start, moving * self.exposed]
        } else {
            [computing * self.exposed, moving + self.start]
        }
    }

    /// Time of a GEMM of `rows` rows with a weight matrix.
    pub(crate) fn product(&self, rows: u64, matrix: &Matrix) -> [f64; 2] {
        match &self.dequantized {
            Some((from, byte, rates)) if rows >= *from => {
                // Dequantized weights have 2 bytes each.
                let wide = Matrix { weight_bytes: 2.0 * matrix.elements, ..*matrix };
                let [compute, memory] = rates.packed(rows, &wide);
                [compute, memory + (matrix.weight_bytes + wide.weight_bytes) * byte]
            }
            _ => self.packed(rows, matrix),
        }
    }

    fn packed(&self, rows: u64, matrix: &Matrix) -> [f64; 2] {
        let Matrix { elements, outputs, weight_bytes } = *matrix;
        let rows = number(rows);
        let (computed, bytes, waits) = match self.blocks {
            Some(blocks) => {
                let cores = self.multiprocessors.unwrap_or(1);
                (blocks.computed(rows), weight_bytes * blocks.reads(rows), blocks.waits(rows, outputs, cores))
            }
            None => (rows, weight_bytes, 1.0),
        };
        let flops = 2.0 * elements * computed;
        let [compute, memory] = match self.blocks {
            // Below this number of rows, arithmetic does not overlap with reading, because one set of threads does
            // both.
            Some(blocks) if rows <= blocks.few as f64 => [flops * self.flop, bytes * self.byte + self.start],
            _ => self.longer(flops * self.flop * waits, bytes * self.byte),
        };
        let inputs = if outputs > 0.0 { elements / outputs } else { 0.0 };
        let [takes, gives] = self.crossings;
        [compute, memory + rows * VALUE * (inputs * takes + outputs * gives)]
    }

    /// Time of routed experts for `tokens` tokens.
    pub(crate) fn experts(&self, experts: &RoutedExperts, tokens: u64) -> [f64; 2] {
        let [computing, moving] = self.products_of_experts(experts, tokens);
        [computing + number(tokens) * number(experts.hidden) * self.input, moving]
    }

    fn products_of_experts(&self, experts: &RoutedExperts, tokens: u64) -> [f64; 2] {
        let demand = experts.demand(tokens);
        match self.blocks {
            Some(blocks) if tokens <= blocks.few => {
                let demand = experts.in_blocks(tokens, blocks);
                [demand.flops * self.flop, demand.weight_bytes * self.byte + self.start]
            }
            Some(blocks) => self.time(experts.in_blocks(tokens, blocks)),
            None if self.ideal => self.time(demand),
            None => {
                // Uneven routing reads fewer experts; the time must still not fall below even routing at full
                // bandwidth, the limit.
                let skew = experts.imbalance(tokens) * experts.uneven(tokens).max(self.share);
                self.time(Work { weight_bytes: demand.weight_bytes * skew, ..demand })
            }
        }
    }
}

/// Efficiencies of a family of kernels: fractions of the peak and of the bandwidth.
pub(super) fn of_family(shares: &KernelEfficiency, family: Family) -> [f64; 2] {
    match family {
        Family::Moe => shares.experts,
        Family::Attention | Family::Indexer => shares.attention,
        _ => shares.gemm,
    }
}
