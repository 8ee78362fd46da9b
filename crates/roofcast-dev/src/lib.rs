//! Evidence: fits of calibrations, kernel times from tables, recordings of schedulers, published exercises, and entry
//! points of fuzzers.
//!
//! Knows: the origin of the numbers in the other crates, and the evidence that tests them. Only answers of `calibrate`,
//! `conformance` and `seeds` need it.

pub mod calibrate;
pub mod conformance;
pub mod profile;
pub mod seeds;
pub mod testing;
