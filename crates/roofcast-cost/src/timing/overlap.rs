//! Dual-batch overlap (`--enable-dbo`): a step as two microbatches; while one exchanges tokens, the other computes.
//!
//! Knows: vLLM's two threads hand over at every exchange (vLLM 0.33, docs/design/dbo.md). In each microbatch, over the
//! L layers with experts, let a be the seconds of all kernels except experts, m of experts, d of dispatch and c of
//! combination. A step takes
//!
//! `max(a, d) + max(m, d) + max(m, c) + max(a, c) + c/L`,
//!
//! because dispatch overlaps with the attention of the other microbatch, then with its experts, combination likewise,
//! and the last combination overlaps with nothing.
//!
//! The part of an exchange that multiprocessors compute is not hidden. Low-latency kernels of DeepEP occupy the
//! multiprocessors except while they wait for the network (README of deepseek-ai/DeepEP): this part is the time of an
//! equal exchange on one node, where multiprocessors copy over NVLink. Normal kernels occupy 20 multiprocessors, so
//! that arithmetic is slower (vLLM's `VLLM_DBO_COMM_SMS`). Each microbatch reads all weights that it needs, and
//! launches all kernels. A limit has no microbatches: it is the longer of all kernels and all exchanges. Attention of
//! prompts is divided evenly. Knows nothing about when engines overlap.

use super::{PassOverhead, Timing};
use crate::coefficients::KernelTimes;
use crate::operator::collective::Communication;
use crate::operator::{Form, Rows};
use crate::step::{Contexts, Pass};
use roofcast_facts::batch::Sequences;
use roofcast_facts::shares::BottleneckShares;
use roofcast_facts::units::{Picoseconds, number};

/// Multiprocessors that DeepEP's normal kernels occupy.
const OCCUPIED: f64 = 20.0;

/// Times of a step's kernels, with half of its rows at a time.
pub(super) struct Halves {
    operators: BottleneckShares<f64>,
    attention: BottleneckShares<f64>,
    /// Seconds of routed experts, over both microbatches.
    experts: f64,
    /// Rows of the larger microbatch.
    rows: u64,
}

impl Halves {
    /// Seconds of all operators, and of routed experts among them.
    fn operators(&self) -> [f64; 2] {
        [self.operators.total() + self.attention.total(), self.experts]
    }
}

impl Timing {
    /// True if the step of `pass` is two microbatches.
    pub(super) fn overlaps(&self, pass: &Pass) -> bool {
        let from = self.model.overlap.map(|overlap| overlap.thresholds[usize::from(pass.has_prompts())]);
        from.is_some_and(|from| pass.rows >= from.max(2))
    }

    /// True if two microbatches compute one after the other: in a forecast, not in a limit.
    fn splits(&self, pass: &Pass) -> bool {
        self.overlaps(pass) && matches!(self.coefficients.kernels, KernelTimes::Measured { .. })
    }

    /// Microbatch with the larger half of the rows of `pass`. It keeps the prompts, whose attention is divided.
    pub(super) fn half<'a>(&self, pass: &Pass<'a>) -> Option<Pass<'a>> {
        self.splits(pass).then(|| {
            let decodes = pass.decodes.div_ceil(2);
            let share = pass.share * number(decodes) / number(pass.decodes.max(1));
            let rows = pass.rows.div_ceil(2);
            let tokens = pass.tokens.div_ceil(2);
            let half = |s: &Sequences| Sequences { count: s.count.div_ceil(2), ..*s };
            let contexts = match &pass.contexts {
                Contexts::Groups(groups) => Contexts::Groups(groups.iter().map(half).collect()),
                seen => seen.clone(),
            };
            Pass { rows, tokens, decodes, share, contexts, ..pass.clone() }
        })
    }

    /// Times of the kernels of a step that overlaps; `products` are times of all computed and of all sampled rows.
    pub(super) fn halves(&self, pass: &Pass, products: [[f64; 2]; 2]) -> Halves {
        let Some(half) = self.half(pass) else {
            let (operators, attention) = self.operators_of(pass, products);
            return Halves { operators, attention, experts: 0.0, rows: pass.rows };
        };
        let computed = self.products(Rows::Computed, half.rows);
        let (one, of_half) = self.operators_of(&half, [computed, [0.0; 2]]);
        let attention = match pass.chunks.is_empty() {
            true => of_half.scaled(2.0),
            false => self.operators_of(pass, [[0.0; 2]; 2]).1,
        };
        let [compute, memory] = products[1];
        let sampled = BottleneckShares { compute, memory, ..BottleneckShares::default() };
        let operators = one.scaled(2.0).plus(sampled);
        let slower = |shares: BottleneckShares<f64>| BottleneckShares {
            compute: shares.compute * self.slowdown(pass),
            ..shares
        };
        let experts = self.model.operators.iter().enumerate();
        let experts = experts.filter(|(_, operator)| matches!(operator.form, Form::Experts(_)));
        let experts = experts.map(|(index, _)| self.time_of_step(index, pass).iter().sum::<f64>()).sum();
        Halves { operators: slower(operators), attention: slower(attention), experts, rows: half.rows }
    }

    /// Factor on arithmetic for multiprocessors that the exchange occupies.
    fn slowdown(&self, pass: &Pass) -> f64 {
        let normal = self.model.overlap.is_some_and(|o| !o.low_latency[usize::from(pass.has_prompts())]);
        match self.coefficients.multiprocessors.map(|all| all as f64) {
            Some(all) if normal && all > 2.0 * OCCUPIED => all / (all - OCCUPIED),
            _ => 1.0,
        }
    }

    /// Overhead of a step that overlaps.
    pub(super) fn overhead_of_halves(&self, pass: &Pass, halves: &Halves) -> PassOverhead {
        match self.splits(pass) {
            true => self.overhead.split(pass, halves.operators(), halves.rows),
            false => self.overhead.overlapped(pass, halves.operators()[0]),
        }
    }

    /// Seconds of dispatch and of combination that no kernel hides, and that longer attention would hide; 0 without
    /// overlap.
    pub(super) fn hidden(&self, pass: &Pass) -> [f64; 2] {
        if !self.overlaps(pass) {
            return [0.0; 2];
        }
        self.overhead_of_halves(pass, &self.halves(pass, self.all_products(pass))).covered
    }

    /// Time of a step that overlaps.
    pub(super) fn overlapped(&self, pass: &Pass, products: [[f64; 2]; 2]) -> BottleneckShares<f64> {
        let halves = self.halves(pass, products);
        let overhead = self.overhead_of_halves(pass, &halves).shares();
        halves.operators.plus(halves.attention).plus(overhead)
    }

    /// Compute-bound and memory-bound seconds of the operator at `index` in all its layers of a whole step.
    pub(crate) fn time_of_step(&self, index: usize, pass: &Pass) -> [f64; 2] {
        let operator = &self.model.operators[index];
        let sampled = matches!(operator.form, Form::Product { rows: Rows::Sampled, .. });
        let divided = operator.kind.attends() && !pass.chunks.is_empty();
        match self.half(pass).filter(|_| !sampled) {
            None => self.time(index, pass),
            Some(half) => {
                let [compute, memory] =
                    if divided { self.time(index, pass) } else { self.time(index, &half) };
                let times = if divided { 1.0 } else { 2.0 };
                [compute * times * self.slowdown(pass), memory * times]
            }
        }
    }

    /// Messages of `pass` at the links' bandwidth; of exchanges that overlap with kernels, the part that is not hidden.
    pub(crate) fn communication(&self, pass: &Pass) -> Communication {
        let links = &self.model.links;
        let all = links.communication(pass.rows, pass.gathered(), pass.has_prompts(), pass.shared());
        if !self.overlaps(pass) {
            return all;
        }
        let (operators, attention) = self.operators_of(pass, self.all_products(pass));
        let kernels = Picoseconds::from_seconds(operators.total() + attention.total());
        Communication { all_to_all: Picoseconds(all.all_to_all.0.saturating_sub(kernels.0)), ..all }
    }
}
