//! Plans: the deployments that meet an SLO, and the certainty of the answer by measured rows.
//!
//! Knows: candidates, proofs and chances, and the errors of forecasts against measurements. Knows nothing about how an
//! answer is shown.

pub mod measurement;
pub mod plan;
pub mod validate;
