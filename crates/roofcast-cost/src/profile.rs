//! Measured kernel times: their origin, the shapes that were timed, and interpolation between measured sizes.
//!
//! Knows: the embedded asset `catalog/kernels/times.bin` and user files in its format, the grid of each table, and
//! the nearest measured shape. Knows nothing about models, limits, or which kernel an engine runs; see
//! [`crate::kernel_time`]. `profile::build` makes the file from tables.

mod asset;
mod curve;
mod packed;
mod table;

pub use asset::{Profiles, Section, Writer};
pub(crate) use curve::{Curve, Lines};
pub use table::KernelTable;
