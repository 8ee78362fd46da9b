//! The price of a step that all data-parallel ranks of a replica take together.
//!
//! Knows: each rank computes the attention of its own sequences, and the experts compute the tokens of all ranks; the
//! step ends with the slowest rank, because ranks wait for each other in every layer with experts. In a captured graph
//! every rank computes as many rows as the busiest one, and the experts compute the padded rows, too (vLLM 0.33,
//! `v1/worker/dp_utils.py`; SGLang 0.5.23, `layers/dp_attention.py`, where other steps have the sum of all tokens).
//! Knows nothing about schedules.

use super::load::StepLoad;
use crate::engine::price::{Decode, Products, priced};
use roofcast_cost::step::Pass;
use roofcast_cost::timing::Timing;
use roofcast_facts::shares::BottleneckShares;
use std::collections::BTreeMap;

/// Most prices of decodes that are kept; when more are met, all are computed again on their next use.
const MOST_KEPT: usize = 1 << 16;

/// Prices of steps of several ranks.
#[derive(Debug, Clone)]
pub(super) struct JointPrices {
    timing: Timing,
    slopes_memory: bool,
    /// Prices of decodes alone, by the rank's decodes, its rows and the tokens of all ranks.
    decodes: BTreeMap<[u64; 3], Decode>,
    products: [Products; 2],
}

impl JointPrices {
    /// Prices from the times of one rank.
    pub(super) fn new(timing: Timing) -> JointPrices {
        let slopes_memory = timing.attention_is_memory_bound();
        JointPrices { timing, slopes_memory, decodes: BTreeMap::new(), products: Default::default() }
    }

    /// Time of a step in ticks, by bottleneck of the slowest rank; `ranks` counts all ranks, of which those in `loads`
    /// compute.
    pub(super) fn price<'a>(&'a mut self, loads: &'a [StepLoad], ranks: u64) -> BottleneckShares<u64> {
        let JointPrices { timing, slopes_memory, decodes, products } = self;
        let stages = timing.model.parallelism.pp;
        let loads: Vec<&StepLoad> = loads.iter().filter(|load| !load.is_empty()).collect();
        // The microbatches of ranks with chunks; microbatches of decodes alone are equal.
        let passes = |load: &'a StepLoad| match load.chunks.is_empty() {
            true => Vec::new(),
            false => timing.model.passes(load.decodes, load.contexts(), &load.chunks).collect(),
        };
        let passes: Vec<Vec<Pass>> = loads.iter().copied().map(passes).collect();
        let rows = |(load, passes): (&&StepLoad, &Vec<Pass>)| {
            let most = passes.iter().map(|pass| pass.rows).max();
            most.unwrap_or_else(|| load.decodes.div_ceil(stages))
        };
        let rows: Vec<u64> = loads.iter().zip(&passes).map(rows).collect();
        let most = rows.iter().copied().max().unwrap_or(0);
        let prompts = passes.iter().flatten().any(|pass| pass.longest > 0);
        let (pads, sum) = (timing.pads(most, prompts), rows.iter().sum::<u64>());
        let tokens = if pads { most * ranks } else { sum };
        if decodes.len() > MOST_KEPT {
            decodes.clear();
        }
        let mut slowest = BottleneckShares::default();
        for ((load, passes), own) in loads.iter().zip(passes).zip(rows) {
            let padded = |own: u64| if pads { most } else { own };
            let shares = if passes.is_empty() {
                let (n, rows) = (load.decodes, padded(own));
                let among = |pass: &mut Pass| (pass.rows, pass.tokens) = (rows, tokens);
                let price = decodes
                    .entry([n, rows, tokens])
                    .or_insert_with(|| Decode::of(timing.decode_among(n, among)));
                let mut shares = price.shares;
                let attending = price.attending(load.seen());
                *(if *slopes_memory { &mut shares.memory } else { &mut shares.compute }) += attending;
                shares
            } else {
                let among = |pass: Pass| {
                    let rows = padded(pass.rows);
                    priced(timing, products, &Pass { rows, tokens, ..pass })
                };
                passes.into_iter().map(among).max_by_key(BottleneckShares::total).unwrap_or_default()
            };
            if shares.total() > slowest.total() {
                slowest = shares;
            }
        }
        slowest
    }
}
