//! Pictures of answers: pure functions from data to SVG text, and from a run to a trace that Perfetto opens.

mod chart;
pub mod chrome;
pub mod curves;
pub mod economy;
pub mod intensity;
pub mod measured;
pub mod roofline;
pub mod run;
pub mod scatter;
pub mod sweep;
pub mod tradeoff;
