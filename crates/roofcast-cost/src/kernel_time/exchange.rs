//! Times of exchanges of tokens by DeepEP, and of experts behind them, from the nearest measured shape.
//!
//! Knows: a stated imbalance of ranks, because these kernels were timed with even routing. `t = start + (t_measured −
//! start) · least / least_measured` for an exchange of another shape, with the time of one token as the start; experts
//! scale like other experts. No table has masked experts of 4 bits: experts of 8 bits stand for them, `t = start + (t_8 − start) ·
//! limit_4 / limit_8`. A table of experts ends at a number of tokens for each number of ranks: more tokens take
//! the time of more ranks, scaled. Knows nothing about steps.

use super::choice::{candidates, formats};
use super::gate::wider;
use super::scale::{EXPERTS_START, apart, experts_limit, experts_shape, scaled};
use super::{Basis, Kernels, MeasuredTimes};
use crate::coefficients::Evidence;
use crate::operator::exchange::{self, Direction, Exchange};
use crate::operator::{Operator, RoutedExperts};
use crate::profile::{Curve, KernelTable, Profiles};
use roofcast_ask::deployment::BusiestRank;

impl Kernels<'_> {
    /// Times of routed experts behind DeepEP; `None` without DeepEP, or if no such kernel was timed.
    pub(super) fn exchanged(
        &self,
        profiles: &Profiles,
        operator: &Operator,
        experts: &RoutedExperts,
    ) -> Option<(MeasuredTimes, Basis)> {
        let tables = exchange::low_latency(self.deepep?).map(|low_latency| match low_latency {
            true => KernelTable::MaskedExperts,
            false => KernelTable::SortedExperts,
        });
        let [decodes, prompts] = tables.map(|table| self.experts_of(profiles, operator, experts, table));
        let (decodes, basis) = decodes?;
        let (prompts, _) = prompts?;
        Some((MeasuredTimes::Exchanged([decodes, prompts]), basis))
    }

    /// Curve of experts over the tokens of the replica, from one table.
    fn experts_of(
        &self,
        profiles: &Profiles,
        operator: &Operator,
        experts: &RoutedExperts,
        table: KernelTable,
    ) -> Option<(Curve, Basis)> {
        let format = self.format_of(operator);
        let weights = formats(&self.asking, KernelTable::Experts, format);
        let of_width = candidates(&self.asking, profiles, table, weights);
        let stands = of_width.is_empty() && matches!(format, "nvfp4" | "mxfp4-mxfp8");
        let alike = match stands {
            true => candidates(&self.asking, profiles, table, wider(format)),
            false => of_width,
        };
        let candidate = alike.iter().find(|c| Self::is_timed(operator, &c.section.format))?;
        let target = experts_shape(experts);
        let distance = |s: &[u32]| Some((0..6).map(|i| apart(s[i].into(), target[i])).sum::<f64>());
        let (index, nearest) = candidate.section.nearest(distance)?;
        let gated = experts.elements_over_gated();
        let timed = candidate.section.format.as_str();
        let name = if stands { format } else { timed };
        let of_shape = |index: usize, shape: &[u32]| {
            let shape: [f64; 6] = std::array::from_fn(|i| f64::from(shape[i]));
            let limits = |tokens: f64| {
                let own_limit = gated * experts_limit(self.chip, name, target, tokens);
                (own_limit, experts_limit(candidate.chip, timed, shape, tokens))
            };
            let exact = shape == target && candidate.chip.id == self.chip.id && gated > 0.99 && !stands;
            Some(scaled(
                &candidate.section.curve(index)?,
                exact,
                self.start(candidate, EXPERTS_START),
                limits,
            ))
        };
        let mut curve = of_shape(index, &nearest)?;
        let mut ranks = nearest[5];
        let wider = |ranks: u32| {
            let alike = |s: &[u32]| (s[..5] == nearest[..5] && s[5] > ranks).then_some(f64::from(s[5]));
            candidate.section.nearest(alike)
        };
        while let Some((index, shape)) = wider(ranks) {
            ranks = shape[5];
            curve = curve.continued(&of_shape(index, &shape)?);
        }
        let factor = self.coefficients.factor;
        let floor = |tokens: f64| {
            let demand = experts.demand(tokens as u64);
            let moving = demand.weight_bytes / self.chip.readable_bandwidth();
            moving.max(demand.flops / self.chip.sustained(operator.dtype, operator.rate))
        };
        let curve =
            curve.map(|tokens, _| (curve.at(experts.busiest_tokens(tokens)) * factor).max(floor(tokens)));
        let exact = nearest.iter().zip(target).all(|(a, b)| f64::from(*a) == b);
        let basis = candidate.basis(exact && !stands);
        Some((curve, if stands { Basis { evidence: Evidence::Nothing, ..basis } } else { basis }))
    }

    /// Curves of the seconds of dispatch, and of combination, of one layer over the tokens of a rank; `None` if no such
    /// kernel was timed.
    pub(crate) fn exchange(
        &self,
        exchange: &Exchange,
        low_latency: bool,
        load: BusiestRank,
    ) -> Option<[Curve; 2]> {
        let factor = self.coefficients.factor;
        let [dispatch, combine] = Direction::BOTH.map(|direction| {
            let curve = self.one_way(exchange, low_latency, direction)?;
            let wire_limit = exchange.least(self.chip, low_latency, direction);
            Some(curve.map(|rows, _| {
                let busiest = rows * load.of_step(rows * exchange.top_k as f64);
                (curve.at(busiest) * factor).max(wire_limit * busiest)
            }))
        });
        Some([dispatch?, combine?])
    }

    fn one_way(&self, exchange: &Exchange, low_latency: bool, direction: Direction) -> Option<Curve> {
        let (table, format) = match direction {
            Direction::Dispatch => (KernelTable::Dispatch, "fp8"),
            Direction::Combine => (KernelTable::Combine, "bf16"),
        };
        let kernel = if low_latency { "deepep-low-latency" } else { "deepep-normal" };
        let timed = candidates(&self.asking, self.profiles()?, table, &[format]);
        let candidate = timed.iter().find(|c| c.section.kernel == kernel)?;
        let Exchange { ranks, hidden, top_k, experts } = *exchange;
        let target = [hidden, top_k, experts, ranks].map(|n| n as f64);
        // The number of ranks decides which links are used, so that it comes first.
        const WEIGHTS: [f64; 4] = [1.0, 1.0, 0.25, 4.0];
        let distance =
            |s: &[u32]| Some((0..4).map(|i| WEIGHTS[i] * apart(s[i].into(), target[i])).sum::<f64>());
        let (index, shape) = candidate.section.nearest(distance)?;
        let [of_hidden, of_top_k, of_experts, of_ranks] = [0, 1, 2, 3].map(|i| u64::from(shape[i]));
        let measured = Exchange { ranks: of_ranks, hidden: of_hidden, top_k: of_top_k, experts: of_experts };
        let [own, other] = [(exchange, self.chip), (&measured, candidate.chip)]
            .map(|(exchange, chip)| exchange.least(chip, low_latency, direction));
        let curve = candidate.section.curve(index)?;
        let start = curve.at(1.0);
        Some(curve.map(|_, seconds| start + (seconds - start) * own / other))
    }
}
