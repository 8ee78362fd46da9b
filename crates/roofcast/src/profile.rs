//! Measured kernel times: where they were taken, of which shapes, and how a time between two measured sizes is found.
//!
//! Knows: the embedded asset `catalog/kernels/times.bin` and a user's file in its format, the grid of each table, and the
//! nearest measured shape. Knows nothing about models, limits, or which kernel an engine runs: that is
//! [`crate::kernel_time`]'s. How tables become this file is [`crate::profile::build`]'s.

mod asset;
pub mod build;
mod curve;
mod packed;
mod table;

pub use asset::{Profiles, Section, Writer};
pub use curve::{Curve, Lines};
pub use table::Table;
