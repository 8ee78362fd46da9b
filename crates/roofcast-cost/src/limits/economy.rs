//! Cost of output tokens against their latency, over the batch: one curve a context, to the largest batch that memory holds.
//!
//! Knows: forecast and limit of decode steps. Knows nothing about prompts, whose time comes on top, and about an engine's
//! bound on sequences.

use super::{LimitsQuestion, decode};
use crate::forecaster::Forecaster;
use crate::memory::Memory;
use roofcast_facts::units::Picoseconds;

/// Factors on the context of the question.
const CONTEXTS: [(u64, u64); 3] = [(1, 4), (1, 1), (4, 1)];

/// Decode steps of one context.
#[derive(Debug, Clone, PartialEq)]
pub struct CostCurve {
    /// Tokens of each sequence.
    pub context: u64,
    /// Steps in order of their batch; the last one fills the memory.
    pub points: Vec<CostPoint>,
}

/// One decode step, and the cost of its tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostPoint {
    /// Sequences of the step, over the whole deployment.
    pub batch: u64,
    /// Time of the step as forecast.
    pub forecast: Picoseconds,
    /// Time of the step at the limit.
    pub limit: Picoseconds,
    /// Cost of a million tokens at the forecast: dollars, or hours of an accelerator without a price.
    pub cost: f64,
    /// Cost of a million tokens at the limit.
    pub limit_cost: f64,
}

/// The curves at a quarter of the question's context, at the context and at four times it, as far as the model and the memory
/// hold one sequence of them.
pub fn cost_curves(forecaster: &Forecaster, question: &LimitsQuestion) -> Vec<CostCurve> {
    let deployment = &forecaster.deployment;
    let usd_per_hour = deployment.accelerator.price.as_ref().map_or(1.0, |price| price.usd_per_hour);
    let per_hour = usd_per_hour * deployment.parallelism.count() as f64;
    let longest = deployment.longest().unwrap_or(u64::MAX);
    let memory = Memory::of(deployment);
    let contexts = CONTEXTS.iter().map(|(times, over)| question.context.saturating_mul(*times) / over);
    let curve = |context: u64| {
        let most = memory.sequences(context).saturating_mul(deployment.parallelism.replicas);
        let powers = (0..u64::BITS - 1).map(|power| 1 << power).take_while(|batch| *batch < most);
        let point = |batch: u64| {
            let step = decode(forecaster, &LimitsQuestion { batch, context, ..*question });
            let cost = |time: Picoseconds| per_hour * time.seconds() / 3600.0 / batch as f64 * 1e6;
            CostPoint {
                batch,
                forecast: step.forecast,
                limit: step.limit_with_communication,
                cost: cost(step.forecast),
                limit_cost: cost(step.limit_with_communication),
            }
        };
        CostCurve { context, points: powers.chain((most > 0).then_some(most)).map(point).collect() }
    };
    let mut curves: Vec<CostCurve> =
        contexts.filter(|context| (1..=longest).contains(context)).map(curve).collect();
    curves.retain(|curve| !curve.points.is_empty());
    curves
}
