//! The time of a step that only decodes, as a function of its contexts.
//!
//! Knows: the numbers of the function. Knows nothing about their origin.

use super::overhead::Floor;
use roofcast_facts::shares::BottleneckShares;

/// Time of a step with decodes alone, in seconds: `fixed + t`, where `t = slope · seen + Σ slopes[r] · seen within r`, of
/// either half of t the part beyond `hidden`; at least `floor`.
#[derive(Debug, Clone, PartialEq)]
pub struct AffineStep {
    /// Seconds that do not depend on contexts, by bottleneck.
    pub fixed: BottleneckShares<f64>,
    /// Seconds per token of context read, over all sequences.
    pub slope: f64,
    /// Seconds per token of context read within each of the model's windows.
    pub slopes: Vec<f64>,
    /// Seconds of either half of the times by context that are hidden behind dispatch and combination, which last longer.
    pub hidden: [f64; 2],
    /// Least seconds of the step: the engine's loop or its server.
    pub floor: Floor,
}
