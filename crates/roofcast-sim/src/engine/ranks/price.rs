//! The price of a step that all data-parallel ranks of a replica take together.
//!
//! Knows: each rank computes the attention of its own sequences, and the experts compute the tokens of all ranks; the
//! step ends with the slowest rank, because ranks wait for each other in every layer with experts. In a captured graph
//! every rank computes as many rows as the busiest one, and the experts compute the padded rows, too (vLLM 0.33,
//! `v1/worker/dp_utils.py`; SGLang 0.5.23, `layers/dp_attention.py`, where other steps have the sum of all tokens).
//! Knows nothing about schedules.

use super::load::{Repeats, StepLoad};
use crate::engine::price::{Decode, JointSteps, Products, StepPrices, priced};
use roofcast_cost::operator::AdaptedTokens;
use roofcast_cost::step::Pass;
use roofcast_cost::timing::Timing;
use roofcast_facts::batch::Seen;
use roofcast_facts::clock::sum_of_run;
use roofcast_facts::shares::BottleneckShares;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most prices of decodes that are kept; when more are met, all are computed again on their next use.
const MOST_KEPT: usize = 1 << 16;

/// Prices of steps of several ranks.
#[derive(Debug, Clone)]
pub(super) struct JointPrices {
    timing: Arc<Timing>,
    slopes_memory: bool,
    /// Prices of decodes alone, by [`key`].
    decodes: BTreeMap<u128, Decode>,
    products: [Products; 2],
}

impl JointPrices {
    /// Prices from the times of one rank, whose GEMMs `prices` also has.
    pub(super) fn new(prices: &StepPrices) -> JointPrices {
        let (timing, products) = prices.shared();
        let slopes_memory = timing.attention_is_memory_bound();
        JointPrices { timing, slopes_memory, decodes: BTreeMap::new(), products }
    }

    /// Time of a step, by bottleneck of the slowest rank; `ranks` counts all ranks, of which those in `loads` compute.
    /// `repeats` says how the work of ranks that only decode grows: the count is the number of steps in which the same
    /// rank is the slowest.
    pub(super) fn price<'a>(
        &'a mut self,
        loads: &'a [StepLoad],
        repeats: &[Repeats],
        ranks: u64,
    ) -> JointSteps {
        let JointPrices { timing, slopes_memory, decodes, products } = self;
        let stages = timing.model.parallelism.pp;
        let repeats: Vec<&Repeats> = loads
            .iter()
            .zip(repeats)
            .filter(|(load, _)| !load.is_empty())
            .map(|(_, repeats)| repeats)
            .collect();
        let loads: Vec<&StepLoad> = loads.iter().filter(|load| !load.is_empty()).collect();
        // The microbatches of ranks with chunks; microbatches of decodes alone are equal.
        let passes = |load: &'a StepLoad| match load.chunks.is_empty() {
            true => Vec::new(),
            false => timing.model.passes(load.decodes, load.contexts(), &load.chunks).collect(),
        };
        let passes: Vec<Vec<Pass>> = loads.iter().copied().map(passes).collect();
        let rows = |(load, passes): (&&StepLoad, &Vec<Pass>)| {
            let largest_pass = passes.iter().map(|pass| pass.rows).max();
            largest_pass.unwrap_or_else(|| load.decodes.div_ceil(stages))
        };
        let rows: Vec<u64> = loads.iter().zip(&passes).map(rows).collect();
        let largest_rank = rows.iter().copied().max().unwrap_or(0);
        let prompts = passes.iter().flatten().any(|pass| pass.longest > 0);
        let pads = timing.pads(largest_rank, prompts);
        let sum = rows.iter().sum::<u64>();
        let tokens = if pads { largest_rank * ranks } else { sum };
        if decodes.len() > MOST_KEPT {
            decodes.clear();
        }
        let adapted = AdaptedTokens::default();
        let mut slowest = JointSteps { count: 1, shares: BottleneckShares::default(), growth: 0, adapted };
        let mut linear = Vec::new();
        let mut most = u64::MAX;
        for (at, ((load, passes), own)) in loads.iter().zip(passes).zip(rows).enumerate() {
            let padded = |own: u64| if pads { largest_rank } else { own };
            let mut growth = None;
            let shares = if passes.is_empty() {
                let n = load.decodes;
                let rows = padded(own);
                let among = |pass: &mut Pass| (pass.rows, pass.tokens) = (rows, tokens);
                let price = decodes
                    .entry(key(n, rows, tokens))
                    .or_insert_with(|| Decode::of(timing.decode_among(n, among)));
                if let Some(repeats) = repeats.get(at).filter(|repeats| repeats.steps > 1) {
                    let run = price.steps(load.seen(), Seen { all: n, within: &repeats.growth });
                    most = most.min(run.most);
                    growth = Some(run.growth);
                }
                price.shares(load.seen(), *slopes_memory)
            } else {
                let among = |pass: Pass| {
                    let rows = padded(pass.rows);
                    priced(timing, products, &Pass { rows, tokens, ..pass })
                };
                passes.into_iter().map(among).max_by_key(BottleneckShares::total).unwrap_or_default()
            };
            linear.extend(growth.map(|growth| (shares.total(), growth)));
            if shares.total() > slowest.shares.total() {
                slowest = JointSteps { shares, growth: growth.unwrap_or(0), ..slowest };
            }
        }
        if linear.len() == loads.len() {
            slowest.count = steps_of_slowest((slowest.shares.total(), slowest.growth), &linear).min(most);
        }
        slowest
    }

    /// Time of `steps` in ticks, by bottleneck.
    pub(super) fn sum(&self, steps: JointSteps) -> BottleneckShares<u128> {
        let JointSteps { count, shares, growth, .. } = steps;
        let times = |ticks: u64| u128::from(ticks) * u128::from(count);
        let mut sum = shares.map(times);
        *(if self.slopes_memory { &mut sum.memory } else { &mut sum.compute }) +=
            sum_of_run(0, growth, count);
        sum
    }
}

/// A rank's decodes, its rows and the tokens of all ranks as one number, which is compared at once.
fn key(decodes: u64, rows: u64, tokens: u64) -> u128 {
    u128::from(tokens) << 64 | u128::from(rows) << 32 | u128::from(decodes)
}

/// Number of steps in which the rank with the times `slowest` is certainly slower than all others that slow down faster.
/// Each of the times is the one of the first step, and the growth per step.
fn steps_of_slowest(slowest: (u64, u64), all: &[(u64, u64)]) -> u64 {
    let (time, growth) = slowest;
    let faster = all.iter().filter(|(_, other)| *other > growth);
    let steps = faster.map(|(first, other)| (time - first).saturating_sub(1) / (other - growth) + 1);
    steps.min().unwrap_or(u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 100, 102, 104 and 106 ticks on the slowest rank, of 95, 99, 103 and 107 on another: three steps. A rank
    /// that starts equal is slower at once; one that grows less never is.
    #[test]
    fn another_rank_becomes_the_slowest() {
        assert_eq!(steps_of_slowest((100, 2), &[(100, 2), (95, 4)]), 3);
        assert_eq!(steps_of_slowest((100, 2), &[(100, 2), (100, 3)]), 1);
        assert_eq!(steps_of_slowest((100, 2), &[(99, 1), (100, 2)]), u64::from(u32::MAX));
    }
}
