//! Coefficients: what machines and engines reach of their limits, and what they add to them.
//!
//! Knows: which coefficient holds for which operator, and what an operator then takes for its FLOPs and bytes. Knows
//! nothing about which values hold where: that is [`crate::calibration`]'s.

mod attention;
mod band;
mod coefficient;
mod kernels;
mod launches;
mod messages;

use crate::model::{Family, OperatorKind};
use crate::operator::{ContextForm, Demand, Form, Matrix, Operator};
use crate::quantized_kernel::{Regimes, RowBlocks};
use crate::step::StepModel;
use crate::units::{ByteRate, number};
pub use attention::AttentionKernel;
pub use band::{Band, Evidence, Factors};
pub use coefficient::{Coefficient, Values};
pub use kernels::{
    BEYOND_CACHES, SKEW, SmallM, Spread, busiest, key_tile, last_tiles, masked_keys, mixed_tokens, skew,
    tiled, waiting, waves,
};
use launches::{LAUNCH, PRODUCTS, SHORT};
pub use launches::{Launches, ServerLoop};
pub use messages::{Messages, halvings, hops};

/// Seconds of a message over the links that [`Coefficient::AllReduce`] counts for: NVLink's, as the catalog assumes it.
pub(crate) const LATENCY: f64 = 2e-6;

/// The coefficients of one deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Coefficients {
    /// What they are called in reports.
    pub name: String,
    /// Their values.
    pub values: Values,
    /// The same for what is not quantized.
    pub unquantized: Values,
    /// What the kernel of products does by how many rows it has.
    pub regimes: Regimes,
    /// The attention backend that was asked for; none where the values are its.
    pub attention: Option<AttentionKernel>,
    /// Multiprocessors of the chip, where their number is known.
    pub multiprocessors: Option<u64>,
    /// A layer's launches where they are counted one by one; none where the values hold them.
    pub launches: Option<Launches>,
    /// What a server's loop adds.
    pub server: ServerLoop,
    /// The bands of what they forecast; none where that was never judged.
    pub band: Option<Band>,
    /// Whether they are a limit's: activations stay on chip, rows fill tiles, experts are chosen evenly.
    pub ideal: bool,
}

impl Coefficients {
    /// Those of a machine that takes `factor` times as long; shares of rates stay at most 1.
    pub fn slowed(&self, factor: f64) -> Coefficients {
        let (values, unquantized) = (self.values.slowed(factor), self.unquantized.slowed(factor));
        Coefficients { values, unquantized, ..self.clone() }
    }
}

/// What one operator takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// Seconds of a FLOP.
    pub flop: f64,
    /// The share of the bandwidth that a byte has.
    pub share: f64,
    /// Seconds of a byte.
    pub byte: f64,
    /// Share of the shorter of computing and moving that the longer does not hide.
    pub exposed: f64,
    /// What few rows cost beyond their share of many.
    pub small_m: SmallM,
    /// How many rows share a read of the weights; none where one read serves all.
    pub blocks: Option<RowBlocks>,
    /// How a product's tiles fill the chip; none where that is not known, or a limit's.
    pub spread: Option<Spread>,
    /// Seconds of a byte that a product gives, or that a prompt's attention takes or gives, beside its work.
    pub activation: f64,
    /// Seconds of a byte that a product takes.
    pub input: f64,
    /// Part of the multiprocessors that waits for the last tile of a prompt's queries.
    pub tail: f64,
    /// Tokens of context that a decode's attention is longer by than its own.
    pub start: f64,
    /// Sequences times KV heads from which on decodes draw the share of the bandwidth.
    pub pairs: f64,
    /// Rows that a decode's attention computes beside prompts.
    pub mixed_rows: f64,
    /// Whether experts are chosen evenly.
    pub even: bool,
    /// Whether rows are computed one by one, not in tiles.
    pub exact: bool,
    /// From how many rows on weights are unpacked first, seconds of a byte of that, and what the product takes then.
    unpacked: Option<(u64, f64, Box<Rates>)>,
}

/// Bytes of a value that a product takes or gives.
const VALUE: f64 = 2.0;

impl Rates {
    /// Time bound by arithmetic, and time bound by memory: the longer of computing and moving, and what it does not hide
    /// of the shorter.
    #[inline(always)]
    pub fn time(&self, demand: Demand) -> [f64; 2] {
        self.longer(demand.flops * self.flop, (demand.weight_bytes + demand.kv_bytes) * self.byte)
    }

    /// The same of few rows, whose kernel hides neither: the threads that read the weights multiply them.
    #[inline(always)]
    pub fn one_by_one(&self, demand: Demand) -> [f64; 2] {
        [demand.flops * self.flop, demand.weight_bytes * self.byte]
    }

    /// How many times longer than at the share of the bandwidth a rank reads the cache of n = `decodes` sequences with h KV
    /// heads: `max(1, pairs/(n h))`. 1 for latent attention, of whose kernels this is not known.
    #[inline(always)]
    pub fn slowdown_of_few(&self, form: &ContextForm, decodes: u64) -> f64 {
        // Both times the heads of a group, which saves a division.
        let (have, need) = (number(decodes * form.heads.max(form.group)), self.pairs * number(form.group));
        if form.heads > 0 && 0.0 < have && have < need { need / have } else { 1.0 }
    }

    #[inline(always)]
    fn longer(&self, computing: f64, moving: f64) -> [f64; 2] {
        if computing > moving {
            [computing, moving * self.exposed]
        } else {
            [computing * self.exposed, moving]
        }
    }

    /// A product of `rows` with a matrix.
    #[inline(always)]
    pub fn product(&self, rows: u64, matrix: &Matrix) -> [f64; 2] {
        match &self.unpacked {
            Some((from, byte, rates)) if rows >= *from => {
                // In 16 bits a weight has as many bytes as FLOPs a row.
                let unpacked = Matrix { weight_bytes: 2.0 * matrix.elements, ..*matrix };
                let [compute, memory] = rates.packed(rows, &unpacked);
                [compute, memory + (matrix.weight_bytes + unpacked.weight_bytes) * byte]
            }
            _ => self.packed(rows, matrix),
        }
    }

    /// The same of weights that are multiplied as they lie in memory.
    #[inline(always)]
    fn packed(&self, rows: u64, matrix: &Matrix) -> [f64; 2] {
        let Matrix { elements, outputs, weight_bytes } = *matrix;
        let rows = number(rows);
        if self.exact {
            let flops = 2.0 * elements * self.small_m.worth(rows);
            return self.time(Demand { flops, weight_bytes, kv_bytes: 0.0 });
        }
        let (rows_computed, weight_bytes) = match self.blocks {
            Some(blocks) => (blocks.computed(rows), weight_bytes * blocks.reads(rows)),
            None => (tiled(rows), weight_bytes),
        };
        let flops = 2.0 * elements * self.small_m.worth(rows_computed);
        let spread = self.spread.map(|spread| match self.blocks {
            Some(blocks) => [blocks.waits(rows, outputs, spread.multiprocessors), 1.0],
            None => spread.longer(rows, matrix),
        });
        let [waits, draws] = spread.unwrap_or([1.0; 2]);
        let [compute, memory] = match self.blocks {
            Some(blocks) if rows <= blocks.few as f64 => {
                self.one_by_one(Demand { flops, weight_bytes, kv_bytes: 0.0 })
            }
            _ => self.longer(flops * self.flop * waits, weight_bytes * self.byte * draws),
        };
        let inputs = if outputs > 0.0 { elements / outputs } else { 0.0 };
        [compute, memory + rows * VALUE * (inputs * self.input + outputs * self.activation)]
    }
}

/// What a step costs beside its operators, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Overhead {
    /// Of any step, with the calls of its operators.
    pub step: f64,
    /// More where prompts end.
    pub ending: f64,
    /// Of each sequence.
    pub sequence: f64,
    /// Of each token of a rank.
    pub token: f64,
    /// Of each token of a replica, which all meet at the experts.
    pub routed: f64,
    /// Of its all-reduces.
    pub messages: Messages,
    /// Of each token of a rank, on the links beside all-reduces.
    pub link: f64,
    /// Of the host's launches, which everything but attention hides: that grows with the context, and is counted on top.
    pub launches: f64,
    /// The same of a step that computes prompts in more than `captured` tokens.
    pub prefill_launches: f64,
    /// Tokens of the largest pass with prompts that a captured graph holds.
    pub captured: u64,
}

impl Coefficients {
    /// Those of a limit: shares `mfu` of the peaks and `mbu` of the bandwidth, and nothing else.
    pub fn ideal(mfu: f64, mbu: f64) -> Coefficients {
        use Coefficient as C;
        let value = |coefficient| match coefficient {
            C::GemmCompute | C::ExpertCompute | C::AttentionCompute => mfu,
            C::GemmMemory | C::ExpertMemory | C::KvMemory => mbu,
            C::Link | C::LinkFewer | C::Elementwise | C::SmallMRow | C::MixedRows => 1.0,
            C::Head64 | C::Head256 | C::Head512 => 1.0,
            _ => 0.0,
        };
        let values = Values(C::ALL.map(value));
        Coefficients {
            name: "limit".to_owned(),
            values,
            unquantized: values,
            regimes: Regimes::default(),
            attention: None,
            multiprocessors: None,
            launches: None,
            server: ServerLoop::default(),
            band: None,
            ideal: true,
        }
    }

    /// What `operator` takes on a machine of this `bandwidth`.
    pub fn rates(&self, operator: &Operator, bandwidth: ByteRate) -> Rates {
        let unquantized = operator.is_unquantized();
        let values = if unquantized { &self.unquantized } else { &self.values };
        let mut rates = self.rates_by(values, operator, bandwidth);
        let in_16_bits = || self.rates_by(&self.unquantized, operator, bandwidth);
        let quantized_product = operator.kind.is_product() && !unquantized;
        if let Some(most) = self.regimes.beside_unpacking.filter(|_| quantized_product) {
            // Marlin's tiles have 16 rows, and few rows are bound by memory.
            rates.flop = in_16_bits().flop.max(1.0 / most.0);
            rates.small_m = SmallM::NONE;
        }
        let unpacks = self.regimes.unpacking.filter(|_| quantized_product);
        let unpacked = unpacks.map(|unpacks| {
            let mut rates = in_16_bits();
            rates.flop /= unpacks.faster;
            (unpacks.from, 1.0 / (bandwidth.0 * unpacks.share), Box::new(rates))
        });
        Rates { unpacked, ..rates }
    }

    fn rates_by(&self, values: &Values, operator: &Operator, bandwidth: ByteRate) -> Rates {
        use Coefficient as C;
        let [compute, memory, exposed] = match operator.kind.family() {
            Family::Moe if self.regimes.experts_alike => [C::GemmCompute, C::ExpertMemory, C::ExpertExposed],
            Family::Moe => [C::ExpertCompute, C::ExpertMemory, C::ExpertExposed],
            Family::Attention | Family::Indexer => [C::AttentionCompute, C::KvMemory, C::AttentionExposed],
            _ => [C::GemmCompute, C::GemmMemory, C::GemmExposed],
        }
        .map(|c| values.get(c));
        let (group, narrow, busier) = match &operator.form {
            Form::Context(form) => (form.group, form.narrow, 1.0 / values.of_heads(form.head_dim)),
            Form::Experts(experts) if !self.ideal => {
                (1, false, busiest(experts.count(), experts.ranks, SKEW))
            }
            _ => (1, false, 1.0),
        };
        let blocks = match operator.kind.family() {
            Family::Moe => self.regimes.expert_rows,
            _ => self.regimes.rows,
        };
        // Blocks say what few rows cost.
        let small_m = if operator.kind.is_product() && blocks.is_none() {
            SmallM { each: (values.get(C::SmallMRow) - 1.0).max(0.0), most: values.get(C::SmallMMost) }
        } else {
            SmallM::NONE
        };
        let attends = operator.kind == OperatorKind::Attention && !self.ideal;
        let narrow = if narrow && attends { values.get(C::NarrowCache) } else { 1.0 };
        let crossings = match operator.kind {
            _ if self.ideal => 0.0,
            OperatorKind::Attention => values.get(C::AttentionActivation),
            kind if kind.is_product() => values.get(C::GemmActivation),
            _ => 0.0,
        };
        let inputs = if self.ideal || !operator.kind.is_product() { 0.0 } else { values.get(C::GemmInput) };
        let own = self.regimes.crossings.filter(|_| operator.kind.is_product());
        let [inputs, crossings] = own.unwrap_or([inputs, crossings]);
        let hidden = [C::GemmComputeSpread, C::GemmMemorySpread].map(|c| values.get(c));
        let spread = self.multiprocessors.map(|multiprocessors| Spread { multiprocessors, hidden });
        Rates {
            share: memory,
            flop: busier / (operator.rate.0 * compute),
            byte: narrow * (1.0 + values.get(C::Group) * (group - 1) as f64) / (bandwidth.0 * memory),
            exposed,
            blocks,
            spread: spread.filter(|_| !self.ideal),
            activation: crossings / bandwidth.0,
            input: inputs / bandwidth.0,
            tail: if attends { values.get(C::AttentionTail) } else { 0.0 },
            start: if attends { values.get(C::DecodeStart) } else { 0.0 },
            pairs: if attends { values.get(C::DecodePairs) } else { 0.0 },
            small_m,
            mixed_rows: if attends { values.get(C::MixedRows).max(1.0) } else { 1.0 },
            even: self.ideal,
            exact: self.ideal,
            unpacked: None,
        }
    }

    /// Seconds that calling `operator` takes in one layer.
    pub fn call(&self, operator: &Operator) -> f64 {
        use Coefficient as C;
        let values = if operator.kind.is_unquantized() { &self.unquantized } else { &self.values };
        let [layer, expert, mixer] = [C::Layer, C::ExpertLayer, C::MixerLayer].map(|c| values.get(c));
        match (operator.kind, operator.kind.family()) {
            (OperatorKind::LinearAttention, _) => layer + mixer,
            (OperatorKind::KvBProj, _) => mixer,
            (_, Family::Attention) => layer,
            (_, Family::Moe) => expert,
            _ => 0.0,
        }
    }

    /// What steps of `model` cost beside their operators.
    pub fn overhead(&self, model: &StepModel) -> Overhead {
        use Coefficient as C;
        let at = &model.surroundings;
        let value = |coefficient| self.values.get(coefficient);
        let host = |coefficient| value(coefficient) / at.host_speed;
        let calls: f64 = model.operators.iter().map(|o| self.call(o) * o.layers as f64).sum();
        // Routing is uneven where it is not a limit's.
        let ranks = model.parallelism.ep;
        let skew = if self.ideal { 1.0 } else { busiest(at.experts, ranks, SKEW) };
        let crossings = skew * value(C::ExpertActivation) + ranks as f64 * value(C::ExpertCopies);
        let elementwise = if self.ideal { 0.0 } else { at.elementwise_bytes };
        let launches = match self.launches {
            Some(launches) => launches.host / at.host_speed * at.layers as f64,
            None => host(C::EagerLayer) * at.eager_layers as f64,
        };
        let kernels = PRODUCTS * self.regimes.launches as f64 * at.layers as f64;
        let beside = kernels * LAUNCH / at.host_speed;
        let launches = if launches > 0.0 { launches + beside } else { 0.0 };
        let prefill = [
            (C::PrefillLayer, at.layers),
            (C::PrefillExpert, at.expert_layers),
            (C::PrefillLatent, at.mixers.latent),
            (C::PrefillLinear, at.mixers.linear),
        ];
        let prefill = prefill.into_iter().map(|(coefficient, layers)| host(coefficient) * layers as f64);
        Overhead {
            step: host(C::Step) + calls + kernels * SHORT + self.server.step / at.host_speed,
            ending: host(C::PrefillStep),
            sequence: host(C::Sequence) + self.server.sequence / at.host_speed,
            token: elementwise / (model.bandwidth.0 * value(C::Elementwise)),
            routed: at.expert_bytes * crossings / model.bandwidth.0,
            messages: Messages::of(&self.values, &model.links, model.parallelism.tp),
            link: model.links.seconds_per_row_beside() / value(C::Link),
            launches,
            prefill_launches: launches.max(prefill.sum::<f64>() + beside),
            captured: at.captured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Rows;
    use crate::precision::Dtype;
    use crate::quantized_kernel::Unpacking;
    use crate::units::FlopRate;

    /// 256 rows of a product of 10⁶ weights in 4.16 bits, 520 kB: 2 MB in 16 bits. 2.52 MB at 41 % of 1 TB/s are 6.146 µs;
    /// the product itself computes 512 MFLOP at 100 TFLOP/s, 5.12 µs, longer than the 2 µs of its bytes.
    #[test]
    fn unpacking_by_hand() {
        let matrix = Matrix { elements: 1e6, outputs: 1e3, weight_bytes: 520_000.0 };
        let form = Form::Product { rows: Rows::Computed, matrix };
        let (dtype, rate) = (Dtype::Fp16, FlopRate(1e14));
        let operator = Operator { kind: OperatorKind::OProj, layers: 1, dtype, rate, form };
        let from = |rows: Option<u64>| {
            let unpacking = rows.map(|from| Unpacking { from, share: 0.41, faster: 1.0 });
            let regimes = Regimes { unpacking, ..Regimes::default() };
            let coefficients = Coefficients { regimes, ..Coefficients::ideal(1.0, 1.0) };
            coefficients.rates(&operator, ByteRate(1e12)).product(256, &matrix)
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let [compute, memory] = from(Some(256));
        assert!(near(compute, 5.12e-6) && near(memory, 2.52e6 / 0.41e12), "{compute} {memory}");
        for never in [None, Some(257)] {
            assert_eq!(from(never), [5.12e-6, 0.0]);
        }
    }

    /// 256 rows of 10⁶ weights are 512 MFLOP: 5.12 µs at 100 TFLOP/s in 4 bits, twice as long at half of the peak in 16.
    #[test]
    fn products_in_16_bits_beside_quantized_ones_take_the_shares_of_16_bits() {
        let mut coefficients = Coefficients::ideal(1.0, 1.0);
        coefficients.unquantized.0[Coefficient::GemmCompute as usize] = 0.5;
        let compute = |weight_bytes: f64| {
            let matrix = Matrix { elements: 1e6, outputs: 1e3, weight_bytes };
            let form = Form::Product { rows: Rows::Computed, matrix };
            let (dtype, rate) = (Dtype::Fp16, FlopRate(1e14));
            let operator = Operator { kind: OperatorKind::OProj, layers: 1, dtype, rate, form };
            coefficients.rates(&operator, ByteRate(1e12)).product(256, &matrix)[0]
        };
        assert_eq!([520e3, 1e6, 2e6].map(compute), [5.12e-6, 5.12e-6, 10.24e-6]);
    }

    /// 10⁶ weights in 520 kB at 1 TFLOP/s and 1 TB/s: 6 rows are 12 µs, and two reads are 1.04 µs, of which nothing is hidden;
    /// 9 compute 32, 64 µs, and hide one read. Inputs of 1000 values that cross three times in two bytes, and outputs four
    /// times, are 14 kB a row: 84 ns of 6 rows.
    #[test]
    fn few_rows_hide_nothing() {
        let matrix = Matrix { elements: 1e6, outputs: 1e3, weight_bytes: 520e3 };
        let form = Form::Product { rows: Rows::Computed, matrix };
        let (dtype, rate) = (Dtype::Fp16, FlopRate(1e12));
        let operator = Operator { kind: OperatorKind::OProj, layers: 1, dtype, rate, form };
        let of = |rows: u64, crossings| {
            let blocks = RowBlocks { few: 8, at_once: 5, tile: 32, width: Some(64), resident: 2 };
            let regimes = Regimes { rows: Some(blocks), crossings, ..Regimes::default() };
            let coefficients = Coefficients { regimes, ..Coefficients::ideal(1.0, 1.0) };
            let mut rates = coefficients.rates(&operator, ByteRate(1e12));
            rates.exact = false;
            rates.product(rows, &matrix).map(|s| (s * 1e12).round())
        };
        assert_eq!(of(6, None), [12e6, 1.04e6]);
        assert_eq!(of(9, None), [64e6, 0.0]);
        assert_eq!(of(6, Some([3.0, 4.0])), [12e6, 1.04e6 + 84e3]);
    }
}
