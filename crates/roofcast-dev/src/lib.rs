//! Evidence: fits of calibrations, kernel times from tables, recordings of schedulers, published exercises, and entry
//! points of fuzzers.
//!
//! Knows: where the numbers of the other crates come from, and what they are tested against. No answer needs it, except
//! those of `calibrate` and `seeds`.

pub mod calibrate;
pub mod conformance;
pub mod profile;
pub mod seeds;
pub mod testing;
