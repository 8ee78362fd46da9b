//! Pictures from answers: pure functions from data to SVG text.

mod chart;
pub mod roofline;
pub mod tradeoff;
