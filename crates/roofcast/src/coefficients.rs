//! Coefficients: what machines and engines reach of their limits, and what they add to them.
//!
//! Knows: which coefficient holds for which operator, and what an operator then takes for its FLOPs and bytes. Knows
//! nothing about which values hold where: that is [`crate::calibration`]'s.

mod attention;
mod band;
mod coefficient;
mod kernels;
mod launches;

use crate::model::{Family, OperatorKind};
use crate::operator::{Demand, Form, Operator};
use crate::quantized_kernel::Unpacking;
use crate::step::StepModel;
use crate::units::{ByteRate, number};
pub use attention::AttentionKernel;
pub use band::{Band, Evidence, Factors};
pub use coefficient::{Coefficient, Values};
pub use kernels::{SmallM, busiest, idle_rows, masked_keys, mixed_tokens, tiled, waiting};
pub use launches::{Launches, ServerLoop};

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
    /// When products unpack their weights first and multiply in 16 bits; none where they never do.
    pub unpacks: Option<Unpacking>,
    /// The attention backend that was asked for; none where the values are its.
    pub attention: Option<AttentionKernel>,
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
    /// Seconds of a byte.
    pub byte: f64,
    /// Share of the shorter of computing and moving that the longer does not hide.
    pub exposed: f64,
    /// What few rows cost beyond their share of many.
    pub small_m: SmallM,
    /// Rows that a decode's attention computes beside prompts.
    pub mixed_rows: f64,
    /// Whether experts are chosen evenly.
    pub even: bool,
    /// Whether rows are computed one by one, not in tiles.
    pub exact: bool,
    /// From how many rows on weights are unpacked first, seconds of a byte of that, and what the product takes then.
    unpacked: Option<(u64, f64, Box<Rates>)>,
}

impl Rates {
    /// Time bound by arithmetic, and time bound by memory: the longer of computing and moving, and what it does not hide
    /// of the shorter.
    #[inline(always)]
    pub fn time(&self, demand: Demand) -> [f64; 2] {
        let (computing, moving) =
            (demand.flops * self.flop, (demand.weight_bytes + demand.kv_bytes) * self.byte);
        if computing > moving {
            [computing, moving * self.exposed]
        } else {
            [computing * self.exposed, moving]
        }
    }

    /// A product of `rows` with a matrix of `elements` in `weight_bytes`.
    #[inline(always)]
    pub fn product(&self, rows: u64, elements: f64, weight_bytes: f64) -> [f64; 2] {
        match &self.unpacked {
            Some((from, byte, rates)) if rows >= *from => {
                // In 16 bits a weight has as many bytes as FLOPs a row.
                let bytes = 2.0 * elements;
                let [compute, memory] = rates.packed(rows, elements, bytes);
                [compute, memory + (weight_bytes + bytes) * byte]
            }
            _ => self.packed(rows, elements, weight_bytes),
        }
    }

    /// The same of weights that are multiplied as they lie in memory.
    #[inline(always)]
    fn packed(&self, rows: u64, elements: f64, weight_bytes: f64) -> [f64; 2] {
        let rows = number(rows);
        let tiled = if self.exact { rows } else { tiled(rows) };
        let flops = 2.0 * elements * self.small_m.worth(tiled);
        self.time(Demand { flops, weight_bytes, kv_bytes: 0.0 })
    }
}

/// What a step costs beside its operators, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Overhead {
    /// Of any step, with the calls of its operators and the latency of its messages.
    pub step: f64,
    /// More where prompts end.
    pub ending: f64,
    /// Of each sequence.
    pub sequence: f64,
    /// Of each token of a rank.
    pub token: f64,
    /// Of each token of a replica, which all meet at the experts.
    pub routed: f64,
    /// Of each token of a rank, on the links.
    pub link: f64,
    /// Of the host's launches, which everything but attention hides: that grows with the context, and is counted on top.
    pub launches: f64,
    /// The same of a step that computes prompts.
    pub prefill_launches: f64,
}

impl Coefficients {
    /// Those of a limit: shares `mfu` of the peaks and `mbu` of the bandwidth, and nothing else.
    pub fn ideal(mfu: f64, mbu: f64) -> Coefficients {
        use Coefficient as C;
        let value = |coefficient| match coefficient {
            C::GemmCompute | C::ExpertCompute | C::AttentionCompute => mfu,
            C::GemmMemory | C::ExpertMemory | C::KvMemory => mbu,
            C::Link | C::Elementwise | C::SmallMRow | C::MixedRows => 1.0,
            C::Head64 | C::Head256 | C::Head512 => 1.0,
            _ => 0.0,
        };
        let values = Values(C::ALL.map(value));
        Coefficients {
            name: "limit".to_owned(),
            values,
            unquantized: values,
            unpacks: None,
            attention: None,
            launches: None,
            server: ServerLoop::default(),
            band: None,
            ideal: true,
        }
    }

    /// What `operator` takes on a machine of this `bandwidth`.
    pub fn rates(&self, operator: &Operator, bandwidth: ByteRate) -> Rates {
        let unquantized = operator.kind.is_unquantized();
        let values = if unquantized { &self.unquantized } else { &self.values };
        let rates = self.rates_by(values, operator, bandwidth);
        let unpacks = self.unpacks.filter(|_| operator.kind.is_product() && !unquantized);
        let unpacked = unpacks.map(|unpacks| {
            let mut rates = self.rates_by(&self.unquantized, operator, bandwidth);
            rates.flop /= unpacks.faster;
            (unpacks.from, 1.0 / (bandwidth.0 * unpacks.share), Box::new(rates))
        });
        Rates { unpacked, ..rates }
    }

    fn rates_by(&self, values: &Values, operator: &Operator, bandwidth: ByteRate) -> Rates {
        use Coefficient as C;
        let [compute, memory, exposed] = match operator.kind.family() {
            Family::Moe => [C::ExpertCompute, C::ExpertMemory, C::ExpertExposed],
            Family::Attention | Family::Indexer => [C::AttentionCompute, C::KvMemory, C::AttentionExposed],
            _ => [C::GemmCompute, C::GemmMemory, C::GemmExposed],
        }
        .map(|c| values.get(c));
        let (group, busier) = match &operator.form {
            Form::Context(form) => (form.group, 1.0 / values.of_heads(form.head_dim)),
            Form::Experts(experts) if !self.ideal => (1, busiest(experts.ranks)),
            _ => (1, 1.0),
        };
        let small_m = if operator.kind.is_product() {
            SmallM { each: (values.get(C::SmallMRow) - 1.0).max(0.0), most: values.get(C::SmallMMost) }
        } else {
            SmallM::NONE
        };
        let attends = operator.kind == OperatorKind::Attention;
        Rates {
            flop: busier / (operator.rate.0 * compute),
            byte: (1.0 + values.get(C::Group) * (group - 1) as f64) / (bandwidth.0 * memory),
            exposed,
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
        let messages = value(C::AllReduce) * model.links.latency / LATENCY * model.links.all_reduces as f64;
        let calls: f64 = model.operators.iter().map(|o| self.call(o) * o.layers as f64).sum();
        // Routing is uneven where it is not a limit's.
        let skew = if self.ideal { 1.0 } else { busiest(model.parallelism.ep) };
        let elementwise = if self.ideal { 0.0 } else { at.elementwise_bytes };
        let launches = match self.launches {
            Some(launches) => launches.host / at.host_speed * at.layers as f64,
            None => host(C::EagerLayer) * at.eager_layers as f64,
        };
        let prefill = [
            (C::PrefillLayer, at.layers),
            (C::PrefillExpert, at.expert_layers),
            (C::PrefillLatent, at.mixers.latent),
            (C::PrefillLinear, at.mixers.linear),
        ];
        let prefill = prefill.into_iter().map(|(coefficient, layers)| host(coefficient) * layers as f64);
        Overhead {
            step: host(C::Step) + messages + calls + self.server.step / at.host_speed,
            ending: host(C::PrefillStep),
            sequence: host(C::Sequence) + self.server.sequence / at.host_speed,
            token: elementwise / (model.bandwidth.0 * value(C::Elementwise)),
            routed: at.expert_bytes * skew * value(C::ExpertActivation) / model.bandwidth.0,
            link: model.links.seconds_per_row() / value(C::Link),
            launches,
            prefill_launches: launches.max(prefill.sum()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Rows;
    use crate::precision::Dtype;
    use crate::units::FlopRate;

    /// 256 rows of a product of 10⁶ weights in 4.16 bits, 520 kB: 2 MB in 16 bits. 2.52 MB at 41 % of 1 TB/s are 6.146 µs;
    /// the product itself computes 512 MFLOP at 100 TFLOP/s, 5.12 µs, longer than the 2 µs of its bytes.
    #[test]
    fn unpacking_by_hand() {
        let form = Form::Product { rows: Rows::Computed, elements: 1e6, weight_bytes: 520_000.0 };
        let (dtype, rate) = (Dtype::Fp16, FlopRate(1e14));
        let operator = Operator { kind: OperatorKind::OProj, layers: 1, dtype, rate, form };
        let from = |rows: Option<u64>| {
            let unpacks = rows.map(|from| Unpacking { from, share: 0.41, faster: 1.0 });
            let coefficients = Coefficients { unpacks, ..Coefficients::ideal(1.0, 1.0) };
            coefficients.rates(&operator, ByteRate(1e12)).product(256, 1e6, 520_000.0)
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let [compute, memory] = from(Some(256));
        assert!(near(compute, 5.12e-6) && near(memory, 2.52e6 / 0.41e12), "{compute} {memory}");
        for never in [None, Some(257)] {
            assert_eq!(from(never), [5.12e-6, 0.0]);
        }
    }
}
